"""A simulator's side of a policy server: episodes, actions and rewards, from a program without a trainer."""

from __future__ import annotations

import atexit
import http.client
import logging
import os
import threading
import time
import urllib.parse
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, SupportsFloat

from rlframe.data.sample_batch import DEFAULT_POLICY_ID
from rlframe.env.external_env import ExternalEnv, TrainingStopped
from rlframe.serving.protocol import TOKEN_VARIABLE, VERSION, dumps, loads
from rlframe.utils import errors

_LOGGER = logging.getLogger("rlframe")
#: Seconds that one answer is waited for before the same is asked again, and that a connection may take.
_ANSWER_S, _CONNECT_S = 60.0, 5.0
_LONGEST_PAUSE_S = 2.0
#: Most characters of sent batches that are kept for a server that is killed before its next checkpoint.
_MOST_KEPT = 64 * 2**20
_ERRORS: dict[str, type[Exception]] = {
    "ValueError": ValueError,
    "EnvError": errors.EnvError,
    "ConfigError": errors.ConfigError,
    "DataError": errors.DataError,
    "PermissionError": PermissionError,
}


class PolicyClient:
    """Asks the policy of a `PolicyServerInput` for actions, and tells it what they led to.

        client = PolicyClient("http://localhost:9900", inference_mode="remote")
        obs, episode = reset(), client.start_episode()
        while not over:
            obs, reward, over = step(client.get_action(episode, obs))
            client.log_returns(episode, reward)
        client.end_episode(episode, obs)

    An episode belongs to one thread at a time; several episodes may be open. A connection that breaks is made again,
    and what was asked is asked again under its number, which the server answers once.

    Args:
        address: The server's URL.
        inference_mode: "local": this process acts by itself (in NumPy) and sends what it sampled; "remote": each action
            is asked for.
        update_interval: Local: seconds after which newer weights are fetched; None leaves that to
            `update_policy_weights`.
        token: What the server wants to see; by default the environment's `RLFRAME_POLICY_TOKEN`.
        reconnect_s: How long a server that does not answer is tried again, in seconds.

    Raises:
        ConfigError: If the address or mode is none, or the server's policy cannot act without its framework.
        ConnectionError: If there is no server.
    """

    START_EPISODE, END_EPISODE = "start_episode", "end_episode"
    GET_ACTION, LOG_ACTION, LOG_RETURNS = "get_action", "log_action", "log_returns"
    GET_WORKER_ARGS, GET_WEIGHTS, REPORT_SAMPLES = "get_worker", "get_weights", "report_samples"

    def __init__(
        self,
        address: str,
        inference_mode: Literal["local", "remote"] = "local",
        update_interval: float | None = 10.0,
        *,
        token: str | None = None,
        reconnect_s: float = 60.0,
    ) -> None:
        if inference_mode not in {"local", "remote"}:
            raise errors.ConfigError(f"inference_mode: got {inference_mode!r}, wanted 'local' or 'remote'")
        self.inference_mode = inference_mode
        self._link = _Link(address, token or os.environ.get(TOKEN_VARIABLE), reconnect_s)
        self._local = _LocalActing(self._link, update_interval) if inference_mode == "local" else None

    def start_episode(self, episode_id: str | None = None, training_enabled: bool = True) -> str:
        """Begins an episode.

        Args:
            episode_id: An id of your own; one is made when None.
            training_enabled: Whether it is learned from.

        Returns:
            The episode's id.

        Raises:
            ValueError: If there is, or was, an episode of this id.
        """
        made: str = self._call(self.START_EPISODE, episode_id=episode_id, training_enabled=training_enabled)
        return made

    def get_action(self, episode_id: str, observation: Any) -> Any:
        """Returns the policy's action for an observation; for several agents, dicts of both.

        Raises:
            ValueError: If there is no such episode, or the observation is not of the space.
        """
        return self._call(self.GET_ACTION, episode_id, observation)

    def log_action(self, episode_id: str, observation: Any, action: Any) -> None:
        """Notes an action that somebody else chose.

        Raises:
            ValueError: If there is no such episode, or the observation or the action is not of its space.
        """
        self._call(self.LOG_ACTION, episode_id, observation, action)

    def log_returns(
        self,
        episode_id: str,
        reward: SupportsFloat | Mapping[Any, SupportsFloat],
        info: Mapping[Any, Any] | None = None,
        multiagent_done_dict: Mapping[Any, bool] | None = None,
    ) -> None:
        """Adds a reward for the last action, or one for each agent; several add up.

        Args:
            episode_id: The episode.
            reward: The reward; with several agents, `{agent: reward}`.
            info: What else there is to tell; with several agents, by agent.
            multiagent_done_dict: With several agents, who is through.

        Raises:
            ValueError: If there is no such episode, or the reward is no finite number.
        """
        more = () if multiagent_done_dict is None else (dict(multiagent_done_dict),)
        self._call(self.LOG_RETURNS, episode_id, reward, None if info is None else dict(info), *more)

    def end_episode(self, episode_id: str, observation: Any, *, truncated: bool = False) -> None:
        """Ends an episode.

        Args:
            episode_id: Its id.
            observation: The last observation.
            truncated: Whether it was cut off rather than over by itself.

        Raises:
            ValueError: If there is no such episode.
        """
        self._call(self.END_EPISODE, episode_id, observation, truncated=truncated)

    def update_policy_weights(self) -> None:
        """Fetches the newest weights now; in remote mode the server has them anyway."""
        if self._local is not None:
            self._local.update_weights()

    def close(self) -> None:
        """Sends what was sampled and not yet sent, and ends the client.

        Raises:
            Exception: Why that could not be sent, such as a ConnectionError.
        """
        if self._local is not None:
            self._local.close()

    def __enter__(self) -> PolicyClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, command: str, *args: Any, **named: Any) -> Any:
        if self._local is not None:
            return self._local.call(command, *args, **named)
        return self._link.ask(command, {"args": list(args), "named": named})


