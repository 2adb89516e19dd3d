"""Objects by their dotted name: the one place that imports what a config, a command line or a file names.

A name that the program or its user gives is imported, and is what it should be, before anything calls it. A name that a
file gives (a checkpoint, a run directory) is only imported where that runs no code of anybody else's: it is one of
rlframe's own, or the program gave the same name itself. `from_file` says that names come from a file, `trusting` that
they are trusted all the same. Short names never come here: they are looked up in registries.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from rlframe.utils.errors import CheckpointError, ConfigError

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*([.:][^\W\d]\w*)")
_FILE = re.compile(r"(.+\.py):([^\W\d]\w*)")
_OWN = "rlframe"
_OF_RLLIB = "ray.rllib."


class NameNotFoundError(ConfigError):
    """There is no such module, or nothing of that name in it."""


@dataclass(frozen=True)
class Kind:
    """What a name shall stand for.

    Attributes:
        word: In a message: "exploration".
        wanted: What fits: "a subclass of Exploration".
        fits: Whether an object does. It must not call it.
    """

    word: str
    wanted: str
    fits: Callable[[Any], bool]


def subclasses_of(cls: type, word: str | None = None) -> Kind:
    """Returns the kind of names that stand for a class and its subclasses."""
    return Kind(
        word or cls.__name__,
        f"a subclass of {cls.__name__}",
        lambda found: isinstance(found, type) and issubclass(found, cls),
    )


@dataclass(frozen=True)
class Gate:
    """Where names come from, and which of them the program gave itself.

    Attributes:
        source: The file, in a message.
        known: Names that the program gave itself.
        advice: What to do about a name that is refused.
    """

    source: str
    known: frozenset[str]
    advice: str

    def refuse(self, what: str) -> CheckpointError:
        """Returns the error for something that would run code."""
        return CheckpointError(
            f"{self.source} names {what}: that is neither built in nor given by this program, and would run code that "
            f"came with the file. {self.advice}"
        )


_here: ContextVar[tuple[Gate, ...]] = ContextVar("names_from_files", default=())
_trusted: ContextVar[bool] = ContextVar("names_trusted", default=False)
_everywhere: list[Gate] = []


def gates() -> tuple[Gate, ...]:
    """Returns the gates that hold here; none where names are the program's own."""
    return () if _trusted.get() else (*_everywhere, *_here.get())


def process_gates() -> tuple[Gate, ...]:
    """Returns those that hold in the whole process, and in processes that it starts."""
    return () if _trusted.get() else tuple(_everywhere)


@contextlib.contextmanager
def under(former: tuple[Gate, ...]) -> Iterator[None]:
    """A context with the gates of an earlier moment: what a file said then is still the file's word."""
    token = _here.set((*_here.get(), *former))
    try:
        yield
    finally:
        _here.reset(token)


@contextlib.contextmanager
def from_file(source: str, advice: str, known: frozenset[str] = frozenset()) -> Iterator[None]:
    """A context, of this thread, in which names come from a file. Without effect within `trusting`."""
    token = _here.set((*_here.get(), Gate(source, known, advice)))
    try:
        yield
    finally:
        _here.reset(token)


@contextlib.contextmanager
def process_from_file(source: str, advice: str) -> Iterator[None]:
    """The same for all threads of this process, and for the workers that it starts."""
    gate = Gate(source, frozenset(), advice)
    _everywhere.append(gate)
    try:
        yield
    finally:
        _everywhere.remove(gate)


@contextlib.contextmanager
def trusting() -> Iterator[None]:
    """A context, of this thread, in which names from files are imported like the program's own."""
    token = _trusted.set(True)
    try:
        yield
    finally:
        _trusted.reset(token)


def install(received: tuple[Gate, ...]) -> None:
    """Makes the gates of the driver's process those of this one, a worker's, for as long as it lives."""
    _everywhere[:] = received


def check_place(path: str, key: str) -> None:
    """Checks that a place to write to is the program's own word.

    Args:
        path: The place.
        key: The config's key that names it.

    Raises:
        CheckpointError: If a file named it, and the program did not.
    """
    for gate in gates():
        if path not in gate.known:
            raise CheckpointError(
                f"{gate.source} asks to write into {path!r}, which this program did not name; give {key!r} in the "
                f"config, None to write nothing. {gate.advice}"
            )


def texts_in(value: Any) -> frozenset[str]:
    """Returns all texts in nested dicts and lists: what a program's config names."""
    if isinstance(value, str):
        return frozenset([value])
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return frozenset().union(*map(texts_in, items))


def spells_path(name: str) -> bool:
    """Returns whether a text could be a dotted name: "package.module.Class" or "package.module:Class"."""
    return _PATH.fullmatch(name) is not None


def spells_file(name: str) -> bool:
    """Returns whether a text names something in a file: "path/to/file.py:Class"."""
    return _FILE.fullmatch(name) is not None


#: Keys of a config whose texts are names, wherever they stand; and those whose values run code in another way.
_NAMING = frozenset({"algorithm", "env", "type", "custom_model", "custom_action_dist", "custom_preprocessor"})
_RUNNING = frozenset({"extra_python_environs_for_driver", "extra_python_environs_for_worker"})
#: Keys below which everything belongs to an environment or a model.
_FREE = frozenset({"env_config", "custom_model_config", "custom_options"})


