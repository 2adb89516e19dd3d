"""SAC's losses by autograd, of continuous and of discrete actions; `SACPolicy` has the equations and their terms."""

from __future__ import annotations

from typing import Any

from rlframe.agents.families.own_model import held, of_constants
from rlframe.agents.families.replayed_sequences import encoded, encoded_next, steps_of, td_errors_to_replay
from rlframe.agents.sac.sac_model import networks_in
from rlframe.data.columns import ACTIONS, DISCOUNTS, REWARDS, WEIGHTS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.actor_critic import bootstrapped, expected, smallest, squashed_gaussian
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.q_learning import select_by_action
from rlframe.policy.parts import LossOutput
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def actor_critic_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the losses of actor, critics and α for one batch; the equations are those of `SACPolicy`."""
    del dist_class
    model = networks_in(model)
    return (_discrete_losses if policy.discrete else _continuous_losses)(policy, model, train_batch)


def _continuous_losses(policy: Any, model: Any, batch: SampleBatch) -> LossOutput:
    steps, seen = steps_of(policy, batch), encoded(policy, model, batch, training=True)
    next_seen, mean = encoded_next(policy, model, batch, seen), valid_mean(steps)
    actions, alpha = steps[ACTIONS], ops.stop_gradient(ops.exp(model.log_alpha))
    own, logp = squashed_gaussian(model.actor(held(seen)), steps[policy.noise_columns[0]])
    next_own, next_logp = of_constants(
        lambda later: squashed_gaussian(model.actor(later), steps[policy.noise_columns[1]]), next_seen
    )
    values, next_values = _critics_of_step(policy, model, batch, (seen, next_seen), (actions, next_own))
    next_value = policy.target_value(next_values)
    bonus = policy.entropy_bonus(alpha, next_logp)
    soft = next_value + (ops.expand_like(bonus, next_value) if len(next_value.shape) > 1 else bonus)
    targets = bootstrapped(steps[REWARDS], steps[DISCOUNTS], soft)
    critic_loss, td_error = policy.critic_loss(values, targets, steps.get(WEIGHTS), mean)
    own_values = policy.critics(model, held(seen), own, frozen=True)
    if policy.config.n_quantiles > 1:
        own_value = sum_of([ops.mean(value, axis=1) for value in own_values]) / len(own_values)
    else:
        own_value = smallest(own_values)
    actor_loss = mean(alpha * logp - own_value)
    alpha_loss = -mean(model.log_alpha * ops.stop_gradient(logp + policy.target_entropy))
    td_error, told = td_errors_to_replay(policy, td_error, steps), valid_rows(steps)
    output: LossOutput = policy.output(model, actor_loss, critic_loss, alpha_loss, td_error, told(values[0]), told(own))
    return output


def _discrete_losses(policy: Any, model: Any, batch: SampleBatch) -> LossOutput:
    steps, seen = steps_of(policy, batch), encoded(policy, model, batch, training=True)
    next_seen, mean = encoded_next(policy, model, batch, seen), valid_mean(steps)
    alpha = ops.stop_gradient(ops.exp(model.log_alpha))
    log_probs = ops.log_softmax(model.actor(held(seen)))
    probs = ops.exp(log_probs)
    next_log_probs = ops.stop_gradient(ops.log_softmax(model.actor(next_seen)))
    every, next_every = _critics_of_step(policy, model, batch, (seen, next_seen), None)
    bonus = policy.entropy_bonus(alpha, next_log_probs)
    soft = expected(ops.exp(next_log_probs), smallest(next_every) + bonus)
    targets = bootstrapped(steps[REWARDS], steps[DISCOUNTS], soft)
    values = [select_by_action(value, steps[ACTIONS]) for value in every]
    critic_loss, td_error = policy.critic_loss(values, targets, steps.get(WEIGHTS), mean)
    own = ops.stop_gradient(smallest(every))
    actor_loss = mean(expected(probs, alpha * log_probs - own))
    surplus = ops.stop_gradient(log_probs + policy.target_entropy)
    alpha_loss = -mean(expected(ops.stop_gradient(probs), model.log_alpha * surplus))
    td_error, told = td_errors_to_replay(policy, td_error, steps), valid_rows(steps)
    output: LossOutput = policy.output(
        model, actor_loss, critic_loss, alpha_loss, td_error, told(every[0]), told(log_probs)
    )
    return output


def _critics_of_step(
    policy: Any,
    model: Any,
    batch: SampleBatch,
    ends: tuple[Tensor, Tensor],
    actions: tuple[Tensor, Tensor] | None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the critics' values of what was done, and the target critics' of what follows, as constants.

    With batch normalisation and without a target network both come from one pass: the statistics are those of present
    and next steps together, as Bhatt et al. 2024, section 3.2, have it.

    Args:
        policy: The policy.
        model: Its networks.
        batch: Tensors.
        ends: Features at both ends of the steps, of the policy's own encoder.
        actions: Actions at both ends; None where critics value every choice.
    """
    taken, follow = ([], []) if actions is None else ([actions[0]], [actions[1]])
    normed, (seen, next_seen) = bool(policy.config.critic_batch_norm), ends
    if not policy.target_networks and normed:
        both = [ops.concat(pair, axis=0) for pair in zip([seen, *taken], [next_seen, *follow], strict=True)]
        rows = ops.row_count(seen)
        made = policy.critics(model, *both, training=True)
        return [value[:rows] for value in made], [ops.stop_gradient(value[rows:]) for value in made]
    values = policy.critics(model, seen, *taken, training=normed)
    networks = networks_in(policy.target_model) if policy.target_networks else model
    later = encoded_next(policy, networks, batch) if policy.target_networks else next_seen

    def target(later: Tensor) -> tuple[Tensor, ...]:
        return tuple(policy.critics(networks, later, *follow))

    return values, list(of_constants(target, later))


def sum_of(tensors: list[Tensor]) -> Tensor:
    """Returns the sum of tensors, from the first on."""
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total
