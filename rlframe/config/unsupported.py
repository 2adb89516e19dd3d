"""Values of common keys that this version does not honour, and what to use instead. Nothing is ignored in silence."""

from collections.abc import Mapping
from typing import Any

from rlframe.config.declaration import UnsupportedValue


def _is_rllibs_own(collector: Any) -> bool:
    """Whether it is the collector that RLlib's configs name: copies of them say nothing by it."""
    return getattr(collector, "__name__", "") == "SimpleListCollector" and collector.__module__.startswith("rlframe.")


def options_beyond_one_buffer(optimizer: Any) -> Any:
    """Returns what a section `optimizer` says beside what is so wherever one buffer holds all: one shard, no debug.

    Programs that have copied Ape-X's section into the config of DQN or SimpleQ say this.
    """
    if not isinstance(optimizer, Mapping):
        return optimizer
    so = {"num_replay_buffer_shards": 1, "debug": False}
    return {key: value for key, value in optimizer.items() if key not in so or value != so[key]}


_REMOTE_ENVS = "set num_workers to step environments in several processes"
TF_SESSION_ARGS: dict[str, Any] = {
    "intra_op_parallelism_threads": 2,
    "inter_op_parallelism_threads": 2,
    "gpu_options": {"allow_growth": True},
    "log_device_placement": False,
    "device_count": {"CPU": 1},
    "allow_soft_placement": True,
}
LOCAL_TF_SESSION_ARGS: dict[str, Any] = {"intra_op_parallelism_threads": 8, "inter_op_parallelism_threads": 8}

UNSUPPORTED: dict[str, UnsupportedValue] = {
    "model._use_default_native_models": UnsupportedValue(
        bool, "both frameworks have the same default models", harmless=True
    ),
    "optimizer": UnsupportedValue(
        lambda value: bool(options_beyond_one_buffer(value)),
        "only Ape-X and code of your own read it, as in RLlib 1.x; use lr and the algorithm's own keys",
        harmless=True,
        read_by_own_code=True,
    ),
    "sample_collector": UnsupportedValue(
        lambda value: not (value is None or _is_rllibs_own(value)),
        "samples are collected in columns; change them in callbacks",
    ),
    "remote_worker_envs": UnsupportedValue(bool, _REMOTE_ENVS, harmless=True),
    "remote_env_batch_wait_ms": UnsupportedValue(bool, _REMOTE_ENVS, harmless=True),
}
"""By dotted key: which values are refused, and why."""
