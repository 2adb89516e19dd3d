"""Policies served over HTTP: what becomes of calls, of clients that vanish, of answers that get lost."""

import http.client
import itertools
import json
import threading

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.env import PolicyClient, PolicyServerInput
from rlframe.offline.io_context import IOContext
from rlframe.offline.json_format import as_text
from rlframe.policy.policy import PolicySpec
from rlframe.serving.protocol import VERSION, dumps, loads
from rlframe.utils.errors import ConfigError, DataError, EnvError

SPACE = gym.spaces.Box(-100.0, 100.0, (1,), np.float32)
ACTIONS = gym.spaces.Discrete(2)


class Served:
    """A trainer that serves, its server, and threads with clients."""

    def __init__(self, cls=DQNTrainer, several=False, server=None, **config):
        self.server, self.threads, self.failures = None, [], []

        def serve(ioctx):
            self.server = PolicyServerInput(ioctx, "localhost", 0, **{"idle_timeout": 30.0, **(server or {})})
            return self.server

        spaces = {} if several else {"observation_space": SPACE, "action_space": ACTIONS}
        policies = {"multiagent": {
            "policies": {name: PolicySpec(None, SPACE, ACTIONS) for name in "ab"},
            "policy_mapping_fn": lambda agent, *_: agent,
        }} if several else {}  # fmt: skip
        settings = {
            "env": None, "input": serve, "num_workers": 0, "seed": 1, "min_iter_time_s": 0, "log_sys_usage": False,
            "input_evaluation": [], "model": {"fcnet_hiddens": [4]}, "rollout_fragment_length": 6,
            "train_batch_size": 6,
            **spaces, **policies, **({"sgd_minibatch_size": 3} if cls is PPOTrainer else {}), **config,
        }  # fmt: skip
        self.trainer = cls(settings)
        self.worker = self.trainer.workers.local_worker()

    @property
    def url(self):
        return "http://{}:{}".format(*self.server.server_address)

    def client(self, mode="remote", **more):
        return PolicyClient(self.url, inference_mode=mode, **{"reconnect_s": 5.0, **more})

    def play(self, function, *args):
        def run():
            try:
                function(*args)
            except Exception as error:
                self.failures.append(error)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def join(self):
        for thread in self.threads:
            thread.join(20.0)
            assert not thread.is_alive()
        assert not self.failures


@pytest.fixture
def served():
    made = []

    def build(*args, **kwargs):
        made.append(Served(*args, **kwargs))
        return made[-1]

    yield build
    for each in made:
        each.trainer.stop()


def number(value):
    return np.array([value], np.float32)


def episode_of(client, *values):
    episode = client.start_episode()
    for value in values[:-1]:
        assert client.get_action(episode, number(value)) in (0, 1)
        client.log_returns(episode, value, info={"value": value})
    client.end_episode(episode, number(values[-1]))


@pytest.mark.parametrize("mode", ["remote", "local"])
def test_an_episode_of_another_program_becomes_rows(served, mode):
    server = served(PGTrainer, batch_mode="complete_episodes", rollout_fragment_length=3)
    with server.client(mode) as client:
        server.play(episode_of, client, 1, 2, 3, 4)
        batch = server.worker.sample()
        server.join()
    assert batch["obs"][:, 0].tolist() == [1, 2, 3]
    assert batch["rewards"].tolist() == [1, 2, 3]
    assert batch["dones"].tolist() == [False, False, True]
    (metrics,) = server.worker.get_metrics()
    assert (metrics.episode_length, metrics.episode_reward) == (3, 6.0)


@pytest.mark.filterwarnings("ignore")
def test_a_client_with_a_policy_of_its_own_gets_a_config_with_spaces_of_the_old_gym(served):
    old = pytest.importorskip("gym").spaces
    server = served(PGTrainer, observation_space=old.Box(-100.0, 100.0, (1,)), action_space=old.Discrete(2))
    with server.client("local") as client:
        episode = client.start_episode()
        assert client.get_action(episode, number(1)) in {0, 1}


@pytest.mark.parametrize("mode", ["remote", "local"])
@pytest.mark.parametrize("cls", [DQNTrainer, PPOTrainer])
def test_trainers_learn_from_clients(served, cls, mode):
    server = served(cls, **({"learning_starts": 6, "timesteps_per_iteration": 6} if cls is DQNTrainer else {}))
    before = server.trainer.get_policy().get_weights()

    def loop(client):
        for start in range(12):
            episode_of(client, start, start + 1, start + 2, start + 3)

    with server.client(mode, update_interval=0.0) as client:
        server.play(loop, client)
        results = [server.trainer.train() for _ in range(3)]
    assert results[-1]["timesteps_total"] >= 18
    assert results[-1]["episode_len_mean"] == 3.0
    after = server.trainer.get_policy().get_weights()
    assert any((before[name] != after[name]).any() for name in before)


