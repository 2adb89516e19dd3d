"""Policies that learn from rows of policies that lag behind, corrected by V-trace: all but the loss and optimisers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.vtrace_postprocessing import postprocess_for_vtrace
from rlframe.data.columns import (
    ACTION_LOGP,
    ACTIONS,
    DISCOUNTS,
    NEXT_OBS,
    OBS,
    REWARDS,
    TRAJECTORY_ENDS,
    VALUES_AFTER,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.fcnet_spec import POPART_LAYER
from rlframe.policy.action_bounds import ActionBoundPenalty
from rlframe.policy.components import schedules_of
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.policy import State
from rlframe.policy.popart import PopArt
from rlframe.policy.row_sums import RowSums
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError

_LOGGER = logging.getLogger("rlframe")
_SIGMA, _MU = f"{POPART_LAYER}.weight", f"{POPART_LAYER}.bias"


#: Where what a framework adds is, see `lazy_policies`.
BACKENDS = {
    "torch": ("rlframe.agents.families.vtrace_torch", "VTraceTorchBase"),
    "tf": ("rlframe.agents.families.vtrace_tf", "VTraceTFBase"),
}


class VTracePolicy(ActionBoundPenalty, PopArt, RowSums, LearningPolicy):
    """An actor with a critic, trained on rows of policies that lag behind."""

    #: Whether `grad_clip` and `epsilon` are for gradients of sums over the rows.
    limits_are_for_sums = True
    wants_values = learns_values = True
    train_columns: tuple[str, ...] | None = (ACTION_LOGP,)
    learn_columns: tuple[str, ...] | None = (
        OBS,
        ACTIONS,
        ACTION_LOGP,
        REWARDS,
        DISCOUNTS,
        TRAJECTORY_ENDS,
        VALUES_AFTER,
    )

    cur_lr: float
    entropy_coeff: float

    def prepare(self) -> None:
        """Starts the schedules, and has workers collect `new_obs` where they bootstrap."""
        config = self.config
        self.components.update(schedules_of(self, config))
        self.setup_rows(config, sums=self.limits_are_for_sums)
        normalizes = _default(config["normalize_values"], config["vtrace"] and config["vtrace_drop_last_ts"])
        self.setup_popart(config, normalizes=normalizes)
        self.scales_advantages = _default(config["scale_advantages"], config["vtrace"])
        self._said_moments = False
        # Workers would store values without the moments, which they do not know; nothing reads them.
        self.wants_values = not self.normalizes
        if not config["vtrace_drop_last_ts"] and self.train_columns is not None:
            self.train_columns = (*self.train_columns, NEXT_OBS)

    def complete_columns(self, batch: SampleBatch) -> SampleBatch:
        """Returns the batch with what V-trace needs, where postprocessing made none of it."""
        if not self.config["vtrace"] or TRAJECTORY_ENDS in batch:
            return batch
        return postprocess_for_vtrace(self, batch)

    def vtrace_options(self) -> dict[str, Any]:
        """Returns the keywords of `batch_vtrace` that the config sets."""
        return {
            "drop_last": self.config["vtrace_drop_last_ts"],
            "clip_rho": self.config["vtrace_clip_rho_threshold"],
            "clip_pg_rho": self.config["vtrace_clip_pg_rho_threshold"],
            "lambda_": self.config["vtrace_lambda"],
        }

    def held(self, behaviour_kl: Any, bound_loss: Any) -> Any:
        """Returns what a loss adds to hold the policy near those that acted, and its means within the action bounds."""
        config = self.config
        return config["behaviour_kl_coeff"] * behaviour_kl + config["action_bound_coeff"] * bound_loss

    def counted_rows(self, batch: Mapping[str, Any]) -> Any:
        """Returns which rows count: not those that a trajectory that was cut is bootstrapped from."""
        counts = super().counted_rows(batch)
        if not self.config["vtrace_drop_last_ts"] or TRAJECTORY_ENDS not in batch:
            return counts
        kept = ~(batch[TRAJECTORY_ENDS] & (batch[DISCOUNTS] > 0))
        return kept if counts is None else kept & counts

    def in_reward_units(self, values: Any) -> Any:
        """Returns V(s) [B] of what the model's value function returned."""
        return values * self.value_std + self.value_mean if self.normalizes else values

    def values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns V(s) [B] of `obs` [B, ...], in discounted reward units."""
        return np.asarray(self.in_reward_units(super().values(obs)), np.float32)

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of the network's weights and of PopArt's moments, `{name: array}`.

        These have the names that they have in PPO's networks: `popart.weight` is σ, float32 `[1, 1]`, and
        `popart.bias` is μ, float32 `[1]`. Without `normalize_values` there are none.
        """
        weights: dict[str, NDArray[Any]] = super().get_weights()
        return {**weights, **_moments_of(self.value_mean, self.value_std)} if self.normalizes else weights

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Takes what `get_weights` returned.

        Raises:
            ValueError: If names or shapes do not fit, or its values are normalised and this policy's are not.
        """
        moments = {name: weights[name] for name in (_SIGMA, _MU) if name in weights}
        if moments and not self.normalizes:
            raise ValueError(
                f"weights of {type(self).__name__} do not fit: their values are normalised (PopArt), this "
                "policy's are in reward units; set normalize_values=True, as where they come from"
            )
        super().set_weights({name: array for name, array in weights.items() if name not in moments})
        if len(moments) == 2:
            self.set_value_moments(float(np.float32(moments[_MU]).item()), float(np.float32(moments[_SIGMA]).item()))
        elif self.normalizes and not self._said_moments:
            self._said_moments = True
            _LOGGER.warning(
                "weights without PopArt's moments were given to %s, which normalises values: they count as normalised "
                "by its own, mean %.6g and deviation %.6g, and will be learned anew where these do not fit. Give it "
                "all that get_weights() of such a policy returns, or set normalize_values=False",
                type(self).__name__,
                self.value_mean,
                self.value_std,
            )

    def set_state(self, state: State) -> None:
        """Takes what `get_state` returned, also from where weights had no moments yet."""
        if "popart" in state and "weights" in state and _MU not in state["weights"]:
            state = {**state, "weights": {**state["weights"], **_moments_of(self.value_mean, self.value_std)}}
        super().set_state(state)

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, Any]:
        """Does one learner step; see `LearningPolicy`. Updates PopArt's moments behind it."""
        info = super().learn_on_batch(samples)
        stats = info["learner_stats"]
        if self.normalizes and "vf_target_mean" in stats:  # a loss, or statistics, of the user's own have none
            self.update_value_moments(
                float(stats["vf_target_mean"]), float(stats["vf_target_spread"]), np.asarray(samples[REWARDS])
            )
        return info

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns losses, entropy and explained variance, means over the rows, and the norm of the weights."""
        norm = self.weights_norm()
        return {"cur_lr": self.cur_lr, **self._loss_outputs, "entropy_coeff": self.entropy_coeff, "var_gnorm": norm}

    def weights_norm(self) -> Tensor:
        """Returns the global L2 norm of the weights, a scalar."""
        raise NotImplementedError

    def target_stats(self, targets: Tensor, mean: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """Returns the mean of the value targets, and of ((v_s − μ) / σ)², which PopArt's moments follow."""
        if not self.normalizes:
            return {}
        return {
            "vf_target_mean": mean(targets),
            "vf_target_spread": mean(ops.square((targets - self.value_mean) / self.value_std)),
        }

    def losses(self, policy_terms: Any, value_terms: Any) -> Any:
        """Returns one loss, or two with `_separate_vf_optimizer`."""
        return [policy_terms, value_terms] if self.config["_separate_vf_optimizer"] else policy_terms + value_terms

    def refuse_shared(self, shared: list[str]) -> None:
        """Raises a ConfigError where weights serve both policy and values."""
        if shared:
            raise ConfigError(
                f"_separate_vf_optimizer: got a model whose weights {shared[:3]} serve policy and values, wanted two "
                "separate networks; set model.vf_share_layers to False, or leave the key out"
            )

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Adds discounts, ends of trajectories, and what they are bootstrapped with."""
        return postprocess_for_vtrace(self, sample_batch, other_agent_batches, episode)

    postprocess_trajectory.framework_free = postprocess_for_vtrace  # type: ignore[attr-defined]  # a marker for NumPy workers


def _moments_of(mean: float, std: float) -> dict[str, NDArray[Any]]:
    return {_SIGMA: np.full((1, 1), std, np.float32), _MU: np.full(1, mean, np.float32)}


def _default(chosen: bool | None, otherwise: bool) -> bool:
    return bool(otherwise if chosen is None else chosen)
