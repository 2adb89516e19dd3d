"""Episodes that never end: no return is ever known then, and no limit on it met."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

_LOGGER = logging.getLogger("rlframe")
#: Steps of an environment without the end of an episode that are worth a word.
ENDLESS_STEPS = 1000


class EndsWatch:
    """Says once that no episode has ended where one should have."""

    def __init__(self) -> None:
        self._done = False

    def watch(self, trainer: Any, result: Mapping[str, Any]) -> None:
        """Looks at the next result of a trainer."""
        if self._done or result.get("episodes_this_iter"):
            self._done = True
            return
        slots = max(1, trainer.config["num_workers"]) * trainer.config["num_envs_per_worker"]
        steps = (result.get("timesteps_total") or 0) // slots
        if steps < max(ENDLESS_STEPS, _longest_episode(trainer)):
            return
        self._done = True
        _LOGGER.warning(
            "no episode has ended in %s steps of each of %s environments, so there is no return: if they never end, "
            "set horizon, after which episodes are cut",
            f"{steps:,}",
            slots,
        )


def _longest_episode(trainer: Any) -> int:
    """Returns after how many env steps an episode ends in any case; 0 where nobody knows."""
    spec = getattr(trainer.workers.local_worker().env, "spec", None)
    return int(trainer.config["horizon"] or getattr(spec, "max_episode_steps", None) or 0)
