"""Parameter tuning: values of external factors, held over rollouts, that make the most of a learned environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlframe.revive.columns import Column, as_numbers
from rlframe.revive.data_files import read_archive
from rlframe.revive.functions import RewardFunction
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.graph_file import near
from rlframe.revive.nodes import DONE
from rlframe.utils.errors import ConfigError, DataError

__all__ = ["InitialState", "TuningResult", "read_initial_state", "tune_parameters"]

Arrays = dict[str, NDArray[np.float32]]
_ELITE = 0.125  # share of a population that the next one is drawn around
_INERTIA = 0.3  # of the old distribution in the new one
_NARROWEST = 0.01  # standard deviation in a range of length 1


class LearnedEnv(Protocol):
    """What parameters are tried in: `VirtualEnv`."""

    graph: DecisionGraph

    def infer_one_step(self, state: Mapping[str, Any], deterministic: bool = True, clip: bool = True) -> dict[str, Any]:
        """Returns the values of all nodes."""


@dataclasses.dataclass(frozen=True)
class InitialState:
    """Where rollouts begin.

    Attributes:
        state: Nodes that transitions carry on, float32 `[columns]`.
        external: External factors that are not tuned, float32 `[T, columns]`.
        horizon: Steps of a rollout.
    """

    state: Arrays
    external: Arrays
    horizon: int


@dataclasses.dataclass(frozen=True)
class TuningResult:
    """The best parameters that were found.

    Attributes:
        parameters: By tunable node, float32 `[columns]` in the user's units.
        metric: Their mean reward per step, over the environments.
        by_env: The same in each environment.
        searched: How many were tried.
        stopped: Whether the search was ended before its time.
    """

    parameters: Arrays
    metric: float
    by_env: list[float]
    searched: int
    stopped: bool = False


def read_initial_state(given: str | Path | Mapping[str, ArrayLike], graph: DecisionGraph, longest: int) -> InitialState:
    """Returns where rollouts begin: a vector per state node, and `[T, columns]` per external factor that is not tuned.

    Args:
        given: Arrays by node, or an `.npz` file of them.
        graph: Whose nodes they are.
        longest: Steps of a rollout where no external factor says how many there are.

    Raises:
        ConfigError: The graph has nothing to tune.
        DataError: A node is missing, or of another shape.
    """
    if not graph.tunable:
        known = ", ".join(graph.external) or "none"
        raise ConfigError(
            f"{graph.source}: nothing is tunable; name external factors in the graph file, `tunable: [...]`, of {known}"
        )
    if isinstance(given, str | Path):
        taken = _Given(read_archive(Path(given)), graph, str(given))
    else:
        taken = _Given(given, graph, "initial state")
    state = {node: taken.vector(node) for node in dict.fromkeys(graph.transitions.values())}
    external = {node: taken.series(node) for node in graph.external if node not in graph.tunable}
    lengths = {node: len(values) for node, values in external.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{taken.source}: external factors have different lengths, {lengths}; wanted one for each step")
    return InitialState(state, external, min(longest, *lengths.values()) if lengths else longest)


class _Given:
    """Arrays of an initial state, checked one by one."""

    def __init__(self, arrays: Mapping[str, Any], graph: DecisionGraph, source: str) -> None:
        self.arrays, self.graph, self.source = arrays, graph, source

    def _array(self, node: str) -> NDArray[np.float32]:
        if node not in self.arrays:
            raise DataError(f"{self.source}: no array for node {node!r}; {near(node, self.arrays)}")
        try:
            values = as_numbers(node, self.arrays[node])
        except DataError as error:
            raise DataError(f"{self.source}: {error}") from None
        if not np.isfinite(values).all():
            raise DataError(f"{self.source}: node {node!r} has values that are no numbers; wanted numbers")
        return values

    def _columns(self, node: str) -> int:
        return len(self.graph.nodes[node].columns)

    def vector(self, node: str) -> NDArray[np.float32]:
        values = self._array(node)
        if values.size != self._columns(node):
            raise DataError(f"{self.source}: node {node!r} has shape {values.shape}; wanted ({self._columns(node)},)")
        return values.reshape(-1)

    def series(self, node: str) -> NDArray[np.float32]:
        values = self._array(node)
        if values.ndim != 2 or values.shape[1] != self._columns(node) or not len(values):
            raise DataError(f"{self.source}: node {node!r} has shape {values.shape}; wanted (T, {self._columns(node)})")
        return values


def tune_parameters(  # noqa: PLR0913  what, where, from where, and how
    envs: Sequence[LearnedEnv],
    reward: RewardFunction,
    initial: InitialState,
    *,
    mode: Literal["max", "min"] = "max",
    algorithm: Literal["evolution", "random"] = "evolution",
    budget: int = 10_000,
    population: int = 256,
    seed: int = 0,
    report: Callable[[TuningResult], bool] | None = None,
) -> TuningResult:
    """Searches the values of tunable nodes with the largest, or smallest, mean reward per step.

    A population of candidates is one batch: a node's network is asked once per step for all of them. `evolution` draws
    the next population around the best eighth (the cross-entropy method); `random` draws evenly.

    Args:
        envs: Learned environments with one graph, such as those of both halves; the mean over them counts.
        reward: Of the user's.
        initial: Where rollouts begin.
        mode: Whether the largest or the smallest is wanted.
        algorithm: How the next candidates are drawn.
        budget: How many are tried.
        population: How many at once.
        seed: Of the draws.
        report: Gets the best so far after each population; True ends the search.

    Raises:
        NonFiniteError: A reward is NaN or infinite.
    """
    graph = envs[0].graph
    columns = [(node, column) for node in graph.tunable for column in graph.nodes[node].columns]
    draws = _Draws([column for _, column in columns], np.random.default_rng(seed))
    sign = 1 if mode == "max" else -1
    best = TuningResult({}, -np.inf * sign, [], 0)
    searched = 0
    while searched < budget:
        count = min(population, budget - searched)
        places = draws.take(count)
        values = draws.values(places)
        parameters = {
            node: values[:, [i for i, (owner, _) in enumerate(columns) if owner == node]] for node in graph.tunable
        }
        scores = np.stack([_rollout(env, reward, initial, parameters) for env in envs])
        means = scores.mean(0)
        searched += count
        first = int((sign * means).argmax())
        if sign * means[first] > sign * best.metric:
            found = {node: array[first] for node, array in parameters.items()}
            best = TuningResult(found, float(means[first]), scores[:, first].tolist(), searched)
        best = dataclasses.replace(best, searched=searched)
        if report is not None and report(best):
            return dataclasses.replace(best, stopped=True)
        if algorithm == "evolution":
            draws.move(places[np.argsort(-sign * means)[: max(2, round(_ELITE * count))]])
    return best


def _rollout(env: LearnedEnv, reward: RewardFunction, initial: InitialState, parameters: Arrays) -> NDArray[np.float64]:
    """Returns each candidate's mean reward per step; after the process has ended there is none, `[P]`."""
    count = len(next(iter(parameters.values())))
    state = {node: np.broadcast_to(values, (count, len(values))) for node, values in initial.state.items()}
    total, alive = np.zeros(count), np.ones(count, bool)
    for step in range(initial.horizon):
        outside = {
            node: np.broadcast_to(series[step], (count, series.shape[1])) for node, series in initial.external.items()
        }
        values = env.infer_one_step({**state, **outside, **parameters})
        total += np.where(alive, reward({node: np.asarray(array) for node, array in values.items()}), 0)
        if DONE in values:
            alive &= values[DONE][:, 0] < 0.5
        state = {base: values[following] for following, base in env.graph.transitions.items()}
    return total / initial.horizon


