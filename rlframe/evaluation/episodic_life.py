"""Metrics of whole Atari games where a life is an episode for the learner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlframe.env.wrappers.atari_wrappers import MonitorEnv, get_wrapper_by_cls
from rlframe.evaluation.metrics import RolloutMetrics


class EpisodicLifeMetrics:
    """Turns the metrics of lives into those of games; other environments' metrics pass through."""

    def __init__(self) -> None:
        self._lives: list[RolloutMetrics] = []

    def merge(self, envs: Iterable[Any], lives: Sequence[RolloutMetrics]) -> list[RolloutMetrics]:
        """Returns one entry for each game that has ended since the last call.

        What callbacks put into the metrics of a life goes to the game that ended next: the last value of a custom
        metric, all of the lists.

        Args:
            envs: The worker's environments.
            lives: The episodes that ended since the last call.
        """
        monitors = [get_wrapper_by_cls(env, MonitorEnv) for env in envs]
        if not monitors or any(monitor is None for monitor in monitors):
            return list(lives)
        self._lives += lives
        merged = [
            RolloutMetrics(length, reward, slot=slot)
            for slot, monitor in enumerate(monitors)
            for reward, length in monitor.next_episode_results()
        ]
        if merged:
            for life in self._lives:
                _add(merged[0], life)
            self._lives = []
        return merged


def _add(game: RolloutMetrics, life: RolloutMetrics) -> None:
    game.custom_metrics.update(life.custom_metrics)
    game.perf_stats.update(life.perf_stats)
    game.media.update(life.media)
    for name, values in life.hist_data.items():
        game.hist_data.setdefault(name, []).extend(values)
