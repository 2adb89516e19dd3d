"""What the V-trace policies of both frameworks share: columns, postprocessing, schedules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.impala.vtrace_postprocessing import postprocess_for_vtrace
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
from rlframe.policy.bounded_means import BoundedMeans
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.policy import State
from rlframe.policy.schedules import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.utils.errors import CheckpointError, ConfigError

#: Weight of a batch in the running moments of value targets; the first ones count alike.
_NEWEST = 0.01
#: Targets that spread less than this, in reward units, are learned as they are.
_MIN_STD = 0.1


class VTracePolicy(BoundedMeans, LearningRateSchedule, EntropyCoeffSchedule, LearningPolicy):
    """An actor with a critic, trained on rows of policies that lag behind."""

    defaults_from = "rlframe.agents.impala.impala:DEFAULT_CONFIG"

    wants_values = learns_values = True
    train_columns: tuple[str, ...] = (ACTION_LOGP,)
    learn_columns: tuple[str, ...] = (
        OBS,
        ACTIONS,
        ACTION_LOGP,
        REWARDS,
        DISCOUNTS,
        TRAJECTORY_ENDS,
        VALUES_AFTER,
    )

    def setup_mixins(self, config: dict[str, Any]) -> None:
        """Starts the schedules, and has workers collect `new_obs` where they bootstrap."""
        EntropyCoeffSchedule.__init__(self, config["entropy_coeff"], config["entropy_coeff_schedule"])
        LearningRateSchedule.__init__(self, config["lr"], config["lr_schedule"])
        self.normalizes = _default(config["normalize_values"], config["vtrace"] and config["vtrace_drop_last_ts"])
        self.scales_advantages = _default(config["scale_advantages"], config["vtrace"])
        # Workers would store values in units that they do not know; nothing reads them.
        self.wants_values = not self.normalizes
        self.value_mean, self.value_std = 0.0, 1.0
        self._variance, self._targets_seen = 0.0, 0
        self._most, self._gamma = 0.0, float(config["gamma"])
        if not config["vtrace_drop_last_ts"]:
            self.train_columns = (*self.train_columns, NEXT_OBS)

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

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, Any]:
        """Does one learner step; see `LearningPolicy`. Moves the units of values behind it."""
        info = super().learn_on_batch(samples)
        stats = info["learner_stats"]
        if self.normalizes and "vf_target_mean" in stats:  # a loss, or statistics, of the user's own have none
            self._most = max(self._most, float(np.abs(samples[REWARDS]).max(initial=0.0)))
            self._follow_targets(float(stats["vf_target_mean"]), float(stats["vf_target_spread"]))
        return info

    def _follow_targets(self, mean: float, spread: float) -> None:
        """Takes a batch's value targets into the running moments, which have no bias to where they started.

        Targets are made of values, and so of the units that follow them: those of a network that starts with large
        outputs would chase each other. No return is larger than max |r| / (1 − γ), and so the units are not.

        Args:
            mean: Mean of the targets, in reward units.
            spread: Mean of ((v_s − μ) / σ)², with the units as they are.
        """
        away = mean - self.value_mean
        variance = max(spread * self.value_std**2 - away**2, 0.0)
        most = self._most / (1.0 - self._gamma) if self._gamma < 1.0 else math.inf
        self._targets_seen += 1
        weight = max(_NEWEST, 1.0 / self._targets_seen)
        self.value_mean = min(max(self.value_mean + weight * away, -most), most)
        self._variance = min((1.0 - weight) * (self._variance + weight * away**2) + weight * variance, most**2)
        self.value_std = max(self._variance**0.5, _MIN_STD)

    def get_state(self) -> State:
        """Returns the policy's state with the units of its values, where it follows them."""
        state = super().get_state()
        if self.normalizes:
            units = [self.value_mean, self._variance, self._targets_seen, self._most]
            state["value_units"] = np.array(units, np.float64)
        return state

    def set_state(self, state: State) -> None:
        """Takes what `get_state` returned.

        Raises:
            CheckpointError: If its values are in units and this policy's are not, or the other way round.
        """
        saved = state.get("value_units")
        if "weights" in state and (saved is not None) != self.normalizes:
            units = ("reward units", "units of their targets")
            raise CheckpointError(
                f"the saved policy's network gives values in {units[saved is not None]}, this one's in "
                f"{units[self.normalizes]}; set normalize_values={saved is not None}, as the saved run had it"
            )
        super().set_state(state)
        if saved is not None:
            self.value_mean, self._variance = float(saved[0]), float(saved[1])
            self._targets_seen, self._most = int(saved[2]), float(saved[3])
            self.value_std = max(self._variance**0.5, _MIN_STD) if self._targets_seen else 1.0

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


def _default(chosen: bool | None, otherwise: bool) -> bool:
    return bool(otherwise if chosen is None else chosen)
