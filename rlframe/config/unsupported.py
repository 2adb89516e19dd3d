"""Values of common keys that this version does not honour, and what to use instead. Nothing is ignored in silence."""

from typing import Any

from rlframe.config.declaration import UnsupportedValue


def _is_rllibs_own(collector: Any) -> bool:
    """Whether it is the collector that RLlib's configs name: copies of them say nothing by it."""
    return getattr(collector, "__name__", "") == "SimpleListCollector" and collector.__module__.startswith("rlframe.")


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
        bool,
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
