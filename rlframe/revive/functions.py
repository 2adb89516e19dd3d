"""The user's own code: expert functions of nodes, and rewards; loaded only when asked for, and known by its content."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.abc
import importlib.util
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from rlframe.revive.graph_file import near
from rlframe.utils.errors import ConfigError, NonFiniteError

__all__ = ["FunctionReference", "NodeFunction", "RewardFunction", "file_hash", "load_function", "load_reward"]

Arrays = Mapping[str, NDArray[np.float32]]
_REWARD_NAMES = ("get_reward", "reward")
_ALIKE = {"rtol": 1e-4, "atol": 1e-5}  # float32, summed in another order


@dataclasses.dataclass(frozen=True)
class FunctionReference:
    """Where a function is.

    Attributes:
        file: Its file, relative to the graph file's folder.
        name: In the file.
        sha256: Of the file when the graph was made; None where nobody looked.
    """

    file: str
    name: str
    sha256: str | None = None


def file_hash(path: Path) -> str:
    """Returns the SHA-256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


class _UserFunction:
    """A function from a user's file, called with arrays, be it written for NumPy or for torch.

    Attributes:
        file: Where it is.
        name: What it is called there.
        sha256: Of the file's content.
    """

    def __init__(self, file: str, name: str, sha256: str, function: Callable[[Any], Any]) -> None:
        self.file, self.name, self.sha256 = file, name, sha256
        self._function = function
        self._kind: Literal["numpy", "torch"] | None = None

    @property
    def where(self) -> str:
        """The function as messages name it."""
        return f"{self.file}: {self.name}"

    @property
    def kind(self) -> Literal["numpy", "torch"] | None:
        """What it computes with, as its first call showed; None before."""
        return self._kind

    @property
    def function(self) -> Callable[[Any], Any]:
        """The user's function itself, for those who have tensors."""
        return self._function

    def _computed(self, data: Arrays) -> NDArray[np.float32]:
        """Calls it with NumPy's arrays, and with tensors where those do not work, which is remembered."""
        if self._kind != "torch":
            try:
                # Copies: what a function writes into its arguments is its own.
                with self._explained(data):
                    result = self._given(self._function({name: np.array(values) for name, values in data.items()}))
                if not type(result).__module__.startswith("torch"):
                    self._kind = "numpy"
                    return np.asarray(result, np.float32)
            except (TypeError, AttributeError) as error:
                if self._kind == "numpy":
                    raise
                return self._with_tensors(data, error)
        return self._with_tensors(data)

    def _given(self, result: Any) -> Any:
        if result is None:
            raise ConfigError(f"{self.where} returned None; wanted an array: has it no `return`?")
        return result

    def _with_tensors(self, data: Arrays, failure: Exception | None = None) -> NDArray[np.float32]:
        from rlframe.revive.functions_torch import call_with_tensors

        try:
            with self._explained(data):
                result = call_with_tensors(self._function, data)
        except (TypeError, AttributeError) as error:
            if self._kind == "torch":
                raise
            raise ConfigError(
                f"{self.where} works neither with NumPy arrays ({failure}) nor with torch tensors ({error}); "
                "it gets a dict of arrays [..., columns] by node"
            ) from error
        self._kind = "torch"
        return result

    @contextlib.contextmanager
    def _explained(self, data: Arrays) -> Iterator[None]:
        """A context in which what fails in the user's code is told with the line, and what the function was given."""
        try:
            with np.errstate(divide="ignore", invalid="ignore"):  # what comes of it is looked at: the row is told
                yield
        except (TypeError, AttributeError, ConfigError):  # of arrays where it wants tensors; told by the caller
            raise
        except Exception as error:
            line = next((f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == self.file), "?")
            there = ", ".join(f"{name} {np.shape(values)}" for name, values in data.items())
            if isinstance(error, KeyError) and error.args and error.args[0] not in data:
                what = f"there is no node {error.args[0]!r}; {near(error.args[0], data)}"
            else:
                what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ConfigError(
                f"{self.where}, line {line}: {what} (it was given {there}; the last axis is columns, counted from 0)"
            ) from error

    def _check_shapes(self, data: Arrays, compute: Callable[[Arrays], NDArray[np.float32]]) -> None:
        """Has the same rows computed one by one, as a batch and as a rollout, and compares."""
        rows = {name: values[:4] for name, values in data.items()}
        count = len(next(iter(rows.values())))
        single = np.stack([compute({name: values[row] for name, values in rows.items()}) for row in range(count)])
        rollout = {name: np.stack([values, values[::-1]]) for name, values in rows.items()}
        for shape, got in (("(B, F)", compute(rows)), ("(T, B, F)", compute(rollout)[0])):
            if not np.allclose(got, single, equal_nan=True, **_ALIKE):
                row = int(np.argwhere(~np.isclose(got, single, equal_nan=True, **_ALIKE))[0][0])
                raise ConfigError(
                    f"{self.where} gives row {row} {single[row].tolist()} alone, but {np.asarray(got)[row].tolist()} "
                    f"among others in shape {shape}; each row's value must follow from that row alone"
                )


