"""Policies of parts: networks with optimisers of their own, losses by name, delays, phases, noise and targets."""

import importlib
import sys

import gymnasium as gym
import numpy as np
import pytest

from rlframe.config.common import CommonConfig
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.masking import valid_mean
from rlframe.models.modelv2 import states_of
from rlframe.models.spec import GRU, LSTM, Dense, Network, Variable
from rlframe.policy.backends import lazy_policies, with_backend
from rlframe.policy.inference import NumpyInference
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import AdamSpec, LossOutput
from rlframe.policy.policy import Policy
from rlframe.tensor import ops
from rlframe.utils.errors import ConfigError
from tests.contract.test_policies import POLICIES, policy_class_of
from tests.helpers.frameworks import FRAMEWORKS, TORCH_FIRST, both_frameworks

OBS_SPACE = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
ACTION_SPACE = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)


class TwoNetworks(LearningPolicy):
    """An actor that goes up a critic, which learns rewards; the actor steps once in two updates."""

    dist_type = "deterministic"
    target_networks = ("critic",)
    learn_columns = ("obs", "actions", "rewards")

    def networks(self):
        return {
            "actor": Network({"obs": 2}, (Dense("output", "tanh", 1),)),
            "critic": Network({"obs": 2, "actions": 1}, (Dense("hidden", "relu", 4), Dense("output", units=1))),
            "scale": Variable(0.5),
        }

    def optimizers(self):
        return {
            "actor": AdamSpec(("actor",), 0.1, every=2),
            "critic": AdamSpec(("critic", "scale"), 0.1, grad_clip=1e-3),
        }

    def random_columns(self, rows, rng):
        return {"noise": rng.standard_normal(rows, np.float32)}

    def loss(self, model, dist_class, train_batch):
        obs = train_batch["obs"]
        q = model.critic(obs, train_batch["actions"])[:, 0] * model.scale
        error = q - train_batch["rewards"] + 0.01 * train_batch["noise"]
        losses = {"critic": ops.mean(ops.square(error))}
        if self.due("actor"):
            losses["actor"] = -ops.mean(model.critic(obs, model.actor(obs)))
        return LossOutput(losses, {"mean_q": ops.mean(q)}, {"td_error": error})


def make(framework, policy=TwoNetworks, **config):
    made = with_backend(policy, framework, f"{policy.__name__}{framework}")
    given = {**CommonConfig.defaults(), "framework": framework, "seed": 3, "tau": 0.25, **config}
    return made(OBS_SPACE, ACTION_SPACE, given)


def batch(rows=8):
    rng = np.random.default_rng(0)
    return SampleBatch(
        {
            "obs": rng.normal(size=(rows, 2)).astype(np.float32),
            "actions": rng.uniform(-1, 1, (rows, 1)).astype(np.float32),
            "rewards": rng.normal(size=rows).astype(np.float32),
        }
    )


def moved(before, after):
    return {name.partition(".")[0] for name in before if not np.array_equal(before[name], after[name])}


@both_frameworks
def test_each_optimiser_moves_its_own_networks_and_a_delayed_one_every_second_time(framework):
    policy, rows = make(framework), batch()
    seen = []
    for _ in range(3):
        before = policy.get_weights()
        info = policy.learn_on_batch(rows)
        seen.append(moved(before, policy.get_weights()))
    assert seen == [{"actor", "critic", "scale"}, {"critic", "scale"}, {"actor", "critic", "scale"}]
    assert info["td_error"].shape == (8,)
    assert info["mean_td_error"] == pytest.approx(info["td_error"].mean(), rel=1e-5)
    of_rllibs_tensorflow = {"mean_td_error"} if framework == "tf" else set()
    assert set(info["learner_stats"]) == {"allreduce_latency", "mean_q", "critic_grad_gnorm"} | of_rllibs_tensorflow


@both_frameworks
def test_the_gradient_of_a_loss_stays_out_of_networks_of_other_optimisers(framework):
    policy, rows = make(framework), batch()
    both, _ = policy.compute_gradients(rows)
    alone = make(framework, type("CriticAlone", (TwoNetworks,), {"due": lambda self, name: name == "critic"}))
    critic, _ = alone.compute_gradients(rows)
    known = [(a, b) for a, b in zip(both, critic, strict=True) if b is not None]
    assert len(known) == 5, "the critic's four arrays and the scale"
    for a, b in known:
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_gradients_that_are_computed_and_applied_apart_step_as_learning_does(framework):
    whole, apart, rows = make(framework), make(framework), batch()
    for update in range(5):
        whole.learn_on_batch(rows)
        gradients, _ = apart.compute_gradients(rows)
        apart.apply_gradients(gradients)
        for name, array in whole.get_weights().items():
            np.testing.assert_allclose(apart.get_weights()[name], array, rtol=1e-6, err_msg=f"{name}, {update}")


def test_a_key_agent_id_of_the_users_own_may_be_anything():
    assert make("torch", agent_id="prey_0")._agent_stream == ()


