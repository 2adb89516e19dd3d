"""RLlib's `train`: experiments from the command line or from YAML files, and what programs took from it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import ray

from rlframe.tune import run_experiments
from rlframe.tune.config_parser import make_parser
from rlframe.tune.tune import _make_scheduler
from rlframe.utils.errors import ConfigError
from rlframe.utils.yaml_text import parse_yaml

#: Flag -> what argparse makes of it, beside those of `tune.config_parser`.
_FLAGS: dict[str, dict[str, Any]] = {
    "--env": {"help": "the environment: an id of Gymnasium's, or the name of a registered one"},
    "--framework": {"choices": ("torch", "tf", "tf2", "tfe"), "help": "torch by default"},
    "--torch": {"action": "store_true", "help": "the same as --framework torch"},
    "--eager": {"action": "store_true", "help": "the same as --framework tf2"},
    "--trace": {"action": "store_true", "help": "without effect: TensorFlow is always traced"},
    "--experiment-name": {"default": "default", "help": "name of the experiment, and of its folder"},
    "--local-dir": {"default": "~/ray_results", "help": "folder of results"},
    "--upload-dir": {"default": "", "help": "place that results are copied to, such as s3://bucket"},
    "--resume": {"action": "store_true", "help": "go on with the experiment of that name"},
    "--queue-trials": {"action": "store_true", "help": "without effect: Ray queues trials by itself"},
    "--ray-address": {"help": "address of a running cluster; by default Ray is started"},
    "--ray-num-cpus": {"type": int, "help": "CPUs that Ray may use"},
    "--ray-num-gpus": {"type": int, "help": "GPUs that Ray may use"},
    "--ray-num-nodes": {"type": int, "help": "refused: ray.cluster_utils.Cluster tries a cluster on one machine"},
    "--ray-object-store-memory": {"type": int, "help": "bytes of Ray's object store"},
    "--ray-memory": {"type": int, "help": "without effect: Ray limits no memory of its own any more"},
    "--ray-redis-max-memory": {"type": int, "help": "without effect: Ray starts no Redis any more"},
    "--ray-ui": {"action": "store_true", "help": "start Ray's dashboard"},
    "--no-ray-ui": {"action": "store_true", "help": "the default; kept for old commands"},
    "--local-mode": {"action": "store_true", "help": "refused: Ray has none any more; num_workers 0 needs no process"},
}
#: Flags that become keys of the experiment, as `tune.run` calls them.
_KEYS = (
    "checkpoint_freq", "checkpoint_at_end", "keep_checkpoints_num", "checkpoint_score_attr", "resources_per_trial",
    "stop", "restore", "num_samples",
)  # fmt: skip
EXAMPLE_USAGE = "train.py --run PPO --env CartPole-v1 --stop '{\"training_iteration\": 3}', or train.py -f FILE.yaml"


def create_parser(parser_creator: Callable[..., Any] | None = None) -> Any:
    """Returns the parser of RLlib's command, which programs add flags of their own to.

    Args:
        parser_creator: Makes the parser; None takes `argparse.ArgumentParser`.
    """
    parser = make_parser(
        parser_creator=parser_creator,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Trains an algorithm.",
        epilog=EXAMPLE_USAGE,
    )
    for flag, options in _FLAGS.items():
        parser.add_argument(flag, **options)
    parser.add_argument("-v", action="store_true", help="log_level INFO")
    parser.add_argument("-vv", action="store_true", help="log_level DEBUG")
    parser.add_argument("-f", "--config-file", help="YAML file of experiments; flags that make one are not read then")
    return parser


def load_experiments_from_file(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Returns the experiments of a YAML file, `{name: {"run": …, "env": …, "stop": …, "config": …}}`.

    Numbers may be written 1e-4. Nothing in the file is executed.

    Raises:
        ConfigError: If the file cannot be read, or holds something else.
    """
    try:
        with open(path, encoding="utf-8") as file:
            experiments = parse_yaml(file.read(), where=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the file of experiments {str(path)!r}: {error}") from error
    if not isinstance(experiments, dict) or not all(isinstance(value, dict) for value in experiments.values()):
        raise ConfigError(
            f"{path}: holds no experiments; wanted {{name: {{run: ..., env: ..., stop: ..., config: ...}}}}"
        )
    return experiments


def run(args: Any, parser: Any) -> list[Any]:
    """Runs what the flags of `create_parser` say, and returns the trials; Ray is shut down at the end.

    Raises:
        ConfigError: If the file of experiments cannot be read, or a flag has no counterpart.
    """
    experiments = _experiments(args, parser)
    for experiment in experiments.values():
        _complete(experiment, args, parser)
    _start_ray(args)
    try:
        return run_experiments(
            experiments,
            scheduler=_make_scheduler(args),
            resume=args.resume,
            verbose=2 if args.v or args.vv else 1,
            concurrent=True,
        )
    finally:
        ray.shutdown()


def _experiments(args: Any, parser: Any) -> dict[str, dict[str, Any]]:
    if args.config_file:
        return load_experiments_from_file(args.config_file)
    if not args.run:
        parser.error("the following arguments are required: --run")
    if not (args.env or args.config.get("env")):
        parser.error("the following arguments are required: --env")
    given = {key: getattr(args, key) for key in _KEYS if getattr(args, key) is not None}
    folder = {"local_dir": args.local_dir} if not args.upload_dir else {"storage_path": args.upload_dir}
    config = dict(args.config, env=args.env) if args.env else dict(args.config)
    return {args.experiment_name: {"run": args.run, **given, **folder, "config": config}}


def _complete(experiment: dict[str, Any], args: Any, parser: Any) -> None:
    """Puts an experiment's environment and what flags say of all of them into its config."""
    if not experiment.get("run"):
        parser.error("the following arguments are required: --run")
    config = experiment["config"] = dict(experiment.get("config") or {})
    if experiment.get("env"):
        config["env"] = experiment.pop("env")
    if not config.get("env") and not config.get("input"):
        parser.error("the following arguments are required: --env")
    framework = args.framework or ("torch" if args.torch else "tf2" if args.eager else None)
    if framework:
        config["framework"] = framework
    if args.v or args.vv:
        config["log_level"] = "DEBUG" if args.vv else "INFO"


def _start_ray(args: Any) -> None:
    if args.local_mode:
        raise ConfigError("--local-mode: Ray has none any more; leave it out, and set num_workers to 0 to debug")
    if args.ray_num_nodes:
        raise ConfigError("--ray-num-nodes: start nodes yourself (ray.cluster_utils.Cluster) and give --ray-address")
    if ray.is_initialized():
        return
    if args.ray_address:
        ray.init(address=args.ray_address)
        return
    ray.init(
        num_cpus=args.ray_num_cpus,
        num_gpus=args.ray_num_gpus,
        object_store_memory=args.ray_object_store_memory,
        include_dashboard=bool(args.ray_ui),
    )


def main() -> None:
    """Trains what the command line says."""
    parser = create_parser()
    run(parser.parse_args(), parser)
