"""How long the parts of a sampling step take."""

from __future__ import annotations

_MS = 1000.0


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
