"""What a program sets in the framework's own way: weights, which acting in NumPy sees, and parts of a policy."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.ppo import DEFAULT_CONFIG
from rlframe.agents.ppo.ppo import PPOTrainer
from rlframe.agents.sac import SACTrainer
from rlframe.agents.trpo import TRPOTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.models import ModelCatalog
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.models.torch.torch_action_dist import TorchCategorical
from rlframe.policy.inference import NumpyInference
from tests.helpers.frameworks import needs_tf

OBS = np.ones((2, 3), np.float32)
SMALL = {
    "num_workers": 0,
    "train_batch_size": 20,
    "sgd_minibatch_size": 10,
    "num_sgd_iter": 1,
    "rollout_fragment_length": 20,
}


def make(framework: str, **updates: Any) -> Any:
    config = {**DEFAULT_CONFIG, "framework": framework, "seed": 0, "model": {**DEFAULT_CONFIG["model"]}}
    config["model"].update(fcnet_hiddens=[4], vf_share_layers=False)
    policy_class = PPOTrainer.get_default_policy_class(None, config)
    policy = policy_class.with_updates(**updates)(Box(-1, 1, (3,), np.float32), Discrete(2), config)
    assert isinstance(policy.inference, NumpyInference)
    return policy


def q_learner(*, by_autograd: bool) -> Any:
    config = {**DQNTrainer.get_default_config(), "framework": "torch", "seed": 0, "hiddens": [], "dueling": False}
    config["model"] = {**config["model"], "fcnet_hiddens": [4]}
    policy = DQNTrainer.get_default_policy_class(None, config)(Box(-1, 1, (3,), np.float32), Discrete(2), config)
    if by_autograd:
        policy.without_autograd = None
    else:
        assert policy.without_autograd is not None
    return policy


def transitions() -> SampleBatch:
    rng = np.random.default_rng(0)
    columns = {name: rng.random((8, 3), np.float32) for name in ("obs", "new_obs")}
    columns |= {name: rng.random(8, np.float32) for name in ("rewards", "weights", "discounts")}
    columns |= {"actions": rng.integers(2, size=8), "dones": np.zeros(8, np.bool_)}
    return SampleBatch(columns)


def logits(policy: Any) -> Any:
    return policy.compute_actions(OBS, explore=False)[2]["action_dist_inputs"][0]


def test_tensors_of_torch() -> None:
    policy = make("torch")
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.fill_(1.0)
    np.testing.assert_allclose(logits(policy), 4 * np.tanh(4) + 1, rtol=1e-5)


@pytest.mark.parametrize("way", ["data", "vector_to_parameters", "an optimiser of its own"])
def test_data_that_takes_the_place_of_a_parameters(way: str) -> None:
    own = {"optimizer_fn": lambda policy, config: torch.optim.SGD(policy.model.parameters(), lr=config["lr"])}
    policy = make("torch", **(own if way == "an optimiser of its own" else {}))
    parameters = list(policy.model.parameters())
    if way == "vector_to_parameters":
        torch.nn.utils.vector_to_parameters(torch.ones(sum(p.numel() for p in parameters)), parameters)
    for parameter in parameters if way != "vector_to_parameters" else ():
        parameter.data = torch.ones_like(parameter)
    np.testing.assert_allclose(logits(policy), 4 * np.tanh(4) + 1, rtol=1e-5)
    outputs, _ = policy.model({"obs": torch.from_numpy(OBS)})
    np.testing.assert_allclose(outputs[0].detach(), logits(policy), rtol=1e-5)


@pytest.mark.parametrize("by_autograd", [True, False])
@pytest.mark.parametrize("acts_between", [True, False])
def test_learning_goes_on_from_data_set_by_hand(acts_between: bool, by_autograd: bool) -> None:
    by_hand, by_weights = q_learner(by_autograd=by_autograd), q_learner(by_autograd=by_autograd)
    before = {name: array * 2 for name, array in by_hand.get_weights().items()}
    by_weights.set_weights(before)
    for parameter in by_hand.model.parameters():
        parameter.data = parameter.data * 2
    if acts_between:
        logits(by_hand)
    for policy in (by_hand, by_weights):
        for _ in range(3):
            policy.learn_on_batch(transitions())
    for name, array in by_weights.get_weights().items():
        np.testing.assert_array_equal(by_hand.get_weights()[name], array, err_msg=name)
        assert (array != before[name]).any()


def test_a_loss_that_a_program_puts_into_a_policy_is_learned_from() -> None:
    policy = q_learner(by_autograd=False)
    policy.loss = lambda model, dist_class, batch: 0.5 * sum(p.square().sum() for p in model.parameters())
    before = policy.get_weights()
    policy.learn_on_batch(transitions())
    for name, array in policy.get_weights().items():  # Adam's first step is that of the sign
        np.testing.assert_allclose(array, before[name] - policy.cur_lr * np.sign(before[name]), atol=1e-6)


@pytest.mark.parametrize("by", ["one buffer", "its own optimiser"])
def test_copies_of_weights_elsewhere_follow_data_set_by_hand(by: str) -> None:
    own = {"optimizer_fn": lambda policy, config: torch.optim.SGD(policy.model.parameters(), lr=config["lr"])}
    policy = make("torch", **(own if by == "its own optimiser" else {}))
    policy.device = SimpleNamespace(type="elsewhere")  # as a GPU, whose weights are copied
    policy.choose_inference()
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.fill_(2.0)
    np.testing.assert_allclose(logits(policy), 8 * np.tanh(8) + 2, rtol=1e-5)
    for parameter in policy.model.parameters():
        parameter.data = torch.ones_like(parameter)
    np.testing.assert_allclose(logits(policy), 4 * np.tanh(4) + 1, rtol=1e-5)


def test_data_of_another_shape_is_refused() -> None:
    policy = make("torch")
    policy.model.hidden_0.weight.data = torch.ones(5, 3)
    with pytest.raises(ValueError, match=r"parameter.data: got \(5, 3\), wanted \(4, 3\)"):
        logits(policy)


@needs_tf
@pytest.mark.parametrize("by", ["variables", "a view in Keras", "additions"])
def test_variables_of_tensorflow(by: str) -> None:
    policy = make("tf")
    if by == "a view in Keras":
        model = policy.model.base_model
        model.set_weights([np.ones_like(array) for array in model.get_weights()])
    for variable in policy.model.trainable_variables():
        if by == "variables":
            variable.assign(np.ones(variable.shape))
        elif by == "additions":
            variable.assign_add(1.0 - variable)
    np.testing.assert_allclose(logits(policy), 4 * np.tanh(4) + 1, rtol=1e-5)
    policy.model.trainable_variables()[0].assign_sub(np.ones((4, 3)))
    np.testing.assert_allclose(logits(policy), 4 * np.tanh(1) + 1, rtol=1e-5)


def sum_of_logits(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> Any:
    made = model({"obs": train_batch["obs"], "is_training": True}, [], None)[0]
    return made.sum() if isinstance(made, torch.Tensor) else made[0, 0] + made[1, 0]


class Told(TorchCategorical):
    told = 0

    def logp(self, x: Any) -> Any:
        type(self).told += 1
        return super().logp(x)


def put_distribution(policy: Any, *given: Any) -> None:
    policy.dist_class = Told


def put_forward(policy: Any, *given: Any) -> None:
    forward = policy.model.forward

    def counted(*args: Any) -> Any:
        Told.told += 1
        return forward(*args)

    policy.model.forward = counted


def put_hook(policy: Any, *given: Any) -> None:
    policy.model.hidden_0.register_forward_hook(lambda *seen: setattr(Told, "told", Told.told + 1))


@pytest.mark.parametrize("put", [put_distribution, put_forward, put_hook])
@pytest.mark.parametrize("where", ["before_loss_init", "after_init", "constructor"])
def test_parts_that_constructors_and_hooks_put_into_a_policy_are_what_it_has(where: str, put: Any) -> None:
    base = PPOTrainer.get_default_policy_class(None, {"framework": "torch"})

    class Constructs(base):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            put(self)

    cls = Constructs if where == "constructor" else base.with_updates(**{where: put})
    trainer = PPOTrainer.with_updates(default_policy=cls, get_policy_class=None)(SMALL, env="CartPole-v1")
    Told.told = 0
    trainer.get_policy().compute_actions(np.ones((2, 4), np.float32))
    assert Told.told, "acting"
    acted, Told.told = Told.told, 0
    trainer.get_policy().learn_on_batch(trainer.workers.local_worker().sample())
    assert Told.told > 20 * acted, "sampling and learning"


@pytest.mark.parametrize("put", [put_distribution, put_forward, put_hook])
def test_parts_put_into_a_policy_that_has_acted_and_learned_are_what_it_has(put: Any) -> None:
    trainer = PPOTrainer(config=SMALL, env="CartPole-v1")
    trainer.train()
    policy, Told.told = trainer.get_policy(), 0
    put(policy)
    policy.compute_actions(np.ones((2, 4), np.float32))
    assert Told.told, "acting"
    acted, Told.told = Told.told, 0
    trainer.train()
    assert Told.told > 20 * acted, "sampling and learning"


class Doubled(FullyConnectedNetwork):
    def __call__(self, *args: Any) -> Any:
        outputs, state = super().__call__(*args)
        return outputs * 0.0 + 2.0, state


def test_a_model_that_is_called_its_own_way_is_acted_by() -> None:
    ModelCatalog.register_custom_model("doubled", Doubled)
    trainer = PPOTrainer({**SMALL, "model": {"custom_model": "doubled"}}, env="CartPole-v1")
    made = trainer.get_policy().compute_actions(np.ones((2, 4), np.float32))[2]
    np.testing.assert_array_equal(made["action_dist_inputs"], 2.0)


def new_parameter(model: Any) -> None:
    model.hidden_0.weight = torch.nn.Parameter(torch.ones(4, 3))
    torch.nn.init.ones_(model.hidden_0.bias)


def new_layer(model: Any) -> None:
    model.hidden_0 = torch.nn.Linear(3, 4)
    for parameter in model.hidden_0.parameters():
        torch.nn.init.ones_(parameter)


@pytest.mark.parametrize("put", [new_parameter, new_layer])
def test_parameters_and_layers_of_a_program_are_acted_by(put: Any) -> None:
    policy = make("torch")
    torch.nn.init.ones_(policy.model.output.weight)
    torch.nn.init.zeros_(policy.model.output.bias)
    put(policy.model)
    np.testing.assert_allclose(logits(policy), 4 * np.tanh(4), rtol=1e-5)


def test_gradients_by_hand_are_not_those_of_a_layer_that_was_replaced() -> None:
    by_hand, by_autograd = (q_learner(by_autograd=by) for by in (False, True))
    for policy in (by_hand, by_autograd):
        policy.learn_on_batch(transitions())
        layer = policy.model.hidden_0
        policy.model.hidden_0 = torch.nn.Sequential(layer, torch.nn.Hardtanh(-0.1, 0.1))
        policy.learn_on_batch(transitions())
    for name, array in by_autograd.get_weights().items():
        np.testing.assert_allclose(by_hand.get_weights()[name], array, atol=1e-6)


def test_another_model() -> None:
    policy, other = make("torch"), make("torch")
    for parameter in other.model.parameters():
        torch.nn.init.ones_(parameter)
    policy.model = other.model
    np.testing.assert_allclose(logits(policy), 4 * np.tanh(4) + 1, rtol=1e-5)
    assert isinstance(policy.inference, NumpyInference)


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=needs_tf)])
def test_loss_put_behind_the_first_step_is_learned_by(framework: str) -> None:
    policy = make(framework, loss_fn=sum_of_logits)
    batch = SampleBatch({"obs": OBS, "actions": np.zeros(2, np.int64)})
    policy.learn_on_batch(batch)
    before = policy.get_weights()["output.weight"]
    policy._loss = lambda *given: -sum_of_logits(*given)
    policy.learn_on_batch(batch)
    moved = np.abs(policy.get_weights()["output.weight"] - before).max()
    assert moved < 0.1 * policy.cur_lr  # Adam turns about; it goes on by the rate otherwise


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=needs_tf)])
def test_loss_of_a_policy_is_called_as_in_rllib(framework: str) -> None:
    policy = make(framework, loss_fn=sum_of_logits)
    batch = SampleBatch({"obs": OBS, "actions": np.zeros(2, np.int64)})
    made = policy._loss(policy, policy.model, policy.dist_class, policy.to_tensors(batch))
    wanted = policy.compute_actions(OBS, explore=False)[2]["action_dist_inputs"]
    wanted = wanted.sum() if framework == "torch" else wanted[:, 0].sum()
    np.testing.assert_allclose(policy.to_numpy(made), wanted, rtol=1e-4)


def test_loss_of_an_algorithm_is_a_tensor_and_its_errors_by_row_are_found_behind_it() -> None:
    policy = q_learner(by_autograd=True)
    batch = policy._lazy_tensor_dict(transitions())
    policy._loss(policy, policy.model, policy.dist_class, batch).backward()
    assert policy.model.hidden_0.weight.grad.abs().sum() > 0
    assert policy.extra_compute_grad_fetches()["td_error"].shape == (8,)
    made = policy.loss(policy.model, policy.dist_class, batch)
    assert made.item() == pytest.approx(made.losses.item())
    with pytest.raises(AttributeError, match=r"LossOutput has no 'item'; its losses are output.losses\[name\]"):
        replace(made, losses={"actor": made.losses}).item()


def soft_actor_critic() -> Any:
    config = {**SACTrainer.get_default_config(), "framework": "torch", "seed": 0}
    policy_class = SACTrainer.get_default_policy_class(None, config)
    return policy_class(Box(-1, 1, (3,), np.float32), Box(-1, 1, (2,), np.float32), config)


@pytest.mark.parametrize("frozen", ["q", "actor"])
def test_parts_whose_parameters_are_all_frozen_stay_and_the_others_learn(frozen: str) -> None:
    policy = soft_actor_critic()
    for name, parameter in policy.model.named_parameters():
        parameter.requires_grad_(not name.startswith((f"{frozen}.", f"twin_{frozen}.")))
    before = policy.get_weights()
    batch = transitions()
    batch["actions"] = np.zeros((8, 2), np.float32)
    policy.learn_on_batch(batch)
    moved = {name.partition(".")[0] for name, array in policy.get_weights().items() if (array != before[name]).any()}
    assert moved == {"log_alpha", "actor", "q", "twin_q"} - {frozen, f"twin_{frozen}"}


def test_policy_of_which_nothing_is_left_to_learn_says_so() -> None:
    for policy in (soft_actor_critic(), q_learner(by_autograd=False)):
        for parameter in policy.model.parameters():
            parameter.requires_grad_(False)
        batch = transitions()
        if policy.action_space.shape:
            batch["actions"] = np.zeros((8, 2), np.float32)
        with pytest.raises(ValueError, match=r"none of its parameters requires gradients: leave the policy out of"):
            policy.learn_on_batch(batch)


def test_curvature_by_hand_is_not_that_of_a_layer_that_was_replaced() -> None:
    trainer = TRPOTrainer({"num_workers": 0, "train_batch_size": 40, "rollout_fragment_length": 20}, env="CartPole-v1")
    trainer.train()
    policy = trainer.get_policy()
    assert policy._problem.without_autograd is not None
    batch = trainer.workers.local_worker().sample()
    policy.model.hidden_0 = torch.nn.Sequential(policy.model.hidden_0, torch.nn.Hardtanh(-1e-3, 1e-3))
    policy.notice_own_parts()
    policy._problem.begin(batch, batch)
    vector = np.ones_like(policy._problem.get_flat())
    made = policy._problem.divergence_product(vector)
    policy._problem.without_autograd = None
    policy._problem.begin(batch, batch)
    np.testing.assert_allclose(made, policy._problem.divergence_product(vector), rtol=1e-4, atol=1e-7)
