"""Large arrays from a sampling process to the one that asks it, through memory that both map: written once, not copied.

Ray's object store copies an array in, and its daemon is asked four times on its way; between processes of one machine
neither is needed. The sampler writes rows into a segment (`SharedMemoryPool.empty`), sends where they are
(`SharedMemoryPool.export`), and the asking process maps the segment, which is free again when it has dropped the
arrays. Segments have no names: they are gone with the last process that maps them, however it ends.
"""

from __future__ import annotations

import itertools
import mmap
import os
import secrets
import threading
import weakref
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rlframe.data.sample_batch import SampleBatch

#: Arrays of fewer bytes go with the message.
LEAST_BYTES = 256 * 1024
#: Segments of one sampler: where the other side keeps as many, arrays go as Ray sends them.
MOST_SEGMENTS = 16
# A segment's first page: its state, and behind it who it is and how often it was lent.
_HEADER = mmap.PAGESIZE
_FREE, _SENT, _TAKEN = 0, 1, 2
# What is found at a path may be a pipe or a terminal of another process.
_OPEN = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC if hasattr(os, "O_NONBLOCK") else 0
_TOKEN = slice(8, 24)
_TURN = slice(24, 32)


class SharedMemoryClient(NamedTuple):
    """A process that asks for arrays: a sampler that finds `secret` in its open file shares memory with it.

    `plan` numbers who asks in that process: what was sent to an earlier one, and not taken, nobody will take.
    """

    pid: int
    user: int
    fd: int
    secret: bytes
    plan: int

    @staticmethod
    def is_lost(item: Any) -> bool:
        """Returns whether what came in place of a batch says that its memory was gone."""
        return isinstance(item, StaleFragment)

    @staticmethod
    def release() -> None:
        """Gives back the memory that no array of this process needs."""
        unmap()


class SharedArrayRef(NamedTuple):
    """Where an array lies: a segment, for the `turn`-th time that it is lent, and rows in it."""

    pid: int
    fd: int
    token: bytes
    turn: bytes
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class StaleFragment:
    """What comes instead of a batch whose sampler ended before its memory was mapped."""


def this_client() -> SharedMemoryClient | None:
    """Returns what samplers know this process, and who asks in it now, by; None where there is no such memory.

    It takes Linux.
    """
    found = _client(os.getpid()) if hasattr(os, "memfd_create") else None
    return None if found is None else found._replace(plan=next(_plans))


_plans = itertools.count(1)


@lru_cache(maxsize=1)
def _client(pid: int) -> SharedMemoryClient | None:
    try:
        fd = os.memfd_create("rlframe-reader")
    except OSError:  # a sandbox that forbids it
        return None
    secret = secrets.token_bytes(16)
    os.write(fd, secret)
    return SharedMemoryClient(pid, os.geteuid(), fd, secret, 0)


class _Segment:
    """One piece of memory of a sampler; lent again when neither side holds what was lent before."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.fd = os.memfd_create("rlframe-rows")
        try:
            os.ftruncate(self.fd, _HEADER + size)
            self.memory = mmap.mmap(self.fd, _HEADER + size)
        except OSError:
            os.close(self.fd)
            raise
        self.token = secrets.token_bytes(16)
        self.memory[_TOKEN] = self.token
        self.held = False
        self.turn = 0
        self.sent_turn = -1

    def is_free(self) -> bool:
        return not self.held and self.memory[0] == _FREE

    def lend(self) -> NDArray[np.uint8]:
        """Returns the segment's bytes; while they, or views of them, live in this process, it is not free."""
        self.held, self.turn = True, self.turn + 1
        self.memory[_TURN] = self.turn.to_bytes(8, "little")
        content = np.frombuffer(self.memory, np.uint8, self.size, _HEADER)
        weakref.finalize(content, self._drop)
        return content

    def _drop(self) -> None:
        self.held = False

    def close(self) -> None:
        """Gives the memory back; processes that map it keep it until they drop it."""
        os.close(self.fd)


class SharedMemoryPool:
    """Makes arrays that other processes of this machine can map, and sends batches of them."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []
        self._lent: dict[int, _Segment] = {}
        self._clients: dict[tuple[Any, ...], bool] = {}
        self._plan = 0

    def reaches(self, client: SharedMemoryClient) -> bool:
        """Whether a process sees this one's memory: it is on this machine, in this namespace, of this user."""
        key = client._replace(plan=0)
        if key not in self._clients:
            self._clients[key] = _finds(client)
        if client.plan > self._plan:
            self._plan = client.plan
            for segment in [segment for segment in self._segments if segment.memory[0] == _SENT]:
                self._discard(segment)
        return self._clients[key]

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Returns what `numpy.empty` does, in memory that can be shared if it is large."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        segment = self._segment(size) if size >= LEAST_BYTES and not kind.hasobject else None
        if segment is None:
            return np.empty(shape, kind)
        content = segment.lend()
        self._lent[id(content)] = segment
        weakref.finalize(content, self._lent.pop, id(content))
        return content[:size].view(kind).reshape(shape)

    def _segment(self, size: int) -> _Segment | None:
        free = [segment for segment in self._segments if segment.is_free()]
        fitting = [segment for segment in free if size <= segment.size <= 2 * size]
        if fitting:
            return fitting[0]
        if len(self._segments) == MOST_SEGMENTS:
            if not free:
                return None
            self._discard(free[0])
        try:
            made = _Segment(size)
        except OSError:  # no more memory, or files: the usual kind says what is missing
            return None
        self._segments.append(made)
        return made

    def _discard(self, segment: _Segment) -> None:
        """Does not lend a segment again: whoever still reads it reads what was written."""
        self._segments.remove(segment)
        segment.close()

    def export(self, batch: Any) -> Any:
        """Returns what is sent instead of a batch: it becomes the batch again where it is unpickled, once."""
        if not isinstance(batch, SampleBatch):
            return batch
        refs = {name: ref for name, column in batch.items() if (ref := self._ref(column)) is not None}
        if not refs:
            return batch
        return _Sent(batch, refs)

    def _ref(self, column: Any) -> SharedArrayRef | None:
        segment = self._lent.get(id(column.base)) if type(column) is np.ndarray else None
        if segment is None or segment.sent_turn == segment.turn or not column.flags.c_contiguous:
            return None  # another process may be through with it, and the segment be lent again, at any time
        segment.sent_turn = segment.turn
        segment.memory[0] = _SENT
        offset = column.__array_interface__["data"][0] - column.base.__array_interface__["data"][0]
        turn = segment.memory[_TURN]
        return SharedArrayRef(os.getpid(), segment.fd, segment.token, turn, offset, column.shape, column.dtype)


