"""A page about a run: one HTML file without scripts, which asks nothing of any network.

It has the verdict, double validation, the graph, how well the environments fit, rollouts beside what was logged, and
what the policy does with each of its inputs.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.revive.configuration import Configuration
from rlframe.revive.data import GraphData
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.policy_model import PolicyModel
from rlframe.revive.stages import Inputs, RunFiles, load_environments
from rlframe.revive.venv_model import VirtualEnv
from rlframe.revive.verdict import Verdict
from rlframe.revive.workspace import CONFIG, HALVES, Workspace
from rlframe.utils.errors import ConfigError
from rlframe.utils.seeding import make_rng

_COLORS = ("#2e90fa", "#f04438", "#12b76a", "#f79009")
_SHOWN_ROLLOUTS = 3
_POINTS = 41
_WIDTH, _HEIGHT, _MARGIN = 340, 170, 44
_BOX_WIDTH, _BOX_HEIGHT, _STEP_X, _STEP_Y = 130, 40, 200, 62
_STYLE = """
:root { --ink: #1c2330; --soft: #667085; --line: #d9dee7; --paper: #fff; --ground: #f5f7fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ecf3; --soft: #98a2b3; --line: #344054; --paper: #161b26; --ground: #0c111d; } }
body { margin: 0 auto; max-width: 1100px; padding: 1rem; font: 15px/1.45 system-ui, sans-serif; color: var(--ink);
       background: var(--ground); }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 1rem; margin: 1rem 0;
          overflow-x: auto; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 0 0 .6rem; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: .25rem .8rem; border-bottom: 1px solid var(--line); }
.good { border-left: 6px solid #12b76a; } .bad { border-left: 6px solid #f04438; }
figure { display: inline-block; margin: .3rem; } figcaption, .soft { color: var(--soft); font-size: 13px; }
svg text { fill: var(--soft); font-size: 11px; } svg .box { fill: var(--ground); stroke: var(--soft); }
svg .name { fill: var(--ink); font-size: 13px; } svg .arrow { stroke: var(--soft); fill: none; }
svg .axis { stroke: var(--line); }
"""


@dataclass(frozen=True)
class Line:
    """A line of a diagram.

    Attributes:
        label: What it shows.
        x: Places, float `[N]`.
        y: Values, float `[N]`.
        color: As CSS has it.
        dashed: Whether it is broken.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    color: str
    dashed: bool = False


def write_report(workspace: Workspace, *, trust: bool = False) -> str:
    """Returns the page of a run, of what it has by now.

    Args:
        workspace: Of the run.
        trust: Whether the expert functions that the run names are run; they must be those of its training.

    Raises:
        ConfigError: The run has no environment yet, its data have changed, or it names functions that are not trusted
            or have changed.
    """
    files, config = workspace.files(), Configuration.from_dict(workspace.read(CONFIG))
    paths = {key: None if path is None else str(path) for key, path in files.items()}
    data, graph = paths["dataset_file"], paths["dataset_desc_file"]
    if data is None or graph is None:
        raise ConfigError(f"{workspace.directory}: data.json names no data or no graph file")
    workspace.check_data_unchanged()
    trained = VirtualEnv.load(workspace.venv / "train").graph if (workspace.venv / "train").is_dir() else None
    nodes = () if trained is None else trained.nodes.values()
    code = sorted({node.function.file for node in nodes if node.function is not None})
    if code and not trust:
        raise ConfigError(
            f"{workspace.directory}: the run names code of its author's, {', '.join(code)}; if you trust it: --trust"
        )
    inputs = Inputs(RunFiles(data, graph, paths["val_file"], paths["reward_file"]), config, trained)
    venvs = load_environments(workspace.venv)
    policy = PolicyModel.load(workspace.policy) if workspace.policy.is_dir() else None
    details = workspace.stage("policy").details
    sections = [_verdict(details), _double_validation(details)] if policy is not None else []
    sections += [_graph(inputs.graph), *_fits(inputs, venvs, config)]
    if policy is not None:
        sections.append(_responses(policy, inputs.data["train"]))
    name = html.escape(workspace.directory.name)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title><style>{_STYLE}</style>'
        f"</head><body><h1>Run {name}</h1>{''.join(sections)}</body></html>\n"
    )


# --- sections -----------------------------------------------------------------------------------------------------


