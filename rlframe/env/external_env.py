"""The base class of environments that ask for actions instead of being stepped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, SupportsFloat

from rlframe.env.episode_broker import EpisodeBroker, TrainingStopped

#: The one agent's id, as callbacks see it.
AGENT = "agent0"
#: Seconds that close() waits for run() to end.
_JOIN_S = 5.0


class ExternalEnv(threading.Thread):
    """A simulator with a main loop of its own, in a thread: `run()` starts episodes and asks for actions.

        class Simulator(ExternalEnv):
            def run(self):
                while True:
                    episode = self.start_episode()
                    obs, over = reset(), False
                    while not over:
                        action = self.get_action(episode, obs)
                        obs, reward, over = step(action)
                        self.log_returns(episode, reward)
                    self.end_episode(episode, obs)

    The trainer starts the thread when it first samples. `run()` goes on as long as it is trained; what it raises,
    `train()` raises. When the trainer is stopped, the methods below raise `TrainingStopped`, which ends the thread.

    Args:
        action_space: The space of actions.
        observation_space: The space of observations.
        max_concurrent: How many episodes may be open at once.
        timeout_s: How long the trainer waits for a call of this simulator while it samples, in seconds; None waits for
            ever. The other way round, `get_action` waits until the trainer samples again, however long it learns.

    Attributes:
        action_space: The space of actions.
        observation_space: The space of observations.
        max_concurrent: How many episodes may be open at once.
        timeout_s: How long the trainer waits for a call, in seconds.
    """

    #: Whether a wrong call ends its episode alone, and not the training: of many callers, one is no reason to stop.
    forgives: ClassVar[bool] = False
    #: Why it is not stepped singly, in a message.
    not_single: ClassVar[str] = "an ExternalEnv, which cannot be stepped; give it to a trainer as it is"

    def __init__(
        self,
        action_space: Any,
        observation_space: Any,
        max_concurrent: int = 100,
        *,
        timeout_s: float | None = 60.0,
    ) -> None:
        super().__init__(daemon=True, name=f"rlframe {type(self).__name__}")
        if max_concurrent < 1:
            raise ValueError(f"max_concurrent: got {max_concurrent}, wanted 1 or more")
        if timeout_s is not None and timeout_s <= 0:
            raise ValueError(f"timeout_s: got {timeout_s}, wanted seconds above 0, or None")
        self.action_space = action_space
        self.observation_space = observation_space
        self.max_concurrent = max_concurrent
        self.timeout_s = timeout_s
        self.broker = EpisodeBroker(max_concurrent)

    def run(self) -> None:
        """The simulator's main loop."""
        raise NotImplementedError(f"{type(self).__name__} must define run().")

    # --- for run() ---------------------------------------------------------------------------------------------

    def start_episode(self, episode_id: str | None = None, training_enabled: bool = True) -> str:
        """Begins an episode.

        Args:
            episode_id: An id of your own; one is made when None.
            training_enabled: Whether the episode is learned from. Others are acted in and reported, but are neither
                learned from nor counted as steps: a trainer that sees none but these waits.

        Returns:
            The episode's id, for the other methods.

        Raises:
            ValueError: If there is, or was, an episode of this id, or more than `max_concurrent` are open.
        """
        return self.broker.start(episode_id, training_enabled)

    def get_action(self, episode_id: str, observation: Any) -> Any:
        """Returns the policy's action for an observation; waits until the trainer samples.

        Raises:
            ValueError: If there is no such episode, or the observation is not of the space.
        """
        return self.broker.ask("get_action", episode_id, {AGENT: observation}, None)

    def log_action(self, episode_id: str, observation: Any, action: Any) -> None:
        """Notes an action, of the action space, that somebody else chose; waits until the trainer has it.

        Raises:
            ValueError: If there is no such episode, or the observation or the action is not of its space.
        """
        self.broker.ask("log_action", episode_id, {AGENT: observation}, {AGENT: action})

    def log_returns(self, episode_id: str, reward: SupportsFloat, info: Mapping[str, Any] | None = None) -> None:
        """Adds a reward for the last action; several add up.

        Raises:
            ValueError: If there is no such episode, or the reward is no finite number.
        """
        self.broker.log(episode_id, {AGENT: reward}, None if info is None else {AGENT: dict(info)}, None)

    def end_episode(self, episode_id: str, observation: Any, *, truncated: bool = False) -> None:
        """Ends an episode.

        Args:
            episode_id: Its id.
            observation: The last observation.
            truncated: Whether it was cut off, say by a time limit, rather than over by itself; values bootstrap then.

        Raises:
            ValueError: If there is no such episode.
        """
        self.broker.end(episode_id, {AGENT: observation}, truncated)

    # --- for the trainer ---------------------------------------------------------------------------------------

    def to_caller(self, actions: Mapping[Any, Any]) -> Any:
        """Returns what `get_action` returns, given actions by agent."""
        return actions[AGENT]

    def start(self) -> None:
        """Starts the thread; the trainer does."""
        user_run: Callable[[], None] = self.run
        self.run = lambda: self._run_and_tell(user_run)  # type: ignore[method-assign]  # what the thread will call
        super().start()

    def _run_and_tell(self, user_run: Callable[[], None]) -> None:
        try:
            user_run()
        except TrainingStopped:
            return
        except BaseException as error:  # handed to train(), which raises it
            self.broker.ended(error)
        else:
            self.broker.ended(None)

    def close(self) -> None:
        """Ends the thread at its next call of a method above."""
        self.broker.close()
        if self.is_alive() and threading.current_thread() is not self:
            self.join(_JOIN_S)


__all__ = ["AGENT", "ExternalEnv", "TrainingStopped"]
