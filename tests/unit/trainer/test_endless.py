"""What is said of episodes that never end."""

import types

import gymnasium
import pytest

from rlframe.agents.pg import PGTrainer
from rlframe.trainer import describing


class Endless(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 1.0, False, False, {}


@pytest.mark.parametrize(
    ("env", "config", "said"),
    [
        (Endless, {}, "no episode has ended in 30 steps of each of 2 environments"),
        (Endless, {"horizon": 200}, ""),
        (Endless, {"horizon": 15}, ""),
        ("MountainCar-v0", {}, ""),  # which ends after 200 in any case
    ],
)
def test_no_end_of_an_episode_is_said_once(env, config, said, monkeypatch, caplog):
    monkeypatch.setattr(describing, "ENDLESS_STEPS", 25)
    small = {"num_workers": 0, "num_envs_per_worker": 2, "rollout_fragment_length": 10, "train_batch_size": 20}
    trainer = PGTrainer({**small, **config}, env=env)
    for _ in range(5):
        trainer.train()
    assert len(caplog.records) == bool(said)
    assert said in caplog.text


@pytest.mark.parametrize(("env", "said"), [("CartPole-v1", True), (None, False)], ids=["data", "simulators"])
def test_no_environment_is_advised_where_there_is_none(env, said, caplog):
    config = {"input": "rows.json", "evaluation_interval": None, "env": env}
    describing.EndsWatch().watch(types.SimpleNamespace(config=config), {})
    assert bool(caplog.records) == said
