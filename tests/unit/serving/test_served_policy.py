"""Trained policies behind HTTP: they act as the trainer does, whatever callers send."""

import http.client
import importlib.util
import io
import json
import socket
import threading
import urllib.parse

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.ppo import PPOTrainer
from rlframe.cli.serve_command import serve
from rlframe.serving import served_policy
from rlframe.serving.policy_service import PolicyService
from rlframe.serving.served_policy import ServedPolicy
from rlframe.utils.errors import ConfigError, DataError

web = pytest.importorskip("rlframe.serving.web")

PARTS = gym.spaces.Dict(
    {
        "place": gym.spaces.Box(-9.0, 9.0, (2,), np.float32),
        "kind": gym.spaces.Discrete(3),
        "pair": gym.spaces.Tuple([gym.spaces.MultiBinary(2), gym.spaces.Box(0, 255, (1,), np.uint8)]),
    }
)
LINE = gym.spaces.Box(-9.0, 9.0, (3,), np.float32)
MOVES = gym.spaces.Box(-2.0, 5.0, (2,), np.float32)
TURN = gym.spaces.Discrete(3)


def trainer_of(observed, acted, **config):
    small = {"num_workers": 0, "seed": 3, "log_sys_usage": False, "framework": "torch", "env": None}
    model = {"fcnet_hiddens": [4], "lstm_cell_size": 4, **config.pop("model", {})}
    return PPOTrainer({**small, "observation_space": observed, "action_space": acted, "model": model, **config})


class Running:
    """A trainer whose policies are served at a free port."""

    def __init__(self, trainer, token=None, **options):
        self.trainer, self.service = trainer, PolicyService(trainer, **options)
        self.server = web.ServiceServer(self.service, port=0, token=token)

    def client(self, **options):
        return ServedPolicy(self.server.url, **options)

    def send(self, method, path, body=b"", kind="application/json", **headers):
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.server.url).netloc, timeout=20)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, raw, {"Content-Type": kind, **headers})
        response = connection.getresponse()
        answer, told = response.read(), response.getheader("Content-Type") or ""
        connection.close()
        return response.status, json.loads(answer) if told == "application/json" else answer

    def __enter__(self):
        self.server.__enter__()
        return self

    def __exit__(self, *_):
        self.server.__exit__()
        self.trainer.stop()


@pytest.fixture(scope="module")
def moves():
    with Running(trainer_of(LINE, MOVES, observation_filter="MeanStdFilter")) as running:
        worker = running.trainer.workers.local_worker()
        for row in np.random.default_rng(0).normal(2.0, 3.0, (20, 3)).astype(np.float32):
            next(iter(worker.filters.values()))(row)
        yield running


@pytest.fixture(scope="module")
def parts():
    with Running(trainer_of(PARTS, TURN)) as running:
        yield running


@pytest.fixture(scope="module")
def memory():
    config = {"use_lstm": True, "lstm_use_prev_action": True, "lstm_use_prev_reward": True, "max_seq_len": 4}
    with Running(trainer_of(LINE, TURN, model=config), session_timeout_s=60.0, most_sessions=3) as running:
        yield running


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_actions_are_those_of_compute_single_action_in_each_kind_of_body(moves):
    rows = np.random.default_rng(1).normal(2.0, 3.0, (5, 3)).astype(np.float32)
    wanted = np.stack([moves.trainer.compute_single_action(row, explore=False) for row in rows])
    assert np.ptp(wanted, axis=0).min() > 1e-3
    client = moves.client()
    one = client.act(rows[0])
    assert one.dtype == np.float32
    np.testing.assert_allclose(one, wanted[0], rtol=1e-6)
    np.testing.assert_allclose(client.act_many(rows), wanted, rtol=1e-5)
    _, told = moves.send("POST", "/act", {"observations": rows.tolist()})
    np.testing.assert_allclose(told["actions"], wanted, rtol=1e-5)
    _, raw = moves.send("POST", "/act", npy(rows), "application/x-npy")
    np.testing.assert_allclose(np.load(io.BytesIO(raw)), wanted, rtol=1e-5)
    _, raw = moves.send("POST", "/act", npy(rows[1]), "application/x-npy")
    np.testing.assert_allclose(np.load(io.BytesIO(raw)), wanted[1], rtol=1e-6)


