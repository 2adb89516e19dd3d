"""A policy that is written once, as the classes of both frameworks."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

#: Where the part of a policy that computes is, by framework.
_BACKENDS = {"torch": ("rlframe.policy.torch_policy", "TorchPolicy"), "tf": ("rlframe.policy.tf_policy", "TFPolicy")}


def with_backend(policy: type[Any], framework: str, name: str) -> type[Any]:
    """Returns a policy class that learns in a framework, which is imported now.

    Args:
        policy: A `LearningPolicy` that says networks, optimisers and loss, over `rlframe.tensor.ops`.
        framework: "torch" or "tf".
        name: Name of the class.
    """
    module, base = _BACKENDS[framework]
    bases = (policy, getattr(importlib.import_module(module), base))

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        super(made, self).__init__(*args, **kwargs)

    # A constructor of its own: the first run comes behind the outermost built-in one; see `users_code`.
    body = {"__init__": construct, "__module__": policy.__module__, "__doc__": policy.__doc__}
    kind: Any = type(policy)
    made: type[Any] = kind(name, bases, body)
    return made


def lazy_policies(module: str, policy: type[Any], **frameworks: str) -> Callable[[str], Any]:
    """Returns a module's `__getattr__` that makes the classes of a policy when they are asked for.

    Args:
        module: The module's `__name__`.
        policy: See `with_backend`.
        **frameworks: Framework by name of the class, such as `SACTorchPolicy="torch"`.
    """

    def find(name: str) -> Any:
        if name not in frameworks:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        made = with_backend(policy, frameworks[name], name)
        setattr(sys.modules[module], name, made)
        return made

    find.frameworks = frameworks  # type: ignore[attr-defined]  # what `from module import *` takes
    return find
