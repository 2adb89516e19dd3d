"""History files."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from rlframe.report.history import HISTORY_COLUMNS, HistoryFile, read_history
from rlframe.utils.errors import ConfigError


def result(iteration: int, mean: float) -> dict[str, Any]:
    return {
        "episode_reward_mean": mean,
        "hist_stats": {"episode_reward": [0.0, mean + 1]},
        "timesteps_total": 100 * iteration,
        "time_total_s": 0.5 * iteration,
    }


def test_rows_hold_mean_best_last_steps_and_time(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path / "h.parquet")
    for iteration, mean in enumerate([math.nan, 5.0, 3.0, 8.0], start=1):
        history.append(result(iteration, mean))
    columns = read_history(tmp_path / "h.parquet")
    assert tuple(columns) == HISTORY_COLUMNS
    assert columns["mean_reward"].tolist()[1:] == [5.0, 3.0, 8.0]
    assert columns["best_reward"].tolist()[1:] == [5.0, 5.0, 8.0]
    assert math.isnan(columns["best_reward"][0])
    assert columns["episode_reward"].tolist()[1:] == [6.0, 4.0, 9.0]
    assert columns["step"].tolist() == [100, 200, 300, 400]
    assert columns["time"].tolist() == [0.5, 1.0, 1.5, 2.0]
    assert [path.name for path in tmp_path.iterdir()] == ["h.parquet"], "no temporary file is left"


def test_file_that_is_there_is_continued_and_truncated(tmp_path: Path) -> None:
    first = HistoryFile(tmp_path / "h.parquet")
    for iteration in range(1, 4):
        first.append(result(iteration, 1.0))
    again = HistoryFile(tmp_path / "h.parquet")
    again.truncate_after(200)
    again.append(result(9, 2.0))
    assert read_history(tmp_path / "h.parquet")["step"].tolist() == [100, 200, 900]


def test_failing_write_leaves_the_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = HistoryFile(tmp_path / "h.parquet")
    history.append(result(1, 1.0))

    def half(table: Any, path: Path) -> None:
        path.write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet, "write_table", half)
    with pytest.raises(OSError, match="No space"):
        history.append(result(2, 1.0))
    monkeypatch.undo()
    assert read_history(tmp_path / "h.parquet")["step"].tolist() == [100]
    assert len(list(tmp_path.iterdir())) == 1


def test_other_columns_are_refused_with_those_expected(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"reward": [1.0]}), tmp_path / "other.parquet")
    with pytest.raises(ConfigError, match="has columns reward, wanted mean_reward, best_reward, episode_reward, step"):
        read_history(tmp_path / "other.parquet")
    with pytest.raises(ConfigError, match="wanted mean_reward"):
        HistoryFile(tmp_path / "other.parquet")


def test_text_is_no_history(tmp_path: Path) -> None:
    (tmp_path / "h.parquet").write_text("mean_reward,step\n1,2\n")
    with pytest.raises(ConfigError, match="is no history"):
        read_history(tmp_path / "h.parquet")


def test_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        HistoryFile(tmp_path / "nowhere" / "h.parquet")


def test_the_history_of_another_run_is_told_by_its_steps(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path / "h.parquet")
    history.check_same([])
    for iteration in (1, 2):
        history.append(result(iteration, 1.0))
    for same in ([100], [100, 200], [100, 200, 300]):
        history.check_same(same)
    for other in ([], [50], [100, 250]):
        with pytest.raises(ConfigError, match="the history of another run"):
            history.check_same(other)
