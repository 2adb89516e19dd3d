"""Torch policies: hooks, learning, weights, and that NumPy and torch act alike."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlframe.agents.dqn.dqn_torch_policy import DQNTorchPolicy
from rlframe.agents.dqn.simple_q_torch_policy import SimpleQTorchPolicy
from rlframe.agents.ppo.ppo_torch_policy import vf_preds_fetches
from rlframe.config.common import CommonConfig
from rlframe.data.sample_batch import SampleBatch
from rlframe.exploration import EpsilonGreedy, Exploration, Random, StochasticSampling
from rlframe.models import ModelCatalog
from rlframe.models.torch.torch_action_dist import TorchCategorical
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy import Policy, build_policy_class, build_torch_policy
from rlframe.policy.inference import NumpyInference
from rlframe.policy.torch.flat import FlatAdam, FlatParameters, flatten_parameters
from rlframe.policy.torch_policy import TorchPolicy
from rlframe.policy.view_requirement import ViewRequirement
from rlframe.utils.errors import NonFiniteError, UnsupportedSpaceException
from rlframe.utils.spaces.space_utils import flatten_to_single_ndarray
from tests.helpers.workers import dqn_config

OBS_SPACE = gym.spaces.Box(-10, 10, (4,), np.float32)
ACTIONS = gym.spaces.Discrete(3)


def policy_gradient_loss(policy, model, dist_class, train_batch):
    logits, _ = model(train_batch)
    return -(dist_class(logits, model).logp(train_batch["actions"]) * train_batch["rewards"]).mean()


def common_config(**overrides):
    config = CommonConfig.defaults()
    config["model"].update(fcnet_hiddens=[16])
    return {**config, "seed": 3, **overrides}


def make_batch(rows=12, seed=0):
    rng = np.random.default_rng(seed)
    return SampleBatch(
        {
            "obs": rng.normal(size=(rows, 4)).astype(np.float32),
            "new_obs": rng.normal(size=(rows, 4)).astype(np.float32),
            "actions": rng.integers(3, size=rows),
            "rewards": rng.normal(size=rows).astype(np.float32),
            "discounts": rng.uniform(size=rows).astype(np.float32),
            "weights": rng.uniform(size=rows).astype(np.float32),
        }
    )


def test_hooks_are_called_in_the_documented_order():
    order = []

    def note(name, result=None):
        def hook(*args, **kwargs):
            order.append(name)
            return result() if callable(result) else result

        return hook

    def loss(policy, model, dist_class, batch):
        order.append("loss")
        return policy_gradient_loss(policy, model, dist_class, batch)

    cls = build_policy_class(
        "Noting",
        framework="torch",
        loss_fn=loss,
        validate_spaces=note("validate_spaces"),
        before_init=note("before_init"),
        before_loss_init=note("before_loss_init"),
        after_init=note("after_init"),
        extra_grad_process_fn=note("grad_process", dict),
        stats_fn=note("stats", dict),
        extra_learn_fetches_fn=note("fetches", dict),
    )
    policy = cls(OBS_SPACE, ACTIONS, common_config())
    assert order == ["validate_spaces", "before_init", "before_loss_init", "loss", "after_init"]
    order.clear()
    policy.learn_on_batch(make_batch())
    assert order == ["loss", "grad_process", "stats", "fetches"]


def test_views_of_a_hook_are_those_of_learning_where_acting_has_no_such_thing():
    def views(policy):
        assert policy.model is not None
        following, made, now = ViewRequirement("obs", shift=1), ViewRequirement(), ViewRequirement("obs")
        return {"new_obs": following, "advantages": made, "last": now}

    cls = build_torch_policy("Viewing", loss_fn=policy_gradient_loss, view_requirements_fn=views)
    policy = cls(OBS_SPACE, ACTIONS, common_config())
    acting = {name for name in views(policy) if policy.view_requirements[name].used_for_compute_actions}
    assert acting == {"last"}
    assert len(policy.compute_actions(np.zeros((2, *OBS_SPACE.shape), np.float32))[0]) == 2


def test_unknown_hook_is_a_type_error_naming_the_known_ones():
    with pytest.raises(TypeError, match=r"loss_function.*loss_fn"):
        build_policy_class("X", framework="torch", loss_function=None)


def test_both_ways_to_make_a_model_are_refused():
    with pytest.raises(ValueError, match="make_model"):
        build_torch_policy("X", make_model=lambda *a: None, make_model_and_action_dist=lambda *a: None)


def test_get_default_config_lies_below_the_given_one():
    cls = build_torch_policy("X", loss_fn=policy_gradient_loss, get_default_config=lambda: {"mine": 1, "lr": 5.0})
    policy = cls(OBS_SPACE, ACTIONS, common_config(lr=0.1))
    assert (policy.config["mine"], policy.config["lr"]) == (1, 0.1)


def test_with_updates_replaces_one_hook_and_keeps_the_others():
    base = build_torch_policy("Base", loss_fn=policy_gradient_loss, stats_fn=lambda policy, batch: {"mine": 1.0})
    derived = base.with_updates(name="Derived", stats_fn=lambda policy, batch: {"other": 2.0})
    stats = derived(OBS_SPACE, ACTIONS, common_config()).learn_on_batch(make_batch())["learner_stats"]
    assert stats["other"] == 2.0
    assert "mine" not in stats
    assert derived.__name__ == "Derived"


def test_with_updates_on_a_class_keeps_its_methods():
    derived = DQNTorchPolicy.with_updates(name="Mine", stats_fn=lambda policy, batch: {"mine": 1.0})
    assert issubclass(derived, DQNTorchPolicy)
    info = derived(OBS_SPACE, ACTIONS, dqn_config()).learn_on_batch(make_batch())
    assert info["learner_stats"]["mine"] == 1.0
    assert info["td_error"].shape == (12,)


def test_mixins_come_first():
    class Greeting:
        def greet(self):
            return "hello"

    policy = build_torch_policy("X", loss_fn=policy_gradient_loss, mixins=[Greeting])(
        OBS_SPACE, ACTIONS, common_config()
    )
    assert policy.greet() == "hello"


def test_numbers_among_nested_actions_are_numbers_to_the_environment():
    space = gym.spaces.Dict(size=gym.spaces.Box(-10.0, 10.0, ()), kind=gym.spaces.Discrete(2))
    policy = build_torch_policy("X", loss_fn=policy_gradient_loss)(OBS_SPACE, space, common_config())
    obs = np.zeros((3, *OBS_SPACE.shape), np.float32)
    assert np.shape(policy.compute_single_action(obs[0])[0]["size"]) == ()
    actions, columns = policy.act_on_rows(obs)
    assert policy.to_env_actions(actions)["size"].shape == (3,)
    rows = flatten_to_single_ndarray(actions, 1)
    np.testing.assert_allclose(policy.compute_log_likelihoods(rows, obs), columns["action_logp"], rtol=1e-5)


def test_likelihoods_are_those_of_a_users_distribution():
    class Cold(TorchCategorical):
        """At a temperature that the model learns."""

        def __init__(self, inputs, model):
            super().__init__(inputs / next(model.parameters()).abs().sum(), model)

    ModelCatalog.register_custom_action_dist("cold", Cold)
    policy = build_torch_policy("X", loss_fn=policy_gradient_loss)(
        OBS_SPACE, ACTIONS, common_config(model={"custom_action_dist": "cold"})
    )
    obs = np.eye(4, dtype=np.float32)
    actions, columns = policy.act_on_rows(obs)
    np.testing.assert_allclose(policy.compute_log_likelihoods(actions, obs), columns["action_logp"], rtol=1e-5)


def test_likelihoods_are_tensors_without_gradients_as_in_rllib():
    policy = build_torch_policy("X", loss_fn=policy_gradient_loss)(OBS_SPACE, ACTIONS, common_config())
    obs = np.eye(4, dtype=np.float32)
    actions, columns = policy.act_on_rows(obs)
    logp = policy.compute_log_likelihoods(actions, obs)
    np.testing.assert_allclose(logp.exp().cpu().numpy(), np.exp(columns["action_logp"]), rtol=1e-5)


def test_text_in_a_batch_is_no_tensor():
    policy = build_torch_policy("X", loss_fn=policy_gradient_loss)(OBS_SPACE, ACTIONS, common_config())
    batch = {"rewards": [1.0], "who": ["me"], "where": np.array(["here"])}
    made = policy._lazy_tensor_dict(SampleBatch.from_columns(batch))
    assert torch.is_tensor(made["rewards"])
    assert (made["who"][0], made["where"][0]) == ("me", "here")


def test_learning_lowers_the_loss():
    cls = build_torch_policy(
        "Regression",
        loss_fn=lambda policy, model, dist, batch: ((model(batch)[0][:, 0] - batch["rewards"]) ** 2).mean(),
    )
    policy = cls(OBS_SPACE, ACTIONS, common_config(lr=1e-2))
    batch = make_batch(4)

    def loss():
        with torch.no_grad():
            return float(policy.loss(policy.model, policy.dist_class, policy._lazy_tensor_dict(batch)))

    before = loss()
    for _ in range(200):
        policy.learn_on_batch(batch)
    assert loss() < before / 20


def test_parameters_in_a_buffer_can_be_pickled():
    layer = torch.nn.Linear(4, 3)
    flat = FlatParameters(layer.parameters())
    again = pickle.loads(pickle.dumps(layer))
    torch.testing.assert_close(again.weight, layer.weight)
    assert flatten_parameters(again.parameters()) is not None
    assert flatten_parameters(layer.parameters()) is None
    del flat
    assert flatten_parameters(layer.parameters()) is not None


def test_flat_adam_equals_plain_adam_step_for_step():
    torch.manual_seed(0)
    first, second = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    second.load_state_dict(first.state_dict())
    flat = FlatParameters(first.parameters())
    fused = torch.optim.Adam([flat.param], lr=1e-2, fused=True)
    plain = torch.optim.Adam(second.parameters(), lr=1e-2)
    for step in range(20):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        flat.zero_grad()
        first(x).square().mean().backward()
        fused.step()
        plain.zero_grad()
        second(x).square().mean().backward()
        plain.step()
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("hooked", [False, True])
def test_flat_adam_without_what_surrounds_a_step_is_adam_and_hooks_are_called(hooked):
    made = []
    for make in (
        lambda p: FlatAdam(FlatParameters([p]), lr=1e-2),
        lambda p: torch.optim.Adam([p], lr=1e-2, fused=True),
    ):
        parameter, seen = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 9)), []
        optimizer = make(parameter)
        for step in range(6):
            if hooked and step == 3:
                optimizer.register_step_pre_hook(lambda *_, seen=seen: seen.append("before"))
                optimizer.register_step_post_hook(lambda *_, seen=seen: seen.append("behind"))
            grad = (parameter.detach() * 3.0).clone()
            if parameter.grad is None:
                parameter.grad = grad
            else:
                parameter.grad.copy_(grad)
            optimizer.step()
        assert seen == (["before", "behind"] * 3 if hooked else [])
        made.append(parameter.detach())
    assert torch.equal(*made)


def test_layer_that_two_policies_share_takes_the_steps_of_both():
    shared = torch.nn.Linear(4, 8)
    plain = copy.deepcopy(shared)

    class Shares(TorchModelV2, torch.nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            torch.nn.Module.__init__(self)
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            self.shared, self.head = shared, torch.nn.Linear(8, num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.head(torch.tanh(self.shared(input_dict["obs"]))), state

        def value_function(self):
            return self.head.weight.new_zeros(1)

    ModelCatalog.register_custom_model("shares", Shares)
    cls = build_torch_policy("Sharing", loss_fn=policy_gradient_loss)
    config = common_config(lr=1e-2)
    config["model"]["custom_model"] = "shares"
    policies = [cls(OBS_SPACE, ACTIONS, config) for _ in range(2)]
    heads = [copy.deepcopy(policy.model.head) for policy in policies]
    adams = [torch.optim.Adam([*plain.parameters(), *head.parameters()], lr=1e-2) for head in heads]
    for step in range(8):
        turn = step % 3 % 2  # 0, 1, 0, 0, 1, …
        batch = make_batch(seed=step)
        policies[turn].learn_on_batch(batch)
        adams[turn].zero_grad()
        logits = heads[turn](torch.tanh(plain(torch.as_tensor(batch["obs"]))))
        logp = torch.distributions.Categorical(logits=logits).log_prob(torch.as_tensor(batch["actions"]))
        (-(logp * torch.as_tensor(batch["rewards"])).mean()).backward()
        adams[turn].step()
        torch.testing.assert_close(shared.weight, plain.weight, atol=1e-6, rtol=1e-5)
    for policy, head in zip(policies, heads, strict=True):
        torch.testing.assert_close(policy.model.head.weight, head.weight, atol=1e-6, rtol=1e-5)


def test_gradient_clipping_is_by_global_norm():
    policy = DQNTorchPolicy(OBS_SPACE, ACTIONS, dqn_config(grad_clip=1e-3))
    norm = policy.learn_on_batch(make_batch())["learner_stats"]["grad_gnorm"]
    clipped = float(torch.linalg.vector_norm(policy._flat_parameters.grad))
    assert norm > 1e-3
    assert clipped == pytest.approx(1e-3, rel=1e-2)


def test_compute_then_apply_gradients_equals_learn_on_batch():
    one, two = (DQNTorchPolicy(OBS_SPACE, ACTIONS, dqn_config()) for _ in range(2))
    batch = make_batch()
    one.learn_on_batch(batch)
    grads, info = two.compute_gradients(batch)
    two.apply_gradients(grads)
    assert info["learner_stats"]["grad_gnorm"] > 0
    for name, array in one.get_weights().items():
        np.testing.assert_allclose(array, two.get_weights()[name], atol=1e-7, err_msg=name)


def test_get_weights_is_a_copy():
    policy = DQNTorchPolicy(OBS_SPACE, ACTIONS, dqn_config())
    weights = policy.get_weights()
    before = {name: array.copy() for name, array in weights.items()}
    policy.learn_on_batch(make_batch())
    for name, array in weights.items():
        np.testing.assert_array_equal(array, before[name])


def test_set_weights_with_wrong_shape_names_it_and_changes_nothing():
    policy = DQNTorchPolicy(OBS_SPACE, ACTIONS, dqn_config())
    weights = policy.get_weights()
    name = next(iter(weights))
    wrong = {key: array + 1 for key, array in weights.items()}
    wrong[name] = np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match=f"{name} is \\(2, 2\\)"):
        policy.set_weights(wrong)
    for key, array in policy.get_weights().items():
        np.testing.assert_array_equal(array, weights[key])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dueling": False},
        {"hiddens": [], "dueling": False},
        {"hiddens": []},
        {"num_atoms": 11},
        {"num_atoms": 11, "dueling": False},
        {"noisy": True},
        {"noisy": True, "num_atoms": 11},
        {"exploration_config": {"type": "ParameterNoise"}},
    ],
    ids=str,
)
def test_numpy_actor_agrees_with_torch(options):
    policy = DQNTorchPolicy(OBS_SPACE, ACTIONS, dqn_config(**options))
    obs = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    in_numpy, _ = policy.forward(obs, explore=False)
    assert isinstance(policy.inference, NumpyInference)
    with torch.no_grad():
        in_torch = policy.forward_in_framework({"obs": obs}, False)[0]
    np.testing.assert_allclose(in_numpy, in_torch, atol=2e-6)
    policy.learn_on_batch(make_batch())
    after, _ = policy.forward(obs, explore=False)
    assert np.abs(after - in_numpy).max() > 0, "the actor must see the learner's weights at once"


def test_noisy_network_explores_by_its_weights_and_acts_alike_without():
    policy = DQNTorchPolicy(OBS_SPACE, ACTIONS, dqn_config(noisy=True))
    obs = np.ones((1, 4), np.float32)
    noisy = {float(policy.forward(obs, explore=True)[0][0, 0]) for _ in range(5)}
    still = {float(policy.forward(obs, explore=False)[0][0, 0]) for _ in range(5)}
    assert len(noisy) == 5
    assert len(still) == 1


@pytest.mark.parametrize("cls", [DQNTorchPolicy, SimpleQTorchPolicy])
def test_state_restores_weights_target_optimizer_and_exploration(cls):
    policy = cls(OBS_SPACE, ACTIONS, dqn_config(noisy=cls is DQNTorchPolicy))
    for seed in range(5):
        policy.learn_on_batch(make_batch(seed=seed))
    policy.update_target()
    policy.learn_on_batch(make_batch(seed=9))
    state = policy.get_state()
    other = cls(OBS_SPACE, ACTIONS, dqn_config(noisy=cls is DQNTorchPolicy))
    other.set_state(state)
    obs = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)
    for seed in range(5):
        for p in (policy, other):
            p.learn_on_batch(make_batch(seed=20 + seed))
        np.testing.assert_array_equal(policy.act_on_rows(obs)[0], other.act_on_rows(obs)[0])
    for name, array in policy.get_weights().items():
        np.testing.assert_array_equal(array, other.get_weights()[name], err_msg=name)


def test_same_seed_gives_the_same_initial_weights_and_another_seed_others():
    one, two = (DQNTorchPolicy(OBS_SPACE, ACTIONS, dqn_config()) for _ in range(2))
    three = DQNTorchPolicy(OBS_SPACE, ACTIONS, {**dqn_config(), "seed": 4})
    names = [name for name in one.get_weights() if name.endswith("weight")]
    assert all(np.array_equal(one.get_weights()[n], two.get_weights()[n]) for n in names)
    assert not all(np.array_equal(one.get_weights()[n], three.get_weights()[n]) for n in names)


def test_making_a_policy_leaves_the_global_torch_stream_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    DQNTorchPolicy(OBS_SPACE, ACTIONS, dqn_config())
    torch.testing.assert_close(torch.rand(3), expected)


def test_nan_loss_names_the_column_it_came_from():
    policy = DQNTorchPolicy(OBS_SPACE, ACTIONS, dqn_config())
    batch = make_batch()
    batch["rewards"][3] = np.nan
    with pytest.raises(NonFiniteError, match=r"'rewards'.*row 3"):
        policy.learn_on_batch(batch)


def test_nan_weights_are_named():
    policy = DQNTorchPolicy(OBS_SPACE, ACTIONS, dqn_config())
    weights = policy.get_weights()
    weights["advantage_output.bias"][:] = np.nan
    policy.set_weights(weights)
    with pytest.raises(NonFiniteError, match=r"advantage_output\.bias"):
        policy.learn_on_batch(make_batch())


def test_nan_loss_function_is_named():
    policy = build_torch_policy("X", loss_fn=lambda p, m, d, b: m(b)[0].mean() * float("nan"))(
        OBS_SPACE, ACTIONS, common_config()
    )
    with pytest.raises(NonFiniteError, match="loss number 0"):
        policy.learn_on_batch(make_batch())


def test_continuous_actions_are_refused_by_dqn():
    with pytest.raises(UnsupportedSpaceException, match="Discrete"):
        DQNTorchPolicy(OBS_SPACE, gym.spaces.Box(-1, 1, (2,)), dqn_config())


def test_losses_must_match_optimizers():
    policy = build_torch_policy("X", loss_fn=lambda p, m, d, b: [m(b)[0].mean()] * 2)(
        OBS_SPACE, ACTIONS, common_config()
    )
    with pytest.raises(ValueError, match="2 losses for 1 optimisers"):
        policy.learn_on_batch(make_batch())


def test_several_optimizers_learn_from_their_own_loss():
    def optimizers(policy, config):
        return [torch.optim.SGD(policy.model.parameters(), lr=0.1) for _ in range(2)]

    cls = build_torch_policy(
        "X", loss_fn=lambda p, m, d, b: [m(b)[0].mean(), m(b)[0].square().mean()], optimizer_fn=optimizers
    )
    policy = cls(OBS_SPACE, ACTIONS, common_config())
    before = policy.get_weights()
    policy.learn_on_batch(make_batch())
    assert any(np.abs(array - before[name]).max() > 0 for name, array in policy.get_weights().items())


def test_lr_schedule_is_followed():
    policy = DQNTorchPolicy(OBS_SPACE, ACTIONS, dqn_config(lr=1.0, lr_schedule=[[0, 1.0], [100, 0.0]]))
    policy.on_global_var_update({"timestep": 25})
    assert policy.cur_lr == pytest.approx(0.75)
    assert policy._optimizers[0].param_groups[0]["lr"] == pytest.approx(0.75)


def test_compute_single_action_returns_the_environments_action():
    space = gym.spaces.Box(np.float32([10.0]), np.float32([20.0]))
    policy = build_torch_policy("X", loss_fn=policy_gradient_loss)(OBS_SPACE, space, common_config())
    actions = np.array([policy.compute_single_action(np.zeros(4, np.float32))[0] for _ in range(50)])
    assert actions.shape == (50, 1)
    assert (actions >= 10).all()
    assert (actions <= 20).all()
    raw, _, extra = policy.compute_actions(np.zeros((3, 4), np.float32))
    assert raw.shape == (3, 1)
    assert {"action_dist_inputs", "action_logp", "action_prob"} <= set(extra)


def test_action_sampler_and_distribution_functions_replace_their_parts():
    def sampler(policy, model, input_dict, state_batches, *, timestep, explore):
        assert isinstance(explore, bool)
        rows = len(input_dict["obs"])
        return torch.full((rows,), 2), torch.zeros(rows), []

    sampling = build_torch_policy("X", loss_fn=policy_gradient_loss, action_sampler_fn=sampler)
    policy = sampling(OBS_SPACE, ACTIONS, common_config())
    np.testing.assert_array_equal(policy.compute_actions(np.zeros((3, 4), np.float32))[0], [2, 2, 2])

    def distribution(policy, model, *, input_dict, state_batches, **kwargs):
        return torch.tensor([[0.0, 1e3, 0.0]]).repeat(len(input_dict["obs"]), 1), policy.dist_class, []

    distributing = build_torch_policy("X", loss_fn=policy_gradient_loss, action_distribution_fn=distribution)
    policy = distributing(OBS_SPACE, ACTIONS, common_config())
    np.testing.assert_array_equal(policy.compute_actions(np.zeros((3, 4), np.float32))[0], [1, 1, 1])


def test_extra_action_out_adds_columns_to_those_of_an_action_sampler():
    def sampler(policy, model, input_dict, state_batches, explore, timestep):
        policy.logits, _ = model(input_dict, state_batches, None)
        return policy.logits.argmax(1), None, state_batches

    def probabilities(policy, input_dict, state_batches, model, action_dist):
        assert action_dist is None
        return {"action_probs": policy.logits.softmax(1)}

    hooks = {"loss_fn": policy_gradient_loss, "action_sampler_fn": sampler, "extra_action_out_fn": probabilities}
    policy = build_torch_policy("X", **hooks)(OBS_SPACE, ACTIONS, common_config())
    _, _, extra = policy.compute_actions(np.zeros((3, 4), np.float32))
    np.testing.assert_allclose(extra["action_probs"].sum(1), 1, rtol=1e-6)
    valued = build_torch_policy("X", **{**hooks, "extra_action_out_fn": vf_preds_fetches})
    assert valued(OBS_SPACE, ACTIONS, common_config()).act_on_rows(np.zeros((3, 4)))[1]["vf_preds"].shape == (3,)


class Masked(Exploration):
    def get_exploration_action(self, *, action_distribution, timestep, explore=True):
        assert isinstance(action_distribution, TorchCategorical)
        actions = torch.multinomial(torch.ones_like(action_distribution.inputs[:, :2]), 1).squeeze(1)
        return actions, torch.zeros_like(actions)


class MaskedByValue(EpsilonGreedy):
    def _get_torch_exploration_action(self, q_values, explore, timestep):
        chosen = torch.where(
            torch.ones(1) > 1 - self.epsilon_schedule(timestep), torch.ones(len(q_values)).long(), q_values.argmax(1)
        )
        return chosen, torch.zeros_like(chosen)


class MaskedDist(StochasticSampling):
    def _get_torch_exploration_action(self, action_dist, timestep, explore):
        return action_dist.sample().clamp(max=1), torch.zeros(len(action_dist.inputs))


class MaskedBySuper(EpsilonGreedy):
    def _get_torch_exploration_action(self, q_values, explore, timestep):
        actions, logp = super()._get_torch_exploration_action(q_values[:, :2], explore, timestep)
        assert isinstance(logp, torch.Tensor)
        return actions.clamp(max=1), logp


class DistBySuper(StochasticSampling):
    def _get_torch_exploration_action(self, action_dist, timestep, explore):
        actions, logp = super()._get_torch_exploration_action(action_dist, timestep, explore)
        return torch.minimum(actions, torch.ones_like(actions)), logp


class RandomBySuper(Random):
    def get_torch_exploration_action(self, action_dist, explore):
        actions, logp = super().get_torch_exploration_action(action_dist, explore=explore)
        return actions.clamp(max=1), logp


class WholeBySuper(EpsilonGreedy):
    def get_exploration_action(self, *, action_distribution, timestep, explore=True):
        values = action_distribution.inputs[:, :2]
        return self._get_torch_exploration_action(q_values=values, explore=explore, timestep=timestep)


@pytest.mark.parametrize(
    "kind", [Masked, MaskedByValue, MaskedDist, MaskedBySuper, DistBySuper, RandomBySuper, WholeBySuper]
)
def test_explorations_of_a_users_own_choose_by_torchs_tensors(kind):
    config = {**common_config(), "exploration_config": {"type": kind}}
    policy = build_torch_policy("X", loss_fn=policy_gradient_loss)(OBS_SPACE, ACTIONS, config)
    for actions in (policy.compute_actions(np.zeros((50, 4)))[0], policy.act_on_rows(np.zeros((50, 4)))[0]):
        assert isinstance(actions, np.ndarray)
        assert actions.max() == 1
    assert policy.acting_recipe() is None, "workers need the framework, too"
    plain = build_torch_policy("X", loss_fn=policy_gradient_loss)(OBS_SPACE, ACTIONS, common_config())
    assert isinstance(plain.inference, NumpyInference)


def test_explorations_for_tensorflow_alone_choose_as_their_base_in_torch():
    class ForTF(EpsilonGreedy):
        def _get_tf_exploration_action_op(self, q_values, explore, timestep):
            raise AssertionError

    class BareForTF(Exploration):
        _get_tf_exploration_action_op = ForTF._get_tf_exploration_action_op

    cls = build_torch_policy("X", loss_fn=policy_gradient_loss)
    policy = cls(OBS_SPACE, ACTIONS, {**common_config(), "exploration_config": {"type": ForTF}})
    assert policy.compute_actions(np.zeros((50, 4)))[0].max() > 1
    with pytest.raises(NotImplementedError, match="BareForTF chooses no actions in torch"):
        cls(OBS_SPACE, ACTIONS, {**common_config(), "exploration_config": {"type": BareForTF}})


@pytest.mark.parametrize("form", ["of a dict", "of observations"])
def test_hooks_behind_wrappers_get_what_they_got_without(form):
    calls = []

    def of_a_dict(policy, model, *, input_dict, state_batches, seq_lens, explore, timestep, is_training):
        return model(input_dict)[0], policy.dist_class, []

    def of_observations(policy, model, obs_batch, *, explore, timestep, is_training):
        return model({"obs": obs_batch})[0], policy.dist_class, []

    def counted(function):
        def wrapper(*args, **kwargs):
            calls.append(function.__name__)
            return function(*args, **kwargs)

        return wrapper

    def entropy(policy, input_dict, states, model, dist):
        return {"entropy": dist.entropy()}

    policy_class = build_torch_policy(
        "X", loss_fn=policy_gradient_loss, extra_action_out_fn=counted(entropy),
        action_distribution_fn=counted(of_a_dict if form == "of a dict" else of_observations),
    )  # fmt: skip
    policy = policy_class(OBS_SPACE, ACTIONS, common_config())
    _, _, extra = policy.compute_actions(np.zeros((3, 4), np.float32))
    assert extra["entropy"].shape == (3,)
    assert {"entropy", "of_a_dict" if form == "of a dict" else "of_observations"} == set(calls)


def test_an_error_behind_a_wrapper_is_the_programs_own():
    calls = []

    def fails(policy, model, *, input_dict, **others):
        calls.append(input_dict)
        return np.linspace()  # like a call with missing positional arguments

    policy_class = build_torch_policy(
        "X", loss_fn=policy_gradient_loss, action_distribution_fn=lambda *args, **kwargs: fails(*args, **kwargs)
    )
    with pytest.raises(TypeError, match="missing 2 required positional arguments"):
        policy_class(OBS_SPACE, ACTIONS, common_config()).compute_actions(np.zeros((3, 4), np.float32))
    assert len(calls) == 1


def test_extra_action_out_adds_columns():
    cls = build_torch_policy(
        "X",
        loss_fn=policy_gradient_loss,
        extra_action_out_fn=lambda policy, input_dict, states, model, dist: {"entropy": dist.entropy()},
    )
    _, extra = cls(OBS_SPACE, ACTIONS, common_config()).act_on_rows(np.zeros((3, 4), np.float32))
    assert extra["entropy"].shape == (3,)


def test_extra_action_out_knows_what_was_drawn():
    def of_sample(policy, input_dict, states, model, dist):
        return {"drawn": dist.last_sample, "its_logp": dist.sampled_action_logp()}

    policy = build_torch_policy("X", loss_fn=policy_gradient_loss, extra_action_out_fn=of_sample)(
        OBS_SPACE, ACTIONS, common_config()
    )
    for explore in (True, False):
        actions, _, extra = policy.compute_actions(np.zeros((5, 4), np.float32), explore=explore)
        np.testing.assert_array_equal(extra["drawn"], actions)
        logp = policy.distribution(extra["action_dist_inputs"]).logp(actions)
        np.testing.assert_allclose(extra["its_logp"], logp, rtol=1e-5)


def test_policy_is_the_base_of_all():
    assert issubclass(TorchPolicy, Policy)
