"""What users' code is told of the episodes of one agent while they run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from rlframe.evaluation.episode import DUMMY_AGENT_ID, Episode
from rlframe.evaluation.sampling.loop import Hooks
from rlframe.evaluation.sampling.rollout_buffer import RolloutBuffer
from rlframe.evaluation.sampling.slot import EnvSlot

if TYPE_CHECKING:
    from rlframe.policy.policy import Policy


class EpisodeHooks:
    """The part of an `EnvRunner` that calls callbacks and explorations' hooks."""

    slots: list[EnvSlot]
    policy: Policy
    policy_id: str
    hooks: Hooks
    _episodes: list[Episode | None]
    _flat: Any  # a method of the runner

    def _explore_hook(self, hook: str, index: int) -> None:
        episode = self._episodes[index] or SimpleNamespace(env_id=index)
        function = getattr(self.policy.exploration, hook)
        function(self.policy, environment=self.slots[index].env, episode=episode)

    def _start_episode(self, index: int, raw: Any, obs: Any) -> None:
        episode = Episode(
            {self.policy_id: self.policy},
            self.policy_id,
            episode_id=self.slots[index].episode_id,
            env_id=index,
            worker=self.hooks.worker,
        )
        self._episodes[index] = episode
        view = episode._view(DUMMY_AGENT_ID)
        view.raw_obs = raw
        self._call("on_episode_start", index)
        view.obs = obs

    def _call(self, hook: str, index: int) -> None:
        function = self.hooks.call.get(hook)
        if function is not None:
            function(
                worker=self.hooks.worker,
                base_env=self.hooks.base_env,
                policies={self.policy_id: self.policy},
                episode=self._episodes[index],
                env_index=index,
            )

    def _record_hooks(
        self, t: int, buffer: RolloutBuffer, actions: NDArray[Any], extras: dict[str, NDArray[Any]], over: set[int]
    ) -> None:
        flat = self._flat(actions)
        for index, episode in enumerate(self._episodes):
            assert episode is not None
            episode._record_step(flat[index], {key: column[index] for key, column in extras.items()})
            view = episode._view(DUMMY_AGENT_ID)
            view.obs, view.done = buffer.obs_at(t + 1)[index], index in over
            self._call("on_episode_step", index)
