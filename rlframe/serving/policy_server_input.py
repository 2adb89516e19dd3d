"""A trainer as a server: simulators in other programs ask for actions over HTTP, or bring what they sampled."""

from __future__ import annotations

import http.server
import logging
import os
import socketserver
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.env.external_env import ExternalEnv, TrainingStopped
from rlframe.env.external_multi_agent_env import ExternalMultiAgentEnv
from rlframe.evaluation.metrics import RolloutMetrics
from rlframe.offline.input_reader import InputReader
from rlframe.offline.json_format import as_text, from_line
from rlframe.serving.description import describe_worker
from rlframe.serving.protocol import MOST_BYTES, TOKEN_VARIABLE, VERSION, dumps, is_loopback, loads, shows_token
from rlframe.utils.errors import ConfigError, DataError

_LOGGER = logging.getLogger("rlframe")
#: Answers that are kept for a client that did not get one and asks again.
_REMEMBERED = 256
#: Batches of clients that wait to be learned from; who brings more waits.
_MOST_WAITING = 64
#: Seconds between two looks at who has fallen silent.
_LOOK_S = 0.1
_EPISODE_COMMANDS = ("start_episode", "get_action", "log_action", "log_returns", "end_episode")


_ANSWERED_AFRESH = ("get_weights", "get_worker")


class _Brought(NamedTuple):
    """A client's batch that waits, and the episodes that ended in it."""

    client: str
    number: int
    batch: SampleBatch | MultiAgentBatch
    episodes: list[dict[str, Any]]


class _Simulators:
    """What simulators of other programs have in common: they call, and their own thread has nothing to do."""

    forgives = True

    def __init__(self, action_space: Any, observation_space: Any) -> None:
        super().__init__(action_space, observation_space, 10_000, timeout_s=None)  # type: ignore[call-arg]
        self._over = threading.Event()

    def run(self) -> None:
        """Waits for the end."""
        self._over.wait()

    def close(self) -> None:
        """Ends the episodes."""
        self._over.set()
        super().close()  # type: ignore[misc]


class _OneAgent(_Simulators, ExternalEnv):
    pass


class _SeveralAgents(_Simulators, ExternalMultiAgentEnv):
    pass


