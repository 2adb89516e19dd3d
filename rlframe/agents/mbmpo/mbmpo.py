"""MBMPO: a policy that adapts to each of several learned models of its environment; config, plan, trainer."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.meta_learning import MetaLearningConfig, MetaUpdate, Round, returns_of
from rlframe.config.declaration import Section
from rlframe.config.options import option, section
from rlframe.data.sample_batch import SampleBatch
from rlframe.env.wrappers.model_vector_env import ModelVectorEnv, layer_with_reward
from rlframe.evaluation.callbacks import call_hook
from rlframe.evaluation.worker_building import make_runner, make_slots
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.plan.context import (
    SAMPLE_TIMER,
    STEPS_SAMPLED_COUNTER,
    SharedMetrics,
    _get_shared_metrics,
    count_sampled,
)
from rlframe.execution.rollout_ops import StandardizeFields
from rlframe.trainer.template import build_trainer
from rlframe.utils.seeding import derive_seed

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class DynamicsConfig(Section):
    """Options of the learned models."""

    custom_model: Any = option(None, "A class derived from DynamicsEnsemble in its place.", wanted="a class")
    ensemble_size: int = option(5, "Models.", low=1)
    fcnet_hiddens: list[int] = option([512, 512, 512], "Sizes of each model's hidden layers.", low=1)
    lr: float = option(1e-3, "Rate of Adam.", above=0, log=True)
    train_epochs: int = option(500, "Passes of one fit over the rows, at most.", low=1)
    batch_size: int = option(500, "Rows of one step of Adam.", unit="rows", low=1)
    valid_split_ratio: float = option(
        0.2, "Share of the rows that a model does not learn from; their loss ends the fit.", above=0, high=0.99
    )
    normalize_data: bool = option(True, "Observations, actions and what steps change have mean 0 and deviation 1.")


class MBMPOConfig(MetaLearningConfig):
    """Keys of MBMPO (Clavera et al. 2018). Each of `num_workers` plays in one model; none: one plays in all."""

    new_defaults: ClassVar[Any] = {
        "vf_loss_coeff": 0.5,
        "clip_param": 0.5,
        "kl_target": 0.01,
        "horizon": 200,
        "inner_lr": 1e-3,
        "maml_optimizer_steps": 8,
        "metrics_smoothing_episodes": 1,
        "exploration_config": {"random_timesteps": 8000},
        "model": {"vf_share_layers": False},  # errors of values are thousands of times the policy's gradient
    }

    num_maml_steps: int = option(10, "Meta-updates in the models for each time that these are fitted.", low=1)
    dynamics_model: DynamicsConfig = section(DynamicsConfig, "Options of the learned models.")

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if not self.create_env_on_driver:
            yield "create_env_on_driver=False: what the models learn from is sampled on the driver; set True"
        if not self.horizon:
            yield "horizon=None: episodes in a model need not end; set the most steps of one"
        if self.observation_filter != "NoFilter":
            yield (
                f"observation_filter={self.observation_filter!r}: models predict what the environment gives; set "
                "'NoFilter'; dynamics_model.normalize_data scales it for them"
            )
        if self.input != "sampler" or self.output is not None:
            yield "input, output: most rows are of learned models; leave both out"
        if self.vectorized_env:
            yield "vectorized_env=True: episodes in a model begin in environments one by one; set False"


def validate_env(env: Any, env_context: Any) -> None:
    """Raises an EnvError where an environment cannot say what predicted observations are worth."""
    del env_context
    layer_with_reward(env)


class Imagination:
    """Episodes of a worker's policy in a learned model; callbacks hear of them as of others, reports do not.

    Args:
        worker: The worker.
    """

    def __init__(self, worker: Any) -> None:
        config, context = worker.policy_config, worker.env_context

        def make_env(index: int) -> Any:
            return worker._env_creator(context.copy_with_overrides(vector_index=index))

        self.model: Any = None
        self._env = ModelVectorEnv(make_env, config.num_envs_per_worker)
        self._worker = copy.copy(worker)
        self._worker.slots = make_slots(config, context, lambda _: self._env, None, worker._restarts)
        self._worker.runner = make_runner(self._worker, worker._hooks)

    @staticmethod
    def of(worker: Any) -> Imagination:
        """Returns that of a worker."""
        worker.imagination = found = getattr(worker, "imagination", None) or Imagination(worker)
        return found

    def play(self, weights: Mapping[str, Any], global_vars: Mapping[str, Any], seed: int | None) -> Any:
        """Returns a batch of whole episodes with some weights by policy id, which stay; no action is plainly random."""
        worker = self._worker
        worker.set_weights(weights, global_vars)
        (policy,) = worker.policy_map.values()
        explores, random = policy.exploration, getattr(policy.exploration, "random_timesteps", 0)
        self._env.begin(self.model, seed)
        worker.slots[0].sub_env.group.fail()  # so that no first observations of an earlier batch are left
        worker.runner.restart()
        try:
            explores.random_timesteps = 0
            batch = worker.sample_environments()
        finally:
            explores.random_timesteps = random
        if "on_sample_end" in worker._hooks:
            call_hook(worker.callbacks, "on_sample_end", {"worker": worker, "samples": batch})
        return batch


def _take_model(model: Any, worker: Any) -> None:
    Imagination.of(worker).model = model


def _play(by_worker: Mapping[int, Any], worker: Any, index: int) -> Any:
    """Returns what a worker has played, by the arguments that it is given; None where it is given none."""
    return Imagination.of(worker).play(*by_worker[index]) if index in by_worker else None


class MetaUpdatesInModels:
    """Gives the learner's info of one iteration: meta-updates in the models, which are then fitted to new rows.

    Before the first iteration the models are fitted to the rows of random actions.

    Args:
        workers: The WorkerSet. Remote workers play in a model each; without any the local one plays in all.
        config: The trainer's config.
    """

    plan_name = "MetaUpdatesInModels"

    def __init__(self, workers: WorkerSet, config: MBMPOConfig) -> None:
        self._workers, self._config = workers, config
        self._local: Any = workers.local_worker()
        self._policy: Any
        ((self._policy_id, self._policy),) = self._local.policy_map.items()
        self._learn = MetaUpdate(workers)
        self._standardize = StandardizeFields(["advantages"])
        self._returns: dict[str, float] = {}

    def __iter__(self) -> MetaUpdatesInModels:
        return self

    def __next__(self) -> Any:
        """Does an iteration."""
        _get_shared_metrics().check_steps_limit()
        if not self._policy.dynamics_model.fits:
            self._fit(self._config.exploration_config.get("random_timesteps", 0))
            self._local.runner.get_metrics()  # of random actions
        self._hand_out()
        for number in range(self._config.num_maml_steps):
            info = self._learn(self._rounds(number))
        self._workers.weights_changed()
        self._fit(1)
        return info

    def _fit(self, steps: int) -> None:
        """Samples so many steps or a fragment, and fits the models to the last of all."""
        metrics, dynamics, sampled = _get_shared_metrics(), self._policy.dynamics_model, 0
        started = perf_counter()
        while sampled < max(steps, 1):
            self._local.set_global_vars({"timestep": metrics.counters[STEPS_SAMPLED_COUNTER]})
            batch: Any = count_sampled(self._local.sample())
            dynamics.add(batch.decompress_if_needed())
            sampled += batch.count
        metrics.timers[SAMPLE_TIMER].push(perf_counter() - started)
        started = perf_counter()
        metrics.info["dynamics"] = dynamics.fit()
        metrics.timers["fit_dynamics"].push(perf_counter() - started)

    def _hand_out(self) -> None:
        """Gives each remote worker the model that it plays in."""
        dynamics = self._policy.dynamics_model
        self._models = [dynamics.model(place) for place in range(dynamics.num_models)]
        for worker, number in zip(self._workers.remote_workers(), self._workers.remote_indexes(), strict=True):
            worker.apply.remote(partial(_take_model, self._models[(number - 1) % len(self._models)]))

    def _rounds(self, number: int) -> list[Round]:
        """Returns what was played before and behind each step of adaptation, of one meta-update."""
        steps, rounds = self._config.inner_adaptation_steps, list[Round]()
        adapted = [self._policy.get_weights()] * (len(self._workers.remote_workers()) or len(self._models))
        for place in range(steps + 1):
            batches = self._played(adapted, place)
            prefix = f"MAMLIter{number}_DynaTrajInner_{place}_episode_reward"
            self._returns |= {f"{prefix}_{key}": value for key, value in returns_of(batches).items()}
            for batch in batches:
                self._standardize(self._policy.estimate_advantages(batch))
            rounds.append(batches)
            if place < steps:
                adapted = [self._policy.adapted_weights(*pair) for pair in zip(rounds[-1], adapted, strict=True)]
        return rounds

    def _played(self, adapted: Sequence[Any], place: int) -> list[SampleBatch]:
        """Returns a batch of each task, played with its own weights."""
        told, seed = self._local.get_global_vars(), self._config.seed

        def arguments(task: int, weights: Any) -> Any:
            path = ("imagined", task, self._policy.num_updates, place)
            return {self._policy_id: weights}, told, None if seed is None else derive_seed(seed, *path)

        if self._workers.remote_workers():
            calls = zip(self._workers.remote_indexes(), adapted, strict=True)
            given = {index: arguments(index, weights) for index, weights in calls}
            played = self._workers.foreach_worker_with_index(partial(_play, given))
            return [batch.decompress_if_needed() for batch in played[1:]]
        own, dream = self._policy.get_weights(), Imagination.of(self._local)
        played = []
        for task, weights in enumerate(adapted):
            dream.model = self._models[task]
            played.append(dream.play(*arguments(task, weights)))
        self._policy.set_weights(own)
        return played

    def report(self, result: dict[str, Any]) -> dict[str, Any]:
        """Returns a result with the returns in the models, before and behind each step of adaptation."""
        return {**result, **self._returns}


def execution_plan(workers: WorkerSet, config: MBMPOConfig) -> LocalIterator[Any]:
    """Learns models of the environment, and a policy in them that one step adapts to each."""
    config = MBMPOConfig.view(config)
    updates = MetaUpdatesInModels(workers, config)
    train: Any = LocalIterator(lambda _: updates, SharedMetrics(), name=updates.plan_name)
    return StandardMetricsReporting(train, workers, config).for_each(updates.report)


DEFAULT_CONFIG: dict[str, Any] = MBMPOConfig.defaults()

MBMPOTrainer = build_trainer(
    name="MBMPO",
    config_class=MBMPOConfig,
    policies={
        "torch": "rlframe.agents.mbmpo.mbmpo_policy:MBMPOTorchPolicy",
        "tf": "rlframe.agents.mbmpo.mbmpo_policy:MBMPOTFPolicy",
    },
    execution_plan=execution_plan,
    validate_env=validate_env,
)
