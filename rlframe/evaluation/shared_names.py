"""Names that a program registers in its driver, known in every process that Ray starts for it.

Trainers hand the names of their process to their workers. Trials of Ray Tune are processes in which nothing was
registered: they look into Tune's registry, where the driver puts models, action distributions, preprocessors and
environments as soon as there is a Ray runtime, as RLlib 1.x did.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from rlframe.utils import shared_names

_LOGGER = logging.getLogger("rlframe")

#: What is registered -> Tune's name for it.
_CATEGORIES = {
    "model": "rllib_model",
    "action_dist": "rllib_action_dist",
    "preprocessor": "rllib_preprocessor",
    "env": "env_creator",
    "input": "rllib_input",
}


def connect() -> None:
    """Publishes what is registered from now on, and looks names up that this process does not know."""
    shared_names.connect(publish, look_up)


def publish(kind: str, name: str, value: Any) -> None:
    """Tells all processes of a name.

    Without a Ray runtime the name stands in Tune's registry of this process, where programs read it
    (`_global_registry.get(ENV_CREATOR, config["env"])`); `publish_all` tells the others when there is one.

    Args:
        kind: "model", "action_dist", "preprocessor", "env" or "input".
        name: What it is registered under.
        value: A class or a function. One that cannot be pickled is known in this process alone, which is said.
    """
    ray, registry = sys.modules.get("ray"), sys.modules.get("ray.tune.registry")
    if ray is None or registry is None or _is_worker_process(ray):
        return
    try:
        ray.cloudpickle.dumps(value)
    except Exception as error:  # whatever the user's objects raise
        if not ray.is_initialized():
            return  # no other process is there to miss it
        _LOGGER.warning(
            "the %s registered as %r is known in this process only, and not in trials of Ray Tune: it cannot be "
            "pickled (%s)", kind, name, error,
        )  # fmt: skip
        return
    names: Any = registry._global_registry
    names.register(_CATEGORIES[kind], name, value)


def publish_all() -> None:
    """Tells all processes of what was registered before there was a Ray runtime."""
    for (kind, name), value in shared_names.told().items():
        publish(kind, name, value)


def look_up(kind: str, name: str) -> Any:
    """Returns what another process, or the program by Tune's own functions, registered under a name; None if none."""
    registry = sys.modules.get("ray.tune.registry")  # without it nobody has
    if registry is None:
        return None
    names: Any = registry._global_registry
    category = _CATEGORIES[kind]
    return names.get(category, name) if names.contains(category, name) else None


def _is_worker_process(ray: Any) -> bool:
    return bool(ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE)


__all__ = ["connect", "look_up", "publish", "publish_all"]
