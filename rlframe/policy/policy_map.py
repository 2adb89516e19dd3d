"""A worker's policies by id, of which those that were not used for longest wait on disk."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from rlframe.policy.policy import Policy
from rlframe.utils.errors import ConfigError
from rlframe.utils.state_files import read_state, write_state

#: What others set on a policy, and `get_state` does not tell.
_KEPT = ("_policy_seed", "steps_learned", "distributed_world_size")
#: The same of policies that have them: what a callback or `--plateau-reduce-factor` may have replaced.
_SCHEDULES = ("lr_schedule", "entropy_coeff_schedule")
_SCHEDULED = ("cur_lr", "entropy_coeff")


class _Entry:
    """What a map knows of one policy."""

    def __init__(self, policy_id: str, number: int, policy: Policy, rebuild: Callable[[Policy], None] | None) -> None:
        self.policy_id, self.number, self.policy, self.rebuild = policy_id, number, policy, rebuild
        self.policy_class = type(policy)
        self.path: Path | None = None  # where it waits
        self.kept: dict[str, Any] = {}
        self.scheduled: dict[str, Any] = {}
        self.learning_rate: float | None = None
        self.global_vars: Mapping[str, Any] | None = None  # what it missed while it waited


class _Waiting:
    """What a policy is while it waits on disk: whoever touches it, the map or somebody who kept it, brings it back."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":  # isinstance() asks, and would not see that the answer changes its type
            return object.__getattribute__(self, "__dict__")["entry"].policy_class
        return getattr(_brought_back(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_brought_back(self), name, value)

    def __repr__(self) -> str:
        return f"<policy {object.__getattribute__(self, '__dict__')['entry'].policy_id!r}, waiting on disk>"


def _brought_back(policy: Any) -> Any:
    waits: dict[str, Any] = object.__getattribute__(policy, "__dict__")
    waits["owner"].bring_back(waits["entry"])
    return policy


class PolicyMap(dict[str, Policy]):
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
        self._entries: dict[str, _Entry] = {}
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
            entry = _Entry(policy_id, next(self._numbers), policy, rebuild if _can_wait(policy) else None)
            self._entries[policy_id] = entry
            super().__setitem__(policy_id, policy)
            self._make_room(1)
            self._present[policy_id] = None

    def create_policy(
        self,
        policy_id: str,
        policy_cls: Callable[..., Policy],
        observation_space: Any,
        action_space: Any,
        config_override: Mapping[str, Any] | None,
        merged_config: dict[str, Any],
    ) -> None:
        """Makes a policy and takes it.

        Args:
            policy_id: Its id.
            policy_cls: Its class.
            observation_space: Space of its preprocessed observations.
            action_space: Space of its actions.
            config_override: Not used: `merged_config` has it.
            merged_config: Its whole config.
        """
        del config_override
        arguments = (observation_space, action_space, merged_config)
        self.add(policy_id, policy_cls(*arguments), rebuilder(policy_cls, arguments, lambda _: None))

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

    @property
    def in_memory(self) -> list[str]:
        """Ids of the policies that are in memory, the longest unused first."""
        return list(self._present)

    def update_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Tells all policies the global step count; those that wait hear of it when they come back."""
        with held(self):
            for policy_id, entry in self._entries.items():
                if policy_id in self._present:
                    entry.policy.on_global_var_update(global_vars)
                else:
                    entry.global_vars = dict(global_vars)

    def bring_back(self, entry: _Entry) -> None:
        """Makes of a policy that waits what it was.

        Raises:
            RuntimeError: If its files are gone: it was removed, or the trainer was stopped.
        """
        with self.lock:
            if entry.path is None:
                return
            if self._closed or self._entries.get(entry.policy_id) is not entry:
                raise RuntimeError(
                    f"policy {entry.policy_id!r} waited on disk and went with its "
                    f"{'trainer, which was stopped' if self._closed else 'removal'}: take what is needed of it before, "
                    "or raise multiagent.policy_map_capacity"
                )
            assert entry.rebuild is not None
            state, _ = read_state(entry.path)
            self._make_room(1)
            policy = entry.policy
            waits = object.__getattribute__(policy, "__dict__")
            _become(policy, entry.policy_class, {})
            try:
                entry.rebuild(policy)
                for name, value in entry.kept.items():
                    setattr(policy, name, value)
                policy.set_state(state)  # puts the values of the schedules on, as of its step count
                for name, value in entry.scheduled.items():
                    setattr(policy, name, value)
                if entry.learning_rate != _learning_rate(policy):
                    policy.set_learning_rate(entry.learning_rate)  # type: ignore[attr-defined]  # of those that learn
                if entry.global_vars is not None:
                    policy.on_global_var_update(entry.global_vars)
            except BaseException:
                _become(policy, _Waiting, waits)
                raise
            shutil.rmtree(entry.path, ignore_errors=True)
            entry.path, entry.global_vars = None, None
            self._present[entry.policy_id] = None

    def _make_room(self, count: int) -> None:
        """Sends the longest unused policies to disk until `count` more may come."""
        for policy_id in list(self._present):
            if self._closed or len(self._present) + count <= self.capacity:
                return
            entry = self._entries[policy_id]
            if entry.rebuild is not None:
                self._send_away(entry)

    def _send_away(self, entry: _Entry) -> None:
        policy: Any = entry.policy
        # A number, since an id may be anything that a file's name must not be.
        path = self._make_folder() / str(entry.number)
        if policy.exploration is not None:
            policy.exploration.restore_weights()  # of noise; what acts when it is back puts the same noise on again
        try:
            write_state(path, policy.get_state(), {"policy": entry.policy_id}, durable=False)
        except ValueError as error:
            raise ConfigError(
                f"multiagent.policy_map_capacity: got {self.capacity}, and policy {entry.policy_id!r} cannot wait on "
                f"disk: {error} Raise the capacity, or give the policy a get_state() and set_state() of plain data"
            ) from error
        own = vars(policy)
        entry.kept = {name: getattr(policy, name) for name in _KEPT} | {n: own[n] for n in _SCHEDULES if n in own}
        entry.scheduled = {name: own[name] for name in _SCHEDULED if name in own}
        entry.learning_rate = _learning_rate(policy)
        entry.path = path
        del self._present[entry.policy_id]
        _become(policy, _Waiting, {"owner": self, "entry": entry})

    def _make_folder(self) -> Path:
        if self._folder is None:
            try:
                if self._cache is not None:
                    os.makedirs(self._cache, exist_ok=True)
                self._folder = Path(tempfile.mkdtemp(prefix="rlframe-policies-", dir=self._cache))
            except OSError as error:
                raise ConfigError(
                    f"multiagent.policy_map_cache: got {self._cache!r}, wanted a folder to write policies to: {error}"
                ) from error
            # Also where nobody calls close(): when the map goes, or the process ends.
            self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def close(self) -> None:
        """Removes all files; policies that wait are gone, and none waits from now on."""
        with self.lock:
            self._closed = True
            if self._folder is not None:
                self._remove()
                self._folder = None

    # A dict of policies travels nowhere: what is sent are weights and specifications.
    __reduce__ = None  # type: ignore[assignment]


def rebuilder(
    policy_class: Any, arguments: tuple[Any, ...], attach: Callable[[Policy], None]
) -> Callable[[Policy], None] | None:
    """Returns a function that initialises a policy anew in the same object, None where its class is no class.

    Args:
        policy_class: The class, or a `functools.partial` of it.
        arguments: What it was made with.
        attach: `fn(policy)` that does what is done behind the constructor.
    """
    given: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    if isinstance(policy_class, partial):
        policy_class, given, keywords = policy_class.func, policy_class.args, policy_class.keywords
    if not isinstance(policy_class, type):
        return None
    made_by: Any = policy_class

    def rebuild(policy: Policy) -> None:
        made_by.__init__(policy, *given, *arguments, **keywords)
        policy.run_first()
        attach(policy)

    return rebuild


def held(policies: Any) -> Any:
    """Returns a context in which no policy of a map comes or goes, for threads; without policies on disk a void one."""
    return policies.lock if isinstance(policies, PolicyMap) and policies.overflows else nullcontext()


def _learning_rate(policy: Any) -> float | None:
    """Returns the rate of a policy's first optimiser, None where it has none that could be set."""
    optimizers = getattr(policy, "_optimizers", None)
    if not optimizers or not hasattr(policy, "set_learning_rate"):
        return None
    groups = getattr(optimizers[0], "param_groups", None)  # torch's
    rate = groups[0].get("lr") if groups else getattr(optimizers[0], "learning_rate", None)
    try:
        return None if rate is None else float(rate)
    except (TypeError, ValueError):  # a schedule of the optimiser's own
        return None


def _become(policy: Any, policy_class: type, attributes: dict[str, Any]) -> None:
    object.__setattr__(policy, "__class__", policy_class)
    object.__setattr__(policy, "__dict__", attributes)


def _can_wait(policy: Policy) -> bool:
    """Returns whether an object can be emptied and filled again; one with slots cannot."""
    policy_class = type(policy)
    try:
        object.__setattr__(policy, "__class__", _Waiting)
    except TypeError:
        return False
    object.__setattr__(policy, "__class__", policy_class)
    return True


__all__ = ["PolicyMap", "held", "rebuilder"]
