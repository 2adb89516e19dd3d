"""Policies that programs make of RLlib's functions for SAC, DDPG and CQL in TensorFlow, with a loss of their own."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.agents.cql.cql import CQL_DEFAULT_CONFIG
from rlframe.agents.ddpg.td3 import TD3_DEFAULT_CONFIG
from rlframe.agents.sac.sac import DEFAULT_CONFIG
from rlframe.data.sample_batch import SampleBatch
from rlframe.utils.errors import ConfigError

tf = pytest.importorskip("tensorflow")

OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,))


def rows_to_learn_from():
    rng = np.random.default_rng(0)
    return SampleBatch(
        obs=rng.normal(size=(8, 3)).astype(np.float32),
        new_obs=rng.normal(size=(8, 3)).astype(np.float32),
        actions=rng.uniform(-1, 1, (8, 2)).astype(np.float32),
        rewards=np.ones(8, np.float32),
        dones=np.zeros(8, bool),
        weights=np.ones(8, np.float32),
    )


def changed_by(policy):
    before = policy.get_weights()
    policy.learn_on_batch(rows_to_learn_from())
    after = policy.get_weights()
    return {name.split("/")[0].split(".")[0] for name in before if not np.array_equal(before[name], after[name])}


def losses_of_sac(policy, model, dist_class, batch):
    """Leaves a loss for each optimiser in the policy, in the manner of RLlib's, and returns their sum."""
    features, _ = model({"obs": batch["obs"], "is_training": True}, [], None)
    later, _ = policy.target_model({"obs": batch["new_obs"], "is_training": True}, [], None)
    dist = policy.wanted_dist(model.get_policy_output(features), model)
    actions, logp = dist.sample_logp()
    target = tf.stop_gradient(batch["rewards"] + tf.squeeze(policy.target_model.get_q_values(later, actions), -1))
    q = tf.squeeze(model.get_q_values(features, batch["actions"]), -1)
    twin = tf.squeeze(model.get_twin_q_values(features, batch["actions"]), -1)
    policy.q_t, policy.td_error = q, tf.abs(q - target)
    policy.critic_loss = [tf.reduce_mean(tf.square(q - target)), tf.reduce_mean(tf.square(twin - target))]
    policy.actor_loss = tf.reduce_mean(
        tf.stop_gradient(tf.exp(model.log_alpha)) * logp - tf.squeeze(model.get_q_values(features, actions), -1)
    )
    policy.alpha_loss = -tf.reduce_mean(model.log_alpha * tf.stop_gradient(logp + model.target_entropy))
    return policy.actor_loss + tf.add_n(policy.critic_loss) + policy.alpha_loss


def sac_of_functions(loss, **config):
    from rlframe.agents.sac import sac_tf_policy as sac
    from rlframe.policy.tf_policy_template import build_tf_policy

    def ready(policy, obs_space, action_space, config, *given):
        policy.wanted_dist = sac._get_dist_class(policy, config, action_space)
        sac.setup_mid_mixins(policy, obs_space, action_space, config, *given)

    made = build_tf_policy(
        "Mine", loss_fn=loss, make_model=sac.build_sac_model, postprocess_fn=sac.postprocess_trajectory,
        action_distribution_fn=sac.get_distribution_inputs_and_class, stats_fn=sac.stats,
        compute_gradients_fn=sac.compute_and_clip_gradients, apply_gradients_fn=sac.apply_gradients,
        extra_learn_fetches_fn=lambda policy: {"td_error": policy.td_error},
        mixins=[sac.TargetNetworkMixin, sac.ActorCriticOptimizerMixin, sac.ComputeTDErrorMixin],
        validate_spaces=sac.validate_spaces, before_init=sac.setup_early_mixins, before_loss_init=ready,
        after_init=sac.setup_late_mixins,
    )  # fmt: skip
    return made(OBS, ACTIONS, {**DEFAULT_CONFIG, "framework": "tf", **config})


