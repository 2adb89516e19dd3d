"""Packages whose names are imported when they are asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


def import_name(package: str, names: Mapping[str, str], name: str) -> Any:
    """Returns what a package's `__getattr__` is asked for.

    Whatever unpickles a class imports the packages above it. If those import nothing by themselves, a rollout worker
    that is sent an algorithm's policy does not import the algorithm's trainer, and with it Ray Tune.

    Args:
        package: The package's `__name__`.
        names: The module of each name; "module:name" where the module calls it otherwise. Modules of the package
            itself are attributes of it, too, as they would be if it imported them.
        name: What is asked for.

    Raises:
        AttributeError: If it is neither.
    """
    if name in names:
        module, _, other = names[name].partition(":")
        return getattr(importlib.import_module(module), other or name)
    submodule = f"{package}.{name}"
    if any(module.partition(":")[0] == submodule for module in names.values()):
        return importlib.import_module(submodule)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
