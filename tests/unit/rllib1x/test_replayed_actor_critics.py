"""Parts of RLlib's SAC and DDPG, in policies that derive from those here."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.rllib1x import replayed_actor_critics as parts
from rlframe.rllib1x.small import CentralizedValueMixin, with_base_config
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException

OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,))


@pytest.mark.parametrize("algorithm", ["sac", "ddpg"])
def test_a_policy_derived_by_them_learns_reports_and_gives_td_errors(algorithm):
    pytest.importorskip("torch")
    import importlib

    module = importlib.import_module(f"rlframe.agents.{algorithm}.{algorithm}_torch_policy")
    base = getattr(module, f"{algorithm.upper()}TorchPolicy")
    made = []

    def set_up(policy, obs_space, action_space, config):
        module.setup_late_mixins(policy, obs_space, action_space, config)
        module.ComputeTDErrorMixin.__init__(policy, lambda *args: None)  # RLlib's got the loss
        made.append(policy)

    derived = base.with_updates(
        name="Derived", mixins=[parts.TargetNetworkMixin, module.ComputeTDErrorMixin], after_init=set_up,
        validate_spaces=module.validate_spaces,
        stats_fn=lambda policy, batch: {**parts.stats(policy, batch), "own": 1.0},
    )  # fmt: skip
    policy = derived(OBS, ACTIONS, {"framework": "torch"})
    assert made == [policy]
    rng = np.random.default_rng(0)
    from rlframe.data.sample_batch import SampleBatch

    batch = SampleBatch(
        {
            "obs": rng.normal(size=(8, 3)).astype(np.float32),
            "new_obs": rng.normal(size=(8, 3)).astype(np.float32),
            "actions": rng.uniform(-1, 1, (8, 2)).astype(np.float32),
            "rewards": np.ones(8, np.float32),
            "dones": np.zeros(8, bool),
            "weights": np.ones(8, np.float32),
        }
    )
    learned = policy.learn_on_batch(batch)["learner_stats"]
    assert learned["own"] == 1.0
    assert {"mean_q", "critic_loss"} <= learned.keys()
    errors = policy.compute_td_error(batch["obs"], batch["actions"], batch["rewards"], batch["new_obs"], batch["dones"],
                                     batch["weights"])  # fmt: skip
    assert np.shape(errors) == (8,)
    networks = len(policy.model.variables())
    assert networks < len(policy.variables()) <= 2 * networks  # of what has targets, once more
    parts.TargetNetworkMixin.update_target(policy, tau=1.0)
    for name, weight in policy.target_model.named_parameters():
        np.testing.assert_array_equal(weight.detach(), dict(policy.model.named_parameters())[name].detach())
    outputs, dist_class, state = parts.action_distribution_fn(policy, policy.model, policy.to_tensors(batch["obs"]))
    assert (outputs.shape[0], dist_class, state) == (8, policy.dist_class, [])


def test_spaces_in_which_an_algorithm_cannot_act_are_refused():
    parts.validate_sac_spaces(None, OBS, spaces.Discrete(3), {})
    with pytest.raises(UnsupportedSpaceException):
        parts.validate_ddpg_spaces(None, OBS, spaces.Discrete(3), {})
    with pytest.raises(UnsupportedSpaceException):
        parts.validate_sac_spaces(None, OBS, spaces.MultiBinary(3), {})


def test_a_policy_without_target_networks_is_refused():
    with pytest.raises(ConfigError, match="has no target networks"):
        parts.TargetNetworkMixin.__init__(object())


def test_base_config_is_copied_and_its_sections_are_replaced_whole():
    base = {"lr": 1, "model": {"dim": 84, "framestack": True}}
    assert with_base_config(base, {"model": {"dim": 42}}) == {"lr": 1, "model": {"dim": 42}}
    assert base["model"]["dim"] == 84


def test_central_values_are_the_models():
    class Policy(CentralizedValueMixin):
        config = {"framework": "torch"}  # noqa: RUF012 - as a policy's

        class model:  # noqa: N801 - as a policy's attribute
            @staticmethod
            def central_value_function(obs, others):
                return obs + others

    assert Policy().compute_central_vf(1, 2) == 3


def critics_alone(policy, model, dist_class, train_batch):
    """A loss in the manner of RLlib's SAC: one for each optimiser, and what it leaves in the policy."""
    import torch

    features, _ = model({"obs": train_batch["obs"], "is_training": True}, [], None)
    later, _ = policy.target_model({"obs": train_batch["new_obs"], "is_training": True}, [], None)
    dist = policy.wanted_dist(model.get_policy_output(features), model)
    actions = dist.sample()
    logp = dist.logp(actions).unsqueeze(-1)
    target = (train_batch["rewards"] + policy.target_model.get_q_values(later, actions).squeeze(-1)).detach()
    policy.q_t = model.get_q_values(features, train_batch["actions"]).squeeze(-1)
    twin = model.get_twin_q_values(features, train_batch["actions"]).squeeze(-1)
    policy.td_error = (policy.q_t - target).abs()
    policy.critic_loss = [(policy.q_t - target).square().mean(), (twin - target).square().mean()]
    policy.actor_loss = (torch.exp(model.log_alpha).detach() * logp - model.get_q_values(features, actions)).mean()
    policy.alpha_loss = -(model.log_alpha * (logp + model.target_entropy).detach()).mean()
    return (policy.actor_loss, *policy.critic_loss, policy.alpha_loss)


