"""`ray.tune.resources` of Ray 1.x: what a trial reserves, as command lines say it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ray.tune.execution.placement_groups import PlacementGroupFactory

from rlframe.utils.errors import ConfigError


@dataclasses.dataclass(eq=False)
class Resources(PlacementGroupFactory):
    """What a trial reserves, as Ray 1.x said it: for today's Tune a bundle for the trial, and those of its workers.

    Attributes:
        cpu: CPUs of the trial's own process.
        gpu: GPUs of it.
        memory: Bytes of it.
        object_store_memory: Read by programs alone; Ray has one store for all.
        extra_cpu: CPUs of the workers that it starts, of which each gets one where that goes.
        extra_gpu: GPUs of them.
        extra_memory: Bytes of them.
        extra_object_store_memory: See `object_store_memory`.
        custom_resources: Further resources of its own process, by name.
        extra_custom_resources: Those of the workers.
    """

    cpu: float = 1
    gpu: float = 0
    memory: float = 0
    object_store_memory: float = 0
    extra_cpu: float = 0
    extra_gpu: float = 0
    extra_memory: float = 0
    extra_object_store_memory: float = 0
    custom_resources: dict[str, float] = dataclasses.field(default_factory=dict)
    extra_custom_resources: dict[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Says it in bundles."""
        self.custom_resources = dict(self.custom_resources or {})
        self.extra_custom_resources = dict(self.extra_custom_resources or {})
        own = {"CPU": self.cpu, "GPU": self.gpu, "memory": self.memory, **self.custom_resources}
        extra = {"CPU": self.extra_cpu, "GPU": self.extra_gpu, "memory": self.extra_memory}
        extra = {name: amount for name, amount in {**extra, **self.extra_custom_resources}.items() if amount}
        workers = max(1, int(self.extra_cpu or 0)) if extra else 0
        bundle = {name: amount / workers for name, amount in extra.items()}
        super().__init__([{name: amount or 0 for name, amount in own.items()}, *[bundle] * workers])


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
    given = dataclasses.asdict(resources)
    given.update(given.pop("custom_resources"))
    return {name: amount for name, amount in given.items() if amount or name in {"cpu", "gpu"}}
