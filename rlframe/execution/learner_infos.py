"""Joins what several learner steps reported into one report."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TD_ERROR = "td_error"


def merge_learner_infos(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns one learner info for several minibatches (or devices).

    Numbers become their mean, NaN left out; those named `min_*` and `max_*` become the smallest and the largest;
    `td_error` arrays are joined; dicts are merged likewise; of anything else, the last is kept.

    Args:
        infos: What `policy.learn_on_batch()` returned, in order.
    """
    if len(infos) == 1:
        return dict(infos[0])
    names = list(dict.fromkeys(name for info in infos for name in info))
    return {name: _merge(name, [info[name] for info in infos if name in info]) for name in names}


def _merge(name: str, values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return merge_learner_infos([value for value in values if isinstance(value, dict)])
    if name == _TD_ERROR:
        return np.concatenate([np.atleast_1d(value) for value in values])
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):  # None, text, or an array of more than one element
        return values[-1]
    numbers = [number for number in numbers if not math.isnan(number)]
    if not numbers:
        return math.nan
    if name.startswith("min_"):
        return min(numbers)
    if name.startswith("max_"):
        return max(numbers)
    return sum(numbers) / len(numbers)
