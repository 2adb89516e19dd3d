"""V-trace of logits, and the sum that RLlib's IMPALA minimised, for both frameworks; columns are `[T, B]`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np

from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    DONES,
    REWARDS,
    SEQ_LENS,
    VALID_MASK,
)
from rlframe.data.sample_batch_builder import to_float_array
from rlframe.losses.policy_gradients import explained_variance
from rlframe.losses.vtrace import from_importance_weights
from rlframe.models.catalog import ModelCatalog
from rlframe.rllib1x.schedules import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes_arrays(function: _Function, to_tensor: Callable[[Any], Tensor]) -> _Function:
    """Returns a function of tensors as one that takes NumPy arrays too, alone or in lists, float64 as float32."""

    def converted(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [converted(part) for part in value]
        return to_tensor(to_float_array(value)) if isinstance(value, np.ndarray) else value

    @functools.wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        return function(*converted(args), **{name: converted(value) for name, value in kwargs.items()})

    return made  # type: ignore[return-value]


class VTraceFromLogitsReturns(NamedTuple):
    """V-trace, and what it was made of; float `[T, B]` each, the log-probabilities by part of the action."""

    vs: Tensor
    pg_advantages: Tensor
    log_rhos: Tensor
    behaviour_action_log_probs: Any
    target_action_log_probs: Any


def multi_log_probs_from_logits_and_actions(
    policy_logits: Sequence[Tensor], actions: Sequence[Tensor], dist_class: Any, model: Any
) -> list[Tensor]:
    """Returns log π `[T, B]` of each part of the actions; see `log_probs_from_logits_and_actions`."""
    made = []
    for inputs, taken in zip(policy_logits, actions, strict=True):
        logp = dist_class(ops.flatten_sequences(inputs), model).logp(ops.flatten_sequences(taken))
        made.append(ops.split_sequences(logp, inputs))
    return made


def get_log_rhos(target_action_log_probs: Sequence[Tensor], behaviour_action_log_probs: Sequence[Tensor]) -> Tensor:
    """Returns log π/μ `[T, B]` of actions of several parts, given log π and log μ of each `[T, B]`."""
    parts = zip(target_action_log_probs, behaviour_action_log_probs, strict=True)
    return functools.reduce(operator.add, [target - behaviour for target, behaviour in parts])


def multi_from_logits(
    behaviour_policy_logits: Sequence[Tensor],
    target_policy_logits: Sequence[Tensor],
    actions: Sequence[Tensor],
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    dist_class: Any,
    model: Any,
    behaviour_action_log_probs: Any = None,
    clip_rho_threshold: float | None = 1.0,
    clip_pg_rho_threshold: float | None = 1.0,
    name: str = "vtrace_from_logits",
) -> VTraceFromLogitsReturns:
    """Returns V-trace of B trajectories side by side, given distributions by part of the action.

    Args:
        behaviour_policy_logits: Inputs of the distributions that acted, `[T, B, K]` by part.
        target_policy_logits: Inputs of the distributions that learn, `[T, B, K]` by part.
        actions: What was done, `[T, B, ...]` by part.
        discounts: γ(1 − terminated). Float `[T, B]`.
        rewards: Float `[T, B]`.
        values: V(s_t). Float `[T, B]`.
        bootstrap_value: V(s_T). Float `[B]`.
        dist_class: Distribution of a part.
        model: Model of the distributions.
        behaviour_action_log_probs: log μ(a|s) `[T, B]`, where it is known; actions of several parts compute it anew.
        clip_rho_threshold: ρ̄; None does not clip.
        clip_pg_rho_threshold: ρ̄_pg; None does not clip.
        name: Not used; part of the signature.

    Source: Espeholt et al. 2018, eq. 1.
    """
    del name
    target = multi_log_probs_from_logits_and_actions(target_policy_logits, actions, dist_class, model)
    if behaviour_action_log_probs is None or len(behaviour_policy_logits) > 1:
        behaviour = multi_log_probs_from_logits_and_actions(behaviour_policy_logits, actions, dist_class, model)
    else:
        known = behaviour_action_log_probs
        behaviour = list(known) if isinstance(known, (list, tuple)) else [known]
    log_rhos = get_log_rhos(target, behaviour)
    clips = (clip_rho_threshold, clip_pg_rho_threshold)
    made = from_importance_weights(log_rhos, discounts, rewards, values, bootstrap_value, *clips)
    return VTraceFromLogitsReturns(made.vs, made.pg_advantages, log_rhos, behaviour, target)


class VTraceLoss:
    """IMPALA's loss of one batch, summed over its rows.

    Args:
        actions: `[T, B, parts]`.
        actions_logp: log π(a|s) of the policy that learns. Float `[T, B]`.
        actions_entropy: Float `[T, B]`.
        dones: Where episodes terminated. Bool `[T, B]`.
        behaviour_action_logp: log μ(a|s) of the policy that acted. Float `[T, B]`.
        behaviour_logits: Inputs of the distributions that acted, `[T, B, K]` by part.
        target_logits: Inputs of the distributions that learn, `[T, B, K]` by part.
        discount: γ.
        rewards: Float `[T, B]`.
        values: Float `[T, B]`.
        bootstrap_value: Float `[B]`.
        dist_class: Distribution of a part.
        model: Model of the distributions.
        valid_mask: Rows that count, `[T, B]`; None for all.
        config: Not used; part of the signature.
        vf_loss_coeff: Weight of the value loss.
        entropy_coeff: Weight of the entropy bonus.
        clip_rho_threshold: ρ̄; None does not clip.
        clip_pg_rho_threshold: ρ̄_pg; None does not clip.

    Attributes:
        vtrace_returns: V-trace, see `VTraceFromLogitsReturns`.
        value_targets: v_s. Float `[T, B]`.
        pi_loss: −Σ log π(a|s) A.
        vf_loss: ½ Σ (V − v_s)².
        entropy: Σ H(π).
        mean_entropy: Mean of H(π) over the rows that count.
        total_loss: The weighted sum of the losses and the bonus.

    Source: Espeholt et al. 2018, section 4.2.
    """

    def __init__(
        self,
        actions: Tensor,
        actions_logp: Tensor,
        actions_entropy: Tensor,
        dones: Tensor,
        behaviour_action_logp: Tensor,
        behaviour_logits: Sequence[Tensor],
        target_logits: Sequence[Tensor],
        discount: float,
        rewards: Tensor,
        values: Tensor,
        bootstrap_value: Tensor,
        dist_class: Any,
        model: Any,
        valid_mask: Tensor | None,
        config: Mapping[str, Any],
        vf_loss_coeff: float = 0.5,
        entropy_coeff: Any = 0.01,
        clip_rho_threshold: float | None = 1.0,
        clip_pg_rho_threshold: float | None = 1.0,
    ) -> None:
        del config
        mask = ops.ones_like(actions_logp) if valid_mask is None else ops.cast_like(valid_mask, actions_logp)
        self.vtrace_returns = multi_from_logits(
            behaviour_logits,
            target_logits,
            [actions[:, :, part] for part in range(actions.shape[2])],
            (1.0 - ops.to_float(dones)) * discount,
            rewards,
            values,
            bootstrap_value,
            dist_class,
            model,
            behaviour_action_logp,
            clip_rho_threshold,
            clip_pg_rho_threshold,
        )
        self.value_targets = self.vtrace_returns.vs
        self.pi_loss = -ops.sum(actions_logp * self.vtrace_returns.pg_advantages * mask)
        self.vf_loss = 0.5 * ops.sum(ops.square((values - self.value_targets) * mask))
        self.entropy = ops.sum(actions_entropy * mask)
        self.mean_entropy = self.entropy / ops.sum(mask)
        self.total_loss = self.pi_loss + vf_loss_coeff * self.vf_loss - entropy_coeff * self.entropy


def make_time_major(policy: Any, seq_lens: Tensor | None, tensor: Any, drop_last: bool = False) -> Any:
    """Returns rows `[B · T, ...]` of trajectories, one after the other, as `[T, B, ...]`.

    Args:
        policy: With memory, T is the length of its padded sequences; otherwise its `rollout_fragment_length`.
        seq_lens: Lengths of the sequences `[B]`; read with memory.
        tensor: Rows, or a list of such.
        drop_last: Leave out the last step of each trajectory.
    """
    if isinstance(tensor, (list, tuple)):
        return [make_time_major(policy, seq_lens, part, drop_last) for part in tensor]
    sequences = seq_lens if policy.is_recurrent() else tensor[:: policy.config["rollout_fragment_length"]]
    columns = ops.swap_axes(ops.split_sequences(tensor, sequences), 0, 1)
    return columns[:-1] if drop_last else columns


def _split(x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Returns the columns of `x [B, K]` in parts of some sizes."""
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return [x[:, end - size : end] for size, end in zip(sizes, ends, strict=True)]