def test_exploring_is_as_asked(moves):
    row = np.ones(3, np.float32)
    assert len({tuple(moves.client(explore=False).act(row)) for _ in range(3)}) == 1
    assert len({tuple(moves.client(explore=True).act(row)) for _ in range(3)}) == 3


def test_observations_of_several_parts_arrive_whole(parts):
    PARTS.seed(5)
    rows = [PARTS.sample() for _ in range(4)]
    wanted = [parts.trainer.compute_single_action(row, explore=False) for row in rows]
    assert parts.client().act_many(rows) == wanted
    plain = {
        "place": rows[0]["place"].tolist(), "kind": int(rows[0]["kind"]),
        "pair": [part.tolist() for part in rows[0]["pair"]],
    }  # fmt: skip
    assert parts.send("POST", "/act", {"observation": plain}) == (200, {"action": wanted[0]})
    stream = io.BytesIO()
    pairs = {f"pair/{i}": np.stack([row["pair"][i] for row in rows]) for i in range(2)}
    np.savez_compressed(stream, **pairs, **{key: np.stack([row[key] for row in rows]) for key in ("place", "kind")})
    _, raw = parts.send("POST", "/act", stream.getvalue(), "application/x-npz")
    assert np.load(io.BytesIO(raw)).tolist() == wanted


def test_sessions_remember_as_an_actor_does_and_not_of_one_another(memory):
    rows = np.random.default_rng(2).normal(size=(2, 6, 3)).astype(np.float32)
    actors = [memory.trainer.make_actor(explore=False) for _ in rows]
    with memory.client().session() as one, memory.client().session() as other:
        for step in range(6):
            reward = None if step == 0 else float(step)
            for session, actor, obs in zip((one, other), actors, rows[:, step], strict=True):
                assert session.act(obs, reward) == actor.act(obs, reward)
        states = [served.actor.state for served in memory.service._sessions.values()]
    np.testing.assert_array_equal(states[0], actors[0].state)
    assert np.abs(states[0][0] - states[1][0]).max() > 1e-4
    assert memory.service.open_sessions == 0


def test_a_step_that_is_asked_again_is_not_taken_twice(memory):
    with memory.client().session() as session:
        session.act(np.ones(3, np.float32))
        (served,) = memory.service._sessions.values()
        state = [part.copy() for part in served.actor.state]
        session._steps = 0
        session.act(np.ones(3, np.float32))
        np.testing.assert_array_equal(served.actor.state, state)
        session._steps = 5
        with pytest.raises(DataError, match="step: got 5, wanted 1, or the one before again"):
            session.act(np.ones(3, np.float32))


def test_sessions_that_are_over_say_so(memory):
    with memory.client().session() as session:  # at its end nothing more is said of what is over
        next(iter(memory.service._sessions.values())).heard -= 61.0
        with pytest.raises(DataError, match=r"has expired: nothing was heard of it for 60 s; begin another one"):
            session.act(np.ones(3, np.float32))
    assert memory.service.open_sessions == 0
    assert memory.send("DELETE", "/sessions/none")[0] == 404
    opened = [memory.client().session() for _ in range(3)]
    with pytest.raises(DataError, match="3 sessions are open, which is the most"):
        memory.client().session()
    for one in opened:
        one.close()