class PolicyServerInput(InputReader):
    """An `input` that serves a worker's policies to simulators in other programs; see `PolicyClient`.

        def serve(ioctx):
            return PolicyServerInput(ioctx, "localhost", 9900 + ioctx.worker_index)

        trainer = DQNTrainer({"env": None, "observation_space": ..., "action_space": ..., "input": serve})

    With `num_workers` above 0 each remote worker serves, by a port of its own. Messages are JSON, and no message is
    executed. Each request has a number: one that is asked again gets the same answer, so nothing counts twice.

    Args:
        ioctx: The worker's context.
        address: Where it listens: a name or number of this machine.
        port: The port; 0 takes a free one (`server_address` tells which).
        idle_timeout: Seconds without a call after which `next` returns what there is, which may be nothing.
        token: What clients must show; by default the environment's `RLFRAME_POLICY_TOKEN`, or nothing.
        session_timeout_s: Seconds without a call after which an episode is given up.

    Attributes:
        server_address: `(address, port)`.

    Raises:
        ConfigError: If others than this machine could connect without a token, or the port is taken.
    """

    def __init__(
        self,
        ioctx: Any,
        address: str,
        port: int,
        idle_timeout: float = 3.0,
        *,
        token: str | None = None,
        session_timeout_s: float = 600.0,
    ) -> None:
        self._worker = ioctx.worker
        self._token = token or os.environ.get(TOKEN_VARIABLE)
        if self._token is None and not is_loopback(address):
            raise ConfigError(
                f"PolicyServerInput: got address={address!r} and no token, so that anybody who reaches this machine "
                f"could teach this policy; pass token=... here and to PolicyClient, set {TOKEN_VARIABLE} on both "
                "sides, or listen at 'localhost'"
            )
        self._idle_timeout, self._session_timeout_s = float(idle_timeout), float(session_timeout_s)
        self._instance = uuid.uuid4().hex
        self._brought: deque[_Brought] = deque()
        self._metrics: list[RolloutMetrics] = []
        self._closed = False
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._answers: dict[str, OrderedDict[int, Future[Any]]] = {}
        self._heard_of: dict[str, float] = {}  # when a client was
        self._taken: dict[str, int] = {}  # number of the last batch of each client
        # What the last state has of these, and the one before, which is on the disk whenever this process is killed.
        self._in_last_state: dict[str, int] = {}
        self._saved: dict[str, int] = {}
        # A worker that takes the place of a dead one does not know what that had taken, and learned from.
        self._asks_for_missing = not self._worker.worker_index
        self._sessions: dict[str, float] = {}  # when an episode was heard of
        self._waiting: set[str] = set()
        self._heard = time.monotonic()
        self._sampling = self._idle = False
        self._silence_s = self._next_warning_s = 0.0
        several = list(self._worker.policy_map) != [DEFAULT_POLICY_ID]
        kind = _SeveralAgents if several else _OneAgent
        self._simulators: Any = kind(self._worker.action_space, self._worker.observation_space)
        self._worker.serve(self._simulators)
        self._server = self._listen(address, port)
        self.server_address = self._server.server_address[:2]
        serve = partial(self._server.serve_forever, poll_interval=_LOOK_S)
        threading.Thread(target=serve, daemon=True, name="rlframe policy server").start()
        _LOGGER.info("policies are served at http://%s:%s", *self.server_address)

    def _listen(self, address: str, port: int) -> _Server:
        try:
            return _Server((address, port), self)
        except OSError as error:
            self._simulators.close()
            raise ConfigError(
                f"PolicyServerInput: cannot listen at {address}:{port} ({error}); give each worker a port of its own, "
                "such as 9900 + ioctx.worker_index, and each trial of Tune others; port 0 takes a free one"
            ) from error

    # --- what the trainer reads ----------------------------------------------------------------------------------

    def next(self) -> SampleBatch | MultiAgentBatch:
        """Returns a batch that a client brought, else one of the simulators that ask for actions here.

        Waits for one of the two, but no longer than `idle_timeout` after the last call.
        """
        while True:
            with self._room:
                if self._brought:
                    brought = self._brought.popleft()
                    self._room.notify_all()
                    self._metrics += [RolloutMetrics.from_state(episode) for episode in brought.episodes]
                    return _of_one_policy(brought.batch)
                self._sampling, self._heard = True, time.monotonic()
            try:
                batch = self._worker.sample_environments()
            finally:
                with self._lock:
                    idle, self._idle, self._sampling = self._idle, False, False
            self._note_silence(idle and not batch.count)
            if batch.count or idle:
                return _of_one_policy(batch)

    def _note_silence(self, silent: bool) -> None:
        """Warns of silent clients: after the first `idle_timeout`, and each time that the silence is twice as long."""
        self._silence_s = self._silence_s + self._idle_timeout if silent else 0.0
        if not silent:
            self._next_warning_s = 0.0
        elif self._silence_s >= self._next_warning_s:
            self._next_warning_s = 2 * self._silence_s
            _LOGGER.warning("nothing was heard of policy clients for %g s", self._silence_s)

    def get_metrics(self) -> list[RolloutMetrics]:
        """Returns the episodes that clients with policies of their own have ended since the last call."""
        with self._lock:
            metrics, self._metrics = self._metrics, []
        return metrics

    def get_state(self) -> dict[str, Any]:
        """Returns which batches of which clients were taken, and those that wait; episodes under way are not in it."""
        with self._lock:
            self._saved, self._in_last_state = self._in_last_state, dict(self._taken)
            waiting = [[as_text(one.batch), one.episodes, one.client, one.number] for one in self._brought]
            return {"taken": dict(self._taken), "waiting": waiting}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes that back: batches that clients bring again are not learned from again, missing ones are asked for."""
        with self._room:
            since, self._brought = self._brought, deque()
            self._taken = {str(client): int(number) for client, number in state["taken"].items()}
            self._saved = self._in_last_state = dict(self._taken)
            self._asks_for_missing = True
            for text, episodes, *whose in state["waiting"]:
                client, number = whose or ("", 0)  # states of older versions do not say
                self._brought.append(_Brought(client, number, from_line(text), list(episodes)))
            for one in since:  # clients may be faster than whoever restores
                if one.number == self._taken.get(one.client, 0) + 1:
                    self._taken[one.client] = one.number
                    self._brought.append(one)
            self._room.notify_all()

    def close(self) -> None:
        """Ends the server; clients that wait are told."""
        with self._room:
            self._closed = True
            self._room.notify_all()
        self._simulators.close()
        self._server.shutdown()
        self._server.server_close()

    # --- what clients ask ----------------------------------------------------------------------------------------

    def allows(self, authorization: str | None) -> bool:
        """Returns whether a request's header shows the token, where there is one."""
        return shows_token(self._token, authorization)

    def health(self) -> dict[str, Any]:
        """Returns what a look at the server shows."""
        with self._lock:
            episodes, waiting = len(self._sessions), len(self._brought)
        return {"version": VERSION, "server": self._instance, "open_episodes": episodes, "waiting_batches": waiting}

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer to a message; one that was sent before gets the same again."""
        if not isinstance(message, Mapping):
            raise DataError(f"got a {type(message).__name__}, wanted an object")
        if message.get("version") != VERSION:
            return _refusal(
                "ClientVersionError",
                f"got a client of version {message.get('version')!r}, this server has {VERSION}: install the same "
                "version of rlframe on both sides",
            )
        client, number = str(message["client"]), int(message["number"])
        command, arguments = str(message["command"]), dict(message["arguments"])
        with self._lock:
            self._heard = self._heard_of[client] = time.monotonic()
        if command in _ANSWERED_AFRESH:  # they change nothing, and may be large
            return {"server": self._instance, **self._deal_with(client, command, arguments)}
        with self._lock:
            answers = self._answers.setdefault(client, OrderedDict())
            future, first = answers.get(number), False
            if future is None:
                future, first = Future(), True
                answers[number] = future
                while len(answers) > _REMEMBERED and next(iter(answers.values())).done():
                    answers.popitem(last=False)
        if first:
            future.set_result(self._deal_with(client, command, arguments))
        return {"server": self._instance, **future.result()}

    def _deal_with(self, client: str, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            if self._closed:
                raise TrainingStopped
            if command in _EPISODE_COMMANDS:
                return {"result": self._episode_call(command, arguments)}
            if command == "report_samples":
                return {"result": self._take_samples(client, **arguments)}
            if command == "get_weights":
                return {"result": self._weights(**arguments)}
            if command == "get_worker":
                return {"result": describe_worker(self._worker)}
        except TrainingStopped:
            return _refusal("TrainingStopped", "the trainer was stopped")
        except Exception as error:
            return _refusal(type(error).__name__, str(error))
        wanted = ", ".join((*_EPISODE_COMMANDS, "report_samples", "get_weights", "get_worker"))
        return _refusal("DataError", f"got the command {command!r}, wanted one of {wanted}")

    def _episode_call(self, command: str, arguments: dict[str, Any]) -> Any:
        if command == "start_episode":
            chosen = arguments["named"].get("episode_id")
            if not isinstance(chosen, str | None):
                raise ValueError(f"start_episode({chosen!r}): got {type(chosen).__name__}, wanted text, or None")
            made = self._simulators.start_episode(**arguments["named"])
            with self._lock:
                self._sessions[made] = time.monotonic()
            return made
        args = list(arguments["args"])
        episode_id = str(args[0])
        with self._lock:
            if episode_id in self._sessions:
                self._sessions[episode_id] = time.monotonic()
            self._waiting.add(episode_id)
        try:
            return getattr(self._simulators, command)(*args, **arguments["named"])
        finally:
            with self._lock:
                self._waiting.discard(episode_id)
                if command == "end_episode":
                    self._sessions.pop(episode_id, None)
                elif episode_id in self._sessions:
                    self._sessions[episode_id] = time.monotonic()

    def _take_samples(
        self, client: str, number: int, batch: str, episodes: list[dict[str, Any]], first: int | None = None
    ) -> dict[str, Any]:
        """Takes a client's batch, unless an earlier one is missing.

        Args:
            client: The client's id.
            number: The batch's, counted from 1.
            batch: As text.
            episodes: Those that ended in it.
            first: The earliest batch that the client still has; it keeps those that no checkpoint holds.

        Returns:
            `saved`, up to which number it need not keep them; `missing`, the batch that is wanted first, or None.
        """
        made = from_line(batch)
        unknown = [pid for pid in _policy_ids(made) if pid not in self._worker.policy_map]
        if unknown:
            raise DataError(f"got rows of the policies {unknown}, wanted {list(self._worker.policy_map)}")
        with self._room:
            if number > self._taken.get(client, 0):
                self._room.wait_for(lambda: self._closed or len(self._brought) < _MOST_WAITING)
                if self._closed:
                    raise TrainingStopped
            taken = self._taken.get(client, 0)
            kept = first is not None and self._asks_for_missing
            if kept and number > max(taken + 1, first or 0):
                return {"saved": self._saved.get(client, 0), "missing": max(taken + 1, first or 0)}
            if number > taken:
                self._taken[client] = number
                self._brought.append(_Brought(client, number, made, list(episodes)))
                if self._sampling:
                    self._simulators.broker.wake()
            return {"saved": self._saved.get(client, 0) if kept else number, "missing": None}

    def _weights(self) -> dict[str, Any]:
        return {"weights": self._worker.get_weights(), "global_vars": dict(self._worker.global_vars)}

    # --- what time brings ----------------------------------------------------------------------------------------

    def look_around(self) -> None:
        """Wakes the trainer after silence, and gives up episodes whose clients are gone."""
        now = time.monotonic()
        with self._lock:
            silent = self._sampling and now - self._heard > self._idle_timeout
            gone = [
                episode_id
                for episode_id, heard in self._sessions.items()
                if now - heard > self._session_timeout_s and episode_id not in self._waiting
            ]
            for episode_id in gone:
                del self._sessions[episode_id]
            for client, heard in list(self._heard_of.items()):
                answers: Mapping[int, Future[Any]] = self._answers.get(client, {})
                if now - heard > self._session_timeout_s and all(one.done() for one in answers.values()):
                    del self._heard_of[client]
                    self._answers.pop(client, None)
            if silent:
                self._heard, self._idle = now, True
                self._simulators.broker.wake()
        for episode_id in gone:
            _LOGGER.warning(
                "episode %r: nothing was heard of its client for %g s; it is given up",
                episode_id,
                self._session_timeout_s,
            )
            self._simulators.broker.abandon(episode_id)


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Hands requests to a `PolicyServerInput`, each connection in a thread."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], served: PolicyServerInput) -> None:
        self.served = served
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Binds, without asking who this machine is (HTTPServer does, which takes seconds without a name server)."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def service_actions(self) -> None:
        """Called by `serve_forever` at each of its looks."""
        self.served.look_around()


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection: POST of a message, GET of the server's health."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        """Answers with the server's health."""
        if not self.server.served.allows(self.headers.get("Authorization")):
            self._send(401, _refusal("PermissionError", _NO_TOKEN))
            return
        self._send(200, self.server.served.health())

    def do_POST(self) -> None:
        """Answers a message."""
        status, answer = self._answer()
        self._send(status, answer)

    def _answer(self) -> tuple[int, dict[str, Any]]:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MOST_BYTES:
            self.close_connection = True
            return 413, _refusal("DataError", f"got Content-Length {length!r}, wanted at most {MOST_BYTES} bytes")
        if not self.server.served.allows(self.headers.get("Authorization")):
            self.close_connection = True  # what it sends is not read
            return 401, _refusal("PermissionError", _NO_TOKEN)
        body = self.rfile.read(int(length))
        if self.headers.get_content_type() != "application/json":  # a web page could send others without asking
            return 415, _refusal("DataError", "wanted Content-Type: application/json")
        try:
            message = loads(body)
            return 200, self.server.served.answer(message)
        except (DataError, KeyError, TypeError, ValueError) as error:
            return 400, _refusal("DataError", f"got no message of a PolicyClient: {error}")

    def _send(self, status: int, answer: Mapping[str, Any]) -> None:
        try:
            body = dumps(answer)
        except DataError as error:
            body = dumps(_refusal("DataError", str(error)))
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs where the framework does, not on the terminal."""
        _LOGGER.debug(format, *args)


_NO_TOKEN = f"wanted this server's token; pass PolicyClient(..., token=...), or set {TOKEN_VARIABLE}"


def _refusal(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}}


def _policy_ids(batch: SampleBatch | MultiAgentBatch) -> list[str]:
    return list(batch.policy_batches) if isinstance(batch, MultiAgentBatch) else [DEFAULT_POLICY_ID]


def _of_one_policy(batch: SampleBatch | MultiAgentBatch) -> SampleBatch | MultiAgentBatch:
    """Returns the rows of the one policy, where there are no others."""
    if isinstance(batch, MultiAgentBatch) and list(batch.policy_batches) == [DEFAULT_POLICY_ID]:
        return batch.policy_batches[DEFAULT_POLICY_ID]
    return batch


__all__ = ["PolicyServerInput"]
