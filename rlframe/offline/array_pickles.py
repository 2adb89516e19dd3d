"""Arrays out of the pickles that RLlib 1.x put into its files of JSON, without executing what is in them.

A pickle is a program for a machine with a stack, which can call anything by its name. The machine here knows the
operations that arrays, and dicts, tuples and lists of them, are written with; it has no way to import or call what is
named. NumPy's own names stand for a few functions below, and any other name is refused.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlframe.utils.errors import DataError

#: Most bytes that a packed column unpacks to: little text can ask for much memory.
MOST_BYTES = 2**31 - 1
#: How deep nested observations may be, and how many parts a level may have; a few bytes can ask for any number.
_MOST_DEEP, _MOST_PARTS = 4, 100_000
#: Letters of the longest name of a dtype of numbers or text, such as "complex256" or "S1024".
_LONGEST_DTYPE = 16


def decompress_lz4(raw: bytes) -> bytes:
    """Returns what an LZ4 frame holds.

    Raises:
        DataError: If the frame is cut short or damaged.
    """
    import pyarrow

    try:
        with pyarrow.CompressedInputStream(pyarrow.BufferReader(raw), "lz4") as stream:
            plain = bytes(stream.read(MOST_BYTES + 1))
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"an LZ4 frame that cannot be read ({error})") from error
    if len(plain) > MOST_BYTES:
        raise DataError(f"a packed array of more than {MOST_BYTES} bytes; write shorter batches")
    return plain


def array_of_pickle(data: bytes) -> Any:
    """Returns the array in a pickle, or the dict or tuple of arrays; a list of arrays is stacked.

    Raises:
        DataError: If there is anything else in it.
    """
    try:
        return _checked(PickleMachine().run(data))
    except DataError:
        raise
    except Exception as error:  # damaged pickles fail in any way
        raise DataError(f"a pickle that cannot be read as arrays ({error})") from error


def _checked(made: Any, depth: int = 0) -> Any:
    if depth > _MOST_DEEP or (isinstance(made, (dict, tuple, list)) and len(made) > _MOST_PARTS):
        raise DataError("a pickle of structures within structures, wanted arrays of numbers")
    if isinstance(made, dict):
        return {key: _checked(part, depth + 1) for key, part in made.items()}
    if isinstance(made, tuple):
        return tuple(_checked(part, depth + 1) for part in made)
    if isinstance(made, list):
        if any(isinstance(part, (dict, tuple, list)) for part in made):
            raise DataError("a pickle of lists within lists, wanted arrays of numbers")
        return np.stack([_checked(part, depth + 1) for part in made])
    if isinstance(made, (bool, int, float, np.generic)):
        return np.asarray(made)
    if isinstance(made, PickledArray):
        return made.numbers()
    raise DataError(f"a pickle of a {type(made).__name__}, wanted arrays of numbers")


class PickledArray:
    """An array whose elements are laid out when they are asked for: few bytes of a pickle can name many arrays."""

    _state: Any = None

    def build(self, state: Any) -> None:
        """Takes NumPy's state of an array: version, shape, dtype, whether columns come first, the elements' bytes."""
        self._state = state

    def numbers(self) -> NDArray[Any]:
        """Returns the array.

        Raises:
            DataError: If its elements are objects, or the pickle ends before they come.
        """
        if self._state is None:
            raise DataError("a pickle of an array without elements")
        _, shape, dtype, fortran, raw = self._state
        flat = np.frombuffer(raw, dtype.numbers())
        return flat.reshape(shape, order="F" if fortran else "C").copy(order="K")


class _DType:
    """A dtype that learns its byte order when its state comes."""

    def __init__(self, spelled: Any) -> None:
        if not isinstance(spelled, str) or len(spelled) > _LONGEST_DTYPE:
            raise DataError("a pickle of records, wanted arrays of numbers")
        self.dtype = np.dtype(spelled)

    def build(self, state: Any) -> None:
        """Takes NumPy's state of a dtype, of which the byte order is all that numbers have."""
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])

    def numbers(self) -> np.dtype[Any]:
        """Returns the dtype, of numbers."""
        if self.dtype.hasobject:
            raise DataError("a pickle of objects, wanted arrays of numbers")
        return self.dtype


def _of_buffer(raw: Any, dtype: _DType, shape: Any, order: str, *_: Any) -> PickledArray:
    made = PickledArray()
    made.build((1, shape, dtype, order == "F", raw))
    return made


def _as_bytes(text: str, encoding: str) -> bytes:
    """Returns the bytes that protocol 2 wrote as text."""
    if encoding != "latin1":
        raise DataError(f"a pickle that encodes text as {encoding!r}, wanted arrays of numbers")
    return text.encode("latin1")


