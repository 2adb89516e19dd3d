"""Which execution plans of users' own are given the trainer's buffer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def names_buffer(plan: Callable[..., Any]) -> bool:
    """Returns whether a plan has a parameter `local_replay_buffer`.

    RLlib's plans of MARWIL and QMIX made their buffer themselves: copies of them have `**kwargs`, and refuse any.
    """
    return "local_replay_buffer" in inspect.signature(plan).parameters
