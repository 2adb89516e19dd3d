"""Where a simulator with a main loop of its own and the trainer meet: calls go one way, actions the other."""

from __future__ import annotations

import queue
import threading
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlframe.env.contracts import check_reward

#: How many ids of finished episodes are remembered, to tell "finished" from "unknown" and to refuse them again.
_REMEMBERED = 10_000


class TrainingStopped(SystemExit):
    """Ends `run()` when the trainer is stopped: the episode's methods raise it, and nothing more is printed.

    No subclass of Exception, so that a simulator that goes on after any error ends all the same.
    """


@dataclass(eq=False)
class OpenEpisode:
    """An episode that has begun: what was logged since its last call, and where its caller waits."""

    episode_id: str
    trains: bool
    rewards: dict[Any, float] = field(default_factory=dict)
    dones: dict[Any, bool] = field(default_factory=dict)
    infos: dict[Any, Any] = field(default_factory=dict)
    reply: queue.SimpleQueue[tuple[Any, BaseException | None]] = field(default_factory=queue.SimpleQueue)
    waits: bool = False


@dataclass(frozen=True, eq=False)
class ActionRequest:
    """A simulator's call that the trainer has to deal with.

    Attributes:
        broker: The broker of the environment that has made it.
        episode: Its episode; None where `run()` has ended.
        obs: Observations by agent.
        actions: Actions by agent that were taken already; None where they are asked for.
        rewards, dones, infos: What was logged since the call before.
        over: Whether the episode ends here; nobody waits for an answer then.
        truncated: Whether it was cut off rather than over by itself.
        abandoned: Whether the episode will never end, because its caller is gone.
        wakes: Whether nobody calls, but whoever samples shall look for itself what there is.
    """

    broker: EpisodeBroker
    episode: OpenEpisode | None
    obs: Mapping[Any, Any] = field(default_factory=dict)
    actions: Mapping[Any, Any] | None = None
    rewards: Mapping[Any, float] = field(default_factory=dict)
    dones: Mapping[Any, bool] = field(default_factory=dict)
    infos: Mapping[Any, Any] = field(default_factory=dict)
    over: bool = False
    truncated: bool = False
    abandoned: bool = False
    wakes: bool = False


