"""Programs that compute or apply a torch policy's gradients themselves, in learner steps."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.pg import PGTorchPolicy, PGTrainer
from rlframe.agents.sac import SACTorchPolicy
from rlframe.agents.trainer import COMMON_CONFIG
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.policy_template import build_policy_class
from rlframe.policy.torch_policy import TorchPolicy, _directStepOptimizerSingleton

OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
CONFIG = {**COMMON_CONFIG, "framework": "torch", "lr": 0.5, "seed": 0}


def likelihood_loss(policy, model, dist_class, batch):
    return -dist_class(model(batch)[0], model).logp(batch["actions"]).mean()


def make_batch(rows=8):
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(rows, 3)).astype(np.float32)
    actions = rng.integers(2, size=rows)
    return SampleBatch({"obs": obs, "actions": actions, "rewards": np.ones(rows, np.float32)})


def test_a_learner_step_applies_gradients_by_a_function_of_the_programs_own():
    calls = []

    def loss(policy, model, dist_class, batch):
        policy.last_loss = likelihood_loss(policy, model, dist_class, batch)
        return policy.last_loss

    def apply(policy, gradients):
        calls.append(gradients == _directStepOptimizerSingleton)
        weights = [weight for weight in policy.model.parameters() if weight.grad is not None]
        again = torch.autograd.grad(
            policy.last_loss, weights, materialize_grads=True, allow_unused=True
        )  # as natural gradients do: the graph is still there
        for weight, computed in zip(weights, again, strict=True):
            torch.testing.assert_close(weight.grad, computed)
            weight.data -= 0.5 * weight.grad

    cls = build_policy_class("Mine", "torch", loss_fn=loss, apply_gradients_fn=apply)
    policy, plain = (made(OBS, ACTIONS, CONFIG) for made in (
        cls, build_policy_class("Plain", "torch", loss_fn=likelihood_loss,
                                optimizer_fn=lambda policy, config: torch.optim.SGD(policy.model.parameters(), 0.5)),
    ))  # fmt: skip
    plain.set_weights(policy.get_weights())
    policy.learn_on_batch(make_batch())
    plain.learn_on_batch(make_batch())
    assert calls == [True]
    for name, weight in plain.get_weights().items():
        np.testing.assert_allclose(policy.get_weights()[name], weight, rtol=1e-5, atol=1e-7)


def test_a_class_that_overrides_both_and_calls_the_built_in_ones_learns_as_before():
    told = []

    class Counted(TorchPolicy):
        def loss(self, model, dist_class, train_batch):
            return likelihood_loss(self, model, dist_class, train_batch)

    class Own(Counted):
        def compute_gradients(self, postprocessed_batch):
            gradients, info = super().compute_gradients(postprocessed_batch)
            info["learner_stats"]["own"] = 7.0
            return gradients, info

        def apply_gradients(self, gradients):
            told.append([None if gradient is None else tuple(gradient.shape) for gradient in gradients])
            super().apply_gradients(gradients)

    policy, plain = (cls(OBS, ACTIONS, CONFIG) for cls in (Own, Counted))
    plain.set_weights(policy.get_weights())
    stats = policy.learn_on_batch(make_batch())["learner_stats"]
    plain.learn_on_batch(make_batch())
    assert stats["own"] == 7.0
    assert len(told) == 1
    assert told[0] == [tuple(weight.shape) if weight.grad is not None else None for weight in plain.model.parameters()]
    for name, weight in plain.get_weights().items():
        np.testing.assert_array_equal(policy.get_weights()[name], weight)


def test_callbacks_are_called_once_where_a_program_computes_gradients():
    called = []

    class Callbacks(DefaultCallbacks):
        def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
            called.append(train_batch.count)
            result["seen"] = 1

    def compute(policy, batch):
        return TorchPolicy.compute_gradients(policy, batch)

    cls = PGTorchPolicy.with_updates(compute_gradients_fn=compute)
    trainer = trainer_of(cls, callbacks=Callbacks)
    before = trainer.get_policy().get_weights()
    batch = trainer.workers.local_worker().sample()
    assert trainer.get_policy().learn_on_batch(batch)["custom_metrics"] == {"seen": 1}
    assert called == [64]
    assert any((weight != before[name]).any() for name, weight in trainer.get_policy().get_weights().items())
    trainer.stop()


def trainer_of(cls, **more):
    made = PGTrainer.with_updates(name="Mine", default_policy=cls, get_policy_class=lambda config: cls)
    config = {"framework": "torch", "num_workers": 0, "train_batch_size": 64, "rollout_fragment_length": 64, **more}
    return made({**config, "env": "CartPole-v1", "log_sys_usage": False, "min_iter_time_s": 0})


def test_a_function_of_three_arguments_is_called_with_each_optimiser():
    def apply(policy, optimizer, gradients):
        if optimizer is not policy._optimizers[0]:
            optimizer.step()

    policy = SACTorchPolicy.with_updates(apply_gradients_fn=apply)(OBS, spaces.Box(-1, 1, (2,)), {"framework": "torch"})
    rng = np.random.default_rng(0)
    obs, new_obs = rng.normal(size=(2, 8, 3)).astype(np.float32)
    rows = {
        "obs": obs,
        "new_obs": new_obs,
        "actions": policy.compute_actions(obs)[0],
        "rewards": np.ones(8, np.float32),
    }
    before = policy.get_weights()
    policy.learn_on_batch(SampleBatch({**rows, "discounts": np.ones(8, np.float32)}))
    changed = {name.partition(".")[0] for name, new in policy.get_weights().items() if (new != before[name]).any()}
    assert changed == {"q", "twin_q", "log_alpha"}


def test_they_take_the_place_of_adams_steps_under_a_trainer():
    applied = []
    cls = PGTorchPolicy.with_updates(name="Frozen", apply_gradients_fn=lambda policy, gradients: applied.append(1))
    trainer = trainer_of(cls)
    before = trainer.get_policy().get_weights()
    trainer.train()
    assert applied
    for name, weight in trainer.get_policy().get_weights().items():
        np.testing.assert_array_equal(weight, before[name])
    trainer.stop()
