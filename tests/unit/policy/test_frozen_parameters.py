"""Parameters that a program freezes stay as they are, and learn again when they are free."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlframe.agents.impala import ImpalaTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.sac import SACTrainer
from rlframe.policy.torch.flat import FlatParameters
from rlframe.policy.torch.flat_optimizers import FlatRMSProp

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


def test_rmsprop_in_one_buffer_takes_pytorchs_steps() -> None:
    layers = [torch.nn.Linear(3, 2) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    options: dict[str, Any] = {"lr": 0.1, "alpha": 0.9, "eps": 0.2, "momentum": 0.5}
    flat = FlatParameters(layers[0].parameters())
    optimizers = FlatRMSProp(flat, **options), torch.optim.RMSprop(layers[1].parameters(), **options)
    for step in range(4):
        for layer, optimizer in zip(layers, optimizers, strict=True):
            loss = layer(torch.full((2, 3), step + 1.0)).square().sum()
            flat.zero_grad() if layer is layers[0] else optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.testing.assert_close(dict(layers[0].named_parameters()), dict(layers[1].named_parameters()))


def test_pairs_of_parameters_in_one_buffer_can_be_read_as_complex_numbers() -> None:
    numbers = [torch.tensor([1.0]), torch.tensor([[2.0, 3.0], [4.0, 5.0]]), torch.tensor(6.0), torch.tensor([7.0, 8.0])]
    parameters = [torch.nn.Parameter(tensor) for tensor in numbers]
    flat = FlatParameters(parameters)
    assert torch.view_as_complex(parameters[1]).tolist() == [2 + 3j, 4 + 5j]
    assert torch.view_as_complex(parameters[3]).item() == 7 + 8j
    assert sorted(flat.param.tolist()) == [1, 2, 3, 4, 5, 6, 7, 8]
    torch.view_as_complex(parameters[1]).abs().square().sum().backward()
    assert parameters[1].grad is not None
    assert parameters[1].grad.tolist() == [[4.0, 6.0], [8.0, 10.0]]
    assert parameters[0].grad is not None
    assert parameters[0].grad.tolist() == [0.0]
