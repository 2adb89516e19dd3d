"""Postprocessing of what several agents did: explorations', then policies', then the callback."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.columns import AGENT_INDEX, EPS_ID
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.policy import Policy
from rlframe.policy.recurrent_context import add_later_steps
from rlframe.policy.users_code import postprocess

if TYPE_CHECKING:
    from rlframe.evaluation.episode import Episode
    from rlframe.evaluation.sampling.loop import Hooks

Pieces = dict[int, dict[Any, tuple[Policy, SampleBatch]]]


class MultiAgentPostprocessing:
    """Postprocesses the rows of several policies; each agent's see the originals that others have of the same episode.

    Args:
        policies: Policies by id; the dict may change between calls.
        hooks: Callbacks.
    """

    def __init__(self, policies: Mapping[str, Policy], hooks: Hooks) -> None:
        self._policies, self._hooks = policies, hooks

    def __call__(
        self,
        batches: dict[str, SampleBatch],
        names: Mapping[tuple[int, int], Any],
        running: Mapping[int, Episode],
    ) -> dict[str, SampleBatch]:
        """Returns batches by policy id, postprocessed.

        Args:
            batches: Rows by policy id; those of an agent in an episode stand one after the other.
            names: Agents' ids by (episode id, agent's number).
            running: Episodes by id.
        """
        hook = self._hooks.call.get("on_postprocess_trajectory")
        policies = self._policies
        for pid, batch in batches.items():
            add_later_steps(policies[pid].view_requirements, batch)
        whole = {
            pid
            for pid in batches
            if hook is None and policies[pid].postprocesses_many and not policies[pid].exploration.has_postprocessing
        }
        if len(whole) == len(batches):
            return {pid: policies[pid].postprocess_trajectory(batch) for pid, batch in batches.items()}
        pieces = {pid: _trajectories(batch) for pid, batch in batches.items()}  # the originals, whatever comes
        made = {pid: policies[pid].postprocess_trajectory(batches[pid]) for pid in batches if pid in whole}
        together: Pieces = {}
        turns = []
        for pid, parts in pieces.items():
            for place, part in enumerate(parts):
                episode, agent = _whose(part, names)
                together.setdefault(episode, {})[agent] = (policies[pid], part)
                if pid not in whole:
                    turns.append((episode, int(part[AGENT_INDEX][0]), pid, place))
        done: dict[str, dict[int, SampleBatch]] = {}
        for _, _, pid, place in sorted(turns):  # by episode, agents in the order in which they appeared
            part = pieces[pid][place]
            done.setdefault(pid, {})[place] = self._one(pid, _whose(part, names), part, together, hook, running)
        for pid, parts_done in done.items():
            in_order = [parts_done[place] for place in range(len(parts_done))]
            made[pid] = in_order[0] if len(in_order) == 1 else SampleBatch.concat_samples(in_order)
        return {pid: made[pid] for pid in batches}

    def _one(
        self,
        policy_id: str,
        whose: tuple[int, Any],
        part: SampleBatch,
        together: Pieces,
        hook: Callable[..., None] | None,
        running: Mapping[int, Episode],
    ) -> SampleBatch:
        policy = self._policies[policy_id]
        episode_id, agent_id = whose
        originals = together[episode_id]
        others = {agent: pair for agent, pair in originals.items() if agent != agent_id}
        if others or hook is not None:
            part = part.copy()  # whatever is written into it, others get the original
        if policy.exploration.has_postprocessing:
            part = policy.exploration.postprocess_trajectory(policy, part) or part
        part = postprocess(policy, part, others, running.get(episode_id))
        if hook is not None:
            hook(
                worker=self._hooks.worker,
                episode=running.get(episode_id),
                agent_id=agent_id,
                policy_id=policy_id,
                policies=self._policies,
                postprocessed_batch=part,
                original_batches=dict(originals),
            )
        return part


def _whose(part: SampleBatch, names: Mapping[tuple[int, int], Any]) -> tuple[int, Any]:
    """Returns the episode's and the agent's id of the rows of one agent."""
    episode = int(part[EPS_ID][0])
    return episode, names[episode, int(part[AGENT_INDEX][0])]


def _trajectories(batch: SampleBatch) -> list[SampleBatch]:
    """Returns one batch of views for each agent's part of an episode."""
    episodes, agents = np.asarray(batch[EPS_ID]), np.asarray(batch[AGENT_INDEX])
    breaks = (episodes[1:] != episodes[:-1]) | (agents[1:] != agents[:-1])
    cuts = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(episodes)]
    return [batch[start:stop] for start, stop in itertools.pairwise(cuts)]
