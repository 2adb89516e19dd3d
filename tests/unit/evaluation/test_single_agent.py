"""What one `sample()` contains, checked against an environment whose every number is known."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.data.columns import DONES, EPS_ID, NEXT_OBS, OBS, REWARDS, TERMINATEDS, TRUNCATEDS, T
from rlframe.env.vector_env import VectorEnv
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.evaluation.sampling import single_agent
from rlframe.evaluation.sampling.rollout import RolloutBuffer
from rlframe.examples.policy.random_policy import RandomPolicy
from rlframe.utils.errors import EnvError, NonFiniteError
from tests.helpers.envs import Counting, Failing, lives_as_episodes
from tests.helpers.workers import make_worker


def sample(**overrides):
    return make_worker(Counting, **overrides).sample()


def test_a_worker_made_by_hand_takes_its_policy_under_the_older_name():
    worker = RolloutWorker(env_creator=Counting, policy=RandomPolicy, policy_config={"rollout_fragment_length": 7})
    assert isinstance(worker.get_policy(), RandomPolicy)
    assert worker.sample().count == 7


def test_sample_truncate_episodes_has_exactly_fragment_times_slots_rows():
    batch = sample(rollout_fragment_length=7, num_envs_per_worker=3)
    assert batch.count == 21
    assert all(len(column) == 21 for column in batch.values())


def test_sample_rows_are_trajectories_one_after_the_other():
    batch = sample(rollout_fragment_length=7, num_envs_per_worker=2, env_config={"length": 5})
    np.testing.assert_array_equal(batch[T], [0, 1, 2, 3, 4, 0, 1] * 2)
    np.testing.assert_array_equal(batch[OBS][:, 1], [0, 1, 2, 3, 4, 0, 1] * 2)
    assert len(set(batch[EPS_ID].tolist())) == 4


def test_sample_at_episode_end_new_obs_is_the_last_observation_not_the_next_episodes_first():
    batch = sample(rollout_fragment_length=7, env_config={"length": 5})
    np.testing.assert_array_equal(batch[NEXT_OBS][:, 1], [1, 2, 3, 4, 5, 1, 2])
    np.testing.assert_array_equal(batch[NEXT_OBS][:, 0], [1, 1, 1, 1, 1, 2, 2])


def test_sample_of_several_slots_new_obs_is_each_slots_own_next_observation():
    batch = sample(rollout_fragment_length=7, num_envs_per_worker=3, env_config={"length": 5})
    np.testing.assert_array_equal(batch[NEXT_OBS][:, 1], [1, 2, 3, 4, 5, 1, 2] * 3)


@pytest.mark.parametrize("slots", [1, 3])
def test_sample_observations_are_written_where_the_batch_has_them(slots, monkeypatch):
    # Images are large: each further copy of a fragment costs as much as the environments' steps.
    buffers = []
    monkeypatch.setattr(
        single_agent, "RolloutBuffer", lambda *given: buffers.append(RolloutBuffer(*given)) or buffers[-1]
    )
    batch = sample(rollout_fragment_length=4, num_envs_per_worker=slots)
    assert np.shares_memory(batch[OBS], buffers[0].obs)
    assert batch[OBS].flags.c_contiguous


@pytest.mark.parametrize("slots", [1, 3])
def test_sample_written_over_by_its_owner_does_not_change_the_next_one(slots):
    worker = make_worker(Counting, rollout_fragment_length=3, num_envs_per_worker=slots, env_config={"length": 100})
    for column in worker.sample().values():
        column[:] = 0
    np.testing.assert_array_equal(worker.sample()[OBS][:, 1], [3, 4, 5] * slots)


@pytest.mark.parametrize("slots", [1, 3])
def test_sample_next_fragment_continues_the_episode(slots):
    worker = make_worker(Counting, rollout_fragment_length=3, num_envs_per_worker=slots, env_config={"length": 5})
    first, second = worker.sample(), worker.sample()
    np.testing.assert_array_equal(first[T][:3], [0, 1, 2])
    np.testing.assert_array_equal(second[T][:3], [3, 4, 0])
    assert second[EPS_ID][0] == first[EPS_ID][2]


def test_sample_terminated_and_truncated_are_kept_apart():
    terminated = sample(rollout_fragment_length=5, env_config={"length": 5})
    truncated = sample(rollout_fragment_length=5, env_config={"length": 5, "ends": "truncated"})
    assert (terminated[TERMINATEDS][4], terminated[TRUNCATEDS][4]) == (True, False)
    assert (truncated[TERMINATEDS][4], truncated[TRUNCATEDS][4]) == (False, True)
    assert truncated[DONES][4]


def test_sample_discount_is_zero_where_terminated_and_gamma_where_truncated():
    terminated = sample(rollout_fragment_length=5, env_config={"length": 5}, gamma=0.5)
    truncated = sample(rollout_fragment_length=5, env_config={"length": 5, "ends": "truncated"}, gamma=0.5)
    np.testing.assert_allclose(terminated["discounts"], [0.5, 0.5, 0.5, 0.5, 0.0])
    np.testing.assert_allclose(truncated["discounts"], [0.5] * 5)


def test_sample_n_step_sums_rewards_and_shortens_at_ends():
    batch = sample(rollout_fragment_length=5, env_config={"length": 5, "ends": "truncated"}, gamma=0.5, n_step=3)
    np.testing.assert_allclose(batch[REWARDS], [1 + 1 + 0.75, 2 + 1.5 + 1, 3 + 2 + 1.25, 4 + 2.5, 5])
    np.testing.assert_allclose(batch["discounts"], [0.125, 0.125, 0.125, 0.25, 0.5])
    np.testing.assert_array_equal(batch[NEXT_OBS][:, 1], [3, 4, 5, 5, 5])


def test_horizon_truncates_and_resets():
    worker = make_worker(Counting, rollout_fragment_length=6, horizon=3, env_config={"length": 100})
    batch = worker.sample()
    np.testing.assert_array_equal(batch[TRUNCATEDS], [False, False, True] * 2)
    np.testing.assert_array_equal(batch[OBS][:, 1], [0, 1, 2] * 2)
    assert [metric.episode_length for metric in worker.get_metrics()] == [3, 3]


class OldTimeLimit:
    """An old gym environment that ends after `_max_episode_steps`."""

    observation_space, action_space = gym.spaces.Box(0, 99, (2,), np.float32), gym.spaces.Discrete(2)
    _max_episode_steps = 3

    def reset(self):
        self.steps = 0
        return np.zeros(2, np.float32)

    def step(self, action):
        self.steps += 1
        over = self.steps >= self._max_episode_steps
        return np.full(2, self.steps, np.float32), 1.0, over, {"TimeLimit.truncated": over}


class Inside:
    """A wrapper of the old gym."""

    def __init__(self, env):
        self.env, self.observation_space, self.action_space = env, env.observation_space, env.action_space

    def reset(self):
        return self.env.reset()

    def step(self, action):
        return self.env.step(action)


@pytest.mark.parametrize(
    "make",
    [
        lambda config: gym.Wrapper(gym.wrappers.TimeLimit(Counting({"length": 100}), 3)),
        lambda config: OldTimeLimit(),
        lambda config: Inside(OldTimeLimit()),
        lambda config: VectorEnv.vectorize_gym_envs(make_env=lambda _: Inside(OldTimeLimit())),
    ],
    ids=["wrapped", "old", "old wrapped", "VectorEnv"],
)
@pytest.mark.parametrize(("horizon", "length"), [(5, 5), (2, 2), (None, 3)])
def test_a_horizon_raises_a_limit_of_steps_wherever_it_stands(make, horizon, length):
    worker = make_worker(make, rollout_fragment_length=10, horizon=horizon)
    assert worker.sample()[TRUNCATEDS].nonzero()[0][0] == length - 1


def test_soft_horizon_reports_an_episode_but_goes_on():
    worker = make_worker(Counting, rollout_fragment_length=6, horizon=3, soft_horizon=True, env_config={"length": 100})
    batch = worker.sample()
    assert not batch[TRUNCATEDS].any()
    assert not batch[TERMINATEDS].any()
    np.testing.assert_array_equal(batch[OBS][:, 1], [0, 1, 2, 3, 4, 5])
    assert batch[EPS_ID][2] != batch[EPS_ID][3]
    assert [(m.episode_length, m.episode_reward) for m in worker.get_metrics()] == [(3, 6.0), (3, 15.0)]


@pytest.mark.parametrize("horizon", [2, 5, 9])
def test_soft_horizon_leaves_the_environments_own_time_limit_its_reset(horizon):
    env_config = {"length": 5, "ends": "truncated"}
    worker = make_worker(
        Counting, rollout_fragment_length=12, horizon=horizon, soft_horizon=True, env_config=env_config
    )
    batch = worker.sample()
    np.testing.assert_array_equal(batch[OBS][:, 1], [0, 1, 2, 3, 4] * 2 + [0, 1])
    np.testing.assert_array_equal(batch[TRUNCATEDS], [False, False, False, False, True] * 2 + [False] * 2)
    lengths = [metric.episode_length for metric in worker.get_metrics()]
    assert lengths == ([2, 2, 1, 2, 2, 1, 2] if horizon == 2 else [5, 5])


def test_no_done_at_end_never_stores_an_end_but_resets():
    batch = sample(rollout_fragment_length=7, no_done_at_end=True, env_config={"length": 5})
    assert not batch[DONES].any()
    np.testing.assert_array_equal(batch[T], [0, 1, 2, 3, 4, 0, 1])


def test_complete_episodes_returns_whole_episodes_only():
    worker = make_worker(
        Counting,
        rollout_fragment_length=7,
        batch_mode="complete_episodes",
        num_envs_per_worker=2,
        env_config={"length": 5},
    )
    for _ in range(3):
        batch = worker.sample()
        assert batch.count >= 14
        assert batch.count % 5 == 0
        np.testing.assert_array_equal(batch[T], list(range(5)) * (batch.count // 5))
        assert batch[TERMINATEDS].sum() == batch.count // 5


def test_complete_episodes_of_several_slots_end_with_the_one_that_makes_enough_rows():
    # Both slots' episodes of 3 rows end at the same step: three of four make 8 rows; the fourth is the next batch's.
    worker = make_worker(
        Counting,
        rollout_fragment_length=4,
        batch_mode="complete_episodes",
        num_envs_per_worker=2,
        env_config={"length": 3},
    )
    batches = [worker.sample() for _ in range(4)]
    assert [batch.count for batch in batches] == [9] * 4
    assert len({episode for batch in batches for episode in batch[EPS_ID].tolist()}) == 12
    assert len(worker.get_metrics()) == 12


def test_episodes_that_wait_for_the_next_batch_are_dropped_where_fresh_ones_are_asked_for():
    worker = make_worker(Counting, rollout_fragment_length=1, batch_mode="complete_episodes", num_envs_per_worker=3,
                         env_config={"length": 2})  # fmt: skip
    first = worker.sample()
    worker.runner.restart()
    assert first.count == 4
    assert set(worker.sample()[EPS_ID].tolist()).isdisjoint(first[EPS_ID].tolist())
    assert len(worker.get_metrics()) == 3


def test_unroll_id_tells_apart_what_was_sampled_of_an_episode_at_different_times():
    worker = make_worker(Counting, rollout_fragment_length=4, num_envs_per_worker=2, env_config={"length": 6})
    worker.policy_map["default_policy"].collect_all_columns()
    first, second = worker.sample(), worker.sample()
    np.testing.assert_array_equal(first["unroll_id"], [0] * 4 + [1] * 4)
    np.testing.assert_array_equal(second["unroll_id"], [2, 2, 3, 3, 4, 4, 5, 5])  # rows 4, 5, and 0, 1 of the next


@pytest.mark.parametrize(
    ("length", "fragment", "rows", "left_over"), [(10, 15, 20, 0), (4, 10, 12, 0), (50, 7, 50, 6), (1, 5, 5, 0)]
)
def test_complete_episodes_takes_few_steps_beyond_what_it_needs(length, fragment, rows, left_over):
    worker = make_worker(
        Counting, rollout_fragment_length=fragment, batch_mode="complete_episodes", env_config={"length": length}
    )
    assert worker.sample().count == rows
    assert worker.env.steps == left_over


@pytest.mark.parametrize(
    ("clip", "expected"), [(True, [1, 1, 1]), (2.0, [1, 2, 2]), (False, [1, 2, 3]), (None, [1, 2, 3])]
)
def test_clip_rewards_clips_what_is_learned_from_but_not_what_is_reported(clip, expected):
    worker = make_worker(Counting, rollout_fragment_length=3, clip_rewards=clip, env_config={"length": 3})
    np.testing.assert_array_equal(worker.sample()[REWARDS], expected)
    assert worker.get_metrics()[0].episode_reward == 6.0


def test_episode_seeds_are_different_and_reproducible():
    seeds = []
    for _ in range(2):
        worker = make_worker(Counting, rollout_fragment_length=10, num_envs_per_worker=2, env_config={"length": 3})
        worker.sample()
        seeds.append([env.seeds[-4:] for env in worker.async_env.envs])
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0][0] + seeds[0][1])) == 8


def test_nan_reward_is_named_with_slot_and_step():
    worker = make_worker(Failing, rollout_fragment_length=20, env_config={"how": "nan_reward", "fail_in": 2})
    with pytest.raises(NonFiniteError, match="reward in episode 1 at step 2"):
        worker.sample()


def test_nan_action_is_the_policys_not_the_environments():
    from rlframe.agents.ppo import PPOTrainer

    trainer = PPOTrainer({"num_workers": 0, "rollout_fragment_length": 20, "horizon": 10}, env="Pendulum-v1")
    worker = trainer.workers.local_worker()
    worker.sample()  # the environment is watched closely in its first episode
    weights = trainer.get_weights()
    trainer.set_weights({"default_policy": {k: np.full_like(v, np.nan) for k, v in weights["default_policy"].items()}})
    with pytest.raises(NonFiniteError, match=r"the policy gave action \[nan\] in episode 2 at step 0"):
        worker.sample()
    trainer.stop()


class Particular(gym.Env):
    """Takes actions of its space only, and says so, as many do."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("several", [False, True])
