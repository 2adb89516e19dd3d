"""Ray Tune under this package's roof: `from rlframe import tune; tune.run("DQN", …)`.

Everything is Ray's own; importing this module makes sure that the names of algorithms mean those of this package.
"""

from __future__ import annotations

from typing import Any

import ray.tune  # noqa: TID251 (this module is Tune under another name)
from ray.tune import *  # noqa: F403, TID251 (its whole surface)

from rlframe.agents.registry import register_trainables

register_trainables()


def __getattr__(name: str) -> Any:
    return getattr(ray.tune, name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(dir(ray.tune)))
