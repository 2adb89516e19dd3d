"""Policies that learn without gradients: sampled by workers, trained by a plan, synchronised, saved and resumed."""

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import TrainOneStep
from rlframe.models.recurrent_actor import make_actor
from rlframe.models.spec import Dense
from rlframe.policy.parts import Component
from rlframe.policy.policy import Policy
from rlframe.trainer.template import build_trainer

LAYER = Dense("output", units=2)


class Momentum(Component):
    """A part with a state of its own."""

    def __init__(self, size):
        self.velocity = np.zeros(size, np.float32)

    def step(self, gradient):
        self.velocity = 0.5 * self.velocity + gradient
        return self.velocity

    def get_state(self):
        return {"velocity": self.velocity}

    def set_state(self, state):
        self.velocity = np.asarray(state["velocity"], np.float32)


class EvolutionStrategy(Policy):
    """Adds noise to its weights for a whole episode, and moves towards the noise of good episodes.

    Source: Salimans et al. 2017, "Evolution Strategies as a Scalable Alternative to Reinforcement Learning".
    """

    train_columns = ("noise_seed",)

    def __init__(self, obs_space, action_space, config):
        super().__init__(obs_space, action_space, config)
        weight, bias = LAYER.initial.draw(np.random.default_rng(self._policy_seed), 2, obs_space.shape[0])
        self.arrays = {"output.weight": weight, "output.bias": bias}
        self.components["momentum"] = Momentum(weight.size + bias.size)
        self.episodes_seen = 0

    def compute_actions(self, obs_batch, state_batches=None, *, episodes=None, explore=None, **kwargs):
        seeds = np.array([episode.episode_id for episode in episodes]) if explore else np.zeros(len(obs_batch), int)
        actions = np.zeros(len(obs_batch), np.int64)
        flat = self.get_flat_weights()
        for seed in np.unique(seeds):
            moved = flat + (0.5 * self.noise(seed, len(flat)) if explore else 0.0)
            actor = make_actor({"outputs": [LAYER]}, self.unflattened(moved))
            actions[seeds == seed] = actor.forward(obs_batch[seeds == seed]).argmax(1)
        return actions, [], {"noise_seed": seeds}

    @staticmethod
    def noise(seed, size):
        return np.random.default_rng(int(seed)).standard_normal(size, np.float32)

    def learn_on_batch(self, samples):
        episodes = samples.split_by_episode()
        returns = np.array([episode["rewards"].sum() for episode in episodes], np.float32)
        flat, good = self.get_flat_weights(), (returns - returns.mean()) / returns.std()
        noise = np.stack([self.noise(episode["noise_seed"][0], len(flat)) for episode in episodes])
        assert all(len(set(episode["noise_seed"].tolist())) == 1 for episode in episodes)
        self.set_flat_weights(flat + 0.2 * self.components["momentum"].step(good @ noise / len(episodes)))
        self.episodes_seen += len(episodes)
        return {"learner_stats": {"mean_return": float(returns.mean()), "episodes": self.episodes_seen}}

    def get_weights(self):
        return {name: array.copy() for name, array in self.arrays.items()}

    def set_weights(self, weights):
        self.arrays = {name: np.array(array) for name, array in weights.items()}

    def get_state(self):
        return {**super().get_state(), "episodes_seen": self.episodes_seen}

    def set_state(self, state):
        super().set_state(state)
        self.episodes_seen = int(state["episodes_seen"])


class LinearThompson(Policy):
    """A linear bandit: acts on a draw from the posterior of each action's reward.

    Source: Agrawal and Goyal 2013, "Thompson Sampling for Contextual Bandits with Linear Payoffs", algorithm 1.
    """

    train_columns = ()

    def __init__(self, obs_space, action_space, config):
        super().__init__(obs_space, action_space, config)
        size = obs_space.shape[0]
        self.precision, self.moment = np.stack([np.eye(size)] * action_space.n), np.zeros((action_space.n, size))

    def forward(self, obs, explore=True):
        scores = []
        for precision, moment in zip(self.precision, self.moment, strict=True):
            covariance = np.linalg.inv(precision)
            mean = covariance @ moment
            theta = self._action_rng.multivariate_normal(mean, 0.1 * covariance) if explore else mean
            scores.append(obs @ theta)
        return np.stack(scores, 1).astype(np.float32), None

    def exploration_options(self):
        return {"type": "EpsilonGreedy", "initial_epsilon": 0.0, "final_epsilon": 0.0}

    def learn_on_batch(self, samples):
        for obs, action, reward in zip(samples["obs"], samples["actions"], samples["rewards"], strict=True):
            self.precision[action] += np.outer(obs, obs)
            self.moment[action] += reward * obs
        return {"learner_stats": {"mean_reward": float(samples["rewards"].mean())}}

    def get_weights(self):
        return {"precision": self.precision.copy(), "moment": self.moment.copy()}

    def set_weights(self, weights):
        self.precision, self.moment = np.array(weights["precision"]), np.array(weights["moment"])