def foreign(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields what of a config from a file would be refused, as "key: name", for a message that lists it all.

    Only for the message: what is imported is decided where it is.
    """
    for key, value in config.items():
        if key in _FREE:
            continue
        if isinstance(value, Mapping) and key not in _RUNNING:
            yield from foreign(value, f"{prefix}{key}.")
        elif (key in _RUNNING and value) or (key in _NAMING and isinstance(value, str) and _is_foreign(value)):
            yield f"{prefix}{key}: {value if isinstance(value, str) else ', '.join(map(str, value))}"


def _is_foreign(name: str) -> bool:
    if spells_file(name):
        return True
    return (":" in name or spells_path(name)) and name.partition(":")[0].split(".")[0] != _OWN


def check(what: str, name: str | None = None) -> None:
    """Raises where something that runs code comes from a file.

    Args:
        what: What it is, with the name: "the environment 'os:system'".
        name: The name itself, which the program may have given as well.

    Raises:
        CheckpointError: If so.
    """
    for gate in gates():
        if name is None or name not in gate.known:
            raise gate.refuse(what)


def find(path: str, kind: Kind) -> Any:
    """Returns what a dotted name stands for.

    Args:
        path: "package.module.Class", "package.module:Class" or "path/to/file.py:Class".
        kind: What it shall be.

    Raises:
        NameNotFoundError: If there is no such module, or nothing of that name in it.
        ConfigError: If the module cannot be imported, or what it has there is something else.
        CheckpointError: If the name comes from a file, and is neither built in nor the program's own.
    """
    if path.startswith(_OF_RLLIB):  # in a file of configs, where nobody replaces imports
        from rlframe.utils.deprecation import deprecation_warning

        deprecation_warning(path, path := f"{_OWN}.{path.removeprefix(_OF_RLLIB)}")
    file = _FILE.fullmatch(path)
    if file is not None:
        check(f"the {kind.word} {path!r}", path)
        return _fitting(path, kind, getattr(_load_file(file[1]), file[2], None), f"{file[1]} has no {file[2]!r}")
    module_name, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not spells_path(path):
        raise NameNotFoundError(f"{path!r} is no dotted name such as 'package.module.Class'")
    own = module_name.split(".")[0] == _OWN
    if not own:
        check(f"the {kind.word} {path!r}", path)
    found = getattr(_import(module_name), name, None)
    if own and found is not None and not _is_own_class(found):  # a function, or what a module of ours has imported
        check(f"the {kind.word} {path!r}", path)
    return _fitting(path, kind, found, f"module {module_name!r} has no {name!r}")


def _fitting(path: str, kind: Kind, found: Any, missing: str) -> Any:
    """Returns what was found, if it is there and of the kind."""
    if found is None:
        raise NameNotFoundError(missing)
    if not kind.fits(found):
        what = f"the class {found.__name__}" if isinstance(found, type) else f"of type {type(found).__name__}"
        raise ConfigError(f"{kind.word}: {path!r} is {what}; wanted the name of {kind.wanted}")
    return found


def _is_own_class(found: Any) -> bool:
    return isinstance(found, type) and found.__module__.split(".")[0] == _OWN


def _import(module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A dependency that the module itself lacks is another mistake than a wrong name.
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise NameNotFoundError(f"there is no module {error.name!r}") from error
        raise ConfigError(f"importing {module_name!r} failed: {error}") from error
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        text = " ".join(str(error).split())
        raise ConfigError(f"importing {module_name!r} failed: {type(error).__name__}: {text}") from error


def _load_file(file: str) -> Any:
    """Returns the module in a file, the same one for the same file.

    It is not among the imported modules when this is done: what it defines then travels to workers by value, which have
    no such module.
    """
    path = os.path.realpath(file)
    if path in _loaded:
        return _loaded[path]
    if not os.path.isfile(path):
        raise NameNotFoundError(f"there is no file {file!r}")
    name = f"_rlframe_file_{os.path.basename(path)[:-3]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise NameNotFoundError(f"{file!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for it there
    if os.path.dirname(path) not in sys.path:
        sys.path.insert(0, os.path.dirname(path))  # as `python file.py` does, for the modules beside it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever it does when it is loaded
        text = " ".join(str(error).split())
        raise ConfigError(f"importing {file!r} failed: {type(error).__name__}: {text}") from error
    finally:
        del sys.modules[name]
    _loaded[path] = module
    return module


_loaded: dict[str, Any] = {}


def import_for_side_effects(module_name: str, what: str, name: str) -> None:
    """Imports the module that registers something: `module:Env-v0`.

    Args:
        module_name: The module.
        what: What names it, for the message.
        name: The whole name, which the program may have given itself.

    Raises:
        ConfigError: If there is no such module, or it cannot be imported.
        CheckpointError: If the name comes from a file, and the program has not imported the module.
    """
    if module_name not in sys.modules and module_name.split(".")[0] != _OWN:
        check(what, name)
    _import(module_name)
