"""MBMPO: advantages against a regression, and the policy with its learned dynamics; for both frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.meta_policy import MetaPolicy
from rlframe.agents.mbmpo.model_ensemble import DynamicsEnsemble
from rlframe.data.column_dict import trajectory_ends
from rlframe.data.columns import ADVANTAGES, OBS, REWARDS
from rlframe.data.returns import discount_cumsum, gae
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.backends import lazy_policies
from rlframe.utils.errors import UnsupportedSpaceException

if TYPE_CHECKING:
    from rlframe.agents.mbmpo.mbmpo import MBMPOConfig

Column = NDArray[np.float64]


def linear_baseline(obs: NDArray[Any], steps: NDArray[Any], returns: Column, ridge: float = 1e-5) -> Column:
    """Returns what a regression expects of each row's return, float `[B]`.

        w = argmin ‖F w − R‖² + ridge ‖w‖²,    F = (s, s², t, t², t³, 1),    s within ±10, t in hundreds of steps

    Args:
        obs: s. Float `[B, D]`.
        steps: t, from 0 in each trajectory. `[B]`.
        returns: R. `[B]`.
        ridge: Weight of w itself.

    Source: Duan et al. 2016, "Benchmarking Deep Reinforcement Learning for Continuous Control", appendix.
    """
    within, t = np.clip(np.asarray(obs, np.float64), -10, 10), np.asarray(steps, np.float64)[:, None] / 100
    features = np.concatenate([within, within**2, t, t**2, t**3, np.ones_like(t)], 1)
    squares = features.T @ features + ridge * np.eye(features.shape[1])
    found: Column = features @ np.linalg.lstsq(squares, features.T @ returns, rcond=None)[0]
    return found


def baseline_advantages(batch: SampleBatch, gamma: float, lambda_: float) -> SampleBatch:
    """Estimates `advantages` anew against `linear_baseline`, fitted to the batch; nothing follows ends."""
    ends = trajectory_ends(batch)
    places, rewards = np.flatnonzero(ends)[:-1] + 1, np.asarray(batch[REWARDS], np.float64)
    returns = np.concatenate([discount_cumsum(part, gamma) for part in np.split(rewards, places)])
    steps = np.concatenate([np.arange(len(part)) for part in np.split(rewards, places)])
    values = linear_baseline(batch[OBS], steps, returns)
    following = np.where(ends, 0.0, np.roll(values, -1))
    batch[ADVANTAGES] = gae(rewards, values, following, ends, ends, gamma, lambda_)[0]
    return batch


class MBMPOPolicy(MetaPolicy):
    """A policy from which one gradient step adapts to each of several learned models of the environment.

    Attributes:
        dynamics_model: The models; fitted on the driver alone.

    Source: Clavera et al. 2018, "Model-Based Reinforcement Learning via Meta-Policy Optimization", algorithm 1.
    """

    config: MBMPOConfig
    defaults_from = "rlframe.agents.mbmpo.mbmpo:DEFAULT_CONFIG"

    def prepare(self) -> None:
        """Makes the models, schedules and the weights of divergences; checks the spaces."""
        shape = getattr(self.observation_space, "shape", None) or ()
        original = getattr(self.observation_space, "original_space", self.observation_space)
        if len(shape) != 1 or not hasattr(original, "low"):
            raise UnsupportedSpaceException(
                f"MBMPO: got the observation space {original}; wanted a Box of one dimension, whose numbers the models "
                "predict: flatten observations in an environment wrapper, or use PPO"
            )
        space: Any = self.action_space
        vector = hasattr(space, "low") and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating)
        if not vector and not isinstance(self.action_space_struct, gym.spaces.Discrete):
            raise UnsupportedSpaceException(
                f"MBMPO: got the action space {space}; wanted Discrete, or a Box of floats of one dimension: reshape "
                "actions in an environment wrapper, or use PPO"
            )
        super().prepare()
        made = self.config["dynamics_model"]["custom_model"] or DynamicsEnsemble
        self.dynamics_model = self.components["dynamics"] = made(self)

    def estimate_advantages(self, batch: SampleBatch) -> SampleBatch:
        """Estimates the advantages of one task's batch; see `baseline_advantages`."""
        config = self.config
        return baseline_advantages(batch, config["gamma"], config["lambda"] if config["use_gae"] else 1.0)

    @property
    def num_tasks(self) -> int:
        """Tasks of an update: each worker has one; without workers there is one for each model."""
        return int(self.config.num_workers or self.config["dynamics_model"]["ensemble_size"])


__getattr__ = lazy_policies(__name__, MBMPOPolicy, MBMPOTorchPolicy="torch", MBMPOTFPolicy="tf")
