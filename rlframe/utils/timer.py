"""How long something takes: over its last calls, or per step of a loop."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType

_MS = 1000.0


class TimerStat:
    """Times a piece of work, as a context manager or by `push`; figures are over the last `window_size` calls.

    Attributes:
        count: How many calls were timed in all.

    Args:
        window_size: How many calls the figures look back.
    """

    __slots__ = ("_samples", "_started_s", "_total_s", "_units", "count")

    def __init__(self, window_size: int = 10) -> None:
        self._samples: deque[float] = deque(maxlen=window_size)
        self._units: deque[float] = deque(maxlen=window_size)
        self._started_s: float | None = None
        self._total_s = 0.0
        self.count = 0

    def __enter__(self) -> TimerStat:
        """Starts a call.

        Raises:
            RuntimeError: If one is being timed already.
        """
        if self._started_s is not None:
            raise RuntimeError("This TimerStat is already timing a call; use one for each thread and each depth.")
        self._started_s = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the call and counts it, also when it raised."""
        assert self._started_s is not None
        started_s, self._started_s = self._started_s, None
        self.push(time.perf_counter() - started_s)

    def push(self, time_delta: float) -> None:
        """Counts one call of `time_delta` seconds."""
        self._samples.append(time_delta)
        self._total_s += time_delta
        self.count += 1

    def push_units_processed(self, n: float) -> None:
        """Says how much one call did, e.g. in env steps; for `mean_throughput`."""
        self._units.append(n)

    def has_units_processed(self) -> bool:
        """Returns whether `push_units_processed` was ever called."""
        return bool(self._units)

    @property
    def mean(self) -> float:
        """Seconds per call; 0 before the first."""
        return sum(self._samples) / len(self._samples) if self._samples else 0.0

    @property
    def total(self) -> float:
        """Seconds of all calls so far."""
        return self._total_s

    @property
    def mean_units_processed(self) -> float:
        """Units per call; 0 before the first."""
        return sum(self._units) / len(self._units) if self._units else 0.0

    @property
    def mean_throughput(self) -> float:
        """Units per second; 0 before anything was timed."""
        seconds = sum(self._samples)
        return sum(self._units) / seconds if seconds else 0.0


class StepTimes:
    """Adds up the time that sampling spends on acting, in environments, and on the rest."""

    def __init__(self) -> None:
        self._act = self._env = self._rest = 0.0
        self._steps = 0

    def add(self, act: float, env: float, total: float, steps: int = 1) -> None:
        """Takes the time of some steps.

        Args:
            act: In policies, s.
            env: In environments, or waiting for them, s.
            total: In all, s.
            steps: Number of steps of the loop.
        """
        self._act += act
        self._env += env
        self._rest += total - act - env
        self._steps += steps

    def stats(self) -> dict[str, float]:
        """Returns means per step in ms, under RLlib's names."""
        steps = max(self._steps, 1)
        return {
            "mean_raw_obs_processing_ms": self._rest * _MS / steps,
            "mean_inference_ms": self._act * _MS / steps,
            "mean_action_processing_ms": 0.0,
            "mean_env_wait_ms": self._env * _MS / steps,
            "mean_env_render_ms": 0.0,
        }
