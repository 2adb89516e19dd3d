"""What callbacks see of a running episode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rlframe.policy.policy import Policy

DUMMY_AGENT_ID = "agent0"
_DUMMY_AGENT_ID = DUMMY_AGENT_ID


class Episode:
    """State of one episode in one environment slot; made only when a callback asks for it.

    Attributes:
        episode_id: Unique number of the episode.
        env_id: Index of the environment slot within its worker.
        length: Environment steps so far.
        total_reward: Sum of the raw rewards so far, over all agents.
        agent_rewards: `{(agent_id, policy_id): sum of raw rewards}`.
        user_data: Scratch space of the user; never reported.
        custom_metrics: `{name: number}`, reported as `custom_metrics` with `_mean`, `_min` and `_max`.
        hist_data: `{name: list of numbers}`, reported in `hist_stats`.
        media: `{name: anything}`, reported in `episode_media`.
        worker: The `RolloutWorker` that runs the episode.
    """

    def __init__(
        self, policies: dict[str, Policy], policy_id: str, *, episode_id: int, env_id: int, worker: Any = None
    ) -> None:
        self.policy_map = policies
        self.episode_id = episode_id
        self.env_id = env_id
        self.worker = worker
        self.length = 0
        self.total_reward = 0.0
        self.agent_rewards: dict[tuple[Any, str], float] = {}
        self.user_data: dict[str, Any] = {}
        self.custom_metrics: dict[str, Any] = {}
        self.hist_data: dict[str, list[Any]] = {}
        self.media: dict[str, Any] = {}
        self._policy_id = policy_id
        self._last_obs: Any = None
        self._last_raw_obs: Any = None
        self._last_info: dict[str, Any] = {}
        self._last_action: Any = None
        self._prev_action: Any = None
        self._rewards: list[float] = [0.0, 0.0]
        self._last_done = False
        self._extra_action_outs: dict[str, Any] = {}

    def policy_mapping_fn(self, agent_id: Any = DUMMY_AGENT_ID, *args: Any, **kwargs: Any) -> str:
        """Returns the id of the policy that acts for `agent_id`."""
        return self._policy_id

    def policy_for(self, agent_id: Any = DUMMY_AGENT_ID) -> str:
        """Returns the id of the policy that acts for `agent_id` in this episode."""
        return self._policy_id

    def get_agents(self) -> list[Any]:
        """Returns the ids of the agents seen so far."""
        return [DUMMY_AGENT_ID]

    def last_observation_for(self, agent_id: Any = DUMMY_AGENT_ID) -> Any:
        """Returns the last preprocessed and filtered observation, None before the first step was stored."""
        return self._last_obs

    def last_raw_obs_for(self, agent_id: Any = DUMMY_AGENT_ID) -> Any:
        """Returns the last observation as the environment gave it."""
        return self._last_raw_obs

    def last_info_for(self, agent_id: Any = DUMMY_AGENT_ID) -> dict[str, Any]:
        """Returns the environment's last info dict; `{}` before the first step."""
        return self._last_info

    def last_action_for(self, agent_id: Any = DUMMY_AGENT_ID) -> Any:
        """Returns the last action in the policy's space; zeros before the first."""
        return self._zero_action() if self._last_action is None else self._last_action

    def prev_action_for(self, agent_id: Any = DUMMY_AGENT_ID) -> Any:
        """Returns the action before the last one; zeros where there is none."""
        return self._zero_action() if self._prev_action is None else self._prev_action

    def last_reward_for(self, agent_id: Any = DUMMY_AGENT_ID) -> float:
        """Returns the last raw reward; 0 before the first step."""
        return self._rewards[-1]

    def prev_reward_for(self, agent_id: Any = DUMMY_AGENT_ID) -> float:
        """Returns the raw reward before the last one; 0 where there is none."""
        return self._rewards[-2]

    def rnn_state_for(self, agent_id: Any = DUMMY_AGENT_ID) -> list[np.ndarray]:
        """Returns the recurrent state; `[]` for policies without one."""
        return []

    def last_done_for(self, agent_id: Any = DUMMY_AGENT_ID) -> bool:
        """Returns whether the last step ended the episode (terminated or truncated)."""
        return self._last_done

    def last_extra_action_outs_for(self, agent_id: Any = DUMMY_AGENT_ID) -> dict[str, Any]:
        """Returns what came with the last action, e.g. `action_logp` or `vf_preds`."""
        return self._extra_action_outs

    def soft_reset(self) -> None:
        """Clears counters and metrics at a soft horizon; agent state goes on."""
        self.length = 0
        self.total_reward = 0.0
        self.agent_rewards = {}

    def _zero_action(self) -> Any:
        space = self.policy_map[self._policy_id].action_space
        return np.zeros_like(np.asarray(space.sample()))

    def _record_step(self, action: Any, extras: dict[str, Any]) -> None:
        self._prev_action, self._last_action = self._last_action, action
        self._extra_action_outs = extras

    def _record_outcome(self, *, obs: Any, raw_obs: Any, reward: float, done: bool, info: dict[str, Any]) -> None:
        self._last_obs, self._last_raw_obs, self._last_info, self._last_done = obs, raw_obs, info, done
        self._rewards = [self._rewards[-1], reward]
        self.length += 1
        self.total_reward += reward
        key = (DUMMY_AGENT_ID, self._policy_id)
        self.agent_rewards[key] = self.agent_rewards.get(key, 0.0) + reward


MultiAgentEpisode = Episode
