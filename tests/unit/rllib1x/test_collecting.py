"""Collectors and samplers at RLlib's paths; the collector's numbers are RLlib 1.9.2's for the same steps."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from rlframe.config.common import CommonConfig
from rlframe.config.merge import merge_configs
from rlframe.evaluation.collectors.simple_list_collector import SimpleListCollector, _AgentCollector
from rlframe.evaluation.sampler import AsyncSampler, SyncSampler
from rlframe.policy.policy import Policy
from rlframe.policy.sample_batch import SampleBatch
from rlframe.policy.view_requirement import ViewRequirement
from rlframe.utils.errors import ConfigError
from tests.helpers.workers import make_worker

OBS, CHOICES = gym.spaces.Box(-9, 9, (1,), np.float32), gym.spaces.Discrete(5)


class Remembering(Policy):
    """Acts on what it did last."""

    def __init__(self):
        super().__init__(OBS, CHOICES, {})
        for name, column in (("prev_actions", "actions"), ("prev_rewards", "rewards")):
            self.view_requirements[name] = ViewRequirement(column, shift=-1, space=CHOICES)


def begin(collector, number, first):
    episode = SimpleNamespace(episode_id=number, length=0)
    for agent, policy in (("a", "p"), ("b", "q")):
        collector.add_init_obs(episode, agent, 0, policy, -1, np.array([first], np.float32))
    return episode


def play(collector, episode, steps, *, over, base):
    """Steps both agents; returns what policy p acted on."""
    seen = []
    for step in range(steps):
        seen.append(collector.get_inference_input_dict("p"))
        collector.get_inference_input_dict("q")
        collector.episode_step(episode)
        done = over and step == steps - 1
        for agent, policy in (("a", "p"), ("b", "q")):
            values = {"actions": step + base, "rewards": float(step + base), "dones": done, "t": episode.length - 1}
            values["new_obs"] = np.array([base + step + 1], np.float32)
            collector.add_action_reward_next_obs(episode.episode_id, agent, 0, policy, done, values)
    return SampleBatch.concat_samples(seen)


def test_a_collector_gives_rllibs_batches():
    collector = SimpleListCollector({"p": Remembering(), "q": Remembering()}, False, None, True, 4, "env_steps")
    first = begin(collector, 11, 0)
    seen = play(collector, first, 3, over=True, base=0)
    assert (seen["obs"][:, 0].tolist(), seen["prev_actions"].tolist()) == ([0, 1, 2], [0, 0, 1])
    assert collector.postprocess_episode(first, is_done=True, check_dones=True) is None
    assert collector.try_build_truncated_episode_multi_agent_batch() == []
    second = begin(collector, 12, 5)
    play(collector, second, 1, over=False, base=2)
    assert (collector.total_env_steps(), collector.total_agent_steps()) == (4, 8)
    (batch,) = collector.try_build_truncated_episode_multi_agent_batch()
    rows = batch.policy_batches["p"]
    assert batch.count == 4
    assert rows["obs"][:, 0].tolist() == [0, 1, 2, 5]
    assert rows["new_obs"][:, 0].tolist() == [1, 2, 3, 3]
    assert rows["prev_rewards"].tolist() == [0, 0, 1, 0]
    assert rows["eps_id"].tolist() == [11, 11, 11, 12]
    assert rows["t"].tolist() == [0, 1, 2, 0]
    assert batch.policy_batches["q"]["agent_index"].tolist() == [1, 1, 1, 1]
    seen = play(collector, second, 2, over=True, base=3)
    assert (seen["obs"][:, 0].tolist(), seen["prev_rewards"].tolist()) == ([3, 4], [2, 3])
    batch = collector.postprocess_episode(second, is_done=True, build=True)
    assert (batch.count, batch.policy_batches["p"]["t"].tolist(), second.length) == (2, [1, 2], 3)


def test_a_collector_says_what_is_missing():
    collector = SimpleListCollector({"p": Remembering(), "q": Remembering()}, False, None)
    with pytest.raises(ValueError, match="No agent of policy 'p' has observed"):
        collector.get_inference_input_dict("p")
    episode = begin(collector, 1, 0)
    play(collector, episode, 1, over=False, base=0)
    with pytest.raises(ValueError, match="last row of agent 'a'"):
        collector.postprocess_episode(episode, is_done=True, check_dones=True)


def test_configs_may_name_the_collector_that_rllibs_named():
    assert merge_configs(CommonConfig.defaults(), {"sample_collector": SimpleListCollector}, CommonConfig)
    with pytest.raises(ConfigError, match="change them in callbacks"):
        merge_configs(
            CommonConfig.defaults(), {"sample_collector": type("Mine", (SimpleListCollector,), {})}, CommonConfig
        )


@pytest.fixture
def worker():
    return make_worker(lambda _: gym.make("CartPole-v1"), rollout_fragment_length=6)


def test_a_sampler_samples_for_its_worker(worker):
    ended = []
    callbacks = {"on_episode_end": lambda info: ended.append(info["episode"].length)}
    sampler = SyncSampler(
        worker=worker, env=worker.async_env, horizon=4, rollout_fragment_length=10, callbacks=callbacks
    )
    batch = sampler.next()
    assert batch.count == 10
    assert batch["t"].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert [episode.episode_length for episode in sampler.get_metrics()] == ended == [4, 4]
    assert worker.policy_config["rollout_fragment_length"] == 6
    whole = SyncSampler(worker=worker, horizon=4, multiple_episodes_in_batch=False).get_data()
    assert np.unique(whole["t"].reshape(-1, 4), axis=0).tolist() == [[0, 1, 2, 3]]


def test_a_sampler_samples_ahead_in_its_thread(worker):
    sampler = AsyncSampler(worker=worker, horizon=3)
    with pytest.raises(RuntimeError, match=r"call start\(\) first"):
        sampler.get_data()
    sampler.start()
    try:
        batches = [sampler.get_data() for _ in range(3)]
    finally:
        sampler.shutdown = True
        sampler.join()
    assert [batch.count for batch in batches] == [6, 6, 6]
    assert np.concatenate([batch["t"] for batch in batches]).tolist() == [0, 1, 2] * 6
    assert len(sampler.get_metrics()) >= 6


def test_what_a_samplers_thread_raises_comes_behind_the_batches_before_it(worker):
    sampler = AsyncSampler(worker=worker)
    sample, left = sampler._inner.get_data, [None] * 5  # as many as may wait

    def get_data():
        left.pop()
        return sample()

    sampler._inner.get_data = get_data
    sampler.start()
    sampler.join()
    assert len([sampler.get_data() for _ in range(5)]) == 5
    for _ in range(2):
        with pytest.raises(IndexError, match="pop from empty list"):
            sampler.get_data()


def test_what_a_samplers_thread_raises_is_raised_where_it_is_asked(worker):
    worker.policy_map["default_policy"].act_on_rows = None
    sampler = AsyncSampler(worker=worker)
    sampler.start()
    with pytest.raises(TypeError, match="not callable"):
        sampler.next()
    sampler.join()


def test_an_agents_collector_gives_its_rows_and_what_views_see_across_them():
    """The numbers are RLlib 1.9.2's for the same steps."""
    views = {
        "obs": ViewRequirement(space=OBS),
        "new_obs": ViewRequirement("obs", shift=1, space=OBS),
        "last_obs": ViewRequirement("obs", shift="-2:0", space=OBS),
        "prev_actions": ViewRequirement("actions", shift=-1, space=CHOICES),
        "next_actions": ViewRequirement("actions", shift=1, space=CHOICES),
        "state_in_0": ViewRequirement("state_out_0", shift=-1, space=OBS),
        "t": ViewRequirement(),
    }
    collector = _AgentCollector(views, Remembering())
    collector.add_init_obs(7, 0, 0, -1, np.array([1.0], np.float32))
    assert (collector.shift_before, [len(entries[0]) for entries in collector.buffers.values()]) == (3, [3] * 6)

    def step(number, done=False):
        row = {"t": number, "actions": 2 + number, "rewards": 1.0, "dones": done}
        state, obs = np.array([10.0 + number], np.float32), np.array([2.0 + number], np.float32)
        collector.add_action_reward_next_obs({**row, "state_out_0": state, "new_obs": obs})

    for number in range(3):
        step(number)
    batch = collector.build(views)
    assert (batch["obs"][:, 0].tolist(), batch["new_obs"][:, 0].tolist()) == ([1, 2, 3], [2, 3, 4])
    assert batch["last_obs"][..., 0].tolist() == [[1, 1, 1], [1, 1, 2], [1, 2, 3]]
    assert (batch["prev_actions"].tolist(), batch["next_actions"].tolist()) == ([0, 2, 3], [3, 4, 0])
    assert (batch["state_in_0"][:, 0].tolist(), batch["t"].tolist()) == ([0, 10, 11], [0, 1, 2])
    step(3)
    step(4, done=True)
    behind = collector.build(views)
    assert behind["last_obs"][..., 0].tolist() == [[2, 3, 4], [3, 4, 5]]
    assert (behind["prev_actions"].tolist(), behind["state_in_0"][:, 0].tolist()) == ([4, 5], [12, 13])
    with pytest.raises(ValueError, match="Got a step of episode 8; wanted one of 7"):
        collector.add_action_reward_next_obs({"eps_id": 8})
