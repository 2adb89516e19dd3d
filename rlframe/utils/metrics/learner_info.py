"""What learning steps report, gathered per policy and reduced over steps and devices."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

LEARNER_INFO = "learner"
"""Key of the learners' reports in a result's `info`."""
LEARNER_STATS_KEY = "learner_stats"
"""Key of a policy's statistics in what `learn_on_batch` returns."""
DEFAULT_POLICY_ID = "default_policy"


class LearnerInfoBuilder:
    """Collects the reports of several learning steps and reduces them to one.

    Numbers are averaged over steps (and devices), NaN left out; those whose key begins with `min_` or `max_` keep the
    smallest and the largest. `td_error` keeps one value per row.

    Args:
        num_devices: With several, each report holds one per device under `tower_0`, `tower_1`, …
    """

    def __init__(self, num_devices: int = 1) -> None:
        self.num_devices = num_devices
        self.results_all_towers: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.is_finalized = False

    def add_learn_on_batch_results(self, results: Mapping[str, Any], policy_id: str = DEFAULT_POLICY_ID) -> None:
        """Takes what `Policy.learn_on_batch` returned.

        Raises:
            RuntimeError: After `finalize()`.
        """
        if self.is_finalized:
            raise RuntimeError("This LearnerInfoBuilder is finalized; make a new one for the next learning steps.")
        towers = [results[f"tower_{i}"] for i in range(self.num_devices) if f"tower_{i}" in results]
        shared = {key: value for key, value in results.items() if not key.startswith("tower_")}
        reports = [{**shared, **tower} for tower in towers] if towers else [dict(results)]
        self.results_all_towers[policy_id].extend(reports)

    def add_learn_on_batch_results_multi_agent(self, all_policies_results: Mapping[str, Any]) -> None:
        """Takes what a worker's `learn_on_batch` returned: `{policy id: report}`, other entries are left out."""
        for policy_id, results in all_policies_results.items():
            if isinstance(results, Mapping):
                self.add_learn_on_batch_results(results, policy_id)

    def finalize(self) -> dict[str, dict[str, Any]]:
        """Returns `{policy id: report}`."""
        self.is_finalized = True
        return {policy_id: _reduce(reports, "") for policy_id, reports in self.results_all_towers.items()}


def _reduce(values: list[Any], key: str) -> Any:
    """Returns one value for those of several steps; dicts by their keys."""
    if isinstance(values[0], Mapping):
        dicts = [value for value in values if isinstance(value, Mapping)]
        keys = dict.fromkeys(name for value in dicts for name in value)
        return {name: _reduce([value[name] for value in dicts if name in value], str(name)) for name in keys}
    if values[0] is None or key == "model" or isinstance(values[0], str):
        return values[-1]
    arrays = [np.asarray(value) for value in values]
    if key == "td_error":
        return np.concatenate([np.atleast_1d(array) for array in arrays])
    if any(array.dtype.kind not in "biuf" or array.shape != arrays[0].shape for array in arrays):
        return values[-1]
    return _reduce_numbers(np.stack(arrays), key)


def _reduce_numbers(stacked: np.ndarray[Any, Any], key: str) -> Any:
    with np.errstate(all="ignore"):
        if key.startswith("min_"):
            reduced = np.fmin.reduce(stacked)
        elif key.startswith("max_"):
            reduced = np.fmax.reduce(stacked)
        else:
            known = ~np.isnan(stacked)
            reduced = np.where(known, stacked, 0).sum(axis=0) / known.sum(axis=0)
    return reduced.item() if np.ndim(reduced) == 0 else reduced


class LearnerInfo(dict[str, Any]):
    """What a learner told: of one policy (`learner_stats`, `model`, ...), or `{policy id: what it told}`.

    What stands one step deeper is found without that step, as in RLlib's earlier releases: a statistic without
    `learner_stats` (up to 1.5), what the only policy told without its id (up to 1.8).
    """

    def __contains__(self, name: object) -> bool:
        """Whether there is such an entry, or such a statistic of a policy, which `keys` has not; not one within."""
        inner = dict.get(self, LEARNER_STATS_KEY)
        return dict.__contains__(self, name) or (isinstance(inner, Mapping) and name in inner)

    def __missing__(self, name: str) -> Any:
        inner = dict.get(self, LEARNER_STATS_KEY) or (next(iter(self.values())) if len(self) == 1 else None)
        if isinstance(inner, Mapping) and (name in inner or isinstance(inner, LearnerInfo)):
            return inner[name]
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Returns what `self[name]` finds, and `default` where there is nothing of that name."""
        try:
            return self[name]
        except KeyError:
            return default


@functools.cache
def _teach_yaml() -> None:
    from rlframe.utils.yaml_text import write_as_dicts

    write_as_dicts(LearnerInfo)


def as_learner_infos(learned: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what learners told by policy, as a result has it."""
    _teach_yaml()
    return {
        name: LearnerInfo(told) if isinstance(told, dict) and LEARNER_STATS_KEY in told else told
        for name, told in learned.items()
    }