def test_an_environment_that_refuses_nan_actions_is_not_blamed(several):
    from rlframe.agents.ppo import PPOTrainer
    from rlframe.env.multi_agent_env import make_multi_agent

    env = make_multi_agent(lambda config: Particular()) if several else (lambda config: Particular())
    trainer = PPOTrainer({"num_workers": 0, "rollout_fragment_length": 20}, env=env)
    worker = trainer.workers.local_worker()
    worker.sample()
    weights = {name: np.full_like(array, np.nan) for name, array in worker.get_policy().get_weights().items()}
    worker.get_policy().set_weights(weights)
    with pytest.raises(
        NonFiniteError, match=r"(?s)the policy gave action .*nan.*; step\(\) of the environment .* raised"
    ):
        worker.sample()


def test_nan_action_at_a_nan_observation_is_the_environments():
    from rlframe.agents.ppo import PPOTrainer

    class Blind(gym.Wrapper):
        steps = 0

        def step(self, action):
            obs, reward, terminated, truncated, info = self.env.step(action)
            self.steps += 1
            return (obs * np.nan if self.steps == 25 else obs), reward, terminated, truncated, info

    config = {"num_workers": 0, "rollout_fragment_length": 40, "horizon": 10}
    trainer = PPOTrainer(config, env=lambda _: Blind(gym.make("Pendulum-v1")))
    with pytest.raises(NonFiniteError, match="the environment in slot 0 gave nan as observation"):
        trainer.workers.local_worker().sample()
    trainer.stop()


