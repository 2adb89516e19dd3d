"""RLlib's `utils.compression`: arrays as text, for files of JSON.

RLlib packed whatever Python object it was given, as a pickle, and unpacking a file ran the code in it. Here arrays are
packed, and unpacking runs nothing, as in the files that `rlframe.offline` reads and writes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from rlframe.data.compression import PackedArray
from rlframe.offline import json_format

#: Whether RLlib's own compression is written: its files hold pickles, so it is not.
LZ4_ENABLED: Final = False


def compression_supported() -> bool:
    """Returns True: zlib comes with Python."""
    return True


def pack(data: ArrayLike) -> str:
    """Returns an array as compressed text, which `unpack` reads.

    Raises:
        ValueError: If it has elements other than numbers, truth values and fixed-length strings.
    """
    array = np.asarray(data)
    if array.dtype.hasobject:
        raise ValueError(f"Got {type(data).__name__} to pack; wanted an array of numbers: pack each array in it alone.")
    return json_format.pack(array)


def pack_if_needed(data: Any) -> Any:
    """Returns an array packed, anything else as it is."""
    return pack(data) if isinstance(data, np.ndarray) else data


def unpack(data: str | bytes | PackedArray) -> Any:
    """Returns the array that was packed, here or by RLlib 1.x; of the latter also dicts and tuples of arrays.

    Args:
        data: What `pack` made, or an element of a column that `SampleBatch.compress` compressed.

    Raises:
        ValueError: If the text is neither, or what RLlib packed is a pickle of anything else.
    """
    return data.unpack() if isinstance(data, PackedArray) else json_format.unpack(data)


def unpack_if_needed(data: Any) -> Any:
    """Returns what is compressed unpacked, anything else as it is."""
    return unpack(data) if is_compressed(data) else data


def is_compressed(data: Any) -> bool:
    """Returns whether these are text or bytes, as `pack` makes them, or what `SampleBatch.compress` makes of arrays."""
    return isinstance(data, (bytes, str, PackedArray))
