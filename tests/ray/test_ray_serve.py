"""A run's policies in Ray Serve act as the trainer does, from any replica, and say what they refuse."""

import http.client
import socket

import numpy as np
import pytest

from rlframe.agents.ppo import PPOTrainer
from rlframe.serving.served_policy import ServedPolicy
from rlframe.utils.errors import DataError

pytestmark = [pytest.mark.ray, pytest.mark.slow]
SMALL = {"env": "CartPole-v1", "num_workers": 0, "seed": 1, "log_sys_usage": False}
LSTM = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_reward": True}
HALF = {"ray_actor_options": {"num_cpus": 0.5}}


def trainer_of(**model):
    made = PPOTrainer({**SMALL, "model": {"fcnet_hiddens": [4], **model}})
    rng, policy = np.random.default_rng(0), made.get_policy()
    policy.set_weights({key: rng.normal(0, 0.5, part.shape) for key, part in policy.get_weights().items()})
    return made


@pytest.fixture(scope="module")
def deployments(ray_runtime):
    pytest.importorskip("fastapi", reason="Ray Serve is not installed: pip install -e '.[ray-serve]'")
    from ray import serve

    from rlframe.deploy.ray_serve import PolicyDeployment

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"port": port})

    def deploy(name, *args, replicas=1, **kwargs):
        bound = PolicyDeployment.options(num_replicas=replicas, **HALF).bind(*args, **kwargs)
        return serve.run(bound, name=name, route_prefix=f"/{name}"), f"http://127.0.0.1:{port}/{name}"

    yield deploy
    serve.shutdown()


def test_replicas_act_as_the_trainer_does(deployments, tmp_path):
    trainer = trainer_of()
    handle, url = deployments("choices", trainer.save(str(tmp_path)), replicas=2)
    rows = np.random.default_rng(2).normal(size=(20, 4)).astype(np.float32)
    wanted = [trainer.compute_single_action(row, explore=False) for row in rows]
    trainer.stop()
    assert len(set(wanted)) == 2
    client = ServedPolicy(url)
    assert client.act_many(rows) == wanted
    assert [client.act(row) for row in rows] == wanted
    assert [handle.act.remote(row).result() for row in rows[:3]] == wanted[:3]
    assert handle.act_many.remote(rows[:3]).result() == wanted[:3]
    with pytest.raises(DataError, match=r"observation: got shape \(2,\), wanted numbers of shape \(4,\)"):
        client.act([1.0, 2.0])


def test_memories_take_one_replica_and_a_token_is_asked_for(deployments, tmp_path):
    trainer = trainer_of(**LSTM)
    path = trainer.save(str(tmp_path))
    with pytest.raises(RuntimeError, match="failed"):
        deployments("several", path, replicas=2)
    _, url = deployments("memory", path, token="right")
    with pytest.raises(PermissionError, match="wanted this server's token"):
        ServedPolicy(url).contract()
    actor = trainer.make_actor(explore=False)
    with ServedPolicy(url, token="right").session() as episode:
        for step, row in enumerate(np.random.default_rng(3).normal(size=(12, 4)).astype(np.float32)):
            reward = float(step) if step else None
            assert episode.act(row, reward) == actor.act(row, reward)
    trainer.stop()
    connection = http.client.HTTPConnection(url.split("/")[2])
    connection.request("GET", "/memory/health")
    assert connection.getresponse().status == 200
