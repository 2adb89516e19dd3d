"""How a missing path or name of RLlib's is found: an import finder, and modules that look into the tables."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def install() -> None:
    """Makes every module of rlframe one that knows RLlib's names. Done by `import rlframe`."""
    for name, module in list(sys.modules.items()):  # those that `rlframe` has imported to be able to call this, too
        if name.partition(".")[0] == "rlframe" and type(module) is ModuleType:
            module.__class__ = Room
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


class Room(ModuleType):
    """A module of rlframe: names that it lacks, and that RLlib's module of that path had, come from the tables."""

    def __getattr__(self, name: str) -> Any:
        """Returns what a table says of a name that the module itself does not have.

        Raises:
            ImportError: With what there is instead. No AttributeError: `from module import name` would drop its text.
            AttributeError: If RLlib had no such name either.
        """
        if not name.startswith(("__", "<")):  # pickle asks for `<lambda>`
            if self._has_file(name):  # RLlib imported all of itself at once: `ray.rllib.agents.ppo.ppo.DEFAULT_CONFIG`
                return importlib.import_module(f"{self.__name__}.{name}")
            found = _look_up(self.__name__, name)
            if found is not _NOTHING:
                setattr(self, name, found)
                return found
        if "__getattr__" in self.__dict__:  # has failed already: once more for its own words
            return self.__dict__["__getattr__"](name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    @property
    def __all__(self) -> list[str]:
        """What `from module import *` takes: with the module's own names those that RLlib's module of that path had.

        NumPy and the types it had imported are among them. Names that only TensorFlow's modules have are not, where
        nobody has imported that; nor what cannot be imported.
        """
        from rlframe.rllib1x import tables

        made = getattr(vars(self).get("__getattr__"), "frameworks", {})  # policies, made when they are asked for
        rows = {**tables.rows_of(self.__name__), **made}
        found = [name for name in rows if not name.startswith("_") and self._can_be_given(name, rows[name])]
        own = {name for name in _public_names(self) if name in vars(self) or not self._loads_tf(name)}
        return sorted({*own, *found})

    def _can_be_given(self, name: str, entry: str) -> bool:
        from rlframe.rllib1x import tables

        if name == tables.EVERYTHING or tables.is_sentence(entry) or self._loads_tf(f"{name} {entry}"):
            return False
        try:
            getattr(self, name)
        except (ImportError, AttributeError):
            return False
        return True

    def _loads_tf(self, names: str) -> bool:
        return _is_of_tf(names) and not _is_of_tf(self.__name__) and "tensorflow" not in sys.modules

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """Pickles as its import, as cloudpickle does with plain modules: users' functions hold modules as globals."""
        return importlib.import_module, (self.__name__,)

    def _has_file(self, name: str) -> bool:
        """Whether a name is that of a submodule nobody has imported yet."""
        path = self.__dict__.get("__path__")
        return path is not None and _spec_of_file(f"{self.__name__}.{name}", path) is not None


class OldPath(Room):
    """A module that RLlib had, and that is only in the tables."""

    def __dir__(self) -> list[str]:
        """Returns the names that RLlib's module had, and that are somewhere."""
        return list(self.__dict__["__all__"])


class Finder:  # importlib's base class for finders takes 40 ms to import, and adds nothing
    """Finds the modules of rlframe: files first, then paths of RLlib's."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of a module below rlframe, or None.

        Raises:
            ModuleNotFoundError: If RLlib had the module and rlframe does not: with what there is instead.
        """
        if not fullname.startswith("rlframe."):
            return None
        spec = _spec_of_file(fullname, path, target)
        if spec is None:
            return _spec_of_old_path(fullname)
        spec.loader.create_module = _make_room  # type: ignore[union-attr,method-assign]  # of this one module's loader
        return spec


def _make_room(spec: ModuleSpec) -> ModuleType:
    return Room(spec.name)


def _spec_of_file(fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
    """Returns the ordinary spec; None for folders without code, such as a `__pycache__` that was left behind."""
    spec = PathFinder.find_spec(fullname, path, target)
    return spec if spec is not None and spec.has_location else None


def _spec_of_old_path(fullname: str) -> ModuleSpec | None:
    from rlframe.rllib1x import tables

    if tables.is_listed(fullname) and not tables.is_sentence(tables.rows_of(fullname).get(tables.EVERYTHING, "")):
        loader: Any = _OldPathLoader()
        is_script = fullname.endswith(".__main__")
        return ModuleSpec(fullname, loader, origin="rlframe.rllib1x", is_package=not is_script)
    answer = tables.answer_to(fullname)
    if answer is not None:
        raise ModuleNotFoundError(f"No {fullname} here: {answer}", name=fullname)
    return None


class _OldPathLoader:
    """Makes a module of a table's rows."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns an empty module."""
        return OldPath(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Names what the module has; targets are imported when they are asked for."""
        from rlframe.rllib1x import tables

        rows = tables.rows_of(module.__name__)
        names = {name for name, entry in rows.items() if not tables.is_sentence(entry) and not name.startswith("_")}
        if tables.EVERYTHING in rows:
            names |= _public_names(importlib.import_module(rows[tables.EVERYTHING]))
        module.__doc__ = "A path of RLlib 1.x; its names are those of rlframe.rllib1x's tables."
        module.__dict__["__all__"] = sorted(names - {tables.EVERYTHING})

    def get_code(self, fullname: str) -> Any:
        """Returns what `python -m rlframe.train` runs, RLlib's script of that name; None where it had no script."""
        package, _, name = fullname.rpartition(".")
        return compile(f"from {package} import main\nmain()\n", fullname, "exec") if name == "__main__" else None


def _is_of_tf(names: str) -> bool:
    return re.search(r"\btf|_tf|TF", names) is not None


def _public_names(module: ModuleType) -> set[str]:
    return set(vars(module).get("__all__") or [name for name in vars(module) if not name.startswith("_")])


_NOTHING = object()
#: Names that RLlib's modules imported, each version others: what they mean wherever they are asked for.
_ANYWHERE = "rlframe.rllib1x.anywhere"


def _look_up(module: str, name: str) -> Any:
    """Returns what a name of RLlib's stands for, `_NOTHING` where there was none.

    Raises:
        ImportError: With what there is instead.
    """
    from rlframe.rllib1x import tables

    rows = tables.rows_of(module)
    entry = rows.get(name)
    if entry is not None and tables.is_sentence(entry):
        raise ImportError(f"No {module}.{name} here: {tables.sentence_of(entry)}", name=module)
    if entry is not None:
        return _resolve(entry, name)
    everything = rows.get(tables.EVERYTHING)
    if everything is not None and not tables.is_sentence(everything):
        return getattr(importlib.import_module(everything), name, _NOTHING)
    # A module that is a file has nothing below it; pickling asks it for names of classes that were made in functions.
    if hasattr(sys.modules.get(module), "__path__") and _spec_of_old_path(f"{module}.{name}") is not None:
        return importlib.import_module(f"{module}.{name}")
    anywhere = tables.rows_of(_ANYWHERE) if module != "rlframe" else {}
    return _resolve(anywhere[name], name) if name in anywhere else _NOTHING


def _resolve(target: str, name: str) -> Any:
    """Returns what a target stands for: `module:attribute`, `module` for the same name, `module:` for the module."""
    path, colon, attribute = target.partition(":")
    module = importlib.import_module(path)
    if colon and not attribute:
        return module
    return getattr(module, attribute or name)
