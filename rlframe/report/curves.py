"""Learning curves of finished and running trainings: run directories and history files, one or many seeds."""

from __future__ import annotations

import glob
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.report.history import HISTORY_COLUMNS, read_history
from rlframe.trainer.loggers import PARAMS_FILE, RESULT_FILE, read_results
from rlframe.utils.errors import ConfigError
from rlframe.utils.files import is_inside, read_json

Array = np.ndarray[Any, Any]

#: What a curve can show, by its name in a history.
VALUES = ("mean_reward", "best_reward", "episode_reward")
_RUN_FILE = "run.json"
_LONGEST_LABEL = 48


@dataclass(frozen=True)
class Curve:
    """The history of one run.

    Attributes:
        path: Run directory or history file.
        columns: By the names of `HISTORY_COLUMNS`, `[N]`.
        algorithm: Name of the algorithm; "" where a history file does not say.
        env: Name of the environment, or "".
        config: What differs from the algorithm's defaults.
        params: The whole config, as `params.json` has it.
    """

    path: Path
    columns: dict[str, Array]
    algorithm: str = ""
    env: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def score(self) -> float:
        """Returns the last mean return; NaN if no episode has ended."""
        finite = self.columns["mean_reward"][np.isfinite(self.columns["mean_reward"])]
        return float(finite[-1]) if finite.size else math.nan

    @property
    def seed(self) -> int | None:
        """Returns the seed that was asked for."""
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else None


def read_curve(path: str | os.PathLike[str]) -> Curve:
    """Returns the history of a run directory, or of a Parquet file that `--history` wrote.

    Raises:
        ConfigError: If it is neither, or nothing has been written yet.
    """
    place = Path(path)
    if place.is_file():
        return Curve(place, read_history(place))
    if not os.path.lexists(place / RESULT_FILE):
        raise ConfigError(
            f"{str(place)!r} is no run directory: it has no {RESULT_FILE}"
            if place.is_dir()
            else f"there is no run directory or history file {str(place)!r}"
        )
    check_inside(place, RESULT_FILE)
    rows = read_results(place)
    if not rows:
        raise ConfigError(f"{str(place)!r} has no result yet")
    spec, params = read_run_json(place, _RUN_FILE), read_run_json(place, PARAMS_FILE)
    config = spec.get("config") or {}
    if not isinstance(config, dict):
        raise ConfigError(f"{str(place / _RUN_FILE)!r} is damaged: config is a JSON {type(config).__name__}")
    return Curve(
        place,
        columns_of(rows),
        str(spec.get("algorithm", "")),
        str(spec.get("env") or params.get("env") or ""),
        config,
        params,
    )


def read_run_json(run: Path, name: str) -> dict[str, Any]:
    """Returns what a JSON file of a run directory says; an empty dict if there is no such file.

    Raises:
        ConfigError: If it is damaged, or a link that leads outside of the run directory.
    """
    path = run / name
    if not os.path.lexists(path):
        return {}
    check_inside(run, name)
    try:
        content = read_json(path, infinite=True)
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{str(path)!r} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{str(path)!r} is damaged: got a JSON {type(content).__name__}, wanted an object")
    return content


def check_inside(run: Path, name: str) -> None:
    """Raises a ConfigError where a file of a run directory is a link that leads outside of it."""
    if not is_inside(run / name, run):
        raise ConfigError(
            f"{str(run / name)!r} is a link that leads outside of the run directory: what it leads to is not read; "
            "copy it to its place if it belongs there"
        )


def columns_of(rows: Iterable[dict[str, Any]]) -> dict[str, Array]:
    """Returns the columns of a history from the rows of `result.jsonl`."""
    table: dict[str, list[float]] = {name: [] for name in HISTORY_COLUMNS}
    best = math.nan
    for row in rows:
        mean = _number(row.get("episode_reward_mean"))
        best = float(np.fmax(best, mean))
        ended = (row.get("hist_stats") or {}).get("episode_reward")
        last = _number(ended[-1]) if isinstance(ended, list) and ended else mean
        values = (mean, best, last, _number(row.get("timesteps_total") or 0), _number(row.get("time_total_s")))
        for name, value in zip(HISTORY_COLUMNS, values, strict=True):
            table[name].append(value)
    return {name: np.array(values, np.float64) for name, values in table.items()}


