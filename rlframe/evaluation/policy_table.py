"""The table of policies that a config asks for: specifications, spaces, and who acts for which agent."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.config.common import CommonConfig
from rlframe.config.multiagent import check_policy_config, translate_policy_config
from rlframe.config.nested_dict import copy_containers
from rlframe.config.options import AlgorithmConfig
from rlframe.config.renames import with_other_names
from rlframe.data.sample_batch import DEFAULT_POLICY_ID
from rlframe.policy.policy_spec import PolicySpec
from rlframe.utils import merge_dicts, names
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.evaluation.agent_mapping import AgentMapping


def policy_specs(config: Mapping[str, Any], default_class: Any) -> dict[str, PolicySpec]:
    """Returns the specifications of `multiagent.policies`, each with a class; the default policy's where it is empty.

    Args:
        config: A trainer's config.
        default_class: The algorithm's policy class, for entries that name none.
    """
    table = (config.get("multiagent") or {}).get("policies") or {DEFAULT_POLICY_ID: None}
    entries = table.items() if isinstance(table, Mapping) else ((pid, None) for pid in sorted(table))
    return {pid: as_spec(entry, default_class, f"multiagent.policies.{pid}") for pid, entry in entries}


def as_spec(entry: Any, default_class: Any, where: str = "policy_class") -> PolicySpec:
    """Returns a `PolicySpec` with a class, of a spec, a tuple of its four parts, a policy class or its name, or None.

    Args:
        entry: What stands in the table.
        default_class: The class of entries that have none.
        where: The entry's place in the config, for messages.

    Raises:
        ConfigError: If a class is given by a name that finds none.
    """
    spec = PolicySpec(*entry) if isinstance(entry, (tuple, list)) else PolicySpec(policy_class=entry)
    if spec.policy_class is None:
        return spec._replace(policy_class=default_class)
    if isinstance(spec.policy_class, str):
        return spec._replace(policy_class=_named_class(spec.policy_class, where))
    return spec


def _named_class(path: str, where: str) -> Any:
    """Returns the policy class that a text names, in a config from a file."""
    try:
        return names.find(path, _POLICY_CLASS)
    except names.NameNotFoundError as error:
        raise ConfigError(
            f"{where}: got {path!r} as the policy class, but {error}; give the class itself, or 'module:Class'"
        ) from error


_POLICY_CLASS = names.Kind(
    "policy class", "a subclass of Policy", lambda found: isinstance(found, type) and hasattr(found, "learn_on_batch")
)


def policy_config(config: Mapping[str, Any], spec: PolicySpec) -> dict[str, Any]:
    """Returns the config of one policy: the trainer's, with the specification's laid on it.

    Keys that only the algorithm of the policy's class has, in a trainer of another one, get their defaults; those that
    both have (`lr`, `exploration_config`) are the trainer's. An `exploration_config` of another type replaces the
    trainer's as a whole.

    A policy's class that is the user's own may read keys that nobody declared, for the others these are faults; and it
    finds values under RLlib's old names of their keys, too.

    Args:
        config: The trainer's config.
        spec: The specification.

    Raises:
        ConfigError: If the specification has unknown keys, or wrong values.
    """
    made = _laid_on(config, spec)
    return with_other_names(made) if _is_users(spec.policy_class) else made


def _laid_on(config: Mapping[str, Any], spec: PolicySpec) -> dict[str, Any]:
    made: dict[str, Any] = copy_containers({**algorithm_defaults(spec.policy_class), **config})
    if not spec.config:  # checked as the trainer's: whoever samples only need not import the algorithm for it
        return made
    declaration = _declaration(spec.policy_class)
    given = translate_policy_config(spec.config, declaration)
    exploration, before = given.get("exploration_config"), made.get("exploration_config") or {}
    if isinstance(exploration, Mapping) and exploration.get("type") not in (None, before.get("type")):
        made["exploration_config"] = {}
    merged = merge_dicts(made, given)
    users = _is_users(spec.policy_class)
    return merged | check_policy_config(merged, made, given, declaration, allow_unknown=users)


def algorithm_defaults(policy_class: Any) -> Mapping[str, Any]:
    """Returns the defaults of a policy's algorithm, `algorithm_defaults` of the class where it has been sent them."""
    sent: Mapping[str, Any] | None = getattr(policy_class, "algorithm_defaults", None)
    if sent is not None:
        return sent
    path = getattr(policy_class, "defaults_from", None)
    if path is None:
        return {}
    module, _, name = path.partition(":")
    defaults: Mapping[str, Any] = getattr(importlib.import_module(module), name)
    return defaults


def _declaration(policy_class: Any) -> type[AlgorithmConfig]:
    """Returns what declares the keys of a policy's algorithm; the common ones where nobody says which it is."""
    path: str | None = getattr(policy_class, "defaults_from", None)
    if path is None and not _is_users(policy_class):
        package = _class_of(policy_class).__module__.rpartition(".")[0]
        path = f"{package}.{package.rpartition('.')[2]}"  # rlframe.agents.maddpg.maddpg
    return CommonConfig if path is None else _declared_in(path.partition(":")[0])


@functools.cache
def _declared_in(module: str) -> type[AlgorithmConfig]:
    """Returns the config class of an algorithm's module, the last in the line of inheritance."""
    classes = vars(importlib.import_module(module)).values()
    found = [item for item in classes if isinstance(item, type) and issubclass(item, AlgorithmConfig)]
    return max(
        (item for item in found if item.__module__ == module), key=lambda item: len(item.__mro__), default=CommonConfig
    )


def _is_users(policy_class: Any) -> bool:
    """Returns whether a policy's class is, or may be, the user's: it may read keys that nobody declared."""
    return not str(getattr(_class_of(policy_class), "__module__", "")).startswith("rlframe.agents.")


def _class_of(policy_class: Any) -> Any:
    return policy_class.func if isinstance(policy_class, functools.partial) else policy_class


def has_several(config: Mapping[str, Any]) -> bool:
    """Returns whether a config has a table of policies."""
    return bool((config.get("multiagent") or {}).get("policies"))


def space_for(spaces: Any, policy_id: str, mapping: AgentMapping, what: str) -> Any:
    """Returns the space of a policy's agents.

    Args:
        spaces: One space, or spaces by agent id; None where nothing is known.
        policy_id: The policy.
        mapping: Who acts for whom.
        what: "observation_space" or "action_space", for the message.

    Raises:
        ConfigError: If agents of the policy have different spaces, or it has no agent of which one is known.
    """
    if not isinstance(spaces, dict):  # a Dict space is a Mapping, too
        return spaces
    distinct = _distinct(spaces.values())
    if len(distinct) == 1:
        return distinct[0]
    from rlframe.evaluation.episode import Episode

    trial = Episode({}, lambda agent, episode: mapping(agent, episode, None), episode_id=0, env_id=0)
    mine = {agent: space for agent, space in spaces.items() if trial.policy_for(agent) == policy_id}
    distinct = _distinct(mine.values())
    if len(distinct) == 1:
        return distinct[0]
    found = ", ".join(f"{agent!r}: {space}" for agent, space in (mine or spaces).items())
    raise ConfigError(
        f"multiagent.policies.{policy_id}: got no {what}, and its agents have "
        f"{'different ones' if mine else 'none that policy_mapping_fn tells'} ({found}); "
        f"{'map agents of each kind to a policy of their own, or ' if mine else ''}give it in the PolicySpec"
    )


def _distinct(spaces: Any) -> list[Any]:
    found: list[Any] = []
    for space in spaces:
        if not any(space == other for other in found):
            found.append(space)
    return found
