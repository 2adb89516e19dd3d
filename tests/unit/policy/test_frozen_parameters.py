"""Parameters that a program freezes stay as they are, and learn again when they are free."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlframe.agents.impala import ImpalaTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.sac import SACTrainer

SMALL = {"num_workers": 0, "seed": 1, "rollout_fragment_length": 20, "train_batch_size": 20, "min_iter_time_s": 0}
PPO = {"sgd_minibatch_size": 20, "num_sgd_iter": 2, "model": {"fcnet_hiddens": [8]}}
SAC = {"learning_starts": 10, "timesteps_per_iteration": 20, "rollout_fragment_length": 1}


@pytest.mark.parametrize(
    ("trainer_class", "env", "config"),
    [(PPOTrainer, "CartPole-v1", PPO), (SACTrainer, "Pendulum-v1", SAC), (ImpalaTrainer, "CartPole-v1", {})],
    ids=["PPO", "SAC", "IMPALA"],
)
def test_a_frozen_layer_stays_while_others_learn(trainer_class: Any, env: str, config: dict[str, Any]) -> None:
    trainer = trainer_class({**SMALL, **config}, env=env)
    trainer.train()  # so that the optimiser has a momentum
    parameters = dict(trainer.get_policy().model.named_parameters())
    frozen = {name for name in parameters if "hidden_0" in name}
    for learns in (False, True):
        before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        for name in frozen:
            parameters[name].requires_grad_(learns)
        trainer.train()
        changed = {name for name, values in before.items() if not torch.equal(values, parameters[name])}
        assert bool(changed & frozen) is learns
        assert changed - frozen
    trainer.stop()
