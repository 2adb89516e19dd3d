"""What workers report about finished episodes, and how it becomes the `episode_*` part of a result."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlframe.data.sample_batch import DEFAULT_POLICY_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rlframe.offline.estimators import OffPolicyEstimate

logger = logging.getLogger(__name__)


@dataclass
class RolloutMetrics:
    """What one finished episode leaves behind.

    It reads as the tuple of its fields but `slot`, too: RLlib's is a named tuple.

    Attributes:
        episode_length: Env steps.
        episode_reward: Undiscounted sum of the raw rewards of all agents.
        agent_rewards: The same sum by `(agent id, policy id)`.
        custom_metrics: Numbers that callbacks set, by name.
        perf_stats: Milliseconds per vector step the sampler spent on each kind of work, by name.
        hist_data: Lists of numbers that callbacks set, by name.
        media: Anything that callbacks want shown, by name.
        slot: The environment slot it ran in.
    """

    episode_length: int = 0
    episode_reward: float = 0.0
    agent_rewards: dict[tuple[Any, str], float] = field(default_factory=dict)
    custom_metrics: dict[str, Any] = field(default_factory=dict)
    perf_stats: dict[str, float] = field(default_factory=dict)
    hist_data: dict[str, list[Any]] = field(default_factory=dict)
    media: dict[str, Any] = field(default_factory=dict)
    slot: int = 0

    _fields: ClassVar[tuple[str, ...]] = (
        "episode_length", "episode_reward", "agent_rewards", "custom_metrics", "perf_stats", "hist_data", "media",
    )  # fmt: skip

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __getitem__(self, place: int | slice) -> Any:
        return tuple(self)[place]

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **changes: Any) -> RolloutMetrics:
        return replace(self, **changes)

    def to_state(self) -> dict[str, Any]:
        """Returns the metrics as plain state; `media` is left out, and agent ids that are no numbers become text."""
        return {
            "episode_length": int(self.episode_length),
            "episode_reward": float(self.episode_reward),
            "agent_rewards": [
                [agent if isinstance(agent, (str, int)) else str(agent), policy, float(reward)]
                for (agent, policy), reward in self.agent_rewards.items()
            ],
            "custom_metrics": {
                str(name): _elements(value) if np.ndim(value) else _as_float(value)
                for name, value in self.custom_metrics.items()
            },
            "perf_stats": {str(name): _as_float(value) for name, value in self.perf_stats.items()},
            "hist_data": {str(name): [_as_float(v) for v in values] for name, values in self.hist_data.items()},
            "slot": int(self.slot),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RolloutMetrics:
        """Returns the metrics that `to_state()` turned into `state`."""
        return cls(
            episode_length=int(state["episode_length"]),
            episode_reward=float(state["episode_reward"]),
            agent_rewards={(agent, policy): float(reward) for agent, policy, reward in state["agent_rewards"]},
            custom_metrics=dict(state["custom_metrics"]),
            perf_stats=dict(state["perf_stats"]),
            hist_data={name: list(values) for name, values in state["hist_data"].items()},
            slot=int(state.get("slot", 0)),
        )


def _as_float(value: Any) -> float:
    """Returns a number as a float, an array as the mean of its elements, and anything else as NaN."""
    if isinstance(value, (int, float)):
        return float(value)
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return math.nan
    return float(array.mean()) if array.size else math.nan


def _elements(value: Any) -> list[float]:
    """Returns the numbers of an episode's custom metric, which may be a list of several; none if one of them is NaN."""
    try:
        numbers = np.asarray(value, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        return []
    return [] if np.isnan(numbers).any() else numbers.tolist()


def get_learner_stats(grad_info: Mapping[str, Any]) -> Any:
    """Returns the learner stats out of what learning returned: of the one policy, or `{policy id: stats}`."""
    from rlframe.utils.metrics.learner_info import LEARNER_STATS_KEY, LearnerInfo

    if LEARNER_STATS_KEY in grad_info:
        return grad_info[LEARNER_STATS_KEY]
    told = {pid: info for pid, info in grad_info.items() if isinstance(info, dict) and LEARNER_STATS_KEY in info}
    return LearnerInfo({pid: info[LEARNER_STATS_KEY] for pid, info in told.items()})


def collect_episodes(
    local_worker: Any = None,
    remote_workers: Sequence[Any] = (),
    to_be_collected: Sequence[Any] = (),
    timeout_seconds: float = 180,
) -> tuple[list[RolloutMetrics], list[Any]]:
    """Fetches from all workers the episodes that finished since the last call.

    A remote worker that fails to answer loses its own episodes only; the failure is logged, and shows again where the
    worker is next asked to sample.

    Args:
        local_worker: Asked directly; None to leave it out.
        remote_workers: Ray actors to ask.
        to_be_collected: Answers still awaited from the call before.
        timeout_seconds: How long to wait for remote workers.

    Returns:
        The episodes, and references to the answers that have not come yet.
    """
    episodes: list[RolloutMetrics] = []
    late: list[Any] = []
    pending = list(to_be_collected)
    if pending or remote_workers:
        import ray

        pending += [worker.get_metrics.remote() for worker in remote_workers]
        ready, late = ray.wait(pending, num_returns=len(pending), timeout=timeout_seconds)
        for reference in _in_order(pending, ready):
            try:
                episodes.extend(ray.get(reference))
            except Exception as error:
                logger.warning("A worker could not report its episodes: %s", error)
        if late:
            logger.warning(
                "%d of %d workers did not report their episodes within %s s; they are counted in the next result. "
                "Raise `collect_metrics_timeout` if this happens often.",
                len(late), len(pending), timeout_seconds,
            )  # fmt: skip
    if local_worker is not None:
        episodes.extend(local_worker.get_metrics())
    return episodes, list(late)


def _in_order(pending: Iterable[Any], ready: Iterable[Any]) -> list[Any]:
    """Returns `ready` in the order of `pending`, so that results do not depend on who answered first."""
    done = set(ready)
    return [reference for reference in pending if reference in done]


def collect_metrics(
    local_worker: Any = None,
    remote_workers: Sequence[Any] = (),
    to_be_collected: Sequence[Any] = (),
    timeout_seconds: float = 180,
    keep_custom_metrics: bool = False,
) -> dict[str, Any]:
    """Returns the summary of the episodes that finished since the last call, without smoothing.

    Args:
        local_worker: The worker in this process.
        remote_workers: Others.
        to_be_collected: What was asked of remote workers before and has not come yet.
        timeout_seconds: How long to wait for remote workers.
        keep_custom_metrics: Whether `custom_metrics` are lists of the episodes' values.
    """
    episodes, _ = collect_episodes(local_worker, remote_workers, to_be_collected, timeout_seconds)
    return summarize_episodes(episodes, episodes, keep_custom_metrics=keep_custom_metrics)


def summarize_episodes(
    episodes: Sequence[RolloutMetrics],
    new_episodes: Sequence[RolloutMetrics] | None = None,
    estimates: Sequence[OffPolicyEstimate] = (),
    *,
    keep_custom_metrics: bool = False,
) -> dict[str, Any]:
    """Returns the part of a result that describes episodes.

    Args:
        episodes: The smoothing window: new episodes and as many older ones as the window holds.
        new_episodes: Those that finished since the last report; `episodes` when None.
        estimates: What was estimated from data; `episodes` may hold such, too, as workers report them.
        keep_custom_metrics: Whether `custom_metrics` are lists of the episodes' values.

    Returns:
        `episode_{reward,len}_*` (NaN without episodes), `episodes_this_iter`, `episode_media`,
        `policy_reward_{min,max,mean}` (without the default policy), `custom_metrics`, `hist_stats`, `sampler_perf`,
        `off_policy_estimator`.
    """
    episodes, among = part_estimates(episodes)
    if new_episodes is not None:
        new_episodes, _ = part_estimates(new_episodes)
    rewards = [float(episode.episode_reward) for episode in episodes]
    lengths = [int(episode.episode_length) for episode in episodes]
    by_policy: defaultdict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for (_, policy_id), reward in episode.agent_rewards.items():
            if policy_id != DEFAULT_POLICY_ID:
                by_policy[policy_id].append(float(reward))
    hist_stats: dict[str, list[Any]] = {"episode_reward": rewards, "episode_lengths": lengths}
    hist_stats.update({f"policy_{pid}_reward": list(values) for pid, values in sorted(by_policy.items())})
    hist_stats.update(_joined(episode.hist_data for episode in episodes))
    return {
        "episode_reward_max": max(rewards, default=math.nan),
        "episode_reward_min": min(rewards, default=math.nan),
        "episode_reward_mean": _mean(rewards),
        "episode_len_mean": _mean(lengths),
        "episode_media": _collected(episode.media for episode in episodes),
        "episodes_this_iter": len(episodes if new_episodes is None else new_episodes),
        "policy_reward_min": {pid: min(values) for pid, values in sorted(by_policy.items())},
        "policy_reward_max": {pid: max(values) for pid, values in sorted(by_policy.items())},
        "policy_reward_mean": {pid: _mean(values) for pid, values in sorted(by_policy.items())},
        "custom_metrics": _summarize_custom(episodes, keep_custom_metrics),
        "hist_stats": hist_stats,
        "sampler_perf": _mean_by_name(episode.perf_stats for episode in episodes),
        "off_policy_estimator": _summarize_estimates([*estimates, *among]),
    }


def part_estimates(
    episodes: Iterable[RolloutMetrics | OffPolicyEstimate],
) -> tuple[list[RolloutMetrics], list[OffPolicyEstimate]]:
    """Returns the episodes, and the estimates from data, of what workers report."""
    finished: list[RolloutMetrics] = []
    estimates: list[OffPolicyEstimate] = []
    for one in episodes:
        if isinstance(one, RolloutMetrics):
            finished.append(one)
        else:
            estimates.append(one)
    return finished, estimates


def _summarize_estimates(estimates: Iterable[OffPolicyEstimate]) -> dict[str, dict[str, float]]:
    """Returns the mean of every number, by estimator."""
    by_estimator = _collected({made.estimator_name: made.metrics} for made in estimates)
    return {name: _mean_by_name(metrics) for name, metrics in by_estimator.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _collected(dicts: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Returns all values by name."""
    values: dict[str, list[Any]] = {}
    for one in dicts:
        for name, value in one.items():
            values.setdefault(name, []).append(value)
    return values


def _joined(dicts: Iterable[Mapping[str, Sequence[Any]]]) -> dict[str, list[Any]]:
    """Returns the lists of each name joined."""
    return {name: [item for part in parts for item in part] for name, parts in _collected(dicts).items()}


def _mean_by_name(dicts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    return {name: _mean([float(value) for value in values]) for name, values in _collected(dicts).items()}


def _summarize_custom(episodes: Iterable[RolloutMetrics], keep: bool) -> dict[str, Any]:
    """Returns mean, smallest and largest of every custom metric's numbers, or its values; NaN is dropped first."""
    summary: dict[str, Any] = {}
    for name, values in _collected(episode.custom_metrics for episode in episodes).items():
        if keep:
            summary[name] = [number for number in map(_as_float, values) if not math.isnan(number)]
            continue
        numbers = [number for value in values for number in _elements(value)]
        summary[f"{name}_mean"] = _mean(numbers)
        summary[f"{name}_min"] = min(numbers, default=math.nan)
        summary[f"{name}_max"] = max(numbers, default=math.nan)
    return summary
