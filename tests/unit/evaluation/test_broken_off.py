"""Sampling that was broken off, by Ctrl-C, a callback or a number that is none: no row is made of two episodes."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.env import ExternalEnv, MultiAgentEnv
from rlframe.exploration import StochasticSampling
from rlframe.utils.errors import NonFiniteError

SMALL = {"num_workers": 0, "seed": 1, "min_iter_time_s": 0, "log_sys_usage": False, "model": {"fcnet_hiddens": [4]}}
DQN = {**SMALL, "rollout_fragment_length": 8, "train_batch_size": 8, "learning_starts": 10**6, "hiddens": [4]}


class Counting(gym.Env):
    """Observations (slot, episode, step), rewards that are the step's number, episodes of five steps."""

    observation_space = gym.spaces.Box(-1000, 1000, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)
    calls, stops_at, nan_at = 0, -1, None

    def __init__(self, config):
        self.slot, self.episode = config.vector_index, 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        self.episode += 1
        return self._obs(), {}

    def step(self, action):
        Counting.calls += 1
        if Counting.calls == Counting.stops_at:
            raise KeyboardInterrupt
        self.t += 1
        reward = np.nan if (self.slot, self.episode, self.t) == Counting.nan_at else float(self.t)
        return self._obs(), reward, self.t >= 5, False, {}

    def _obs(self):
        return np.array([self.slot, self.episode, self.t], np.float32)


class RaisesOnce(DefaultCallbacks):
    steps = 0

    def on_episode_step(self, **_):
        RaisesOnce.steps += 1
        if RaisesOnce.steps == 20:
            raise RuntimeError("once")


@pytest.fixture(autouse=True)
def fresh():
    Counting.calls, Counting.stops_at, Counting.nan_at, RaisesOnce.steps = 0, -1, None, 0


def check_rows(batch):
    """Each row is one step of one episode."""
    np.testing.assert_array_equal(batch["new_obs"] - batch["obs"], np.tile([0.0, 0.0, 1.0], (batch.count, 1)))
    np.testing.assert_array_equal(batch["rewards"], batch["new_obs"][:, 2])
    np.testing.assert_array_equal(batch["dones"], batch["new_obs"][:, 2] == 5)


def sample_on(worker, times=3):
    for _ in range(times):
        batch = worker.sample()
        check_rows(batch)
    assert {(metric.episode_length, metric.episode_reward) for metric in worker.get_metrics()} == {(5, 15.0)}
    return batch


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_rows_behind_ctrl_c_are_of_one_episode(slots, mode):
    worker = DQNTrainer({**DQN, "num_envs_per_worker": slots, "batch_mode": mode}, env=Counting).workers.local_worker()
    check_rows(worker.sample())
    Counting.stops_at = Counting.calls + 5
    with pytest.raises(KeyboardInterrupt):
        worker.sample()
    sample_on(worker)


@pytest.mark.parametrize("slots", [1, 3])
def test_rows_behind_a_callback_that_raised_are_of_one_episode(slots):
    config = {**DQN, "num_envs_per_worker": slots, "callbacks": RaisesOnce}
    worker = DQNTrainer(config, env=Counting).workers.local_worker()
    for _ in range(20 // (8 * slots)):
        check_rows(worker.sample())
    with pytest.raises(RuntimeError, match="once"):
        worker.sample()
    sample_on(worker)


def test_whole_episodes_stay_whole_behind_a_number_that_is_none():
    Counting.nan_at = (1, 3, 2)
    config = {**DQN, "num_envs_per_worker": 2, "batch_mode": "complete_episodes", "rollout_fragment_length": 4}
    worker = DQNTrainer(config, env=Counting).workers.local_worker()
    worker.sample()
    with pytest.raises(NonFiniteError):
        worker.sample()
    batch = sample_on(worker)
    for number in np.unique(batch["eps_id"]):
        assert batch["obs"][batch["eps_id"] == number, 2].tolist() == [0, 1, 2, 3, 4]


def test_an_observation_that_a_callback_keeps_stays_what_it_was():
    class Keeps(DefaultCallbacks):
        kept = ()

        def on_episode_end(self, *, episode, **_):
            Keeps.kept += ((episode.last_observation_for(), episode.last_observation_for().copy()),)

    worker = DQNTrainer({**DQN, "callbacks": Keeps}, env=Counting).workers.local_worker()
    worker.sample()
    assert len(Keeps.kept) == 1
    np.testing.assert_array_equal(*Keeps.kept[0])


def test_before_the_first_action_nested_ones_are_zeros():
    class Nested(Counting):
        action_space = gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,))])

    class Asks(DefaultCallbacks):
        seen = ()

        def on_episode_step(self, *, episode, **_):
            Asks.seen += (episode.prev_action_for(),)

    PGTrainer({**SMALL, "rollout_fragment_length": 3, "callbacks": Asks}, env=Nested).workers.local_worker().sample()
    assert Asks.seen[0].tolist() == [0, 0, 0]
    assert Asks.seen[1].shape == (3,)


