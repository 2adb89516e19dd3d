"""RLlib's sample collectors: batches from what a loop of one's own sees, observation by observation.

Workers here collect in columns, and know no collectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.columns import ACTIONS, AGENT_INDEX, ENV_ID, EPS_ID, NEXT_OBS, OBS, REWARDS, STATE_OUT_PREFIX, T
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.evaluation.sampling.rollout import clip_rewards
from rlframe.policy.policy import Policy
from rlframe.policy.recurrent_context import RecurrentContext
from rlframe.rllib1x.sample_builders import MultiAgentSampleBatchBuilder

Batch = SampleBatch | MultiAgentBatch


class SampleCollector(ABC):
    """What a collector does: it takes observations and steps, says what policies act on, and gives batches.

    Attributes:
        policy_map: Policies by id.
        clip_rewards: True for the rewards' signs, a number for rewards within ± that, False for rewards as they are.
        callbacks: What hears `on_postprocess_trajectory`.
        multiple_episodes_in_batch: Whether batches may have rows of several episodes.
        rollout_fragment_length: Steps of each batch.
        count_steps_by: "env_steps" or "agent_steps", which these are.
    """

    def __init__(
        self,
        policy_map: Mapping[str, Policy],
        clip_rewards: bool | float,
        callbacks: Any,
        multiple_episodes_in_batch: bool = True,
        rollout_fragment_length: int = 200,
        count_steps_by: str = "env_steps",
    ) -> None:
        self.policy_map = policy_map
        self.clip_rewards = clip_rewards
        self.callbacks = callbacks
        self.multiple_episodes_in_batch = multiple_episodes_in_batch
        self.rollout_fragment_length = rollout_fragment_length
        self.count_steps_by = count_steps_by

    @abstractmethod
    def add_init_obs(self, episode: Any, agent_id: Any, env_id: int, policy_id: str, t: int, init_obs: Any) -> None:
        """Takes an agent's first observation."""

    @abstractmethod
    def add_action_reward_next_obs(
        self, episode_id: int, agent_id: Any, env_id: int, policy_id: str, agent_done: bool, values: dict[str, Any]
    ) -> None:
        """Takes an agent's step."""

    @abstractmethod
    def episode_step(self, episode: Any) -> None:
        """Counts a step of an episode."""

    @abstractmethod
    def total_env_steps(self) -> int:
        """Returns the steps of environments that are in no batch yet."""

    @abstractmethod
    def total_agent_steps(self) -> int:
        """Returns the steps of agents that are in no batch yet."""

    @abstractmethod
    def get_inference_input_dict(self, policy_id: str) -> Mapping[str, Any]:
        """Returns what a policy acts on next."""

    @abstractmethod
    def postprocess_episode(
        self, episode: Any, is_done: bool = False, check_dones: bool = False, build: bool = False
    ) -> Batch | None:
        """Postprocesses an episode's rows so far."""

    @abstractmethod
    def try_build_truncated_episode_multi_agent_batch(self) -> list[Batch]:
        """Returns the batches that are long enough."""


class _Agent:
    """What is known of one agent in one episode."""

    def __init__(self, policy_id: str, policy: Policy, index: int, obs: Any) -> None:
        self.policy_id, self.index, self.obs, self.steps = policy_id, index, obs, 0
        self.memory = RecurrentContext(policy, 1)
        self.inputs: dict[str, Any] = {}


class _Running:
    """An episode under way: its agents, and its rows."""

    def __init__(self, episode: Any, builder: MultiAgentSampleBatchBuilder) -> None:
        self.episode, self.builder = episode, builder
        self.agents: dict[Any, _Agent] = {}


