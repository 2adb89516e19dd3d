"""What TensorFlow takes of a machine: threads, GPUs, memory."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from rlframe.config.unsupported import LOCAL_TF_SESSION_ARGS, TF_SESSION_ARGS
from rlframe.utils.cpus import WORTH_SHARING, capped, usable_cpus
from rlframe.utils.errors import ConfigError
from rlframe.utils.quiet_tf import tf

_LOGGER = logging.getLogger("rlframe")
_THREADS = ("intra_op_parallelism_threads", "inter_op_parallelism_threads")


def prepare(config: Mapping[str, Any], observation_space: gym.Space[Any]) -> list[str]:
    """Limits TensorFlow to the threads and GPUs that the config gives it, and returns the devices to learn on.

    Threads come from `tf_session_args` (in the driver with `local_tf_session_args` over it), as they did for sessions,
    and are at most OMP_NUM_THREADS, or the CPUs that this process may use; `learner_threads` goes before all that.
    Where nobody says a number, a small network has one: beside a busy CPU several wait for each other, and on an idle
    machine they gain nothing. TensorFlow takes such settings before its first operation only: a program that used it
    earlier keeps its own, and so do later policies. GPU memory grows as it is needed.

    Returns:
        "/CPU:0", or "/GPU:0" and so on; with `_fake_gpus` as many times "/CPU:0" as GPUs were asked for.

    Raises:
        ConfigError: If more GPUs were asked for than are visible, or `tf_session_args` says what sessions alone had.
        RuntimeError: If the program has TensorFlow build a graph meanwhile.
    """
    if not tf.executing_eagerly():
        raise RuntimeError(
            "Got a policy made where TensorFlow builds a graph, wanted none, since policies act and learn eagerly and "
            "without a session: leave out tf.Session(...) and its __enter__(), tf.Graph().as_default() and "
            "tf.compat.v1.disable_eager_execution()"
        )
    worker = bool(config.get("worker_index"))
    key = "num_gpus_per_worker" if worker else "num_gpus"
    wanted = config.get(key) or 0
    gpus = tf.config.list_physical_devices("GPU")
    count = max(math.ceil(wanted), 1)
    if wanted and not config.get("_fake_gpus") and len(gpus) < count:
        raise ConfigError(
            f"{key}: got {wanted}, but TensorFlow sees {len(gpus) or 'no'} GPU(s) here; set it to {len(gpus)}, or "
            "install its CUDA build, or set _fake_gpus=True to try several on the CPU"
        )
    use_gpu = bool(wanted) and bool(gpus) and not config.get("_fake_gpus")
    args = _session_args(config, worker, use_gpu=use_gpu)
    if not args["allow_soft_placement"]:
        tf.config.set_soft_device_placement(False)
    if args["log_device_placement"]:
        tf.debugging.set_log_device_placement(True)
    try:
        _set_threads(args, config.get("learner_threads"), small=_is_small(config, observation_space))
        if gpus and not use_gpu:
            tf.config.set_visible_devices([], "GPU")
        for gpu in gpus if use_gpu else ():
            tf.config.experimental.set_memory_growth(gpu, bool(args["gpu_options"].get("allow_growth", True)))
    except RuntimeError:
        # The program used TensorFlow before us, and had its reasons for the settings it has.
        _LOGGER.debug("TensorFlow was running before this policy: its threads and devices stay as they are")
    if not use_gpu:
        if not worker and not config.get("in_evaluation"):
            _LOGGER.info("policy on %s", f"the CPU, for {count} GPUs" if wanted else "the CPU")
        return ["/CPU:0"] * (count if wanted else 1)
    _LOGGER.info("policy on %s", ", ".join(gpu.name for gpu in gpus[:count]))
    return [f"/GPU:{index}" for index in range(count)]


def _session_args(config: Mapping[str, Any], worker: bool, *, use_gpu: bool) -> dict[str, Any]:
    """Returns the session arguments that hold for a process. Without a GPU in use, `gpu_options` say nothing.

    Raises:
        ConfigError: If one says what only sessions had, or what is always so here.
    """
    args = {**TF_SESSION_ARGS, **(config.get("tf_session_args") or {})}
    if not worker:
        args.update(config.get("local_tf_session_args") or {})
    # `device_count` is how many devices a session saw: num_gpus says that here.
    wrong = [key for key in args if key not in TF_SESSION_ARGS]
    wrong += [f"gpu_options.{key}" for key in args["gpu_options"] if use_gpu and key != "allow_growth"]
    if wrong:
        raise ConfigError(
            f"tf_session_args: got {wrong[0]!r}, wanted only {', '.join(_THREADS)}, log_device_placement, "
            "allow_soft_placement and gpu_options.allow_growth: there are no sessions; call tf.config before the "
            "trainer is made for anything else"
        )
    return args


def _is_small(config: Mapping[str, Any], space: gym.Space[Any]) -> bool:
    """Returns whether the default network for vectors has less work in a learner step than is worth sharing."""
    model, shape = config.get("model") or {}, space.shape
    if model.get("custom_model") or shape is None or len(shape) > 1:
        return False
    widths = [int(units) for key in ("fcnet_hiddens", "post_fcnet_hiddens") for units in model.get(key) or ()]
    if model.get("use_lstm") or model.get("use_attention"):
        units = int(model["lstm_cell_size"] if model.get("use_lstm") else model["attention_dim"])
        widths += [4 * units, units]  # about what its gates, or its layers, multiply
    widths += [int(units) for units in config.get("hiddens") or ()]
    work = sum(one * other for one, other in zip([math.prod(shape), *widths], widths, strict=False))
    rows = config.get("sgd_minibatch_size") or config.get("train_batch_size") or 1
    return work * int(rows) < WORTH_SHARING


def _set_threads(args: Mapping[str, Any], asked: int | None, *, small: bool) -> None:
    # Ray sets OMP_NUM_THREADS to the CPUs that an actor asked for; more threads than that take from its neighbours.
    most = int(os.environ.get("OMP_NUM_THREADS") or usable_cpus())
    one = small and "OMP_NUM_THREADS" not in os.environ

    def threads(name: str) -> int:
        if one and args[name] in (TF_SESSION_ARGS[name], LOCAL_TF_SESSION_ARGS[name]):  # nobody said a number
            return 1
        # Where sessions took a negative number for the thread that called, functions take it for all CPUs.
        return max(min(int(args[name] or most), most), 1)

    intra, inter = (threads(name) for name in _THREADS)
    if asked is not None:
        intra = capped(asked)
    tf.config.threading.set_intra_op_parallelism_threads(intra)
    tf.config.threading.set_inter_op_parallelism_threads(inter)
