"""A worker's policies by id: which of them learn, and which wait on disk because they were not used for longest."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rlframe.policy.policy import Policy
from rlframe.policy.waiting_policies import Entry, WaitingPolicies, can_wait


class PolicyMap(WaitingPolicies, dict[str, Policy]):
    """Policies by id; at most `capacity` of them are in memory, the others wait on disk.

    A policy that waits is a directory of arrays and JSON, as in a checkpoint, and how it was made. It comes back, to
    where it was, when somebody uses it: the object stays the same one all the while, so that also who has kept it has
    the policy itself. What comes back is what `get_state` tells and `set_state` takes, and the schedules and learning
    rate that it had last; attributes of other kinds that a user's class collects are lost, and layers that policies
    share through a global must not wait (each policy would bring its own old copy of them back).

    Args:
        capacity: Policies in memory, 1 or more.
        cache: Folder for those that wait; a temporary one when None. Each map makes a folder of its own in it.
        worker_index: Not used, as the next one: they named RLlib's variable scopes.
        num_workers: Not used.
        path: Another name of `cache`.
        policy_config: Not used: `create_policy` gets each policy's whole config.
        session_creator: Not used: there are no sessions.
        seed: Not used: a policy's config has its own.

    Raises:
        ConfigError: If the folder cannot be made.
    """

    def __init__(
        self,
        capacity: int = 100,
        cache: str | None = None,
        *,
        worker_index: int = 0,
        num_workers: int = 0,
        path: str | None = None,
        policy_config: Mapping[str, Any] | None = None,
        session_creator: Any = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        del worker_index, num_workers, policy_config, session_creator, seed
        cache = path if cache is None else cache
        self.capacity = capacity
        #: Held while policies come and go. Who uses a policy in a thread of its own holds it, too.
        self.lock = threading.RLock()
        self._cache = cache
        self._entries: dict[str, Entry] = {}
        self._numbers = itertools.count()
        self._present: OrderedDict[str, None] = OrderedDict()  # by id, the longest unused first
        self._folder: Path | None = None
        self._closed = False
        if cache is not None:
            self._make_folder()

    # --- the table ---------------------------------------------------------------------------------------------

    def add(self, policy_id: str, policy: Policy, rebuild: Callable[[Policy], None] | None = None) -> None:
        """Takes a policy.

        Args:
            policy_id: Its id.
            policy: The policy.
            rebuild: `fn(policy)` that initialises it anew, see `rebuilder`; None keeps it in memory for good.
        """
        with self.lock:
            entry = Entry(policy_id, next(self._numbers), policy, rebuild if can_wait(policy) else None)
            self._entries[policy_id] = entry
            super().__setitem__(policy_id, policy)
            self._make_room(1)
            self._present[policy_id] = None

    def __setitem__(self, policy_id: str, policy: Policy) -> None:
        self.add(policy_id, policy)

    def __getitem__(self, policy_id: str) -> Policy:
        policy = super().__getitem__(policy_id)
        self._touch(policy_id)
        return policy

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a policy, `default` for an unknown id."""
        self._touch(key)
        return super().get(key, default)

    def pop(self, policy_id: str, *default: Any) -> Any:
        """Takes a policy out; one that waits is gone with its files."""
        with self.lock:
            entry = self._entries.pop(policy_id, None)
            self._present.pop(policy_id, None)
            if entry is not None and entry.path is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
            return super().pop(policy_id, *default)

    def __delitem__(self, policy_id: str) -> None:
        self[policy_id]  # an unknown id is a KeyError
        self.pop(policy_id)

    def _touch(self, policy_id: str) -> None:
        if not self.overflows:
            return
        with self.lock:
            if policy_id in self._present:
                self._present.move_to_end(policy_id)

    # --- in memory, and on disk --------------------------------------------------------------------------------

    @property
    def overflows(self) -> bool:
        """Whether there are more policies than may be in memory."""
        return len(self) > self.capacity

    def update_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Tells all policies the global step count; those that wait hear of it when they come back."""
        with held(self):
            for policy_id, entry in self._entries.items():
                if policy_id in self._present:
                    entry.policy.on_global_var_update(global_vars)
                else:
                    entry.global_vars = dict(global_vars)

    # A dict of policies travels nowhere: what is sent are weights and specifications.
    __reduce__ = None  # type: ignore[assignment]


class TrainedPolicies:
    """Which policies learn, by `multiagent.policies_to_train`: ids, one id, a function `(id, batch) -> bool`, or None.

    Args:
        wanted: The config's value.
    """

    def __init__(self, wanted: Any = None) -> None:
        self.wanted = [wanted] if isinstance(wanted, str) else wanted

    def __call__(self, policy_id: str, batch: Any = None) -> bool:
        """Returns whether a policy learns from a batch."""
        if self.wanted is None:
            return True
        return bool(self.wanted(policy_id, batch)) if callable(self.wanted) else policy_id in self.wanted


def held(policies: Any) -> Any:
    """Returns a context in which no policy of a map comes or goes, for threads; without policies on disk a void one."""
    return policies.lock if isinstance(policies, PolicyMap) and policies.overflows else nullcontext()


__all__ = ["PolicyMap", "TrainedPolicies", "held"]
