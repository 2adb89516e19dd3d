"""States on disk that were cut short, changed, interrupted or did not fit."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from rlframe.utils import state_files
from rlframe.utils.errors import CheckpointError
from rlframe.utils.state_files import read_state, write_state

pytestmark = pytest.mark.fault

STATE = {
    "weights": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(3)},
    "replay": np.arange(200_000, dtype=np.float64),
    "count": 7,
}
FILES = ["manifest.json", "state.json", "arrays.safetensors", "array_0000.npy"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write_state(tmp_path / "state", STATE, {"algorithm": "DQN"})
    return tmp_path / "state"


def check_intact(path: Path, count: int = 7) -> None:
    state, meta = read_state(path)
    assert state["count"] == count
    np.testing.assert_array_equal(state["replay"], STATE["replay"])
    assert meta == {"algorithm": "DQN"}


def test_files_are_those_promised_and_big_arrays_plain_npy(saved):
    assert sorted(os.listdir(saved)) == sorted(FILES)
    np.testing.assert_array_equal(np.load(saved / "array_0000.npy", allow_pickle=False), STATE["replay"])
    assert json.loads((saved / "state.json").read_text())["state"]["count"] == 7
    check_intact(saved)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0, 0.5, -1])
def test_read_truncated_file_names_it(saved, name, keep):
    file = saved / name
    size = file.stat().st_size
    os.truncate(file, size - 1 if keep == -1 else int(size * keep))
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        read_state(saved)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0.02, 0.5, 0.99])
def test_read_altered_byte_is_found_in_any_file(saved, name, place):
    data = bytearray((saved / name).read_bytes())
    data[int(len(data) * place)] ^= 0x01
    (saved / name).write_bytes(data)
    with pytest.raises(CheckpointError):
        read_state(saved)


@pytest.mark.parametrize("name", FILES)
def test_read_missing_file_names_it(saved, name):
    (saved / name).unlink()
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        read_state(saved)


def test_read_surplus_file_is_named(saved):
    (saved / "array_0001.npy").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"surplus.*array_0001\.npy"):
        read_state(saved)


@pytest.mark.parametrize("atomic", [True, False])
def test_files_of_a_program_beside_a_state_stay_and_are_not_read(saved, monkeypatch, atomic):
    (saved / "config.pkl").write_bytes(b"mine")
    (saved / "plots").mkdir()
    (saved / "plots" / "a.txt").write_text("mine, too")
    check_intact(saved)
    if not atomic:
        monkeypatch.setattr(state_files, "_exchange", lambda first, second: False)
    write_state(saved, {**STATE, "count": 8}, {"algorithm": "DQN"})
    check_intact(saved, count=8)
    assert (saved / "config.pkl").read_bytes() == b"mine"
    assert (saved / "plots" / "a.txt").read_text() == "mine, too"


def test_read_link_instead_of_file_is_refused(saved, tmp_path):
    (saved / "state.json").rename(tmp_path / "elsewhere.json")
    (saved / "state.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(CheckpointError, match=r"state\.json"):
        read_state(saved)


def test_read_no_directory_says_what_is_there(tmp_path):
    with pytest.raises(CheckpointError, match="got nothing"):
        read_state(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="got a file"):
        read_state(tmp_path / "file")


@pytest.mark.parametrize("content", ["[]", "{}", '{"schema": 1}', '{"schema": 1, "files": {"a": 3}}', "no json"])
def test_read_manifest_of_another_form_is_refused(saved, content):
    (saved / "manifest.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        read_state(saved)


def test_read_other_schema_names_both_versions(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    (saved / "manifest.json").write_text(json.dumps({**manifest, "schema": 99}))
    with pytest.raises(CheckpointError, match="got schema version 99, wanted 1"):
        read_state(saved)


def forge(saved: Path, change) -> None:
    """Rewrites state.json and makes the manifest agree with it."""
    structure = json.loads((saved / "state.json").read_text())
    change(structure)
    data = json.dumps(structure).encode()
    (saved / "state.json").write_bytes(data)
    manifest = json.loads((saved / "manifest.json").read_text())
    manifest["files"]["state.json"] = {"bytes": len(data), "sha256": state_files.hashlib.sha256(data).hexdigest()}
    (saved / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.pop("state"),
        lambda s: s.update(schema=2),
        lambda s: s["state"].pop("replay"),
        lambda s: s["state"]["weights"].pop("w"),
        lambda s: s["state"]["replay"]["$array"].update(dtype="|O"),
        lambda s: s["state"]["replay"]["$array"].update(dtype="<f4"),
        lambda s: s["state"]["replay"]["$array"].update(shape=[5]),
        lambda s: s["state"]["replay"]["$array"].update(file="../../etc/passwd"),
        lambda s: s["state"]["weights"]["w"]["$array"].update(shape=[6]),
        lambda s: s["state"]["weights"]["w"]["$array"].update(name="nope"),
        lambda s: s["state"].update(again=s["state"]["replay"]),
        lambda s: s["state"].update(x={"$float": "y"}),
        lambda s: s["state"].update(x={"$array": 3}),
        lambda s: s["state"].update(x={"$tensor": 3}),
        lambda s: s["state"].update(x={"$tuple": 3}),
        lambda s: s["state"].update(x={"$pairs": [[[1], 2]]}),
    ],
)
def test_read_forged_structure_is_refused(saved, change):
    forge(saved, change)
    with pytest.raises(CheckpointError):
        read_state(saved)


def test_read_pickled_npy_is_never_unpickled(saved):
    objects = np.array([print, None], dtype=object)
    with (saved / "array_0000.npy").open("wb") as file:
        np.lib.format.write_array(file, objects, allow_pickle=True)
    data = (saved / "array_0000.npy").read_bytes()
    manifest = json.loads((saved / "manifest.json").read_text())
    manifest["files"]["array_0000.npy"] = {
        "bytes": len(data),
        "sha256": state_files.hashlib.sha256(data).hexdigest(),
    }
    (saved / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"array_0000\.npy"):
        read_state(saved)


def test_optimizer_state_of_a_program_comes_back_as_it_was(tmp_path):
    layer = torch.nn.Linear(2, 1).double()
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    optimizer.step()
    told = {("agent", 1): 3, None: 4, True: "yes", "$tuple": (1, (2.5, "x"))}
    write_state(tmp_path / "state", {"net": layer.state_dict(), "optimizer": optimizer.state_dict(), "told": told})
    state, _ = read_state(tmp_path / "state")
    assert state["told"] == told
    assert all(torch.equal(state["net"][name], weights) for name, weights in layer.state_dict().items())
    again = torch.optim.Adam(layer.parameters())
    again.load_state_dict(state["optimizer"])
    for parameter in layer.parameters():
        assert torch.equal(again.state[parameter]["exp_avg"], optimizer.state[parameter]["exp_avg"])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array([{}], dtype=object), "dtype object"),
        (np.zeros(2, dtype=[("a", "f4")]), "dtype"),
        (print, "builtin_function"),
        ({print: 2}, "builtin_function"),
        (1j, "complex"),
    ],
)
def test_write_what_needs_pickle_is_refused_before_anything_is_written(tmp_path, value, words):
    with pytest.raises(ValueError, match=words) as caught:
        write_state(tmp_path / "state", {"a": [0, {"b": value}]})
    assert "state.a.1.b" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_write_arrays_in_meta_are_refused(tmp_path):
    with pytest.raises(ValueError, match="meta"):
        write_state(tmp_path / "state", {}, {"w": np.zeros(2)})


def test_write_over_foreign_files_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"thesis\.tex"):
        write_state(tmp_path / "mine", STATE)
    assert os.listdir(tmp_path) == ["mine"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="it is a file"):
        write_state(tmp_path / "file", STATE)


@pytest.mark.parametrize("atomic", [True, False])
def test_write_replaces_an_earlier_state_and_leaves_nothing_else(saved, monkeypatch, atomic):
    if not atomic:
        monkeypatch.setattr(state_files, "_exchange", lambda first, second: False)
    write_state(saved, {**STATE, "count": 8}, {"algorithm": "DQN"})
    check_intact(saved, count=8)
    assert os.listdir(saved.parent) == ["state"]
    (saved.parent / "empty").mkdir()
    write_state(saved.parent / "empty", STATE)
    assert read_state(saved.parent / "empty")[1] == {}


def test_write_through_a_link_keeps_the_link(saved):
    link = saved.parent / "link"
    link.symlink_to(saved)
    write_state(link, {**STATE, "count": 9}, {"algorithm": "DQN"})
    assert link.is_symlink()
    check_intact(saved, count=9)


class FullDisk:
    """Stands in for `open`: files fail once a number of bytes has been written in all."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __call__(self, path, mode):
        file = open(path, mode, buffering=0)  # noqa: SIM115 - the caller closes it
        return _Limited(file, self)


