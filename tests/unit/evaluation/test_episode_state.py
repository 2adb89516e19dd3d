"""What callbacks keep in an episode: behind a restore, and behind a soft horizon."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.pg import PGTrainer
from rlframe.env.multi_agent_env import make_multi_agent
from rlframe.evaluation.episode import Episode
from rlframe.evaluation.episode_state import users_state
from tests.helpers.envs import Counting

SMALL = {"num_workers": 0, "train_batch_size": 4, "rollout_fragment_length": 4, "log_level": "ERROR", "seed": 0}


class Counts(DefaultCallbacks):
    """Counts an episode's steps in every way there is; `set` is no state."""

    def on_episode_start(self, *, episode, **kwargs):
        episode.user_data.update(steps=0, seen=[], sums=np.zeros(2), kept={"by": {"name": 0}}, ids={1, 2})
        episode.hist_data["lengths"] = []
        episode.custom_metrics["steps"] = 0

    def on_episode_step(self, *, episode, **kwargs):
        data = episode.user_data
        data["steps"] += 1
        data["seen"].append(episode.length)
        data["sums"] += 1.0
        data["kept"]["by"]["name"] += 1
        episode.hist_data["lengths"].append(episode.length)
        episode.custom_metrics["steps"] += 1

    def on_episode_end(self, *, episode, **kwargs):
        data, length = episode.user_data, episode.length
        assert data["seen"] == episode.hist_data["lengths"] == list(range(1, length + 1))
        assert data["steps"] == data["kept"]["by"]["name"] == episode.custom_metrics["steps"] == length
        assert data["sums"].tolist() == [length] * 2
        assert data["ids"] == {1, 2}


def make(several, creator, **config):
    if several:
        creator, config = make_multi_agent(creator), {"env_config": {"num_agents": 2}, **config}
    return PGTrainer({**SMALL, "callbacks": Counts, **config}, env=creator)


@pytest.mark.parametrize("several", [False, True])
def test_it_goes_on_in_an_episode_that_goes_on(several, tmp_path):
    first, again = (make(several, lambda context: gym.make("CartPole-v1")) for _ in range(2))
    first.train()
    first.train()
    assert first.workers.local_worker().runner._episodes[0].user_data["seen"] == list(range(1, 9))
    again.restore(first.save(str(tmp_path)))
    assert again.workers.local_worker().runner._episodes[0].user_data["seen"] == list(range(1, 9))
    while again.train()["episodes_total"] < 3:
        pass


@pytest.mark.parametrize("several", [False, True])
def test_names_of_data_are_there_behind_a_soft_horizon(several):
    class Parts(Counts):
        def on_episode_end(self, *, episode, **kwargs):
            assert len(episode.hist_data["lengths"]) == episode.length == 3
            assert episode.custom_metrics["steps"] == episode.user_data["steps"]

    trainer = make(several, lambda context: Counting({"length": 6}), horizon=3, soft_horizon=True, callbacks=Parts)
    result = trainer.train()
    while result["episodes_total"] < 3:
        result = trainer.train()
    assert result["hist_stats"]["lengths"] == [1, 2, 3] * result["episodes_total"]
    assert (result["custom_metrics"]["steps_min"], result["custom_metrics"]["steps_max"]) == (3, 6)


def test_what_is_no_state_is_left_out():
    episode = Episode({}, "default_policy", episode_id=0)
    episode.user_data = {"space": gym.spaces.Discrete(2), "pair": (1, 2), 3: 4, "nested": [{"a": object()}], "n": 5}
    episode.custom_metrics = {"x": np.float32(1.0)}
    episode.hist_data = {"y": [1, 2.0], "z": np.array([None])}
    assert users_state(episode) == {"user_data": {"n": 5}, "custom_metrics": {"x": 1.0}, "hist_data": {"y": [1, 2.0]}}