@pytest.mark.parametrize("framework", ["tf", "tf2"])
def test_a_policy_of_sacs_functions_steps_each_part_by_its_own_optimizer(framework):
    policy = sac_of_functions(losses_of_sac, framework=framework)
    assert {"action_model", "q_net", "twin_q_net"} <= changed_by(policy)
    assert int(policy.global_step) == 1
    assert len(policy._critic_optimizer) == 2


def test_the_first_step_of_each_part_is_as_long_as_its_own_rate():
    """Adam's first step is its rate in each weight that has a gradient, far above ε."""
    rates = {"actor_learning_rate": 1e-3, "critic_learning_rate": 2e-3, "entropy_learning_rate": 3e-3}
    policy = sac_of_functions(losses_of_sac, optimization=rates)
    before = policy.get_weights()
    policy.learn_on_batch(rows_to_learn_from())
    after = policy.get_weights()

    def longest(part):
        return max(float(np.abs(after[name] - before[name]).max()) for name in before if name.startswith(part))

    assert longest("action_model") == pytest.approx(1e-3, rel=1e-2)
    assert longest("q_net") == pytest.approx(2e-3, rel=1e-2)
    assert longest("twin_q_net") == pytest.approx(2e-3, rel=1e-2)
    assert longest("log_alpha") == pytest.approx(3e-3, rel=1e-2)


def test_each_gradient_is_clipped_by_its_norm():
    policy = sac_of_functions(losses_of_sac, grad_clip=1e-3)
    gradients, _ = policy.compute_gradients(rows_to_learn_from())
    norms = [np.linalg.norm(gradient) for gradient in gradients if gradient is not None]
    assert max(norms) == pytest.approx(1e-3, rel=1e-5)


def test_gradients_that_are_computed_and_applied_apart_step_as_learning_does():
    rates = {"actor_learning_rate": 1e-3, "critic_learning_rate": 2e-3, "entropy_learning_rate": 3e-3}
    policy = sac_of_functions(losses_of_sac, optimization=rates)
    before = policy.get_weights()
    policy.apply_gradients(policy.compute_gradients(rows_to_learn_from())[0])
    after = policy.get_weights()
    moved = {name: float(np.abs(after[name] - before[name]).max()) for name in before}
    assert max(size for name, size in moved.items() if name.startswith("q_net")) == pytest.approx(2e-3, rel=1e-2)
    assert int(policy.global_step) == 1


def test_shares_of_several_devices_are_refused():
    policy = sac_of_functions(losses_of_sac, num_gpus=2, _fake_gpus=True)
    with pytest.raises(ConfigError, match=r"num_gpus: got 2 devices"):
        policy.learn_on_batch(rows_to_learn_from())


def test_a_policy_of_ddpgs_functions_delays_its_actor():
    from rlframe.agents.ddpg import ddpg_tf_policy as ddpg
    from rlframe.policy.tf_policy_template import build_tf_policy

    def loss(policy, model, dist_class, batch):
        features, _ = model({"obs": batch["obs"], "is_training": True}, [], None)
        q = model.get_q_values(features, batch["actions"])[:, 0]
        policy.td_error = tf.abs(q - batch["rewards"])
        policy.critic_loss = tf.reduce_mean(tf.square(q - batch["rewards"]))
        policy.actor_loss = -tf.reduce_mean(model.get_q_values(features, model.get_policy_output(features)))
        return policy.actor_loss + policy.critic_loss

    made = build_tf_policy(
        "Mine", loss_fn=loss, make_model=ddpg.build_ddpg_models, postprocess_fn=ddpg.postprocess_nstep_and_prio,
        action_distribution_fn=ddpg.get_distribution_inputs_and_class, compute_gradients_fn=ddpg.gradients_fn,
        apply_gradients_fn=ddpg.build_apply_op, validate_spaces=ddpg.validate_spaces,
        before_init=ddpg.setup_early_mixins, before_loss_init=ddpg.setup_mid_mixins, after_init=ddpg.setup_late_mixins,
        mixins=[ddpg.TargetNetworkMixin, ddpg.ActorCriticOptimizerMixin, ddpg.ComputeTDErrorMixin],
    )  # fmt: skip
    policy = made(OBS, ACTIONS, {**TD3_DEFAULT_CONFIG, "framework": "tf", "policy_delay": 2})
    assert {"policy_model", "q_model"} <= changed_by(policy)
    later = changed_by(policy)
    assert "q_model" in later
    assert "policy_model" not in later
    assert "policy_model" in changed_by(policy)


