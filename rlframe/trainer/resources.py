"""What a trial reserves in Tune."""

from __future__ import annotations

from typing import Any

from ray.tune.execution.placement_groups import PlacementGroupFactory

from rlframe.config.common import CommonConfig


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