def test_memory_takes_a_session_and_rewards_that_it_sees(memory):
    with pytest.raises(DataError, match="acts from what it saw before; wanted a session"):
        memory.client().act(np.ones(3, np.float32))
    with memory.client().session() as session:
        session.act(np.ones(3, np.float32))
        with pytest.raises(DataError, match="sees past rewards"):
            session.act(np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("body", "kind", "status", "said"),
    [
        ({"observation": [1, 2]}, None, 422, r"observation: got shape (2,), wanted numbers of shape (3,), float32"),
        ({"observation": [1, [2], 3]}, None, 422, "observation: got lists of unequal lengths"),
        ({"observation": ["a", "b", "c"]}, None, 422, "wanted numbers of shape (3,)"),
        ({"observation": [1, 2, float("nan")]}, None, 422, "NaN or infinity"),
        ({"observations": []}, None, 422, "observations: got none"),
        ({"observation": [1, 2, 3], "explore": 1.5}, None, 422, "explore: got 1.5, wanted true or false"),
        ({"observation": [1, 2, 3], "agent": "a"}, None, 422, "wanted an object with some of"),
        ({"observation": [1, 2, 3], "policy": "a"}, None, 404, "policy: got 'a', wanted one of default_policy"),
        ({}, None, 422, "wanted either 'observation'"),
        (b"{", None, 422, "none of a policy's client or server"),
        (b"[1]", "text/plain", 415, "got Content-Type 'text/plain'"),
        (b"\x93NUMPY", "application/x-npy", 422, "body: got no npy file"),
        (npy(np.zeros((2, 4))), "application/x-npy", 422, "body: got shape (2, 4), wanted (3,), or several rows"),
        (npy(np.zeros((2, 3)))[:-8], "application/x-npy", 422, "wanted whole, of numbers"),
        (b"PK", "application/x-npz", 422, "body: got no npz file"),
    ],
)
def test_what_cannot_be_acted_on_gets_one_sentence(moves, body, kind, status, said):
    got, told = moves.send("POST", "/act", body, kind or "application/json")
    assert (got, said in told["error"], "\n" in told["error"]) == (status, True, False), told


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("kind", 3, "observation.kind: got 3, wanted 0 to 2"),
        ("kind", 0.5, "observation.kind: got 0.5, wanted numbers of shape (), int64"),
        ("pair", [[0, 1]], "observation.pair: got 1 parts, wanted a list of 2 parts"),
        ("pair", [[0, 1], [256]], "observation.pair[1]: got [256], wanted numbers of shape (1,), uint8"),
        ("more", 1, "wanted an object with the keys ['kind', 'pair', 'place']"),
    ],
)
def test_parts_that_do_not_fit_are_named(parts, part, value, said):
    good = {"place": [0, 0], "kind": 0, "pair": [[0, 1], [7]]}
    assert parts.send("POST", "/act", {"observation": good})[0] == 200
    status, told = parts.send("POST", "/act", {"observation": {**good, part: value}})
    assert (status, said in told["error"]) == (422, True), told


def test_callers_at_once_are_acted_on_together_and_fail_alone(moves):
    service, acting, asked = moves.service, threading.Event(), threading.Event()
    inner = service._pass

    def slow(*args):
        acting.set()
        assert asked.wait(10)
        return inner(*args)

    answers, before = {}, service.batches
    rows = {name: np.full(3, index, np.float32) for index, name in enumerate("abcd")} | {"e": np.zeros(2, np.float32)}

    def call(name):
        try:
            answers[name] = moves.client().act(rows[name])
        except DataError as error:
            answers[name] = error

    service._pass = slow
    try:
        threads = [threading.Thread(target=call, args=(name,)) for name in rows]
        threads[0].start()
        assert acting.wait(10)
        for thread in threads[1:]:
            thread.start()
        while len(service._waiting) < 4:
            threading.Event().wait(0.001)
        asked.set()
        for thread in threads:
            thread.join()
    finally:
        service._pass = inner
    assert service.batches == before + 2
    for name in "abcd":
        wanted = moves.trainer.compute_single_action(rows[name], explore=False)
        np.testing.assert_allclose(answers[name], wanted, rtol=1e-5)
    assert "got shape (2,)" in str(answers["e"])


@pytest.mark.parametrize("error", [StopIteration, SystemExit])
def test_whatever_a_policy_raises_its_callers_are_answered_and_others_after_them(memory, monkeypatch, error):
    """Neither may be raised in the event loop, whose task then answered nobody any more."""

    def act(*args):
        raise error("of a model")

    client = memory.client(timeout_s=5.0)
    with client.session() as session:
        with monkeypatch.context() as broken:
            broken.setattr("rlframe.trainer.actor.StatefulActor.act", act)
            with pytest.raises(RuntimeError, match=r"could not act: .*of a model"):
                session.act(np.zeros(3, np.float32))
        assert session.act(np.zeros(3, np.float32)) is not None


