"""Makes `ray.tune` know this package's algorithms by name, without importing Ray.

Programs write `tune.run("DQN")` with Ray's own `tune`. Ray resolves names that nobody registered to another library,
so the names must be in its registry before the first look-up, in whatever order `rlframe` and `ray.tune` are imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_TUNE_REGISTRY = "ray.tune.registry"


def register_when_tune_is_imported() -> None:
    """Registers the algorithms' names now if `ray.tune` is loaded, otherwise as soon as it is."""
    if _TUNE_REGISTRY in sys.modules:
        _register()
    elif not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


def _register() -> None:
    from rlframe.agents.registry import register_trainables

    register_trainables()


class _Watch:  # importlib's base class for finders takes 40 ms to import, and adds nothing
    """Waits for one module, leaves its loading to the finder in charge, and goes away."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Returns the ordinary spec of Tune's registry, with a loader that registers the names afterwards."""
        if fullname != _TUNE_REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader, load = spec.loader, spec.loader.exec_module

        def load_and_register(module: ModuleType) -> None:
            del loader.exec_module  # the class's own method again
            load(module)
            _register()

        loader.exec_module = load_and_register  # type: ignore[method-assign]  # for this one call
        return spec
