"""What a program changes or reads of a policy counts where steps are taken a faster way."""

from __future__ import annotations

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlframe.agents.dqn.dqn_policy import DQNTorchPolicy, build_q_losses
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.sac.sac_policy import SACTorchPolicy
from tests.contract.test_policies import ACTIONS, BOX, OBS_SPACE, config_of, make, make_batch
from tests.helpers.frameworks import needs_tf


def test_a_loss_keeps_numbers_of_its_own_beside_td_errors():
    def loss(policy, model, dist_class, batch):
        made = build_q_losses(policy, model, dist_class, batch)
        policy.keep(mine=made.detach())
        return made

    policy = DQNTorchPolicy.with_updates(name="Keeps", loss_fn=loss)(
        OBS_SPACE, ACTIONS, config_of("DQN", framework="torch")
    )
    told = policy.learn_on_batch(make_batch(32))
    assert np.isfinite(told["learner_stats"]["mine"])
    assert told["td_error"].shape == (32,)


class Wide(gym.Env):
    """Keeps the actions that it gets; ten steps, bounds of ±10."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(-10, 10, (1,), np.float32)
    got: list = []  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.got.append(float(action[0]))
        self.steps += 1
        return np.zeros(2, np.float32), 0.0, self.steps >= 10, False, {}


def test_how_actions_reach_the_environment_may_be_changed_later():
    config = {"framework": "torch", "num_workers": 0, "seed": 1, "train_batch_size": 100, "sgd_minibatch_size": 100,
              "rollout_fragment_length": 100, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [4]}}  # fmt: skip
    trainer = PPOTrainer(config, env=Wide)
    policy, sizes = trainer.get_policy(), []
    for change in (lambda: None, lambda: policy.config.update(normalize_actions=False)):
        change()
        Wide.got.clear()
        trainer.train()
        sizes.append(np.abs(Wide.got).mean())
    assert sizes[0] > 3 * sizes[1]
    policy.config["normalize_actions"] = True
    policy.to_env_actions = lambda actions, **options: np.zeros_like(actions)
    Wide.got.clear()
    trainer.train()
    assert set(Wide.got) == {0.0}


def test_values_stay_where_a_program_has_put_its_own_layer_before_popart():
    policy = make("torch", "PPO", {"normalize_values": True})
    first, second = make_batch(32, 0, "PPO"), make_batch(32, 1, "PPO")
    second["value_targets"] = second["value_targets"] * 50 + 100
    policy.update_value_normalizer(first)
    policy.learn_on_batch(first)
    new = torch.nn.Linear(policy.model.value.in_features, 1)
    new.load_state_dict(policy.model.value.state_dict())
    policy.model.value = new
    before = policy.values(first["obs"])
    policy.update_value_normalizer(second)
    assert policy.value_std > 10
    np.testing.assert_allclose(policy.values(first["obs"]), before, atol=1e-3)


@pytest.mark.parametrize("name", ["IMPALA", "PPO"])
def test_statistics_read_the_pass_of_the_batch(name):
    plain = type(make("torch", name, {}))
    own = plain.with_updates(
        name="Reads", stats_fn=lambda policy, batch: {"rows": float(policy.model.value_function().numel())}
    )
    policy = own(OBS_SPACE, ACTIONS, config_of(name, framework="torch"))
    assert policy.learn_on_batch(make_batch(32, 0, name))["learner_stats"]["rows"] == 32


def test_impala_takes_actions_in_a_column():
    batch = make_batch(32, 0, "IMPALA")
    rows = make("torch", "IMPALA", {}).learn_on_batch(batch)["learner_stats"]
    batch["actions"] = batch["actions"].reshape(-1, 1)
    column = make("torch", "IMPALA", {}).learn_on_batch(batch)["learner_stats"]
    assert column["total_loss"] == pytest.approx(rows["total_loss"])


def test_a_subclass_of_sac_draws_further_noise():
    class Further(SACTorchPolicy):
        noise_columns = (*SACTorchPolicy.noise_columns, "mine")

        def loss(self, model, dist_class, train_batch):
            assert train_batch["mine"].shape == train_batch["actions"].shape
            return super().loss(model, dist_class, train_batch)

    policy = Further(OBS_SPACE, BOX, config_of("SAC", framework="torch"))
    assert np.isfinite(policy.learn_on_batch(make_batch(32, 0, "SAC"))["learner_stats"]["actor_loss"])


@needs_tf
@pytest.mark.slow
def test_importing_a_tensorflow_policy_leaves_tensorflow_to_be_configured():
    program = """
import rlframe.policy.tf_policy, tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(2)
from rlframe.agents.ppo import PPOTrainer
trainer = PPOTrainer({"framework": "tf", "num_workers": 0, "learner_threads": 1}, env="CartPole-v1")
print(tf.config.threading.get_inter_op_parallelism_threads(), tf.config.threading.get_intra_op_parallelism_threads())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split()[-2:] == ["1", "1"], done.stderr
