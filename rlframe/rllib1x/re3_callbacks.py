"""The callbacks that RLlib 1.10 to 1.13 gave its RE3 exploration."""

from __future__ import annotations

import logging
from typing import Any

from rlframe.evaluation.callbacks import DefaultCallbacks

_LOGGER = logging.getLogger("rlframe")


class RE3UpdateCallbacks(DefaultCallbacks):
    """Has no hooks: the exploration "RE3" adds its rewards itself. For programs whose callbacks derive from it.

    Args:
        *args: What `DefaultCallbacks` takes.
        **kwargs: RLlib's `embeds_dim`, `k_nn`, `beta`, `rho`, `beta_schedule`, which are keys of `exploration_config`
            here: a warning names those that are given.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args)
        if kwargs:
            given = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
            _LOGGER.warning("RE3UpdateCallbacks: got %s, without effect here; wanted them in exploration_config", given)
