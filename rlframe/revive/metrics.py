"""How well a learned environment says what was logged: errors of one step and of open-loop rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.revive.distributions import log_prob, numpy_math
from rlframe.revive.nodes import DONE
from rlframe.revive.venv_model import STEP, TRAJECTORY

if TYPE_CHECKING:
    from rlframe.revive.data import GraphData, Windows
    from rlframe.revive.venv_model import VirtualEnv

__all__ = ["METRICS", "Scores", "is_transition", "logged_state", "rollout", "scores"]

METRICS = ("mae", "mse", "nll", "wdist")


@dataclass(frozen=True)
class Scores:
    """Errors in the learned space, where ranges have the length 2.

    Attributes:
        average: Over the metric's nodes, per number: mean of "mae", "mse", "nll" and "wdist".
        by_node: Summed over a node's numbers, by node, then by metric.
        by_column: Mean absolute error by node, for each number of the learned space.
    """

    average: dict[str, float]
    by_node: dict[str, dict[str, float]] = field(default_factory=dict)
    by_column: dict[str, list[float]] = field(default_factory=dict)

    def to_dict(self, prefix: str) -> dict[str, float]:
        """Returns the numbers under names such as "average_rollout_mae" and "rollout_mae/next_level"."""
        named = {f"average_{prefix}_{metric}": value for metric, value in self.average.items()}
        for node, values in self.by_node.items():
            named.update({f"{prefix}_{metric}/{node}": value for metric, value in values.items()})
        return named


def is_transition(name: str) -> bool:
    """Returns whether a node is of what follows, and no decision: of the next step, or whether it is the end."""
    return name == DONE or name.startswith(("next_", "delta_"))


def logged_state(data: GraphData, windows: Windows, step: int, *, everything: bool = False) -> dict[str, NDArray[Any]]:
    """Returns what was logged of a step of windows: leaves at the first one, external factors at all.

    Args:
        data: Whose windows they are.
        windows: Some of its rows.
        step: Which.
        everything: Whether leaves are given at later steps, too.
    """
    graph = data.graph
    kept = [
        name for name, node in graph.nodes.items() if node.role == "external" or (node.role == "leaf" and (
            everything or step == 0))
    ]  # fmt: skip
    state: dict[str, NDArray[Any]] = {name: windows.arrays[name][step] for name in kept}
    state[STEP] = data.steps[windows.rows[step]][:, None]
    state[TRAJECTORY] = data.trajectory[windows.rows[step]][:, None]
    return state


def rollout(
    venv: VirtualEnv, data: GraphData, windows: Windows, member: int = 0, *, guided: bool = False
) -> dict[str, NDArray[np.float32]]:
    """Returns what an environment says of windows from their first rows, by node, float32 `[T, B, columns]`.

    External factors are those of the log; each node has its most likely value.

    Args:
        venv: The environment.
        data: Whose windows they are.
        windows: Some of its rows.
        member: Whose models answer.
        guided: Whether decisions of the log lead through the rollout, as they would not repeat where chance was in
            them; what the environment would decide is then told of the logged inputs.
    """
    decisions = [
        name for name in venv.graph.order if venv.graph.nodes[name].role == "network" and not is_transition(name)
    ]  # fmt: skip
    made: list[Mapping[str, NDArray[Any]]] = []
    carried: dict[str, NDArray[Any]] = {}
    for step in range(len(windows.valid)):
        given = {name: windows.arrays[name][step] for name in decisions} if guided else {}
        values = venv.infer_one_step({**logged_state(data, windows, step), **carried, **given}, member=member)
        carried = venv.next_state(values)
        made.append(values)
    found = {node: np.stack([values[node] for values in made]) for node in venv.graph.order}
    if guided:
        logged = {**windows.arrays, **_places(data, windows)}
        found.update({node: venv.node_infer(node, logged, member=member) for node in decisions})
    return found


def scores(
    venv: VirtualEnv, data: GraphData, horizon: int, *, member: int = 0, most: int = 300, guided: bool = False
) -> Scores:
    """Returns the errors of open-loop rollouts on data; with a horizon of 1 those of single steps.

    Args:
        venv: Learned, with the data's graph.
        data: What was logged.
        horizon: Longest window, steps; windows follow each other without gaps.
        member: Whose models are judged.
        most: So many windows at most, evenly spread.
        guided: Whether logged decisions lead through the rollouts; see `rollout`.
    """
    windows = data.windows(horizon)
    if windows.valid.shape[1] > most:
        chosen = np.linspace(0, windows.valid.shape[1] - 1, most).astype(int)
        windows = type(windows)(
            {name: values[:, chosen] for name, values in windows.arrays.items()},
            {name: values[:, chosen] for name, values in windows.mask.items()},
            windows.valid[:, chosen],
            windows.rows[:, chosen],
        )
    made = rollout(venv, data, windows, member, guided=guided)
    by_node, by_column, widths = {}, {}, 0
    for node in venv.graph.order:
        if venv.graph.nodes[node].role != "network" and node not in venv.graph.metric_nodes:
            continue
        scaler = venv.graph.scalers[node]
        counted = learned_mask(scaler, windows.mask[node]) & windows.valid[..., None]
        errors = _errors(scaler.scale(made[node]), scaler.scale(windows.arrays[node]), counted)
        errors["nll"] = _nll(venv, node, {**windows.arrays, **_places(data, windows)}, counted, member)
        by_node[node] = {metric: float(np.sum(values)) for metric, values in errors.items()}
        by_column[node] = errors["mae"].tolist()
        widths += scaler.width if node in venv.graph.metric_nodes else 0
    average = {
        metric: sum(by_node[node][metric] for node in venv.graph.metric_nodes) / max(widths, 1) for metric in METRICS
    }
    return Scores(average, by_node, by_column)


def learned_mask(scaler: Any, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns which numbers of the learned space count, bool `[..., width]`, of which columns were logged."""
    repeats = [scaler.columns[place].width for place in scaler.order]
    found: NDArray[np.bool_] = np.repeat(mask[..., list(scaler.order)], repeats, axis=-1) & scaler.fit
    return found


