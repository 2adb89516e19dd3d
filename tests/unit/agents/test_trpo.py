"""TRPO's step: Fisher-vector products, conjugate gradients, the line search; and what a step leaves alone."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.trpo import TRPOTrainer
from rlframe.agents.trpo.natural_gradient import TrustRegion, conjugate_gradient
from rlframe.agents.trpo.trpo_policy import trpo_loss
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.policy.parts import LossOutput
from rlframe.utils.errors import CheckpointError, ConfigError
from tests.contract.test_policies import make, make_batch
from tests.helpers.frameworks import TORCH_FIRST, needs_tf

BOX = gym.spaces.Box(-2, 2, (2,), np.float32)
REGION = TrustRegion(0.01, 10, 0.0, 1e-20, 10, 0.5)


def definite(size, seed=0):
    """Returns a symmetric matrix whose eigenvalues are above 0, and a vector."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(size, size))
    return factor @ factor.T + 0.5 * np.eye(size), rng.normal(size=size)


# --- the arithmetic, in NumPy alone -----------------------------------------------------------------------------------


def test_conjugate_gradients_solve_the_equations():
    matrix, target = definite(12)
    found, residual = conjugate_gradient(lambda v: matrix @ v, target, 12)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, target), rtol=1e-6, atol=1e-8)
    few, residual = conjugate_gradient(lambda v: matrix @ v, target, 4)
    np.testing.assert_allclose(residual, target - matrix @ few, atol=1e-9)
    assert np.linalg.norm(residual) > 0.0
    # Of all x in the span of b, A b, A² b, A³ b it is the one next to the solution, by the matrix's own measure.
    basis = np.stack([np.linalg.matrix_power(matrix, power) @ target for power in range(4)], 1)
    nearest = basis @ np.linalg.solve(basis.T @ matrix @ basis, basis.T @ target)
    np.testing.assert_allclose(few, nearest, rtol=1e-4, atol=1e-6)


def test_conjugate_gradients_stop_where_it_is_near_enough_and_where_a_matrix_bends_down():
    calls = []
    conjugate_gradient(lambda v: calls.append(1) or 2.0 * v, np.ones(3), 10, 1e-12)
    assert len(calls) == 1  # of a multiple of the identity
    found, residual = conjugate_gradient(lambda v: -v, np.ones(3), 10)
    assert found.tolist() == [0.0, 0.0, 0.0]
    assert residual.tolist() == [1.0, 1.0, 1.0]


class Problem:
    """A loss, and the divergence ½ θᵀ F θ, of a vector."""

    def __init__(self, matrix, gradient, loss=None):
        self.matrix, self.theta = matrix, np.zeros(len(gradient), np.float32)
        self.gradient, self.loss = gradient, loss or (lambda theta: float(gradient @ theta))

    def get_flat(self):
        return self.theta.copy()

    def set_flat(self, vector):
        self.theta = np.asarray(vector, np.float32)

    def loss_and_gradient(self):
        return self.loss(self.theta), self.gradient

    def divergence_product(self, vector):
        return self.matrix @ vector

    def loss_and_divergence(self):
        return self.loss(self.theta), float(0.5 * self.theta @ self.matrix @ self.theta)


def test_a_step_goes_down_the_natural_gradient_to_the_border_of_the_region():
    matrix, gradient = definite(5)
    problem = Problem(matrix, gradient)
    stats = dataclasses.replace(REGION, max_kl=0.02).step(problem)
    down = -np.linalg.solve(matrix, gradient)
    wanted = np.sqrt(2 * 0.02 / (down @ matrix @ down)) * down
    np.testing.assert_allclose(problem.theta, wanted, rtol=1e-4)
    assert stats["kl"] == pytest.approx(0.02, rel=1e-4)
    assert stats["policy_loss"] == pytest.approx(gradient @ wanted, rel=1e-4)
    assert stats["surrogate_gain"] == -stats["policy_loss"]
    assert (stats["step_accepted"], stats["line_search_shrinks"]) == (1.0, 0.0)


def test_damping_shortens_the_step_and_turns_it_to_the_gradient():
    matrix, gradient = definite(5)
    problem = Problem(matrix, gradient)
    stats = dataclasses.replace(REGION, cg_damping=100.0).step(problem)
    assert stats["kl"] < 0.009
    cosine = -gradient @ problem.theta / np.linalg.norm(gradient) / np.linalg.norm(problem.theta)
    assert cosine > 0.99


