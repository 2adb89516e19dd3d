"""What callbacks see of a running episode."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.columns import ACTION_DIST_INPUTS, STATE_IN_PREFIX, STATE_OUT_PREFIX
from rlframe.env.base_env import _DUMMY_AGENT_ID
from rlframe.evaluation.agent_mapping import agent_mapping
from rlframe.evaluation.rllib_names import RLlibEpisodeNames
from rlframe.utils.spaces.space_utils import flatten_to_single_ndarray

if TYPE_CHECKING:
    from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
    from rlframe.policy.policy import Policy

DUMMY_AGENT_ID = _DUMMY_AGENT_ID

#: How columns begin that an action was chosen by, not what came with it.
_INPUTS = (STATE_IN_PREFIX, "prev_")


class _AgentView:
    """What an episode tells of one agent."""

    __slots__ = ("action", "done", "extras", "hanging", "info", "obs", "prev_action", "raw_obs", "rewards", "states")

    def __init__(self) -> None:
        self.obs: Any = None
        self.raw_obs: Any = None
        self.info: dict[str, Any] = {}
        self.action: Any = None
        self.prev_action: Any = None
        self.rewards: list[float] = []
        self.hanging: float | None = None  # of steps since its last observation
        self.done = False
        self.extras: dict[str, Any] = {}


class Episode(RLlibEpisodeNames):
    """State of one episode in one environment slot.

    With one agent it is made only when a callback asks for it. With several it is always there, and what it tells of
    agents' steps is kept only when a callback asks.

    Attributes:
        policy_map: Policies by id.
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

    Args:
        policies: Policies by id.
        policy_mapping_fn: The one policy's id, or a mapping of agents to policies.
        batch_builder_factory: Makes `batch_builder`; of programs that step their environment themselves. None shows the
            steps that callbacks were told.
        extra_batch_callback: Stands for `add_extra_batch`; of the same.
        env_id: Index of the environment slot within its worker.
        worker: The `RolloutWorker` that runs the episode.
        episode_id: Number of the episode; None draws one, and takes `policy_mapping_fn` as configs have it.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        policy_mapping_fn: str | Callable[..., str],
        batch_builder_factory: Callable[[], Any] | None = None,
        extra_batch_callback: Callable[[Any], Any] | None = None,
        env_id: int = 0,
        worker: Any = None,
        *,
        episode_id: int | None = None,
    ) -> None:
        self.policy_map = policies
        self.episode_id = random.getrandbits(48) if episode_id is None else episode_id
        self.env_id = env_id
        self.worker = worker
        self._batch_builder = None if batch_builder_factory is None else batch_builder_factory()
        if extra_batch_callback is not None:
            self.add_extra_batch = extra_batch_callback  # type: ignore[method-assign, assignment]
        self.length = 0
        self.total_reward = 0.0
        self.agent_rewards: dict[tuple[Any, str], float] = {}
        self.user_data: dict[str, Any] = {}
        self.custom_metrics: dict[str, Any] = {}
        self.hist_data: dict[str, list[Any]] = {}
        self.media: dict[str, Any] = {}
        self._mapping: Any = policy_mapping_fn
        if episode_id is None and callable(policy_mapping_fn):
            self._mapping = self._users_mapping(policy_mapping_fn)
        self._policy_of: dict[Any, str] = {}
        self._views: dict[Any, _AgentView] = {}

    def _users_mapping(self, function: Callable[..., str]) -> Callable[[Any, Episode], str]:
        """Returns a user's mapping function, called with the arguments that it declares."""
        mapping = agent_mapping(function, list(self.policy_map))
        return lambda agent_id, episode: mapping(agent_id, episode, self.worker)

    def policy_mapping_fn(self, agent_id: Any = DUMMY_AGENT_ID, *args: Any, **kwargs: Any) -> str:
        """Returns the id of the policy that acts for `agent_id`."""
        return self.policy_for(agent_id)

    def policy_for(self, agent_id: Any = DUMMY_AGENT_ID) -> str:
        """Returns the id of the policy that acts for `agent_id` in this episode; asked for once per agent."""
        if isinstance(self._mapping, str):
            return self._mapping
        if agent_id not in self._policy_of:
            self._policy_of[agent_id] = self._mapping(agent_id, self)
        return self._policy_of[agent_id]

    def get_agents(self) -> list[Any]:
        """Returns the ids of the agents seen so far."""
        return [DUMMY_AGENT_ID] if isinstance(self._mapping, str) else list(self._policy_of)

    def add_extra_batch(self, batch: SampleBatch | MultiAgentBatch) -> None:
        """Adds postprocessed rows, such as counterfactual ones, to the batch that the worker is sampling.

        Raises:
            ValueError: If it is no batch, or has rows of an unknown policy.
        """
        self.worker.add_extra_batch(batch)

    def last_observation_for(self, agent_id: Any = DUMMY_AGENT_ID) -> Any:
        """Returns the last preprocessed and filtered observation, None before the first step was stored."""
        return self._view(agent_id).obs

    def last_raw_obs_for(self, agent_id: Any = DUMMY_AGENT_ID) -> Any:
        """Returns the last observation as the environment gave it."""
        return self._view(agent_id).raw_obs

    def last_info_for(self, agent_id: Any = DUMMY_AGENT_ID) -> dict[str, Any]:
        """Returns the environment's last info dict; `{}` before the first step."""
        return self._view(agent_id).info

    def last_action_for(self, agent_id: Any = DUMMY_AGENT_ID) -> Any:
        """Returns the last action in the policy's space; zeros before the first."""
        action = self._view(agent_id).action
        return self._zero_action(agent_id) if action is None else action

    def prev_action_for(self, agent_id: Any = DUMMY_AGENT_ID) -> Any:
        """Returns the action before the last one; zeros where there is none."""
        action = self._view(agent_id).prev_action
        return self._zero_action(agent_id) if action is None else action

    def last_reward_for(self, agent_id: Any = DUMMY_AGENT_ID) -> float:
        """Returns the last raw reward; 0 before the first step."""
        rewards = self._view(agent_id).rewards
        return rewards[-1] if rewards else 0.0

    def prev_reward_for(self, agent_id: Any = DUMMY_AGENT_ID) -> float:
        """Returns the raw reward before the last one; 0 where there is none."""
        rewards = self._view(agent_id).rewards
        return rewards[-2] if len(rewards) > 1 else 0.0

    def rnn_state_for(self, agent_id: Any = DUMMY_AGENT_ID) -> list[np.ndarray]:
        """Returns the recurrent state after the last action, the initial one before it; `[]` without memory."""
        extras = self._view(agent_id).extras
        states: list[np.ndarray] = []
        while f"{STATE_OUT_PREFIX}{len(states)}" in extras:
            states.append(extras[f"{STATE_OUT_PREFIX}{len(states)}"])
        return states or self._policy(agent_id).get_initial_state()

    def last_done_for(self, agent_id: Any = DUMMY_AGENT_ID) -> bool:
        """Returns whether the last step ended the episode for the agent (terminated or truncated)."""
        return self._view(agent_id).done

    def last_extra_action_outs_for(self, agent_id: Any = DUMMY_AGENT_ID) -> dict[str, Any]:
        """Returns what came with the last action, e.g. `action_logp`, `vf_preds` or, of DQN, `q_values`."""
        outs = self._view(agent_id).extras
        if ACTION_DIST_INPUTS not in outs or "num_atoms" not in self._policy(agent_id).config:
            return outs
        return {"q_values": outs[ACTION_DIST_INPUTS], **outs}  # the expected ones of distributions, too

    def soft_reset(self, episode_id: int | None = None) -> None:
        """Counts anew at a soft horizon; agents, `user_data` and `custom_metrics` go on, `hist_data` has new lists.

        Args:
            episode_id: Number of what follows; None keeps it.
        """
        self.episode_id = self.episode_id if episode_id is None else episode_id
        self.custom_metrics, self.media = dict(self.custom_metrics), {}
        self.hist_data = {name: [] for name in self.hist_data}
        self.length = 0
        self.total_reward = 0.0
        self.agent_rewards = {}
        for view in self._views.values():
            view.rewards.clear()

    def _policy(self, agent_id: Any) -> Policy:
        return self.policy_map[self.policy_for(agent_id)]

    def _view(self, agent_id: Any) -> _AgentView:
        view = self._views.get(agent_id)
        if view is None:
            view = self._views[agent_id] = _AgentView()
        return view

    def _zero_action(self, agent_id: Any) -> Any:
        return np.zeros_like(flatten_to_single_ndarray(self._policy(agent_id).action_space.sample()))

    def _record_step(self, action: Any, extras: dict[str, Any], agent_id: Any = DUMMY_AGENT_ID) -> None:
        view = self._view(agent_id)
        view.prev_action, view.action = view.action, action
        view.extras = {name: value for name, value in extras.items() if not name.startswith(_INPUTS)}

    def _record_outcome(
        self, *, raw_obs: Any, reward: float | None, done: bool, info: dict[str, Any] | None, obs: Any = None,
        agent_id: Any = DUMMY_AGENT_ID, closes: bool = True,
    ) -> None:  # fmt: skip
        """Keeps what a step gave one agent, and counts its reward.

        Until a step `closes` the agent's transition, by an observation or the episode's end, rewards add up to one.
        """
        view = self._view(agent_id)
        view.done, view.info = done, view.info if info is None else info
        if raw_obs is not None:
            view.raw_obs = raw_obs
        if obs is not None:
            view.obs = obs
        if reward is not None:
            view.hanging = float(reward) + (view.hanging or 0.0)
            self.total_reward += reward
            key = (agent_id, self.policy_for(agent_id))
            self.agent_rewards[key] = self.agent_rewards.get(key, 0.0) + reward
        acted_on = raw_obs is not None and view.action is not None
        if closes and (acted_on or view.hanging is not None):
            view.rewards.append(view.hanging or 0.0)
            view.hanging = None


MultiAgentEpisode = Episode