def test_contract_health_and_metrics_tell_what_is_served(moves, parts):
    told = moves.client().contract()
    assert told["policies"]["default_policy"] == {
        "observation_space": str(LINE), "observation_dtype": "float32",
        "action_space": str(MOVES), "action_dtype": "float32", "needs_session": False,
    }  # fmt: skip
    assert told["algorithm"] == "PPO"
    assert parts.client().contract()["policies"]["default_policy"]["observation_space"] == str(PARTS)
    assert moves.send("GET", "/health") == (200, {"status": "ok"})
    before = moves.service.rows
    moves.client().act_many(np.ones((7, 3), np.float32))
    _, text = moves.send("GET", "/metrics")
    assert f"\nrlframe_observations_total {before + 7}\n" in text.decode()
    assert 'rlframe_requests_total{route="/health",status="200"} 1\n' in text.decode()


def test_answers_are_sent_without_waiting_for_more(moves):
    assert moves.server._socket.proto == socket.IPPROTO_TCP  # by which asyncio sets TCP_NODELAY


def test_policies_of_several_agents_are_chosen_by_name():
    spec = {name: (None, LINE, TURN, {}) for name in "ab"}
    several = {"policies": spec, "policy_mapping_fn": lambda agent, *_, **__: agent}
    small = {"num_workers": 0, "seed": 3, "log_sys_usage": False, "env": None, "model": {"fcnet_hiddens": [4]}}
    with Running(PPOTrainer({**small, "multiagent": several})) as running:
        rows = np.random.default_rng(4).normal(size=(30, 3)).astype(np.float32) * 5
        served = {name: running.client(policy=name).act_many(rows) for name in "ab"}
        for name in "ab":
            compute = running.trainer.compute_single_action
            assert served[name] == [compute(row, policy_id=name, explore=False) for row in rows]
        assert served["a"] != served["b"]
        with pytest.raises(DataError, match="policy: got None, wanted one of a, b"):
            running.client().act(rows[0])


def test_tokens_and_versions_are_checked(moves, monkeypatch):
    with Running(trainer_of(LINE, TURN), token="right") as running:
        with pytest.raises(PermissionError, match="wanted this server's token"):
            running.client(token="wrong").act(np.ones(3, np.float32))
        running.client(token="right").act(np.ones(3, np.float32))
        assert [running.send("GET", path)[0] for path in ("/health", "/metrics", "/contract")] == [200, 401, 401]
    monkeypatch.setattr(served_policy, "VERSION", 99)
    with pytest.raises(DataError, match="got a client of version 99, this server has 1: install the same"):
        moves.client().act(np.ones(3, np.float32))


def test_only_this_machine_is_served_without_a_token(moves, monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("RLFRAME_POLICY_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"got the address 0\.0\.0\.0 and no token"):
        web.ServiceServer(moves.service, "0.0.0.0", 0)
    with pytest.raises(Exception, match="2"):
        serve(tmp_path, host="0.0.0.0")
    assert "no token" in capsys.readouterr().err
    port = int(moves.server.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match="--port 0 takes a free port"):
        web.ServiceServer(moves.service, port=port)


def test_a_client_outlives_its_connection_but_not_its_server():
    running = Running(trainer_of(LINE, TURN))
    with running:
        client = running.client(timeout_s=10.0)
        first = client.act(np.ones(3, np.float32))
        client._of_thread.connection.sock.shutdown(2)
        assert client.act(np.ones(3, np.float32)) == first
    with pytest.raises(ConnectionError, match="no policy is served at"):
        client.act(np.ones(3, np.float32))


def test_what_ray_serve_needs_is_named():
    if importlib.util.find_spec("fastapi") is not None:
        pytest.skip("Ray Serve is installed; tests/ray serves by it")
    with pytest.raises(ImportError, match=r"needs Ray Serve \(.*\): pip install 'rlframe\[ray-serve\]'"):
        importlib.import_module("rlframe.deploy.ray_serve")
