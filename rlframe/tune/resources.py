"""`ray.tune.resources` of Ray 1.x: what a trial reserves, as command lines say it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import ray
from ray.tune.execution.placement_groups import PlacementGroupFactory

from rlframe.utils.errors import ConfigError


@dataclasses.dataclass(eq=False)
class Resources(PlacementGroupFactory):
    """What a trial reserves, as Ray 1.x said it: for today's Tune a bundle for the trial, and those of its workers.

    Attributes:
        cpu: CPUs of the trial's own process.
        gpu: GPUs of it.
        memory: Bytes of it.
        object_store_memory: Bytes of Ray's store for it.
        extra_cpu: CPUs of the workers that it starts.
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
        own, extra = ({name: amount or 0 for name, amount in part.items()} for part in self._parts())
        super().__init__([own, *_bundles_of(extra)])

    def _parts(self) -> Iterator[dict[str, float]]:
        yield {
            "CPU": self.cpu, "GPU": self.gpu, "memory": self.memory, "object_store_memory": self.object_store_memory,
            **self.custom_resources,
        }  # fmt: skip
        yield {
            "CPU": self.extra_cpu, "GPU": self.extra_gpu, "memory": self.extra_memory,
            "object_store_memory": self.extra_object_store_memory, **self.extra_custom_resources,
        }  # fmt: skip


def _bundles_of(extra: dict[str, float]) -> list[dict[str, float]]:
    """Returns what a trial's workers get: one bundle that all share, or one for each CPU where no node has that much.

    How large a worker is was not said in Ray 1.x. Today each has to fit into a bundle, and each bundle into a node.
    Before Ray is started nobody knows how large nodes are, and bundles of one CPU fit.
    """
    wanted = {name: amount for name, amount in extra.items() if amount}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]] if ray.is_initialized() else []
    fits = any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes)
    count = 1 if fits else max(1, int(wanted.get("CPU", 0)))
    return [{name: amount / count for name, amount in wanted.items()}] * count if wanted else []


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
