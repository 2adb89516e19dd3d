"""Merging a user's config into defaults, checked against a declaration."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args, get_origin

from rlframe.config.check import Tolerance
from rlframe.config.common import CommonConfig
from rlframe.config.convert import kinds_of, parse_number, spells_number
from rlframe.config.declaration import Option, Section
from rlframe.config.faults import Fault, fault_list, got, unknown_key
from rlframe.config.nested_dict import TYPED_SECTIONS, overlay
from rlframe.config.options import AlgorithmConfig
from rlframe.config.renames import RenamedKeyWarning, Translation, translate_renames
from rlframe.utils.errors import ConfigError

__all__ = [
    "FREE_FORM",
    "RenamedKeyWarning",
    "merge_configs",
    "parse_number",
    "read_numbers",
    "translate_renames",
    "with_common_config",
]

FREE_FORM = frozenset(
    {
        "tf_session_args", "local_tf_session_args", "env_config", "model", "optimizer", "multiagent",
        "custom_resources_per_worker", "evaluation_config", "exploration_config", "replay_buffer_config",
        "extra_python_environs_for_driver", "extra_python_environs_for_worker", "input_config", "logger_config",
    }
)  # fmt: skip
"""Sections that take any key where there is no declaration to check them by."""


_NONE_SAYS_NOTHING = frozenset(
    {
        "framework", "input", "collect_metrics_timeout", "compress_observations", "eager_max_retraces", "log_level",
        "num_cpus_for_driver", "num_cpus_per_worker", "num_gpus_per_worker", "optimizer", "output_compress_columns",
        "output_max_file_size", "placement_strategy", "remote_env_batch_wait_ms", "shuffle_buffer_size",
        "simple_optimizer", "final_prioritized_replay_beta", "prioritized_replay_beta_annealing_timesteps",
    }
)  # fmt: skip
"""Keys that RLlib took None for, as it asked whether they are true, or never read them."""

_READ_WITH = {
    "v_min": "num_atoms", "v_max": "num_atoms", "sigma0": "noisy", "prioritized_replay_alpha": "prioritized_replay",
    "prioritized_replay_beta": "prioritized_replay", "prioritized_replay_eps": "prioritized_replay",
}  # fmt: skip
"""Keys that RLlib took None for where another one, whose name is the value, is off: nothing reads them then."""


def merge_configs(  # noqa: PLR0913 - all but the first three say what is allowed
    defaults: Mapping[str, Any],
    overrides: Mapping[str, Any] | None,
    declaration: type[AlgorithmConfig] | None = None,
    *,
    allow_unknown: bool = False,
    allow_unknown_subkeys: Iterable[str] = (),
    override_all_if_type_changes: Iterable[str] = TYPED_SECTIONS,
    own_code: bool = False,
) -> dict[str, Any]:
    """Returns a new config: `defaults` with `overrides` laid on them, all values checked and in their declared form.

    Args:
        defaults: A whole config. Keys in it that the declaration lacks are the user's own, and allowed.
        overrides: What the user wants to differ. Neither dict is changed.
        declaration: Declares keys, types and bounds; None checks only that top-level keys exist in `defaults`.
        allow_unknown: Whether unknown top-level keys are allowed.
        allow_unknown_subkeys: Sections in which unknown keys are allowed.
        override_all_if_type_changes: Sections replaced as a whole when `overrides` gives them another `type`.
        own_code: Whether a plan or policy of the program's own may read what built-in ones do not.

    Raises:
        ConfigError: If anything is wrong; the message lists all faults.
    """
    if not isinstance(overrides, dict | Mapping | None):
        raise ConfigError(fault_list([Fault("", f"{got(overrides)} as the config, wanted a dict")]))
    typed = tuple(override_all_if_type_changes)
    if declaration is None:
        return _merge_undeclared(defaults, overrides or {}, allow_unknown, frozenset(allow_unknown_subkeys), typed)
    base, faults, _ = _translate(defaults, (), declaration)
    declared = declaration.defaults()
    given = _without_empty(base, declaration)
    base = {key: _typed(given[key], declared.get(key)) if key in given else declared[key] for key in base}
    own = frozenset(map(str, base)) - frozenset(declaration.options())
    originals = (base, defaults, declared, CommonConfig.defaults())  # as they are; as written; with MODEL_DEFAULTS
    over, conflicts, written = _translate(
        overrides or {}, own, declaration, originals=originals, keeps_own=allow_unknown
    )
    merged = overlay(base, _without_empty(over, declaration), typed)
    tolerance = Tolerance(own, allow_unknown, frozenset(allow_unknown_subkeys), typed, own_code)
    inspector = declaration.inspect(merged, tolerance)
    if faults or conflicts or inspector.faults:
        found = [fault.as_written(written) for fault in inspector.faults]
        raise ConfigError(fault_list(faults + conflicts + found))
    for remark in inspector.remarks:
        warnings.warn(remark, UserWarning, stacklevel=2)
    return inspector.config


def with_common_config(extra_config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the common defaults with `extra_config` laid on them, new keys included: defaults for a user's algorithm.

    Values are checked when a trainer is made with them.
    """
    translation = Translation(
        extra_config, CommonConfig.known_keys(), deprecated=CommonConfig.deprecated_keys(), keeps_own=True
    )
    if translation.faults:
        raise ConfigError(fault_list(translation.faults))
    _warn(translation.sentences, stacklevel=3)
    return overlay(CommonConfig.defaults(), translation.config)


