"""The keys of `multiagent`, and the config of each of its policies."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlframe.config.check import Inspector, Tolerance
from rlframe.config.declaration import Section, option
from rlframe.config.faults import fault_list, got, is_slip
from rlframe.config.nested_dict import lookup, same
from rlframe.config.renames import RenamedKeyWarning, Translation
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.config.options import AlgorithmConfig


def _policies_rule(value: Any) -> str | None:
    """Wants {policy id: spec}, an iterable of ids, or None."""
    ok = value is None or isinstance(value, dict | set | frozenset | list | tuple)
    return None if ok else "{policy id: PolicySpec}, a set of policy ids or None"


def _train_rule(value: Any) -> str | None:
    """Wants policy ids, a function, or None."""
    ok = value is None or callable(value) or isinstance(value, str | list | tuple | set | frozenset)
    return None if ok else "a list of policy ids, one id, a function (policy id, batch) or None"


class MultiagentConfig(Section):
    """Options of several agents and policies in one environment."""

    policies: Any = option(
        {},
        "Policies by id: a PolicySpec or (class, observation space, action space, config); or a set of ids.",
        rule=_policies_rule,
        wanted="{policy id: PolicySpec}, a set of policy ids or None",
    )
    policy_map_capacity: int = option(
        100, "Policies each worker keeps in memory; the longest unused wait on disk.", unit="policies", low=1
    )
    policy_map_cache: str | None = option(None, "Folder for the policies that wait on disk; None is a temporary one.")
    policy_mapping_fn: Any = option(
        None,
        "Chooses the policy of an agent: (agent_id, episode, worker, **kwargs) -> policy id.",
        rule=lambda value: (
            None if value is None or callable(value) else "a function (agent_id, ...) -> policy id, or None"
        ),
        wanted="a function or None",
    )
    policies_to_train: Any = option(
        None, "Ids of the policies that learn; None is all.", rule=_train_rule, wanted="a list of policy ids or None"
    )
    observation_fn: Any = option(
        None,
        "Changes the observations of all agents together before the policies see them.",
        rule=lambda value: None if value is None or callable(value) else "a function or None",
        wanted="a function or None",
    )
    replay_mode: str = option(
        "independent",
        "Policies replay each for itself, or all agents' steps of one time.",
        choices=("independent", "lockstep"),
    )
    count_steps_by: str = option(
        "env_steps", "What the sizes of fragments and batches count.", choices=("env_steps", "agent_steps")
    )

    def faults(self) -> Iterator[str]:
        """Yields what is wrong with the table of policies."""
        for policy_id in self.policies or ():
            if not isinstance(policy_id, str):
                yield f"policies: a policy id must be a string, {got(policy_id)}"
        if isinstance(self.policies, dict):
            for policy_id, spec in self.policies.items():
                yield from _spec_faults(policy_id, spec)


def _spec_faults(policy_id: Any, spec: Any) -> Iterator[str]:
    """Yields what is wrong with the specification of one policy. A PolicySpec is told by its attributes."""
    parts = tuple(spec) if isinstance(spec, list | tuple) else None
    if spec is None:
        return
    wanted = "(class, observation space, action space, config)"
    if parts is None and not hasattr(spec, "policy_class"):
        yield f"policies.{policy_id}: {got(spec)}, wanted a PolicySpec or {wanted}"
    elif parts is not None and len(parts) != 4:
        yield f"policies.{policy_id}: got {len(parts)} parts, wanted 4: {wanted}"
    else:
        config = parts[3] if parts is not None else getattr(spec, "config", None)
        if config is not None and not isinstance(config, dict):
            yield f"policies.{policy_id}: config: {got(config)}, wanted a dict of overrides or None"


def translate_policy_config(config: Mapping[str, Any], declaration: "type[AlgorithmConfig]") -> dict[str, Any]:
    """Returns the overrides of one policy under the names used here; warns of other ones.

    Raises:
        ConfigError: If a key is given under two names with different values.
    """
    translation = Translation(config, declaration.known_keys(), deprecated=declaration.deprecated_keys())
    if translation.faults:
        raise ConfigError(fault_list(fault.below(_PLACE) for fault in translation.faults))
    for sentence in translation.sentences:
        warnings.warn(f"in {_PLACE}: {sentence}", RenamedKeyWarning, stacklevel=2)
    return translation.config


def check_policy_config(
    merged: Mapping[str, Any],
    base: Mapping[str, Any],
    overridden: Iterable[str],
    declaration: "type[AlgorithmConfig]",
    *,
    allow_unknown: bool = False,
) -> dict[str, Any]:
    """Returns the keys that a policy overrides, with their values in the declared form.

    Faults between keys are not looked for: most of the config is the trainer's, which was checked as a whole. Keys that
    nobody declared are the program's own (callbacks and models find them in `policy.config`), unless they are known
    ones with a slip of the keyboard in them.

    Args:
        merged: The policy's config.
        base: What it was before the overrides: keys and values in it are good.
        overridden: The keys that it overrides.
        declaration: The keys of the policy's algorithm.
        allow_unknown: Whether keys with such slips are allowed, too.

    Raises:
        ConfigError: If a key is unknown or has a wrong value; the message lists all of them.
    """
    empty_sections = {key for key in overridden if merged[key] is None and isinstance(base.get(key), Mapping)}
    config = {key: merged[key] for key in overridden if key not in empty_sections}
    known = [key for key in declaration.known_keys() if "." not in key]
    own = {str(key) for key in overridden if not is_slip(str(key), known)}
    inspector = Inspector(declaration, Tolerance(frozenset(map(str, base)) | own, allow_unknown))
    inspector.inspect(config)
    faults = [*inspector.faults, *(f for f in declaration.unsupported_values(config) if f.key not in inspector.faulty)]
    faults = [f for f in faults if f.key and not same(lookup(merged, f.key), lookup(base, f.key, _MISSING))]
    if faults:
        raise ConfigError(fault_list(fault.below(_PLACE) for fault in faults))
    return inspector.config


_MISSING = object()
_PLACE = "PolicySpec.config"