def _places(data: GraphData, windows: Windows) -> dict[str, NDArray[Any]]:
    return {STEP: data.steps[windows.rows][..., None], TRAJECTORY: data.trajectory[windows.rows][..., None]}


def _errors(made: NDArray[Any], logged: NDArray[Any], counted: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Returns errors of each number of the learned space, `[width]`, by metric."""
    weights = np.maximum(counted.sum((0, 1)), 1)
    apart = np.where(counted, made - logged, 0.0)
    distance = [
        _wasserstein(made[..., i][counted[..., i]], logged[..., i][counted[..., i]]) for i in range(len(weights))
    ]
    return {
        "mae": np.abs(apart).sum((0, 1)) / weights,
        "mse": np.square(apart).sum((0, 1)) / weights,
        "wdist": np.array(distance),
    }


def _wasserstein(made: NDArray[Any], logged: NDArray[Any]) -> float:
    """Returns the 1-D Wasserstein distance of two samples of one size."""
    return float(np.mean(np.abs(np.sort(made) - np.sort(logged)))) if len(made) else 0.0


def _nll(venv: VirtualEnv, node: str, values: Any, counted: NDArray[np.bool_], member: int) -> NDArray[Any]:
    """Returns the mean negative log-density of logged values of logged inputs; 0 where a function computes them.

    Of each row the numbers that count make it: those that were logged, of columns that are fitted.
    """
    if venv.graph.nodes[node].role != "network":
        return np.zeros(1)
    found = venv.node_dist(node, values, member)
    scaled = venv.graph.scalers[node].scale(values[node])
    mask = counted.reshape(-1, counted.shape[-1])
    logp = log_prob(found.layout, found.inputs, scaled.reshape(mask.shape), numpy_math, mask.astype(np.float32))
    logp = logp[mask.any(-1)]
    return np.array([-logp.mean() if len(logp) else 0.0])
