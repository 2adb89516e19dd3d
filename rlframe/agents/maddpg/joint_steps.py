"""What is between replay and learning: every policy gets what all agents saw and did, and would do next."""

from __future__ import annotations

import warnings
from typing import Any, Final

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.evaluation.episode import Episode
from rlframe.utils.errors import ConfigError

JOINT_OBS: Final = "joint_obs"
"""Observations of all agents side by side, in the order of their `agent_id`. float32 `[B, ΣD]`."""
JOINT_ACTIONS: Final = "joint_actions"
"""Their actions: points on the simplex for choices, numbers in [-1, 1] else. float32 `[B, ΣA]`."""
JOINT_NEXT_OBS: Final = "joint_new_obs"
"""Their observations after the step (or n steps). float32 `[B, ΣD]`."""
JOINT_NEXT_ACTIONS: Final = "joint_new_actions"
"""What their target actors do there. float32 `[B, ΣA]`."""


class ShareJointSteps:
    """Gives each policy the joint steps of all agents.

    Takes a MultiAgentBatch whose rows are in lockstep; gives one whose rows have, beside their own `obs`, `rewards` and
    `discounts`, the columns `joint_obs`, `joint_actions`, `joint_new_obs` and `joint_new_actions`. Touches no counters.
    The noise of target actors comes from streams of the policies, so that the frameworks draw the same.

    Args:
        workers: The WorkerSet.
    """

    def __init__(self, workers: Any) -> None:
        self.workers = workers

    def __call__(self, batch: SampleBatch | MultiAgentBatch) -> MultiAgentBatch:
        """Returns the shared batch.

        Raises:
            ValueError: If policies came or went since the start, or have no rows.
        """
        policies = self.workers.local_worker().policy_map
        parts = batch.as_multi_agent().policy_batches
        ordered = sorted(policies, key=lambda pid: int(policies[pid].config["agent_id"]))
        for pid in ordered:
            policies[pid].check_agents_of(parts, ordered)
        joint = {
            JOINT_OBS: _side_by_side([parts[pid][OBS] for pid in ordered]),
            JOINT_ACTIONS: _side_by_side([parts[pid][ACTIONS] for pid in ordered]),
            JOINT_NEXT_OBS: _side_by_side([parts[pid][NEXT_OBS] for pid in ordered]),
            JOINT_NEXT_ACTIONS: _side_by_side([policies[pid].target_actions(parts[pid][NEXT_OBS]) for pid in ordered]),
        }
        shared = {}
        for pid in ordered:
            own = {key: parts[pid][key] for key in (OBS, REWARDS, DISCOUNTS)}
            shared[pid] = SampleBatch.from_columns({**own, **joint})
        return MultiAgentBatch(shared, batch.count)


def _side_by_side(columns: list[NDArray[Any]]) -> NDArray[np.float32]:
    """Returns columns [B, ...] as one, float32 `[B, sum of widths]`."""
    return np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1, dtype=np.float32)


def check_agents(trainer: Any) -> None:
    """Checks, where environments know their agents, that each has a policy of its own.

    Raises:
        ConfigError: If policies act for several agents, or for none.
    """
    policies = trainer.workers.local_worker().policy_map
    others = {pid: type(policy).__name__ for pid, policy in policies.items() if not hasattr(policy, "check_agents_of")}
    if others:
        raise ConfigError(
            f"multiagent.policies: got {others}, wanted MADDPG's policies alone: each critic needs the actors of all "
            "agents; leave policy_class out"
        )
    if (trainer.config["env_config"] or {}).get("actions_are_logits"):
        _tell_of_numbers(policies)
    found = dict.fromkeys(fault for faults in trainer.workers.foreach_worker(_mapping_faults) for fault in faults)
    if found:
        raise ConfigError("multiagent.policy_mapping_fn: " + "; ".join(found))


def _tell_of_numbers(policies: Any) -> None:
    """Warns where an environment was told to expect vectors, and declares a Discrete space."""
    numbered = [pid for pid, policy in policies.items() if isinstance(policy.action_space, gym.spaces.Discrete)]
    if numbered:
        warnings.warn(
            f"env_config.actions_are_logits=True, but the environment gets the number of the chosen action for "
            f"{', '.join(map(repr, numbered))}, whose space is Discrete (RLlib gave it the vector); declare "
            "rlframe.utils.spaces.simplex.Simplex((n,)) as its action space to get that",
            stacklevel=2,
        )


def _mapping_faults(worker: Any) -> list[str]:
    """Returns what is wrong with the agents that a worker's policies act for."""
    agents = list(worker.slots[0].env.possible_agents) if worker.slots else []
    if not agents:
        return []
    trial = Episode({}, lambda agent, episode: worker.policy_mapping_fn(agent, episode), episode_id=0, env_id=0)
    whose: dict[str, list[Any]] = {policy_id: [] for policy_id in worker.policy_map}
    for agent in agents:
        whose.setdefault(trial.policy_for(agent), []).append(agent)
    return [
        f"policy {policy_id!r} acts for {mine or 'none'} of the agents {agents}, wanted one: MADDPG needs a policy for "
        "each agent"
        for policy_id, mine in whose.items()
        if len(mine) != 1
    ]