def test_a_copy_of_rllibs_loss_learns_in_a_policy_that_derives_from_sacs():
    torch = pytest.importorskip("torch")
    from rlframe.agents.sac import sac_torch_policy as sac
    from rlframe.agents.sac.sac import DEFAULT_CONFIG
    from rlframe.data.sample_batch import SampleBatch

    def ready(policy, obs_space, action_space, config):
        policy.wanted_dist = policy.dist_class
        assert policy.model.target_entropy.to(policy.device).tolist() == [-2.0]
        assert not policy.model.discrete

    cls = sac.SACTorchPolicy.with_updates(loss_fn=critics_alone, before_loss_init=ready)
    policy = cls(OBS, ACTIONS, {**DEFAULT_CONFIG, "framework": "torch", "twin_q": True})
    rng = np.random.default_rng(0)
    obs, new_obs = rng.normal(size=(2, 8, 3)).astype(np.float32)
    rows = {
        "obs": obs,
        "new_obs": new_obs,
        "actions": policy.compute_actions(obs)[0],
        "rewards": np.ones(8, np.float32),
    }
    before = policy.get_weights()
    policy.learn_on_batch(SampleBatch({**rows, "dones": np.zeros(8, bool)}))
    after = policy.get_weights()
    changed = {name.partition(".")[0] for name in after if not np.array_equal(after[name], before[name])}
    assert changed == {"actor", "q", "twin_q", "log_alpha"}
    assert torch.equal(policy.target_model({"obs": policy.to_tensors(obs)}, [], None)[0], policy.to_tensors(obs))


def test_a_policy_built_of_sacs_functions_alone_learns_and_its_copy_follows():
    torch = pytest.importorskip("torch")
    from rlframe.agents.sac import sac_torch_policy as sac
    from rlframe.agents.sac.sac import DEFAULT_CONFIG
    from rlframe.data.sample_batch import SampleBatch
    from rlframe.policy.policy_template import build_policy_class

    def optimizers(policy, config):
        policy.wanted_dist = sac._get_dist_class(policy, config, policy.action_space)
        assert sac._get_dist_class(config, policy.action_space) is policy.wanted_dist is policy.dist_class
        policy.model.multiplier = torch.nn.Parameter(torch.zeros(1))  # has no copy
        return sac.optimizer_fn(policy, config)

    cls = build_policy_class(
        "Mine", "torch", loss_fn=critics_alone, stats_fn=sac.stats, optimizer_fn=optimizers,
        postprocess_fn=sac.postprocess_trajectory, validate_spaces=sac.validate_spaces,
        before_loss_init=sac.setup_late_mixins, make_model_and_action_dist=sac.build_sac_model_and_action_dist,
        mixins=[sac.TargetNetworkMixin, sac.ComputeTDErrorMixin], action_distribution_fn=sac.action_distribution_fn,
    )  # fmt: skip
    policy = cls(OBS, ACTIONS, {**DEFAULT_CONFIG, "framework": "torch", "tau": 0.5})
    rng = np.random.default_rng(0)
    obs, new_obs = rng.normal(size=(2, 8, 3)).astype(np.float32)
    actions, _, _ = policy.compute_actions(obs)
    before, copied = policy.get_weights(), policy.target_model.state_dict()["q_net.output.weight"].clone()
    rows = {"obs": obs, "new_obs": new_obs, "actions": actions, "rewards": np.ones(8, np.float32)}
    learned = policy.learn_on_batch(SampleBatch({**rows, "dones": np.zeros(8, bool), "weights": np.ones(8)}))
    stats = learned["learner_stats"]
    assert stats["critic_loss"] == pytest.approx(np.mean([loss.item() for loss in policy.critic_loss]), rel=1e-5)
    assert {"mean_q", "mean_td_error", "actor_loss", "alpha_loss"} <= stats.keys()
    changed = {name.split(".")[0] for name, array in policy.get_weights().items() if (array != before[name]).any()}
    assert changed == {"action_model", "q_net", "twin_q_net", "log_alpha"}
    policy.update_target()
    now = torch.from_numpy(policy.get_weights()["q_net.output.weight"])
    torch.testing.assert_close(policy.target_model.state_dict()["q_net.output.weight"], (copied + now) / 2)


