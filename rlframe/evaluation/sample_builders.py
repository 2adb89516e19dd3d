"""Batches of several agents from rows that a program gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.data.columns import DONES, EPS_ID, REWARDS
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.data.sample_batch_builder import SampleBatchBuilder
from rlframe.env.base_env import _DUMMY_AGENT_ID
from rlframe.evaluation.callbacks import call_hook, make_callbacks
from rlframe.evaluation.sampling.rollout import clip_rewards
from rlframe.policy.policy import Policy


class MultiAgentSampleBatchBuilder:
    """Collects rows by agent, and makes a postprocessed batch by policy of them.

    Each agent's rows between two calls of `postprocess_batch_so_far` are one trajectory, or a part of one.

    Attributes:
        count: Steps of the environment; whoever steps it counts them, `builder.count += 1`.
        agent_builders: The agents' rows that are not postprocessed yet.
        policy_batches: The policies' rows that are, by policy.

    Args:
        policy_map: Policies by id.
        clip_rewards: True for the rewards' signs, a number for rewards within ± that, False for rewards as they are.
        callbacks: What hears `on_postprocess_trajectory`; any form that the config's `callbacks` has.
        worker: The worker that it is told.
    """

    def __init__(
        self, policy_map: Mapping[str, Policy], clip_rewards: bool | float, callbacks: Any, *, worker: Any = None
    ) -> None:
        self.policy_map = policy_map
        self.clip_rewards = clip_rewards
        self.callbacks = make_callbacks(callbacks)
        self.policy_batches: dict[str, list[SampleBatch]] = {}
        self.agent_builders: dict[Any, SampleBatchBuilder] = {}
        self.agent_to_policy: dict[Any, str] = {}
        self.count = 0
        self._worker = worker

    def total(self) -> int:
        """Returns the number of rows that are not postprocessed yet, of all agents."""
        return sum(builder.count for builder in self.agent_builders.values())

    def has_pending_agent_data(self) -> bool:
        """Returns whether there are rows that are not postprocessed yet."""
        return bool(self.agent_builders)

    def add_values(self, agent_id: Any, policy_id: str, **values: Any) -> None:
        """Adds one row of an agent.

        Args:
            agent_id: The agent.
            policy_id: The policy that acts for it; the first one stays.
            **values: The row by column: at least `rewards`, `dones` and `eps_id`.
        """
        self.agent_to_policy.setdefault(agent_id, policy_id)
        builder = self.agent_builders.setdefault(agent_id, SampleBatchBuilder())
        if agent_id != _DUMMY_AGENT_ID:
            values["agent_id"] = agent_id
        builder.add_values(**values)

    def check_missing_dones(self) -> None:
        """Checks that every agent's last row ends its episode.

        Raises:
            ValueError: If one does not.
        """
        for agent_id, builder in self.agent_builders.items():
            if not builder.buffers[DONES][-1]:
                raise ValueError(
                    f"The episode ended, and the last row of agent {agent_id!r} (policy "
                    f"{self.agent_to_policy[agent_id]!r}) has done False: give every agent that has acted a last row "
                    "with done True, or leave this check out"
                )

    def postprocess_batch_so_far(self, episode: Any = None) -> None:
        """Postprocesses all rows that are not yet, agent by agent in the order of their first rows.

        Args:
            episode: What policies and callbacks are given as the episode.

        Raises:
            ValueError: If an agent's rows are of several trajectories.
        """
        originals = {agent: self._take(agent) for agent in self.agent_builders}
        made = {agent: self._postprocess(agent, originals, episode) for agent in originals}
        for agent_id in sorted(made, key=str):
            policy_id = self.agent_to_policy[agent_id]
            told = {
                "worker": self._told_worker(),
                "episode": episode,
                "agent_id": agent_id,
                "policy_id": policy_id,
                "policies": self.policy_map,
                "postprocessed_batch": made[agent_id],
                "original_batches": originals,
            }
            call_hook(self.callbacks, "on_postprocess_trajectory", told)
            self.policy_batches.setdefault(policy_id, []).append(made[agent_id])
        self.agent_builders, self.agent_to_policy = {}, {}

    def _told_worker(self) -> Any:
        return self._worker

    def _take(self, agent_id: Any) -> tuple[Policy, SampleBatch]:
        batch = self.agent_builders[agent_id].build_and_reset()
        if batch[DONES][:-1].any() or len(set(batch[EPS_ID].tolist())) > 1:
            raise ValueError(f"Got rows of several trajectories of agent {agent_id!r}; postprocess at each one's end.")
        batch[REWARDS] = clip_rewards(batch[REWARDS], self.clip_rewards)
        return self.policy_map[self.agent_to_policy[agent_id]], batch

    @staticmethod
    def _postprocess(agent_id: Any, originals: Mapping[Any, tuple[Policy, SampleBatch]], episode: Any) -> SampleBatch:
        policy, original = originals[agent_id]
        others = {other: pair for other, pair in originals.items() if other != agent_id}
        batch = original.copy(shallow=True)
        exploration = getattr(policy, "exploration", None)  # a program's own policy need not have one
        if exploration is not None and exploration.has_postprocessing:
            batch = exploration.postprocess_trajectory(policy, batch) or batch
        return policy.postprocess_trajectory(batch, others, episode)

    def build_and_reset(self, episode: Any = None) -> SampleBatch | MultiAgentBatch:
        """Returns all rows, postprocessed, by policy; of the default policy alone, its SampleBatch. Begins anew.

        Args:
            episode: See `postprocess_batch_so_far`.
        """
        self.postprocess_batch_so_far(episode)
        joined = {policy_id: SampleBatch.concat_samples(parts) for policy_id, parts in self.policy_batches.items()}
        steps, self.count, self.policy_batches = self.count, 0, {}
        return MultiAgentBatch.wrap_as_needed(joined, steps)
