"""Past steps that a model acts on, as memory of a `Program`: what `RecurrentContext` keeps while a policy acts."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.columns import ACTIONS, OBS, REWARDS
from rlframe.policy.recurrent_context import column_layout, depths_of
from rlframe.serving.export.program import Port, Program, State


class PastSteps:
    """Adds the states and the input that the views of a policy take, and gives the states back behind the step.

    Args:
        program: Where they are added, behind the recurrent states.
        policy: Its `acting_views()` say what is seen.
        observed: Name of the preprocessed observation `[B, ...]`.
        clip_rewards: How rewards are clipped.

    Attributes:
        columns: Names of the views' values, `[B, ...]` or `[B, steps, ...]`, by column.
    """

    def __init__(self, program: Program, policy: Any, observed: str, clip_rewards: bool | float | None) -> None:
        self._made, self._policy = program, policy
        self.columns: dict[str, str] = {}
        self._after: list[tuple[State, str]] = []
        self._actions: tuple[State, int] | None = None
        views = policy.acting_views()
        depths = depths_of(views)
        windows = {OBS: (observed, 0)}
        if ACTIONS in depths:
            windows[ACTIONS] = self._past_actions(depths[ACTIONS])
        if REWARDS in depths:
            windows[REWARDS] = self._past_rewards(depths[REWARDS], clip_rewards)
        if OBS in depths:
            windows[OBS] = self._past_observations(observed, depths[OBS])
        for name, view in views.items():
            column = view.data_col or name
            self.columns[name] = self._view(view, *windows[column], column)

    @property
    def wants_actions(self) -> bool:
        """Whether the action has to be given to `acted`."""
        return self._actions is not None

    def acted(self, action: str) -> None:
        """Takes the policy's own action, `[B, n]`, and gives all states back."""
        made = self._made
        if self._actions is not None:
            state, depth = self._actions
            if depth > 1:
                newest = made.rows(made.cast(action, state.given.dtype), 1, *state.given.shape[1:])
                action = made.beside([made.columns(state.given.name, 1, depth), newest])
            self._after.append((state, action))
        for state, value in self._after:
            give_back(made, state, value)

    def _past_actions(self, depth: int) -> tuple[str, int]:
        shape, dtype = column_layout(self._policy, ACTIONS)
        state = self._add_state((depth, *shape) if depth > 1 else shape, dtype)
        self._actions = (state, depth)
        return self._made.rows(state.given.name, depth, *shape), depth

    def _past_rewards(self, depth: int, clip_rewards: bool | float | None) -> tuple[str, int]:
        made = self._made
        made.reward = Port("reward", "float32")
        newest = made.rows(_clipped(made, made.reward.name, clip_rewards), 1)
        if depth == 1:
            return newest, depth
        state = self._add_state((depth - 1,), np.float32)
        window = made.beside([state.given.name, newest])
        self._after.append((state, made.columns(window, 1, depth)))
        return window, depth

    def _past_observations(self, observed: str, depth: int) -> tuple[str, int]:
        made = self._made
        shape, dtype = column_layout(self._policy, OBS)
        state = self._add_state((depth, *shape), dtype)
        window = made.beside([state.given.name, made.rows(made.cast(observed, dtype), 1, *shape)])
        self._after.append((state, made.columns(window, 1, depth + 1)))
        return window, depth

    def _view(self, view: Any, window: str, depth: int, column: str) -> str:
        """Returns the steps of a view, of a window in which the step now, where it is there, has the place `depth`."""
        made = self._made
        shape, _ = column_layout(self._policy, column)
        if column == OBS and depth == 0:
            return made.rows(window, len(view.shift_arr), *shape) if view.has_time_axis else window
        steps = [made.columns(window, depth + int(shift), depth + int(shift) + 1) for shift in view.shift_arr]
        return made.beside(steps) if view.has_time_axis else made.rows(steps[0], *shape)

    def _add_state(self, shape: tuple[int, ...], dtype: Any) -> State:
        return add_state(self._made, np.zeros(shape, dtype))


def add_state(program: Program, initial: Any) -> State:
    """Adds memory to a program, with what an episode begins with."""
    index = len(program.states)
    port = Port(f"state_in_{index}", initial.dtype.name, tuple(initial.shape))
    state = State(port, f"state_out_{index}", initial)
    program.states.append(state)
    return state


def give_back(program: Program, state: State, value: str) -> None:
    """Gives a value out as what the next step wants to see again."""
    shaped = program.rows(value, *state.given.shape)
    program.name_last(program.cast(shaped, state.given.dtype), state.made)


def _clipped(made: Program, x: str, how: bool | float | None) -> str:
    if how is True:
        above, below = (
            made.cast(pair, np.float32)
            for pair in (made.math("Greater", x, 0.0), made.add("Greater", [made.constant(0.0), x]))
        )
        return made.add("Sub", [above, below])
    return made.clip(x, -float(how), float(how)) if how else x


__all__ = ["PastSteps", "add_state", "give_back"]
