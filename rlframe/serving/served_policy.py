"""A client of `rlframe serve`: needs NumPy and the standard library."""

from __future__ import annotations

import http.client
import os
import threading
import urllib.parse
from collections.abc import Sequence
from functools import partial
from typing import Any

from rlframe.serving.protocol import TOKEN_VARIABLE, VERSION, dumps, loads
from rlframe.utils.errors import ConfigError, DataError

_PACKED = "application/vnd.rlframe+json"


class ServedPolicy:
    """A policy that acts in another process, behind `rlframe serve`.

        policy = ServedPolicy("http://127.0.0.1:8000")
        action = policy.act(observation)

    May be used by several threads. A connection that was closed is made again.

    Args:
        address: The server's URL.
        policy: Which policy acts, where there are several.
        explore: Whether actions are drawn as in training; None leaves it to the server.
        token: What the server wants to see; by default the environment's `RLFRAME_POLICY_TOKEN`.
        timeout_s: How long an answer is waited for.

    Raises:
        ConfigError: If the address is none.
    """

    def __init__(
        self,
        address: str,
        policy: str | None = None,
        explore: bool | None = None,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        url = urllib.parse.urlsplit(address if "//" in address else f"http://{address}")
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise ConfigError(f"address: got {address!r}, wanted a URL such as 'http://127.0.0.1:8000'")
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connect = partial(kind, url.hostname, url.port, timeout=timeout_s)
        self._address, self._path = address, url.path.rstrip("/")
        self._asked = {key: value for key, value in (("policy", policy), ("explore", explore)) if value is not None}
        self._headers = {"Content-Type": _PACKED, "X-Rlframe-Protocol": str(VERSION)}
        token = token or os.environ.get(TOKEN_VARIABLE)
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._of_thread = threading.local()

    def contract(self) -> dict[str, Any]:
        """Returns the server's versions and policies, with their spaces."""
        told: dict[str, Any] = self._call("GET", "/contract")
        return told

    def act(self, observation: Any) -> Any:
        """Returns the action for one observation of the environment.

        Raises:
            DataError: If the observation is none of the space, or the policy wants a session.
            ConnectionError: If there is no server.
        """
        return self._call("POST", "/act", {**self._asked, "observation": observation})["action"]

    def act_many(self, observations: Sequence[Any]) -> list[Any]:
        """Returns the actions for observations that have nothing to do with each other.

        Args:
            observations: A list of them, or an array `[B, ...]`.

        Raises:
            DataError: If one is none of the space, or the policy wants a session.
            ConnectionError: If there is no server.
        """
        made: list[Any] = self._call("POST", "/act", {**self._asked, "observations": observations})["actions"]
        return made

    def session(self) -> PolicySession:
        """Begins an episode, for policies that remember; a context manager."""
        return PolicySession(self, self._call("POST", "/sessions", self._asked)["session"])

    def _call(self, method: str, path: str, message: Any = None, *, over: tuple[int, ...] = ()) -> Any:
        """Returns what the server answers; None with a status that says that it is over already.

        Raises:
            DataError: If the server refuses what was asked.
            PermissionError: If it wants another token.
            RuntimeError: If the policy failed.
            ConnectionError: If there is no server.
        """
        body = b"" if message is None else dumps(message)
        status, answer = self._send(method, self._path + path, body)
        told = loads(answer) if answer else None
        if status < http.client.BAD_REQUEST or status in over:
            return told if status not in over else None
        why = told["error"] if isinstance(told, dict) and "error" in told else f"the server answered with {status}"
        if status == http.client.UNAUTHORIZED:
            raise PermissionError(why)
        raise (DataError if status < http.client.INTERNAL_SERVER_ERROR else RuntimeError)(why)

    def _send(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        for fresh in (False, True):
            connection = None if fresh else getattr(self._of_thread, "connection", None)
            if connection is None:
                fresh, connection = True, self._connect()
            try:
                connection.request(method, path, body, self._headers)
                response = connection.getresponse()
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._of_thread.connection = None
                if fresh:
                    raise ConnectionError(f"no policy is served at {self._address} ({error})") from error
                continue  # the server closes connections that are idle
            self._of_thread.connection = connection
            return response.status, answer
        raise AssertionError


class PolicySession:
    """One episode of a served policy, of which the server keeps what the policy remembers.

    Args:
        served: The way to the server.
        session_id: The session's.
    """

    def __init__(self, served: ServedPolicy, session_id: str) -> None:
        self._served, self._path, self._steps = served, f"/sessions/{session_id}", 0

    def act(self, observation: Any, reward: float | None = None) -> Any:
        """Returns the action for the episode's next observation.

        Args:
            observation: As the environment gives it.
            reward: What the last action brought, for policies that see it.

        Raises:
            DataError: If the observation is none of the space, or the session has expired.
            ConnectionError: If there is no server.
        """
        given = {} if reward is None else {"reward": float(reward)}
        asked = {**given, "observation": observation, "step": self._steps}
        action = self._served._call("POST", f"{self._path}/act", asked)["action"]
        self._steps += 1
        return action

    def close(self) -> None:
        """Ends the episode; one that has expired has ended."""
        self._served._call("DELETE", self._path, over=(http.client.NOT_FOUND, http.client.GONE))

    def __enter__(self) -> PolicySession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["PolicySession", "ServedPolicy"]