def test_the_line_search_takes_the_first_length_at_which_the_loss_falls_and_the_divergence_holds():
    matrix, gradient = np.eye(2), np.array([1.0, 0.0])
    full = np.sqrt(2 * REGION.max_kl)
    # Falls only over the first fifth of the whole step: lengths of 1, ½ and ¼ of it do not serve, ⅛ does.
    problem = Problem(matrix, gradient, lambda theta: float(theta[0] if -theta[0] < full / 5 else 1.0))
    stats = REGION.step(problem)
    assert (stats["step_accepted"], stats["line_search_shrinks"]) == (1.0, 3.0)
    np.testing.assert_allclose(problem.theta, [-full / 8, 0.0], rtol=1e-6)

    problem = Problem(matrix, gradient)
    problem.loss_and_divergence = lambda: (-1.0, 0.5 * REGION.max_kl if abs(problem.theta[0]) < full / 3 else 1.0)
    assert REGION.step(problem)["line_search_shrinks"] == 2.0


@pytest.mark.parametrize(
    "loss", [lambda theta: float(np.abs(theta).sum()), lambda theta: np.nan if theta.any() else 0.0], ids=["up", "NaN"]
)
def test_a_step_that_never_serves_is_rolled_back(loss):
    problem = Problem(np.eye(3), np.ones(3), loss)
    problem.theta = start = np.zeros(3, np.float32)
    stats = REGION.step(problem)
    np.testing.assert_array_equal(problem.theta, start)
    assert (stats["step_accepted"], stats["kl"], stats["surrogate_gain"]) == (0.0, 0.0, 0.0)
    assert stats["line_search_shrinks"] == REGION.line_search_steps


# --- Fisher-vector products, against NumPy ----------------------------------------------------------------------------


def outputs_of(weights, obs):
    """Returns what the default network gives for observations, in float64."""
    hidden = np.tanh(obs.astype(np.float64) @ weights["hidden_0.weight"].T + weights["hidden_0.bias"])
    return hidden @ weights["output.weight"].T + weights["output.bias"]


def fisher_matrix(policy, obs, of_inputs):
    """Returns the mean over rows of Jᵀ M J, with J from differences of the network's outputs.

    Args:
        policy: A policy with one hidden layer.
        obs: Float `[B, D]`.
        of_inputs: Returns M, the Fisher matrix of a distribution by its inputs `[K]`.
    """
    names = list(policy.weights_of(policy.own_steps["policy"]))
    weights = {name: policy.get_weights()[name].astype(np.float64) for name in names}
    columns = []
    for name in names:
        for index in np.ndindex(weights[name].shape):
            moved = []
            for sign in (1, -1):
                array = weights[name].copy()
                array[index] += sign * 1e-5
                moved.append(outputs_of({**weights, name: array}, obs))
            columns.append((moved[0] - moved[1]) / 2e-5)
    jacobians = np.stack(columns, -1)  # [B, K, P]
    outputs = outputs_of(weights, obs)
    return np.mean([j.T @ of_inputs(out) @ j for j, out in zip(jacobians, outputs, strict=True)], 0)


def of_logits(*sizes):
    """Returns the Fisher matrix of independent choices by their logits: diag(p) − p pᵀ for each."""

    def matrix(logits):
        made = np.zeros((len(logits),) * 2)
        for start, stop in zip(np.cumsum([0, *sizes[:-1]]), np.cumsum(sizes), strict=True):
            p = np.exp(logits[start:stop]) / np.exp(logits[start:stop]).sum()
            made[start:stop, start:stop] = np.diag(p) - np.outer(p, p)
        return made

    return matrix


def of_gaussian(inputs):
    """Returns the Fisher matrix of a Gaussian by its mean and log σ: 1 / σ², and 2."""
    return np.diag([*np.exp(-2.0 * inputs[2:]), 2.0, 2.0])


SPACES = {
    "discrete": (gym.spaces.Discrete(3), of_logits(3)),
    "multi discrete": (gym.spaces.MultiDiscrete([3, 2]), of_logits(3, 2)),
    "box": (BOX, of_gaussian),
}


