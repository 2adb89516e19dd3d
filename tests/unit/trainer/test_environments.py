"""Trainers and environments: how they are named, what is wrong with them, what fails in them."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.env import register_env
from rlframe.utils.errors import EnvError, UnsupportedSpaceException, WorkerError
from tests.helpers.envs import Counting, Failing, Masked
from tests.helpers.q_learners import SMALL, make


class OldStyle:
    """gym 0.21's interface on a class of its own."""

    def __init__(self, config):
        self.inner = Counting(config)
        self.observation_space = self.inner.observation_space
        self.action_space = self.inner.action_space

    def reset(self):
        return self.inner.reset()[0]

    def step(self, action):
        obs, reward, terminated, _, info = self.inner.step(action)
        return obs, reward, terminated, info


@pytest.mark.parametrize(
    "env", [Counting, OldStyle, "registered", "tests.helpers.envs.Counting", lambda config: Counting(config)]
)
def test_every_way_to_name_an_environment_trains(env):
    register_env("registered", lambda config: Counting(config))
    result = make(env, env_config={"length": 7}).train()
    assert result["episode_len_mean"] == 7.0
    assert result["episode_reward_mean"] == 28.0


def test_what_a_trial_reserves_may_be_asked_of_a_config_with_keys_of_the_programs_own():
    asked = DQNTrainer.default_resource_request({"num_workers": 2, "train-iterations": 10})
    assert [bundle["CPU"] for bundle in asked.bundles] == [1, 1, 1]


def test_env_may_stand_in_the_config():
    trainer = DQNTrainer({**SMALL, "env": "CartPole-v1"})
    assert trainer.train()["timesteps_total"] >= 60


def test_unknown_env_names_near_ones():
    with pytest.raises(EnvError, match="CartPole-v1"):
        make("CartPole-v11")


def test_continuous_actions_are_refused():
    with pytest.raises(UnsupportedSpaceException, match="Discrete"):
        make("Pendulum-v1")


def test_env_whose_step_returns_the_wrong_tuple_is_named():
    class Wrong(Counting):
        def step(self, action):
            return super().step(action)[:3]

    with pytest.raises(EnvError, match="3"):
        make(Wrong).train()


def test_observation_outside_its_space_is_named_with_value_and_bound():
    class Outside(Counting):
        def _obs(self):
            return np.array([0, 7e6], np.float32)

    with pytest.raises(EnvError, match=r"7000000|7e\+06"):
        make(Outside)


def test_observations_that_leave_their_bounds_later_are_warned_of_once_and_taken_as_they_are(caplog):
    class Leaving(Counting):
        def _obs(self):
            return np.array([0, 7e6 if self.steps == 3 else 0], np.float32)

    seen = []

    class Seen(DefaultCallbacks):
        def on_sample_end(self, *, worker, samples, **kwargs):
            seen.append(samples["obs"].max())

    make(Leaving, callbacks=Seen, num_envs_per_worker=2).train()
    assert max(seen) == np.float32(7e6)
    told = [record.getMessage() for record in caplog.records if "above its bound" in record.getMessage()]
    assert len(told) == 1
    assert "obs[1] is 7000000.0" in told[0]


def test_what_else_is_wrong_with_an_observation_that_leaves_its_bounds_is_an_error():
    class Leaving(gym.Env):
        observation_space = gym.spaces.Dict(a=gym.spaces.Box(-1, 1, (2,)), b=gym.spaces.Box(0, 10, (1,), np.int32))
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.steps = 0
            return {"a": np.zeros(2, np.float32), "b": np.zeros(1, np.int32)}, {}

        def step(self, action):
            self.steps += 1
            b = np.array([99 if self.steps == 5 else 1], np.int32)
            return {"a": np.full(2, 0.5 * self.steps, np.float32), "b": b}, 0.0, self.steps == 9, False, {}

    with pytest.raises(EnvError, match=r'obs\["b"\]\[0\] is 99, above its bound 10'):
        make(Leaving).train()


def test_float64_observations_are_cast():
    class Doubles(Counting):
        def _obs(self):
            return np.array([0, self.steps], np.float64)

    make(Doubles).train()


def test_action_masks_through_a_dict_observation_are_respected():
    from rlframe.models.torch.action_mask import ActionMaskModel

    trainer = make(Masked, hiddens=[], dueling=False, model={"custom_model": ActionMaskModel, "fcnet_hiddens": [16]})
    for _ in range(3):
        result = trainer.train()
    assert result["episode_reward_mean"] == 10.0


