"""The whole states of workers' policies, from one worker to others: for workers that learn themselves."""

from __future__ import annotations

from typing import Any


def policy_states(worker: Any) -> dict[str, Any]:
    """Returns the whole state of every policy of a worker, with how much it has learned."""
    return {
        pid: {**policy.get_state(), "_steps_learned": policy.steps_learned} for pid, policy in worker.policy_map.items()
    }


def set_policy_states(worker: Any, states: dict[str, Any]) -> None:
    """Puts `policy_states` into a worker's policies, which keep their own streams of exploration."""
    for pid, state in states.items():
        policy = worker.policy_map[pid]
        kept = {
            "_exploration_state": policy.get_exploration_state(),
            "_action_rng": policy._action_rng.bit_generator.state,
        }
        policy.set_state({**state, **kept})
        policy.steps_learned = int(state.get("_steps_learned", 0))
