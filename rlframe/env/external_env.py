"""The base class of environments that ask for actions instead of being stepped."""

from __future__ import annotations

import threading
from typing import Any


class ExternalEnv(threading.Thread):
    """A simulator with a main loop of its own, in a thread: `run()` starts episodes and asks for actions.

    Attributes:
        action_space: The space of actions.
        observation_space: The space of observations.
        max_concurrent: How many episodes may be open at once.
    """

    def __init__(self, action_space: Any, observation_space: Any, max_concurrent: int = 100) -> None:
        """Notes the spaces; the thread is started by whoever samples from it."""
        super().__init__(daemon=True)
        self.action_space = action_space
        self.observation_space = observation_space
        self.max_concurrent = max_concurrent

    def run(self) -> None:
        """The simulator's main loop."""
        raise NotImplementedError(f"{type(self).__name__} must define run().")
