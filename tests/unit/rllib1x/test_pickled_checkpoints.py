"""What is told of pickles that are no checkpoint, or mean harm; nothing of them is executed."""

from __future__ import annotations

import os
import pathlib
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlframe.rllib1x.checkpoints import read_checkpoint
from rlframe.utils.errors import CheckpointError
from tests.golden.test_checkpoints_of_rllib19 import ARCHIVE
from tests.hostile.watch import attack, watching

WEIGHTS = {"_logits._model.0.weight": np.ones((2, 4), np.float32)}


class Runs:
    """Pickled as a call."""

    def __init__(self, function: Any = os.system, *arguments: Any) -> None:
        self.call = (function, arguments or ("touch executed",))

    def __reduce__(self) -> Any:
        return self.call


def checkpoint(weights: Any = None, filters: Any = None, steps: int = 4) -> bytes:
    state = {"default_policy": {"weights": WEIGHTS if weights is None else weights, "global_timestep": steps}}
    worker = {"state": state, "filters": {"default_policy": filters}}
    return pickle.dumps({"worker": pickle.dumps(worker), "train_exec_impl": {"counters": {}}})


def raw(weights: bytes) -> bytes:
    """Returns a checkpoint whose weights are what these operations leave on the stack."""
    head = b"\x80\x04}(X\x07\x00\x00\x00filters}X\x05\x00\x00\x00state}X\x01\x00\x00\x00p}(X\x07\x00\x00\x00weights"
    return pickle.dumps({"worker": head + weights + b"usu."})


def copies_of_one_array(count: int = 1000, size: int = 1 << 16) -> bytes:
    """Returns many arrays that name the same bytes: 65 MB, if they were made."""
    data = b"B" + size.to_bytes(4, "little") + bytes(size) + b"q\x000"
    dtype = b"cnumpy\ndtype\n(X\x02\x00\x00\x00u1K\x00K\x01tRq\x010"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(tR(K\x01(J" + size.to_bytes(4, "little") + b"th\x01\x89h\x00tb"
    return raw(data + dtype + b"(" + array * count + b"l")


def nested(depth: int) -> Any:
    made: Any = 0
    for _ in range(depth):
        made = [made, made]
    return made


def itself() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "a call in place of all": (lambda: pickle.dumps(Runs()), "system, which is not run"),
    "a call in place of the worker": (lambda: pickle.dumps({"worker": Runs()}), "system"),
    "a call in the bytes of the worker": (lambda: pickle.dumps({"worker": pickle.dumps(Runs())}), "system"),
    "a call as weights": (lambda: checkpoint(Runs()), "weights of 'default_policy' is made by .*system"),
    "a call as an array": (lambda: checkpoint({"w": Runs(eval, "open('executed', 'w')")}), r"builtins\.eval"),
    "a call as a filter": (lambda: checkpoint(filters=Runs()), "the filter of 'default_policy' is a system"),
    "a call of protocol 0": (lambda: b"cos\nsystem\n(S'touch executed'\ntR.", r"os\.system"),
    "a call by INST": (lambda: b"(S'touch executed'\nios\nsystem\n.", r"os\.system"),
    "an attribute of a module": (lambda: checkpoint({"w": Runs(getattr, "os", "system")}), "getattr"),
    "an array of objects": (lambda: checkpoint({"w": np.array([Runs()], dtype=object)}), "objects"),
    "an array of records": (lambda: checkpoint({"w": np.zeros(2, "f4,i4")}), "no finite number"),
    "an array of texts": (lambda: checkpoint({"w": np.array(["a"])}), "no finite number"),
    "NaN": (lambda: checkpoint({"w": np.array([np.nan])}), "no finite number"),
    "names that are numbers": (lambda: checkpoint({1: np.ones(1)}), "names that no layers have"),
    "a name of a megabyte": (lambda: checkpoint({"/" * (1 << 20): np.ones(1)}), "names that no layers have"),
    "two to the fortieth parts": (lambda: checkpoint(nested(40)), "structures within structures"),
    "two to the nineteenth parts, often": (lambda: checkpoint([nested(18)] * 8), "structures within structures"),
    "a list in itself": (lambda: checkpoint(itself()), "structures within structures"),
    "a tuple as deep as the stack": (lambda: raw(b"}" + b")" + b"\x85" * 200_000 + b"K\x00s"), "a tuple as key"),
    "a list as deep as the stack": (lambda: raw(b"]" * 200_000 + b"a" * 199_999), "structures"),
    "many arrays of the same bytes": (copies_of_one_array, "more bytes than the file"),
    "an array beyond its bytes": (
        lambda: checkpoint({"w": np.ones(3)}).replace(b"K\x03\x85", b"K\x7f\x85"),
        "no array",
    ),
    "no pickle": (lambda: b"RLlib" * 10, "cannot be read"),
    "nothing": (lambda: b"", "cannot be read"),
    "half of it": (lambda: checkpoint()[:-40], "cannot be read|no 'worker'"),
    "bytes that are not there": (lambda: b"\x80\x04\x8e" + b"\xff" * 7 + b"\x0f.", "cannot be read"),
    "a persistent id": (lambda: b"Pexecuted\n.", "operation PERSID"),
    "an extension": (lambda: b"\x80\x02\x82\x01.", "operation EXT1"),
    "a count below zero": (lambda: checkpoint(steps=-1), "a count is -1, wanted a number of at least 0"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_refused_in_a_sentence(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, says = HOSTILE[name]
    file = tmp_path / "checkpoint-3"
    file.write_bytes(make())
    with watching(tmp_path):
        assert attack(lambda: read_checkpoint(file))[0] == "refused"
    with pytest.raises(CheckpointError, match=says) as raised:
        read_checkpoint(tmp_path)
    assert len(str(raised.value)) < 600
    assert not (tmp_path / "executed").exists()


def test_code_beside_the_weights_is_named_and_not_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(ARCHIVE) as archive:
        outer = pickle.loads(archive.read("pg_torch/checkpoint-2"))
    # The worker's own state with a call behind it: "u." ends the dict of three, ...
    outer["worker"] = outer["worker"][:-1] + b"X\x04\x00\x00\x00more" + pickle.dumps(Runs(), protocol=2)[2:-1] + b"s."
    (tmp_path / "checkpoint-1").write_bytes(pickle.dumps(outer))
    with watching(tmp_path):
        read = read_checkpoint(tmp_path)
    assert any(name.endswith(".system") for name in read.not_run)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("files", [[], ["checkpoint-1", "checkpoint-2"], ["other"]])
def test_a_folder_without_one_checkpoint_is_told(files: list[str], tmp_path: pathlib.Path) -> None:
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match=r"a directory with one, got (none|2 of them)"):
        read_checkpoint(tmp_path)
