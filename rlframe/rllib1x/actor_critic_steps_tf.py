"""How RLlib's SAC, DDPG and CQL step in TensorFlow, for policies that programs make of functions by `build_tf_policy`.

Their optimisers are the policy's, but not of its state: as in RLlib, a restored policy begins with fresh moments. A
policy that derives from `SACTFPolicy`, `DDPGTFPolicy` or `CQLTFPolicy` has its own optimisers; these are for a loss
that leaves its parts in the policy (`actor_loss`, `critic_loss`, `alpha_loss`, `alpha_prime_loss`), on a model with
`policy_variables()`, `q_variables()` and what SAC's adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rlframe.exploration.random import Random
from rlframe.rllib1x.q_learning import ComputeTDErrorMixin
from rlframe.utils.errors import ConfigError
from rlframe.utils.framework import get_variable
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any
Gradients: TypeAlias = list[tuple[Any, Any]]


class SACOptimizers:
    """Gives a policy Adam for the actor, one for each critic, and one for log α; and a count of steps.

    Attributes:
        global_step: Steps that were made, an integer variable.
        _actor_optimizer: Adam with `config["optimization"]["actor_learning_rate"]`.
        _critic_optimizer: One or, with `twin_q`, two, with `critic_learning_rate`.
        _alpha_optimizer: With `entropy_learning_rate`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        rates = config["optimization"]
        self.global_step = get_variable(0, framework="tf", tf_name="global_step")
        self._actor_optimizer = _adam(config, rates["actor_learning_rate"])
        self._critic_optimizer = [
            _adam(config, rates["critic_learning_rate"]) for _ in range(1 + bool(config["twin_q"]))
        ]
        self._alpha_optimizer = _adam(config, rates["entropy_learning_rate"])


class CQLOptimizers(SACOptimizers):
    """SAC's optimisers, and with `lagrangian` one for log α′, with the critics' rate."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        SACOptimizers.__init__(self, config)
        if config["lagrangian"]:
            self._alpha_prime_optimizer = _adam(config, config["optimization"]["critic_learning_rate"])


class DDPGOptimizers:
    """Gives a policy Adam for the actor (`actor_lr`) and one for all critics (`critic_lr`); and a count of steps."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.global_step = get_variable(0, framework="tf", tf_name="global_step")
        self._actor_optimizer = _adam(config, config["actor_lr"])
        self._critic_optimizer = _adam(config, config["critic_lr"])


def _adam(config: Mapping[str, Any], rate: float) -> Any:
    """Returns RLlib's Adam: Keras' where a program asks for eager steps, TensorFlow 1's elsewhere (ε 1e-7 and 1e-8)."""
    eager = config["framework"] in ("tf2", "tfe")
    return tf.keras.optimizers.Adam(rate) if eager else tf.compat.v1.train.AdamOptimizer(rate)


def setup_sac_optimizers(policy: Any, obs_space: Any, action_space: Any, config: Mapping[str, Any]) -> None:
    """Makes the optimisers of `SACOptimizers`; a `before_init`."""
    del obs_space, action_space
    SACOptimizers.__init__(policy, config)


def setup_ddpg_optimizers(policy: Any, obs_space: Any, action_space: Any, config: Mapping[str, Any]) -> None:
    """Makes the optimisers of `DDPGOptimizers`; a `before_init`."""
    del obs_space, action_space
    DDPGOptimizers.__init__(policy, config)


def setup_cql(policy: Any, obs_space: Any, action_space: Any, config: Mapping[str, Any]) -> None:
    """Makes SAC's optimisers, the count `cur_iter` and uniform actions; a `before_init`.

    Args:
        policy: Gets `cur_iter` 0 and `_random_action_generator`.
        obs_space: Not read.
        action_space: That of `_random_action_generator`.
        config: Its `optimization`, `twin_q`, `lagrangian`, `framework`.

    Raises:
        ConfigError: With `lagrangian`: the model that log α′ belongs to is made later.
    """
    del obs_space
    if config["lagrangian"]:
        raise ConfigError(
            "lagrangian: got True for a policy that is made of functions, whose model is not there yet when "
            "setup_early_mixins runs; wanted False, or a policy derived by CQLTFPolicy.with_updates(loss_fn=...)"
        )
    policy.cur_iter = 0
    CQLOptimizers.__init__(policy, config)
    policy._random_action_generator = Random(
        action_space, model=None, framework="tf", policy_config=config, num_workers=0, worker_index=0
    )


def setup_td_errors(
    policy: Any, obs_space: Any, action_space: Any, config: Mapping[str, Any], loss: Any = None
) -> None:
    """Gives the policy its TD errors; a `before_loss_init`."""
    del obs_space, action_space, config
    ComputeTDErrorMixin.__init__(policy, loss)


