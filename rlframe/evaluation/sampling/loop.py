"""What the sampling loops have in common: settings, callbacks, finished episodes, times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlframe.utils.timer import StepTimes

if TYPE_CHECKING:
    from rlframe.evaluation.metrics import RolloutMetrics

#: Callbacks that are given the episode.
EPISODE_HOOKS = frozenset({"on_episode_start", "on_episode_step", "on_episode_end", "on_postprocess_trajectory"})


@dataclass(frozen=True)
class RunnerSettings:
    """What the loop needs of a config; names and meanings as there.

    With `whole_fragments`, rows that a vectorised environment spends on resets are made up for by further steps.
    """

    rollout_fragment_length: int
    batch_mode: str = "truncate_episodes"
    horizon: int | None = None
    soft_horizon: bool = False
    no_done_at_end: bool = False
    clip_rewards: bool | float | None = None
    explore: bool = True
    render_env: bool = False
    recreate_envs: bool = False
    whole_fragments: bool = False


@dataclass
class Hooks:
    """The callbacks that are really overridden, each as a function of keywords; empty ones cost nothing."""

    call: dict[str, Callable[..., None]] = field(default_factory=dict)
    worker: Any = None
    base_env: Any = None


class SamplingLoop:
    """A loop that steps environment slots, and keeps the episodes that have ended for the worker's report.

    Args:
        slots: The environments: `EnvSlot`s, or what stands for them.
        settings: See `RunnerSettings`.
        hooks: Callbacks.
    """

    policies: Any  # by id; a property of some loops
    _episodes: list[Any]

    def __init__(self, slots: list[Any], settings: RunnerSettings, hooks: Hooks) -> None:
        self.slots, self.settings, self.hooks = slots, settings, hooks
        self._metrics: list[RolloutMetrics] = []
        self._started = False
        self._times = StepTimes()

    def _call(self, hook: str, index: int) -> None:
        """Calls a callback, where it is overridden, with the episode of a slot."""
        function = self.hooks.call.get(hook)
        if function is not None:
            function(
                worker=self.hooks.worker,
                base_env=self.hooks.base_env,
                policies=self.policies,
                episode=self._episodes[index],
                env_index=index,
            )

    @property
    def num_slots(self) -> int:
        """In how many slots episodes run side by side, each followed by the next one at once."""
        return len(self.slots)

    def get_metrics(self) -> list[RolloutMetrics]:
        """Returns the episodes that ended since the last call."""
        metrics, self._metrics = self._metrics, []
        return metrics

    def restart(self) -> None:
        """Begins fresh episodes at the next `sample()`; running ones and their rows are dropped."""
        self._started = False
        self._metrics = []
