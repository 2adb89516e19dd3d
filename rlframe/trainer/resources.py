"""What a trial reserves in Tune."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ray.tune.execution.placement_groups import PlacementGroupFactory

from rlframe.config.common import CommonConfig
from rlframe.utils.errors import ConfigError

_in_search: ContextVar[bool] = ContextVar("in_search", default=False)


@contextmanager
def searching(several: bool) -> Iterator[None]:
    """Has wrong configs fail in their own trials, as in Ray 1.x: one of a search's must not end the others.

    Args:
        several: Whether there are several trials; the fault of a single one is raised where the program is.
    """
    before = _in_search.set(several)
    try:
        yield
    finally:
        _in_search.reset(before)


def requested_resources(cls: Any, config: dict[str, Any]) -> PlacementGroupFactory:
    """Returns what a Tune trial of a trainer reserves; see `Trainer.default_resource_request`."""
    defaults = cls.get_default_config()
    try:
        return placement_group_factory(cls.merge_trainer_configs(defaults, dict(config), _allow_unknown_configs=True))
    except ConfigError:
        if not _in_search.get():
            raise
        return PlacementGroupFactory([{"CPU": 1.0}])  # making the trainer says what is wrong


def _worker_bundle(config: dict[str, Any]) -> dict[str, float]:
    bundle = {"CPU": float(config["num_cpus_per_worker"]), "GPU": float(config["num_gpus_per_worker"])}
    bundle.update({name: float(amount) for name, amount in config["custom_resources_per_worker"].items()})
    return {name: amount for name, amount in bundle.items() if amount > 0}


def placement_group_factory(config: dict[str, Any]) -> PlacementGroupFactory:
    """Returns one bundle for the driver and one for each rollout and evaluation worker, custom resources included."""
    gpus = 0.0 if config["_fake_gpus"] else float(config["num_gpus"])
    driver = {"CPU": float(config["num_cpus_for_driver"])}
    if gpus:
        driver["GPU"] = gpus
    evaluators = int(config["evaluation_num_workers"]) if config["evaluation_interval"] else 0
    override = {**config, **{k: v for k, v in (config["evaluation_config"] or {}).items() if k in config}}
    bundles = [driver, *[_worker_bundle(config)] * int(config["num_workers"])]
    bundles += [_worker_bundle(override)] * evaluators
    return PlacementGroupFactory(bundles, strategy=config["placement_strategy"])


#: Keys that tell the config of a trainer from that of any other function.
_OF_TRAINERS = frozenset(
    {"env", "env_config", "framework", "multiagent", "rollout_fragment_length", "train_batch_size"}
)


def function_resources(config: dict[str, Any]) -> PlacementGroupFactory | None:
    """Returns what a function reserves that makes a trainer of its config; None leaves it to Tune.

    Args:
        config: Of the trial; keys that trainers have are read as they read them.
    """
    if not _OF_TRAINERS & config.keys():
        return None
    return placement_group_factory({**CommonConfig.defaults(), **config})