@pytest.mark.parametrize(
    ("space", "framework"), [*[(name, "torch") for name in SPACES], pytest.param("box", "tf", marks=needs_tf)]
)
def test_fisher_vector_products_are_those_of_the_whole_matrix(space, framework):
    action_space, of_inputs = SPACES[space]
    policy = make(framework, "TRPO", {"model": {"fcnet_hiddens": [5], "fcnet_activation": "tanh"}},
                  action_space=action_space)  # fmt: skip
    start = policy.get_flat_weights()
    policy.set_flat_weights(start + np.random.default_rng(1).normal(size=len(start)).astype(np.float32) / 3)
    samples = make_batch(6)
    samples["actions"] = policy.compute_actions(samples["obs"])[0]
    problem = policy.second_order("policy")
    problem.begin(samples, samples)
    matrix = fisher_matrix(policy, samples["obs"], of_inputs)
    for seed in range(3):
        v = np.random.default_rng(seed).normal(size=len(matrix)).astype(np.float32)
        np.testing.assert_allclose(problem.divergence_product(v), matrix @ v, rtol=1e-3, atol=1e-5)
    # Half of the rows give the products of these rows.
    policy.config["fvp_sub_sampling"] = 2
    problem.begin(samples, policy._curvature_rows(samples))
    matrix = fisher_matrix(policy, samples["obs"][::2], of_inputs)
    np.testing.assert_allclose(problem.divergence_product(v), matrix @ v, rtol=1e-3, atol=1e-5)


# --- the policy's step ------------------------------------------------------------------------------------------------


def on_policy_batch(policy, rows=64, seed=0):
    """Returns rows as the policy itself would sample them."""
    batch = make_batch(rows, seed)
    actions, _, extra = policy.compute_actions(batch["obs"])
    for name, column in {"actions": actions, **extra}.items():
        batch[name] = column
    return batch


def divergences(policy, batch):
    """Returns mean KL from the distributions that sampled, and the surrogate, in NumPy."""
    old = policy.distribution(batch["action_dist_inputs"])
    new = policy.distribution(policy.forward(batch["obs"], False)[0])
    ratio = np.exp(new.logp(batch["actions"]) - batch["action_logp"])
    return old, new, float((ratio * batch["advantages"]).mean())


def mean_kl(old, new):
    if hasattr(old, "log_probs"):
        return float((np.exp(old.log_probs) * (old.log_probs - new.log_probs)).sum(1).mean())
    (mean, log_std), (other, other_std) = (np.split(each.inputs.astype(np.float64), 2, 1) for each in (old, new))
    parts = other_std - log_std + (np.exp(2 * log_std) + (mean - other) ** 2) / (2 * np.exp(2 * other_std)) - 0.5
    return float(parts.sum(1).mean())


@pytest.mark.parametrize(
    ("space", "framework"),
    [("discrete", "torch"), ("box", "torch"), pytest.param("discrete", "tf", marks=[needs_tf, pytest.mark.slow])],
)
def test_a_step_raises_the_surrogate_within_the_region(space, framework):
    policy = make(framework, "TRPO", {"max_kl": 0.02}, action_space=SPACES[space][0])
    for seed in range(3):
        batch = on_policy_batch(policy, seed=seed)
        _, _, before = divergences(policy, batch)
        stats = policy.learn_on_batch(batch)["learner_stats"]
        old, new, after = divergences(policy, batch)
        assert stats["step_accepted"] == 1.0
        assert 0.001 < stats["kl"] <= 0.02
        assert mean_kl(old, new) == pytest.approx(stats["kl"], rel=1e-2)
        assert after - before == pytest.approx(stats["surrogate_gain"], rel=1e-2, abs=1e-5)
        assert after > before


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_a_step_without_gain_leaves_the_policy_bit_for_bit_and_says_so(framework):
    policy = make(framework, "TRPO", {"vf_num_sgd_iter": 2, "model": {"vf_share_layers": True}})
    batch = on_policy_batch(policy)
    batch["advantages"][:] = 0.0
    before, own = policy.get_weights(), set(policy.weights_of(policy.own_steps["policy"]))
    stats = policy.learn_on_batch(batch)["learner_stats"]
    assert (stats["step_accepted"], stats["kl"]) == (0.0, 0.0)
    moved = {name for name, array in policy.get_weights().items() if not np.array_equal(array, before[name])}
    # Shared layers are the policy's: the values' steps move what is theirs alone.
    assert "hidden_0.weight" in own
    assert moved == set(before) - own == {"value.weight", "value.bias"}