class _Limited:
    def __init__(self, file, disk: FullDisk) -> None:
        self.file, self.disk = file, disk

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, data):
        self.disk.room -= len(data)
        if self.disk.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(data)

    def flush(self):
        self.file.flush()

    def fileno(self):
        return self.file.fileno()


@pytest.mark.parametrize("room", [0, 300, 600, 1_000_000, 1_600_800])
def test_write_full_disk_keeps_the_earlier_state_and_says_what_is_needed(saved, monkeypatch, room):
    monkeypatch.setattr(state_files, "open", FullDisk(room), raising=False)
    with pytest.raises(OSError, match=r"1,600,\d{3} bytes \(No space left on device\)") as caught:
        write_state(saved, {**STATE, "count": 8})
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(saved)
    assert os.listdir(saved.parent) == ["state"]
    monkeypatch.undo()
    check_intact(saved)


def test_write_over_the_file_size_limit_of_the_system_is_an_oserror(saved):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))  # Python ignores the signal, so write() fails
        with pytest.raises(OSError, match="1,600,") as caught:
            write_state(saved, {**STATE, "count": 8})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert os.listdir(saved.parent) == ["state"]
    check_intact(saved)


@pytest.mark.parametrize("call", range(6))
def test_write_failing_flush_at_any_point_keeps_the_earlier_state(saved, monkeypatch, call):
    calls = iter(range(100))
    real = os.fsync

    def fsync(descriptor):
        if next(calls) == call:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    if call == 5:  # after the exchange: the new state is in place, but its durability is not certain
        with pytest.raises(OSError, match="Input/output error"):
            write_state(saved, {**STATE, "count": 8}, {"algorithm": "DQN"})
        check_intact(saved, count=8)
    else:
        with pytest.raises(OSError, match="Input/output error"):
            write_state(saved, {**STATE, "count": 8})
        check_intact(saved)
    assert os.listdir(saved.parent) == ["state"]