class SimpleListCollector(SampleCollector):
    """Collects rows in lists, agent by agent; the arguments are those of `SampleCollector`."""

    def __init__(
        self,
        policy_map: Mapping[str, Policy],
        clip_rewards: bool | float,
        callbacks: Any,
        multiple_episodes_in_batch: bool = True,
        rollout_fragment_length: int = 200,
        count_steps_by: str = "env_steps",
    ) -> None:
        super().__init__(
            policy_map, clip_rewards, callbacks, multiple_episodes_in_batch, rollout_fragment_length, count_steps_by
        )
        self._running: dict[int, _Running] = {}
        self._acting: dict[str, list[_Agent]] = {}
        #: Builders that hold rows of episodes that are over: the next episode goes on with one of them.
        self._begun: list[MultiAgentSampleBatchBuilder] = []

    def add_init_obs(self, episode: Any, agent_id: Any, env_id: int, policy_id: str, t: int, init_obs: Any) -> None:
        """Takes an agent's first observation.

        Args:
            episode: The episode; its `episode_id` is read, its `length` counted.
            agent_id: The agent.
            env_id: Not used: each step says it.
            policy_id: The policy that acts for it.
            t: Not used: rows are counted.
            init_obs: The observation, preprocessed.
        """
        del env_id, t
        running = self._running.get(episode.episode_id)
        if running is None:
            running = self._running[episode.episode_id] = _Running(episode, self._builder())
        agent = _Agent(policy_id, self.policy_map[policy_id], len(running.agents), init_obs)
        running.agents[agent_id] = agent
        self._acting.setdefault(policy_id, []).append(agent)

    def _builder(self) -> MultiAgentSampleBatchBuilder:
        if self._begun:
            return self._begun.pop()
        return MultiAgentSampleBatchBuilder(self.policy_map, self.clip_rewards, self.callbacks)

    def add_action_reward_next_obs(
        self, episode_id: int, agent_id: Any, env_id: int, policy_id: str, agent_done: bool, values: dict[str, Any]
    ) -> None:
        """Takes an agent's step.

        Args:
            episode_id: The episode.
            agent_id: The agent.
            env_id: The environment.
            policy_id: The policy that acted for it; as with its first observation.
            agent_done: Whether it acts no more.
            values: The step by column: at least `actions`, `rewards`, `dones` and `new_obs`.
        """
        running = self._running[episode_id]
        agent = running.agents[agent_id]
        row = {T: agent.steps, EPS_ID: episode_id, AGENT_INDEX: agent.index, ENV_ID: env_id}
        row.update({name: column[0] for name, column in agent.inputs.items()})
        running.builder.add_values(agent_id, policy_id, **{**row, **values, OBS: agent.obs})
        agent.steps += 1
        outs = {name: np.asarray(value)[None] for name, value in values.items() if name.startswith(STATE_OUT_PREFIX)}
        agent.memory.acted(np.asarray(agent.obs)[None], np.asarray(values[ACTIONS])[None], outs)
        agent.memory.rewarded(clip_rewards(np.asarray([values[REWARDS]], np.float32), self.clip_rewards))
        agent.obs = values[NEXT_OBS]
        if not agent_done:
            self._acting.setdefault(policy_id, []).append(agent)

    def get_inference_input_dict(self, policy_id: str) -> SampleBatch:
        """Returns what a policy acts on next, one row for each agent that observed since it was last asked.

        Raises:
            ValueError: If none has.
        """
        agents = self._acting.pop(policy_id, [])
        if not agents:
            raise ValueError(f"No agent of policy {policy_id!r} has observed since it was last asked.")
        for agent in agents:
            obs = np.asarray(agent.obs)[None]
            agent.inputs = {OBS: obs, **agent.memory.inputs(obs)}
        return SampleBatch(
            {name: np.concatenate([agent.inputs[name] for agent in agents]) for name in agents[0].inputs}
        )

    def episode_step(self, episode: Any) -> None:
        """Counts a step of an episode, in its `length` too."""
        self._running[episode.episode_id].builder.count += 1
        episode.length += 1

    def total_env_steps(self) -> int:
        """Returns the steps of environments that are in no batch yet."""
        return sum(running.builder.count for running in self._running.values()) + sum(b.count for b in self._begun)

    def total_agent_steps(self) -> int:
        """Returns the steps of agents that are in no batch yet."""
        builders = [*(running.builder for running in self._running.values()), *self._begun]
        return sum(_agent_steps(builder) for builder in builders)

    def postprocess_episode(
        self, episode: Any, is_done: bool = False, check_dones: bool = False, build: bool = False
    ) -> Batch | None:
        """Postprocesses an episode's rows so far.

        Args:
            episode: The episode.
            is_done: Whether it is over; its rows stay for the next batch.
            check_dones: With `is_done`, refuses agents whose last row is not done.
            build: Whether to return a batch of all that is postprocessed.

        Raises:
            ValueError: If an agent's last row is not done, and that is refused.
        """
        running = self._running[episode.episode_id]
        if is_done and check_dones:
            running.builder.check_missing_dones()
        running.builder.postprocess_batch_so_far(episode)
        if is_done:
            del self._running[episode.episode_id]
            self._begun.append(running.builder)
        return running.builder.build_and_reset(episode) if build else None

    def try_build_truncated_episode_multi_agent_batch(self) -> list[Batch]:
        """Returns a batch of each running episode that has come to `rollout_fragment_length` steps."""
        made: list[Batch] = []
        for running in self._running.values():
            builder = running.builder
            steps = builder.count if self.count_steps_by == "env_steps" else _agent_steps(builder)
            if steps >= self.rollout_fragment_length:
                made.append(builder.build_and_reset(running.episode))
        return made


def _agent_steps(builder: MultiAgentSampleBatchBuilder) -> int:
    done = sum(part.count for parts in builder.policy_batches.values() for part in parts)
    return done + builder.total()


def to_float_np_array(v: list[Any]) -> Any:
    """Returns values as an array, float64 as float32."""
    from rlframe.data.sample_batch_builder import to_float_array

    return to_float_array(v)