class _Draws:
    """Candidates as places in the unit cube, one axis for each column, and what they are drawn from."""

    def __init__(self, columns: Sequence[Column], rng: np.random.Generator) -> None:
        self.columns, self.rng = columns, rng
        self.mean, self.deviation = np.full(len(columns), 0.5), np.full(len(columns), np.inf)
        self.shares = {
            i: np.full(len(column.values), 1 / len(column.values))
            for i, column in enumerate(columns)
            if column.values is not None
        }

    def take(self, count: int) -> NDArray[np.float64]:
        """Draws places `[count, columns]`: evenly at first, then around the best ones."""
        even = self.rng.random((count, len(self.columns)))
        drawn = self.mean + np.minimum(self.deviation, 1) * self.rng.standard_normal(even.shape)
        places = np.where(np.isinf(self.deviation), even, np.clip(drawn, 0, 1))
        for i, shares in self.shares.items():
            places[:, i] = (self.rng.choice(len(shares), count, p=shares) + 0.5) / len(shares)
        return places

    def move(self, elite: NDArray[np.float64]) -> None:
        """Moves what is drawn from towards the best places."""
        first = np.isinf(self.deviation)
        kept = np.where(first, 0, _INERTIA)
        spread = np.where(first, 0, self.deviation)
        self.mean = kept * self.mean + (1 - kept) * elite.mean(0)
        self.deviation = np.maximum(kept * spread + (1 - kept) * elite.std(0), _NARROWEST)
        for i, shares in self.shares.items():
            counts = np.bincount((elite[:, i] * len(shares)).astype(int), minlength=len(shares))
            moved = _INERTIA * shares + (1 - _INERTIA) * counts / counts.sum()
            self.shares[i] = 0.95 * moved + 0.05 / len(shares)

    def values(self, places: NDArray[np.float64]) -> NDArray[np.float32]:
        """Returns places in the user's units, on the grids of the columns."""
        return np.stack([_value(column, places[:, i]) for i, column in enumerate(self.columns)], -1).astype(np.float32)


def _value(column: Column, place: NDArray[np.float64]) -> NDArray[np.float64]:
    if column.values is not None:
        known: NDArray[np.float64] = np.array(column.values, float)
        chosen: NDArray[np.float64] = known[np.minimum((place * len(known)).astype(int), len(known) - 1)]
        return chosen
    if column.low is None or column.high is None:
        raise ConfigError(
            f"column {column.name!r} of node {column.node!r} has no range to search; call fit_ranges(data)"
        )
    if column.num is not None:
        place = np.rint(place * (column.num - 1)) / max(column.num - 1, 1)
    values: NDArray[np.float64] = column.low + place * (column.high - column.low)
    return values