def test_a_target_entropy_that_a_loss_took_from_the_model_as_a_tensor_is_saved():
    pytest.importorskip("tensorflow")
    from rlframe.agents.sac.sac import DEFAULT_CONFIG
    from rlframe.agents.sac.sac_tf_policy import SACTFPolicy

    policy = SACTFPolicy(OBS, ACTIONS, {**DEFAULT_CONFIG, "framework": "tf"})
    policy.target_entropy = 2 * policy.model.target_entropy  # a tensor [1], where RLlib's model has a number
    saved = policy.get_state()
    policy.target_entropy = -5.0
    policy.set_state(saved)
    assert policy.target_entropy == -4.0


def rows_to_learn_from(seed=0, rows=8):
    from rlframe.data.sample_batch import SampleBatch

    rng = np.random.default_rng(seed)
    obs, new_obs = rng.normal(size=(2, rows, 3)).astype(np.float32)
    return SampleBatch(
        {
            "obs": obs, "new_obs": new_obs, "actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
            "rewards": np.ones(rows, np.float32), "dones": np.zeros(rows, bool), "weights": np.ones(rows, np.float32),
        }
    )  # fmt: skip


def changed_by_learning(policy, batch):
    before = policy.get_weights()
    stats = policy.learn_on_batch(batch)["learner_stats"]
    changed = {name.partition(".")[0] for name, value in policy.get_weights().items() if (value != before[name]).any()}
    return changed, stats


@pytest.mark.parametrize("algorithm", ["sac", "ddpg"])
def test_losses_may_repeat_the_features_that_a_model_gives(algorithm):
    torch = pytest.importorskip("torch")
    import importlib

    module = importlib.import_module(f"rlframe.agents.{algorithm}.{algorithm}_torch_policy")
    widths = []

    def loss(policy, model, dist_class, batch):
        features, _ = model({"obs": batch["obs"], "is_training": True}, [], None)
        widths.append(features.shape[1])
        repeated = features.repeat(2, 1)
        values = model.get_q_values(repeated, batch["actions"].repeat(2, 1))
        torch.testing.assert_close(values[: len(features)], model.get_q_values(features, batch["actions"]))
        actor_loss = -model.get_policy_output(repeated.detach()).mean()
        losses = [actor_loss, (values - 1.0).square().mean()]
        return losses if algorithm == "ddpg" else [*losses, losses[1], model.log_alpha.mean()]

    cls = getattr(module, f"{algorithm.upper()}TorchPolicy").with_updates(loss_fn=loss)
    policy = cls(OBS, ACTIONS, {"framework": "torch"})
    changed, _ = changed_by_learning(policy, rows_to_learn_from())
    assert {"actor", "q"} <= changed
    assert set(widths) == {3}
    assert policy.compute_actions(rows_to_learn_from()["obs"])[0].shape == (8, 2)


