"""Logged trajectories of a decision graph: read, checked, completed by what follows, split and cut into windows."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlframe.revive.data_files import read_arrays
from rlframe.revive.graph_file import near
from rlframe.revive.nodes import DONE
from rlframe.utils.errors import DataError

if TYPE_CHECKING:
    from rlframe.revive.columns import Column
    from rlframe.revive.functions import RewardFunction
    from rlframe.revive.graph import DecisionGraph
    from rlframe.revive.nodes import Node

__all__ = ["GraphData", "Windows"]

_SAME = 1e-4  # largest relative difference between a next step and the row after it, or of an expert function
_ROUNDED = 1e-6  # what float32 rounds away

Arrays = dict[str, NDArray[np.float32]]
Masks = dict[str, NDArray[np.bool_]]


class Windows(NamedTuple):
    """Parts of trajectories, of one length.

    Attributes:
        arrays: By node, float32 `[T, B, columns]` in the user's units.
        mask: Likewise, True where the value was logged.
        valid: Which steps are within the trajectory, bool `[T, B]`; behind its end its last row is repeated.
        rows: Which rows of the data they are, `[T, B]`.
    """

    arrays: Arrays
    mask: Masks
    valid: NDArray[np.bool_]
    rows: NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class GraphData:
    """Rows of all nodes, trajectory after trajectory.

    Attributes:
        graph: Whose nodes they are.
        arrays: By node, derived ones too, float32 `[N, columns]` in the user's units. A value that was not logged is
            that of the nearest earlier row of its trajectory that has one, else of the nearest later one.
        mask: Likewise, True where the value was logged.
        ends: Where trajectories end, exclusive.
        done: Whether the process ended with the row, float32 `[N, 1]`.
        steps: Which step of its trajectory a row is, `[N]`.
        trajectory: Which trajectory of the file a row is of, `[N]`.
    """

    graph: DecisionGraph
    arrays: Arrays
    mask: Masks
    ends: NDArray[np.int64]
    done: NDArray[np.float32]
    steps: NDArray[np.int64]
    trajectory: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.ends[-1])

    @property
    def trajectories(self) -> list[slice]:
        """Rows of each trajectory."""
        begins = [0, *self.ends[:-1].tolist()]
        return [slice(begin, end) for begin, end in zip(begins, self.ends.tolist(), strict=True)]

    @classmethod
    def from_file(cls, path: str | Path, graph: DecisionGraph, *, ignore_check: bool = False) -> GraphData:
        """Reads `.npz` or `.h5` with an array per node, `.parquet` or `.csv` with a column per column.

        Args:
            path: The file; nothing is written beside it.
            graph: Its expert functions are compared with the data where they are loaded.
            ignore_check: Whether next steps and functions that disagree with the data are a warning, no error.

        Raises:
            DataError: What is wrong, in one sentence with file, node, column and row.
        """
        return cls.from_arrays(read_arrays(Path(path), graph), graph, source=str(path), ignore_check=ignore_check)

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, Any], graph: DecisionGraph, *, source: str = "data", ignore_check: bool = False
    ) -> GraphData:
        """Makes data of arrays `[N, columns]` by node, with `index` and `done` where there are such.

        Args:
            arrays: As in an `.npz` file.
            graph: Whose nodes they are.
            source: Where they come from, for messages.
            ignore_check: As in `from_file`.
        """
        return _Intake(dict(arrays), graph, source, ignore_check).result()

    def take(self, parts: Sequence[slice]) -> GraphData:
        """Returns some parts of trajectories, each of which becomes a trajectory."""
        rows = np.concatenate([np.arange(part.start, part.stop) for part in parts])
        return dataclasses.replace(
            self,
            arrays={name: values[rows] for name, values in self.arrays.items()},
            mask={name: values[rows] for name, values in self.mask.items()},
            ends=np.cumsum([part.stop - part.start for part in parts]),
            done=self.done[rows],
            steps=self.steps[rows],
            trajectory=self.trajectory[rows],
        )

    def split(
        self, ratio: float = 0.5, mode: Literal["outside_traj", "inside_traj"] = "outside_traj", seed: int = 0
    ) -> tuple[GraphData, GraphData]:
        """Returns data to train with and data to validate with.

        Args:
            ratio: Share of the second, above 0 and below 1.
            mode: `outside_traj` gives whole trajectories to either; `inside_traj`, and a single trajectory, are cut in
                time.
            seed: Which trajectories are drawn.

        Raises:
            DataError: There are too few rows for two parts.
        """
        if not 0 < ratio < 1:
            raise DataError(f"the share to validate with is {ratio}; wanted one above 0 and below 1")
        parts = self.trajectories
        if mode == "inside_traj" or len(parts) == 1:
            cuts = [part.start + round((part.stop - part.start) * (1 - ratio)) for part in parts]
            first = [slice(part.start, cut) for part, cut in zip(parts, cuts, strict=True) if cut > part.start]
            second = [slice(cut, part.stop) for part, cut in zip(parts, cuts, strict=True) if cut < part.stop]
        else:
            held_out = np.random.default_rng(seed).permutation(len(parts))[: max(1, round(len(parts) * ratio))]
            held = set(held_out.tolist())
            first = [part for place, part in enumerate(parts) if place not in held]
            second = [part for place, part in enumerate(parts) if place in held]
        if not first or not second:
            raise DataError(f"{len(self)} rows in {len(parts)} trajectories do not make two parts; log more")
        return self.take(first), self.take(second)

    def windows(self, horizon: int, count: int | None = None, rng: np.random.Generator | None = None) -> Windows:
        """Returns windows of at most `horizon` steps.

        Args:
            horizon: Longest window, steps.
            count: How many are drawn at random; None takes all that begin `horizon` steps after another in their
                trajectory.
            rng: Draws them.
        """
        longest = min(horizon, max(part.stop - part.start for part in self.trajectories))
        if count is None:
            begins = np.array([row for part in self.trajectories for row in range(part.start, part.stop, longest)])
        else:
            begins = self._random_begins(longest, count, rng or np.random.default_rng())
        ends = self.ends[np.searchsorted(self.ends, begins, side="right")]
        rows = begins + np.arange(longest)[:, None]
        valid = rows < ends
        rows = np.minimum(rows, ends - 1)
        return Windows(
            {name: values[rows] for name, values in self.arrays.items()},
            {name: values[rows] for name, values in self.mask.items()},
            valid,
            rows,
        )

    def _random_begins(self, length: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draws where windows begin, those that fit into their trajectory first; a short one is taken whole."""
        begins = np.concatenate(
            [np.arange(part.start, max(part.stop - length, part.start) + 1) for part in self.trajectories]
        )
        return rng.choice(begins, count)

    def check_rewards(self, reward: RewardFunction) -> None:
        """Has a reward compute all rows, and some of them in all shapes.

        Raises:
            ConfigError: Not one value per row, or one that depends on the other rows.
            NonFiniteError: A reward is NaN or infinite.
        """

        def place(row: int) -> str:
            there = ", ".join(f"{name} {values[row].tolist()}" for name, values in self.arrays.items())
            return (
                f"step {self.steps[row]} of trajectory {self.trajectory[row]}, counted from 0, where there is {there}"
            )

        reward(self.arrays, place)
        reward.check(self.arrays)

    def mean_reward(self, reward: RewardFunction) -> float:
        """Returns the mean reward of all rows, after a check of the function on some of them."""
        reward.check(self.arrays)
        return float(np.mean(reward(self.arrays), dtype=np.float64))


