"""Policies that come and go while a trainer runs: on all its workers, and in its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.policy.policy import Policy


class PolicyTableMixin:
    """Methods of a `Trainer` that change its table of policies."""

    workers: WorkerSet
    evaluation_workers: WorkerSet | None
    policy_class: Any

    def add_policy(  # noqa: PLR0913 - RLlib's signature, keyword-only
        self,
        policy_id: str,
        policy_cls: Any = None,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        config: Mapping[str, Any] | None = None,
        policy_state: dict[str, Any] | None = None,
        policy_mapping_fn: Any = None,
        policies_to_train: Any = None,
        evaluation_workers: bool = True,
    ) -> Policy:
        """Adds a policy to all workers.

        Args:
            policy_id: Its id.
            policy_cls: Its class; None takes the algorithm's own.
            observation_space: Space of its agents' observations; None takes the environment's.
            action_space: Space of its agents' actions; None takes the environment's.
            config: What differs from the trainer's config.
            policy_state: What another policy's `get_state()` returned; None begins anew.
            policy_mapping_fn: A new mapping of agents to policies, for agents that appear from now on; None keeps it.
            policies_to_train: New policies to learn; None keeps them.
            evaluation_workers: Whether evaluation gets it too.

        Returns:
            The local worker's policy.

        Raises:
            ValueError: If there is a policy of this id.
        """
        local = self.workers.local_worker()
        if policy_id in local.policy_map:
            raise ValueError(f"policy_id={policy_id!r}: there is one already, wanted a new id")
        spec = (policy_cls or self.policy_class, observation_space, action_space, config)
        sets = self._worker_sets(evaluation_workers)
        try:
            for workers in sets:
                workers.add_policy(policy_id, spec, policy_mapping_fn, policies_to_train, policy_state)
        except Exception:
            for workers in sets:
                if policy_id in workers.local_worker().policy_map:
                    workers.remove_policy(policy_id)
            raise
        added: Policy = local.policy_map[policy_id]
        return added

    def remove_policy(
        self,
        policy_id: str = "default_policy",
        *,
        policy_mapping_fn: Any = None,
        policies_to_train: Any = None,
        evaluation_workers: bool = True,
    ) -> None:
        """Removes a policy from all workers; running episodes are dropped.

        Args:
            policy_id: Its id.
            policy_mapping_fn: A new mapping of agents to policies; None keeps it.
            policies_to_train: New policies to learn; None keeps them.
            evaluation_workers: Whether evaluation loses it too.

        Raises:
            KeyError: If there is none of this id.
        """
        for workers in self._worker_sets(evaluation_workers):
            workers.remove_policy(policy_id, policy_mapping_fn, policies_to_train)

    def _worker_sets(self, evaluation: bool) -> list[WorkerSet]:
        others = [self.evaluation_workers] if evaluation and self.evaluation_workers is not None else []
        return [self.workers, *others]