class Sides(gym.Env):
    """A reward of 1 for each action that is the sign of the first number; episodes of `length` steps."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.length = config.get("length", 1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._draw(), {}

    def _draw(self):
        self.seen = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.seen

    def step(self, action):
        reward, self.t = float((self.seen[0] > 0) == action), self.t + 1
        return self._draw(), reward, self.t >= self.length, False, {}


def plan(workers, config):
    rollouts = ParallelRollouts(workers, mode="bulk_sync").for_each(TrainOneStep(workers))
    return StandardMetricsReporting(rollouts, workers, config)


CASES = {
    EvolutionStrategy: {
        "env_config": {"length": 10},
        "batch_mode": "complete_episodes",
        "rollout_fragment_length": 400,
    },
    LinearThompson: {"rollout_fragment_length": 20},
}
every_policy = pytest.mark.parametrize("policy", CASES, ids=lambda policy: policy.__name__)


@pytest.fixture
def make():
    made = []

    def build(policy, **overrides):
        cls = build_trainer(name=policy.__name__, default_policy=policy, execution_plan=plan)
        config = {"seed": 5, "num_workers": 0, "min_iter_time_s": 0, "log_sys_usage": False, **CASES[policy]}
        made.append(cls({**config, **overrides}, env=Sides))
        return made[-1]

    yield build
    for trainer in made:
        trainer.stop()


def same(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])


def skill(trainer):
    """Returns the share of observations on which a policy acts best, of those that are not close to the border."""
    obs = np.random.default_rng(0).uniform(-1, 1, (500, 3)).astype(np.float32)
    obs = obs[abs(obs[:, 0]) > 0.3]
    return np.mean(trainer.get_policy().compute_actions(obs, explore=False)[0] == (obs[:, 0] > 0))


@every_policy
def test_it_learns_and_goes_on_bit_for_bit(make, policy, tmp_path):
    one, two = make(policy), make(policy, seed=6)
    assert skill(one) < 0.75
    one.train()
    two.restore(one.save(str(tmp_path)))
    for _ in range(9):
        a, b = one.train(), two.train()
        assert a["hist_stats"] == b["hist_stats"]
        assert a["info"]["learner"] == b["info"]["learner"]
    same(one.get_policy().get_weights(), two.get_policy().get_weights())
    assert skill(one) > 0.95
    assert one.compute_single_action(np.array([0.9, 0.1, -0.1], np.float32), explore=False) == 1


@every_policy
def test_workers_get_what_the_learner_learned(make, policy):
    trainer = make(policy)
    trainer.train()
    worker = make(policy, seed=9).workers.local_worker()
    worker.set_weights(trainer.workers.local_worker().get_weights())
    same(worker.get_policy().get_weights(), trainer.get_policy().get_weights())
    assert worker.sample().count >= 20


def test_a_single_action_is_asked_for_with_its_episode():
    policy = EvolutionStrategy(Sides.observation_space, Sides.action_space, {"seed": 1})
    extra = policy.compute_single_action(np.zeros(3), episode=SimpleNamespace(episode_id=3), explore=True)[2]
    assert extra == {"noise_seed": 3}


def test_flat_weights_are_all_weights_in_order():
    policy = EvolutionStrategy(Sides.observation_space, Sides.action_space, {"seed": 1})
    flat = policy.get_flat_weights()
    assert flat.shape == (8,)
    policy.set_flat_weights(np.arange(8))
    assert policy.get_weights()["output.bias"].tolist() == [6.0, 7.0]
    assert policy.get_weights()["output.weight"].dtype == np.float32
    with pytest.raises(ValueError, match=r"got 5 numbers.*wanted 8"):
        policy.set_flat_weights(np.zeros(5))