class _Sent:
    """A batch some of whose columns lie in shared memory, on its way."""

    def __init__(self, batch: SampleBatch, refs: Mapping[str, SharedArrayRef]) -> None:
        self._batch, self._refs = batch, refs

    def __reduce__(self) -> Any:
        batch = self._batch.copy(shallow=True)
        for name in self._refs:
            dict.__setitem__(batch, name, None)  # keeps its place among the columns
        return _received, (batch, dict(self._refs))


def _received(batch: SampleBatch, refs: Mapping[str, SharedArrayRef]) -> SampleBatch | StaleFragment:
    """Undoes `_Sent.__reduce__`."""
    try:
        for name, ref in refs.items():
            dict.__setitem__(batch, name, _taken(ref))
    except FileNotFoundError:
        return StaleFragment()
    return batch


# --- the asking process ----------------------------------------------------------------------------------------------

_mapped: dict[tuple[int, int, bytes], mmap.mmap] = {}
_mapping = threading.Lock()


def _taken(ref: SharedArrayRef) -> NDArray[Any]:
    """Returns the array at a place, read-only; its segment is free when it, and all views of it, are dropped.

    Raises:
        FileNotFoundError: If the sampler has ended, and its segment was never mapped here.
        RuntimeError: If it was taken before.
    """
    with _mapping:
        memory = _memory(ref)
        if memory[0] != _SENT or memory[_TURN] != ref.turn:
            raise RuntimeError(
                f"rows of the sampler with process id {ref.pid} were taken before, and their memory was lent again: "
                "fetch what sample_shared() returns once, or call sample()"
            )
        memory[0] = _TAKEN
    count = int(np.prod(ref.shape)) * ref.dtype.itemsize
    content = np.frombuffer(memory, np.uint8, count, _HEADER + ref.offset)
    content.flags.writeable = False  # as Ray's arrays are
    weakref.finalize(content, _give_back, memory, os.getpid()).atexit = False
    return content.view(ref.dtype).reshape(ref.shape)


def _memory(ref: SharedArrayRef) -> mmap.mmap:
    key = (ref.pid, ref.fd, ref.token)
    memory = _mapped.pop(key, None)
    if memory is None:
        of_sampler = [other for other in _mapped if other[0] == ref.pid]
        # It has no more segments than that, and does not say which it has given up: those used longest ago go.
        given_up = of_sampler[: max(0, len(of_sampler) + 1 - MOST_SEGMENTS)]
        for other in [other for other in _mapped if other in given_up or _has_ended(other[0])]:
            del _mapped[other]
        memory = _map(ref)
    _mapped[key] = memory  # behind the others
    return memory


def _give_back(memory: mmap.mmap, pid: int) -> None:
    if os.getpid() == pid:  # not a child that was forked, and drops its copy
        memory[0] = _FREE


def unmap() -> None:
    """Gives back the memory that no array of this process needs; what comes later is mapped again."""
    with _mapping:
        _mapped.clear()


def _map(ref: SharedArrayRef) -> mmap.mmap:
    path = f"/proc/{ref.pid}/fd/{ref.fd}"
    try:
        fd = os.open(path, os.O_RDWR | _OPEN)
        try:
            memory = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) or _has_ended(ref.pid):
            raise FileNotFoundError(path) from error
        raise OSError(f"{path}, the memory of a sampler, cannot be mapped: {error}; set share_memory=False") from error
    if memory[_TOKEN] != ref.token:
        raise FileNotFoundError(f"{path} is another file now")
    return memory


def _has_ended(pid: int) -> bool:
    """Whether there is no such process, or one that has ended and was not asked for its status yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in b"ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _finds(client: SharedMemoryClient) -> bool:
    """Whether a reader's open file, with its secret, is where its process id says, and this process too."""
    if not hasattr(os, "memfd_create") or client.user != os.geteuid():
        return False
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return False  # /proc is that of another namespace
        fd = os.open(f"/proc/{client.pid}/fd/{client.fd}", os.O_RDONLY | _OPEN)
        try:
            return os.pread(fd, len(client.secret), 0) == client.secret
        finally:
            os.close(fd)
    except OSError:
        return False  # another machine, another namespace, or something else is open there
