"""View requirements: which columns, at which steps, a model or a loss wants to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import NEXT_OBS, OBS, STATE_IN_PREFIX, STATE_OUT_PREFIX
from rlframe.data.nested import Column, first_leaf, map_nested


@lru_cache(maxsize=1)
def _any_number() -> Any:
    from gymnasium.spaces import Box

    return Box(-np.inf, np.inf, shape=())


def _as_programs_know_it(space: Any) -> Any:
    """Returns a space that the old gym's classes know, too, where a program has imported that."""
    from rlframe.utils.spaces.old_gym import convert_spaces  # brings Gymnasium, which batches alone do without

    return convert_spaces(_any_number() if space is None else space)


class ViewRequirement:
    """One column as a model sees it: another column, shifted in time.

    Attributes:
        data_col: Column the data comes from; None means the column of the requirement's own name.
        space: Space of one step's data (any single number where not given).
        shift: Step seen relative to the current one: an int, a list of ints, or a string "first:last", both included
            and both relative ("-3:0" is the last four steps). More than one step adds an axis behind the rows' one.
        shift_arr: The shifts as int64 `[steps]`.
        looks_ahead: Whether it shows later steps alone.
        shift_from: First shift where `shift` is a string, else None.
        shift_to: Last shift where `shift` is a string, else None.
        index: Row of the trajectory to take for every step, instead of a shifted one; None to shift.
        batch_repeat_value: Rows that share one entry of this column.
        used_for_compute_actions: Whether acting needs it.
        used_for_training: Whether the loss needs it.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - RLlib's signature
        self,
        data_col: str | None = None,
        space: Any = None,
        shift: int | str | Sequence[int] = 0,
        index: int | None = None,
        batch_repeat_value: int = 1,
        used_for_compute_actions: bool = True,
        used_for_training: bool = True,
    ) -> None:
        """Checks the shift.

        Raises:
            ValueError: If `shift` is not an int, a list of ints or "first:last" with first <= last.
        """
        self.data_col = data_col
        self.space = _as_programs_know_it(space)
        self.shift: int | str | list[int]
        if isinstance(shift, str):
            self.shift = shift
        else:
            self.shift = [int(part) for part in shift] if isinstance(shift, (Sequence, np.ndarray)) else int(shift)
        self.shift_from: int | None = None
        self.shift_to: int | None = None
        if isinstance(shift, str):
            self.shift_from, self.shift_to = _bounds(shift)
        self.shift_arr = self._shift_array()
        self.looks_ahead = bool(self.shift_arr.min() > 0)
        self.index = index
        self.batch_repeat_value = batch_repeat_value
        self.used_for_compute_actions = used_for_compute_actions
        self.used_for_training = used_for_training

    def _shift_array(self) -> NDArray[np.int64]:
        if self.shift_from is not None and self.shift_to is not None:
            return np.arange(self.shift_from, self.shift_to + 1)
        return np.atleast_1d(np.asarray(self.shift, np.int64))

    @property
    def has_time_axis(self) -> bool:
        """Whether the view has an axis of several steps behind the rows'."""
        return not isinstance(self.shift, int)

    def view(self, data: Column) -> Column:
        """Returns what is seen at every step of one trajectory.

        Args:
            data: The source column of one whole trajectory, `[T, ...]` or nested.

        Returns:
            `[T, ...]`, or `[T, steps, ...]` for several shifts. Steps outside the trajectory are zeros.
        """
        steps = np.arange(len(first_leaf(data)))
        return self.view_at(data, steps)

    def view_at(self, data: Column, steps: NDArray[np.integer[Any]]) -> Column:
        """Returns what is seen at the given steps of one trajectory.

        Args:
            data: The source column of one trajectory, `[T, ...]` or nested.
            steps: Step numbers, int `[n]`; they may lie outside `[0, T)`.

        Returns:
            `[n, ...]`, or `[n, steps, ...]` for several shifts. Steps outside the trajectory are zeros.
        """
        if self.index is not None:
            wanted = np.full((len(steps), 1), self.index % max(len(first_leaf(data)), 1))
        else:
            wanted = steps[:, None] + self.shift_arr
        if not self.has_time_axis:
            wanted = wanted[:, 0]
        return map_nested(lambda leaf: _gather(np.asarray(leaf), wanted), data)

    def __repr__(self) -> str:
        return f"ViewRequirement(data_col={self.data_col!r}, shift={self.shift!r}, space={self.space})"