def test_nan_observation_after_the_first_episode_is_named():
    worker = make_worker(Failing, rollout_fragment_length=20, env_config={"how": "nan_obs", "fail_in": 2})
    with pytest.raises(NonFiniteError, match="observation"):
        worker.sample()


def test_env_that_raises_says_where_and_starts_anew_when_sampled_again():
    worker = make_worker(Failing, rollout_fragment_length=20, env_config={"fail_in": 2})
    with pytest.raises(EnvError, match=r"step\(\) of the environment of worker 0, slot 0 \(episode 1, seed \d+.*motor"):
        worker.sample()
    batch = worker.sample()
    assert batch.count == 20
    assert batch[T][0] == 0


def test_metrics_report_raw_returns_and_lengths_once():
    worker = make_worker(Counting, rollout_fragment_length=11, env_config={"length": 5})
    worker.sample()
    assert [(m.episode_length, m.episode_reward) for m in worker.get_metrics()] == [(5, 15.0), (5, 15.0)]
    assert worker.get_metrics() == []


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_state_restored_in_a_new_worker_gives_the_same_samples(mode):
    options = {
        "rollout_fragment_length": 7,
        "num_envs_per_worker": 2,
        "batch_mode": mode,
        "env_config": {"length": 5},
        "exploration_config": {"type": "EpsilonGreedy", "initial_epsilon": 0.5, "final_epsilon": 0.5},
    }
    worker = make_worker(_FreshCounting, **options)
    for _ in range(3):
        worker.sample()
    state = worker.get_state()
    expected = [worker.sample() for _ in range(3)]
    other = make_worker(_FreshCounting, **options)
    other.set_state(state)
    for batch in expected:
        again = other.sample()
        assert set(again) == set(batch)
        for key, column in batch.items():
            np.testing.assert_array_equal(again[key], column, err_msg=key)