def build_vtrace_loss(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> Tensor:
    """Returns IMPALA's loss of a batch of whole fragments, summed over its rows; see `VTraceLoss`."""
    config, lens = policy.config, train_batch.get(SEQ_LENS)
    dist_inputs, _ = model(train_batch)
    dist, values = dist_class(dist_inputs, model), model.value_function()
    actions, several = train_batch[ACTIONS], isinstance(policy.action_space, gym.spaces.MultiDiscrete)
    sizes = [int(n) for n in policy.action_space.nvec] if several else [dist_inputs.shape[1]]
    mask = train_batch.get(VALID_MASK)
    counted = ops.ones_like(values) if mask is None else ops.cast_like(mask, values)
    categorical, _ = ModelCatalog.get_action_dist(gym.spaces.Discrete(2), framework=policy.framework)

    def by_time(column: Any, *, whole: bool = False) -> Any:
        return make_time_major(policy, lens, column, drop_last=config["vtrace_drop_last_ts"] and not whole)

    loss = VTraceLoss(
        actions=by_time(actions if several else actions[:, None]),
        actions_logp=by_time(dist.logp(actions)),
        actions_entropy=by_time(dist.entropy()),
        dones=by_time(train_batch[DONES]),
        behaviour_action_logp=by_time(train_batch[ACTION_LOGP]),
        behaviour_logits=by_time(_split(train_batch[ACTION_DIST_INPUTS], sizes)),
        target_logits=by_time(_split(dist_inputs, sizes)),
        discount=config["gamma"],
        rewards=by_time(train_batch[REWARDS]),
        values=by_time(values),
        bootstrap_value=by_time(values, whole=True)[-1],
        dist_class=categorical if several else dist_class,
        model=model,
        valid_mask=by_time(counted),
        config=config,
        vf_loss_coeff=config["vf_loss_coeff"],
        entropy_coeff=policy.entropy_coeff,
        clip_rho_threshold=config["vtrace_clip_rho_threshold"],
        clip_pg_rho_threshold=config["vtrace_clip_pg_rho_threshold"],
    )
    predicted = ops.flatten_sequences(ops.stop_gradient(by_time(values)))
    policy.keep(
        total_loss=loss.total_loss,
        policy_loss=loss.pi_loss,
        vf_loss=loss.vf_loss,
        entropy=loss.mean_entropy,
        vf_explained_var=explained_variance(ops.flatten_sequences(loss.value_targets), predicted),
    )
    return loss.total_loss


def setup_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Starts the schedules of the entropy bonus and of the learning rate."""
    del obs_space, action_space
    EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])