@both_frameworks
def test_target_networks_follow_by_tau_and_hold_nothing_but_their_networks(framework):
    policy = make(framework)
    old = policy.target_network.get_weights()
    assert {name.partition(".")[0] for name in old} == {"critic"}
    policy.learn_on_batch(batch())
    assert all(np.array_equal(old[name], array) for name, array in policy.target_network.get_weights().items())
    policy.update_target()
    online = policy.get_weights()
    for name, array in policy.target_network.get_weights().items():
        np.testing.assert_allclose(array, 0.75 * old[name] + 0.25 * online[name], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_a_policy_goes_on_exactly_from_its_state(framework):
    policy, rows = make(framework), batch()
    for _ in range(3):  # an odd number: the delayed optimiser is not due next
        policy.learn_on_batch(rows)
        policy.update_target()
    state = policy.get_state()
    other = make(framework, seed=99)
    other.set_state(state)
    for _ in range(3):
        for one in (policy, other):
            one.learn_on_batch(rows)
            one.update_target()
    for one, same in ((policy.get_weights(), other.get_weights()),
                      (policy.target_network.get_weights(), other.target_network.get_weights())):  # fmt: skip
        assert all(np.array_equal(one[name], same[name]) for name in one)


def test_a_state_of_one_framework_goes_on_in_the_other():
    pytest.importorskip("tensorflow")
    torch_policy, tf_policy, rows = make("torch"), make("tf"), batch()
    torch_policy.learn_on_batch(rows)
    tf_policy.set_state(torch_policy.get_state())
    for _ in range(5):
        torch_policy.learn_on_batch(rows)
        tf_policy.learn_on_batch(rows)
    mine, theirs = torch_policy.get_weights(), tf_policy.get_weights()
    assert mine.keys() == theirs.keys()
    for name in mine:
        np.testing.assert_allclose(mine[name], theirs[name], atol=1e-4)


class InPhases(TwoNetworks):
    """The critic steps twice, then the actor goes up the critic as it is by then."""

    def loss(self, model, dist_class, train_batch):
        for _ in range(2):
            q = model.critic(train_batch["obs"], train_batch["actions"])[:, 0]
            yield LossOutput({"critic": ops.mean(ops.square(q * model.scale - train_batch["rewards"]))})
        obs = train_batch["obs"]
        yield LossOutput({"actor": -ops.mean(model.critic(obs, model.actor(obs)))})


@both_frameworks
def test_a_loss_in_phases_steps_the_optimisers_of_each_before_it_goes_on(framework):
    policy = make(framework, InPhases)
    policy.learn_on_batch(batch())
    states = policy.get_state()["_optimizer_variables"]
    assert [int(state["step"]) for state in states] == [1, 2]
    with pytest.raises(ValueError, match=r"learns in phases.*call learn_on_batch"):
        policy.compute_gradients(batch())


class Endless(TwoNetworks):
    def loss(self, model, dist_class, train_batch):
        while True:
            yield LossOutput({"critic": ops.mean(model.scale * train_batch["rewards"])})


def test_a_phase_that_never_ends_is_an_error(monkeypatch):
    monkeypatch.setattr("rlframe.policy.loss_phases.MOST_PHASES", 20)
    with pytest.raises(ValueError, match=r"yielded 20 phases for one batch and goes on; wanted a loss that ends"):
        make("torch", Endless).learn_on_batch(batch())


def with_methods(**methods):
    return type("Broken", (TwoNetworks,), methods)


@pytest.mark.parametrize(
    ("optimizers", "said"),
    [
        ({"critic": AdamSpec(("critic", "scale"), 0.1)}, r"networks \['actor'\] have no optimiser"),
        ({"all": AdamSpec(("actor", "critic", "scale", "value"), 0.1)}, r"\['value'\], which are no networks"),
        (
            {"a": AdamSpec(("actor", "critic"), 0.1), "b": AdamSpec(("critic", "scale"), 0.1)},
            r"names \['critic'\] twice",
        ),
    ],
)
def test_networks_need_one_optimiser_each(optimizers, said):
    with pytest.raises(ConfigError, match=said):
        make("torch", with_methods(optimizers=lambda self: optimizers))


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (lambda zero: LossOutput(zero), r"one loss that names no optimiser; wanted a dict with some of \['actor'"),
        (lambda zero: LossOutput({"value": zero}), r"losses for \['value'\]; wanted some of \['actor', 'critic'\]"),
        (lambda zero: LossOutput({}), "losses for no optimiser; wanted some of"),
        (lambda zero: [zero], "got 1 losses for 2 optimisers"),
    ],
)
def test_losses_name_their_optimisers(output, said):
    broken = with_methods(loss=lambda self, model, dist_class, train_batch: output(ops.mean(model.scale * 0.0)))
    with pytest.raises(ValueError, match=said):
        make("torch", broken).learn_on_batch(batch())


def test_a_loss_of_one_scalar_adds_and_multiplies_with_its_report():
    output = LossOutput(4.0, {"mean_q": 1.0}, {"td_error": [2.0]})
    made = 0.5 * (1.0 + output - 3.0) * 8.0 / 2.0 + 1.0
    assert (made.losses, made.stats, made.per_row) == (5.0, output.stats, output.per_row)
    with pytest.raises(TypeError, match=r"losses of \['actor', 'critic'\]; wanted dataclasses.replace"):
        LossOutput({"critic": 1.0, "actor": 2.0}) * 0.5