_NUMPY = ("numpy.core.", "numpy._core.", "numpy.")
#: What may be called, by NumPy's names.
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "multiarray._reconstruct": lambda *_: PickledArray(),
    "multiarray.scalar": lambda dtype, raw: np.frombuffer(raw, dtype.numbers())[0],
    "numeric._frombuffer": _of_buffer,
    "ndarray": lambda *_: PickledArray(),
    "dtype": lambda spelled, *_: _DType(spelled),
}


#: What keys of dicts may be; of others, such as tuples within tuples, a hash can need any depth of the stack.
_KEYS = (str, bytes, int, float, type(None))


def array_function(path: str) -> Callable[..., Any] | None:
    """Returns what is called in place of a function that arrays are pickled with; None for any other name."""
    if path == "_codecs.encode":
        return _as_bytes
    for prefix in _NUMPY:
        if path.startswith(prefix) and path.removeprefix(prefix) in _FUNCTIONS:
            return _FUNCTIONS[path.removeprefix(prefix)]
    return None


class PickleMachine:
    """Runs the operations that arrays are pickled with. It has no way to import or call what a pickle names."""

    _MARK = object()
    _CONSTANTS: Final[dict[str, Callable[[], Any]]] = {
        "EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict, "NONE": lambda: None, "NEWTRUE": lambda: True,
        "NEWFALSE": lambda: False,
    }  # fmt: skip
    _VALUES = ("INT", "LONG", "UNICODE", "STRING", "FLOAT", "BYTES", "BYTEARRAY")
    _TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[Any, Any] = {}

    def run(self, data: bytes) -> Any:
        """Returns what the program leaves on the stack."""
        for operation, argument, _ in pickletools.genops(data):
            name = operation.name
            if name == "STOP":
                break
            own = getattr(self, f"_do_{name.lower()}", None)
            if own is not None:
                own(argument)
            elif name in self._CONSTANTS:
                self._stack.append(self._CONSTANTS[name]())
            elif name in self._TUPLES:
                self._stack.append(tuple(self._pop(self._TUPLES[name])))
            elif "PUT" in name:
                self._memo[argument] = self._stack[-1]
            elif "GET" in name:
                self._stack.append(self._memo[argument])
            elif any(kind in name for kind in self._VALUES):
                self._stack.append(argument)
            elif name not in ("PROTO", "FRAME"):
                raise DataError(f"a pickle with the operation {name}, wanted arrays of numbers")
        (made,) = self._stack
        return made

    def named(self, path: str) -> Callable[..., Any]:
        """Returns what stands for a name here.

        Raises:
            DataError: If nothing does.
        """
        function = array_function(path)
        if function is None:
            raise DataError(f"a pickle that names {path}, which is not run; wanted arrays of numbers")
        return function

    def _key(self, key: Any) -> Any:
        if isinstance(key, tuple) and all(isinstance(part, _KEYS) for part in key):
            return key
        if not isinstance(key, _KEYS):
            raise DataError(f"a pickle of a dict with a {type(key).__name__} as key, wanted names or numbers")
        return key

    def _pop(self, count: int) -> list[Any]:
        taken = self._stack[-count:]
        del self._stack[-count:]
        return taken

    def _pop_to_mark(self) -> list[Any]:
        place = max(index for index, value in enumerate(self._stack) if value is self._MARK)
        taken = self._stack[place + 1 :]
        del self._stack[place:]
        return taken

    def _do_memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _do_mark(self, _: Any) -> None:
        self._stack.append(self._MARK)

    def _do_tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._pop_to_mark()))

    def _do_global(self, argument: str) -> None:
        self._stack.append(self.named(argument.replace(" ", ".")))

    def _do_stack_global(self, _: Any) -> None:
        self._stack.append(self.named(".".join(self._pop(2))))

    def _do_reduce(self, _: Any) -> None:
        function, arguments = self._pop(2)
        self._stack.append(function(*arguments))

    def _do_build(self, _: Any) -> None:
        (state,) = self._pop(1)
        self._stack[-1].build(state)

    def _do_append(self, _: Any) -> None:
        (value,) = self._pop(1)
        self._stack[-1].append(value)

    def _do_appends(self, _: Any) -> None:
        values = self._pop_to_mark()
        self._stack[-1].extend(values)

    def _do_setitem(self, _: Any) -> None:
        key, value = self._pop(2)
        self._stack[-1][self._key(key)] = value

    def _do_setitems(self, _: Any) -> None:
        values = self._pop_to_mark()
        keys = [self._key(key) for key in values[::2]]
        self._stack[-1].update(zip(keys, values[1::2], strict=True))


__all__ = ["MOST_BYTES", "PickleMachine", "PickledArray", "array_function", "array_of_pickle", "decompress_lz4"]
