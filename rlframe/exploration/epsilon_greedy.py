"""Epsilon-greedy: the best action by its value, and now and then any other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlframe.exploration.exploration import Array, Exploration, State, greedy
from rlframe.exploration.uniform import MASKED, random_valid, uniform_sampler, valid_counts
from rlframe.utils.numpy import convert_to_numpy
from rlframe.utils.schedules import PiecewiseSchedule, make_schedule

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs


class EpsilonGreedy(Exploration):
    """Takes the deterministic action, but a uniformly random one with probability epsilon.

    The distribution's inputs are the actions' values; actions with a value of FLOAT_MIN (or minus infinity) are invalid
    and never drawn. In other than Discrete spaces, which have no such values, a random action is any one of the space;
    a policy that chooses for the parts of a Tuple or Dict one by one, each by its values, is given as many choices.
    In Discrete spaces log-likelihoods are those of the mixture, by which data can be weighted; in others they are 0.

    Args:
        action_space: The environment's action space.
        initial_epsilon: Epsilon at the beginning; above 1, a program has actions random until it falls below.
        final_epsilon: Epsilon from `epsilon_timesteps` on.
        epsilon_timesteps: Length of the straight descent between the two, in env steps.
        epsilon_schedule: Epsilon by env step in place of the three above: anything `make_schedule` takes.
        **base: See `Exploration`.

    Raises:
        UnsupportedSpaceException: If the space cannot be drawn from.
        ConfigError: If the schedule is none.
    """

    part_arguments = ("q_values", "explore", "timestep")

    def __init__(
        self,
        action_space: Any,
        *,
        initial_epsilon: float = 1.0,
        final_epsilon: float = 0.05,
        epsilon_timesteps: int = 100_000,
        epsilon_schedule: Any = None,
        **base: Unpack[ExplorationArgs],
    ) -> None:
        super().__init__(action_space, **base)
        self.epsilon_schedule = make_schedule(epsilon_schedule) or PiecewiseSchedule(
            [(0, initial_epsilon), (epsilon_timesteps, final_epsilon)], outside_value=final_epsilon
        )
        self._uniform = uniform_sampler(action_space, normalized=self.normalizes)
        self._by_value = isinstance(action_space, spaces.Discrete)
        self._nested = isinstance(self.action_space, (spaces.Tuple, spaces.Dict))

    def get_exploration_action(
        self, *, action_distribution: Any, timestep: int | None, explore: bool = True
    ) -> tuple[Any, Array]:
        """Returns actions `[B, …]` and their log-likelihoods, float32 `[B]`."""
        step = self.advance(timestep)
        actions, logp = greedy(action_distribution)
        if not explore:
            return actions, logp
        epsilon = min(float(self.epsilon_schedule(step)), 1.0)
        explored = self._explored(actions, logp, action_distribution, epsilon)
        if self._by_value and epsilon > 0 and self.wants_logp:
            logp = self._mixture_logp(explored == actions, action_distribution, epsilon)
        return explored, logp

    def _explored(self, actions: Any, logp: Array, action_distribution: Any, epsilon: float) -> Any:
        """Returns actions `[B, …]` with a random one in place of each with probability epsilon."""
        rows = len(logp)
        if rows == 1:  # what one environment asks for; no arrays are needed to decide
            if self.rng.random() >= epsilon:
                return actions
            chosen = np.ones(1, np.bool_)
        else:
            chosen = self.rng.random(rows) < epsilon
            if not chosen.any():
                return actions
        one_by_one = self._nested and isinstance(actions, np.ndarray) and actions.ndim == 1
        if not (self._by_value or one_by_one):
            return _replace(actions, self._uniform(self.rng, rows), chosen)
        return self._random_valid(action_distribution.inputs, actions, chosen)

    def _mixture_logp(self, is_greedy: Any, action_distribution: Any, epsilon: float) -> Array:
        """Returns log(epsilon / valid actions + (1 - epsilon) · greedy), float32 `[B]`.

        Args:
            is_greedy: Whether actions are the greedy ones, bool `[B]`.
            action_distribution: Its inputs are the actions' values `[B, A]`.
            epsilon: In (0, 1].
        """
        share = epsilon / valid_counts(action_distribution, int(self.action_space.n))
        if len(share) == 1:
            return np.array([math.log(share[0] + (1.0 - epsilon) * bool(is_greedy[0]))], np.float32)
        logp: Array = np.log(share + (1.0 - epsilon) * is_greedy).astype(np.float32)
        return logp

    def _random_valid(self, values: Any, actions: Array, chosen: Array) -> Array:
        """Returns actions `[B]` with the chosen rows replaced by random valid actions.

        Args:
            values: Action values `[B, A]`.
            actions: Greedy actions, integer `[B]`.
            chosen: Which rows to replace, bool `[B]`.
        """
        if not isinstance(values, np.ndarray):
            values = convert_to_numpy(values)
        if values.min() > MASKED:
            if len(actions) == 1:
                return np.array([int(self.rng.random() * values.shape[1])])
            return np.where(chosen, self.rng.integers(values.shape[1], size=len(actions)), actions)
        others, found = random_valid(self.rng, values)
        return np.where(chosen & found, others, actions)

    def action_probabilities(self, action_distribution: Any, timestep: int | None = None) -> Array | None:
        """Returns 1 − ε for the best action, and ε for all valid ones, float64 `[B, A]`; None if not Discrete."""
        if not self._by_value:
            return None
        valid = np.asarray(convert_to_numpy(action_distribution.inputs)) > MASKED
        epsilon = min(self.epsilon if timestep is None else float(self.epsilon_schedule(timestep)), 1.0)
        made: Array = epsilon * valid / np.maximum(valid.sum(axis=1, keepdims=True), 1)
        best, _ = greedy(action_distribution)
        made[np.arange(len(made)), best] += 1.0 - made.sum(axis=1)  # all of it where no action is valid
        return made

    @property
    def epsilon(self) -> float:
        """Epsilon at the last time step."""
        return float(self.epsilon_schedule(self.last_timestep))

    def get_state(self, sess: Any = None) -> State:
        """Returns the state of `Exploration`, and `cur_epsilon`."""
        return {**super().get_state(sess), "cur_epsilon": self.epsilon}


def _replace(actions: Any, others: Any, chosen: Array) -> Any:
    """Returns nested actions `[B, …]` with the chosen rows, bool `[B]`, taken from others."""
    if isinstance(actions, dict):
        return {key: _replace(part, others[key], chosen) for key, part in actions.items()}
    if isinstance(actions, tuple):
        return tuple(_replace(part, other, chosen) for part, other in zip(actions, others, strict=True))
    mask = chosen.reshape(-1, *[1] * (actions.ndim - 1))
    return np.where(mask, others.reshape(actions.shape), actions).astype(actions.dtype)
