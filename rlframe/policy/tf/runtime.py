"""What TensorFlow takes of a machine: threads, GPUs, memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from rlframe.config.unsupported import TF_SESSION_ARGS
from rlframe.utils.errors import ConfigError

_LOGGER = logging.getLogger("rlframe")
_THREADS = ("intra_op_parallelism_threads", "inter_op_parallelism_threads")


def prepare(config: Mapping[str, Any]) -> str:
    """Limits TensorFlow to the threads and GPUs that the config gives it, and returns the device to use.

    Threads come from `tf_session_args` (in the driver with `local_tf_session_args` over it), as they did for sessions,
    and are at most OMP_NUM_THREADS, or the machine's CPUs. TensorFlow takes such settings before its first operation
    only: a program that used it earlier keeps its own. GPU memory grows as it is needed.

    Returns:
        "/CPU:0" or "/GPU:0".

    Raises:
        ConfigError: If a GPU was asked for and none is visible, or `tf_session_args` says what sessions alone had.
    """
    worker = bool(config.get("worker_index"))
    key = "num_gpus_per_worker" if worker else "num_gpus"
    wanted = config.get(key) or 0
    gpus = tf.config.list_physical_devices("GPU")
    if wanted and not config.get("_fake_gpus") and not gpus:
        raise ConfigError(
            f"{key}: got {wanted}, but TensorFlow sees no GPU here; set it to 0, or install its CUDA build"
        )
    use_gpu = bool(wanted) and bool(gpus) and not config.get("_fake_gpus")
    args = _session_args(config, worker)
    try:
        _set_threads(args)
        if gpus and not use_gpu:
            tf.config.set_visible_devices([], "GPU")
        for gpu in gpus if use_gpu else ():
            tf.config.experimental.set_memory_growth(gpu, bool(args["gpu_options"].get("allow_growth", True)))
    except RuntimeError:
        # The program used TensorFlow before us, and had its reasons for the settings it has.
        _LOGGER.debug("TensorFlow was running before this policy: its threads and devices stay as they are")
    if use_gpu:
        _LOGGER.info("policy on %s", gpus[0].name)
    return "/GPU:0" if use_gpu else "/CPU:0"


def _session_args(config: Mapping[str, Any], worker: bool) -> dict[str, Any]:
    """Returns the session arguments that hold for a process.

    Raises:
        ConfigError: If one says what only sessions had, or what is always so here.
    """
    args = {**TF_SESSION_ARGS, **(config.get("tf_session_args") or {})}
    if not worker:
        args.update(config.get("local_tf_session_args") or {})
    ours = (*_THREADS, "gpu_options")
    wrong = [key for key, value in args.items() if key not in ours and value != TF_SESSION_ARGS.get(key)]
    wrong += [f"gpu_options.{key}" for key in args["gpu_options"] if key != "allow_growth"]
    if wrong:
        raise ConfigError(
            f"tf_session_args: got {wrong[0]!r}, wanted only {', '.join(_THREADS)} and gpu_options.allow_growth: there "
            "are no sessions; call tf.config before the trainer is made for anything else"
        )
    return args


def _set_threads(args: Mapping[str, Any]) -> None:
    # Ray sets OMP_NUM_THREADS to the CPUs that an actor asked for; more threads than that take from its neighbours.
    most = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
    intra, inter = (min(int(args[name] or most), most) for name in _THREADS)
    tf.config.threading.set_intra_op_parallelism_threads(intra)
    tf.config.threading.set_inter_op_parallelism_threads(inter)