def test_values_follow_their_targets_by_minibatches_in_an_order_that_is_resumed():
    policy, again = (make("torch", "TRPO", {"vf_sgd_minibatch_size": 16, "vf_num_sgd_iter": 50}) for _ in range(2))
    batch = on_policy_batch(policy)
    batch["value_targets"] = 2.0 * batch["obs"][:, 0]
    first = policy.learn_on_batch(batch)["learner_stats"]
    assert policy.num_updates == 4 * 50
    last = policy.learn_on_batch(batch)["learner_stats"]
    assert last["vf_loss"] < 0.2 * first["vf_loss"]
    assert last["vf_explained_var"] > 0.9
    again.set_state(policy.get_state())
    again.learn_on_batch(batch)
    policy.learn_on_batch(batch)
    for name, array in policy.get_weights().items():
        np.testing.assert_array_equal(array, again.get_weights()[name])


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=[needs_tf, pytest.mark.slow])])
def test_normalised_values_are_learned_in_units_of_their_targets(framework):
    config = {"vf_sgd_minibatch_size": 16, "vf_num_sgd_iter": 25, "lr": 0.03}
    plain, policy = (make(framework, "TRPO", {**config, "normalize_values": on}) for on in (False, True))
    batch = on_policy_batch(policy)
    targets = 300.0 * batch["obs"][:, 0] - 800.0
    batch["rewards"] = batch["value_targets"] = targets.astype(np.float32)
    stats = policy.learn_on_batch(batch)["learner_stats"]
    assert (policy.value_mean, policy.value_std) == pytest.approx((targets.mean(), targets.std()), rel=1e-4)
    errors = policy.values(batch["obs"]) - targets
    assert stats["vf_loss"] < 2.0  # in units of σ², of which it has 8 before the first step
    assert np.abs(errors).mean() < targets.std()
    plain.learn_on_batch(batch)
    assert np.abs(plain.values(batch["obs"]) - targets).mean() > 500.0  # 100 steps do not lead that far
    before = policy.values(batch["obs"])
    again = make(framework, "TRPO", {**config, "normalize_values": True})
    again.set_state(policy.get_state())
    assert (again.value_mean, again.value_std) == (policy.value_mean, policy.value_std)
    np.testing.assert_array_equal(again.values(batch["obs"]), before)
    with pytest.raises(CheckpointError, match="normalize_values=True"):
        plain.set_state(policy.get_state())


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=[needs_tf, pytest.mark.slow])])
def test_memory_has_second_derivatives(framework):
    model = {"use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 5, "fcnet_hiddens": [8]}
    policy = make(framework, "TRPO", {"model": model, "vf_num_sgd_iter": 1})
    batch = make_batch(20)
    batch["eps_id"] = np.repeat([0, 1], [9, 11])
    for index in range(2):
        batch[f"state_in_{index}"] = np.zeros((20, 6), np.float32)
    problem = policy.second_order("policy")
    problem.begin(batch, batch)
    flat, v = problem.get_flat(), np.random.default_rng(0).normal(size=problem.get_flat().shape).astype(np.float32)
    quadratic = float(v @ problem.divergence_product(v))
    problem.set_flat(flat + 0.02 * v)
    _, kl = problem.loss_and_divergence()  # ½ ε² vᵀ F v, and what is left of higher orders
    assert kl == pytest.approx(0.5 * 0.02**2 * quadratic, rel=0.1)
    problem.set_flat(flat)
    stats = policy.learn_on_batch(batch)["learner_stats"]
    assert 0.0 < stats["kl"] <= 0.01


def test_each_agents_policy_does_a_step_of_its_own():
    policies = {"one": (None, None, None, {"max_kl": 1e-4}), "other": (None, None, None, {})}
    multiagent = {"policies": policies, "policy_mapping_fn": lambda agent, *_, **__: ["one", "other"][agent % 2]}
    config = {
        "num_workers": 0, "train_batch_size": 200, "env_config": {"num_agents": 2}, "multiagent": multiagent,
        "vf_num_sgd_iter": 1, "min_iter_time_s": 0, "seed": 1, "model": {"fcnet_hiddens": [8]},
    }  # fmt: skip
    trainer = TRPOTrainer(config, env=MultiAgentCartPole)
    learner = trainer.train()["info"]["learner"]
    kls = {name: info["learner_stats"]["kl"] for name, info in learner.items()}
    assert 0.0 < kls["one"] <= 1e-4 < kls["other"] <= 0.01
    trainer.stop()


# --- users' own -------------------------------------------------------------------------------------------------------


def test_a_derived_loss_is_what_the_step_goes_down():
    from rlframe.agents.trpo import TRPOTorchPolicy

    def without_advantages(policy, model, dist_class, batch):
        output = trpo_loss(policy, model, dist_class, batch)
        if policy.due("policy"):  # towards the first action, whatever the advantages say
            logits, _ = model(batch)
            output = LossOutput({**output.losses, "policy": -logits.log_softmax(1)[:, 0].mean()}, output.stats)
        return output

    def as_list(policy, model, dist_class, batch):
        with policy.only_due("policy", "values"):
            losses = without_advantages(policy, model, dist_class, batch).losses
        return [losses["policy"], losses["values"]]

    plain = make("torch", "TRPO", {})
    for loss in (without_advantages, as_list):
        cls = TRPOTorchPolicy.with_updates(name="MyTRPO", loss_fn=loss)
        policy = cls(plain.observation_space, plain.action_space, plain.config)
        obs = make_batch(64)["obs"]
        for _ in range(30):
            assert policy.learn_on_batch(on_policy_batch(policy))["learner_stats"]["kl"] <= 0.01
        assert (policy.compute_actions(obs, explore=False)[0] == 0).all()


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"max_kl": 0}, r"max_kl: got 0.0 \(float\), wanted a number > 0"),
        ({"max_kl": -0.01}, r"max_kl: got -0.01 \(float\), wanted a number > 0"),
        ({"cg_iters": 0}, r"cg_iters: got 0 \(int\), wanted an integer >= 1"),
        ({"cg_damping": -1}, "cg_damping: got -1"),
        ({"line_search_shrink": 1.0}, r"line_search_shrink: got 1.0 \(float\), wanted a number above 0 and below 1"),
        ({"line_search_shrink": 0}, "line_search_shrink: got 0"),
        ({"line_search_steps": 0}, "line_search_steps: got 0"),
        ({"use_gae": False}, "use_gae=False needs batch_mode='complete_episodes'"),
        (
            {"normalize_values": True, "use_critic": False, "use_gae": False, "batch_mode": "complete_episodes"},
            "normalize_values=True needs use_critic=True",
        ),
        ({"trust_kl": 0.1}, "trust_kl"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_makes_no_step_is_refused_in_one_sentence(overrides, said):
    with pytest.raises(ConfigError, match=said):
        TRPOTrainer({"num_workers": 0, **overrides}, env="CartPole-v1")


def test_distributions_without_a_divergence_are_refused():
    from rlframe.models import ModelCatalog
    from rlframe.models.torch.torch_action_dist import TorchDeterministic

    ModelCatalog.register_custom_action_dist("points", TorchDeterministic)
    with pytest.raises(ConfigError, match=r"TRPO: got actions from TorchDeterministic.*wanted a distribution with kl"):
        make("torch", "TRPO", {"model": {"custom_action_dist": "points"}}, action_space=BOX)


def test_values_without_weights_of_their_own_are_refused():
    from torch import nn

    from rlframe.models import ModelCatalog
    from rlframe.models.torch.torch_modelv2 import TorchModelV2

    class Greedy(TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            nn.Module.__init__(self)
            self.layer = nn.Linear(4, num_outputs)

        def forward(self, input_dict, state, seq_lens):
            self.out = self.layer(input_dict["obs_flat"].float())
            return self.out, state

        def value_function(self):
            return self.out.max(1).values

    ModelCatalog.register_custom_model("greedy", Greedy)
    with pytest.raises(ConfigError, match=r"TRPO: got Greedy, .*wanted a value_function\(\) with a layer of its own"):
        make("torch", "TRPO", {"model": {"custom_model": "greedy"}})


def test_computing_gradients_apart_is_refused():
    with pytest.raises(ValueError, match=r"TRPOTorchPolicy steps .* call learn_on_batch"):
        make("torch", "TRPO", {}).compute_gradients(make_batch())