def test_image_observations_keep_their_dtype_and_train():
    class Images(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (42, 42, 3), np.uint8)
        action_space = gym.spaces.Discrete(2)

        def __init__(self, config):
            self.rng = np.random.default_rng(0)

        def reset(self, *, seed=None, options=None):
            self.steps = 0
            return self.rng.integers(0, 256, (42, 42, 3), np.uint8), {}

        def step(self, action):
            self.steps += 1
            return self.rng.integers(0, 256, (42, 42, 3), np.uint8), 1.0, self.steps == 5, False, {}

    trainer = make(Images, timesteps_per_iteration=8, learning_starts=8, train_batch_size=4)
    trainer.train()
    assert trainer.workers.local_worker().sample()["obs"].dtype == np.uint8


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(5),
        gym.spaces.MultiDiscrete([3, 4]),
        gym.spaces.Tuple((gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (2,)))),
        gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": gym.spaces.Box(-1, 1, (2,))}),
    ],
    ids=str,
)
def test_observation_spaces_train_and_act(space):
    class Any(gym.Env):
        observation_space, action_space = space, gym.spaces.Discrete(2)

        def __init__(self, config):
            space.seed(0)

        def reset(self, *, seed=None, options=None):
            self.steps = 0
            return space.sample(), {}

        def step(self, action):
            self.steps += 1
            return space.sample(), 0.0, self.steps == 5, False, {}

    trainer = make(Any)
    trainer.train()
    assert trainer.compute_single_action(space.sample()) in (0, 1)


def test_failing_env_raises_unless_failures_are_ignored():
    with pytest.raises(EnvError, match="motor"):
        make(Failing, env_config={"fail_in": 2, "length": 10}).train()
    result = make(Failing, env_config={"fail_in": 2, "length": 10}, ignore_worker_failures=True).train()
    assert result["timesteps_total"] >= 60


def test_recreate_failed_workers_makes_a_new_environment():
    trainer = make(Failing, env_config={"fail_in": 2, "length": 10}, recreate_failed_workers=True)
    first = trainer.workers.local_worker().env
    trainer.train()
    assert trainer.workers.local_worker().env is not first


class Flaky(Counting):
    """Raises in every so many steps of all its episodes together."""

    def __init__(self, config=None):
        super().__init__(config)
        self.every, self.made = config["every"], 0

    def step(self, action):
        self.made += 1
        if self.made % self.every == 0:
            raise RuntimeError("the motor stutters")
        return super().step(action)


def test_rare_failures_end_nothing_however_many_there_are():
    trainer = make(
        Flaky, env_config={"every": 30, "length": 10}, ignore_worker_failures=True, timesteps_per_iteration=400
    )
    assert trainer.train()["timesteps_total"] >= 400


def test_evaluation_goes_on_behind_rare_failures():
    trainer = make(Flaky, env_config={"every": 10**9, "length": 10}, ignore_worker_failures=True,
                   evaluation_interval=1, evaluation_num_episodes=20,
                   evaluation_config={"env_config": {"every": 23, "length": 10}})  # fmt: skip
    assert trainer.train()["evaluation"]["hist_stats"]["episode_lengths"] == [10] * 20
    trainer.evaluation_workers.local_worker().env.every = 3
    with pytest.raises(WorkerError, match=r"gave up.*the motor stutters"):
        trainer.evaluate()


def test_failures_without_end_are_given_up():
    trainer = make(Flaky, env_config={"every": 1}, ignore_worker_failures=True)
    with pytest.raises(WorkerError, match="gave up iteration 1 after 4 attempts in a row in which nothing was sampled"):
        trainer.train()


def test_rows_that_a_plan_holds_outlive_a_failure_whatever_infos_hold():
    """No checkpoint could hold such infos, and a plan that is built anew in this process need not ask that."""

    class Mapped(Flaky):
        def step(self, action):
            *told, info = super().step(action)
            return *told, {**info, "map": object()}

    class Reading(DefaultCallbacks):
        def on_sample_end(self, *, worker, samples, **kwargs):
            seen.append(samples["infos"])

    seen = []
    config = {"num_workers": 0, "rollout_fragment_length": 8, "train_batch_size": 40, "min_iter_time_s": 0}
    failing = {"ignore_worker_failures": True, "env_config": {"every": 20, "length": 10}, "callbacks": Reading}
    trainer = PGTrainer({**config, **failing}, env=Mapped)
    assert trainer.train()["timesteps_total"] == 40
    assert len(seen) == 5
