"""Evaluation workers: the same weights, other settings, episodes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rlframe.evaluation.metrics import RolloutMetrics, summarize_episodes
from rlframe.evaluation.worker_set import WorkerSet
from rlframe.policy.learning_policy import ONLY_EVALUATES
from rlframe.utils.errors import ConfigError, EnvError
from rlframe.utils.seeding import derive_seed

#: What evaluation workers always have: whole episodes, one at a time, and no learning (so no optimisers either).
FORCED = {
    "batch_mode": "complete_episodes",
    "rollout_fragment_length": 1,
    "in_evaluation": True,
    ONLY_EVALUATES: True,
    "vectorized_env": False,
}


def evaluation_config(config: dict[str, Any], merge: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
                      seed: int) -> dict[str, Any]:  # fmt: skip
    """Returns the evaluation workers' config: the trainer's, `evaluation_config` laid on it, then what is forced.

    Raises:
        ConfigError: If `evaluation_config` sets `in_evaluation` to False, or has faults.
    """
    overrides = dict(config.get("evaluation_config") or {})
    if overrides.get("in_evaluation") is False:
        raise ConfigError("evaluation_config.in_evaluation: got False, wanted True (leave it out)")
    same = {"tf2": "tf", "tfe": "tf"}
    asked, mine = overrides.get("framework", config["framework"]), config["framework"]
    if same.get(asked, asked) != same.get(mine, mine):
        raise ConfigError(
            f"evaluation_config.framework: got {overrides['framework']!r}, wanted {config['framework']!r}: evaluation "
            "workers act with the weights of the training policy (leave it out)"
        )
    own_seed = overrides.pop("seed", None)
    for key in FORCED:
        overrides.pop(key, None)
    merged = merge(config, overrides)
    merged.update(FORCED, seed=derive_seed(seed, "evaluation") if own_seed is None else own_seed)
    merged["num_workers"] = config["evaluation_num_workers"]
    return merged


def make_evaluation_workers(trainer: Any, merge: Any) -> WorkerSet:
    """Returns the evaluation `WorkerSet` of a trainer."""
    config = evaluation_config(trainer.config, merge, trainer.seed)
    return WorkerSet(
        env_creator=trainer.env_creator,
        validate_env=trainer.validate_env,
        policy_class=trainer.policy_class,
        trainer_config=config,
        num_workers=config["num_workers"],
        logdir=trainer.logdir,
    )


def send_weights(source: WorkerSet, target: WorkerSet) -> None:
    """Copies weights, filters and the step count from the training to the evaluation workers."""
    local, evaluator = source.local_worker(), target.local_worker()
    known = [pid for pid in evaluator.policy_map if pid in local.policy_map]
    evaluator.set_weights(local.get_weights(known), local.get_global_vars())
    mine = {pid: made for pid, made in local.get_filters().items() if pid in known}
    evaluator.sync_filters(mine)
    if target.remote_workers():
        import ray

        target.sync_weights(global_vars=local.get_global_vars())
        filters = ray.put(mine)
        ray.get([worker.sync_filters.remote(filters) for worker in target.remote_workers()])


def _restart(worker: Any) -> None:
    if worker.runner is not None:
        worker.runner.restart()


def run_episodes(
    workers: WorkerSet, episodes: int | None, keep_going: Callable[[int], bool] | None = None
) -> list[RolloutMetrics]:
    """Runs fresh episodes and returns exactly `episodes` of them (or, with None, as many as `keep_going` allows).

    Args:
        workers: Evaluation workers.
        episodes: How many; None goes by `keep_going`.
        keep_going: `fn(episodes so far) -> bool`, asked before each round.

    Raises:
        EnvError: If there is no environment to evaluate in.
    """
    if workers.local_worker().runner is None and not workers.remote_workers():
        raise EnvError(
            "nothing to evaluate in: the driver has no environment and there are no evaluation workers; set "
            '"evaluation_interval" (with "evaluation_num_workers" if wanted), or "create_env_on_driver": True'
        )
    workers.foreach_worker(_restart)
    done: list[RolloutMetrics] = []
    while (episodes is None and keep_going is not None and keep_going(len(done))) or len(done) < (episodes or 0):
        done.extend(_one_round(workers))
    return done if episodes is None else done[:episodes]


def _one_round(workers: WorkerSet) -> list[RolloutMetrics]:
    remotes = workers.remote_workers()
    if not remotes:
        workers.local_worker().sample()
        return workers.local_worker().get_metrics()
    import ray

    ray.get([worker.sample.remote() for worker in remotes])
    return [metric for metrics in ray.get([worker.get_metrics.remote() for worker in remotes]) for metric in metrics]


def summarize(episodes: list[RolloutMetrics], iteration: int, started: float) -> dict[str, Any]:
    """Returns the `evaluation` part of a result: statistics of just these episodes and the weights' iteration."""
    summary = dict(summarize_episodes(episodes, episodes))
    summary["training_iteration"] = iteration
    summary["timesteps_this_iter"] = sum(episode.episode_length for episode in episodes)
    summary["time_this_iter_s"] = time.time() - started
    summary["age_iterations"] = 0
    return summary


def auto_rounds(training: Future[Any]) -> Callable[[int], bool]:
    """Returns a condition for `run_episodes` that holds until the training step is done (at least one round)."""
    return lambda so_far: so_far == 0 or not training.done()
