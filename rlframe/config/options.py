"""The base of every algorithm's config, and the words to declare one: `option`, `section`, `Variants`."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from typing_extensions import Self

from rlframe.config.check import Inspector, Tolerance
from rlframe.config.declaration import Option, Section, UnsupportedValue, Variants, option, section, wanted_text
from rlframe.config.faults import Fault, fault_list, got, is_slip, other_librarys_key, shorten
from rlframe.config.nested_dict import lookup
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as _ModelMetaclass

    from rlframe.config.builder import ConfigBuilder
else:
    _ModelMetaclass = type(Section)  # pydantic's has no public name

__all__ = [
    "AlgorithmConfig",
    "Option",
    "Section",
    "UnsupportedValue",
    "Variants",
    "option",
    "section",
    "wanted_text",
]


class _Buildable(_ModelMetaclass):
    """Makes a call of a declaration begin a config: instances are made by `from_dict` alone."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any) -> Any:
        """Returns a declaration; of a class with an `__init__`, as of RLlib 1.13, one that begins configs."""
        if "__init__" not in namespace:
            return super().__new__(mcs, name, bases, namespace, **keywords)
        from rlframe.config.builder import derived_builder

        return derived_builder(name, bases[0], namespace)

    def __call__(cls, trainer_class: Any = None, /, **keys: Any) -> "ConfigBuilder":
        """Returns a config that is set group by group: `PPOConfig().training(lr=1e-4).build("CartPole-v1")`.

        Args:
            trainer_class: The trainer that `build` makes, as keyword `trainer_class` or `algo_class`; None takes the
                algorithm's own.
            **keys: Keys to begin with.

        Raises:
            ConfigError: If the algorithm has no such key.
        """
        from rlframe.config.builder import ConfigBuilder

        named = [keys.pop(name, None) for name in ("trainer_class", "algo_class")]
        declaration = cast("type[AlgorithmConfig]", cls)
        return ConfigBuilder(declaration, trainer_class or named[0] or named[1]).training(**keys)