class NodeFunction(_UserFunction):
    """The user's function of a node: arrays of its inputs `[..., columns]` to its array, in the user's units."""

    def __call__(self, data: Arrays) -> NDArray[np.float32]:
        """Returns the node's values, float32 `[..., columns]`."""
        return self._computed(data)

    def check(self, data: Arrays, columns: int) -> None:
        """Has it compute some rows in all shapes.

        Args:
            data: Rows of its inputs, `[N, columns]`.
            columns: How many it must return.

        Raises:
            ConfigError: What it returns has another shape, or depends on the other rows.
        """
        rows = {name: values[:4] for name, values in data.items()}
        count = len(next(iter(rows.values())))
        for lead, values in _shapes(rows):
            got = self._computed(values).shape
            if got != (*lead, columns):
                raise ConfigError(
                    f"{self.where} returned shape {got} for {lead or 'one row'}; wanted {(*lead, columns)}"
                )
        if count:
            self._check_shapes(rows, self._computed)


class RewardFunction(_UserFunction):
    """The user's reward: arrays by node `[..., columns]` to one value per row."""

    def __call__(self, data: Arrays, place: Callable[[int], str] | None = None) -> NDArray[np.float32]:
        """Returns rewards, float32 of the leading shape.

        Args:
            data: By node, `[..., columns]`.
            place: Where a row `[N, columns]` is, for messages; None says its number.

        Raises:
            ConfigError: Not one value per row.
            NonFiniteError: A reward is NaN or infinite.
        """
        return self.one_per_row(self._computed(data), data, place)

    def one_per_row(
        self, result: NDArray[np.float32], data: Arrays, place: Callable[[int], str] | None = None
    ) -> NDArray[np.float32]:
        """Returns rewards without a last axis of one, checked."""
        lead = np.broadcast_shapes(*(np.shape(values)[:-1] for values in data.values()))
        if result.shape not in {lead, (*lead, 1)}:
            raise ConfigError(
                f"{self.where} returned shape {result.shape} for rows of shape {lead}; wanted one value per row, "
                f"{lead} or {(*lead, 1)}"
            )
        result = result.reshape(lead)
        if not np.isfinite(result).all():
            row = np.argwhere(~np.isfinite(result))[0].tolist()
            there = f"row {row}" if place is None else place(row[0])
            raise NonFiniteError(f"{self.where} returned {result[tuple(row)]} for {there}; wanted finite rewards")
        return result

    def check(self, data: Arrays) -> None:
        """Has it compute some rows `[N, columns]` in all shapes.

        Raises:
            ConfigError: Not one value per row, or one that depends on the other rows.
            NonFiniteError: A reward is NaN or infinite.
        """
        self._check_shapes(data, self)
        self({name: values[:1] for name, values in data.items()})  # a batch of one is not the row


def _shapes(rows: Arrays) -> list[tuple[tuple[int, ...], dict[str, NDArray[np.float32]]]]:
    count = len(next(iter(rows.values())))
    return [
        ((), {name: values[0] for name, values in rows.items()}),
        ((count,), dict(rows)),
        ((2, count), {name: np.stack([values, values]) for name, values in rows.items()}),
    ]


class _Source(importlib.abc.SourceLoader):
    """Runs bytes that were read before, so that what runs is what was hashed, and leaves no compiled file behind."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self.content = path, content

    def get_filename(self, fullname: str) -> str:
        del fullname
        return str(self.path)

    def get_data(self, path: str | bytes) -> bytes:
        del path
        return self.content


def _run(path: Path, content: bytes) -> types.ModuleType:
    name = f"rlframe_user_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    module = importlib.util.module_from_spec(
        cast("Any", importlib.util.spec_from_loader(name, _Source(path, content), origin=str(path)))
    )
    try:
        cast("Any", module.__loader__).exec_module(module)
    except Exception as error:
        raise ConfigError(f"{path}: running the file failed with {type(error).__name__}: {error}") from error
    return module


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: the {what} cannot be read: {error.strerror}") from None


def load_function(reference: FunctionReference, folder: str | Path, expected_sha256: str | None = None) -> NodeFunction:
    """Loads a node's function, which runs its file.

    Args:
        reference: Where it is.
        folder: What the reference's file is relative to.
        expected_sha256: What the file must be; None takes the reference's.

    Raises:
        ConfigError: The file cannot be read, is another than expected, or has no such function.
    """
    path = Path(folder) / reference.file
    content = _read(path, "file of an expert function")
    sha256 = hashlib.sha256(content).hexdigest()
    wanted = expected_sha256 or reference.sha256
    if wanted is not None and sha256 != wanted:
        raise ConfigError(
            f"{path}: the file with {reference.name!r} has changed since training (SHA-256 {sha256[:12]}, then "
            f"{wanted[:12]}); put the old file back, or train again"
        )
    function = getattr(_run(path, content), reference.name, None)
    if not callable(function):
        raise ConfigError(f"{path}: got no function {reference.name!r}; wanted one that takes a dict of arrays by node")
    return NodeFunction(str(path), reference.name, sha256, function)


def load_reward(path: str | Path) -> RewardFunction:
    """Loads a reward file, which runs it: its `get_reward`, else its `reward`.

    Raises:
        ConfigError: The file cannot be read or run, or has no such function.
    """
    path = Path(path)
    content = _read(path, "reward file")
    module = _run(path, content)
    for name in _REWARD_NAMES:
        function = getattr(module, name, None)
        if callable(function):
            return RewardFunction(str(path), name, hashlib.sha256(content).hexdigest(), function)
    raise ConfigError(f"{path}: got neither get_reward nor reward; wanted a function of a dict of arrays by node")
