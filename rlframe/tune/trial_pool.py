"""Functions called in worker processes of a Ray cluster, on its machines in turn."""

from __future__ import annotations

import itertools
import logging
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from typing_extensions import Self

from rlframe.utils.errors import ConfigError

_ANSWER_S = 5.0


class Finished(NamedTuple):
    """A call that has ended.

    Attributes:
        key: What it was started as.
        result: What the function returned, None where it raised.
        node: The machine that it ran on, None where it raised.
        error: What the function raised, in words; or how its process ended.
    """

    key: str
    result: Any
    node: str | None
    error: str | None


def check_address(address: str | None) -> None:
    """Looks whether anything listens at a cluster's address; Ray itself tries for minutes.

    Args:
        address: `host:port`, `ray://host:port`; other words, such as "auto", and None are Ray's to look into.

    Raises:
        ConfigError: Nothing does.
    """
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"address: nothing answers at {address!r} ({error}); wanted HOST:PORT of a Ray cluster, as `ray start "
            "--head` says it, or None for one on this machine"
        ) from error


class TrialPool:
    """Calls functions in worker processes, each with one CPU; a context that leaves no Ray behind that it has begun.

    Args:
        address: Of a Ray cluster; None takes the one that the program has joined, or starts one on this machine.

    Raises:
        ConfigError: There is no cluster at the address.
    """

    def __init__(self, address: str | None = None) -> None:
        self._began_ray = not ray.is_initialized()
        if self._began_ray:
            check_address(address)
            try:
                ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
            except ConnectionError as error:
                raise ConfigError(
                    f"address: got {address!r}, where Ray can join no cluster ({error}); wanted HOST:PORT of one that "
                    "runs. Clusters that ask for a token are joined with RAY_AUTH_MODE=token"
                ) from error
        self._running: dict[Any, str] = {}
        self._started = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the cluster, if the program had not joined one before; calls under way end with that."""
        if self._began_ray:
            self._began_ray = False
            self._running.clear()
            ray.shutdown()

    @property
    def cpus(self) -> int:
        """CPUs of the cluster."""
        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    @property
    def running(self) -> int:
        """Calls under way."""
        return len(self._running)

    def start(self, key: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Calls a function of a module in a worker process."""
        nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU"))
        place = NodeAffinitySchedulingStrategy(nodes[next(self._started) % len(nodes)], soft=True)
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": 0, "scheduling_strategy": place}
        called: Any = ray.remote(**options)(_called)
        self._running[called.remote(function, arguments)] = key

    def finished(self, timeout_s: float) -> list[Finished]:
        """Returns calls that have ended by now, one at least unless the time is over."""
        done, _ = ray.wait(list(self._running), timeout=timeout_s) if self._running else ([], [])
        return [self._finished(reference) for reference in done]

    def _finished(self, reference: Any) -> Finished:
        key = self._running.pop(reference)
        try:
            result, node = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            return Finished(key, None, None, f"{type(error.cause).__name__}: {error.cause}")
        except ray.exceptions.RayError as error:
            return Finished(key, None, None, f"its process ended: {error}")
        return Finished(key, result, node, None)


def _called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, str]:
    return function(*arguments), ray.get_runtime_context().get_node_id()