def _section(title: str, body: str, kind: str = "") -> str:
    return f'<section class="{kind}"><h2>{html.escape(title)}</h2>{body}</section>'


def _verdict(details: Mapping[str, Any]) -> str:
    if not details.get("verdict"):
        return _section(
            "Verdict", "The policy's stage has not ended: there is no verdict. Do not use this policy.", "bad"
        )
    verdict = Verdict.from_dict(details["verdict"])
    return _section("Verdict", f"<p>{html.escape(str(verdict))}</p>", "good" if verdict.use else "bad")


def _double_validation(details: Mapping[str, Any]) -> str:
    scores, data = details.get("scores", {}), details.get("data", {})
    rows = [(name, *(f"{number:.5g}" for number in one)) for name, one in scores.items()]
    rows += [(f"{half} data", f"{value:.5g}", "", "") for half, value in data.items()]
    lines = [
        Line(name, [x for x, _ in points], [y for _, y in points], _COLORS[place % 4])
        for place, (name, points) in enumerate(details.get("curves", {}).items())
        if points
    ]
    lines += [
        Line(f"{half} data", [0.0, 1.0], [value, value], _COLORS[place], dashed=True)
        for place, (half, value) in enumerate(data.items())
    ]
    body = diagram("score per step over the training", lines, 2 * _WIDTH, 2 * _HEIGHT) if lines else ""
    return _section("Double validation", _table(("", "score per step", "95 % from", "to"), rows) + body)


def _graph(graph: DecisionGraph) -> str:
    """Draws the graph: each node to the right of what it is made of."""
    depth: dict[str, int] = {}
    for name in graph.nodes:
        if name not in graph.order:
            depth[name] = 0
    for name in graph.order:
        depth[name] = 1 + max((depth[one] for one in graph.nodes[name].inputs), default=0)
    rows: dict[int, int] = {}
    place: dict[str, tuple[int, int]] = {}
    for name, column in depth.items():
        place[name] = (10 + column * _STEP_X, 10 + rows.get(column, 0) * _STEP_Y)
        rows[column] = rows.get(column, 0) + 1
    parts = []
    for name in graph.order:
        for one in graph.nodes[name].inputs:
            (x, y), (to_x, to_y) = place[one], place[name]
            x, y, to_y = x + _BOX_WIDTH, y + _BOX_HEIGHT // 2, to_y + _BOX_HEIGHT // 2
            parts.append(f'<path class="arrow" d="M{x} {y} C{x + 40} {y} {to_x - 40} {to_y} {to_x} {to_y}"/>')
    for name, (x, y) in place.items():
        node = graph.nodes[name]
        parts.append(
            f'<rect class="box" x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6"/>'
            f'<text class="name" x="{x + 8}" y="{y + 17}">{html.escape(name)}</text>'
            f'<text x="{x + 8}" y="{y + 32}">{node.role}, {len(node.columns)} columns</text>'
        )
    width, height = 20 + (max(depth.values()) + 1) * _STEP_X, 20 + max(rows.values()) * _STEP_Y
    return _section("Graph", f'<svg viewBox="0 0 {width} {height}" width="{width}">{"".join(parts)}</svg>')


def _fits(inputs: Inputs, venvs: Mapping[str, VirtualEnv], config: Configuration) -> list[str]:
    """Returns errors by column, and rollouts beside the log, of each environment on the other half's data."""
    rows, figures = [], []
    for half, other in zip(HALVES, reversed(HALVES), strict=True):
        venv, data = venvs[half], inputs.data[other]
        rng = make_rng(config.base.global_seed, "report", half)
        windows = data.windows(config.base.venv_rollout_horizon, 20, rng)
        made = rollout(venv, windows.arrays)
        for node in (name for name in venv.graph.order if venv.graph.nodes[name].role == "network"):
            for place, column in enumerate(venv.graph.nodes[node].columns):
                logged, learned = windows.arrays[node][..., place], made[node][..., place]
                errors = np.abs(learned - logged)[windows.valid]
                size = float(np.ptp(logged)) or 1.0
                name = f"{node}: {column.name}"
                rows.append((half, name, f"{errors.mean():.4g}", f"{100 * errors.mean() / size:.2f} %"))
                figures.append(_rollout_figure(f"{half} environment, {name}", logged, learned, windows.valid))
    heads = ("environment", "column", "mean error of open-loop rollouts", "of the logged range")
    return [_section("Fit", _table(heads, rows)), _section("Rollouts beside the log", "".join(figures))]