def _bounds(shift: str) -> tuple[int, int]:
    first, separator, last = shift.partition(":")
    try:
        bounds = int(first), int(last)
    except ValueError:
        bounds = 1, 0
    if not separator or bounds[0] > bounds[1]:
        raise ValueError(f"Got shift={shift!r}; wanted an int, a list of ints, or 'first:last' with first <= last.")
    return bounds


def _gather(array: NDArray[Any], wanted: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Returns `array[wanted]`, zeros where `wanted` lies outside."""
    inside = (wanted >= 0) & (wanted < len(array))
    seen: NDArray[Any] = np.zeros((*wanted.shape, *array.shape[1:]), array.dtype)
    seen[inside] = array[wanted[inside]]
    return seen


def single_step_columns(
    batch: Mapping[str, Any], rows: int, view_requirements: Mapping[str, ViewRequirement], index: int | str = "last"
) -> dict[str, Column]:
    """Returns the columns a model needs to act at one step of a trajectory, each with one row.

    Args:
        batch: One trajectory, or the newest part of one.
        rows: How many rows it has.
        view_requirements: What the model wants to see; those not used for acting are left out.
        index: A row, or "last" for the step after the last row, whose observation is the last `new_obs`.

    Raises:
        ValueError: If `index` is another string.
    """
    if isinstance(index, str) and index != "last":
        raise ValueError(f"Got index={index!r}; wanted a row number or 'last'.")
    step = rows if isinstance(index, str) else index + rows * (index < 0)
    wanted = {
        key: view
        for key, view in view_requirements.items()
        if view.used_for_compute_actions and (not key.startswith(STATE_IN_PREFIX) or (view.data_col or key) in batch)
    }
    for given in [key for key in batch if key.startswith(STATE_OUT_PREFIX)]:
        wanted.setdefault(given.replace(STATE_OUT_PREFIX, STATE_IN_PREFIX), ViewRequirement(given, shift=-1))
    return {key: _one_step(batch, rows, key, view, step) for key, view in wanted.items()}


def _one_step(batch: Mapping[str, Any], rows: int, key: str, view: ViewRequirement, step: int) -> Column:
    if step < rows and key in batch:
        return map_nested(lambda leaf: leaf[step : step + 1], batch[key])
    data = batch[view.data_col or key]
    if (view.data_col or key) == OBS:
        # The trajectory has one observation more than rows: what the last action led to.
        data = map_nested(lambda obs, after: np.concatenate([obs, after[-1:]]), data, batch[NEXT_OBS])
    seen = view.view_at(data, np.array([step]))
    if view.has_time_axis and key in batch and step == rows > 0:
        seen = map_nested(lambda new, old: _keep_history(new, old[-1:], view, rows), seen, batch[key])
    return seen


def _keep_history(seen: NDArray[Any], before: NDArray[Any], view: ViewRequirement, rows: int) -> NDArray[Any]:
    """Fills steps that lie before the batch from the view of its last row, which knew them.

    Args:
        seen: View at step `rows`, `[1, steps, ...]`.
        before: View at step `rows - 1`, `[1, steps, ...]`.
        view: The requirement, whose shifts grow by one.
        rows: Rows of the batch.
    """
    shifts = view.shift_arr
    if not np.array_equal(shifts, np.arange(shifts[0], shifts[0] + len(shifts))):
        return seen
    older = rows + shifts < 0
    older[-1] = False
    seen[:, older] = before[:, 1:][:, older[:-1]]
    return seen
