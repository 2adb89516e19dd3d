"""Learner steps in PyTorch where a program clears, replaces or computes gradients itself: the same steps as without."""

import numpy as np
import pytest
import torch

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.pg import PGTorchPolicy, PGTrainer
from rlframe.agents.trpo import TRPOTrainer
from rlframe.agents.trpo.trpo_policy import TRPOTorchPolicy
from rlframe.policy.policy_template import build_policy_class

CONFIG = {
    "framework": "torch", "num_workers": 0, "rollout_fragment_length": 20, "train_batch_size": 20, "seed": 3,
    "lr": 0.01, "min_iter_time_s": 0, "log_sys_usage": False, "model": {"fcnet_hiddens": [8]},
}  # fmt: skip


def weights_after(policy, cls=PGTrainer, **config):
    derived = cls.with_updates(name="Own", default_policy=policy, get_policy_class=lambda config: policy)
    trainer = derived({**CONFIG, **config}, env="CartPole-v1")
    for _ in range(2):
        result = trainer.train()
    weights = trainer.get_policy().get_weights()
    trainer.stop()
    return weights, result["info"]["learner"]["default_policy"]


def loss_of(policy, samples):
    batch = policy._lazy_tensor_dict(samples)
    batch.set_training(True)
    loss = policy.loss(policy.model, policy.dist_class, batch)
    return getattr(loss, "losses", loss)


def by_optimizer(policy, samples):
    for optimizer in policy._optimizers:
        optimizer.zero_grad()
    loss_of(policy, samples).backward()


def by_model(policy, samples):
    policy.model.zero_grad()
    loss_of(policy, samples).backward()


def by_autograd(policy, samples):
    parameters = list(policy.model.parameters())
    gradients = torch.autograd.grad(loss_of(policy, samples), parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


def by_copies(policy, samples):
    by_optimizer(policy, samples)
    for parameter in policy.model.parameters():
        parameter.grad = None if parameter.grad is None else parameter.grad * 1.0


@pytest.fixture(scope="module")
def wanted():
    return weights_after(PGTorchPolicy)[0]


@pytest.mark.parametrize("compute", [by_optimizer, by_model, by_autograd, by_copies])
def test_gradients_by_any_idiom_are_stepped_on(compute, wanted):
    training = []

    class Own(PGTorchPolicy):
        def compute_gradients(self, samples):
            training.append(self.model.training)
            compute(self, samples)
            return [parameter.grad for parameter in self.model.parameters()], {}

    weights, _ = weights_after(Own)
    for name, value in wanted.items():
        np.testing.assert_allclose(weights[name], value, rtol=1e-5, atol=1e-7, err_msg=name)
    assert set(training) == {True}


def test_gradients_that_a_program_takes_away_move_nothing():
    class Own(PGTorchPolicy):
        def apply_gradients(self, gradients):
            for parameter in self.model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            super().apply_gradients(gradients)

    weights, _ = weights_after(Own)
    kept = weights_after(Own, lr=0.0)[0]
    assert all((weights[name] == kept[name]).all() for name in kept)


class Clearing(DefaultCallbacks):
    def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
        for optimizer in policy._optimizers:
            optimizer.zero_grad()
        policy.model.zero_grad()


def test_clearing_gradients_in_a_callback_changes_nothing(wanted):
    weights, _ = weights_after(PGTorchPolicy, callbacks=Clearing)
    assert all((weights[name] == wanted[name]).all() for name in wanted)


def test_the_model_tells_once_a_step():
    class Own(PGTorchPolicy):
        def compute_gradients(self, samples):
            return super().compute_gradients(samples)

    _, told = weights_after(Own)
    plain = weights_after(PGTorchPolicy)[1]
    assert told.keys() == plain.keys()
    assert told["learner_stats"].keys() == plain["learner_stats"].keys()
    assert told["learner_stats"]["policy_loss"] == pytest.approx(plain["learner_stats"]["policy_loss"])


def test_steps_that_no_gradient_is_for_stay_built_in():
    class Own(TRPOTorchPolicy):
        def compute_gradients(self, samples):
            return super().compute_gradients(samples)

    weights, told = weights_after(Own, TRPOTrainer)
    assert "step_accepted" in told["learner_stats"]
    plain = weights_after(TRPOTorchPolicy, TRPOTrainer)[0]
    assert all((weights[name] == plain[name]).all() for name in plain)


def test_functions_for_gradients_are_told_apart_by_what_they_need():
    seen = []

    def apply(policy, gradients, scale=1.0):
        seen.append((type(gradients).__name__, scale))
        policy._optimizers[0].step()

    def apply_any(*arguments):
        seen.append(len(arguments))

    for function in (apply, apply_any):
        policy = build_policy_class("Own", "torch", loss_fn=lambda policy, model, dist, batch: model(batch)[0].mean(),
                                    apply_gradients_fn=function)  # fmt: skip
        weights_after(policy)
    assert set(seen) == {("GradientsInPlace", 1.0), 2}