def find_curves(paths: Sequence[str | os.PathLike[str]]) -> list[Curve]:
    """Returns the curves at paths: run directories, directories of runs, history files, and patterns of them.

    Raises:
        ConfigError: If a path leads to none.
    """
    curves: list[Curve] = []
    for path in paths:
        text = os.fspath(path)
        places = [text] if os.path.exists(text) else sorted(glob.glob(text))
        if not places:
            raise ConfigError(f"there is no run directory or history file {text!r}")
        for place in places:
            curves += [read_curve(run) for run in _runs_in(Path(place))]
    return curves


def _runs_in(place: Path) -> list[Path]:
    """Returns a run itself, or the runs in a directory of runs."""
    if place.is_file() or os.path.lexists(place / RESULT_FILE):
        return [place]
    found = sorted(path.parent for path in place.rglob(RESULT_FILE) if path.lstat().st_size)
    return found or [place]  # `read_curve` says what is missing


def group_curves(curves: Iterable[Curve]) -> dict[str, list[Curve]]:
    """Returns the curves that differ in their seed only, together, by a label that tells the groups apart."""
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        own = {key: value for key, value in curve.config.items() if key != "seed"}
        name = curve.algorithm or str(curve.path)
        groups.setdefault(json.dumps([name, curve.env, own], sort_keys=True, default=str), []).append(curve)
    labels = _labels([group[0] for group in groups.values()])
    return dict(zip(labels, groups.values(), strict=True))


def _labels(curves: Sequence[Curve]) -> list[str]:
    """Returns what tells groups apart: algorithm, environment where there are several, and differing config keys."""
    envs = len({curve.env for curve in curves}) > 1
    labels = []
    for curve in curves:
        rivals = [other for other in curves if (other.algorithm, other.env) == (curve.algorithm, curve.env)]
        names = (curve.algorithm or curve.path.stem, curve.env if envs else "")
        parts = [_cut(name) for name in names if name]
        differing = differing_keys(rivals)[rivals.index(curve)]
        text = " ".join(f"{key}={_short(value)}" for key, value in differing.items())
        # A search varies many keys at once: its trials are told apart by the names of their directories.
        labels.append(" ".join([*parts, text if len(text) <= _LONGEST_LABEL else _cut(curve.path.name)]).strip())
    return [label if labels.count(label) == 1 else f"{label} ({n})" for n, label in enumerate(labels, start=1)]


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_LABEL else f"{name[: _LONGEST_LABEL - 1]}…"


def differing_keys(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Returns, for each run, the config keys of which not all runs have the same value; not the seed."""
    flat = [dict(_flat(curve.config)) for curve in curves]
    keys = sorted({key for config in flat for key in config} - {"seed"})
    differing = [key for key in keys if len({json.dumps(config.get(key), default=str) for config in flat}) > 1]
    return [{key: config.get(key, "default") for key in differing} for config in flat]


def _flat(config: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def on_a_grid(curves: Sequence[Curve], value: str, x: str, points: int = 200) -> tuple[Array, Array]:
    """Returns curves at the same places.

    Args:
        curves: R runs.
        value: One of `VALUES`.
        x: "step" or "time".
        points: How many places there are at most.

    Returns:
        The places `[G]`, and the values `[R, G]`, linear between results, NaN outside of a run.
    """
    cleaned = []
    for curve in curves:
        finite = np.isfinite(curve.columns[value]) & np.isfinite(curve.columns[x])
        cleaned.append((curve.columns[x][finite], curve.columns[value][finite]))
    places = np.unique(np.concatenate([xs for xs, _ in cleaned]))
    if places.size > points:
        places = np.linspace(places[0], places[-1], points)
    rows = [
        np.interp(places, xs, ys, left=math.nan, right=math.nan) if xs.size else np.full(places.size, math.nan)
        for xs, ys in cleaned
    ]
    return places, np.stack(rows) if rows else np.empty((0, 0))


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return json.dumps(value, default=str).strip('"')


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
