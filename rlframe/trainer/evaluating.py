"""Evaluation workers: the same weights, other settings, episodes of their own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rlframe.config.common import ONLY_EVALUATES
from rlframe.evaluation.metrics import RolloutMetrics, part_estimates, summarize_episodes
from rlframe.trainer.recovery import MAX_WORKER_FAILURE_RETRIES
from rlframe.utils.errors import ConfigError, EnvError
from rlframe.utils.seeding import derive_seed

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet

_LOGGER = logging.getLogger("rlframe")
#: What evaluation workers always have: whole episodes, each reported when it ends, and no learning (so no optimisers
#: either).
FORCED = {
    "batch_mode": "complete_episodes",
    "rollout_fragment_length": 1,
    "in_evaluation": True,
    ONLY_EVALUATES: True,
    "vectorized_env": False,
    "output": None,
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
    if overrides.setdefault("input", "sampler") != "sampler":
        raise ConfigError(
            f"evaluation_config.input: got {overrides['input']!r}, wanted 'sampler': evaluation runs episodes; what "
            "data say of a policy is estimated while they are read, by input_evaluation"
        )
    own_seed = overrides.pop("seed", None)
    for key in FORCED:
        overrides.pop(key, None)
    own = {key: overrides.pop(key) for key in list(overrides) if key not in config}  # the program's, as was checked
    merged = merge({**config, "evaluation_config": {}}, overrides)
    merged.update(own, evaluation_config=config["evaluation_config"])
    merged.update(FORCED, seed=derive_seed(seed, "evaluation") if own_seed is None else own_seed)
    merged["num_workers"] = config["evaluation_num_workers"]
    return merged


def make_evaluation_workers(trainer: Any, merge: Any) -> WorkerSet:
    """Returns the evaluation `WorkerSet` of a trainer."""
    config = trainer._config_class.effective_in_evaluation(evaluation_config(trainer.config, merge, trainer.seed))
    from rlframe.evaluation.worker_set import WorkerSet

    env_creator = trainer.env_creator
    if "env" in (trainer.config.get("evaluation_config") or {}):
        _, env_creator = trainer._resolve_env(config["env"])
    return WorkerSet(
        env_creator=env_creator,
        validate_env=trainer.env_validator(),
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


class RLlibEvaluationNames:
    """Private names of RLlib's `Trainer` that programs which evaluate in their own way know."""

    config: dict[str, Any]
    workers: Any

    #: What the last evaluation gave, `{"evaluation": ...}`; nothing before the first.
    evaluation_metrics: Mapping[str, Any] = MappingProxyType({})

    def _before_evaluate(self) -> None:
        """Hook: called at the start of each evaluation, unless `before_evaluate` is overridden."""

    def _sync_weights_to_workers(self, *, worker_set: WorkerSet, workers: Any = None) -> None:
        """Gives other workers the weights and filters of those that train, as evaluations begin with it."""
        del workers
        send_weights(self.workers, worker_set)

    def _sync_filters_if_needed(self, workers: WorkerSet) -> None:
        """Merges the observation filters of remote workers into those of their local one."""
        if self.config["observation_filter"] == "NoFilter":
            return
        from rlframe.evaluation.filter_manager import FilterManager

        sends_back = bool(self.config["synchronize_filters"])
        FilterManager.synchronize(workers.local_worker().filters, workers.remote_workers(), sends_back)


def _restart(worker: Any) -> None:
    if worker.runner is not None:
        worker.runner.restart()