class AlgorithmConfig(Section, metaclass=_Buildable):
    """Base declaration of an algorithm's whole config. Subclass it and declare keys with `option`.

    In the outside world a config is a plain dict; `defaults` makes one and `check` judges one. An instance is a
    frozen typed view of a checked dict, made by `from_dict`; a call of the class begins a `ConfigBuilder`.
    """

    unsupported: ClassVar[Mapping[str, UnsupportedValue]] = {}
    """By dotted key, what is refused although the key is declared."""

    derived_in_evaluation: ClassVar[frozenset[str]] = frozenset()
    """Which of `derived` hold for evaluation workers, too; the others are about learning."""

    @classmethod
    def check(cls, config: Mapping[str, Any], *, extra_keys: Collection[str] = frozenset(),
              allow_unknown: bool = False, allow_unknown_subkeys: Iterable[str] = ()) -> None:  # fmt: skip
        """Raises a ConfigError that lists all faults of a config at once.

        Args:
            config: A complete or partial config; missing keys have their defaults.
            extra_keys: Top-level keys of the user's own.
            allow_unknown: Whether any unknown top-level key is allowed.
            allow_unknown_subkeys: Top-level sections in which unknown keys are allowed.

        Raises:
            ConfigError: If anything is wrong; one line for each fault.
        """
        tolerance = Tolerance(frozenset(extra_keys), allow_unknown, frozenset(allow_unknown_subkeys))
        inspector = cls.inspect(config, tolerance)
        if inspector.faults:
            raise ConfigError(fault_list(inspector.faults))

    @staticmethod
    def overrides(**keys: Any) -> dict[str, Any]:
        """Returns the keys as a dict, as RLlib 2.x's programs say `evaluation_config` and configs of policies."""
        return keys

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> Self:
        """Returns the frozen typed view of a config; unknown keys are faults, missing ones have their defaults.

        Raises:
            ConfigError: If anything is wrong; one line for each fault.
        """
        inspector = cls.inspect(config, Tolerance())
        if inspector.faults:
            raise ConfigError(fault_list(inspector.faults))
        assert isinstance(inspector.view, cls)
        return inspector.view

    def derived(self) -> dict[str, Any]:
        """Returns, by key, what workers and plans read in place of what was asked for: values that others imply."""
        return {}

    @classmethod
    def effective(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a config as workers and plans read it, with derived values; `config` itself keeps what was asked."""
        if cls.derived is AlgorithmConfig.derived:
            return dict(config)
        inspector = Inspector(cls, Tolerance(allow_unknown=True))
        inspector.inspect(config)  # without its overrides for evaluation: nothing is derived from them
        assert isinstance(inspector.view, cls)
        return {**config, **inspector.view.derived()}

    @classmethod
    def effective_in_evaluation(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the config of evaluation workers as they read it."""
        derived = cls.effective(config) if cls.derived_in_evaluation else {}
        return {**config, **{key: derived[key] for key in cls.derived_in_evaluation}}

    @classmethod
    def inspect(cls, config: Mapping[str, Any], tolerance: Tolerance) -> Inspector:
        """Returns the finished inspection of a config: converted values, faults and remarks."""
        inspector = Inspector(cls, tolerance)
        inspector.inspect(config)
        _inspect_overrides(cls, inspector, tolerance)
        return inspector

    @classmethod
    def unsupported_values(cls, config: Mapping[str, Any]) -> list[Fault]:
        """Returns the faults of values that this version does not honour."""
        return [
            Fault(dotted, f"{got(value)}, not available in this version: {refusal.sentence}")
            for dotted, value, refusal in cls._not_honoured(config)
            if not refusal.harmless
        ]

    @classmethod
    def without_effect(cls, config: Mapping[str, Any], own_code: bool = False) -> list[str]:
        """Returns a remark on each value that this version does not honour, and that the run is the same without.

        Args:
            config: The config.
            own_code: Whether a plan or policy of the program's own may read it.
        """
        return [
            f"{dotted}={shorten(value)} has no effect: {refusal.sentence}"
            for dotted, value, refusal in cls._not_honoured(config)
            if refusal.harmless and not (own_code and refusal.read_by_own_code)
        ]

    @classmethod
    def _not_honoured(cls, config: Mapping[str, Any]) -> Iterator[tuple[str, Any, UnsupportedValue]]:
        missing = object()
        for dotted, refusal in cls.unsupported.items():
            value = lookup(config, dotted, missing)
            if value is not missing and refusal.refuses(value):
                yield dotted, value, refusal


def _inspect_overrides(cls: type[AlgorithmConfig], inspector: Inspector, tolerance: Tolerance) -> None:
    """Checks dicts that override the whole config (evaluation_config), laid over the config they override."""
    inspector.faults += [
        fault for fault in cls.unsupported_values(inspector.config) if fault.key not in inspector.faulty
    ]
    inspector.remarks += cls.without_effect(inspector.config, tolerance.own_code)
    known_faults = set(inspector.faults)
    for key, declared in cls.options().items():
        overrides = inspector.config.get(key)
        if not declared.overrides or not isinstance(overrides, dict) or not overrides:
            continue
        own = _own_keys(cls, overrides)
        inner = Inspector(cls, replace(tolerance, extra_keys=tolerance.extra_keys | own))
        inner.inspect_overrides(inspector.config, key)
        inspector.remarks += [
            f"{key}.{name}: unknown key, kept for the program's own code" for name in sorted(own - tolerance.extra_keys)
        ]
        inner.faults += [fault for fault in cls.unsupported_values(inner.config) if fault.key not in inner.faulty]
        inspector.faults += [fault.below(key) for fault in inner.faults if fault not in known_faults]
        inspector.adopt_overrides(key, inner)


def _own_keys(cls: type[AlgorithmConfig], overrides: Mapping[str, Any]) -> frozenset[str]:
    """Returns the keys of overrides that a program reads itself: those that nothing declares, and no slips of others.

    RLlib took any key into evaluation_config, and custom evaluation functions read theirs there.
    """
    known = cls.known_keys()
    return frozenset(
        str(key)
        for key in overrides
        if key not in known and not is_slip(str(key), known) and not other_librarys_key(str(key), known)
    )
