"""Results in which programs of RLlib 1.10 to 1.13 find what their versions called otherwise.

The newer names are no keys: logs have nothing twice.
"""

from __future__ import annotations

from typing import Any

from rlframe.trainer.training_iteration import OTHER_NAMES
from rlframe.utils.metrics.learner_info import LearnerInfo
from rlframe.utils.yaml_text import write_as_dicts

#: What a result's `sampler_results` repeated: `summarize_episodes` makes these.
_OF_EPISODES = (
    "episode_reward_max", "episode_reward_min", "episode_reward_mean", "episode_len_mean", "episode_media",
    "episodes_this_iter", "policy_reward_min", "policy_reward_max", "policy_reward_mean", "custom_metrics",
    "hist_stats", "sampler_perf", "off_policy_estimator",
)  # fmt: skip


class _WithOtherNames(dict[str, Any]):
    """A dict in which some names that are no keys are found."""

    def __contains__(self, name: object) -> bool:
        """Whether something is found under a name."""
        try:
            self[name]  # type: ignore[index]  # of any type, as of a dict
        except KeyError:
            return False
        return True

    def get(self, name: str, default: Any = None) -> Any:
        """Returns what is found under a name, and `default` where nothing is."""
        try:
            return self[name]
        except KeyError:
            return default

    def copy(self) -> Any:
        """Returns a shallow copy of the same class."""
        return type(self)(self)


class Info(_WithOtherNames):
    """The `info` of a result, with its counters under their newer names, too."""

    def __missing__(self, name: str) -> Any:
        if name not in OTHER_NAMES:
            raise KeyError(name)
        return self[OTHER_NAMES[name]]


class Result(_WithOtherNames):
    """What `train()` returns, with `sampler_results`, `counters` and each counter, too."""

    def __missing__(self, name: str) -> Any:
        if name == "sampler_results":
            return {key: self[key] for key in _OF_EPISODES if key in self}
        flat = f"info/{OTHER_NAMES.get(name)}"
        if dict.__contains__(self, flat):  # as Tune flattens results, for its stop criteria
            return self[flat]
        counted = dict.get(self, "info", {})
        if not isinstance(counted, dict):  # a plan's own
            raise KeyError(name)
        counters = {key: value for key, value in counted.items() if isinstance(value, int)}
        counters.update({newer: counters[own] for newer, own in OTHER_NAMES.items() if own in counters})
        if name == "counters":
            return counters
        if name == "num_env_steps_sampled_this_iter" and "timesteps_this_iter" in self:
            return self["timesteps_this_iter"]
        if name in counters:
            return counters[name]
        raise KeyError(name)


def as_result(result: dict[str, Any]) -> Result:
    """Returns a result in which the newer names are found, in its `info` too."""
    if isinstance(result.get("info"), dict):
        result["info"] = Info(result["info"])
    return Result(result)


write_as_dicts(Result, Info, LearnerInfo)  # also in a process that is only sent results
