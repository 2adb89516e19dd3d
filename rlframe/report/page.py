"""A page about runs: one HTML file with everything in it, or the same data for a page that updates itself."""

from __future__ import annotations

import base64
import datetime
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from rlframe.report.curves import Curve, columns_of, differing_keys, find_curves, group_curves, read_run_json
from rlframe.trainer.loggers import flatten, read_results, to_jsonable
from rlframe.utils.errors import ConfigError
from rlframe.utils.files import is_inside, read_bytes

PLAN_FILE = "plan.json"
MACHINE_FILE = "machine.json"
#: Videos in this folder of a run are shown on its page.
VIDEOS = "videos"

#: Points of a curve beyond which rows are left out of the page, evenly; the last one stays.
_MOST_POINTS = 1_000
#: Bytes of a video beyond which no browser would open the page.
_MOST_VIDEO_BYTES = 1 << 28
_SHOWN = {
    "mean return": "episode_reward_mean",
    "lowest return": "episode_reward_min",
    "highest return": "episode_reward_max",
    "episode length": "episode_len_mean",
    "evaluation return": "evaluation/episode_reward_mean",
}
_LEARNER = "info/learner/"


def render_page(data: Mapping[str, Any]) -> str:
    """Returns the page as HTML: style, script, numbers and videos are in it, and it asks nothing of any network.

    Args:
        data: From `page_data`.
    """
    template = resources.files("rlframe.report").joinpath("page.html").read_text(encoding="utf-8")
    # No text of the user's may look like a tag: "</script>" ends the block that holds the data, "<!--" hides its end.
    return template.replace("__DATA__", json.dumps(data, allow_nan=False).replace("<", "\\u003c"))


def page_data(
    paths: Sequence[str | os.PathLike[str]],
    *,
    evaluations: Mapping[Path, Mapping[str, Any]] | None = None,
    videos: Mapping[Path, Sequence[Path]] | None = None,
    live: bool = False,
) -> dict[str, Any]:
    """Returns everything that a page shows, as JSON can hold it.

    Args:
        paths: Run directories, directories of runs, history files.
        evaluations: By run directory, what playing it now gave.
        videos: By run directory, MP4 files beyond those in its folder `videos`.
        live: Whether the page shall ask its server for newer data.

    Raises:
        ConfigError: If a path leads to no run.
    """
    groups = group_curves(find_curves(paths))
    curves = [(label, curve) for label, members in groups.items() for curve in members]
    different = differing_keys([curve for _, curve in curves])
    runs = []
    for (label, curve), config in zip(curves, different, strict=True):
        run = _run_data(label, curve)
        run["differing"] = to_jsonable(config)
        run["evaluation"] = dict((evaluations or {}).get(curve.path) or run["evaluation"])
        shown = (*_own_videos(curve.path), *(videos or {}).get(curve.path, ()))
        run["videos"], run["video_names"] = [_data_uri(path) for path in shown], [path.stem for path in shown]
        runs.append(run)
    return {
        "made": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "live": live,
        "groups": list(groups),
        "runs": runs,
    }


def _run_data(label: str, curve: Curve) -> dict[str, Any]:
    rows = read_results(curve.path) if curve.path.is_dir() else []
    columns = columns_of(rows) if rows else curve.columns
    kept = _evenly(len(columns["step"]))
    last = rows[-1] if rows else {}
    return {
        "label": label,
        "name": curve.path.name,
        "path": str(curve.path),
        "algorithm": curve.algorithm,
        "env": curve.env,
        "seed": curve.seed,
        "config": to_jsonable(curve.config),
        "step": [_plain(columns["step"][index]) for index in kept],
        "time": [_plain(columns["time"][index]) for index in kept],
        "metrics": _metrics([rows[index] for index in kept]) if rows else _history_metrics(columns, kept),
        "last": {
            "iterations": len(columns["step"]),
            "env_steps": _plain(columns["step"][-1]),
            "mean_return": _plain(columns["mean_reward"][-1]),
            "best_return": _plain(columns["best_reward"][-1]),
            "episodes": last.get("episodes_total"),
            "seconds": _plain(columns["time"][-1]),
        },
        "plan": _plan_of(curve.path),
        "evaluation": _evaluation(next((row["evaluation"] for row in reversed(rows) if row.get("evaluation")), {})),
        "machine": to_jsonable(read_run_json(curve.path, MACHINE_FILE)),
    }


