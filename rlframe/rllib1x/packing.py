"""RLlib's `utils.compression`: arrays as text, for files of JSON.

RLlib packed whatever Python object it was given, as a pickle, and unpacking a file ran the code in it. Here arrays are
packed, and unpacking runs nothing.
"""

from __future__ import annotations

import base64
import binascii
import io
import zlib
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Whether RLlib's own compression is used: its files hold pickles, so it is not.
LZ4_ENABLED: Final = False


def compression_supported() -> bool:
    """Returns True: zlib comes with Python."""
    return True


def pack(data: ArrayLike) -> str:
    """Returns an array as compressed text, which `unpack` reads.

    Raises:
        ValueError: If it has elements other than numbers, truth values and fixed-length strings.
    """
    buffer = io.BytesIO()
    array = np.asarray(data)
    if array.dtype.hasobject:
        raise ValueError(f"Got {type(data).__name__} to pack; wanted an array of numbers: pack each array in it alone.")
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return base64.b64encode(zlib.compress(buffer.getvalue(), 1)).decode("ascii")


def pack_if_needed(data: Any) -> Any:
    """Returns an array packed, anything else as it is."""
    return pack(data) if isinstance(data, np.ndarray) else data


def unpack(data: str | bytes) -> NDArray[Any]:
    """Returns the array that was packed.

    Raises:
        ValueError: If the text was not made by `pack`. That of RLlib 1.x holds a pickle, which could run any code.
    """
    try:
        buffer = io.BytesIO(zlib.decompress(base64.b64decode(data, validate=True)))
        array: NDArray[Any] = np.lib.format.read_array(buffer, allow_pickle=False)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ValueError(
            f"Got text that rlframe's pack() did not make ({error}). What RLlib 1.x packed is a pickle, which could "
            'run any code, and is not read; write such files again with "output_compress_columns": [].'
        ) from error
    return array


def unpack_if_needed(data: Any) -> Any:
    """Returns text and bytes unpacked, anything else as it is."""
    return unpack(data) if is_compressed(data) else data


def is_compressed(data: Any) -> bool:
    """Returns whether these are text or bytes, as `pack` makes them."""
    return isinstance(data, (bytes, str))