def run_episodes(
    workers: WorkerSet,
    episodes: int | None,
    keep_going: Callable[[int], bool] | None = None,
    steps: int | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> list[RolloutMetrics]:
    """Runs fresh episodes and returns exactly `episodes` of them (or, with None, as many as `keep_going` allows).

    Slots that step side by side finish short episodes first, so it is not the first to finish that count: each slot
    gives its share, and with `keep_going` or `steps` all that were begun in time.

    Args:
        workers: Evaluation workers.
        episodes: How many; None goes by `keep_going`, or `steps`.
        keep_going: `fn(episodes so far) -> bool`, asked before each round.
        steps: Env steps that the episodes shall have at least.
        interrupted: Whether nobody wants them any more, asked before each round.

    Raises:
        EnvError: If there is no environment to evaluate in.
    """
    if workers.local_worker().runner is None and not workers.remote_workers():
        raise EnvError(
            "nothing to evaluate in: the driver has no environment and there are no evaluation workers; set "
            '"evaluation_interval" (with "evaluation_num_workers" if wanted), or "create_env_on_driver": True'
        )
    workers.foreach_worker(_restart)
    tally = _Tally(workers)
    if steps is not None:
        keep_going = lambda _: sum(metric.episode_length for _, metric in tally.done) < steps  # noqa: E731
    if episodes is not None:
        wanted = tally.shares(episodes)
    else:
        while keep_going is not None and not interrupted() and keep_going(len(tally.done)):
            tally.run_round()
        wanted = tally.begun()
    while tally.lacks(wanted) and not interrupted():
        tally.run_round(wanted)
    return tally.first(wanted)


_Slot = tuple[int, int]  # worker, slot


class _Tally:
    """The finished episodes of evaluation workers, by the slot they ran in."""

    def __init__(self, workers: WorkerSet) -> None:
        self.done: list[tuple[_Slot, RolloutMetrics]] = []
        self._workers = workers.remote_workers()
        self._local = workers.local_worker()
        self._tolerant = workers.tolerates_failures
        self._fruitless = 0
        self._num_slots = self._on_each(range(len(self._workers) or 1), _num_slots)
        # One slot of each worker, then the next: workers share what is left over.
        self._slots = sorted(
            ((worker, slot) for worker, count in enumerate(self._num_slots) for slot in range(count)),
            key=lambda pair: (pair[1], pair[0]),
        )
        self._finished = dict.fromkeys(self._slots, 0)

    def shares(self, episodes: int) -> dict[_Slot, int]:
        """Returns how many of `episodes` each slot has to give."""
        count, rest = divmod(episodes, len(self._slots))
        return {slot: count + (number < rest) for number, slot in enumerate(self._slots)}

    def begun(self) -> dict[_Slot, int]:
        """Returns how many episodes each slot has begun; a worker with one of them stands between two."""
        return {slot: done + (self._num_slots[slot[0]] > 1) for slot, done in self._finished.items() if self.done}

    def lacks(self, wanted: dict[_Slot, int]) -> bool:
        """Whether a slot has finished fewer episodes than are wanted of it."""
        return any(self._finished[slot] < count for slot, count in wanted.items())

    def first(self, wanted: dict[_Slot, int]) -> list[RolloutMetrics]:
        """Returns the first episodes of each slot, as many as are wanted of it, in the order they ended."""
        left, chosen = dict(wanted), []
        for slot, metric in self.done:
            if left.get(slot, 0) > 0:
                left[slot] -= 1
                chosen.append(metric)
        return chosen

    def run_round(self, wanted: dict[_Slot, int] | None = None) -> None:
        """Lets every worker of which episodes are `wanted` finish one or more."""
        chosen = list(range(len(self._num_slots)))
        if wanted is not None:
            chosen = sorted({slot[0] for slot, count in wanted.items() if self._finished[slot] < count})
        before = len(self.done)
        made, failures = self._try_each(chosen)
        for worker, metrics in made.items():
            for metric in metrics:
                slot = worker, metric.slot if self._num_slots[worker] > 1 else 0
                self._finished[slot] += 1
                self.done.append((slot, metric))
        self._fruitless = 0 if len(self.done) > before else self._fruitless + 1
        for failure in failures:
            self._bear(failure)

    def _bear(self, failure: BaseException) -> None:
        """Raises a failure, unless it is one of an environment that begins anew, and episodes are still finished."""
        from rlframe.evaluation.cluster import unwrap_ray_error

        cause = unwrap_ray_error(failure)
        if not (self._tolerant and isinstance(cause, EnvError)) or self._fruitless > MAX_WORKER_FAILURE_RETRIES:
            raise cause
        _LOGGER.warning("an environment failed and evaluation goes on: %s", cause)

    def _try_each(self, chosen: Sequence[int]) -> tuple[dict[int, list[RolloutMetrics]], list[BaseException]]:
        """Lets workers finish episodes; returns these by worker, and what failed."""
        if not self._workers:
            try:
                return {0: _finish_some(self._local)}, []
            except EnvError as error:
                return {}, [error]
        from rlframe.evaluation.cluster import answers_of

        answers, failures = answers_of([self._workers[index].apply.remote(_finish_some) for index in chosen])
        return {chosen[number]: metrics for number, metrics in answers.items()}, list(failures.values())

    def _on_each(self, chosen: Iterable[int], function: Callable[[Any], Any]) -> list[Any]:
        if not self._workers:
            return [function(self._local)]
        import ray

        made: list[Any] = ray.get([self._workers[index].apply.remote(function) for index in chosen])
        return made


def _num_slots(worker: Any) -> int:
    return int(worker.runner.num_slots)


def _finish_some(worker: Any) -> list[RolloutMetrics]:
    if worker.input_reader is None:
        worker.sample()
    else:  # a trainer's own worker, which learns from data, and has an environment beside them
        worker.sample_environments()
    metrics, _ = part_estimates(worker.get_metrics())
    return metrics


def summarize(
    episodes: list[RolloutMetrics], iteration: int, started: float, keep_custom_metrics: bool = False
) -> dict[str, Any]:
    """Returns the `evaluation` part of a result: statistics of just these episodes and the weights' iteration."""
    summary = summarize_episodes(episodes, episodes, keep_custom_metrics=keep_custom_metrics)
    summary["training_iteration"] = iteration
    summary["timesteps_this_iter"] = sum(episode.episode_length for episode in episodes)
    summary["time_this_iter_s"] = time.time() - started
    summary["age_iterations"] = 0
    return summary


def auto_rounds(training: Future[Any]) -> Callable[[int], bool]:
    """Returns a condition for `run_episodes` that holds until the training step is done (at least one round)."""
    return lambda so_far: so_far == 0 or not training.done()