def test_the_custom_loss_of_a_model_changes_losses_that_have_names():
    policy = make("torch")
    policy.model.custom_loss = lambda losses, batch: losses[:1]
    with pytest.raises(ValueError, match="got 1 losses for 2 optimisers"):
        policy.learn_on_batch(batch())
    policy = make("torch")
    policy.model.custom_loss = lambda losses, batch: [0.0 * losses[0], losses[1]]  # the critic's comes first
    before = policy.get_weights()
    policy.learn_on_batch(batch())
    assert moved(before, policy.get_weights()) == {"actor"}


def test_lazy_policies_find_their_names_alone_and_make_each_class_once(monkeypatch):
    find = lazy_policies(__name__, TwoNetworks, TwoNetworksTorchPolicy="torch")
    made = find("TwoNetworksTorchPolicy")
    assert sys.modules[__name__].TwoNetworksTorchPolicy is made
    monkeypatch.delattr(sys.modules[__name__], "TwoNetworksTorchPolicy")
    with pytest.raises(AttributeError, match="has no attribute 'TwoNetworksJaxPolicy'"):
        find("TwoNetworksJaxPolicy")


#: SimpleQ's policy is a DQN's, one more; some names stand for one class; Dreamer's is in PyTorch alone.
LINES = {
    name: found
    for name, found in POLICIES.items()
    if name not in ("SimpleQ", "discrete SAC", "discrete CQL", "discrete IQL", "TD3", "Dreamer")
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", [*LINES, "QMIX"])
def test_a_policy_has_at_most_three_ancestors_below_policy(framework, name):
    if name == "QMIX":
        found = importlib.import_module("rlframe.agents.qmix.qmix_policy")
        cls = found.QMixTorchPolicy if framework == "torch" else found.QMixTFPolicy
    else:
        cls = policy_class_of(framework, name)
    below = [above.__name__ for above in cls.__mro__[1 : cls.__mro__.index(Policy)]]
    below = [name for name in below if name != "RLlibTFPolicyNames"]  # what RLlib's TFPolicy had, and nothing calls
    # What is built on another algorithm's policy has that one more.
    bases = {"R2D2": "DQNPolicy", "RNNSAC": "SACPolicy", "CQL": "SACPolicy", "TD3BC": "DDPGPolicy"}
    bases |= dict.fromkeys(("MAML", "MBMPO"), "MetaPolicy")
    built_on = [bases[name]] if name in bases else []
    assert below[1:] == [*built_on, "TorchPolicy" if framework == "torch" else "TFPolicy", "LearningPolicy"]


class Remembering(LearningPolicy):
    """An actor with recurrent layers, which is to tell what it saw a step before."""

    dist_type = "deterministic"
    learn_columns = ("obs", "rewards")

    def networks(self):
        return {"actor": Network({"obs": 2}, (LSTM("lstm", 5), GRU("gru", 4), Dense("output", units=1)))}

    def optimizers(self):
        return {"actor": AdamSpec(("actor",), 0.05)}

    def loss(self, model, dist_class, train_batch):
        told = model(train_batch, states_of(train_batch), train_batch["seq_lens"])[0][:, 0]
        return LossOutput({"actor": valid_mean(train_batch)(ops.square(told - train_batch["rewards"]))})


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_recurrent_networks_learn_from_sequences_and_act_in_numpy(framework):
    policy = make(framework, Remembering)
    assert [state.shape for state in policy.get_initial_state()] == [(5,), (5,), (4,)]
    rng = np.random.default_rng(0)
    obs, lens = rng.choice([-1.0, 1.0], (24, 2)).astype(np.float32), np.array([8, 10, 6], np.int32)
    before = np.concatenate([[0.0], obs[:-1, 0]]) * ~np.isin(np.arange(24), [0, 8, 18])
    columns = {"obs": obs, "rewards": before.astype(np.float32), "seq_lens": lens}
    zeros = [np.zeros((3, *state.shape), np.float32) for state in policy.get_initial_state()]
    columns.update({f"state_in_{i}": state for i, state in enumerate(zeros)})
    for _ in range(80 if framework == "torch" else 1):
        policy.learn_on_batch(SampleBatch(columns))
    states = {f"state_in_{i}": state[:1] for i, state in enumerate(zeros)}
    assert type(policy.inference) is NumpyInference
    for row in range(8):
        told, _, after = policy.forward_with_memory(obs[row : row + 1], states, False)
        other, _, beside = policy.forward_in_framework({"obs": obs[row : row + 1], **states}, False)
        for one, two in zip([told, *after], [other, *beside], strict=True):
            np.testing.assert_allclose(one, two, atol=1e-5)
        assert row == 0 or framework == "tf" or told[0, 0] * before[row] > 0.5
        states = {f"state_in_{i}": state for i, state in enumerate(after)}