class EpisodeBroker:
    """Keeps the episodes of one environment; its methods may be called from several threads.

    Args:
        max_concurrent: How many episodes may be open at once.
    """

    def __init__(self, max_concurrent: int) -> None:
        self.max_concurrent = max_concurrent
        #: Requests to be answered; whoever samples from several environments attaches one queue to all.
        self.requests: queue.SimpleQueue[ActionRequest] = queue.SimpleQueue()
        #: What `run()` raised, None where it has returned, or runs.
        self.failure: BaseException | None = None
        self._lock = threading.Lock()
        self._open: dict[str, OpenEpisode] = {}
        self._finished: deque[str] = deque(maxlen=_REMEMBERED)
        self._closed = False

    # --- what a simulator calls --------------------------------------------------------------------------------

    def start(self, episode_id: str | None, trains: bool) -> str:
        """Begins an episode; returns its id.

        Raises:
            ValueError: If there is one of this id, there was one, or there are too many.
        """
        with self._lock:
            self._check_open()
            made = uuid.uuid4().hex if episode_id is None else episode_id
            if made in self._finished:
                raise ValueError(f"start_episode({made!r}): this episode has ended; wanted a new id")
            if made in self._open:
                raise ValueError(f"start_episode({made!r}): this episode has begun already; wanted a new id")
            if len(self._open) >= self.max_concurrent:
                raise ValueError(
                    f"start_episode({made!r}): got more than max_concurrent={self.max_concurrent} open episodes; end "
                    "some, or raise max_concurrent"
                )
            self._open[made] = OpenEpisode(made, trains)
            return made

    def log(
        self,
        episode_id: str,
        rewards: Mapping[Any, Any],
        infos: Mapping[Any, Any] | None,
        dones: Mapping[Any, Any] | None,
    ) -> None:
        """Adds rewards by agent, and notes who is through.

        Raises:
            ValueError: If there is no such episode, or a reward is no finite number.
        """
        with self._lock:
            episode = self._find("log_returns", episode_id)
            for agent, reward in rewards.items():
                checked = check_reward(reward, f"log_returns(): agent {agent!r}")
                episode.rewards[agent] = episode.rewards.get(agent, 0.0) + checked
            episode.infos.update(infos or {})
            episode.dones.update({agent: bool(flag) for agent, flag in (dones or {}).items()})

    def ask(self, name: str, episode_id: str, obs: Mapping[Any, Any], actions: Mapping[Any, Any] | None) -> Any:
        """Hands over observations, and waits for actions (or, with actions that were taken, until they are noted).

        Raises:
            ValueError: If there is no such episode, or somebody waits in it.
            TrainingStopped: If the trainer is stopped.
        """
        with self._lock:
            episode = self._find(name, episode_id)
            if episode.waits:
                raise ValueError(f"{name}({episode_id!r}): another thread waits for this episode's action")
            episode.waits = True
            self._hand_over(episode, obs, actions=actions)
        reply, error = episode.reply.get()
        if error is not None:
            raise error
        return reply

    def ask_all(self, asked: Mapping[str, Mapping[Any, Any]]) -> dict[str, Any]:
        """Hands over observations of several episodes, by their ids, and waits for the actions of all.

        Raises:
            ValueError: If there is no such episode.
            TrainingStopped: If the trainer is stopped.
        """
        with self._lock:
            episodes = {episode_id: self._find("get_action", episode_id) for episode_id in asked}
            for episode_id, episode in episodes.items():
                episode.waits = True
                self._hand_over(episode, asked[episode_id], actions=None)
        answers = {episode_id: episode.reply.get() for episode_id, episode in episodes.items()}
        for _, error in answers.values():
            if error is not None:
                raise error
        return {episode_id: actions for episode_id, (actions, _) in answers.items()}

    def end(self, episode_id: str, obs: Mapping[Any, Any], truncated: bool) -> None:
        """Ends an episode.

        Raises:
            ValueError: If there is no such episode, or somebody waits in it.
        """
        with self._lock:
            episode = self._find("end_episode", episode_id)
            if episode.waits:
                raise ValueError(f"end_episode({episode_id!r}): another thread waits for this episode's action")
            del self._open[episode_id]
            self._finished.append(episode_id)
            self._hand_over(episode, obs, over=True, truncated=truncated)

    def abandon(self, episode_id: str) -> None:
        """Ends an episode whose caller is gone, behind its last whole row; of whole episodes no row is learned from."""
        with self._lock:
            episode = self._open.pop(episode_id, None)
            if episode is not None and not self._closed:
                self._finished.append(episode_id)
                self._hand_over(episode, {}, over=True, truncated=True, abandoned=True)

    def forget(self, episode_id: str) -> None:
        """Ends an episode whose rows are dropped already."""
        with self._lock:
            if self._open.pop(episode_id, None) is not None:
                self._finished.append(episode_id)

    def wake(self) -> None:
        """Lets whoever samples return with what there is."""
        with self._lock:
            self.requests.put(ActionRequest(self, None, wakes=True))

    def _find(self, name: str, episode_id: str) -> OpenEpisode:
        self._check_open()
        episode = self._open.get(episode_id)
        if episode is None:
            state = "has ended" if episode_id in self._finished else "is not known"
            raise ValueError(
                f"{name}({episode_id!r}): this episode {state}; wanted an id that start_episode() returned"
            )
        return episode

    def _check_open(self) -> None:
        if self._closed:
            raise TrainingStopped

    def _hand_over(self, episode: OpenEpisode, obs: Mapping[Any, Any], **more: Any) -> None:
        logged: dict[str, Any] = {"rewards": episode.rewards, "dones": episode.dones, "infos": episode.infos}
        episode.rewards, episode.dones, episode.infos = {}, {}, {}
        self.requests.put(
            ActionRequest(self, episode, dict(obs), **logged, **more)
        )  # under the lock: see `attach_queue`

    # --- what the trainer calls --------------------------------------------------------------------------------

    def attach_queue(self, requests: queue.SimpleQueue[ActionRequest]) -> None:
        """Puts calls into another queue from now on, and those of before first: a thread may call before `run()`."""
        with self._lock:
            before, self.requests = self.requests, requests
            for _ in range(before.qsize()):
                requests.put(before.get())

    def reply(self, call: ActionRequest, actions: Any, error: BaseException | None = None) -> None:
        """Lets the caller go on with its actions, or raises an error there."""
        if call.episode is None or call.over:
            return
        with self._lock:
            if call.episode.waits:
                call.episode.waits = False
                call.episode.reply.put((actions, error))

    def ended(self, failure: BaseException | None) -> None:
        """Notes that `run()` has ended."""
        with self._lock:
            self.failure = failure
            self.requests.put(ActionRequest(self, None))

    def close(self) -> None:
        """Ends `run()`: whoever waits or calls from now on gets a `TrainingStopped`."""
        with self._lock:
            self._closed = True
            for episode in self._open.values():
                if episode.waits:
                    episode.waits = False
                    episode.reply.put((None, TrainingStopped()))