@pytest.mark.parametrize("lagrangian", [False, True])
def test_a_copy_of_cqls_loss_learns_in_a_policy_that_derives_from_cqls(lagrangian):
    torch = pytest.importorskip("torch")
    from rlframe.agents.cql import cql_torch_policy as cql

    counted = []

    def loss(policy, model, dist_class, batch):
        counted.append(policy.cur_iter)
        policy.cur_iter += 1
        actor_loss, critic_loss, twin_loss, alpha_loss = critics_alone(policy, model, dist_class, batch)
        features, _ = model({"obs": batch["obs"], "is_training": True}, [], None)
        actions, logp = cql.policy_actions_repeat(model, policy.dist_class, batch["obs"], 4)
        rows = len(features)
        assert (actions.shape, logp.shape) == ((4 * rows, 2), (rows, 4, 1))
        penalties = [
            torch.logsumexp(cql.q_values_repeat(model, features, actions, twin) - logp.detach(), 1).mean()
            for twin in (False, True)
        ]
        alone = model.get_q_values(features[3:4], actions[12:13])
        torch.testing.assert_close(cql.q_values_repeat(model, features, actions)[3, 0], alone[0])
        policy.cql_loss = penalties
        if not lagrangian:
            return actor_loss, critic_loss + penalties[0], twin_loss + penalties[1], alpha_loss
        policy.alpha_prime_value = torch.clamp(model.log_alpha_prime.exp(), 0.0, 1e6)[0]
        policy.alpha_prime_loss = -policy.alpha_prime_value * (penalties[0].detach() - 1.0)
        return actor_loss, critic_loss + penalties[0], twin_loss, alpha_loss, policy.alpha_prime_loss

    def ready(policy, obs_space, action_space, config):
        policy.wanted_dist = policy.dist_class

    cls = cql.CQLTorchPolicy.with_updates(loss_fn=loss, before_loss_init=ready)
    policy = cls(OBS, ACTIONS, {"framework": "torch", "lagrangian": lagrangian})
    counted.clear()
    changed, stats = changed_by_learning(policy, rows_to_learn_from())
    policy.learn_on_batch(rows_to_learn_from(1))
    assert counted == [counted[0], counted[0] + 1]
    assert changed == {"actor", "q", "twin_q", "log_alpha"} | ({"log_alpha_prime"} if lagrangian else set())
    assert stats["cql_loss"] == pytest.approx(np.mean([each.item() for each in policy.cql_loss]), rel=1.0)


@pytest.mark.parametrize("lagrangian", [False, True])
def test_a_policy_built_of_cqls_functions_learns_with_the_loss_of_its_own(lagrangian):
    pytest.importorskip("torch")
    from rlframe.agents.cql import cql_torch_policy as cql
    from rlframe.agents.cql.cql import CQL_DEFAULT_CONFIG
    from rlframe.agents.sac import sac_torch_policy as sac
    from rlframe.policy.policy_template import build_policy_class

    def loss(policy, model, dist_class, batch):
        losses = critics_alone(policy, model, dist_class, batch)
        actions, _ = cql.policy_actions_repeat(model, policy.wanted_dist, batch["obs"], 3)
        policy.cql_loss = [cql.q_values_repeat(model, batch["obs"], actions).mean()]
        losses = (losses[0], losses[1] + policy.cql_loss[0], *losses[2:])
        return (*losses, model.log_alpha_prime.exp()[0]) if lagrangian else losses

    def ready(policy, obs_space, action_space, config):
        policy.wanted_dist = sac._get_dist_class(policy, config, action_space)
        cql.cql_setup_late_mixins(policy, obs_space, action_space, config)

    cls = build_policy_class(
        "Mine", "torch", loss_fn=loss, stats_fn=cql.cql_stats, optimizer_fn=cql.cql_optimizer_fn,
        postprocess_fn=sac.postprocess_trajectory, before_loss_init=ready, mixins=[sac.TargetNetworkMixin],
        action_distribution_fn=sac.action_distribution_fn,
        make_model_and_action_dist=sac.build_sac_model_and_action_dist,
    )  # fmt: skip
    policy = cls(OBS, ACTIONS, {**CQL_DEFAULT_CONFIG, "framework": "torch", "lagrangian": lagrangian})
    assert policy.cur_iter == 0
    changed, stats = changed_by_learning(policy, rows_to_learn_from())
    multiplier = {"log_alpha_prime"} if lagrangian else set()
    assert changed == {"action_model", "q_net", "twin_q_net", "log_alpha"} | multiplier
    assert stats["cql_loss"] == pytest.approx(policy.cql_loss[0].item(), rel=1e-5)


def test_a_loss_may_add_to_that_of_cql():
    pytest.importorskip("torch")
    from rlframe.agents.cql import cql_torch_policy as cql

    def loss(policy, model, dist_class, batch):
        actor_loss, *others = cql.cql_loss(policy, model, dist_class, batch)
        return (actor_loss + model.actor(batch["obs"]).square().mean(), *others)

    policy = cql.CQLTorchPolicy.with_updates(loss_fn=loss)(OBS, ACTIONS, {"framework": "torch", "lagrangian": True})
    changed, stats = changed_by_learning(policy, rows_to_learn_from())
    assert changed == {"actor", "q", "twin_q", "log_alpha", "log_alpha_prime"}
    assert np.isfinite(stats["cql_loss"])


