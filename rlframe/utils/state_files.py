"""State on disk: a nested dict of arrays and scalars as a directory of `.npy`, safetensors and JSON files.

A directory holds

    manifest.json         schema version; size and SHA-256 of every other file
    state.json            structure and scalars; arrays are references
    arrays.safetensors    arrays of at most 1 MiB
    array_0000.npy, ...   larger ones, and those of types that safetensors has not, one file each

Files of other names beside them are a program's own: they are not read, and stay when a state is written anew.

It is written beside its final place and moved there when all of it has reached the disk, so a crash at any instant
leaves the earlier state or the new one, whole. Reading executes nothing and checks everything first: files are regular
ones, and take no more memory than the machine has.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from rlframe.utils.errors import CheckpointError
from rlframe.utils.files import MOST_TEXT_BYTES, open_regular, parse_json, read_bytes

State = dict[str, Any]

SCHEMA: Final = 1
"""Version of the layout; raised when a reader of the old one could not read the new one."""

MANIFEST: Final = "manifest.json"
STRUCTURE: Final = "state.json"
SMALL_ARRAYS: Final = "arrays.safetensors"
BIG_ARRAY_BYTES: Final = 1 << 20

#: Bytes of JSON beyond which a state is not read: far more than numbers and names of any trainer take.
MOST_STRUCTURE_BYTES: Final = 1 << 28
#: Characters of what a file says that are repeated in a message.
_MOST_WORDS: Final = 300

_OWN_FILES = re.compile(r"manifest\.json|state\.json|arrays\.safetensors|array_\d{4,}\.npy")
_SAFETENSORS_TYPES: Final = frozenset(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"])
_CHUNK_BYTES: Final = 1 << 22


# --- writing -------------------------------------------------------------------------------------------------------


def write_state(
    directory: str | os.PathLike[str], state: State, meta: State | None = None, *, durable: bool = True
) -> None:
    """Writes a nested state dict as files; whatever stood at `directory` stays until the new state is complete.

    Args:
        directory: Where to write. If it exists it must be empty, or hold an earlier state; what else is there stays.
        state: Dicts, lists, tuples, and leaves that are arrays, PyTorch's tensors, int, float, bool, str or None. NumPy
            scalars become Python numbers. Big arrays are streamed to disk without a second copy in memory.
        meta: Describes the state (versions, names, spaces); the same kinds of values, but no arrays.
        durable: Whether to wait until all of it has reached the disk; state that the process alone reads need not.

    Raises:
        ValueError: If something in `state` or `meta` cannot be written without executing code to read it back
            (object arrays, other classes). Nothing has been written then.
        CheckpointError: If `directory` holds other files, and no state.
        OSError: If the disk is full or cannot be written. Nothing is left behind, the earlier state is untouched.
    """
    target = Path(directory).resolve()
    encoder = _Encoder()
    structure = {"schema": SCHEMA, "meta": _encode_meta({} if meta is None else meta), "state": encoder.encode(state)}
    text = json.dumps(structure, allow_nan=False).encode()
    needed = len(text) + sum(array.nbytes for array in encoder.arrays())
    foreign = _foreign_files(target)
    temporary = target.with_name(f".{target.name}.new-{secrets.token_hex(4)}")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        _write_files(temporary, encoder, text, durable)
        for name in foreign:
            _copy(target / name, temporary / name)
        _move_into_place(temporary, target, durable)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = error.strerror or str(error)
        raise OSError(
            error.errno,
            f"Could not write state of {needed:,} bytes ({reason}); free space or choose another place",
            str(target),
        ) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _remove_leftovers(target)


class _Encoder:
    """Turns state into JSON values and collects its arrays, by the file they go to."""

    def __init__(self) -> None:
        self.small: dict[str, NDArray[Any]] = {}
        self.big: dict[str, NDArray[Any]] = {}

    def arrays(self) -> Iterator[NDArray[Any]]:
        yield from self.small.values()
        yield from self.big.values()

    def encode(self, value: Any, path: str = "") -> Any:
        """Returns JSON for a value; what JSON has not is a dict of one key that begins with $, which user keys escape.

        `$array` and `$tensor` refer to files, `$float` is a number that is not finite, `$tuple` has items, and `$pairs`
        the items of a dict whose keys are not all texts, such as an optimiser's state in PyTorch.
        """
        if isinstance(value, np.ndarray):
            return {"$array": self._keep(value, path)}
        if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
            return {"$tensor": self._keep(_array_of(value, path), path)}
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not math.isfinite(value):
            return {"$float": repr(float(value))}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, list):
            return [self.encode(part, f"{path}/{number}") for number, part in enumerate(value)]
        if type(value) is tuple:
            return {"$tuple": self.encode(list(value), path)}
        if isinstance(value, dict):
            parts = [(key, self.encode(part, f"{path}/{key}")) for key, part in value.items()]
            if all(isinstance(key, str) for key in value):
                return {_escape(key): part for key, part in parts}
            return {"$pairs": [[self.encode(key, path), part] for key, part in parts]}
        raise ValueError(
            f"Got a {type(value).__name__} at {_shown(path)}; wanted an array, int, float, bool, str, None, a list, "
            "tuple or dict: state is stored without pickle."
        )

    def _keep(self, array: NDArray[Any], path: str) -> dict[str, Any]:
        if array.dtype.kind in "OV":
            raise ValueError(
                f"Got an array of dtype {array.dtype} at {_shown(path)}; wanted numbers, booleans or strings: objects "
                "are not stored."
            )
        about = {"dtype": array.dtype.str, "shape": list(array.shape)}
        if array.nbytes > BIG_ARRAY_BYTES or array.dtype.str.lstrip("<|") not in _SAFETENSORS_TYPES:
            file = f"array_{len(self.big):04d}.npy"
            self.big[file] = array
            return {"file": file, **about}
        name = path.lstrip("/") or "state"
        while name in self.small:
            name += "'"  # only where a key itself contains the separator
        self.small[name] = array
        return {"file": SMALL_ARRAYS, "name": name, **about}


def _array_of(tensor: Any, path: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = tensor.numpy(force=True)
    except (TypeError, RuntimeError) as error:
        raise ValueError(
            f"Got a tensor of {tensor.dtype}, {tensor.layout}, at {_shown(path)}; wanted a dense one of a type that "
            f"NumPy has: give tensor.float(), or tensor.to_dense() ({error})."
        ) from error
    return array


def _escape(key: str) -> str:
    return f"${key}" if key.startswith("$") else key


def _shown(path: str) -> str:
    return f"state{path.replace('/', '.')}"


def _encode_meta(meta: State) -> Any:
    encoder = _Encoder()
    encoded = encoder.encode(meta)
    if encoder.small or encoder.big:
        raise ValueError(
            f"Got arrays in meta at {sorted(encoder.small) + sorted(encoder.big)}; put them into the state."
        )
    return encoded


def _foreign_files(target: Path) -> list[str]:
    """Returns what a program keeps beside an earlier state; refuses a directory that holds no state but other files."""
    if not os.path.lexists(target):
        return []
    if not target.is_dir():
        raise CheckpointError(f"Cannot write state to {target}: it is a file; name a directory.")
    found = os.listdir(target)
    foreign = sorted(name for name in found if not _OWN_FILES.fullmatch(name))
    if foreign and MANIFEST not in found:
        raise CheckpointError(
            f"Cannot write state to {target}: it holds {foreign[:5]}, and no state; name a new or empty directory."
        )
    return foreign


def _copy(source: Path, target: Path) -> None:
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def _write_files(directory: Path, encoder: _Encoder, structure: bytes, durable: bool = True) -> None:
    """Writes and flushes all files; the manifest comes last."""
    files = {STRUCTURE: _write_file(directory / STRUCTURE, iter([structure]), durable)}
    if encoder.small:
        contiguous = {name: np.asarray(array, order="C") for name, array in encoder.small.items()}
        packed = safetensors.numpy.save(contiguous)
        files[SMALL_ARRAYS] = _write_file(directory / SMALL_ARRAYS, iter([packed]), durable)
    for name, array in encoder.big.items():
        files[name] = _write_file(directory / name, _npy_chunks(array), durable)
    manifest = json.dumps({"schema": SCHEMA, "files": files}, indent=1).encode()
    _write_file(directory / MANIFEST, iter([manifest]), durable)
    if durable:
        _flush_directory(directory)


def _write_file(path: Path, chunks: Iterator[Any], durable: bool = True) -> dict[str, Any]:
    """Writes the chunks, waits until they are on the disk if asked to, and returns the file's manifest entry."""
    digest, size = hashlib.sha256(), 0
    with open(path, "xb") as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def _npy_chunks(array: NDArray[Any]) -> Iterator[Any]:
    """Yields an array as the bytes of an `.npy` file, a few MiB at a time."""
    header = np.lib.format.header_data_from_array_1_0(array) | {"fortran_order": False}
    buffer = _Sink()
    np.lib.format.write_array_header_1_0(buffer, header)
    yield bytes(buffer.data)
    rows = max(1, _CHUNK_BYTES // max(array.itemsize, 1))
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        for start in range(0, flat.size, rows):
            yield flat[start : start + rows].view(np.uint8).data
        return
    flags: Any = ["external_loop", "buffered", "zerosize_ok"]
    for chunk in np.nditer(array, flags=flags, buffersize=rows, order="C"):
        yield np.asarray(chunk).tobytes()


class _Sink:
    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data


def _flush_directory(directory: Path) -> None:
    """Makes the directory's entries durable (a no-op where directories cannot be opened)."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move_into_place(temporary: Path, target: Path, durable: bool = True) -> None:
    """Makes the complete `temporary` directory the `target`; an earlier target is removed last."""
    if not target.exists():
        os.rename(temporary, target)
        if durable:
            _flush_directory(target.parent)
        return
    if _exchange(temporary, target):
        _flush_directory(target.parent)
        shutil.rmtree(temporary, ignore_errors=True)  # what stays is removed with the next write
        return
    # Without an atomic exchange there is an instant without a target; read_state() then finds this name.
    earlier = target.with_name(f".{target.name}.old-{secrets.token_hex(4)}")
    os.rename(target, earlier)
    try:
        os.rename(temporary, target)
    except OSError:
        os.rename(earlier, target)
        raise
    _flush_directory(target.parent)
    shutil.rmtree(earlier, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Swaps two directories in one atomic step; returns False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    at_cwd, exchange = -100, 2
    if renameat2(at_cwd, os.fsencode(first), at_cwd, os.fsencode(second), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), str(second))


def _siblings(target: Path, kind: str) -> list[Path]:
    prefix = f".{target.name}.{kind}-"
    if not target.parent.is_dir():
        return []
    return sorted(target.parent / name for name in os.listdir(target.parent) if name.startswith(prefix))


def _remove_leftovers(target: Path) -> None:
    """Removes what writers that were killed left beside the target."""
    for path in _siblings(target, "new") + _siblings(target, "old"):
        shutil.rmtree(path, ignore_errors=True)


# --- reading -------------------------------------------------------------------------------------------------------


def read_state(directory: str | os.PathLike[str]) -> tuple[State, State]:
    """Reads what `write_state` wrote, after checking all of it; executes nothing.

    Args:
        directory: The directory that was written.

    Returns:
        The state and the meta dict. Arrays are writable and belong to the caller.

    Raises:
        CheckpointError: If a file is missing, surplus, truncated or altered, or the layout is not known.
    """
    path = _existing(Path(directory).resolve())
    files = _read_manifest(path)
    _check_names_and_sizes(path, files)
    structure = _parse_json(path / STRUCTURE, _read_checked(path, STRUCTURE, files))
    _check_schema(path / STRUCTURE, structure)
    small: dict[str, NDArray[Any]] = {}
    if SMALL_ARRAYS in files:
        small = _unpack_small(path, _read_checked(path, SMALL_ARRAYS, files))
    decoder = _Decoder(path, files, small)
    try:
        state, meta = decoder.decode(structure["state"]), decoder.decode(structure["meta"])
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        said = repr(error)[:_MOST_WORDS]
        raise CheckpointError(f"{path / STRUCTURE} is malformed: {said}; the state cannot be used.") from error
    decoder.check_all_used()
    if not isinstance(state, dict) or not isinstance(meta, dict):
        raise CheckpointError(f"{path / STRUCTURE} is malformed: state and meta must be JSON objects.")
    return state, meta


def is_file_of_a_state(name: str) -> bool:
    """Returns whether a directory that `write_state` wrote can have a file of this name."""
    return _OWN_FILES.fullmatch(name) is not None


def _existing(target: Path) -> Path:
    if target.is_dir():
        return target
    earlier = _siblings(target, "old")
    if earlier:
        return earlier[-1]
    raise CheckpointError(
        f"No state at {target}: got {'a file' if target.exists() else 'nothing'}, wanted a directory."
    )


def _parse_json(path: Path, data: bytes) -> dict[str, Any]:
    try:
        parsed = parse_json(data)
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: got no valid JSON ({error}); wanted what was written.") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{path} is damaged: got a JSON {type(parsed).__name__}, wanted an object.")
    return parsed


def _check_schema(path: Path, parsed: dict[str, Any]) -> None:
    if parsed.get("schema") != SCHEMA:
        raise CheckpointError(
            f"{path}: got schema version {parsed.get('schema')!r}, wanted {SCHEMA}; read it with the rlframe version "
            "that wrote it."
        )


def _read_manifest(path: Path) -> dict[str, dict[str, Any]]:
    file = path / MANIFEST
    try:
        data = read_bytes(file, MOST_TEXT_BYTES)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read ({error.strerror}); {path} holds no complete state.") from error
    manifest = _parse_json(file, data)
    _check_schema(file, manifest)
    files = manifest.get("files")
    well_formed = isinstance(files, dict) and all(
        isinstance(entry, dict) and type(entry.get("bytes")) is int and isinstance(entry.get("sha256"), str)
        for entry in files.values()
    )
    if not well_formed or not isinstance(files, dict):
        raise CheckpointError(f"{file} is damaged: wanted size and SHA-256 of every file.")
    unknown = sorted(name for name in files if not _OWN_FILES.fullmatch(name) or name == MANIFEST)
    if unknown:
        raise CheckpointError(f"{file} is damaged: it lists {unknown[:5]}, which are no files of a state.")
    return files


def _check_names_and_sizes(path: Path, files: dict[str, dict[str, Any]]) -> None:
    found = {name for name in os.listdir(path) if _OWN_FILES.fullmatch(name)} - {MANIFEST}
    missing, surplus = sorted(files.keys() - found), sorted(found - files.keys())
    if missing or surplus or STRUCTURE not in files:
        raise CheckpointError(
            f"{path} is not what its manifest says: missing files {missing}, surplus files {surplus}; wanted exactly "
            f"{sorted({STRUCTURE, *files})} and {MANIFEST}."
        )
    for name, entry in files.items():
        got = os.lstat(path / name)
        if not (path / name).is_file() or (path / name).is_symlink() or got.st_size != entry["bytes"]:
            raise CheckpointError(
                f"{path / name} is damaged: got {got.st_size:,} bytes, wanted a plain file of {entry['bytes']:,} bytes."
            )
    for name, size, most in (
        (STRUCTURE, files[STRUCTURE]["bytes"], MOST_STRUCTURE_BYTES),
        ("all of it", sum(entry["bytes"] for entry in files.values()), _memory_bytes()),
    ):
        if size > most:
            raise CheckpointError(f"{path}: {name} has {size:,} bytes, wanted at most {most:,} on this machine.")


def _memory_bytes() -> int:
    """Returns how much memory this machine has; 64 GiB where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 36


def _check_digest(path: Path, got: str, entry: dict[str, Any]) -> None:
    if got != entry["sha256"]:
        raise CheckpointError(f"{path} was altered: got SHA-256 {got}, wanted {entry['sha256']}.")


def _read_checked(path: Path, name: str, files: dict[str, dict[str, Any]]) -> bytes:
    try:
        data = read_bytes(path / name, files[name]["bytes"])
    except MemoryError as error:
        raise CheckpointError(f"{path / name} does not fit into memory: {files[name]['bytes']:,} bytes.") from error
    except OSError as error:
        raise CheckpointError(f"{path / name} cannot be read ({error.strerror}).") from error
    _check_digest(path / name, hashlib.sha256(data).hexdigest(), files[name])
    return data


def _unpack_small(path: Path, data: bytes) -> dict[str, NDArray[Any]]:
    try:
        loaded = safetensors.numpy.load(data)
    except Exception as error:  # the library raises a class of its own, derived from Exception
        raise CheckpointError(f"{path / SMALL_ARRAYS} is no valid safetensors file: {error}.") from error
    return {name: array if array.flags.writeable else array.copy() for name, array in loaded.items()}


class _Decoder:
    """Turns the JSON of `state.json` back into state, fetching arrays from the files it refers to."""

    def __init__(self, path: Path, files: dict[str, dict[str, Any]], small: dict[str, NDArray[Any]]) -> None:
        self.path = path
        self.files = files
        self.small = small
        self._unused = set(files) - {STRUCTURE, SMALL_ARRAYS}

    def decode(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.decode(part) for part in node]
        if not isinstance(node, dict):
            return node
        if "$array" in node:
            return self._array(node["$array"])
        if "$tensor" in node:
            from rlframe.utils.torch_utils import tensor_of

            return tensor_of(self._array(node["$tensor"]))
        if "$float" in node:
            return float(node["$float"])
        if "$tuple" in node:
            return tuple(self.decode(part) for part in node["$tuple"])
        if "$pairs" in node:
            return {self.decode(key): self.decode(part) for key, part in node["$pairs"]}
        return {key.removeprefix("$"): self.decode(part) for key, part in node.items()}

    def _array(self, reference: dict[str, Any]) -> NDArray[Any]:
        dtype, shape = _plain_dtype(reference["dtype"]), tuple(reference["shape"])
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"an array of shape {shape}")
        if reference["file"] == SMALL_ARRAYS:
            array = self.small.pop(reference["name"])
            if array.dtype != dtype or array.shape != shape:
                raise ValueError(f"{reference['name']} is {array.dtype} {array.shape}, wanted {dtype} {shape}")
            return array
        self._unused.remove(reference["file"])
        return _read_npy(self.path / reference["file"], self.files[reference["file"]], dtype, shape)

    def check_all_used(self) -> None:
        """Raises CheckpointError if arrays are stored that the structure does not refer to."""
        if self.small or self._unused:
            surplus = sorted(self.small) + sorted(self._unused)
            raise CheckpointError(f"{self.path} holds arrays that {STRUCTURE} does not mention: {surplus}.")


