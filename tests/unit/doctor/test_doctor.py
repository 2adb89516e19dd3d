"""The doctor finds each planted fault, and nothing in what is healthy."""

import json
import shutil

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from typer.testing import CliRunner

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.cli.commands import app
from rlframe.doctor import examine_env, examine_results
from rlframe.doctor.units import units_without_effect
from rlframe.policy.policy import PolicySpec
from rlframe.serving.export.recorded import Step

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
    assert [finding.name for finding in examine_results([row] * 3, config)] == [name]


@pytest.mark.parametrize(
    ("last", "config", "names"),
    [
        ({}, {"normalize_values": False}, ["values_lag"]),
        ({}, {"normalize_values": True}, []),
        ({}, {}, []),  # an algorithm without the key
        ({}, {"normalize_values": False, "microbatch_size": 10}, []),  # with which A2C refuses it
        ({}, {"normalize_values": False, "vtrace": False}, []),
        ({}, {"normalize_values": False, "keep_local_weights_in_sync": True}, []),
        ({"vf_explained_var": 0.3}, {"normalize_values": False}, []),
        ({"reward": -480.0}, {"normalize_values": False}, []),  # it learns
        ({"reward": -20.0}, {"normalize_values": False}, []),
    ],
)
def test_values_that_tell_nothing_of_returns_far_from_0(last, config, names):
    usual = {"reward": -500.0, "vf_explained_var": 0.001}
    rows = [result(**{**usual, "reward": -499.0})] + [result(**usual)] * 9 + [result(**{**usual, **last})]
    assert [finding.name for finding in examine_results(rows, {"lr": 2e-3, **config})] == names


def test_values_are_judged_by_their_own_policys_returns():
    stats = {"learner_stats": {"vf_explained_var": 0.0}}
    row = {**result(reward=-500.0), "policy_reward_mean": {"a": 0.0, "b": -500.0}}
    row["info"]["learner"] = {"a": stats, "b": stats}
    found = examine_results([row] * 11, {"normalize_values": False, "lr": 1e-3})
    assert [(finding.name, finding.policy) for finding in found] == [("values_lag", "b")]


def test_one_bad_iteration_is_none():
    rows = [result(kl=0.01, vf_explained_var=0.4), result(kl=0.3, vf_explained_var=-0.9)]
    assert examine_results([*rows, *rows], {"lr": 1e-3}) == []


@pytest.mark.parametrize(
    ("rows", "config", "name"),
    [
        ([result(steps=4000, trained=3000), result(steps=8000, trained=3400)], {}, "replay_ratio_low"),
        ([result(steps=4000, trained=3000), result(steps=8000, trained=10**9)], {}, "replay_ratio_high"),
        ([result(mean_q=1e6)], {"gamma": 0.99}, "values_grow"),
        ([result(mean_q=0.5, min_q=0.5, max_q=0.5)], {}, "values_flat"),
        ([result()], {"critic_lr": 0.0}, "lr_zero"),
        ([result()], {"optimization": {"actor_learning_rate": 0.5}}, "lr_large"),
        ([result()], {"tau": 0.0}, "target_frozen"),
        ([result(grad_gnorm=1e-12)], {}, "gradients_vanish"),
        ([result(grad_gnorm=1e6)], {"grad_clip": 40.0}, "gradients_clipped"),
        ([result(reward=-200.0, episodes=60)], {}, "returns_constant"),
        ([{**result(), "sampler_perf": {"mean_env_wait_ms": 400.0}}], {"num_envs_per_worker": 4}, "slow_env"),
    ],
)
def test_what_results_tell_with_replay_values_gradients_and_time(rows, config, name):
    for row in rows:
        mean = row["episode_reward_mean"]
        row |= {"episode_reward_min": mean, "episode_reward_max": mean}
        row["hist_stats"] = {"episode_reward": [mean] * 2, "episode_lengths": [20, 20]}
    config = {"lr": 1e-3, "replay_buffer_config": {"capacity": 1000}, **config}
    assert [finding.name for finding in examine_results(rows, config)] == [name]


def test_findings_of_several_policies_say_whose_they_are():
    stats = {"a": {"kl": 0.01, "mean_q": 5.0}, "b": {"kl": 0.9, "mean_q": 1e5}}
    row = result()
    row["info"]["learner"] = {policy: {"learner_stats": each} for policy, each in stats.items()}
    row |= {f"policy_reward_{end}": {"a": 20.0, "b": 20.0} for end in ("min", "max")} | {"episode_len_mean": 20.0}
    policies = {"a": PolicySpec(config={"gamma": 0.9}), "b": (None, None, None, {"lr": 0.0})}
    found = examine_results([row] * 3, {"lr": 1e-3, "gamma": 0.99, "multiagent": {"policies": policies}})
    assert [(each.name, each.policy) for each in found] == [("lr_zero", "b"), ("values_grow", "b"), ("kl_large", "b")]
    assert all(each.evidence.startswith("b: ") for each in found)


def test_saturated_units_of_the_value_network_are_found():
    trainer = PPOTrainer({**ALONE, **SMALL}, env="CartPole-v1")
    policy = trainer.get_policy()
    changed = {name: np.full_like(array, 50.0) if "value_hidden_0.bias" in name else array
               for name, array in policy.get_weights().items()}  # fmt: skip
    policy.set_weights(changed)
    found = units_without_effect(policy, [[Step(np.zeros(4, np.float32), None, 0)]])
    trainer.stop()
    assert [finding.name for finding in found] == ["saturated_units"]
    assert found[0].evidence.startswith("layer value_hidden_0 of the values: ")


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


@pytest.mark.slow
def test_the_command_looks_at_a_runs_networks_and_environment(tmp_path):
    run = tmp_path / "run"
    line = ["train", "A2C", "--env", "CartPole-v1", "--num-workers", "0", "--max-steps", "400", "--gamma", "0.1",
            "--run-dir", str(run), "--quiet"]  # fmt: skip
    assert CliRunner().invoke(app, line).exit_code == 0
    found = CliRunner().invoke(app, ["doctor", str(run), "--steps", "100", "--json"])
    assert [each["name"] for each in json.loads(found.stdout)] == ["gamma_small"]
    for checkpoint in (run / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    without = CliRunner().invoke(app, ["doctor", str(run)])
    assert "networks and environment are not looked at" in without.stderr
    assert without.stdout.startswith("1. gamma 0.1 sees about 1.1 steps ahead")
    only = CliRunner().invoke(app, ["doctor", str(run), "--results-only"])
    assert only.stderr == ""
