"""Gradients written by hand are those of autograd."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlframe.data.sample_batch import SampleBatch
from rlframe.fast.dense_torch import DenseChain
from rlframe.offline.evaluation.fitted_q_policy import FittedQSettings, make_policy
from rlframe.offline.evaluation.fitted_q_torch import StackedGradients
from rlframe.policy.torch.flat import FlatParameters
from rlframe.utils.errors import NonFiniteError
from tests.contract.test_policies import BOX, make, make_batch, same

CASES = [
    ("SimpleQ", {}),
    ("SimpleQ", {"model": {"fcnet_hiddens": [16, 8], "fcnet_activation": "relu"}}),
    ("DQN", {}),
    ("DQN", {"double_q": False}),
    ("DQN", {"dueling": False}),
    ("DQN", {"dueling": False, "hiddens": []}),
    ("DQN", {"hiddens": [], "model": {"fcnet_hiddens": [16], "fcnet_activation": "sigmoid"}}),
    ("DQN", {"hiddens": [16, 8], "grad_clip": None}),
    ("PPO", {}),
    ("PPO", {"entropy_coeff": 0.1, "kl_coeff": 0.0, "vf_clip_param": 0.3, "clip_param": 0.05}),
    ("PPO", {"model": {"vf_share_layers": True, "fcnet_activation": "relu"}, "grad_clip": 0.2}),
    ("PPO", {"model": {"fcnet_hiddens": []}, "vf_loss_coeff": 0.3}),
    ("IMPALA", {}),
    ("IMPALA", {"vtrace_drop_last_ts": False, "opt_type": "rmsprop", "model": {"vf_share_layers": True}}),
    ("IMPALA", {"entropy_coeff": 0.0, "behaviour_kl_coeff": 2.0, "normalize_values": False, "vtrace_lambda": 0.7}),
    ("IMPALA", {"scale_advantages": False, "vtrace_clip_rho_threshold": None, "grad_clip": 0.2, "vf_loss_coeff": 2.0}),
    ("continuous PPO", {}),
    ("continuous PPO", {"action_bound_coeff": 0.5, "entropy_coeff": 0.1, "model": {"free_log_std": False}}),
    ("continuous PPO", {"model": {"free_log_std": True, "vf_share_layers": True}, "grad_clip": 0.2, "kl_coeff": 0.7}),
    ("continuous PPO", {"model": {"free_log_std": False, "fcnet_hiddens": []}, "kl_coeff": 0.0, "clip_param": 0.05}),
    ("continuous PPO", {"model": {"free_log_std": True, "fcnet_activation": "relu"}, "normalize_values": True}),
]


#: Of an actor that goes up critics; noise comes from the same streams.
TANH = {"fcnet_hiddens": [16, 8], "fcnet_activation": "tanh", "post_fcnet_hiddens": [], "custom_model": None}
CASES += [
    ("SAC", {"target_entropy": -3.0}),
    ("SAC", {"twin_q": False, "grad_clip": 0.2}),
    ("SAC", {"n_critics": 3, "Q_model": TANH, "policy_model": TANH}),
    ("SAC", {"use_target_network": False, "initial_alpha": 0.1}),
    ("SAC", {"use_huber": False}),
    ("CQL", {"bc_iters": 0, "num_actions": 3}),
    ("CQL", {"bc_iters": 3, "num_actions": 2, "temperature": 2.0, "Q_model": TANH, "policy_model": TANH}),
    ("CQL", {"bc_iters": 0, "lagrangian": True, "lagrangian_thresh": 1.0, "min_q_weight": 0.5, "grad_clip": 0.2}),
    ("CQL", {"bc_iters": 1, "n_critics": 3, "use_huber": True, "huber_threshold": 0.3, "mean_target_actions": True}),
    ("CQL", {"bc_iters": 0, "num_actions": 200, "twin_q": False, "use_target_network": False}),
    ("DDPG", {}),
    ("DDPG", {"use_huber": True, "huber_threshold": 0.3, "l2_reg": 0.1, "critic_hidden_activation": "tanh"}),
    ("TD3", {}),
    ("TD3", {"grad_clip": 0.2, "l2_reg": 0.1}),
]
#: Values alone; the policy's step is no gradient.
OF_VALUES = [
    ("TRPO", {"vf_num_sgd_iter": 2, "vf_sgd_minibatch_size": 16, "grad_clip": 0.2}),
    ("TRPO", {"vf_num_sgd_iter": 2, "vf_sgd_minibatch_size": 16, "grad_clip": 0.2, "normalize_values": True}),
]


def pair(name, overrides):
    by_hand, by_autograd = make("torch", name, overrides), make("torch", name, overrides)
    assert by_hand.without_autograd is not None
    by_autograd.without_autograd = None
    return by_hand, by_autograd


@pytest.mark.parametrize(("name", "overrides"), [*CASES, *OF_VALUES])
@pytest.mark.parametrize("weights", [True, False])
def test_learner_steps_are_the_same(name, overrides, weights):
    by_hand, by_autograd = pair(name, overrides)
    for step in range(6):
        batch = make_batch(32, step, name)
        if not weights:
            del batch["weights"]
        one, other = by_hand.learn_on_batch(batch), by_autograd.learn_on_batch(batch)
        if "td_error" in other:
            np.testing.assert_allclose(one["td_error"], other["td_error"], atol=1e-5)
        assert set(one["learner_stats"]) == set(other["learner_stats"])
        for key, value in other["learner_stats"].items():
            assert one["learner_stats"][key] == pytest.approx(value, rel=1e-4, abs=1e-6), key
        if step == 2:
            for policy in (by_hand, by_autograd):
                getattr(policy, "update_target", lambda: None)()
    same(by_hand.get_weights(), by_autograd.get_weights(), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("name", "overrides"), CASES)
def test_gradients_are_the_same(name, overrides):
    by_hand, by_autograd = pair(name, {**overrides, "grad_clip": None})
    for _ in range(2):  # what an earlier step left in the gradients must not stay; TD3's actor is due again then
        by_hand.learn_on_batch(make_batch(8, 9, name))
        by_autograd.learn_on_batch(make_batch(8, 9, name))
    batch = make_batch(name=name)
    ours, theirs = by_hand.compute_gradients(batch)[0], by_autograd.compute_gradients(batch)[0]
    atol = 5e-6 if name == "CQL" else 1e-6  # a difference of sums over all compared actions, times min_q_weight
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=atol)


def test_gradients_of_cloning_stop_where_densities_are_limited():
    by_hand, by_autograd = pair("CQL", {"bc_iters": 3, "num_actions": 2})
    batch, made = make_batch(32, name="CQL"), []
    for policy in (by_hand, by_autograd):
        weights = policy.get_weights()
        weights["actor.output.bias"][len(weights["actor.output.bias"]) // 2 :] = -6.0  # log σ: most actions are far off
        policy.set_weights(weights)
        made.append(policy.compute_gradients(batch)[0])
    for mine, wanted in zip(*made, strict=True):
        np.testing.assert_allclose(mine, wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("free", [True, False])
def test_gradients_of_means_beyond_the_action_bounds_are_the_same(free):
    by_hand, by_autograd = pair("continuous PPO", {"action_bound_coeff": 0.5, "model": {"free_log_std": free}})
    batch, made = make_batch(32, name="continuous PPO"), []
    for policy in (by_hand, by_autograd):
        weights = policy.get_weights()
        weights["output.weight"][:2] *= 300.0  # of the means
        policy.set_weights(weights)
        made.append(policy.compute_gradients(batch))
    (ours, one), (theirs, other) = made
    assert one["learner_stats"]["action_bound_loss"] > 0.1
    assert one["learner_stats"] == pytest.approx(other["learner_stats"], rel=1e-4)
    for mine, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "overrides"), [case for case in CASES if case[0] == "DQN"])
def test_gradients_in_arrays_are_those_in_tensors(name, overrides):
    in_arrays, in_tensors = make("torch", name, overrides), make("torch", name, overrides)
    assert in_arrays.without_autograd._by_arrays is not None
    in_tensors.without_autograd._by_arrays = None
    batch = make_batch(32, 3, name)
    one, other = in_arrays.learn_on_batch(batch), in_tensors.learn_on_batch(batch)
    np.testing.assert_allclose(one["td_error"], other["td_error"], atol=1e-5)
    assert one["learner_stats"] == pytest.approx(other["learner_stats"], rel=1e-4, abs=1e-6)
    same(in_arrays.get_weights(), in_tensors.get_weights(), atol=1e-5, rtol=0)


def test_a_loss_in_arrays_that_is_no_number_is_an_error_and_no_warning():
    policy, batch = make("torch", "DQN", {}), make_batch()
    batch["rewards"] = np.full_like(batch["rewards"], np.inf)
    before = policy.get_weights()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NonFiniteError, match="rewards"):
            policy.learn_on_batch(batch)
    same(before, policy.get_weights(), atol=0, rtol=0)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int64])
def test_actions_of_any_integer_type_are_learned_on(dtype):
    by_hand, by_autograd = pair("DQN", {})
    batch = make_batch()
    batch["actions"] = batch["actions"].astype(dtype)
    one, other = by_hand.learn_on_batch(batch), by_autograd.learn_on_batch(batch)
    np.testing.assert_allclose(one["td_error"], other["td_error"], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("DQN", {"noisy": True}),
        ("DQN", {"num_atoms": 5}),
        ("DQN", {"exploration_config": {"type": "ParameterNoise"}}),
        ("SimpleQ", {"model": {"fcnet_activation": "elu"}}),
        ("PPO", {"model": {"fcnet_activation": "elu"}}),
        ("PPO", {"use_critic": False, "use_gae": False}),
        ("TRPO", {"model": {"vf_share_layers": True}}),
        ("SAC", {"n_quantiles": 5}),
        ("SAC", {"critic_batch_norm": True}),
        ("SAC", {"policy_model": {**TANH, "fcnet_activation": "elu"}}),
        ("discrete SAC", {}),
        ("discrete CQL", {}),
        ("CQL", {"n_quantiles": 5}),
        ("DDPG", {"exploration_config": {"type": "ParameterNoise"}}),
        ("DDPG", {"use_state_preprocessor": True}),
        ("TD3", {"actor_hidden_activation": "elu"}),
    ],
)
def test_what_is_no_plain_dense_network_goes_by_autograd(name, overrides):
    policy = make("torch", name, overrides)
    assert policy.without_autograd is None
    assert policy.learn_on_batch(make_batch(name=name))["learner_stats"]


@pytest.mark.parametrize(
    ("overrides", "space"),
    [
        ({}, None),
        ({"model": {"vf_share_layers": True, "fcnet_hiddens": [16, 8], "fcnet_activation": "relu"}}, None),
        ({"model": {"fcnet_hiddens": []}}, None),
        ({"fvp_sub_sampling": 3}, BOX),
        ({"model": {"free_log_std": True}}, BOX),
    ],
)
def test_fisher_vector_products_are_those_of_autograd(overrides, space):
    policy = make("torch", "TRPO", overrides, action_space=space)
    start, rng = policy.get_flat_weights(), np.random.default_rng(0)
    policy.set_flat_weights(start + 0.3 * rng.normal(size=len(start)).astype(np.float32))
    batch = make_batch(32)
    batch["actions"] = policy.compute_actions(batch["obs"])[0]
    problem, products = policy.second_order("policy"), []
    assert problem.without_autograd is not None
    v = rng.normal(size=len(problem.get_flat())).astype(np.float32)
    for _ in range(2):
        problem.begin(batch, policy._curvature_rows(batch))
        products.append(problem.divergence_product(v))
        problem.without_autograd = None
    np.testing.assert_allclose(products[0], products[1], rtol=1e-4, atol=1e-6)


def test_other_divergences_and_distributions_go_by_autograd():
    from rlframe.agents.trpo import TRPOTorchPolicy

    class Reversed(TRPOTorchPolicy):
        def divergence(self, model, dist_class, batch):
            old, new = batch["action_dist_inputs"], model(batch)[0]
            return dist_class(new, model).kl(dist_class(old, model)).mean()

    plain = make("torch", "TRPO", {})
    reverse = Reversed(plain.observation_space, plain.action_space, plain.config)
    many = make("torch", "TRPO", {}, action_space=gym.spaces.MultiDiscrete([3, 2]))
    memory = make("torch", "TRPO", {"model": {"use_lstm": True, "lstm_cell_size": 4}})
    elu = make("torch", "TRPO", {"model": {"fcnet_activation": "elu"}})
    for policy in (reverse, many, memory, elu):
        assert policy.second_order("policy").without_autograd is None
    # To second order both directions are one.
    problems = [policy.second_order("policy") for policy in (plain, reverse)]
    batch, v = make_batch(32), np.random.default_rng(0).normal(size=len(problems[0].get_flat()))
    for problem in problems:
        problem.begin(batch, batch)
    one, other = (problem.divergence_product(v) for problem in problems)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_deviations_beyond_their_limits_have_no_gradient():
    by_hand, by_autograd = pair("SAC", {"grad_clip": None})
    weights = by_hand.get_weights()
    weights["actor.output.bias"][2:] = (5.0, -30.0)  # of log σ in [-20, 2]
    for policy in (by_hand, by_autograd):
        policy.set_weights(weights)
    batch = make_batch(name="SAC")
    ours, theirs = by_hand.compute_gradients(batch)[0], by_autograd.compute_gradients(batch)[0]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    index = [name for name, _ in by_hand.model.named_parameters()].index("actor.output.bias")
    np.testing.assert_array_equal(ours[index][2:], 0.0)


def test_a_loss_of_the_users_goes_by_autograd():
    from rlframe.agents.dqn import DQNTorchPolicy
    from tests.contract.test_policies import ACTIONS, OBS_SPACE
    from tests.helpers.workers import dqn_config

    derived = DQNTorchPolicy.with_updates(
        name="Mine", loss_fn=lambda policy, model, dist, batch: policy.online(batch["obs"]).q.square().mean()
    )
    assert derived(OBS_SPACE, ACTIONS, dqn_config()).without_autograd is None

    class Doubled(DQNTorchPolicy):
        def online(self, obs):
            made = super().online(obs)
            return made._replace(q=2 * made.q)

    assert Doubled(OBS_SPACE, ACTIONS, dqn_config()).without_autograd is None


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "linear"])
def test_chain_forwards_and_backwards(activation):
    torch.manual_seed(0)
    module = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 5), "b": torch.nn.Linear(5, 2)}).double()
    flat = FlatParameters(module.parameters())
    layers = [
        {"kind": "dense", "name": "a", "activation": activation, "units": 5},
        {"kind": "dense", "name": "b", "activation": "linear", "units": 2},
    ]
    chain = DenseChain(module, layers)
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    functions = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "linear": lambda y: y}
    y = module["b"](functions[activation](module["a"](x)))
    slope = torch.randn(7, 2, dtype=torch.float64)
    y.backward(slope)
    wanted, by_input = flat.grad.clone(), x.grad
    flat.grad.fill_(99.0)
    kept = chain.forward(x.detach())
    torch.testing.assert_close(kept[-1], y.detach())
    torch.testing.assert_close(chain(x.detach()), y.detach())
    torch.testing.assert_close(chain.backward(kept, slope, input_grad=True), by_input)
    torch.testing.assert_close(flat.grad, wanted)
    assert chain.backward(chain.forward(x.detach()), slope, input_grad=False) is None


def test_chain_refuses_what_it_cannot_do():
    module = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 5)})
    layer = {"kind": "dense", "name": "a", "activation": "tanh", "units": 5}
    with pytest.raises(ValueError, match="a have no gradient buffer"):
        DenseChain(module, [layer])
    with pytest.raises(ValueError, match="cannot have the layer"):
        DenseChain(module, [{**layer, "activation": "elu"}])


def fitted_q_batch(space, rows, seed):
    rng = np.random.default_rng(seed)
    number = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731 - short
    discrete = isinstance(space, gym.spaces.Discrete)
    return SampleBatch(
        {
            "obs": number(rows, 5),
            "actions": rng.integers(3, size=rows) if discrete else number(rows, 2),
            "rewards": number(rows, 5),
            "new_obs": number(rows, 5),
            "discounts": np.where(rng.random(rows) < 0.3, 0.0, 0.9).astype(np.float32),
            "next_policy": rng.dirichlet(np.ones(3), rows).astype(np.float32) if discrete else number(rows, 8 * 2),
            "next_taken": np.eye(3, dtype=np.float32)[rng.integers(3, size=rows)] if discrete else number(rows, 2),
            "counts": rng.integers(3, size=(rows, 5)).astype(np.float32),
        }
    )


@pytest.mark.parametrize("space", [gym.spaces.Discrete(3), gym.spaces.Box(-1.0, 1.0, (2,))], ids=["choices", "numbers"])
def test_members_of_fitted_q_evaluation_learn_side_by_side_as_they_do_one_by_one(space):
    settings = FittedQSettings(members=3, hiddens=(16, 8), lr=1e-2)
    stacked, single = (make_policy("torch", gym.spaces.Box(-9, 9, (5,), np.float32), space, settings, 0) for _ in "ab")
    assert stacked.without_autograd is not None
    single.without_autograd = None
    for step in range(4):
        one, other = (policy.learn_on_batch(fitted_q_batch(space, 32, step)) for policy in (stacked, single))
        assert one["learner_stats"] == pytest.approx(other["learner_stats"], rel=1e-5)
        for policy in (stacked, single):
            policy.update_target(0.5)
    same(stacked.get_weights(), single.get_weights(), atol=2e-5, rtol=0)
    batch = fitted_q_batch(space, 32, 9)
    for one, other in zip(stacked.compute_gradients(batch)[0], single.compute_gradients(batch)[0], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_members_whose_weights_lie_apart_are_not_stacked():
    settings = FittedQSettings(members=2, hiddens=(4,))
    policy = make_policy("torch", gym.spaces.Box(-9, 9, (5,), np.float32), gym.spaces.Discrete(3), settings, 0)
    with torch.no_grad():
        moved = policy.model.q_1.get_submodule("output").weight
        moved.data = moved.data.clone()
    assert StackedGradients.of(policy) is None