def test_several_agents_are_told_apart(served):
    server = served(PGTrainer, several=True, rollout_fragment_length=2)
    client = server.client()

    def play():
        episode = client.start_episode()
        for value in (1, 2):
            assert set(client.get_action(episode, {"a": number(value), "b": number(-value)})) == {"a", "b"}
            client.log_returns(episode, {"a": 1.0, "b": 2.0}, None, {"a": False, "b": False})
        client.end_episode(episode, {"a": number(3), "b": number(-3)})

    server.play(play)
    batch = server.worker.sample()
    server.join()
    assert batch.policy_batches["b"]["obs"][:, 0].tolist() == [-1, -2]
    assert batch.policy_batches["b"]["rewards"].tolist() == [2, 2]
    with pytest.raises(ConfigError, match=r"several policies.*inference_mode='remote'"):
        server.client("local")


def test_what_is_asked_again_counts_once(served):
    server = served(PGTrainer, rollout_fragment_length=2)
    client = server.client()

    def send_twice(command, *args):
        message = {"version": VERSION, "client": "me", "number": send_twice.number, "command": command}
        send_twice.number += 1
        body = dumps({**message, "arguments": {"args": list(args), "named": {}}})
        answers = [loads(client._link._post(body)) for _ in range(2)]  # as if the first had been lost on its way
        assert answers[0] == answers[1]
        return answers[0]["result"]

    send_twice.number = 1

    def play():
        episode = send_twice("start_episode")
        for value in (1, 2):
            send_twice("get_action", episode, number(value))
            send_twice("log_returns", episode, 1.0)
        send_twice("end_episode", episode, number(3))

    server.play(play)
    batch = server.worker.sample()
    server.join()
    assert batch["obs"][:, 0].tolist() == [1, 2]
    assert batch["rewards"].tolist() == [1, 1]


def test_a_batch_that_is_brought_again_is_taken_once_after_a_restore_too(served):
    def bring(server, number, *rewards):
        batch = SampleBatch({"obs": np.zeros((len(rewards), 1)), "rewards": np.array(rewards)})
        arguments = {"number": number, "batch": as_text(batch), "episodes": []}
        more = {"version": VERSION, "client": "me", "number": 100 * number + next(numbers)}
        answer = server.server.answer({**more, "command": "report_samples", "arguments": arguments})
        assert answer["result"] == {"saved": number, "missing": None}  # a client that keeps none

    numbers = itertools.count()
    server, again = served(PGTrainer), served(PGTrainer)
    bring(server, 1, 1.0)
    bring(server, 1, 1.0)
    bring(server, 2, 2.0)
    assert [server.worker.sample()["rewards"].tolist() for _ in range(2)] == [[1.0], [2.0]]
    again.server.set_state(server.server.get_state())
    bring(again, 2, 2.0)
    bring(again, 3, 3.0)
    assert again.worker.sample()["rewards"].tolist() == [3.0]


def test_batches_that_no_checkpoint_has_are_asked_for_again(served):
    def bring(server, number, first, rewards=(0.0,)):
        batch = SampleBatch({"obs": np.zeros((len(rewards), 1)), "rewards": np.array(rewards)})
        arguments = {"number": number, "first": first, "batch": as_text(batch), "episodes": []}
        more = {"version": VERSION, "client": "me", "number": next(numbers), "command": "report_samples"}
        return server.server.answer({**more, "arguments": arguments})["result"]

    numbers = itertools.count()
    server, again = served(PGTrainer), served(PGTrainer)
    assert bring(server, 1, 1, [1.0]) == {"saved": 0, "missing": None}
    state = server.server.get_state()
    assert bring(server, 2, 1, [2.0]) == {"saved": 0, "missing": None}  # the state may not be on the disk yet
    server.server.get_state()
    assert bring(server, 3, 1, [3.0]) == {"saved": 1, "missing": None}
    # The server is killed, and another one begins where the first state was; the client is faster than that.
    assert bring(again, 4, 2, [4.0]) == {"saved": 0, "missing": 2}
    assert bring(again, 2, 2, [2.0]) == {"saved": 0, "missing": None}
    again.server.set_state(json.loads(json.dumps(state)))
    assert bring(again, 4, 2, [4.0]) == {"saved": 1, "missing": 3}
    assert bring(again, 3, 2, [3.0]) == {"saved": 1, "missing": None}
    assert bring(again, 4, 2, [4.0]) == {"saved": 1, "missing": None}
    assert [again.worker.sample()["rewards"].tolist() for _ in range(4)] == [[1.0], [2.0], [3.0], [4.0]]


