"""The directory of a run: records of stages, files that it was given, stopping."""

import math

import pytest

from rlframe.revive.workspace import StageRecord, Workspace
from rlframe.utils.errors import CheckpointError, ConfigError


def test_best_trial_is_the_smallest_or_largest_and_never_nan(tmp_path):
    workspace = Workspace.make(tmp_path, "run")
    venv, policy = StageRecord(), StageRecord()
    assert [venv.add(str(i), metric, larger=False) for i, metric in enumerate((math.nan, 2.0, 3.0, 1.0))] == [
        False, True, False, True
    ]  # fmt: skip
    assert [policy.add(str(i), metric, larger=True) for i, metric in enumerate((2.0, 3.0, 1.0))] == [True, True, False]
    workspace.set_stage("venv", venv)
    read = workspace.stage("venv")
    assert (read.best_id, read.best_metric, read.num_of_trial) == ("3", 1.0, 4)
    assert workspace.stage("policy") == StageRecord()
    assert [path.name for path in workspace.directory.iterdir()] == ["train_venv.json"]


def test_run_goes_on_with_the_same_data_only(tmp_path):
    data = tmp_path / "data.npz"
    data.write_bytes(b"one")
    workspace = Workspace.make(tmp_path / "logs", "run")
    workspace.note_files({"dataset_file": data, "val_file": None})
    workspace.note_files({"dataset_file": data, "val_file": None})
    data.write_bytes(b"two")
    with pytest.raises(ConfigError, match=r"this run began with other data .*choose another run_id"):
        workspace.note_files({"dataset_file": data, "val_file": None})


def test_policy_goes_on_with_the_same_reward_only(tmp_path):
    data, reward = tmp_path / "data.npz", tmp_path / "reward.py"
    data.write_bytes(b"one")
    reward.write_bytes(b"one")
    files = {"dataset_file": data, "val_file": None, "reward_file": reward}
    workspace = Workspace.make(tmp_path / "logs", "run")
    workspace.note_files(files)
    reward.write_bytes(b"two")
    workspace.note_files(files)  # no policy was judged by it yet
    workspace.set_stage("policy", StageRecord(state="Run"))
    workspace.note_files({**files, "reward_file": None})
    assert workspace.files()["reward_file"] == reward
    reward.write_bytes(b"three")
    with pytest.raises(
        ConfigError, match=r"began with another reward \(reward_file has changed since\); choose another"
    ):
        workspace.note_files(files)


@pytest.mark.parametrize("run_id", ["", "../other", "a/b", ".hidden"])
def test_run_id_is_a_name(tmp_path, run_id):
    with pytest.raises(ConfigError, match="run_id: got"):
        Workspace.make(tmp_path, run_id)


def test_damaged_record_is_told(tmp_path):
    workspace = Workspace.make(tmp_path, "run")
    assert not workspace.directory.exists()  # made with the first file
    workspace.set_stage("venv", StageRecord())
    (workspace.directory / "train_venv.json").write_text('{"state": "Runing"}')
    with pytest.raises(CheckpointError, match="got the state 'Runing', wanted one of Wait"):
        workspace.stage("venv")
    with pytest.raises(ConfigError, match="is no run"):
        Workspace.open(workspace.directory)


def test_wish_to_stop_is_seen_and_taken_back(tmp_path):
    workspace = Workspace.make(tmp_path, "run")
    assert not workspace.stop_asked()
    workspace.ask_to_stop()
    assert Workspace(workspace.directory).stop_asked()
    workspace.may_go_on()
    assert not workspace.stop_asked()