class _Intake:
    """Makes `GraphData` of arrays as they come, step by step."""

    def __init__(self, given: dict[str, Any], graph: DecisionGraph, source: str, ignore_check: bool) -> None:
        self.given, self.graph, self.source, self.ignore_check = given, graph, source, ignore_check
        self.arrays: Arrays = {}
        self.mask: Masks = {}

    def fault(self, what: str) -> DataError:
        return DataError(f"{self.source}: {what}")

    def result(self) -> GraphData:
        self._take_arrays()
        self.ends = np.union1d(self._given_ends(), np.flatnonzero(self.done[:, 0] > 0.5) + 1)  # what follows is new
        self._warn_of_endings()
        for name in self.arrays:
            self._check_values(self.graph.nodes[name])
            self._fill(name)
        self._add_next_steps()
        self.begins = np.repeat(*self._begins_and_lengths())
        for node in self.graph.nodes.values():
            self._add_window(node)
        for name in self.graph.order:
            self._complete(self.graph.nodes[name])
        begins, lengths = self._begins_and_lengths()
        return GraphData(
            graph=self.graph,
            arrays=self.arrays,
            mask=self.mask,
            ends=self.ends,
            done=self.done,
            steps=np.arange(len(self.begins)) - self.begins,
            trajectory=np.repeat(np.arange(len(begins)), lengths),
        )

    def _begins_and_lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        begins = np.concatenate([[0], self.ends[:-1]])
        return begins, self.ends - begins

    # What the file has

    def _take_arrays(self) -> None:
        for name, node in self.graph.nodes.items():
            if not self.graph.follows_from_data(name):
                if name in self.given:
                    values = self._array(name, self.given[name], [column.name for column in node.columns])
                    self.mask[name] = ~np.isnan(values)
                    self.arrays[name] = values
                    empty = np.flatnonzero(~self.mask[name].any(0))
                    if len(values) and len(empty):
                        raise self.fault(
                            f"column {node.columns[empty[0]].name!r} of node {name!r} is NaN in all rows; wanted "
                            "numbers, or a graph without it"
                        )
                elif name not in self.graph.transitions and node.role != "function":
                    raise self.fault(f"no array for node {name!r}; {near(name, self.given)}")
        rows = {name: len(values) for name, values in self.arrays.items()}
        name, count = next(iter(rows.items()))
        for other, rows_there in rows.items():
            if rows_there != count:
                raise self.fault(f"node {other!r} has {rows_there} rows, node {name!r} has {count}; wanted the same")
        if not count:
            raise self.fault("got no rows; wanted at least one trajectory")
        self._take_done(name, count)

    def _take_done(self, name: str, count: int) -> None:
        """Takes what says where the process ended, of as many rows as a node has."""
        done = self.given.get("done", np.zeros((count, 1), np.float32))
        self.done = self._array("done", done, ["done"])
        if len(self.done) != count:
            raise self.fault(f"done has {len(self.done)} rows, node {name!r} has {count}; wanted the same")
        wrong = np.flatnonzero((self.done < 0) | (self.done > 1))
        if len(wrong):
            raise self.fault(
                f"row {wrong[0]} of done is {self.done[wrong[0], 0]:g}; wanted 1 where the process ends, else 0"
            )

    def _warn_of_endings(self) -> None:
        """Says that the graph lacks what would learn when the process ends, where it does."""
        if (self.done > 0.5).any() and DONE not in self.graph.nodes:
            warnings.warn(
                f"{self.source}: done says that the process ends, which the graph does not learn; add the node "
                "`done: [next_...]` and the column `- done: {dim: done, type: category, values: [0, 1]}`",
                stacklevel=2,
            )

    def _array(self, name: str, given: Any, columns: list[str]) -> NDArray[np.float32]:
        values = np.asarray(given)
        if values.dtype.kind not in "biuf":
            raise self.fault(f"node {name!r} has dtype {values.dtype}; wanted numbers (number categories)")
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or values.shape[1] != len(columns):
            raise self.fault(
                f"node {name!r} has shape {np.shape(given)}; the graph file has {len(columns)} columns for it "
                f"({', '.join(columns)})"
            )
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        if np.isinf(single).any():
            row, column = np.argwhere(np.isinf(single))[0]
            raise self.fault(
                f"row {row}, column {columns[column]!r} of node {name!r} is {values[row, column]:g}; wanted a finite "
                "number that float32 can hold"
            )
        return single

    def _given_ends(self) -> NDArray[np.int64]:
        rows = len(self.done)
        if "index" not in self.given:
            return np.arange(1, rows + 1)
        index = np.asarray(self.given["index"]).ravel()
        if index.dtype.kind not in "biuf" or not len(index) or (index != np.floor(index)).any():
            raise self.fault(f"index is {index.tolist()[:5]}; wanted whole numbers, where each trajectory ends")
        ends = index.astype(np.int64)
        if ends[0] == 0 and ends[-1] < rows:
            wanted = [*ends[1:].tolist(), rows]
            raise self.fault(
                f"index {_few(ends)} marks where trajectories begin; wanted where they end: {_few(wanted)}"
            )
        falls = np.flatnonzero(np.diff(ends, prepend=0) <= 0)
        if ends[0] == 0 and len(ends) > 1:
            raise self.fault(
                f"index {_few(ends)} begins with 0; wanted where trajectories end, the first one too: {_few(ends[1:])}"
            )
        if len(ends) > 1 and ends.min() > 0 and ends.sum() == rows:
            raise self.fault(
                f"index {_few(ends)} says how long trajectories are; wanted where they end: {_few(ends.cumsum())}"
            )
        if len(falls):
            raise self.fault(
                f"index must grow; its entry {falls[0]} is {ends[falls[0]]}, after {_few(ends[: falls[0]])}"
            )
        if ends[-1] != rows:
            raise self.fault(
                f"index ends at {ends[-1]}, but there are {rows} rows; the last entry must be their number"
            )
        return ends

    def _check_values(self, node: Node) -> None:
        """Refuses values that a discrete or category column does not have; says which are beyond a range."""
        values, mask = self.arrays[node.name], self.mask[node.name]
        for place, column in enumerate(node.columns):
            logged = values[:, place][mask[:, place]]
            if not len(logged):
                continue
            if column.kind == "continuous":
                self._warn_of_range(column, values[:, place], mask[:, place] & self._learned_from(node))
                continue
            if column.kind == "discrete":
                column = dataclasses.replace(
                    column,
                    low=float(logged.min()) if column.low is None else column.low,
                    high=float(logged.max()) if column.high is None else column.high,
                )
            wrong = np.flatnonzero(mask[:, place] & ~column.on_grid(values[:, place]))
            if len(wrong):
                known = (
                    f"one of {_few(column.values or ())}"
                    if column.kind == "category"
                    else f"one of {column.num} equally spaced values from {column.low:g} to {column.high:g}"
                )
                raise self.fault(
                    f"row {wrong[0]}, column {column.name!r} of node {node.name!r} is {values[wrong[0], place]:g}; "
                    f"wanted {known}"
                )

    def _learned_from(self, node: Node) -> NDArray[np.bool_]:
        """Returns which rows of a node are kept: last ones are dropped where next steps are made of the rows."""
        bases = self.graph.transitions
        kept = np.ones(len(self.done), bool)
        if node.name not in bases.values() and any(
            name not in self.arrays and base in self.arrays for name, base in bases.items()
        ):
            kept[self.ends - 1] = False
        return kept

    def _warn_of_range(self, column: Column, values: NDArray[np.float32], mask: NDArray[np.bool_]) -> None:
        """Says that there are values beyond the range that the graph file gives, which no model will give back."""
        for name, limit, beyond in (("min", column.low, np.less), ("max", column.high, np.greater)):
            if limit is None:
                continue
            rounding = _SAME * max(abs(limit), 1.0) * (1 if name == "max" else -1)
            wrong = np.flatnonzero(mask & beyond(values, limit + rounding))
            if len(wrong):
                warnings.warn(
                    f"{self.source}: row {wrong[0]}, column {column.name!r} of node {column.node!r} is "
                    f"{values[wrong[0]]:g}, beyond the {name} {limit:g} ({len(wrong)} such rows); learned values stay "
                    f"within it: mend the file, or the {name} in the graph file",
                    stacklevel=2,
                )

    # What follows from it

    def _fill(self, name: str) -> None:
        """Puts placeholders where nothing was logged; they do not come from other trajectories, and stay masked."""
        mask, values = self.mask[name], self.arrays[name]
        if mask.all():
            return
        begins, lengths = self._begins_and_lengths()
        first, last = (np.repeat(rows, lengths)[:, None] for rows in (begins, self.ends - 1))
        row = np.arange(len(mask))[:, None]
        earlier = np.maximum.accumulate(np.where(mask, row, -1), axis=0)
        later = np.minimum.accumulate(np.where(mask, row, len(mask))[::-1], axis=0)[::-1]
        source = np.where(earlier >= first, earlier, later)
        known = (source >= first) & (source <= last)
        filled = np.take_along_axis(values, np.clip(source, 0, len(mask) - 1), axis=0)
        neutral = [
            _neutral(column, values[:, i][mask[:, i]]) for i, column in enumerate(self.graph.nodes[name].columns)
        ]
        self.arrays[name] = np.where(known, filled, np.array(neutral, np.float32))

    def _add_next_steps(self) -> None:
        """Checks the next steps that are there; where one is not, it is the row after, and last rows are dropped."""
        steps = [(name, base) for name, base in self.graph.transitions.items() if base in self.arrays]
        missing = [(name, base) for name, base in steps if name not in self.arrays]
        for name, base in steps:
            if name in self.arrays:
                self._check_next_step(name, base)
        if not missing:
            return
        _, lengths = self._begins_and_lengths()
        kept = np.setdiff1d(np.arange(len(self.done)), self.ends - 1)
        if not len(kept):
            raise self.fault(f"every trajectory has one row, and there is no {missing[0][0]!r}; add it, or index")
        # Where the process ended with a last row, which is dropped, the step that led there ended it: done stands
        # above ½ in last rows only.
        for values in (self.done, *([self.arrays[DONE]] if DONE in self.arrays else [])):
            values[kept] = np.where(values[kept + 1] > 0.5, values[kept + 1], values[kept])
        following = {name: (self.arrays[base][kept + 1], self.mask[base][kept + 1]) for name, base in missing}
        for name in list(self.arrays):
            self.arrays[name], self.mask[name] = self.arrays[name][kept], self.mask[name][kept]
        for name, (values, mask) in following.items():
            self.arrays[name], self.mask[name] = values, mask
        self.done = self.done[kept]
        self.ends = np.cumsum(lengths[lengths > 1] - 1)

    def _check_next_step(self, name: str, base: str) -> None:
        rows = np.setdiff1d(np.arange(len(self.done)), self.ends - 1)
        got, wanted = self.arrays[name][rows], self.arrays[base][rows + 1]
        known = self.mask[name][rows] & self.mask[base][rows + 1]
        spread = np.ptp(self.arrays[base], axis=0) if len(rows) else 0
        wrong = np.argwhere(known & (np.abs(got - wanted) > _SAME * np.maximum(np.abs(wanted), spread)))
        if len(wrong):
            row, column = int(rows[wrong[0][0]]), int(wrong[0][1])
            same = np.allclose(got, self.arrays[base][rows], rtol=_SAME)
            hint = f"; {name!r} is {base!r} of the same row, one row late" if same else ""
            self._disagreement(
                f"row {row}, column {self.graph.nodes[base].columns[column].name!r} of node {name!r} is "
                f"{self.arrays[name][row, column]:g}, but node {base!r} has {self.arrays[base][row + 1, column]:g} in "
                f"row {row + 1}{hint}; leave {name!r} out, and it is made of the rows"
            )

    def _add_window(self, node: Node) -> None:
        """Makes the window of a node's last frames; of a produced node, those before the row."""
        if node.ts is None or node.derivation is not None:
            return
        base = node.name.removeprefix("all_").removeprefix("ts_")
        newest = -1 if self.graph.nodes[base].inputs else 0
        offsets = np.arange(newest - node.ts + 1, newest + 1)
        rows = np.maximum(np.arange(len(self.begins))[:, None] + offsets, self.begins[:, None])
        self.arrays[node.name] = self._of(base)[rows].reshape(len(rows), -1)
        self.mask[node.name] = self.mask[base][rows].reshape(len(rows), -1)

    def _of(self, name: str) -> NDArray[np.float32]:
        if name not in self.arrays:
            raise self.fault(f"node {name!r} is a window's and must be in the data; add it")
        return self.arrays[name]

    def _complete(self, node: Node) -> None:
        """Computes a node that is not learned from data but follows from others."""
        name = node.name
        if node.role == "function":
            self._complete_function(node)
        elif name not in self.arrays and node.derivation is not None:
            self.arrays[name] = node.derivation([self.arrays[one] for one in node.inputs])
            self.mask[name] = node.derivation([self.mask[one] for one in node.inputs])  # type: ignore[misc, assignment]
        elif name not in self.arrays:
            base = name.removeprefix("delta_")
            self.arrays[name] = self.arrays[f"next_{base}"] - self.arrays[base]
            self.mask[name] = self.mask[f"next_{base}"] & self.mask[base]

    def _complete_function(self, node: Node) -> None:
        function = self.graph.functions.get(node.name)
        inputs = {one: self.arrays[one] for one in node.inputs}
        if function is None:
            if node.name not in self.arrays:
                raise self.fault(
                    f"node {node.name!r} is a function and not in the data; call graph.load_functions() first"
                )
            return
        function.check(inputs, len(node.columns))
        computed = function(inputs)
        if not np.isfinite(computed).all():
            row, column = np.argwhere(~np.isfinite(computed))[0]
            raise self.fault(f"row {row}: {function.where} returned {computed[row, column]} for node {node.name!r}")
        logged = np.logical_and.reduce([self.mask[one].all(-1) for one in node.inputs])[:, None]
        if node.name in self.arrays:
            self._compare(node, computed, self.mask[node.name] & logged)
            return
        self.arrays[node.name] = computed
        self.mask[node.name] = np.broadcast_to(logged, computed.shape).copy()

    def _disagreement(self, what: str) -> None:
        if not self.ignore_check:
            raise self.fault(what)
        warnings.warn(f"{self.source}: {what}", stacklevel=2)

    def _compare(self, node: Node, computed: NDArray[np.float32], known: NDArray[np.bool_]) -> None:
        data = self.arrays[node.name]
        apart = np.where(known, np.abs(computed - data) / np.maximum(np.abs(data), 1), 0)
        row, column = np.unravel_index(int(apart.argmax()), apart.shape)
        said = (
            f"row {row}, column {node.columns[column].name!r} of node {node.name!r} is {data[row, column]:g}, but "
            f"{self.graph.functions[node.name].where} gives {computed[row, column]:g}"
        )
        if apart.max() > _SAME:
            self._disagreement(f"{said}; mend one of them, or leave the node out of the file and it is computed")
        elif apart.max() > _ROUNDED:
            warnings.warn(f"{self.source}: {said}", stacklevel=2)


def _few(values: Sequence[Any] | NDArray[Any]) -> str:
    listed = [f"{value:g}" for value in list(values)[:6]]
    return f"[{', '.join(listed)}{', ...' if len(values) > len(listed) else ''}]"


def _neutral(column: Any, logged: NDArray[np.float32]) -> float:
    """Returns what stands where a whole trajectory has no value: the middle of the column, or a value it has."""
    if column.values is not None:
        return float(column.values[0])
    low = column.low if column.low is not None else float(logged.min()) if len(logged) else 0.0
    high = column.high if column.high is not None else float(logged.max()) if len(logged) else low
    if column.kind == "discrete":
        return float(low)
    return float((low + high) / 2)
