"""RLlib's `utils.debug`: what is in a structure of arrays, in a few lines; seeds of everything global."""

from __future__ import annotations

import pprint
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.sample_batch import MultiAgentBatch
from rlframe.utils.framework import try_import_tf, try_import_torch


def summarize(obj: Any) -> str:
    """Returns a structure as text, its arrays by shape, dtype, minimum, maximum and mean.

    Args:
        obj: Batches, dicts, lists and tuples, nested to any depth.
    """
    return pprint.pformat(_summarize(obj), indent=2, width=60)


class _Text(str):
    """Text that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _summarize(obj: Any) -> Any:
    if isinstance(obj, MultiAgentBatch):
        return {"type": "MultiAgentBatch", "policy_batches": _summarize(obj.policy_batches), "count": obj.count}
    if isinstance(obj, Mapping):
        return {key: _summarize(value) for key, value in obj.items()}
    if hasattr(obj, "_asdict"):
        return {"type": type(obj).__name__, "data": _summarize(obj._asdict())}
    if isinstance(obj, (list, tuple)):
        return type(obj)(_summarize(item) for item in obj)
    return _describe(obj) if isinstance(obj, np.ndarray) else obj


def _describe(array: NDArray[Any]) -> _Text:
    begin = f"np.ndarray({array.shape}, dtype={array.dtype}"
    if array.size == 0:
        return _Text(f"{begin})")
    if array.dtype.kind not in "biuf":
        return _Text(f"{begin}, head={_summarize(array.reshape(-1)[0])})")
    least, largest, mean = (round(float(number), 3) for number in (array.min(), array.max(), array.mean()))
    return _Text(f"{begin}, min={least}, max={largest}, mean={mean})")


def update_global_seed_if_necessary(framework: str | None = None, seed: int | None = None) -> None:
    """Seeds Python's, NumPy's and the framework's global generators; None does nothing.

    Trainers do not need it: their streams come from the config's `seed`. It is for what users' own code draws.

    Args:
        framework: "torch", "tf", "tf2" or "tfe"; None for neither.
        seed: The seed.
    """
    if seed is None:
        return
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the global generator is what users' own code draws from
    if framework == "torch":
        try_import_torch(error=True)[0].manual_seed(seed)
    elif framework in ("tf", "tf2", "tfe"):
        try_import_tf(error=True)[1].random.set_seed(seed)


def seed(np_seed: int = 0, random_seed: int = 0, tf_seed: int = 0) -> None:
    """Seeds the global generators of NumPy and Python, and TensorFlow's where it is installed; see above.

    Args:
        np_seed: NumPy's seed.
        random_seed: Python's.
        tf_seed: TensorFlow's.
    """
    _, tf, _ = try_import_tf()  # first: its import draws numbers of Python's generator
    if tf is not None:
        tf.random.set_seed(tf_seed)
    np.random.seed(np_seed)  # noqa: NPY002 - as above
    random.seed(random_seed)