def test_silence_gives_an_empty_batch_and_training_goes_on(served, caplog):
    server = served(DQNTrainer, server={"idle_timeout": 0.125}, learning_starts=6, timesteps_per_iteration=6)
    assert [server.worker.sample().count for _ in range(4)] == [0] * 4
    said = [record.getMessage() for record in caplog.records if "policy clients" in record.getMessage()]
    assert [line.split()[-2] for line in said] == ["0.125", "0.25", "0.5"]
    client = server.client()

    def loop():
        for start in range(8):
            episode_of(client, start, start + 1)
            if start == 3:
                threading.Event().wait(1.0)

    server.play(loop)
    assert server.trainer.train()["timesteps_total"] >= 6


def test_an_episode_whose_client_is_gone_is_given_up(served):
    server = served(PGTrainer, server={"session_timeout_s": 0.2, "idle_timeout": 1.0}, batch_mode="complete_episodes")
    lost, client = [], server.client()

    def vanish():
        lost.append(client.start_episode())
        client.get_action(lost[0], number(1))

    server.play(vanish)
    assert server.worker.sample().count == 0
    server.join()
    with pytest.raises(ValueError, match=r"get_action\(.*this episode has ended"):
        client.get_action(lost[0], number(2))


def test_whole_rows_of_a_client_that_is_gone_are_learned_from(served):
    server = served(PGTrainer, server={"session_timeout_s": 0.2, "idle_timeout": 1.0}, rollout_fragment_length=4)
    client = server.client()

    def vanish():
        episode = client.start_episode()
        for value in (1, 2, 3):  # the third has no reward and no next observation
            client.get_action(episode, number(value))
            client.log_returns(episode, value)

    server.play(vanish)
    found = server.worker.sample()
    server.join()
    assert found["obs"][:, 0].tolist() == [1, 2]
    assert found["new_obs"][:, 0].tolist() == [2, 3]
    assert found["rewards"].tolist() == [1, 2]
    assert not found["dones"].any()
    server.play(episode_of, client, 4, 5, 6, 7, 8)
    assert server.worker.sample()["obs"][:, 0].tolist() == [4, 5, 6, 7]
    server.join()


def test_a_wrong_observation_ends_its_episode_and_nobody_elses_training(served):
    server = served(PGTrainer, batch_mode="complete_episodes", rollout_fragment_length=2)
    client, said = server.client(), []

    def play():
        wrong = client.start_episode()
        try:
            client.get_action(wrong, np.zeros(3, np.float32))
        except EnvError as error:
            said.append(str(error))
        client.end_episode(client.start_episode(), np.zeros(3, np.float32))  # nobody waits for an answer to that
        episode_of(client, 1, 2, 3)

    server.play(play)
    batch = server.worker.sample()
    server.join()
    assert "(3,)" in said[0]
    assert batch["obs"][:, 0].tolist() == [1, 2]


def test_a_mistake_of_the_trainers_callbacks_is_not_the_clients(served):
    class Failing(DefaultCallbacks):
        def on_episode_step(self, *, worker, base_env, episode, env_index, **kwargs):
            raise AttributeError("a callback's own")

    server = served(PGTrainer, callbacks=Failing)
    server.play(episode_of, server.client(), 1, 2, 3)
    with pytest.raises(AttributeError, match="a callback's own"):
        server.worker.sample()
    server.threads[0].join(20.0)
    assert "a callback's own" in str(server.failures.pop())


def test_a_closed_server_refuses_and_lets_those_go_who_wait(served):
    server = served(PGTrainer)
    text, answers = as_text(SampleBatch({"obs": np.zeros((1, 1)), "rewards": np.ones(1)})), []

    def bring():
        for number in range(1, 67):  # more than may wait
            message = {"version": VERSION, "client": "me", "number": number, "command": "report_samples"}
            arguments = {"number": number, "batch": text, "episodes": []}
            answers.append(server.server.answer({**message, "arguments": arguments}))

    server.play(bring)
    while len(answers) < 64:
        threading.Event().wait(0.01)
    server.server.close()
    server.join()
    assert [answer.get("error", {}).get("kind") for answer in answers[63:]] == [None, *["TrainingStopped"] * 2]


def test_batches_that_wait_are_in_checkpoints(served):
    server, again = served(PGTrainer), served(PGTrainer)
    arguments = {"number": 1, "batch": as_text(SampleBatch({"obs": np.zeros((1, 1)), "rewards": np.ones(1)}))}
    message = {"version": VERSION, "client": "me", "number": 1, "command": "report_samples"}
    server.server.answer({**message, "arguments": {**arguments, "episodes": []}})
    again.server.set_state(json.loads(json.dumps(server.server.get_state())))
    assert again.worker.sample()["rewards"].tolist() == [1.0]