def _metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Returns the curves that a page can show, by their names: None where a result has no number."""
    flat = [dict(flatten({key: row[key] for key in row if key != "hist_stats"})) for row in rows]
    names = dict(_SHOWN)
    learner = {key for row in flat for key in row if key.startswith(_LEARNER)}
    names |= {key.removeprefix(_LEARNER).replace("default_policy/", ""): key for key in sorted(learner)}
    curves = {name: [_plain(row.get(key)) for row in flat] for name, key in names.items()}
    return {name: values for name, values in curves.items() if any(value is not None for value in values)}


def _history_metrics(columns: Mapping[str, Any], kept: Sequence[int]) -> dict[str, list[float | None]]:
    named = {"mean return": "mean_reward", "best mean return": "best_reward"}
    return {name: [_plain(columns[key][index]) for index in kept] for name, key in named.items()}


def _evaluation(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the table of the last evaluation in a result."""
    shown = {
        "episodes": "episodes_this_iter",
        "mean": "episode_reward_mean",
        "min": "episode_reward_min",
        "max": "episode_reward_max",
        "length": "episode_len_mean",
        "iteration": "training_iteration",
    }
    return {name: evaluation[key] for name, key in shown.items() if evaluation.get(key) is not None}


def _plan_rows(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the operators of a plan with their depth in the tree, in the order in which items flow."""
    rows: list[dict[str, Any]] = []

    def add(operators: Sequence[Mapping[str, Any]], depth: int) -> None:
        for operator in operators:
            for branch in operator.get("branches", ()):
                add(branch["operators"], depth + 1)
            numbers = {key: _plain(operator[key]) for key in ("items", "items_per_s", "own_s", "share")}
            words = {key: str(operator[key]) for key in ("name", "arguments")}
            rows.append({**words, **numbers, "depth": depth})

    add(plan.get("operators", ()), 0)
    elapsed = _plain(plan.get("elapsed_s"))
    if rows and elapsed:
        rest = max(0.0, elapsed - sum(row["own_s"] or 0.0 for row in rows))
        rows.append({"name": "outside of operators", "arguments": "", "items": None, "items_per_s": None,
                     "own_s": rest, "share": rest / elapsed, "depth": 0})  # fmt: skip
    return rows


def _plan_of(run: Path) -> list[dict[str, Any]]:
    try:
        return _plan_rows(read_run_json(run, PLAN_FILE))
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{str(run / PLAN_FILE)!r} is damaged: it is no plan ({type(error).__name__})") from error


def _evenly(count: int) -> list[int]:
    """Returns the indexes of rows that are shown; the last row is among them."""
    step = math.ceil(count / _MOST_POINTS)
    return [*range(0, count - 1, max(step, 1)), count - 1]


def _own_videos(run: Path) -> list[Path]:
    """Returns the videos of a run; links that lead outside of it are left out, with a warning."""
    found = sorted((run / VIDEOS).glob("*.mp4")) if run.is_dir() else []
    outside = [path for path in found if not is_inside(path, run)]
    for path in outside:
        warnings.warn(f"{str(path)!r} leads outside of the run directory; it is left out of the page", stacklevel=2)
    return [path for path in found if path not in outside]


def _data_uri(path: Path) -> str:
    try:
        return "data:video/mp4;base64," + base64.b64encode(read_bytes(path, _MOST_VIDEO_BYTES)).decode()
    except OSError as error:
        raise ConfigError(f"the video {str(path)!r} cannot be read: {error.strerror}") from error


def _plain(value: Any) -> float | None:
    """Returns a finite number as JSON has it, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return int(value) if isinstance(value, int) else float(value)