def test_a_policy_built_of_ddpgs_functions_alone_learns_and_delays_its_actor():
    torch = pytest.importorskip("torch")
    from rlframe.agents.ddpg import ddpg_torch_policy as ddpg
    from rlframe.agents.ddpg.ddpg import DEFAULT_CONFIG
    from rlframe.policy.policy_template import build_policy_class

    def loss(policy, model, _, batch):
        features, _ = model({"obs": batch["obs"]}, [], None)
        later, _ = policy.target_model({"obs": batch["new_obs"]}, [], None)
        target = policy.target_model.get_q_values(later, policy.target_model.get_policy_output(later)).squeeze(-1)
        policy.q_t = model.get_q_values(features, batch["actions"]).squeeze(-1)
        actor_loss = -model.get_q_values(features, model.get_policy_output(features)).mean()
        return actor_loss, (policy.q_t - (batch["rewards"] + target).detach()).square().mean()

    cls = build_policy_class(
        "Mine", "torch", loss_fn=loss, stats_fn=ddpg.build_ddpg_stats, optimizer_fn=ddpg.make_ddpg_optimizers,
        postprocess_fn=ddpg.postprocess_nstep_and_prio, validate_spaces=ddpg.validate_spaces,
        before_init=ddpg.before_init_fn, before_loss_init=ddpg.setup_late_mixins, mixins=[ddpg.TargetNetworkMixin],
        action_distribution_fn=ddpg.get_distribution_inputs_and_class, apply_gradients_fn=ddpg.apply_gradients_fn,
        make_model_and_action_dist=ddpg.build_ddpg_models_and_action_dist,
    )  # fmt: skip
    policy = cls(OBS, ACTIONS, {**DEFAULT_CONFIG, "framework": "torch", "policy_delay": 2})
    actions = policy.compute_actions(rows_to_learn_from()["obs"], explore=False)[0]
    features = torch.from_numpy(rows_to_learn_from()["obs"])
    np.testing.assert_allclose(actions, policy.model.get_policy_output(features).detach(), rtol=1e-5)
    assert changed_by_learning(policy, rows_to_learn_from())[0] == {"policy_model", "q_model"}
    assert changed_by_learning(policy, rows_to_learn_from(1))[0] == {"q_model"}
    assert changed_by_learning(policy, rows_to_learn_from(2))[0] == {"policy_model", "q_model"}


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_model_that_gives_observations_stands_in_front_of_a_programs_networks(framework):
    pytest.importorskip("torch" if framework == "torch" else "tensorflow")
    from rlframe.agents.ddpg import noop_model
    from rlframe.models import ModelCatalog

    kind = noop_model.TorchNoopModel if framework == "torch" else noop_model.NoopModel
    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 3, {}, framework, "mine", default_model=kind)
    obs = rows_to_learn_from()["obs"].astype(np.float64)
    outputs, state = model({"obs": obs}, [], None)
    np.testing.assert_array_equal(outputs, obs)
    assert ("float32" in str(outputs.dtype), state, model.trainable_variables()) == (True, [], [])


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_ddpgs_model_on_top_of_another_takes_its_features(framework):
    pytest.importorskip("torch" if framework == "torch" else "tensorflow")
    import importlib

    from rlframe.models import ModelCatalog
    from rlframe.tensor import ops

    top = importlib.import_module(f"rlframe.agents.ddpg.ddpg_{framework}_model").DDPGModel

    config = {"fcnet_hiddens": [7], "no_final_linear": True, "vf_share_layers": True}
    options = {"actor_hiddens": [4], "critic_hiddens": [4], "twin_q": True}
    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 5, config, framework, "mine", model_interface=top, **options)
    obs = rows_to_learn_from()["obs"]
    features, _ = model({"obs": obs, "obs_flat": obs}, [], None)
    assert tuple(features.shape) == (8, 5)
    assert tuple(model.get_policy_output(features).shape) == (8, 2)
    assert tuple(model.get_q_values(features, ops.tensor_like(np.zeros((8, 2), np.float32), features)).shape) == (8, 1)
