"""How a policy waits on disk: as a folder of arrays and JSON, and an object that comes back when it is touched."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
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


class Entry:
    """What a map knows of one policy."""

    def __init__(self, policy_id: str, number: int, policy: Policy, rebuild: Callable[[Policy], None] | None) -> None:
        self.policy_id, self.number, self.policy, self.rebuild = policy_id, number, policy, rebuild
        self.policy_class = type(policy)
        self.path: Path | None = None  # where it waits
        self.kept: dict[str, Any] = {}
        self.scheduled: dict[str, Any] = {}
        self.learning_rate: float | None = None
        self.global_vars: Mapping[str, Any] | None = None  # what it missed while it waited

    def store(self, path: Path, owner: Any) -> None:
        """Writes the policy to a folder, and leaves a `_Waiting` in its place.

        Args:
            path: The folder.
            owner: The map, whose `bring_back` is called by who touches the policy.

        Raises:
            ValueError: If its state is no plain data.
        """
        policy: Any = self.policy
        if policy.exploration is not None:
            policy.exploration.restore_weights()  # of noise; what acts when it is back puts the same noise on again
        write_state(path, policy.get_state(), {"policy": self.policy_id}, durable=False)
        own = vars(policy)
        self.kept = {name: getattr(policy, name) for name in _KEPT} | {n: own[n] for n in _SCHEDULES if n in own}
        self.scheduled = {name: own[name] for name in _SCHEDULED if name in own}
        self.learning_rate = _learning_rate(policy)
        self.path = path
        become(policy, _Waiting, {"owner": owner, "entry": self})

    def restore(self, state: dict[str, Any]) -> None:
        """Makes of the policy that waits what it was, and drops its files; `state` is what these say."""
        assert self.rebuild is not None
        assert self.path is not None
        policy = self.policy
        waits = object.__getattribute__(policy, "__dict__")
        become(policy, self.policy_class, {})
        try:
            self.rebuild(policy)
            for name, value in self.kept.items():
                setattr(policy, name, value)
            policy.set_state(state)  # puts the values of the schedules on, as of its step count
            for name, value in self.scheduled.items():
                setattr(policy, name, value)
            if self.learning_rate != _learning_rate(policy):
                policy.set_learning_rate(self.learning_rate)  # type: ignore[attr-defined]  # of those that learn
            if self.global_vars is not None:
                policy.on_global_var_update(self.global_vars)
        except BaseException:
            become(policy, _Waiting, waits)
            raise
        shutil.rmtree(self.path, ignore_errors=True)
        self.path, self.global_vars = None, None


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


def become(policy: Any, policy_class: type, attributes: dict[str, Any]) -> None:
    """Makes an object one of another class, with other attributes; who has it keeps it."""
    object.__setattr__(policy, "__class__", policy_class)
    object.__setattr__(policy, "__dict__", attributes)


def can_wait(policy: Policy) -> bool:
    """Returns whether an object can be emptied and filled again; one with slots cannot."""
    policy_class = type(policy)
    try:
        object.__setattr__(policy, "__class__", _Waiting)
    except TypeError:
        return False
    object.__setattr__(policy, "__class__", policy_class)
    return True


class WaitingPolicies:
    """The part of a `PolicyMap` that sends policies to disk and brings them back."""

    capacity: int
    lock: Any
    _cache: str | None
    _entries: dict[str, Entry]
    _present: OrderedDict[str, None]
    _folder: Path | None
    _closed: bool
    add: Any  # a method of the map

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

    def became_another(self, policy_id: str, rebuild: Callable[[Policy], None]) -> None:
        """Takes notice that a policy, in memory, is of another class now, which `rebuild(policy)` initialises anew."""
        entry = self._entries[policy_id]
        entry.policy_class = type(entry.policy)
        entry.rebuild = rebuild if can_wait(entry.policy) else None

    @property
    def in_memory(self) -> list[str]:
        """Ids of the policies that are in memory, the longest unused first."""
        return list(self._present)

    def bring_back(self, entry: Entry) -> None:
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
            state, _ = read_state(entry.path)
            self._make_room(1)
            entry.restore(state)
            self._present[entry.policy_id] = None

    def _make_room(self, count: int) -> None:
        """Sends the longest unused policies to disk until `count` more may come."""
        for policy_id in list(self._present):
            if self._closed or len(self._present) + count <= self.capacity:
                return
            entry = self._entries[policy_id]
            if entry.rebuild is not None:
                self._send_away(entry)

    def _send_away(self, entry: Entry) -> None:
        # A number, since an id may be anything that a file's name must not be.
        path = self._make_folder() / str(entry.number)
        try:
            entry.store(path, self)
        except ValueError as error:
            raise ConfigError(
                f"multiagent.policy_map_capacity: got {self.capacity}, and policy {entry.policy_id!r} cannot wait on "
                f"disk: {error} Raise the capacity, or give the policy a get_state() and set_state() of plain data"
            ) from error
        del self._present[entry.policy_id]

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
        policy.notice_own_parts()
        policy.choose_inference()
        policy.run_first()
        attach(policy)

    return rebuild