def sac_gradients(policy: Any, optimizer: Any, loss: Tensor) -> Gradients:
    """Returns the gradients of the actor's, each critic's and α's loss by their own weights, each clipped by its norm.

    Args:
        policy: Its loss has left `actor_loss`, `critic_loss` (a list) and `alpha_loss`; gets `_actor_grads_and_vars`,
            `_critic_grads_and_vars` and `_alpha_grads_and_vars`.
        optimizer: Has `compute_gradients(loss, variables)`.
        loss: The sum; not read.
    """
    del loss
    _refuse_several_devices(policy)
    model, losses = policy.model, policy.critic_loss
    critics = _parts(model.q_variables(), len(losses))
    policy._actor_grads_and_vars = _clipped(policy, optimizer, policy.actor_loss, model.policy_variables())
    policy._critic_grads_and_vars = [
        pair
        for each, variables in zip(losses, critics, strict=True)
        for pair in _clipped(policy, optimizer, each, variables)
    ]
    policy._alpha_grads_and_vars = _clipped(policy, optimizer, policy.alpha_loss, [model.log_alpha])
    return [*policy._actor_grads_and_vars, *policy._critic_grads_and_vars, *policy._alpha_grads_and_vars]


def cql_gradients(policy: Any, optimizer: Any, loss: Tensor) -> Gradients:
    """Returns SAC's gradients, and with `lagrangian` that of `alpha_prime_loss` by log α′."""
    made = sac_gradients(policy, optimizer, loss)
    if not policy.config["lagrangian"]:
        return made
    policy._alpha_prime_grads_and_vars = _clipped(
        policy, optimizer, policy.alpha_prime_loss, [policy.model.log_alpha_prime]
    )
    return [*made, *policy._alpha_prime_grads_and_vars]


def ddpg_gradients(policy: Any, optimizer: Any, loss: Tensor) -> Gradients:
    """Returns the gradients of the actor's and of the critics' loss by their own weights, each clipped by its norm.

    Args:
        policy: Its loss has left `actor_loss` and `critic_loss`; gets `_actor_grads_and_vars` and
            `_critic_grads_and_vars`.
        optimizer: Has `compute_gradients(loss, variables)`.
        loss: The sum; not read.
    """
    del loss
    _refuse_several_devices(policy)
    model = policy.model
    policy._actor_grads_and_vars = _clipped(policy, optimizer, policy.actor_loss, model.policy_variables())
    policy._critic_grads_and_vars = _clipped(policy, optimizer, policy.critic_loss, model.q_variables())
    return [*policy._actor_grads_and_vars, *policy._critic_grads_and_vars]


def sac_step(policy: Any, optimizer: Any, grads_and_vars: Gradients) -> None:
    """Steps actor, critics and α by their gradients, each by its own optimiser; an `apply_gradients_fn`."""
    del optimizer
    model, critics = policy.model, policy._critic_optimizer
    policy._actor_optimizer.apply_gradients(_of(grads_and_vars, model.policy_variables()))
    for each, variables in zip(critics, _parts(model.q_variables(), len(critics)), strict=True):
        each.apply_gradients(_of(grads_and_vars, variables))
    policy._alpha_optimizer.apply_gradients(_of(grads_and_vars, [model.log_alpha]))
    policy.global_step.assign_add(1)


def cql_step(policy: Any, optimizer: Any, grads_and_vars: Gradients) -> None:
    """Steps as `sac_step`, and with `lagrangian` log α′; an `apply_gradients_fn`."""
    sac_step(policy, optimizer, grads_and_vars)
    if policy.config["lagrangian"]:
        policy._alpha_prime_optimizer.apply_gradients(_of(grads_and_vars, [policy.model.log_alpha_prime]))


def ddpg_step(policy: Any, optimizer: Any, grads_and_vars: Gradients) -> None:
    """Steps the critics, and the actor with every `policy_delay`-th step; an `apply_gradients_fn`."""
    del optimizer
    model = policy.model

    def step_actor() -> Tensor:
        policy._actor_optimizer.apply_gradients(_of(grads_and_vars, model.policy_variables()))
        return tf.constant(True)

    due = tf.equal(tf.math.floormod(policy.global_step, policy.config["policy_delay"]), 0)
    tf.cond(due, step_actor, lambda: tf.constant(False))
    policy._critic_optimizer.apply_gradients(_of(grads_and_vars, model.q_variables()))
    policy.global_step.assign_add(1)


def _refuse_several_devices(policy: Any) -> None:
    """Raises a ConfigError where each device has a share of the batch: the losses in the policy are the last one's."""
    if len(policy.devices) > 1:
        raise ConfigError(
            f"num_gpus: got {len(policy.devices)} devices for a policy that is made of functions and steps each part "
            "by a loss of its own; wanted one, or a policy that derives from SACTFPolicy, DDPGTFPolicy or CQLTFPolicy"
        )


def _of(grads_and_vars: Gradients, variables: Sequence[Any]) -> Gradients:
    """Returns the pairs of some variables."""
    wanted = {id(variable) for variable in variables}
    return [pair for pair in grads_and_vars if id(pair[1]) in wanted]


def _parts(items: Sequence[Any], count: int) -> list[list[Any]]:
    """Returns items that belong to `count` critics one after the other, those of each."""
    size = len(items) // count
    return [list(items[at * size : (at + 1) * size]) for at in range(count)]


def _clipped(policy: Any, optimizer: Any, loss: Tensor, variables: Sequence[Any]) -> Gradients:
    """Returns gradients, each with a norm of at most `grad_clip` if that is set; variables without one are left out."""
    limit = policy.config["grad_clip"]
    made = optimizer.compute_gradients(loss, var_list=list(variables))
    return [
        (tf.clip_by_norm(gradient, limit) if limit else gradient, variable)
        for gradient, variable in made
        if gradient is not None
    ]