class Turns(MultiAgentEnv):
    """Two agents act in turns, for twelve steps."""

    observation_space, action_space = gym.spaces.Box(-100, 100, (1,), np.float32), gym.spaces.Discrete(2)

    def __init__(self, config=None):
        super().__init__()
        self._agent_ids = {"a", "b"}

    def _obs(self):
        return {"ab"[self.t % 2]: np.array([self.t], np.float32)}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._obs(), {}

    def step(self, actions):
        self.t += 1
        return self._obs(), {"a": 1.0, "b": 1.0}, {"__all__": self.t >= 12}, {"__all__": False}, {}


class Looks(DefaultCallbacks):
    def on_episode_end(self, **_):
        pass

    def on_postprocess_trajectory(self, **_):
        pass


@pytest.mark.parametrize("fragment", [1, 4, 12])
@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_callbacks_change_no_row_of_agents_that_act_in_turns_over_soft_horizons(fragment, mode):
    columns = {}
    for callbacks in (DefaultCallbacks, Looks):
        config = {**SMALL, "rollout_fragment_length": fragment, "horizon": 3, "soft_horizon": True, "batch_mode": mode}
        worker = PGTrainer({**config, "callbacks": callbacks}, env=Turns).workers.local_worker()
        sampled = [worker.sample().policy_batches for _ in range(2 * 12 // fragment)]
        batches = [batch["default_policy"] for batch in sampled if batch]  # none where no transition was closed
        rows = [row for batch in batches for row in zip(batch["obs"][:, 0], batch["rewards"], strict=True)]
        columns[callbacks] = sorted(rows)
    assert columns[Looks] == columns[DefaultCallbacks]
    assert len(columns[Looks]) >= 11


def test_callbacks_change_no_filtered_observation_of_several_slots():
    made = []
    for callbacks in (DefaultCallbacks, Looks):
        config = {
            **SMALL,
            "num_envs_per_worker": 2,
            "rollout_fragment_length": 7,
            "observation_filter": "MeanStdFilter",
        }
        worker = PGTrainer({**config, "callbacks": callbacks}, env=Turns).workers.local_worker()
        batches = [worker.sample().policy_batches["default_policy"] for _ in range(4)]
        made.append([np.sort(batch["obs"], axis=0) for batch in batches])  # parts that ended come in another order
    for one, other in zip(*made, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_reward_with_which_an_agent_ends_without_an_observation_is_its_last():
    class Leaves(Turns):
        def _obs(self):
            return {agent: np.zeros(1, np.float32) for agent in ("a", "b") if agent == "a" or self.t == 0}

        def step(self, actions):
            self.t += 1
            rewards = {"a": 1.0, "b": 3.0} if self.t == 1 else {"a": 1.0}
            return self._obs(), rewards, {"b": self.t == 1, "__all__": self.t >= 3}, {"__all__": False}, {}

    class Asks(DefaultCallbacks):
        seen = ()

        def on_episode_step(self, *, episode, **_):
            Asks.seen += (episode.last_reward_for("b"),)

    PGTrainer({**SMALL, "rollout_fragment_length": 3, "callbacks": Asks}, env=Leaves).workers.local_worker().sample()
    assert Asks.seen[0] == 3.0


def test_an_external_episode_in_which_nobody_acted_ends_for_callbacks_too():
    class Empty(ExternalEnv):
        def run(self):
            obs = np.zeros(2, np.float32)
            while True:
                self.end_episode(self.start_episode(), obs)
                episode = self.start_episode()
                for _ in range(3):
                    self.get_action(episode, obs)
                self.end_episode(episode, obs)

    class Pairs(DefaultCallbacks):
        open = 0
        most = 0

        def on_episode_start(self, **_):
            Pairs.open += 1
            Pairs.most = max(Pairs.most, Pairs.open)

        def on_episode_end(self, **_):
            Pairs.open -= 1

    space, config = gym.spaces.Box(-1, 1, (2,)), {**SMALL, "rollout_fragment_length": 12, "callbacks": Pairs}
    trainer = PGTrainer(config, env=lambda _: Empty(gym.spaces.Discrete(2), space))
    trainer.workers.local_worker().sample()
    trainer.stop()
    assert Pairs.most == 1


@pytest.mark.parametrize("env", [Counting, Turns])
def test_explorations_of_ones_own_are_given_the_episode(env):
    class Notes(StochasticSampling):
        told = ()

        def on_episode_start(self, policy, *, environment=None, episode=None, tf_sess=None):
            Notes.told += (("start", episode.episode_id, episode.length),)

        def on_episode_end(self, policy, *, environment=None, episode=None, tf_sess=None):
            Notes.told += (("end", episode.episode_id, episode.length),)

    config = {**SMALL, "rollout_fragment_length": 13, "exploration_config": {"type": Notes}}
    PGTrainer(config, env=env).workers.local_worker().sample()
    first, second = Notes.told[:2]
    length = 5 if env is Counting else 12
    assert (first, second) == (("start", first[1], 0), ("end", first[1], length))
