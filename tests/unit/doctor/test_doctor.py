"""The doctor finds each planted fault, and nothing in what is healthy."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from typer.testing import CliRunner

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.cli.commands import app
from rlframe.doctor import examine_env, examine_results

ALONE = {"num_workers": 0, "seed": 1}
SMALL = {"train_batch_size": 200, "sgd_minibatch_size": 100, "num_sgd_iter": 2, "rollout_fragment_length": 200}


class Planted(gymnasium.Env):
    """A point on a line with one fault."""

    def __init__(self, fault=""):
        self.fault = fault
        self.observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
        high = np.inf if fault == "unbounded_actions" else 1.0
        self.action_space = spaces.Box(-high, high, (1,), np.float32)
        self.drift = np.random.default_rng(0)

    def _observe(self):
        scale = {"large_observations": 1e4, "constant_observations": 0.0}.get(self.fault, 1.0)
        seen = np.array([self.x, self.t / 50], np.float32) * scale
        return seen[:1] if self.fault == "invalid" else seen.astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = float(self.np_random.normal()), 0
        return self._observe(), {}

    def step(self, action):
        self.t += 1
        noise = self.drift.normal() if self.fault == "not_deterministic" else 0.0
        self.x += noise + (0.0 if self.fault == "actions_without_effect" else 0.1 * float(action[0]))
        scale = {"no_reward": 0.0, "small_rewards": 1e-6, "large_rewards": 1e6}.get(self.fault, 1.0)
        return self._observe(), -abs(self.x) * scale, False, self.fault != "no_end" and self.t >= 50, {}


@pytest.mark.parametrize(
    "fault",
    [
        "invalid", "unbounded_actions", "no_end", "no_reward", "small_rewards", "large_rewards", "not_deterministic",
        "actions_without_effect", "large_observations", "constant_observations",
    ],
)  # fmt: skip
def test_a_fault_planted_in_an_environment_comes_first(fault):
    assert examine_env(Planted(fault), num_steps=200)[0].name == fault


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"])
def test_healthy_environments_have_nothing(name):
    assert examine_env(gymnasium.make(name), num_steps=1000) == []


def test_a_healthy_point_has_nothing():
    assert examine_env(Planted(), num_steps=200) == []


def findings(trainer_class, config, iterations=1):
    trainer = trainer_class({**ALONE, **config}, env="CartPole-v1")
    try:
        results = [trainer.train() for _ in range(iterations)]
        return [finding.name for finding in examine_results(results, trainer.config)]
    finally:
        trainer.stop()


@pytest.mark.parametrize(
    ("trainer_class", "config", "name"),
    [
        (PPOTrainer, {**SMALL, "lr": 0.0}, "lr_zero"),
        (PPOTrainer, {**SMALL, "lr": 0.5}, "lr_large"),
        (DQNTrainer, {"exploration_config": {"epsilon_timesteps": 10**6}, "timesteps_per_iteration": 200,
                      "learning_starts": 100}, "exploring_still"),
    ],
)  # fmt: skip
def test_a_fault_planted_in_a_run_comes_first(trainer_class, config, name):
    assert findings(trainer_class, config)[0] == name


def result(steps=4000, episodes=20, reward=20.0, trained=4000, **stats):
    learner = {"default_policy": {"learner_stats": stats}} if stats else {}
    return {"timesteps_total": steps, "episodes_total": episodes, "episode_reward_mean": reward,
            "info": {"num_steps_trained": trained, "learner": learner}}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "config", "name"),
    [
        (result(trained=0), {"learning_starts": 5000, "lr": 1e-3}, "not_learning_yet"),
        (result(episodes=0), {"lr": 1e-3}, "no_episode"),
        (result(cur_lr=1e-3, total_loss=float("nan")), {"lr": 1e-3}, "not_finite"),
        (result(kl=0.3), {"lr": 1e-3}, "kl_large"),
        (result(kl=1e-9), {"lr": 1e-3}, "kl_small"),
        (result(entropy=1e-4, vf_explained_var=0.0), {"lr": 1e-3}, "entropy_collapse"),
        (result(entropy=0.6, vf_explained_var=-0.9), {"lr": 1e-3}, "values_wrong"),
        (result(reward=-1200.0), {"lr": 1e-3, "vf_clip_param": 10.0, "normalize_values": False}, "value_clip"),
    ],
)
def test_what_results_tell_comes_first(row, config, name):
    assert [finding.name for finding in examine_results([row], config)] == [name]


def test_healthy_runs_have_nothing():
    assert findings(PPOTrainer, SMALL, 2) == []
    assert findings(DQNTrainer, {"learning_starts": 100, "timesteps_per_iteration": 1000}) == []


def test_the_command_says_it_by_text_json_and_exit_code(tmp_path):
    healthy = CliRunner().invoke(app, ["doctor", "CartPole-v1", "--steps", "200"])
    assert (healthy.exit_code, healthy.stdout) == (0, "nothing was found\n")
    found = CliRunner().invoke(app, ["doctor", "MountainCar-v0", "--steps", "50", "--json"])
    assert found.exit_code == 1
    assert json.loads(found.stdout)[0]["name"] == "no_end"
    assert CliRunner().invoke(app, ["doctor", str(tmp_path)]).exit_code == 2
