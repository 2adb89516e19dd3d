"""What acting needs beside the observation: recurrent states, and columns of the steps before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTIONS,
    AGENT_INDEX,
    ENV_ID,
    EPS_ID,
    NEXT_OBS,
    OBS,
    REWARDS,
    STATE_IN_PREFIX,
    STATE_OUT_PREFIX,
    UNROLL_ID,
    T,
)
from rlframe.data.nested import Column, map_nested
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.view_requirements import ViewRequirement
from rlframe.models.catalog import ModelCatalog
from rlframe.utils.errors import ConfigError

#: Columns whose past can be seen when acting.
_KEPT = (OBS, ACTIONS, REWARDS)
_ALL = slice(None)
#: Columns that say whose row it is, and when.
LABELS = (EPS_ID, ENV_ID, AGENT_INDEX, UNROLL_ID, T)


class RecurrentContext:
    """Recurrent states and past columns of B trajectories that one policy acts in.

    In turn: `inputs(obs)` before acting, `acted` behind it, `rewarded` when the rewards are there, and `begin` for
    those that begin.

    Args:
        policy: Its `get_initial_state()` and `acting_views()` say what is kept.
        size: B.

    Raises:
        ConfigError: If a view wants what cannot be known when acting.
    """

    def __init__(self, policy: Any, size: int) -> None:
        self._size = size
        self._policy = policy
        self._windows = {
            index: view
            for index, state in enumerate(policy.get_initial_state())
            if (view := _window_of(policy, index, np.asarray(state))) is not None
        }
        self._initial = self._initial_states()
        self._views: dict[str, ViewRequirement] = policy.acting_views()
        self._states = [np.repeat(state[None], size, axis=0) for state in self._initial]
        self._past = {
            column: np.zeros((size, depth, *shape), dtype)
            for column, depth in depths_of(self._views).items()
            for shape, dtype in [column_layout(policy, column)]
        }

    def _initial_states(self) -> list[NDArray[Any]]:
        """Returns the policy's initial states; for a window over steps, one for each step that it reaches back."""
        states = [np.asarray(state) for state in self._policy.get_initial_state()]
        for index, view in self._windows.items():
            states[index] = np.repeat(states[index][None], -int(view.shift_arr.min()), axis=0)
        return states

    def inputs(self, obs: NDArray[Any], indices: Any = _ALL) -> dict[str, NDArray[Any]]:
        """Returns what acting on `obs` needs: `state_in_i [B, ...]`, and views, `[B, ...]` or `[B, steps, ...]`.

        Args:
            obs: Preprocessed observations, `[B, ...]`.
            indices: Whose they are, int `[B]`; all in order when not given.
        """
        columns: dict[str, NDArray[Any]] = {
            f"{STATE_IN_PREFIX}{i}": state[indices] for i, state in enumerate(self._states)
        }
        for index, view in self._windows.items():
            name = f"{STATE_IN_PREFIX}{index}"
            columns[name] = columns[name][:, view.shift_arr]
        for name, view in self._views.items():
            steps = [self._step(view.data_col or name, int(shift), obs, indices) for shift in view.shift_arr]
            columns[name] = np.stack(steps, axis=1) if view.has_time_axis else steps[0].copy()
        return columns

    def _step(self, column: str, shift: int, obs: NDArray[Any], indices: Any) -> NDArray[Any]:
        return obs if shift == 0 else self._past[column][indices, shift]

    def acted(
        self,
        obs: NDArray[Any],
        actions: NDArray[Any],
        columns: Mapping[str, NDArray[Any]],
        indices: Any = _ALL,
    ) -> None:
        """Takes what was acted on, the actions [B, ...], and the `state_out_i` among `columns`."""
        for index in range(len(self._states)):
            # A new array where all change: what `inputs` gave out stays what it was.
            given = np.array(columns[f"{STATE_OUT_PREFIX}{index}"])
            if index in self._windows:
                given = np.concatenate([self._states[index][indices][:, 1:], given[:, None]], axis=1)
            if indices is _ALL:
                self._states[index] = given
            else:
                self._states[index][indices] = given
        self._push(OBS, obs, indices)
        self._push(ACTIONS, actions, indices)

    def rewarded(self, rewards: NDArray[np.float32], indices: Any = _ALL) -> None:
        """Takes the rewards [B] of the actions taken, as learning sees them (clipped where they are)."""
        self._push(REWARDS, rewards, indices)

    def _push(self, column: str, newest: Any, indices: Any) -> None:
        past = self._past.get(column)
        if past is not None:
            seen = past[indices]
            past[indices] = np.concatenate([seen[:, 1:], np.asarray(newest, past.dtype)[:, None]], axis=1)

    def grow(self, size: int) -> None:
        """Makes room for `size` trajectories; those that are there stay as they are."""
        more = size - self._size
        if more <= 0:
            return
        self._states = [
            np.concatenate([state, np.repeat(initial[None], more, axis=0)])
            for state, initial in zip(self._states, self._initial, strict=True)
        ]
        self._past = {
            column: np.concatenate([past, np.zeros((more, *past.shape[1:]), past.dtype)])
            for column, past in self._past.items()
        }
        self._size = size

    def begin(self, index: int) -> None:
        """Forgets: a trajectory begins, with the initial state that the policy gives it."""
        for state, initial in zip(self._states, self._initial_states(), strict=True):
            state[index] = initial
        for past in self._past.values():
            past[index] = 0

    def get_state(self) -> dict[str, Any]:
        """Returns all that is kept, as arrays."""
        states = {str(i): state.copy() for i, state in enumerate(self._states)}
        return {"states": states, "past": {column: past.copy() for column, past in self._past.items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self._states = [np.array(state["states"][str(i)]) for i in range(len(self._states))]
        for column, past in self._past.items():
            self._past[column] = np.array(state["past"][column], past.dtype)
        # One size for all: that of whatever there is.
        self._size = max([len(part) for part in (*self._states, *self._past.values())], default=self._size)


def _window_of(policy: Any, index: int, initial: NDArray[Any]) -> ViewRequirement | None:
    """Returns the view of a state that a policy without a model declares over several of its `state_out_i`.

    Models that declare one have the window as their state (`rlframe.models.state_windows`), and give it moved on.
    """
    view: ViewRequirement | None = policy.view_requirements.get(f"{STATE_IN_PREFIX}{index}")
    source = policy.view_requirements.get(f"{STATE_OUT_PREFIX}{index}")
    if getattr(getattr(policy, "model", None), "state_windows", None):
        return None
    if view is None or source is None or not view.has_time_axis or source.space.shape != initial.shape:
        return None
    return view if int(view.shift_arr.max()) < 0 else None


def views_after(
    views: Mapping[str, ViewRequirement], batch: Mapping[str, Any], rows: NDArray[np.int64], next_obs: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Returns the views as they stand one step behind the given rows.

    Args:
        views: Shifts of at most 0.
        batch: Rows with the views as columns, and the columns that they are made of.
        rows: Row numbers, int `[n]`.
        next_obs: The observations behind these rows, `[n, ...]`.

    Returns:
        Columns `[n, ...]`, or `[n, steps, ...]`.
    """
    made = {}
    for name, view in views.items():
        shifts = view.shift_arr.tolist()
        data = batch[view.data_col or name]

        def at(shift: int, name: str = name, shifts: list[int] = shifts, data: Any = data) -> NDArray[Any]:
            if shift == 0:
                return next_obs
            if shift == -1:
                return np.asarray(data[rows])
            # One step later, what was seen at `shift + 1` is seen at `shift`.
            if shift + 1 in shifts:
                return np.asarray(batch[name][rows][:, shifts.index(shift + 1)])
            return _earlier(batch, data, rows, -1 - shift)

        steps = [at(shift) for shift in shifts]
        made[name] = np.stack(steps, axis=1) if view.has_time_axis else steps[0]
    return made


def views_before(
    views: Mapping[str, ViewRequirement], batch: Mapping[str, Any], ends: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """Returns the views as they stood when the rows of a batch were acted on.

    Args:
        views: Shifts of at most 0.
        batch: Rows in time order, with the columns that the views are made of.
        ends: Which rows are the last of their trajectories, bool `[B]`.

    Returns:
        Columns `[B, ...]`, or `[B, steps, ...]`; zeros where a trajectory had not begun.
    """
    rows = np.arange(len(ends))
    first = np.flatnonzero(np.append(True, ends[:-1]))
    since = rows - np.repeat(first, np.diff(np.append(first, len(ends))))
    made = {}
    for name, view in views.items():
        data = np.asarray(batch[view.data_col or name])
        steps = [data[np.maximum(rows + shift, 0)].copy() for shift in view.shift_arr.tolist()]
        for shift, step in zip(view.shift_arr.tolist(), steps, strict=True):
            step[since < -shift] = 0
        made[name] = np.stack(steps, axis=1) if view.has_time_axis else steps[0]
    return made


def _earlier(batch: Mapping[str, Any], data: Any, rows: NDArray[np.int64], steps: int) -> NDArray[Any]:
    """Returns a column `steps` rows before the given ones, zeros where that is of another trajectory."""
    before = rows - steps
    same = before >= 0
    for key in (EPS_ID, AGENT_INDEX):
        if key in batch:
            labels = np.asarray(batch[key])
            same &= labels[np.maximum(before, 0)] == labels[rows]
    found = np.asarray(data[np.maximum(before, 0)]).copy()
    found[~same] = 0
    return found


def add_later_steps(views: Mapping[str, ViewRequirement], batch: SampleBatch) -> None:
    """Adds columns of later steps, such as the next action, to rows in the order in which they were sampled.

    Args:
        views: Those that show later steps alone are made, of columns that are there; zeros behind the last row.
        batch: Trajectories, one after the other.
    """
    for name, view in views.items():
        column = view.data_col or name
        # Who samples knows the next observation itself, also that behind a trajectory.
        if name == NEXT_OBS or not view.looks_ahead or name in batch or column not in batch:
            continue
        # What is seen one step later is there also behind a trajectory's last row.
        source, fewer = (NEXT_OBS, 1) if column == OBS and NEXT_OBS in batch else (column, 0)
        steps = [_later(batch, batch[source], int(shift) - fewer) for shift in view.shift_arr]
        batch[name] = map_nested(lambda *at: np.stack(at, axis=1), *steps) if view.has_time_axis else steps[0]


def _later(batch: SampleBatch, data: Column, steps: int) -> Column:
    """Returns a column `steps` rows behind each row, zeros where that is of another trajectory."""
    rows = np.arange(batch.count)
    behind = np.minimum(rows + steps, batch.count - 1)
    same = rows + steps < batch.count
    for key in (EPS_ID, AGENT_INDEX):
        if key in batch:
            same &= np.asarray(batch[key])[behind] == np.asarray(batch[key])

    def moved(leaf: Any) -> NDArray[Any]:
        found = np.asarray(leaf)[behind]
        found[~same] = 0
        return found

    return map_nested(moved, data)


def comes_of_acting(name: str, view: ViewRequirement) -> bool:
    """Returns whether a view shows what a step brings about, or a later step: nobody can act on it."""
    column = view.data_col or name
    return column not in LABELS and int(view.shift_arr.max()) >= (1 if column == OBS else 0)


def can_be_seen_acting(name: str, view: ViewRequirement) -> bool:
    """Returns whether what a view shows is there when its row's action is chosen."""
    column = view.data_col or name
    return column in _KEPT and view.index is None and int(view.shift_arr.max()) <= (0 if column == OBS else -1)


def depths_of(views: Mapping[str, ViewRequirement]) -> dict[str, int]:
    """Returns how many steps back each column is seen; columns that are only seen now are left out."""
    depths: dict[str, int] = {}
    for name, view in views.items():
        column = view.data_col or name
        if not can_be_seen_acting(name, view):
            raise ConfigError(
                f"view_requirements[{name!r}]: got column {column!r}, shift {view.shift!r}; when acting there are only "
                "obs (shift 0 or less), actions and rewards (shift -1 or less); for what only learning needs, say "
                "used_for_compute_actions=False"
            )
        depth = -int(view.shift_arr.min())
        if depth > 0:
            depths[column] = max(depths.get(column, 0), depth)
    return depths


def column_layout(policy: Any, column: str) -> tuple[tuple[int, ...], Any]:
    """Returns shape and dtype of one step of the column `obs`, `actions` or `rewards`."""
    if column == REWARDS:
        return (), np.float32
    if column == ACTIONS:
        dtype, shape = ModelCatalog.get_action_shape(policy.action_space, framework="numpy")
        sampled = np.float32 if dtype == np.float64 else dtype
        return tuple(int(size or 0) for size in shape[1:]), sampled
    space = policy.observation_space
    dtype = np.dtype(space.dtype or np.float32)
    filtered = policy._obs_filter is not None
    return tuple(space.shape or ()), np.float32 if dtype == np.float64 or filtered else dtype
