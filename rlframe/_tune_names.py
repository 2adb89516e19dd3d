"""Makes `ray.tune` know this package's algorithms by name, without importing Ray.

Programs write `tune.run("DQN")` with Ray's own `tune`. Ray resolves names that nobody registered to another library,
so the names must be in its registry before the first look-up, in whatever order `rlframe` and `ray.tune` are imported.

Others write `ray.tune.run("DQN")` and import `ray` alone: RLlib imported the rest. `ray.tune` is found then, too.

In the same way gym and Gymnasium are watched, whose random streams get the methods that they had before gym 0.26.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_TUNE_REGISTRY = "ray.tune.registry"


def register_when_tune_is_imported() -> None:
    """Registers the algorithms' names now if `ray.tune` is loaded, otherwise as soon as it is; has `ray` find it."""
    for name, action in ((_TUNE_REGISTRY, _register), ("ray", _have_ray_find_tune)):
        when_imported(name, action)


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Acts now if a module is loaded, otherwise as soon as it is."""
    if name in sys.modules:
        action()
    elif not any(isinstance(finder, _Watch) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch(name, action))


def _have_ray_find_tune() -> None:
    """Gives Ray's module the attribute `tune`, which is imported when it is asked for."""
    ray = sys.modules["ray"]
    own: Callable[[str], Any] | None = ray.__dict__.get("__getattr__")

    def find(name: str) -> Any:
        if name == "tune":
            return importlib.import_module("ray.tune")
        if own is None:
            raise AttributeError(f"module 'ray' has no attribute {name!r}")
        return own(name)

    ray.__dict__["__getattr__"] = find


def _register() -> None:
    from rlframe.agents.registry import register_trainables

    register_trainables()


def name_streams_as_before() -> None:
    """Has gym and Gymnasium make streams with the older methods, too: now, or as soon as either is imported.

    `self.np_random, seed = seeding.np_random(seed)` gave a `numpy.random.RandomState` up to gym 0.21, and programs draw
    from it with `randint`, `rand` or `randn`. It is a `numpy.random.Generator` now, which has none of these.
    """
    for name in ("gym.utils.seeding", "gymnasium.utils.seeding"):
        when_imported(name, functools.partial(_extend_streams, name))


def _extend_streams(name: str) -> None:
    import numpy as np

    seeding: Any = sys.modules[name]
    if getattr(seeding, "RandomNumberGenerator", None) is np.random.Generator:
        from rlframe.utils.old_streams import OldNamesGenerator

        seeding.RandomNumberGenerator = OldNamesGenerator


class _Watch:  # importlib's base class for finders takes 40 ms to import, and adds nothing
    """Waits for one module, leaves its loading to the finder in charge, acts when it is loaded, and goes away."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name, self.action = name, action

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Returns the ordinary spec of the module, with a loader that acts afterwards."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader, load = spec.loader, spec.loader.exec_module

        def load_and_register(module: ModuleType) -> None:
            del loader.exec_module  # the class's own method again
            load(module)
            self.action()

        loader.exec_module = load_and_register  # type: ignore[method-assign]  # for this one call
        return spec