def cql_of_functions(**config):
    from rlframe.agents.cql import cql_tf_policy as cql
    from rlframe.agents.sac import sac_tf_policy as sac
    from rlframe.policy.tf_policy_template import build_tf_policy

    def loss(policy, model, dist_class, batch):
        losses_of_sac(policy, model, dist_class, batch)
        actions, logp = cql.policy_actions_repeat(model, policy.wanted_dist, batch["obs"], 3)
        values = cql.q_values_repeat(model, batch["obs"], actions)
        assert (tuple(actions.shape[1:]), tuple(logp.shape[1:]), values.shape[2]) == ((2,), (3, 1), 1)
        drawn = policy._random_action_generator.get_exploration_action(
            action_distribution=policy.wanted_dist(tf.zeros([tf.shape(batch["obs"])[0], 4]), model),
            timestep=0,
            explore=True,
        )[0]
        policy.cql_loss = [
            tf.reduce_mean(values),
            tf.reduce_mean(cql.q_values_repeat(model, batch["obs"], drawn, True)),
        ]
        policy.critic_loss = [q + penalty for q, penalty in zip(policy.critic_loss, policy.cql_loss, strict=True)]
        return policy.actor_loss + tf.add_n(policy.critic_loss) + policy.alpha_loss

    def ready(policy, obs_space, action_space, config, *given):
        policy.wanted_dist = sac._get_dist_class(policy, config, action_space)

    made = build_tf_policy(
        "Mine", loss_fn=loss, make_model=sac.build_sac_model, postprocess_fn=sac.postprocess_trajectory,
        action_distribution_fn=sac.get_distribution_inputs_and_class, stats_fn=cql.cql_stats,
        compute_gradients_fn=cql.compute_gradients_fn, apply_gradients_fn=cql.apply_gradients_fn,
        mixins=[cql.ActorCriticOptimizerMixin, sac.TargetNetworkMixin, sac.ComputeTDErrorMixin],
        validate_spaces=sac.validate_spaces, before_init=cql.setup_early_mixins, before_loss_init=ready,
        after_init=sac.setup_late_mixins,
    )  # fmt: skip
    return made(OBS, ACTIONS, {**CQL_DEFAULT_CONFIG, "framework": "tf", **config})


def test_a_policy_of_cqls_functions_learns_and_reports_its_penalty():
    policy = cql_of_functions()
    assert policy.cur_iter == 0
    stats = policy.learn_on_batch(rows_to_learn_from())["learner_stats"]
    assert np.isfinite(stats["cql_loss"])
    assert {"action_model", "q_net", "twin_q_net"} <= changed_by(policy)


def test_the_multiplier_needs_a_policy_that_derives_from_cqls():
    with pytest.raises(ConfigError, match=r"CQLTFPolicy\.with_updates"):
        cql_of_functions(lagrangian=True)


def test_a_loss_may_add_to_that_of_cql():
    from rlframe.agents.cql import cql_tf_policy as cql

    def loss(policy, model, dist_class, batch):
        actor_loss, *others = cql.cql_loss(policy, model, dist_class, batch)
        return (actor_loss + tf.reduce_mean(tf.square(model.actor(batch["obs"]))), *others)

    made = cql.CQLTFPolicy.with_updates(loss_fn=loss)
    policy = made(OBS, ACTIONS, {**CQL_DEFAULT_CONFIG, "framework": "tf", "lagrangian": True})
    assert {"actor", "q", "twin_q", "log_alpha", "log_alpha_prime"} <= changed_by(policy)