def test_local_clients_explore_each_in_its_own_way(served):
    server = served(PGTrainer)
    clients = [server.client("local") for _ in range(2)]
    draws = [client._local._worker.policy_map["default_policy"]._action_rng.random(4).tolist() for client in clients]
    for client in clients:
        client.close()
    assert draws[0] != draws[1]


def test_closing_a_local_client_sends_what_ended(served):
    server = served(PGTrainer, batch_mode="complete_episodes", rollout_fragment_length=100)
    client = server.client("local")
    for start in range(3):
        episode_of(client, start, start + 1)
    client.close()
    batch = server.worker.sample()
    assert batch["obs"][:, 0].tolist() == [0, 1, 2]


def test_what_a_local_client_cannot_send_at_its_end_is_raised(served):
    server = served(PGTrainer)
    client = server.client("local", reconnect_s=0.1)
    episode_of(client, 1, 2, 3)
    server.trainer.stop()
    with pytest.raises(ConnectionError, match="no policy server answers"):
        client.close()
    client.close()


def test_mistakes_of_clients_are_their_own(served):
    server = served(PGTrainer)
    client = server.client()
    with pytest.raises(ValueError, match=r"get_action\('who'\): this episode is not known"):
        client.get_action("who", number(1))
    with pytest.raises(ValueError, match=r"start_episode\(7\): got int, wanted text"):
        client.start_episode(7)
    with pytest.raises(DataError, match="which cannot be sent"):
        client.get_action("who", object())
    with pytest.raises(ConfigError, match="inference_mode: got 'loc'"):
        PolicyClient(server.url, inference_mode="loc")
    with pytest.raises(ConfigError, match="wanted a URL"):
        PolicyClient("http://")


def test_nobody_without_the_token_is_heard(served):
    server = served(PGTrainer, server={"token": "secret"})
    with pytest.raises(PermissionError, match="RLFRAME_POLICY_TOKEN"):
        server.client().start_episode()
    assert server.client(token="secret").start_episode()
    with pytest.raises(ConfigError, match="no token"):
        PolicyServerInput(IOContext(worker=server.worker), "0.0.0.0", 0)


@pytest.mark.parametrize(
    ("body", "content_type", "status", "said"),
    [
        (b"\x80\x04K\x01.", "application/json", 400, "none of a policy's client"),  # a pickle
        (b"[1]", "application/json", 400, "got a list"),
        (dumps({"version": VERSION, "client": "c", "number": 1}), "application/json", 400, "command"),
        (b'{"__space__": {"kind": "Discrete", "told": []}}', "application/json", 400, "none of a policy's client"),
        (b"{}", "text/plain", 415, "Content-Type"),  # what a web page may send without asking
        (dumps({"version": 0, "client": "c", "number": 1}), "application/json", 200, "client of version 0"),
        (dumps({"version": VERSION, "client": "c", "number": 1, "command": "exec", "arguments": {}}),
         "application/json", 200, "got the command 'exec'"),
    ],
)  # fmt: skip
def test_other_messages_are_refused(served, body, content_type, status, said):
    server = served(PGTrainer)
    connection = http.client.HTTPConnection(*server.server.server_address)
    connection.request("POST", "/", body, {"Content-Type": content_type})
    answer = connection.getresponse()
    assert (answer.status, said in json.loads(answer.read())["error"]["message"]) == (status, True)


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(ConnectionError, match="no policy server answers at http://localhost:9"):
        PolicyClient("http://localhost:9", inference_mode="remote", reconnect_s=0.1).start_episode()


def test_a_port_in_use_is_named(served):
    server = served(PGTrainer)
    with pytest.raises(ConfigError, match=r"cannot listen at localhost:.*ioctx\.worker_index"):
        PolicyServerInput(IOContext(worker=served(PGTrainer).worker), "localhost", server.server.server_address[1])


@pytest.mark.parametrize(
    "value",
    [
        {"a": np.arange(3, dtype=np.uint8), "b": (1, 2.5, None)}, {1: "one", (2, 3): "pair"}, {"__array__": "not one"},
        [float("inf"), True, "text"], np.zeros((0, 3), np.float64),
    ],
)  # fmt: skip
def test_messages_come_back_as_they_were(value):
    again = loads(dumps(value))
    assert type(again) is type(value)
    assert repr(again) == repr(value)


def test_spaces_come_back_as_they_were():
    space = gym.spaces.Dict({"a": SPACE,
                             "b": gym.spaces.Tuple([ACTIONS, gym.spaces.MultiDiscrete([2, 3], start=[5, 1])]),
                             "c": gym.spaces.MultiBinary(4)})  # fmt: skip
    assert loads(dumps(space)) == space
