"""`ray.tune.resources` of Ray 1.x: what a trial reserves, as command lines say it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from rlframe.utils.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Resources:
    """What a trial reserves.

    Attributes:
        cpu: CPUs of the trial's own process.
        gpu: GPUs of it.
        memory: Bytes of it.
        extra_cpu: CPUs of the workers that it starts.
        extra_gpu: GPUs of them.
        custom_resources: Further resources of its own process, by name.
    """

    cpu: float = 1
    gpu: float = 0
    memory: float = 0
    extra_cpu: float = 0
    extra_gpu: float = 0
    custom_resources: dict[str, float] = dataclasses.field(default_factory=dict)


def json_to_resources(data: Any) -> Resources | None:
    """Returns the resources of a JSON text such as '{"cpu": 4, "gpu": 1}', or of a dict; None of nothing.

    Args:
        data: Text, dict or None.

    Raises:
        ConfigError: If it is none of them, or has keys that `Resources` has not.
    """
    if data is None or data == "null":
        return None
    values = json.loads(data) if isinstance(data, str) else data
    known = [field.name for field in dataclasses.fields(Resources)]
    if not isinstance(values, dict) or not values.keys() <= set(known):
        raise ConfigError(f"resources_per_trial: got {values!r}, wanted a dict with keys of {known}")
    return Resources(**values)


def resources_to_json(resources: Resources | None) -> dict[str, float] | None:
    """Returns what `tune.run(resources_per_trial=...)` takes; None of None."""
    if resources is None:
        return None
    given = {**dataclasses.asdict(resources), **resources.custom_resources}
    del given["custom_resources"]
    return {name: amount for name, amount in given.items() if amount or name in {"cpu", "gpu"}}