class _StillAskedError(Exception):
    """A server that was asked has not answered yet."""


class _Link:
    """Asks a server, again and again if need be; its methods may be called from several threads.

    Args:
        address: The server's URL.
        token: What it wants to see, or None.
        reconnect_s: How long one that does not answer is tried again, in seconds.
    """

    def __init__(self, address: str, token: str | None, reconnect_s: float) -> None:
        url = urllib.parse.urlsplit(address if "//" in address else f"http://{address}")
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise errors.ConfigError(f"address: got {address!r}, wanted a URL such as 'http://localhost:9900'")
        self._address, self._reconnect_s = address, reconnect_s
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connect = partial(kind, url.hostname, url.port, timeout=min(_CONNECT_S, max(reconnect_s, 0.1)))
        self._path = url.path or "/"
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self.client = uuid.uuid4().hex
        self._numbers = 0
        self._lock = threading.Lock()
        self._of_thread = threading.local()

    def ask(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """Returns the server's answer.

        Raises:
            ConnectionError: If it does not answer for `reconnect_s`, or the trainer was stopped.
            Exception: What the server raised.
        """
        with self._lock:
            self._numbers += 1
            number = self._numbers
        message = {"version": VERSION, "client": self.client, "number": number, "command": command}
        body = dumps({**message, "arguments": dict(arguments)})
        failing, pause_s = None, 0.05  # since when it does not answer
        while True:
            try:
                return self._result(loads(self._post(body)))
            except _StillAskedError:  # it was reached, and takes its time: the trainer learns, or is not in train()
                self._of_thread.connection, failing, pause_s = None, None, 0.05
                continue
            except PermissionError:
                raise
            except (OSError, http.client.HTTPException) as error:
                self._of_thread.connection = None
                failing = time.monotonic() if failing is None else failing
                if time.monotonic() + pause_s > failing + self._reconnect_s:
                    raise ConnectionError(
                        f"no policy server answers at {self._address} ({error}); tried for {self._reconnect_s:g} s: "
                        "is the trainer running, and does train() go on?"
                    ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _post(self, body: bytes) -> bytes:
        connection = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = self._of_thread.connection = self._connect()
            connection.connect()
            connection.sock.settimeout(_ANSWER_S)
        connection.request("POST", self._path, body, self._headers)
        try:
            answer: bytes = connection.getresponse().read()
        except TimeoutError as error:
            raise _StillAskedError from error
        return answer

    def _result(self, answer: Mapping[str, Any]) -> Any:
        if "error" not in answer:
            return answer["result"]
        kind, text = answer["error"]["kind"], answer["error"]["message"]
        if kind == "TrainingStopped":  # a trainer that is resumed may listen here again
            raise ConnectionResetError(text)
        raise _ERRORS.get(kind, RuntimeError)(text if kind in _ERRORS else f"{kind}: {text}")


class _Simulator(ExternalEnv):
    """The calls of this program, for the worker in it."""

    def run(self) -> None:
        """Waits: the calls come from the program's own threads."""
        threading.Event().wait()


class _LocalActing:
    """A worker of this process that samples what its program tells, and sends that.

    Args:
        link: The way to the server.
        update_interval: Seconds after which newer weights are fetched.
    """

    def __init__(self, link: _Link, update_interval: float | None) -> None:
        from rlframe.evaluation.rollout_worker import RolloutWorker
        from rlframe.policy.numpy_policy import NumpyPolicy
        from rlframe.policy.policy_spec import PolicySpec
        from rlframe.serving.description import recipe_of

        self._link, self._update_interval = link, update_interval
        told = link.ask(PolicyClient.GET_WORKER_ARGS, {})
        space, action_space = told["spaces"]
        self._simulator = _Simulator(action_space, space, 10_000, timeout_s=None)
        described = told["policies"][DEFAULT_POLICY_ID]
        policy_class: Any = partial(NumpyPolicy, recipe=recipe_of(described))
        policy_class.algorithm_defaults = described["config"]
        self._worker = RolloutWorker(
            env_creator=lambda _: self._simulator,
            policy_spec={DEFAULT_POLICY_ID: PolicySpec(policy_class, space, action_space, {})},
            policy_config={**told["settings"], "num_workers": 0, "log_level": "WARN"},
        )
        self._failure: BaseException | None = None
        self._told = False  # of the failure
        self._closed = False
        self._number = 0
        self._kept: OrderedDict[int, dict[str, Any]] = OrderedDict()  # batches that no checkpoint has, by number
        self._fetched, self._weights = 0.0, None
        self.update_weights()
        self._thread = threading.Thread(target=self._run, daemon=True, name="rlframe policy client")
        self._thread.start()
        me = weakref.ref(self)
        atexit.register(_close, me)

    def call(self, command: str, *args: Any, **named: Any) -> Any:
        """Hands a call of the program to the worker's simulator."""
        self._check()
        try:
            return getattr(self._simulator, command)(*args, **named)
        except TrainingStopped:
            self._check()
            raise

    def _check(self) -> None:
        if self._failure is not None:
            self._told = True
            raise self._failure
        if self._closed:
            raise ValueError("this PolicyClient is closed; make another one")

    def update_weights(self) -> None:
        """Fetches the newest weights."""
        told = self._link.ask(PolicyClient.GET_WEIGHTS, {})
        self._fetched = time.monotonic()
        self._weights = told

    def close(self) -> None:
        """Sends what is left, and ends the thread.

        Raises:
            Exception: Why it could not be sent, unless a call has raised that.
        """
        if self._closed:
            return
        self._closed = True
        self._simulator.broker.wake()
        self._thread.join(_ANSWER_S)
        if self._thread.is_alive():
            _LOGGER.warning(
                "PolicyClient.close(): the server took nothing for %g s; the last rows were not sent", _ANSWER_S
            )
        self._simulator.broker.close()
        if not self._told and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._closed:
                self._take_weights()
                self._send(self._worker.sample_environments())
            self._simulator.broker.wake()  # behind all calls that were made before
            self._send(self._worker.sample_environments())
        except BaseException as error:  # raised by the program's next call
            self._failure = error
            self._simulator.broker.close()

    def _take_weights(self) -> None:
        if self._update_interval is not None and time.monotonic() - self._fetched > self._update_interval:
            self.update_weights()
        told, self._weights = self._weights, None
        if told is not None:
            self._worker.set_weights(told["weights"], told["global_vars"])

    def _send(self, batch: Any) -> None:
        from rlframe.evaluation.metrics import RolloutMetrics
        from rlframe.offline.json_format import as_text

        episodes = [episode.to_state() for episode in self._worker.get_metrics() if isinstance(episode, RolloutMetrics)]
        if batch.count or episodes:
            self._number += 1
            self._kept[self._number] = {"batch": as_text(batch), "episodes": episodes}
            self._deliver()
            kept = sum(len(one["batch"]) for one in self._kept.values())
            while kept > _MOST_KEPT and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                kept -= len(oldest["batch"])

    def _deliver(self) -> None:
        """Sends the newest batch, and before it those that the server lacks: another one, resumed from a checkpoint."""
        number = self._number
        while number <= self._number:
            first = next(iter(self._kept))
            asked = {"number": number, "first": first, **self._kept[number]}
            told = self._link.ask(PolicyClient.REPORT_SAMPLES, asked)
            if told["missing"] is not None:
                number = max(told["missing"], first)
                continue
            for saved in [each for each in self._kept if each <= told["saved"] and each != self._number]:
                del self._kept[saved]
            number += 1


def _close(acting: weakref.ref[_LocalActing]) -> None:
    """Sends what is left when the program ends."""
    left = acting()
    if left is not None:
        left.close()


__all__ = ["PolicyClient"]
