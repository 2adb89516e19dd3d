"""Run directories and their checkpoints."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rlframe.cli.run_directory import (
    RunSpec,
    checkpoints,
    describe_checkpoint,
    make_run_directory,
    prune,
    remove_if_unused,
    remove_unfinished,
    strange_entries,
)
from rlframe.cli.stop import StopCriterion
from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.run_lock import RunLock

SPEC = RunSpec("DQN", "CartPole-v1", {"lr": 1e-3}, StopCriterion(episode_reward_mean=195.0), 5, 3)


def make_checkpoints(directory: Path, *iterations: int) -> None:
    for iteration in iterations:
        (directory / "checkpoints" / f"checkpoint_{iteration:06d}").mkdir(parents=True)


@pytest.mark.parametrize("config", [{"lr": 1e-3}, {"vf_clip_param": math.inf}])
def test_spec_written_and_read_is_the_same(tmp_path: Path, config: dict[str, float]) -> None:
    spec = replace(SPEC, config=config)
    spec.write(tmp_path)
    assert RunSpec.read(tmp_path) == spec
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "damaged"),
        ("[1]", "damaged"),
        ('{"schema": 2}', "schema 2"),
        ('{"schema": 1, "algorithm": "x"}', "damaged"),
        ('{"schema": 1, "algorithm": "x", "env": ["y"], "stop": {}}', "env is .*wanted a text"),
        ('{"schema": 1, "algorithm": "x", "env": "y", "stop": {}, "patience": {"early_stop": "z"}}', "patience is"),
        ('{"schema": 1, "algorithm": "x", "env": "y", "stop": {}, "checkpoint_freq": -1}', "checkpoint_freq is -1"),
        ('{"schema": NaN}', "NaN"),
        ("[" * 100_000, "nests deeper than 100 levels"),
    ],
)
def test_spec_damaged_raises_checkpointerror(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        RunSpec.read(tmp_path)


def test_spec_missing_raises_checkpointerror(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no run directory"):
        RunSpec.read(tmp_path)


def test_directory_unnamed_is_below_runs_and_new_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = make_run_directory("DQN", "ALE/Pong-v5")
    second = make_run_directory("DQN", "ALE/Pong-v5")
    assert first.parent == Path("runs")
    assert first.name.startswith("DQN_ALE-Pong-v5_")
    assert first != second
    assert (second / "checkpoints").is_dir()


def test_directory_with_a_run_in_it_raises_configerror(tmp_path: Path) -> None:
    SPEC.write(tmp_path)
    with pytest.raises(ConfigError, match="--resume"):
        make_run_directory("DQN", "x", tmp_path)


def test_directory_that_cannot_be_written_raises_configerror(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        make_run_directory("DQN", "x", tmp_path / "file" / "run")


def test_remove_unused_directory_leaves_the_users_files(tmp_path: Path) -> None:
    run = make_run_directory("DQN", "x", tmp_path / "run")
    (run / "params.json").touch()
    remove_if_unused(run)
    assert not run.exists()
    run = make_run_directory("DQN", "x", tmp_path / "run")
    (run / "notes.txt").touch()
    remove_if_unused(run)
    assert [path.name for path in run.iterdir()] == ["notes.txt"]


def test_checkpoints_are_newest_first_and_nothing_else(tmp_path: Path) -> None:
    make_checkpoints(tmp_path, 9, 1_000_000, 10)
    (tmp_path / "checkpoints" / "checkpoint_000011.tmp").mkdir()
    names = [path.name for path in checkpoints(tmp_path)]
    assert names == ["checkpoint_1000000", "checkpoint_000010", "checkpoint_000009"]


def test_prune_keeps_the_newest_and_zero_keeps_all(tmp_path: Path) -> None:
    make_checkpoints(tmp_path, 1, 2, 3)
    prune(tmp_path, 0)
    assert len(checkpoints(tmp_path)) == 3
    prune(tmp_path, 2)
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint_000003", "checkpoint_000002"]


def test_describe_checkpoint_reads_what_it_names(tmp_path: Path) -> None:
    meta = {"algorithm": "DQN", "env": "CartPole-v1", "config": {"lr": 0.1}}
    (tmp_path / "state.json").write_text(json.dumps({"meta": meta}))
    assert describe_checkpoint(tmp_path) == RunSpec("DQN", "CartPole-v1", {"lr": 0.1})


@pytest.mark.parametrize("content", [None, "{", "[]", '{"meta": {}}'])
def test_describe_checkpoint_that_is_none_raises_checkpointerror(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "state.json").write_text(content)
    with pytest.raises(CheckpointError, match="neither a run directory nor a checkpoint"):
        describe_checkpoint(tmp_path)


def test_one_process_trains_in_a_directory_and_leaves_it_free(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    with pytest.raises(ConfigError, match=f"in use: process {os.getpid()} trains there"):
        RunLock(tmp_path)
    lock.release()
    lock.release()
    assert list(tmp_path.iterdir()) == []
    RunLock(tmp_path).release()


def test_without_locks_nobody_is_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlframe.utils.run_lock.fcntl", None)
    lock = RunLock(tmp_path)
    RunLock(tmp_path).release()
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_process_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    holds = f"import os, time; from pathlib import Path; from rlframe.utils.run_lock import RunLock\n" \
            f"lock = RunLock(Path({str(tmp_path)!r})); print('held', flush=True); time.sleep(60)"  # fmt: skip
    process = subprocess.Popen([sys.executable, "-c", holds], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    with pytest.raises(ConfigError, match=f"process {process.pid} trains there"):
        RunLock(tmp_path)
    process.kill()
    process.communicate()
    assert (tmp_path / "run.lock").exists()
    RunLock(tmp_path).release()


def test_links_that_lead_outside_and_pipes_are_strange(tmp_path: Path) -> None:
    run = tmp_path / "run"
    SPEC.write(make_run_directory("DQN", "x", run))
    (run / "newest").symlink_to("checkpoints")
    assert strange_entries(run) == []
    (run / "result.jsonl").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(run / "progress.csv")
    assert strange_entries(run) == ["progress.csv", "result.jsonl"]


def test_what_a_killed_save_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    make_checkpoints(tmp_path, 1)
    for name in (".checkpoint_000002.new-0a1b", ".checkpoint_000001.old-0a1b", "mine"):
        (tmp_path / "checkpoints" / name).mkdir()
    remove_unfinished(tmp_path)
    left = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert left == {"checkpoint_000001", ".checkpoint_000001.old-0a1b", "mine"}
