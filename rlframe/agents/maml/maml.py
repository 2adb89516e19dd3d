"""MAML: weights from which one gradient step adapts to a new task; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.meta_learning import MetaLearningConfig, MetaUpdate, Round, begin_episodes, returns_of
from rlframe.config.options import option
from rlframe.evaluation.tasks import with_tasks
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.plan.context import STEPS_SAMPLED_COUNTER, _get_shared_metrics, concat, count_sampled
from rlframe.execution.plan.item_state import pack_item, unpack_item
from rlframe.execution.rollout_ops import ParallelRollouts, StandardizeFields
from rlframe.trainer.template import build_trainer
from rlframe.utils.errors import EnvError
from rlframe.utils.seeding import derive_seed

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class MAMLConfig(MetaLearningConfig):
    """Keys of MAML (Finn et al. 2017). Each of `num_workers` has a task, which an update lasts."""

    new_defaults: ClassVar[Any] = {"model": {"vf_share_layers": False}}

    use_meta_env: bool = option(
        True, "Tasks come from sample_tasks(n) of the environment, and go to its set_task(task)."
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if not self.create_env_on_driver and self.use_meta_env:
            yield "create_env_on_driver=False: tasks are asked of an environment on the driver; set True"


class AdaptToTasks:
    """Takes a round; gives the rounds of one update where they are complete, else nothing. For `.combine()`.

    Each worker has a task of its own, and begins with the policy's weights. Behind each round but the last it gets
    those that one more step on its own batch leads to.

    Args:
        workers: The WorkerSet; without remote workers the local one samples, a task for each update.
        config: The trainer's config.
    """

    def __init__(self, workers: WorkerSet, config: MAMLConfig) -> None:
        self._workers, self._config = workers, config
        self._policy: Any
        ((self._policy_id, self._policy),) = workers.local_worker().policy_map.items()
        self._standardize = StandardizeFields(["advantages"])
        self._updates = 0
        self._rounds: list[Round] = []
        #: The weights that each worker samples with; none between updates.
        self._adapted: list[Mapping[str, Any]] = []
        self.returns: dict[str, float] = {}

    def _on_fetch_start(self) -> None:
        """Has each worker begin episodes with its task and its weights."""
        metrics, remote = _get_shared_metrics(), self._workers.remote_workers()
        metrics.check_steps_limit()  # which leaves the policy its own weights
        self._begun = self._policy.get_weights()
        if not self._adapted:
            self._adapted = [self._begun] * max(len(remote), 1)
            self._workers.local_worker().set_global_vars({"timestep": metrics.counters[STEPS_SAMPLED_COUNTER]})
            self._set_tasks(remote)
        for worker, weights in zip(remote, self._adapted, strict=False):
            worker.set_weights.remote({self._policy_id: weights}, self._workers.local_worker().get_global_vars())
            worker.apply.remote(begin_episodes)
        if not remote:
            self._policy.set_weights(self._adapted[0])
            begin_episodes(self._workers.local_worker())

    def _set_tasks(self, remote: list[Any]) -> None:
        if self._config.use_meta_env:
            tasks = self._tasks(len(self._adapted))
            for worker, task in zip(remote, tasks, strict=False):
                worker.foreach_env.remote(partial(_set_task, task))
            if not remote:
                self._workers.local_worker().foreach_env(partial(_set_task, tasks[0]))

    def _tasks(self, count: int) -> list[Any]:
        local, seed = self._workers.local_worker(), self._config.seed
        env = with_tasks(local.env)
        if not (hasattr(env, "sample_tasks") and hasattr(env, "set_task")):
            raise EnvError(
                f"MAML: got {env!r}, which has no sample_tasks(n) and set_task(task); wanted both, as a "
                "TaskSettableEnv has them, or use_meta_env=False where resets draw the tasks"
            )
        if seed is not None and self._workers.remote_workers():
            # It plays no episodes, so nothing else brings its random stream to where it was behind a restore.
            local.slots[0].env.reset(seed=derive_seed(seed, "tasks", self._updates))
        return list(env.sample_tasks(count))

    def __call__(self, batches: Round) -> list[list[Round]]:
        """Takes a round; returns `[rounds]` or nothing."""
        if not self._workers.remote_workers():
            self._policy.set_weights(self._begun)
        number = len(self._rounds)
        name = f"_adapt_{number}" if number else ""
        self.returns |= {f"episode_reward_{key}{name}": value for key, value in returns_of(batches).items()}
        self._rounds.append(batches)
        for batch in batches:
            self._standardize(batch)
        if number < self._config.inner_adaptation_steps:
            pairs = zip(batches, self._adapted, strict=True)
            self._adapted = [self._policy.adapted_weights(batch, weights) for batch, weights in pairs]
            return []
        gained = self.returns[f"episode_reward_mean{name}"] - self.returns["episode_reward_mean"]
        self.returns["adaptation_delta"] = gained
        rounds, self._rounds, self._adapted = self._rounds, [], []
        self._updates += 1
        return [rounds]

    def report(self, result: dict[str, Any]) -> dict[str, Any]:
        """Returns a result with the returns before and behind each step of adaptation."""
        return {**result, **self.returns}

    def get_state(self) -> dict[str, Any]:
        """Returns how many updates there were, and what there is of the next one."""
        begun = {"rounds": self._rounds, "adapted": self._adapted, "returns": self.returns}
        return {"updates": self._updates, "begun": pack_item(begun)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self._updates, begun = int(state["updates"]), unpack_item(state["begun"])
        self._rounds, self._adapted, self.returns = begun["rounds"], begun["adapted"], begun["returns"]


def _set_task(task: Any, env: Any) -> None:
    with_tasks(env).set_task(task)


def sample_rounds(workers: WorkerSet) -> LocalIterator[Any]:
    """Gives lists with a batch of each worker, and counts their steps."""
    rollouts: Any = ParallelRollouts(workers, mode="raw")
    if not workers.remote_workers():
        return LocalIterator.for_each(rollouts, lambda batch: [batch])
    return LocalIterator.for_each(rollouts.batch_across_shards(), _counted)


def _counted(batches: Round) -> Round:
    count_sampled(concat(batches))
    return batches


def execution_plan(workers: WorkerSet, config: MAMLConfig) -> LocalIterator[Any]:
    """Samples each task before and behind its adaptation, and moves the weights that all begin with."""
    config = MAMLConfig.view(config)
    adapt = AdaptToTasks(workers, config)
    train = sample_rounds(workers).combine(adapt).for_each(MetaUpdate(workers))
    return StandardMetricsReporting(train, workers, config).for_each(adapt.report)


DEFAULT_CONFIG: dict[str, Any] = MAMLConfig.defaults()

MAMLTrainer = build_trainer(
    name="MAML",
    config_class=MAMLConfig,
    policies={
        "torch": "rlframe.agents.maml.maml_policy:MAMLTorchPolicy",
        "tf": "rlframe.agents.maml.maml_policy:MAMLTFPolicy",
    },
    execution_plan=execution_plan,
)
