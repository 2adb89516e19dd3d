"""What Tune's results give programs that were written for Ray 1.x."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pyarrow.fs
import ray.tune

from rlframe.tune.results import path_of


def test_a_checkpoint_is_a_text_and_what_it_is_today(tmp_path: Path) -> None:
    tmp_path.joinpath("checkpoint_000002").mkdir()
    checkpoint = path_of(ray.tune.Checkpoint.from_directory(tmp_path / "checkpoint_000002"))
    wanted = str(tmp_path / "checkpoint_000002")
    assert (checkpoint, checkpoint.path, checkpoint.value, f"{checkpoint}") == (wanted,) * 4
    assert checkpoint.split("/")[-1] == "checkpoint_000002"
    assert (os.path.dirname(checkpoint), json.loads(json.dumps(checkpoint))) == (str(tmp_path), wanted)
    assert pickle.loads(pickle.dumps(checkpoint)).filesystem.type_name == "local"
    with checkpoint.as_directory() as directory:
        assert directory == wanted


def test_a_checkpoint_elsewhere_stays_one_that_can_be_fetched(tmp_path: Path) -> None:
    inside = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    checkpoint = path_of(ray.tune.Checkpoint("bucket/checkpoint_000002", filesystem=inside))
    assert isinstance(checkpoint, ray.tune.Checkpoint)
    assert os.fspath(checkpoint) == "bucket/checkpoint_000002"
    assert path_of(None) is None
