"""Goes on with an environment that raises now and then."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium

from rlframe.env.adapt import adapt_env
from rlframe.utils.errors import EnvError, describe_error

logger = logging.getLogger(__name__)


class ResetOnExceptionWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends the episode where `step()` raises, and tries `reset()` several times where that raises.

    An episode that is cut off in this way is truncated, not terminated, at the last observation that was seen: nothing
    is known about what would have come. Its last info holds the exception under `"exception"`.

    Attributes:
        max_reset_attempts: How often a reset is tried.
    """

    def __init__(self, env: Any, max_reset_attempts: int = 5) -> None:
        """Wraps any environment that can be adapted.

        Args:
            env: The environment, of Gymnasium's contract or the older one.
            max_reset_attempts: How often a reset is tried before its exception ends the run; at least 1.

        Raises:
            EnvError: If `max_reset_attempts` is less than 1.
        """
        if max_reset_attempts < 1:
            raise EnvError(f"max_reset_attempts is {max_reset_attempts}; wanted at least 1.")
        super().__init__(adapt_env(env))
        self.max_reset_attempts = max_reset_attempts
        self._last_obs: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode.

        Raises:
            EnvError: If every attempt raised; its cause is the last exception.
        """
        error: Exception | None = None
        for attempt in range(1, self.max_reset_attempts + 1):
            result, error = self._try_reset(seed, options)
            if result is not None:
                self._last_obs = result[0]
                return result
            logger.warning("reset() raised, attempt %d of %d", attempt, self.max_reset_attempts, exc_info=error)
        raise EnvError(
            f"reset() of {self.env} raised {self.max_reset_attempts} times, at last {type(error).__name__}: {error}"
        ) from error

    def _try_reset(
        self, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[tuple[Any, dict[str, Any]] | None, Exception | None]:
        """Returns what the reset returned, or the exception that it raised."""
        try:
            return self.env.reset(seed=seed, options=options), None
        except Exception as error:
            return None, error

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Does one step; an exception becomes the end of the episode."""
        try:
            result = self.env.step(action)
        except Exception as error:
            logger.warning("step() raised; the episode ends here", exc_info=True)
            return self._last_obs, 0.0, False, True, {"exception": describe_error(error)}
        self._last_obs = result[0]
        return result
