"""How MADDPG's policies act: points on the simplex for choices, numbers in [-1, 1] for the rest; no framework."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.models.distributions import Categorical, Deterministic
from rlframe.policy.numpy_policy import NumpyPolicy
from rlframe.policy.policy import Policy
from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.seeding import make_rng
from rlframe.utils.spaces.simplex import Simplex

Array = NDArray[np.float32]


def gumbel(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns standard Gumbel noise, float32: −log E, E standard exponential."""
    return -np.log(rng.standard_exponential(shape)).astype(np.float32)


def softmax(logits: Array) -> Array:
    """Returns points on the simplex, float32 `[B, A]`."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    points: Array = weights / weights.sum(axis=-1, keepdims=True)
    return points


class RelaxedOneHot(Categorical):
    """A choice among A as a point on the simplex, from logits `[B, A]`, at temperature 1.

        y = softmax(logits + G), G standard Gumbel

    The largest component of y is a draw from the categorical distribution of the logits; y itself has gradients.

    Source: Jang et al. 2017, "Categorical Reparameterization with Gumbel-Softmax", eq. 2.
    """

    def sample(self) -> NDArray[Any]:
        """Draws points, float32 `[B, A]`."""
        self.last_sample = softmax(self.inputs + gumbel(self._generator(), self.inputs.shape))
        sample: NDArray[Any] = self.last_sample
        return sample

    def deterministic_sample(self) -> NDArray[Any]:
        """Returns the points without noise, float32 `[B, A]`; their largest component is the likeliest choice."""
        self.last_sample = softmax(self.inputs)
        sample: NDArray[Any] = self.last_sample
        return sample

    def logp(self, x: Any) -> NDArray[Any]:
        """Returns log-likelihoods of the choices that `x` stands for: points `[B, A]`, or numbers `[B]`."""
        given = np.asarray(x)
        return super().logp(given.argmax(-1) if given.dtype.kind == "f" else given)


class TanhAction(Deterministic):
    """The hyperbolic tangent of the inputs `[B, A]`: actions in [-1, 1].

    Args:
        inputs: Outputs of the actor. Float32 `[B, A]`.
        rng: Not used: nothing is drawn.
        shape: Shape of one action, of A numbers.
    """

    def __init__(self, inputs: Array, rng: np.random.Generator | None = None, *, shape: tuple[int, ...]) -> None:
        super().__init__(inputs, rng)
        self.shape = shape

    def sample(self) -> NDArray[Any]:
        """Returns the actions, float32 `[B, *shape]`."""
        self.last_sample = np.tanh(self.inputs).reshape(len(self.inputs), *self.shape)
        sample: NDArray[Any] = self.last_sample
        return sample


def is_choice(space: Any) -> bool:
    """Returns whether actions of a space are points on the simplex for MADDPG: Discrete, or Simplex itself."""
    return isinstance(space, (gym.spaces.Discrete, Simplex))


def action_size(space: Any, agent: int) -> int:
    """Returns how many numbers stand for an action in a critic.

    Raises:
        UnsupportedSpaceException: If MADDPG cannot act in the space.
    """
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, Simplex) and len(space.shape or ()) == 1:
        return space.dim
    if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating) and space.is_bounded():
        return math.prod(space.shape)
    raise UnsupportedSpaceException(
        f"agent {agent} has the action space {space}; MADDPG needs Discrete, Simplex of one dimension, or a Box of "
        "floats that is bounded everywhere"
    )


class MADDPGActing(Policy):
    """How MADDPG's policies act, learning or not.

    A policy's action is what its critic sees: a point on the simplex for Discrete and Simplex spaces, numbers in
    [-1, 1] for a Box. Environments with a Discrete space get the number of the largest component.
    """

    defaults_from = "rlframe.agents.maddpg.maddpg:DEFAULT_CONFIG"

    def distribution(self, dist_inputs: Array) -> Any:
        """Returns the NumPy action distribution for the actor's outputs [B, A]."""
        if is_choice(self.action_space):
            return RelaxedOneHot(dist_inputs, self._action_rng)
        return TanhAction(dist_inputs, self._action_rng, shape=tuple(self.action_space.shape or ()))

    def _act(
        self,
        obs: NDArray[Any],
        explore: bool,
        timestep: int | None,
        wanted: tuple[str, ...] | None,
        inputs: Mapping[str, NDArray[Any]] | None,
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Returns actions and the wanted columns; None wants all."""
        actions, columns = super()._act(obs, explore, timestep, wanted, inputs)
        if isinstance(self.action_space, gym.spaces.Discrete) and actions.ndim == 1:
            # Some explorations choose a number: a corner of the simplex.
            actions = np.eye(int(self.action_space.n), dtype=np.float32)[actions]
        return actions, columns

    def to_env_actions(self, actions: Any, *, unsquash: bool | None = None, clip: bool | None = None) -> Any:
        """Returns actions [B, ...] of the policy's space as actions of the environment's space."""
        chosen = np.asarray(actions).argmax(-1) if isinstance(self.action_space, gym.spaces.Discrete) else actions
        return super().to_env_actions(chosen, unsquash=unsquash, clip=clip)

    def from_env_action(self, action: Any) -> Any:
        """Returns one action of the environment's space as the policy's space has it."""
        own = super().from_env_action(action)
        if isinstance(self.action_space, gym.spaces.Discrete):
            return np.eye(int(self.action_space.n), dtype=np.float32)[int(own)]
        return own

    def exploration_options(self) -> Mapping[str, Any]:
        """Returns the exploration's config: GaussianNoise for a Box, whose actors are deterministic, unless named."""
        options = super().exploration_options()
        sampled = options.get("type", "StochasticSampling") == "StochasticSampling"
        return {"type": "GaussianNoise"} if sampled and not is_choice(self.action_space) else options

    def _create_exploration(self) -> Any:
        # Agents may share a seed: without streams of their own they would all draw the same.
        agent, stream = int(self.config["agent_id"]), max(int(self.config.get("worker_index", 0)), 1)
        self._action_rng = make_rng(self._policy_seed, "action", stream, agent)
        self._exploration_rng = make_rng(self._policy_seed, "exploration", stream, agent)
        self.noise_rng = make_rng(self._policy_seed, "relaxation", agent)
        return super()._create_exploration()


class MADDPGNumpyPolicy(MADDPGActing, NumpyPolicy):
    """Acts on remote workers, with weights and NumPy alone."""
