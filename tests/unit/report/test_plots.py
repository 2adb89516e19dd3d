"""Curves read from runs, and pictures of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra `plot`")

from rlframe.report import plot_history
from rlframe.report.curves import find_curves, group_curves, on_a_grid, read_curve
from rlframe.report.history import HistoryFile
from rlframe.report.plotting import plot_runs, save
from rlframe.utils.errors import ConfigError


def make_run(path: Path, returns: list[float | None], **config: Any) -> Path:
    path.mkdir(parents=True)
    spec = {"algorithm": "PPO", "env": "CartPole-v1", "config": config}
    (path / "run.json").write_text(json.dumps(spec))
    rows = [
        {"episode_reward_mean": value, "timesteps_total": 100 * n, "time_total_s": 2.0 * n, "training_iteration": n}
        for n, value in enumerate(returns, start=1)
    ]
    (path / "result.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_runs_that_differ_in_their_seed_are_one_group(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / "all" / f"a{seed}", [1.0], seed=seed, lr=0.1)
    make_run(tmp_path / "all" / "b", [1.0], seed=1, lr=0.2, model={"dim": 3})
    groups = group_curves(find_curves([tmp_path / "all"]))
    assert {label: len(curves) for label, curves in groups.items()} == {
        "PPO lr=0.1 model.dim=default": 2,
        "PPO lr=0.2 model.dim=3": 1,
    }


def test_curves_are_brought_to_one_grid(tmp_path: Path) -> None:
    curves = [read_curve(make_run(tmp_path / str(n), values)) for n, values in enumerate(([None, 1, 3], [0, 2]))]
    places, values = on_a_grid(curves, "mean_reward", "step")
    assert places.tolist() == [100, 200, 300]
    np.testing.assert_array_equal(values, [[np.nan, 1, 3], [0, 2, np.nan]])


def test_plot_of_runs_has_a_line_and_a_band(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(seed), [float(seed), 5.0], seed=seed) for seed in range(3)]
    figure = plot_runs(find_curves(runs), labels=["mine"], x="time", time_unit="min")
    (axes,) = figure.axes
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_xdata(), [2 / 60, 4 / 60])
    np.testing.assert_allclose(line.get_ydata(), [1.0, 5.0])
    assert len(axes.collections) == 1
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["mine (3 runs)"]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("time (min)", "mean return", "CartPole-v1")


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plot_history_draws_files_and_directories(tmp_path: Path, suffix: str, begins: bytes) -> None:
    history = HistoryFile(tmp_path / "h.parquet")
    for step in (1, 2, 3):
        history.append({"episode_reward_mean": 10.0 * step, "timesteps_total": step, "time_total_s": 3600.0 * step})
    run = make_run(tmp_path / "run", [1.0, 2.0])
    figure = plot_history(
        [tmp_path / "h.parquet", run], ["a", "b"], "E", plot="best_reward", benchmark="time", history_interval=2,
        time_unit="hours",
    )  # fmt: skip
    assert [line.get_xdata().tolist() for line in figure.axes[0].lines] == [[1.0, 3.0], [2 / 3600]]
    assert figure.axes[0].lines[0].get_ydata().tolist() == [10.0, 30.0]
    save(figure, tmp_path / f"p.{suffix}")
    assert (tmp_path / f"p.{suffix}").read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": []}, "wanted one for each"),
        ({"plot": "loss"}, "got 'loss', wanted one of mean_reward"),
        ({"benchmark": "epoch"}, "wanted one of step, time"),
        ({"time_unit": "weeks"}, "wanted one of s, min, hour, day"),
        ({"history_interval": 0}, "wanted an integer >= 1"),
    ],
)
def test_plot_history_refuses_what_it_does_not_know(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    run = make_run(tmp_path / "run", [1.0])
    with pytest.raises(ConfigError, match=message):
        plot_history(**{"paths": [run], "labels": ["a"], "env": "E", **arguments})


def test_runs_without_a_result_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no result yet"):
        read_curve(make_run(tmp_path / "run", []))
    with pytest.raises(ConfigError, match="no run directory"):
        find_curves([tmp_path / "nothing"])
