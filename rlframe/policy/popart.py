"""PopArt: values are learned normalised by the running moments of their targets."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import REWARDS, VALUE_TARGETS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.fcnet_spec import POPART_LAYER
from rlframe.policy.parts import Component
from rlframe.policy.users_code import method
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import CheckpointError, ConfigError

_LOGGER = logging.getLogger("rlframe")
#: Weight of a batch in the running moments of value targets; the first ones count alike.
_NEWEST = 0.01
#: Targets that spread less than this, in reward units, are learned as they are.
_MIN_STD = 0.1
#: How far values move at least, if they are normalised and their mean is moved by 1.
_MOVED = 1e-3
_SIGMA, _MU = f"{POPART_LAYER}.weight", f"{POPART_LAYER}.bias"


def value_std(policy: Any) -> Any:
    """Returns σ, which a policy's values are normalised by; 1 for policies without PopArt."""
    return getattr(policy, "value_std", 1.0)


class PopArt(Component):
    """The running moments of a policy's value targets: V(s) is μ + σ times what a network gives.

    The policy has them as `value_mean` and `value_std`, in reward units; 0 and 1 while nothing is normalised.

    Args:
        policy: A policy whose config has `gamma`.
        normalizes: Whether μ and σ follow the targets.

    Source: van Hasselt et al. 2016, "Learning values across many orders of magnitude", section 2; Yu et al.
    2022, "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games", section 5.1.
    """

    def __init__(self, policy: Any, *, normalizes: bool) -> None:
        self._policy, self.normalizes = policy, normalizes
        policy.value_mean, policy.value_std = 0.0, 1.0
        self._variance, self._targets_seen, self._largest_reward = 0.0, 0, 0.0
        self._gamma = float(policy.config["gamma"])

    def update(self, mean: float, spread: float, rewards: NDArray[Any]) -> None:
        """Takes a batch's value targets into the running moments, which have no bias to where they started.

        Targets are made of values, and so of the moments that follow them: those of a network that starts with large
        outputs would chase each other. No return is larger than max |r| / (1 − γ), and so the moments are not.

        Args:
            mean: Mean of the targets, in reward units.
            spread: Mean of ((v − μ) / σ)², with the moments as they are.
            rewards: Rewards of the batch [B].
        """
        policy = self._policy
        self._largest_reward = max(self._largest_reward, float(np.abs(rewards).max(initial=0.0)))
        away = mean - policy.value_mean
        variance = max(spread * policy.value_std**2 - away**2, 0.0)
        most = self._largest_reward / (1.0 - self._gamma) if self._gamma < 1.0 else math.inf
        self._targets_seen += 1
        weight = max(_NEWEST, 1.0 / self._targets_seen)
        policy.value_mean = min(max(policy.value_mean + weight * away, -most), most)
        self._variance = min((1.0 - weight) * (self._variance + weight * away**2) + weight * variance, most**2)
        policy.value_std = max(self._variance**0.5, _MIN_STD)

    def update_from(self, rows: SampleBatch) -> None:
        """Takes a train batch's value targets into the moments, where learner steps do not."""

    def check_state(self, state: Mapping[str, Any] | None) -> None:
        """Raises a CheckpointError where values are normalised there and not here, or the other way round."""
        normalized = state is not None and bool(state["normalizes"])
        if normalized != self.normalizes:
            kinds = ("in reward units", "normalised (PopArt)")
            raise CheckpointError(
                f"the saved policy's network gives values {kinds[normalized]}, this one's {kinds[self.normalizes]}; "
                f"set normalize_values={normalized}, as the saved run had it"
            )

    def get_state(self) -> dict[str, Any]:
        """Returns μ, σ², the number of batches these come from, and the largest reward seen."""
        if not self.normalizes:
            return {"normalizes": False}
        return {
            "normalizes": True,
            "mean": self._policy.value_mean,
            "variance": self._variance,
            "targets_seen": self._targets_seen,
            "largest_reward": self._largest_reward,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        if not self.normalizes:
            return
        self._policy.value_mean, self._variance = float(state["mean"]), float(state["variance"])
        self._targets_seen, self._largest_reward = int(state["targets_seen"]), float(state["largest_reward"])
        self._policy.value_std = max(self._variance**0.5, _MIN_STD) if self._targets_seen else 1.0


class LayerPopArt(PopArt):
    """PopArt as the last layer of the network's values: they are in reward units, and stay what they are when it moves.

    Args:
        policy: See `PopArt`.
        normalizes: Whether the network shall have that layer.
    """

    #: The variables of networks that have it, and the policy's parts that they were found in.
    _variables: Sequence[tuple[Any, ...]] = ()
    _of: Any = ()

    def model_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Returns the `model` section of the config, with PopArt's layer where values are normalised."""
        return {**options, POPART_LAYER: True} if self.normalizes else options

    def check_model(self) -> None:
        """Leaves values as they are where the model has no layer of PopArt.

        Raises:
            ConfigError: If `normalize_values` asks for them.
        """
        policy = self._policy
        if not self.normalizes or (policy.model.popart_variables() and self._values_are_popart()):
            return
        if policy.config["normalize_values"]:
            raise ConfigError(
                f"normalize_values=True: got {type(policy.model).__name__}, which has no layer of PopArt; "
                "wanted the default network for vectors, a memory, or a model of your own whose value_function() is "
                "that of a FullyConnectedNetwork built from the model's own model_config. Leave the key out"
            )
        self.normalizes = False

    def _values_are_popart(self) -> bool:
        """Returns whether values come from a network with PopArt's layer: they move with its mean."""
        policy = self._policy
        if not policy.config["model"]["custom_model"]:
            return True
        space = policy.observation_space
        obs = np.zeros((1, *(space.shape or ())), space.dtype)
        weights = policy.get_weights()
        moved = {name: array + 1.0 if name.endswith(_MU) else array for name, array in weights.items()}
        before = method(policy, "values")(obs)
        policy.set_weights(moved)
        after = method(policy, "values")(obs)
        policy.set_weights(weights)
        return bool(np.abs(after - before).max() > _MOVED)

    def update_from(self, rows: SampleBatch) -> None:
        """Takes a train batch's value targets into the moments.

        Targets that are not finite move nothing: the loss, which they make so too, says whose they are.
        """
        if not self.normalizes or VALUE_TARGETS not in rows:  # postprocessing of the user's own may make none
            return
        policy = self._policy
        targets = np.asarray(rows[VALUE_TARGETS], np.float64)
        mean, spread = float(targets.mean()), float(np.square((targets - policy.value_mean) / policy.value_std).mean())
        if not (math.isfinite(mean) and math.isfinite(spread)):
            return
        self.update(mean, spread, np.asarray(rows[REWARDS]))
        policy.notice_own_parts()  # layers that a program has put in others' places have other variables
        if policy.model_altered or self._of is not policy.parts_in_use:
            self._of, self._variables = policy.parts_in_use, policy.model.popart_variables()
        for variables in self._variables:
            self._move(variables)
        policy._weights_changed()

    def _move(self, variables: tuple[Any, ...]) -> None:
        """Sets PopArt's layer to the moments, and the layer before it such that values stay what they are."""
        policy = self._policy
        mean, std = policy.value_mean, policy.value_std
        weight, bias, sigma, mu = (policy.to_numpy(variable) for variable in variables)
        old_std, old_mean = float(sigma.reshape(())), float(mu.reshape(()))
        moved = (
            weight * (old_std / std),
            (bias * old_std + (old_mean - mean)) / std,
            np.full((1, 1), std, np.float32),
            np.full(1, mean, np.float32),
        )
        for variable, array in zip(variables, moved, strict=True):
            policy.assign(variable, array)


class OutputPopArt(PopArt):
    """PopArt around any network: what its value function gives is normalised, and values move with the moments.

    The moments are among the policy's weights, under the names of the layer that `LayerPopArt` has: `popart.weight` is
    σ, float32 `[1, 1]`, and `popart.bias` is μ, float32 `[1]`.

    Args:
        policy: A policy whose loss reports `target_stats`.
        normalizes: Whether values are normalised.
    """

    def __init__(self, policy: Any, *, normalizes: bool) -> None:
        super().__init__(policy, normalizes=normalizes)
        self._said_moments = False

    def in_reward_units(self, values: Any) -> Any:
        """Returns V(s) [B] of what the model's value function returned."""
        return values * self._policy.value_std + self._policy.value_mean if self.normalizes else values

    def target_stats(self, targets: Tensor, mean: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Returns the mean of the value targets, and of ((v − μ) / σ)², which the moments follow.

        Args:
            targets: In reward units. Float `[B]`.
            mean: What takes the mean over the rows that count; see `valid_mean`.
        """
        if not self.normalizes:
            return {}
        spread = mean(ops.square((targets - self._policy.value_mean) / self._policy.value_std))
        return {"vf_target_mean": mean(targets), "vf_target_spread": spread}

    def after_learning(self, samples: SampleBatch, stats: Mapping[str, Any]) -> None:
        """Updates the moments from `target_stats`, which a loss, or statistics, of the user's own do not have."""
        if self.normalizes and "vf_target_mean" in stats:
            self.update(float(stats["vf_target_mean"]), float(stats["vf_target_spread"]), np.asarray(samples[REWARDS]))

    def extra_weights(self) -> dict[str, NDArray[Any]]:
        """Returns the moments; none where values are not normalised."""
        if not self.normalizes:
            return {}
        policy = self._policy
        return {_SIGMA: np.full((1, 1), policy.value_std, np.float32), _MU: np.full(1, policy.value_mean, np.float32)}

    def without_extra(self, weights: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the network's weights.

        Raises:
            ValueError: If there are moments, and values are not normalised here.
        """
        rest = {name: array for name, array in weights.items() if name not in (_SIGMA, _MU)}
        if len(rest) < len(weights) and not self.normalizes:
            raise ValueError(
                f"weights of {type(self._policy).__name__} do not fit: their values are normalised (PopArt), this "
                "policy's are in reward units; set normalize_values=True, as where they come from"
            )
        return rest

    def take_extra(self, weights: Mapping[str, Any]) -> None:
        """Takes the moments of weights; says so where these have none."""
        if _SIGMA in weights and _MU in weights:
            self._go_on_from(float(np.float32(weights[_MU]).item()), float(np.float32(weights[_SIGMA]).item()))
        elif self.normalizes and not self._said_moments:
            self._said_moments = True
            _LOGGER.warning(
                "weights without PopArt's moments were given to %s, which normalises values: they count as normalised "
                "by its own, mean %.6g and deviation %.6g, and will be learned anew where these do not fit. Give it "
                "all that get_weights() of such a policy returns, or set normalize_values=False",
                type(self._policy).__name__,
                self._policy.value_mean,
                self._policy.value_std,
            )

    def _go_on_from(self, mean: float, std: float) -> None:
        """Goes on from moments that came from elsewhere: later batches move them as little as those of a long run."""
        policy = self._policy
        if np.float32(mean) == np.float32(policy.value_mean) and np.float32(std) == np.float32(policy.value_std):
            return
        policy.value_mean, policy.value_std, self._variance = mean, std, std**2
        self._targets_seen = max(self._targets_seen, round(1.0 / _NEWEST))
        if self._gamma < 1.0:
            self._largest_reward = max(self._largest_reward, (1.0 - self._gamma) * max(abs(mean), std))