def _plain_dtype(text: Any) -> np.dtype[Any]:
    if not isinstance(text, str):
        raise ValueError(f"an array of dtype {text!r}")
    dtype = np.dtype(text)
    if dtype.hasobject or dtype.kind == "V":
        raise ValueError(f"an array of dtype {dtype}")
    return dtype


def _read_npy(path: Path, entry: dict[str, Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Reads an `.npy` file straight into a new array, hashing on the way."""
    try:
        with open_regular(path) as file:
            array, digest = _read_npy_body(path, file, dtype, shape)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}).") from error
    except (SyntaxError, tokenize.TokenError, RecursionError) as error:  # from NumPy's reading of the header
        raise CheckpointError(f"{path} is damaged: its header is that of no array ({error}).") from error
    _check_digest(path, digest, entry)
    return array


def _read_npy_body(
    path: Path, file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]
) -> tuple[NDArray[Any], str]:
    if np.lib.format.read_magic(file) != (1, 0):
        raise CheckpointError(f"{path} is damaged: it does not begin like an .npy file of version 1.0.")
    got_shape, fortran_order, got_dtype = np.lib.format.read_array_header_1_0(file)
    header_bytes = file.tell()
    if (got_shape, got_dtype, fortran_order) != (shape, dtype, False):
        raise CheckpointError(f"{path} is damaged: got an array {got_dtype} {got_shape}, wanted {dtype} {shape}.")
    data_bytes = dtype.itemsize * math.prod(shape)
    if os.fstat(file.fileno()).st_size != header_bytes + data_bytes:
        raise CheckpointError(f"{path} is damaged: wanted {header_bytes + data_bytes:,} bytes for {dtype} {shape}.")
    file.seek(0)
    digest = hashlib.sha256(file.read(header_bytes))
    array = np.empty(shape, dtype)
    raw = array.reshape(-1).view(np.uint8).data if data_bytes else memoryview(b"")
    for start in range(0, data_bytes, _CHUNK_BYTES):
        part = raw[start : start + _CHUNK_BYTES]
        if file.readinto(part) != len(part):  # type: ignore[attr-defined]  # binary files have it
            raise CheckpointError(f"{path} is truncated.")
        digest.update(part)
    return array, digest.hexdigest()
