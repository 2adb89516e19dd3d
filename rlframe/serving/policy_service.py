"""A trainer's policies as a service: rows of many callers acted on together, sessions for policies with memory."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlframe.data.columns import OBS
from rlframe.policy.policy import unbatch_one
from rlframe.serving.bodies import as_observation
from rlframe.serving.protocol import VERSION
from rlframe.utils.errors import DataError
from rlframe.version import __version__

_LOGGER = logging.getLogger("rlframe")
#: Ended sessions that are told from such as never were.
_REMEMBERED = 10_000


class UnknownError(LookupError):
    """There is no such policy or session."""


class ExpiredError(LookupError):
    """There was such a session."""


class OutOfTurnError(RuntimeError):
    """A session was asked for another step than its next one, or there are too many sessions."""


@dataclass
class _Session:
    actor: Any
    policy_id: str
    heard: float
    steps: int = 0
    last: Any = None


@dataclass
class _Asked:
    """Observations that wait to be acted on: several without memory, or the next one of a session."""

    policy_id: str
    rows: Sequence[Any]
    explore: bool | None
    session: str | None = None
    step: int | None = None
    reward: float | None = None
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class PolicyService:
    """Acts for many callers; its coroutines belong to one event loop.

    Policies act in one thread. What is asked while they act waits, and is then acted on in one batch.

    Args:
        trainer: With weights; its policies, filters and preprocessors are used, nothing learns.
        explore: What is done where a caller does not say.
        session_timeout_s: Seconds without a call after which a session ends.
        most_sessions: How many may be open.

    Attributes:
        rows: How many observations were acted on.
        batches: In how many passes, those of sessions not among them.
    """

    def __init__(
        self, trainer: Any, *, explore: bool = False, session_timeout_s: float = 600.0, most_sessions: int = 1024
    ) -> None:
        self._trainer, self._explore = trainer, explore
        self._session_timeout_s, self._most_sessions = session_timeout_s, most_sessions
        self._policies: dict[str, Any] = dict(trainer.workers.local_worker().policy_map.items())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rlframe acting")
        self._waiting: list[_Asked] = []
        self._draining: asyncio.Task[None] | None = None
        self._sessions: OrderedDict[str, _Session] = OrderedDict()  # longest silent first
        self._ended: OrderedDict[str, str] = OrderedDict()
        self.rows = self.batches = 0

    @property
    def open_sessions(self) -> int:
        """How many sessions there are."""
        self._expire()
        return len(self._sessions)

    def contract(self) -> dict[str, Any]:
        """Returns what callers must know: versions, and of each policy its spaces and whether it wants a session."""
        return {
            "version": VERSION,
            "rlframe": __version__,
            "algorithm": type(self._trainer).__name__.removesuffix("Trainer"),
            "explore": self._explore,
            "session_timeout_s": self._session_timeout_s,
            "policies": {pid: self._described(policy) for pid, policy in self._policies.items()},
        }

    def _described(self, policy: Any) -> dict[str, Any]:
        observed, acted = self.space_of(policy), policy.action_space
        return {
            "observation_space": str(observed),
            "observation_dtype": _dtype(observed),
            "action_space": str(acted),
            "action_dtype": _dtype(acted),
            "needs_session": bool(policy.needs_memory()),
        }

    def policy(self, policy_id: str | None) -> tuple[str, Any]:
        """Returns a policy and its id; None is the only one.

        Raises:
            UnknownError: If there is no such policy, or several and none is named.
        """
        chosen = next(iter(self._policies)) if policy_id is None and len(self._policies) == 1 else policy_id
        if chosen not in self._policies:
            raise UnknownError(f"policy: got {policy_id!r}, wanted one of {', '.join(self._policies)}")
        return chosen, self._policies[chosen]

    @staticmethod
    def space_of(policy: Any) -> Any:
        """Returns the space of a policy's observations as the environment gives them."""
        return getattr(policy.observation_space, "original_space", policy.observation_space)

    async def act(self, policy_id: str | None, observations: Sequence[Any], explore: bool | None) -> list[Any]:
        """Returns the environment's actions for observations that have nothing to do with each other.

        Raises:
            UnknownError: If there is no such policy.
            DataError: If the policy acts from memory, which takes a session, or there are no observations.
            ValueError: If an observation is none of the space.
        """
        chosen, policy = self.policy(policy_id)
        if policy.needs_memory():
            raise DataError(
                f"policy {chosen!r} acts from what it saw before; wanted a session: POST /sessions, then "
                "POST /sessions/ID/act for each step"
            )
        if not observations:
            raise DataError("observations: got none, wanted at least one")
        made: list[Any] = await self._ask(_Asked(chosen, observations, self._or_default(explore)))
        return made

    def open_session(self, policy_id: str | None, explore: bool | None) -> str:
        """Begins an episode of a policy, and returns the session's id.

        Raises:
            UnknownError: If there is no such policy.
            OutOfTurnError: If too many are open.
        """
        chosen, _ = self.policy(policy_id)
        self._expire()
        if len(self._sessions) >= self._most_sessions:
            raise OutOfTurnError(
                f"{len(self._sessions)} sessions are open, which is the most; end some (DELETE /sessions/ID), or wait "
                f"until they expire, {self._session_timeout_s:g} s after their last call"
            )
        made = uuid.uuid4().hex
        actor = self._trainer.make_actor(chosen, explore=self._or_default(explore))
        self._sessions[made] = _Session(actor, chosen, time.monotonic())
        return made

    async def act_in_session(self, session_id: str, observation: Any, reward: float | None, step: int | None) -> Any:
        """Returns the action for the next observation of a session.

        Args:
            session_id: What `open_session` returned.
            observation: As the environment gives it.
            reward: What the last action brought, for policies that see it.
            step: Number of the step, from 0. The last one, asked for again, gets the same answer, and is not acted
                on twice. None takes the next.

        Raises:
            UnknownError: If there never was such a session.
            ExpiredError: If it has ended.
            OutOfTurnError: If it is another step's turn.
            ValueError: If the observation is none of the space, or the reward is missing.
        """
        session = self._session(session_id)
        return await self._ask(
            _Asked(session.policy_id, [observation], None, session=session_id, step=step, reward=reward)
        )

    def end_session(self, session_id: str) -> None:
        """Ends a session.

        Raises:
            UnknownError: If there never was such a session.
            ExpiredError: If it has ended.
        """
        self._session(session_id)
        self._forget(session_id, "was ended")

    async def close(self) -> None:
        """Lets what is asked be answered, and ends the thread."""
        if self._draining is not None:
            await self._draining
        self._thread.shutdown()

    def _or_default(self, explore: bool | None) -> bool:
        return self._explore if explore is None else explore

    def _session(self, session_id: str) -> _Session:
        self._expire()
        if session_id in self._ended:
            raise ExpiredError(f"session {session_id!r} {self._ended[session_id]}; begin another one: POST /sessions")
        if session_id not in self._sessions:
            raise UnknownError(f"there is no session {session_id!r:.80}; begin one: POST /sessions")
        session = self._sessions[session_id]
        session.heard = time.monotonic()
        self._sessions.move_to_end(session_id)
        return session

    def _expire(self) -> None:
        now = time.monotonic()
        while self._sessions:
            session_id, session = next(iter(self._sessions.items()))
            if now - session.heard <= self._session_timeout_s:
                return
            self._forget(session_id, f"has expired: nothing was heard of it for {self._session_timeout_s:g} s")

    def _forget(self, session_id: str, why: str) -> None:
        del self._sessions[session_id]
        self._ended[session_id] = why
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)

    # --- the thread that acts ------------------------------------------------------------------------------------

    async def _ask(self, asked: _Asked) -> Any:
        self._waiting.append(asked)
        if self._draining is None or self._draining.done():
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        return await asked.answer

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            taken, self._waiting = self._waiting, []
            sessions = {asked.session: self._sessions.get(asked.session) for asked in taken if asked.session}
            try:
                answers = await loop.run_in_executor(self._thread, self._answers, taken, sessions)
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # such as a SystemExit of a model: nobody who asked may wait for ever
                answers = [_failed(error)] * len(taken)
            for asked, answer in zip(taken, answers, strict=True):
                if asked.answer.cancelled():  # its caller is gone
                    continue
                if isinstance(answer, Exception):
                    asked.answer.set_exception(answer)
                else:
                    asked.answer.set_result(answer)

    def _answers(self, taken: list[_Asked], sessions: dict[str, _Session | None]) -> list[Any]:
        """Returns an answer for each, or the exception that its caller gets."""
        answers: list[Any] = [None] * len(taken)
        together: dict[tuple[str, bool | None], list[tuple[int, list[Any]]]] = {}
        for index, asked in enumerate(taken):
            policy = self._policies[asked.policy_id]
            try:
                rows = [as_observation(self.space_of(policy), row) for row in asked.rows]
                if asked.session is not None:
                    answers[index] = self._step(asked, sessions[asked.session], rows[0])
                else:
                    observed = [policy._observed(row) for row in rows]
                    together.setdefault((asked.policy_id, asked.explore), []).append((index, observed))
            except Exception as error:
                answers[index] = _failed(error) if isinstance(error, StopIteration) else error  # no future takes that
        for (policy_id, explore), group in together.items():
            made = self._pass(self._policies[policy_id], [row for _, rows in group for row in rows], explore)
            rest = iter(made if isinstance(made, list) else ())
            for index, rows in group:
                answers[index] = [next(rest) for _ in rows] if isinstance(made, list) else made
        return answers

    def _pass(self, policy: Any, rows: list[Any], explore: bool | None) -> list[Any] | Exception:
        try:
            actions, _, _ = policy.compute_actions_from_input_dict({OBS: np.stack(rows)}, explore)
            acted = policy.to_env_actions(policy.batched(actions))
            self.rows, self.batches = self.rows + len(rows), self.batches + 1
            return [unbatch_one(_row(acted, index)) for index in range(len(rows))]
        except Exception as error:
            _LOGGER.exception("a policy could not act on %d rows", len(rows))
            return _failed(error)  # no caller's mistake

    def _step(self, asked: _Asked, session: _Session | None, observation: Any) -> Any:
        if session is None:
            raise ExpiredError(f"session {asked.session!r} has ended; begin another one: POST /sessions")
        if asked.step is not None and asked.step == session.steps - 1:
            return session.last
        if asked.step is not None and asked.step != session.steps:
            raise OutOfTurnError(f"step: got {asked.step}, wanted {session.steps}, or the one before again")
        session.last = session.actor.act(observation, asked.reward)
        session.steps += 1
        self.rows += 1
        return session.last


def _failed(error: BaseException) -> RuntimeError:
    return RuntimeError(f"the policy could not act: {type(error).__name__}: {error}")


def _dtype(space: Any) -> str | None:
    """Returns the name of a space's dtype; None where its parts have dtypes of their own."""
    return None if space.dtype is None else str(space.dtype)


def _row(actions: Any, index: int) -> Any:
    """Returns one row of actions as a batch of one, through nested tuples and dicts."""
    if isinstance(actions, tuple):
        return tuple(_row(part, index) for part in actions)
    if isinstance(actions, dict):
        return {key: _row(part, index) for key, part in actions.items()}
    return actions[index : index + 1]


__all__ = ["ExpiredError", "OutOfTurnError", "PolicyService", "UnknownError"]