def read_numbers(config: Mapping[str, Any], declaration: type[Section]) -> dict[str, Any]:
    """Returns a config with text read as a number where only a number is declared, as in YAML's 1e-4.

    For command lines and YAML files; a config from Python is taken as it is.
    """
    options, annotations = declaration.options(), declaration.annotations()
    return {key: _read(value, options[key], annotations[key], declaration) if key in options else value
            for key, value in config.items()}  # fmt: skip


def _read(value: Any, declared: Option, annotation: Any, declaration: type[Section]) -> Any:
    """Returns the value of one key with its text read as numbers."""
    form: type[Section] | None = declaration if declared.overrides else declared.section
    if declared.variants is not None and isinstance(value, dict):
        form = declared.variants.sections.get(str(value.get("type")))
    if isinstance(value, dict):
        return read_numbers(value, form) if form is not None else value
    if isinstance(value, list):
        return [
            _read(item, declared, get_args(annotation)[0], declaration) if get_args(annotation) else item
            for item in value
        ]
    kinds = kinds_of(annotation)
    return parse_number(value) if spells_number(value) and {int, float} & set(kinds) and str not in kinds else value


def _translate(
    config: Mapping[str, Any],
    own: Iterable[str],
    declaration: type[AlgorithmConfig],
    originals: Sequence[Mapping[str, Any]] = (),
    keeps_own: bool = True,
) -> tuple[dict[str, Any], list[Fault], dict[str, str]]:
    """Returns a config with the names used here, in its overrides for evaluation too; warns. No originals: it is one.

    Conflicts come with it, and the other names that were written, by the names used here. `keeps_own` is as in
    `Translation`.
    """
    known = declaration.known_keys() | set(own)
    deprecated = declaration.deprecated_keys()
    more: Any = {"deprecated": deprecated, "originals": originals, "keeps_own": keeps_own}
    translation = Translation(config, known, other_name_wins=not originals, **more)
    translated, sentences, faults = translation.config, translation.sentences, translation.faults
    written = dict(translation.written)
    for key, declared in declaration.options().items():
        if declared.overrides and isinstance(translated.get(key), dict):
            inner = Translation(translated[key], known, **more)
            translated[key] = inner.config
            sentences += [f"in {key}: {sentence}" for sentence in inner.sentences]
            faults += [fault.below(key) for fault in inner.faults]
            written |= {f"{key}.{here}": f"{key}.{there}" for here, there in inner.written.items()}
    _warn(sentences, stacklevel=4)
    return translated, faults, written


def _warn(sentences: Iterable[str], stacklevel: int) -> None:
    """Warns once for each sentence, at the caller of the public function."""
    for sentence in sentences:
        warnings.warn(sentence, RenamedKeyWarning, stacklevel=stacklevel)


def _without_empty(overrides: dict[str, Any], declaration: type[AlgorithmConfig]) -> dict[str, Any]:
    """Returns a config without what is None and says nothing: sections, other dicts, and keys that RLlib took so.

    A YAML file with an empty `env_config:` says None. RLlib took `framework: None` for policies that need none of
    them, such as those in NumPy.
    """
    options, annotations = declaration.options(), declaration.annotations()
    # SAC and DDPG have rates of their own for each network, and do not read `lr`.
    nothing = _NONE_SAYS_NOTHING | ({"lr"} if options.keys() & {"optimization", "critic_lr"} else set())

    def says_nothing(key: str) -> bool:
        is_dict = all((get_origin(kind) or kind) is dict for kind in kinds_of(annotations[key]))
        return bool(options[key].section or options[key].overrides or is_dict or key in nothing or is_off(key))

    def is_off(key: str) -> bool:
        switch = _READ_WITH.get(key, "")
        if switch not in options:
            return False
        value = overrides.get(switch, options[switch].default)
        return value is not True and not (isinstance(value, int) and value > 1)

    return {
        key: value
        for key, value in overrides.items()
        if value is not None or key not in options or not says_nothing(key)
    }


def _typed(section: Any, declared: Any) -> Any:
    """Returns a default section that says no `type` laid on the declared one, as where only an old key made it."""
    typeless = isinstance(section, dict) and "type" not in section and isinstance(declared, dict) and "type" in declared
    return overlay(declared, section) if typeless else section


def _merge_undeclared(
    defaults: Mapping[str, Any],
    overrides: Mapping[str, Any],
    allow_unknown: bool,
    open_sections: frozenset[str],
    typed: tuple[str, ...],
) -> dict[str, Any]:
    """Returns the merged config where only the defaults say which keys there are."""
    known = set(map(str, defaults)) | {f"{key}.{sub}" for key, value in defaults.items() for sub in _keys(value)}
    unknown = [(str(key), "") for key in overrides if str(key) not in known and not allow_unknown]
    for key, value in overrides.items():
        if isinstance(defaults.get(key), dict) and key not in FREE_FORM | open_sections:
            unknown += [(sub, f"{key}.") for sub in _keys(value) if f"{key}.{sub}" not in known]
    if unknown:
        raise ConfigError(fault_list(unknown_key(key, prefix, known, ()) for key, prefix in unknown))
    return overlay(defaults, overrides, typed)


def _keys(value: Any) -> list[str]:
    """Returns the keys of a dict as text; anything else has none."""
    return [str(key) for key in value] if isinstance(value, dict) else []