class _FreshCounting(Counting):
    """Counting without memory of earlier episodes, so that a replay can reach the same place."""

    def _obs(self):
        return np.array([0, self.steps], np.float32)


def test_state_of_a_nondeterministic_env_warns_and_begins_a_new_episode():
    worker = make_worker(Counting, rollout_fragment_length=7, env_config={"length": 5})
    worker.sample()
    other = make_worker(Counting, rollout_fragment_length=7, env_config={"length": 5})
    with pytest.warns(UserWarning, match="not deterministic"):
        other.set_state(worker.get_state())
    assert other.sample()[T][0] == 0


@pytest.mark.parametrize("used", [False, True])
def test_restored_game_goes_on_in_the_life_where_it_was(used):
    worker = make_worker(lives_as_episodes, rollout_fragment_length=5, num_envs_per_worker=2)
    other = make_worker(lives_as_episodes, rollout_fragment_length=5, num_envs_per_worker=2, seed=9)
    for _ in range(7):  # games last eleven steps and two waits
        worker.sample()
        if used:
            other.sample()
        other.set_state(worker.get_state())
        one, two = worker.sample(), other.sample()
        for column in (OBS, NEXT_OBS, REWARDS, EPS_ID):
            np.testing.assert_array_equal(one[column], two[column])
    assert {metric.episode_length for metric in worker.get_metrics()} == {4, 3}


def test_an_environment_that_calls_the_seed_of_old_gyms_base_class_is_told_what_to_define():
    class Seeded(Counting):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.seed()

    with pytest.raises(EnvError, match=r"no attribute 'seed'.*define `def seed\(self, seed=None\)` there"):
        make_worker(Seeded)
