"""What Tune's results give programs that were written for Ray 1.x."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pyarrow.fs
import pytest
import ray.tune

from rlframe.trainer.checkpoint_paths import leave_pointer
from rlframe.tune.results import NamesOfRay1, path_of


def test_a_checkpoint_is_a_text_and_what_it_is_today(tmp_path: Path) -> None:
    wanted = str(tmp_path / "checkpoint_000002")
    os.mkdir(wanted)
    file = leave_pointer(wanted, 2)
    checkpoint = path_of(ray.tune.Checkpoint.from_directory(wanted))
    assert (checkpoint, checkpoint.value, f"{checkpoint}", checkpoint.path) == (file, file, file, wanted)
    assert (checkpoint.split("-")[-1], os.path.dirname(checkpoint), os.path.isfile(checkpoint)) == ("2", wanted, True)
    assert json.loads(json.dumps(checkpoint)) == file
    again = pickle.loads(pickle.dumps(checkpoint))
    assert (again, again.filesystem.type_name) == (file, "local")
    with checkpoint.as_directory() as directory:
        assert directory == wanted


def test_a_checkpoint_without_a_file_of_rllibs_name_is_its_directory_with_a_slash(tmp_path: Path) -> None:
    wanted = str(tmp_path / "checkpoint_000002")
    os.mkdir(wanted)
    checkpoint = path_of(ray.tune.Checkpoint.from_directory(wanted))
    assert (checkpoint, os.path.dirname(checkpoint), checkpoint.path) == (f"{wanted}/", wanted, wanted)


def test_a_checkpoint_elsewhere_stays_one_that_can_be_fetched(tmp_path: Path) -> None:
    inside = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    checkpoint = path_of(ray.tune.Checkpoint("bucket/checkpoint_000002", filesystem=inside))
    assert isinstance(checkpoint, ray.tune.Checkpoint)
    assert os.fspath(checkpoint) == "bucket/checkpoint_000002"
    assert path_of(None) is None


def test_callbacks_are_given_the_checkpoint_of_ray_1s_path(tmp_path: Path) -> None:
    from rlframe.tune.checkpoint_manager import Checkpoint

    file = leave_pointer(str(tmp_path), 2)
    checkpoint = ray.tune.Checkpoint.from_directory(str(tmp_path))
    NamesOfRay1().on_checkpoint(iteration=1, trials=[], trial=None, checkpoint=checkpoint)
    assert isinstance(checkpoint, Checkpoint)
    assert (checkpoint.value, checkpoint.storage) == (file, Checkpoint.PERSISTENT)
    with pytest.raises(TypeError, match="wanted the directory alone"):
        Checkpoint(Checkpoint.PERSISTENT, value=file, result={"episode_reward_mean": 1})
    assert Checkpoint.from_directory(str(tmp_path)).value == file
    with pytest.raises(ImportError, match="use ExperimentAnalysis"):
        from rlframe.tune.checkpoint_manager import CheckpointManager  # noqa: F401