def rollout(venv: VirtualEnv, logged: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Returns what an environment makes of all nodes from the first step of logged windows, by node `[T, B, columns]`.

    Args:
        venv: All its nodes are computed, those that act too.
        logged: By node, `[T, B, columns]`; external factors are taken from it.
    """
    graph, steps = venv.graph, len(next(iter(logged.values())))
    leaves = [name for name in graph.nodes if name not in graph.order]
    states = [
        {name: logged[name][step] for name in leaves if step == 0 or name in graph.external} for step in range(steps)
    ]
    made = venv.infer_k_steps(states)
    return {name: np.stack([step[name] for step in made]) for name in graph.order}


def _rollout_figure(title: str, logged: NDArray[Any], learned: NDArray[Any], valid: NDArray[np.bool_]) -> str:
    lines = []
    for number in range(min(_SHOWN_ROLLOUTS, logged.shape[1])):
        steps = np.flatnonzero(valid[:, number]).tolist()
        lines.append(Line(f"logged {number}", steps, logged[steps, number].tolist(), _COLORS[number]))
        lines.append(Line(f"learned {number}", steps, learned[steps, number].tolist(), _COLORS[number], dashed=True))
    return diagram(title, lines)


def _responses(policy: PolicyModel, data: GraphData) -> str:
    """Returns what the policy does while one input goes through its range, and the others stay at their medians."""
    medians = {name: np.median(data.arrays[name], 0) for name in policy.inputs}
    figures = []
    for name in policy.inputs:
        for place, column in enumerate(policy.graph.scalers[name].columns):
            low, high = policy.graph.scalers[name].low[place], policy.graph.scalers[name].high[place]
            places = np.linspace(low, high, _POINTS, dtype=np.float32)
            state = {one: np.repeat(values[None], _POINTS, 0) for one, values in medians.items()}
            state[name][:, place] = places
            actions = policy.infer(state)
            lines = [
                Line(target.name, places.tolist(), actions[:, index].tolist(), _COLORS[index % 4])
                for index, target in enumerate(policy.graph.scalers[policy.node].columns)
            ]
            figures.append(diagram(f"{policy.node} on {column.name}", lines))
    return _section("What the policy does", "".join(figures))


# --- drawing ------------------------------------------------------------------------------------------------------


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{html.escape(one)}</th>" for one in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(one))}</td>" for one in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def diagram(title: str, lines: Sequence[Line], width: int = _WIDTH, height: int = _HEIGHT) -> str:
    """Returns lines in one diagram, as SVG.

    Args:
        title: Stands below it.
        lines: With finite values.
        width: Of the drawing, pixels.
        height: Likewise.
    """
    low_x, high_x = _ends(value for line in lines for value in line.x)
    low_y, high_y = _ends(value for line in lines for value in line.y)
    inner_x, inner_y = width - _MARGIN - 10, height - 34

    def point(x: float, y: float) -> str:
        across, up = (x - low_x) / (high_x - low_x), (y - low_y) / (high_y - low_y)
        return f"{_MARGIN + across * inner_x:.1f},{10 + (1 - up) * inner_y:.1f}"

    parts = [
        f'<path class="axis" d="M{_MARGIN} 10 V{10 + inner_y} H{width - 10}" fill="none"/>',
        f'<text x="2" y="16">{high_y:.4g}</text><text x="2" y="{10 + inner_y}">{low_y:.4g}</text>',
        f'<text x="{_MARGIN}" y="{height - 8}">{low_x:.4g}</text>',
        f'<text x="{width - 12}" y="{height - 8}" text-anchor="end">{high_x:.4g}</text>',
    ]
    for line in lines:
        points = " ".join(point(x, y) for x, y in zip(line.x, line.y, strict=True))
        dash = ' stroke-dasharray="4 3"' if line.dashed else ""
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{line.color}" stroke-width="1.5"{dash}>'
            f"<title>{html.escape(line.label)}</title></polyline>"
        )
    names = ", ".join(dict.fromkeys(f"{'dashed ' if line.dashed else ''}{line.label}" for line in lines))
    caption = f"{html.escape(title)}<br>{html.escape(names)}"
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" width="{width}">{"".join(parts)}</svg>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _ends(values: Iterable[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
