"""`ray.tune.schedulers.pbt`, with a population that trains side by side where there is room for all of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ray
from ray.tune.schedulers import PopulationBasedTrainingReplay, TrialScheduler, pbt

__all__ = ["PopulationBasedTraining", "PopulationBasedTrainingReplay"]


class PopulationBasedTraining(pbt.PopulationBasedTraining):
    """Ray's scheduler, which pauses a trial only to make room for another, as it did in Ray 1.x.

    Today's counts a trial whose process is only starting as one that waits for room: after the first such pause trials
    train by turns, each restarted for an iteration. Who reports last is then ahead of the others' older results, and
    may never be told to copy them. The arguments are Ray's.

    Source: Jaderberg et al. 2017, "Population Based Training of Neural Networks".
    """

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Returns what becomes of a trial behind a result: it goes on, or is paused; it may have copied another."""
        decision: str = super().on_trial_result(tune_controller, trial, result)
        if decision == TrialScheduler.PAUSE and not self._synch and _all_fit(tune_controller.get_live_trials()):
            return str(TrialScheduler.CONTINUE)
        return decision


def _all_fit(trials: Any) -> bool:
    """Returns whether the cluster has the resources of all of these trials at once."""
    wanted: Counter[str] = Counter()
    for trial in trials:
        wanted.update(trial.placement_group_factory.required_resources)
    there = ray.cluster_resources()
    return all(amount <= there.get(name, 0.0) for name, amount in wanted.items())


def __getattr__(name: str) -> Any:
    return getattr(pbt, name)  # the rest of Ray's module