def test_write_failing_rename_without_exchange_puts_the_earlier_state_back(saved, monkeypatch):
    monkeypatch.setattr(state_files, "_exchange", lambda first, second: False)
    real, calls = os.rename, iter(range(10))

    def rename(source, target):
        if next(calls) == 1:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(OSError, match="Permission denied"):
        write_state(saved, {**STATE, "count": 8})
    check_intact(saved)
    assert os.listdir(saved.parent) == ["state"]


KILLER = """
import os, signal, sys
import numpy as np
from rlframe.utils import state_files

point, exchange = int(sys.argv[2]), sys.argv[3] == "exchange"
state = {
    "weights": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(3)},
    "replay": np.arange(200_000, dtype=np.float64),
    "count": 8,
}
calls = 0

def dying(function):
    def call(*args, **kwargs):
        global calls
        if calls == point:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        return function(*args, **kwargs)
    return call

if not exchange:
    state_files._exchange = lambda first, second: False
for owner, name in ((os, "fsync"), (os, "rename"), (os, "mkdir"), (state_files.shutil, "rmtree")):
    setattr(owner, name, dying(getattr(owner, name)))
state_files._exchange = dying(state_files._exchange)
state_files.write_state(sys.argv[1], state, {"algorithm": "DQN"})
"""


@pytest.mark.parametrize("way", ["exchange", "rename"])
def test_write_killed_at_every_step_leaves_a_whole_state(saved, way):
    seen = []
    for point in range(30):
        process = subprocess.run([sys.executable, "-c", KILLER, str(saved), str(point), way], check=False, timeout=60)
        state, meta = read_state(saved)
        np.testing.assert_array_equal(state["replay"], STATE["replay"])
        assert meta == {"algorithm": "DQN"}
        seen.append(state["count"])
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        write_state(saved, STATE, {"algorithm": "DQN"})
        assert os.listdir(saved.parent) == ["state"]
    assert process.returncode == 0
    assert seen == sorted(seen)
    assert {7, 8} == set(seen)
    check_intact(saved, count=8)
