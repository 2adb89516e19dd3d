"""Paths of checkpoints: the file `checkpoint-N` by which RLlib's programs know one, and their directories."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from rlframe.config.faults import shorten
from rlframe.utils.errors import CheckpointError
from rlframe.utils.files import is_inside, read_json
from rlframe.utils.state_files import STRUCTURE

#: Characters of what a file says that are repeated in a message.
_MOST_WORDS = 2000
_OLD_NAME = re.compile(r"checkpoint-\d+")
_POINTER = "The checkpoint is this file's directory; restore() takes either path.\n"
#: In a checkpoint that a program's own `save_checkpoint` wrote: the path that it returned, and counters.
NOTE = "saved_by_program.json"


def directory_for(parent: str, iteration: int) -> str:
    """Returns where the checkpoint of an iteration is written."""
    return os.path.join(parent, f"checkpoint_{iteration:06d}")


def leave_pointer(directory: str, iteration: int) -> str:
    """Writes the file `checkpoint-<iteration>`, by which programs know RLlib's checkpoints, and returns its path."""
    for name in os.listdir(directory):
        if name == NOTE or is_pointer(os.path.join(directory, name)):  # of what was here before
            os.remove(os.path.join(directory, name))
    path = Path(directory, f"checkpoint-{iteration}")
    if not path.exists():  # what is there is RLlib's
        path.write_bytes(_POINTER.encode())
    return os.path.join(directory, path.name)


def is_pointer(path: str | os.PathLike[str]) -> bool:
    """Returns whether this is a file of `leave_pointer`'s, and not one of RLlib's."""
    return _OLD_NAME.fullmatch(os.path.basename(path)) is not None and _points(path)


def _points(path: str | os.PathLike[str]) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(_POINTER) + 1) == _POINTER.encode()


def path_of(directory: str) -> str:
    """Returns the path by which programs of RLlib know a checkpoint; its directory's is `os.path.dirname` of that.

    It is the path that a program's own `save_checkpoint` returned, else the file `checkpoint-N`. Where there is
    neither, it is the directory with a slash behind it, as in Ray 1.x.
    """
    if os.path.isfile(os.path.join(directory, NOTE)):
        name = read_note(directory)["file"] or ""
    else:
        name = next((name for name in os.listdir(directory) if is_pointer(os.path.join(directory, name))), "")
    path = os.path.join(directory, name)
    return os.path.join(path, "") if os.path.isdir(path) else path


def said(error: Exception) -> str:
    """Returns an error in words; those that Python raises itself often hold no more than a key."""
    text = str(error) if isinstance(error, (ValueError, OSError)) else f"{type(error).__name__}: {error}"
    return text if len(text) <= _MOST_WORDS else f"{text[:_MOST_WORDS]}..."


def read_note(directory: str) -> dict[str, Any]:
    """Returns what is noted of a program's own checkpoint: `file`, the path in it or None, and `counters`.

    Raises:
        CheckpointError: If the note is damaged, or its path leads out of the checkpoint.
    """
    path = Path(directory, NOTE)
    try:
        note = read_json(path)
        file, counters = note["file"], dict(note["counters"])
        if file is not None and not is_inside(Path(directory, file), Path(directory)):
            raise ValueError(f"file is {shorten(file)}, wanted a path in the checkpoint")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{str(path)!r} is damaged: {said(error)}") from error
    return {"file": file, "counters": counters}


def noted_directory(path: str) -> str | None:
    """Returns the directory of a checkpoint that a program's own `save_checkpoint` wrote; None if it is none.

    Args:
        path: That directory, a file in it, or the path that was returned: it may be what several files' names begin
            with, or lie deeper.
    """
    for place in (Path(path), *Path(path).parents):
        if (place / NOTE).is_file():
            inside = Path(path).relative_to(place)
            is_its = len(inside.parts) < 2 and (place == Path(path) or os.path.isfile(path))
            return str(place) if is_its or inside == Path(read_note(str(place))["file"] or "") else None
    return None


def resolve_path(path: str) -> str:
    """Returns the checkpoint directory for itself, or for a path in it that `Trainer.save` returned.

    Numbers may lack their zeros, as up to Ray 1.3 (`checkpoint_10/checkpoint-10`).
    """
    numbered = re.fullmatch(r"(.*checkpoint_)(\d+)(/checkpoint-\d+)?/*", path)
    if numbered and not os.path.exists(numbered[1] + numbered[2]):
        padded = f"{numbered[1]}{numbered[2]:0>6}"
        path = padded if os.path.isdir(padded) else path
    parent = os.path.dirname(path) or os.curdir
    noted = noted_directory(path)
    if noted is not None:
        nearest = path if os.path.isdir(path) else parent  # of a trainer that a program's own one holds
        return nearest if os.path.isfile(os.path.join(nearest, STRUCTURE)) else noted
    inside = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
    if any(
        _OLD_NAME.fullmatch(os.path.basename(file)) and not is_pointer(file) for file in inside if os.path.isfile(file)
    ):
        raise CheckpointError(
            f"{path!r} is a checkpoint of RLlib 1.x, a pickle: rlframe.rllib1x.checkpoints.load_rllib_checkpoint("
            "trainer, path) reads it without executing anything, and so does `rlframe migrate-checkpoint`"
        )
    if os.path.isdir(path):
        return path
    if _points(path) and not os.path.isfile(os.path.join(parent, STRUCTURE)):
        raise CheckpointError(
            f"{path!r} is the file checkpoint-N of a checkpoint without the rest: wanted the whole directory that "
            "trainer.save() wrote it into; copy that, os.path.dirname(path)"
        )
    if os.path.basename(path).startswith("checkpoint-") and os.path.isdir(parent):
        return parent
    raise CheckpointError(f"no checkpoint at {path!r}: wanted the path that trainer.save() returned, or its directory")


def number_by_iteration(storage: Any, iteration: int) -> None:
    """Has Tune name a trial's next checkpoint by its iteration, as Ray 1.x did, and not by how many there are.

    A trial that goes on from another's checkpoint passes an iteration twice: the next free number is taken then.

    Args:
        storage: Ray's `StorageContext` of the trial; its index becomes the one before that of the checkpoint.
        iteration: Of the trainer.
    """
    storage.current_checkpoint_index = max(iteration, storage.current_checkpoint_index + 1)
    while storage.storage_filesystem.get_file_info(storage.checkpoint_fs_path).type.name != "NotFound":
        storage.current_checkpoint_index += 1
    storage.current_checkpoint_index -= 1


def delete(path: str) -> None:
    """Removes a checkpoint's directory.

    Args:
        path: It, or a path in it that `Trainer.save` returned.

    Raises:
        CheckpointError: If it is none; nothing is removed then.
    """
    directory = resolve_path(path)
    if not any(os.path.isfile(os.path.join(directory, name)) for name in (STRUCTURE, NOTE)):
        raise CheckpointError(f"{directory!r} is no checkpoint, and stays: wanted what trainer.save() returned")
    shutil.rmtree(directory)
