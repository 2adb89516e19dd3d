"""`Trainer`: the object a program trains, evaluates, saves and asks for actions."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ray.tune import Trainable
from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.tune.utils.util import UtilMonitor

from rlframe.config.common import ROWS_ARE_FOR_LEARNING, CommonConfig
from rlframe.config.merge import with_common_config
from rlframe.config.nested_dict import copy_containers, overlay
from rlframe.config.renames import other_names_in, with_other_names
from rlframe.evaluation.callbacks import call_hook, make_callbacks, misnamed_hooks, overridden_hooks
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.plan.context import StepsLimitReached
from rlframe.execution.plan.item_state import close_operator
from rlframe.execution.plan.local_iterator import LocalIterator, as_local_iterator, in_context_of
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts
from rlframe.execution.train_ops import TrainOneStep
from rlframe.trainer import checkpointing
from rlframe.trainer.acting import ActingMixin
from rlframe.trainer.describing import DescribingMixin, EndsWatch, epsilons_of
from rlframe.trainer.evaluating import (
    RLlibEvaluationNames,
    auto_rounds,
    make_evaluation_workers,
    run_episodes,
    send_weights,
    summarize,
)
from rlframe.trainer.iterating import IteratingMixin, learns_in_workers, training_method, trains_by_own_code
from rlframe.trainer.loggers import RunLogger
from rlframe.trainer.policies import PolicyTableMixin
from rlframe.trainer.recovery import MAX_WORKER_FAILURE_RETRIES, recover, with_recovery
from rlframe.trainer.saving import SavingMixin
from rlframe.trainer.setup import (
    NoPolicyError,
    added_to,
    call_by_signature,
    has_all_classes,
    has_own_code,
    import_path,
    make_logdir,
    merge_trainer_config,
    own_policy_class,
    plan_makes_buffer,
    required_positionals,
    resolve_trainer_env,
    says_framework,
    seed_process,
    settle_framework,
)
from rlframe.utils.errors import ConfigError, WorkerError, ending
from rlframe.utils.logs import set_log_level, silence_tune
from rlframe.utils.names import gates, under
from rlframe.utils.seeding import entropy_seed

if TYPE_CHECKING:
    from rlframe.config.options import AlgorithmConfig
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.execution.plan.report import PlanReport

_LOGGER = logging.getLogger("rlframe")
silence_tune()

COMMON_CONFIG: dict[str, Any] = CommonConfig.defaults()
_OLD_METHODS = {"__init__", "_setup", "_save", "_restore", "_log_result", "_stop", "save_checkpoint", "load_checkpoint"}


class _DefaultConfig:
    """`_default_config` of trainer classes, which RLlib had beside `get_default_config()`."""

    def __get__(self, trainer: Any, cls: type[Trainer]) -> dict[str, Any]:
        return cls.get_default_config()


class _PolicyClass:
    """`_policy_class` of trainers and their classes, `_policy` in RLlib 0.8: that of the default policy."""

    def __get__(self, trainer: Any, cls: type[Trainer]) -> Any:
        own = None if trainer is None else vars(trainer).get("policy_class")
        try:
            return own or cls.get_default_policy_class(cast(Any, trainer), cls.get_default_config())
        except ConfigError as error:
            if trainer is not None:
                raise
            if isinstance(error, NoPolicyError):  # as RLlib's classes without one, whose configs have each policy's
                return None
            raise AttributeError(str(error)) from error  # Ray looks at all attributes of classes, and passes over these


class _ClassName:
    """`_name` of trainers that `build_trainer` did not make: that of the class, as in RLlib."""

    def __get__(self, trainer: Any, cls: type[Trainer]) -> str:
        return cls.__name__


class Trainer(
    ActingMixin,
    DescribingMixin,
    IteratingMixin,
    PolicyTableMixin,
    RLlibEvaluationNames,
    SavingMixin,
    Trainable,
):
    """Trains policies with an execution plan; a `ray.tune.Trainable`.

    Use a built one (`DQNTrainer(config, env=...)`), derive one (`DQNTrainer.with_updates(...)`,
    `build_trainer(...)`), or subclass and override `get_default_config`, `get_default_policy_class`,
    `validate_config`, and `execution_plan`, or in its place `training_iteration` (`training_step`).

    Args:
        config: What differs from `get_default_config()`; a plain dict.
        env: A Gymnasium id, a registered name, a dotted class path, an environment class, or a callable that takes an
            `EnvContext`; None takes `config["env"]`.
        logger_creator: `fn(config) -> logger` with `on_result(result)`, `flush()`, `close()` and `logdir`.
        remote_checkpoint_dir: Accepted for old programs; Tune's storage decides today.
        sync_function_tpl: Accepted for old programs; Tune's storage decides today.
        storage: Given by Tune.

    Raises:
        ConfigError: Lists every fault of the config.
        EnvError: If the environment is unknown or wrong.
        WorkerError: If the cluster cannot hold the workers.
    """

    #: Env steps in all at which an iteration ends, and after which none is sampled; None for no limit.
    env_steps_limit: int | None = None
    #: 1 while an iteration has trained and is not over: `iteration` counts it at its end.
    _uncounted: int = 0
    _stopped: bool = False
    _name: Any = _ClassName()
    #: Declaration of the config keys: types, bounds, meanings.
    _config_class: ClassVar[type[AlgorithmConfig]] = CommonConfig
    _default_config: Any = _DefaultConfig()
    _policy_class: Any = _PolicyClass()
    _policy: Any = _policy_class
    _allow_unknown_configs: bool = False
    #: RLlib's, for lists of programs that go on from it; which sections take any keys is said by `_config_class`.
    _allow_unknown_subkeys: ClassVar[list[str]] = [
        "tf_session_args", "local_tf_session_args", "env_config", "model", "optimizer", "multiagent",
        "custom_resources_per_worker", "evaluation_config", "exploration_config",
        "extra_python_environs_for_driver", "extra_python_environs_for_worker", "input_config",
    ]  # fmt: skip
    _override_all_subkeys_if_type_changes: ClassVar[list[str]] = ["exploration_config", "replay_buffer_config"]

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        env: Any = None,
        logger_creator: Callable[[dict[str, Any]], Any] | None = None,
        remote_checkpoint_dir: str | None = None,
        sync_function_tpl: Any = None,
        storage: Any = None,
    ) -> None:
        del remote_checkpoint_dir, sync_function_tpl
        if not isinstance(config, Mapping | None):
            raise ConfigError(
                f"{type(self).__name__}: got {config!r:.100} ({type(config).__name__}) as the config, wanted a dict, "
                "and the environment behind it: ({'lr': 1e-4}, env='CartPole-v1')"
            )
        given = dict(config or {})
        env_spec = given.get("env") if env is None else env
        self._env_id, self.env_creator = self._resolve_env(env_spec)
        given["env"] = env_spec
        self._logdir: Any = None
        self._logger_creator = logger_creator
        self._logger: Any = None
        self.workers: WorkerSet = cast(Any, None)  # until `setup`, which this constructor calls at its end
        self.evaluation_workers: WorkerSet | None = None
        self.train_exec_impl: Any = None
        self._made_plan: Any = None  # the same, where `_make_plan` made it
        self.local_replay_buffer: Any = None
        self._last_evaluation: dict[str, Any] | None = None
        self._usage: Any = None
        self._goes_on_exactly = True
        self._left_behind = ""  # what of a checkpoint's sampling was not taken over
        self._gates = gates()
        self._ends = EndsWatch()
        self._interrupted = threading.Event()
        with ending(partial(Trainer.cleanup, self)):
            super().__init__(given, storage)
        # Tune's monitor is a thread; system usage is read here once an iteration instead.
        self._monitor.stop()

    # --- construction -----------------------------------------------------------------------------------------

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Takes a subclass's methods and defaults by their old names, such as `_save` and `_default_config = {…}`."""
        super().__init_subclass__(**kwargs)
        own = (base for base in cls.__mro__[:-1] if base is cls or not issubclass(base, Trainable))  # mixins, too
        if any(not _OLD_METHODS.isdisjoint(base.__dict__) for base in own):
            from rlframe.trainer.old_names import give_present_names

            give_present_names(cls)
        given = cls.__dict__.get("_default_config")
        if isinstance(given, Mapping):
            declaration = cls._config_class

            def get_default_config(cls: type[Trainer]) -> dict[str, Any]:
                del cls
                return overlay(declaration.defaults(), copy_containers(given))

            cls.get_default_config = classmethod(get_default_config)  # type: ignore[method-assign,assignment]

    @classmethod
    def get_default_config(cls) -> dict[str, Any]:
        """Returns a fresh dict of all config keys and their defaults."""
        return cls._config_class.defaults()

    @classmethod
    def merge_trainer_configs(
        cls, config1: dict[str, Any], config2: dict[str, Any], _allow_unknown_configs: bool | None = None
    ) -> dict[str, Any]:
        """Returns `config2` laid on `config1`, checked.

        Raises:
            ConfigError: Lists every fault.
        """
        unknown = cls._allow_unknown_configs if _allow_unknown_configs is None else _allow_unknown_configs
        return merge_trainer_config(
            cls._config_class,
            config1,
            config2,
            allow_unknown=unknown,
            allow_unknown_subkeys=added_to(Trainer._allow_unknown_subkeys, cls._allow_unknown_subkeys),
            override_all_if_type_changes=cls._override_all_subkeys_if_type_changes,
            own_code=has_own_code(cls, config2),
        )

    def _resolve_env(self, env: Any) -> tuple[str | None, Any]:
        """Returns name and creator of an environment to train or evaluate in; Nones for none."""
        return resolve_trainer_env(env)

    def setup(self, config: dict[str, Any]) -> None:
        """Builds everything: config, workers, plan, evaluation workers; called by the constructor."""
        self.config = self.merge_trainer_configs(self.get_default_config(), config)
        self._framework_is_said = says_framework(self.config, config)
        if taken := settle_framework(self.config, config):
            _LOGGER.warning(taken)
        seed = self.config["seed"]
        self.seed = entropy_seed() if seed is None else int(seed)
        seed_process(seed)
        from rlframe.evaluation.process_environment import set_environment

        set_environment("extra_python_environs_for_driver", self.config)
        self.callbacks = make_callbacks(self.config["callbacks"])
        for sentence in misnamed_hooks(self.callbacks):
            _LOGGER.warning(sentence)
        set_log_level(self.config["log_level"])
        with other_names_in(self.config):
            call_by_signature(self.validate_config, self.config)
        self._effective_config = self._config_class.effective(self.config)
        self._given_config = config
        self._init(self.config, self.env_creator)
        if not hasattr(self, "policy_class"):  # it is the program's own, which need not know of these
            self.policy_class = vars(self).get("_policy_class") or getattr(type(self), "_policy_class", None)
        if self.evaluation_workers is None and self.policy_class is not None:
            self._make_evaluation_workers()

    def _init(self, config: dict[str, Any], env_creator: Any) -> None:
        """Builds policies, workers and plan; a subclass may build more, or in their place what its `step` needs.

        Args:
            config: The trainer's.
            env_creator: Makes environments.
        """
        if config is not self.config:  # a changed copy of it
            self.config.update(config)
        with other_names_in(self.config):
            self.policy_class = self.get_default_policy_class(self.config)
            self.before_init()
        self._effective_config = self._config_class.effective(self.config)  # the hook may have changed the config
        self._plan_makes_buffer = plan_makes_buffer(self, self._given_config)
        self.local_replay_buffer = self.make_replay_buffer(self.config)
        self.workers = self._make_workers(  # by name, as overriding methods declare them
            env_creator=env_creator,
            validate_env=self.env_validator(),
            policy_class=self.policy_class,
            config=self.config,
            num_workers=self.config["num_workers"],
        )
        self.train_exec_impl = self._make_plan()
        self._make_evaluation_workers()
        self.after_init()
        if "on_trainer_init" in overridden_hooks(self.callbacks):
            call_hook(self.callbacks, "on_trainer_init", {"trainer": self})
        self._log_parts(self._given_config)

    def _make_evaluation_workers(self) -> None:
        """Makes those that the config announces."""
        if self.config["evaluation_interval"] or self.config["evaluation_num_workers"]:
            self.evaluation_workers = make_evaluation_workers(self, self.merge_trainer_configs)

    def _make_workers(
        self,
        env_creator: Any = None,
        policy_class: Any = None,
        config: Mapping[str, Any] | None = None,
        num_workers: int | None = None,
        **others: Any,
    ) -> WorkerSet:
        """Returns workers; what a subclass's `_init` does not say is the trainer's own.

        Args:
            env_creator: Makes environments.
            policy_class: Class of the default policy; RLlib 0.8 called it `policy`.
            config: Config of the workers.
            num_workers: Remote workers.
            **others: `policy`, `validate_env`, `local_worker` (there always is one).

        Raises:
            TypeError: If there are others beside these.
        """
        from rlframe.evaluation.worker_set import WorkerSet  # with environments and policies: needed by who trains

        unknown = sorted(others.keys() - {"policy", "validate_env", "local_worker"})
        if unknown:
            raise TypeError(f"_make_workers() got {', '.join(unknown)}; wanted env_creator, policy_class, config, ...")
        changed = {key: value for key, value in (config or {}).items() if self.config.get(key) is not value}
        changed |= {"seed": self.seed, ROWS_ARE_FOR_LEARNING: not trains_by_own_code(self)}
        if learns_in_workers(self):
            changed["sample_in_numpy"] = False
        return WorkerSet(
            env_creator=env_creator or self.env_creator,
            validate_env=others.get("validate_env") or self.env_validator(),
            policy_class=policy_class or others.get("policy") or getattr(self, "policy_class", None),
            trainer_config={**self._effective_config, **changed},
            num_workers=self.config["num_workers"] if num_workers is None else num_workers,
            logdir=self.logdir,
        )

    def _make_plan(self) -> LocalIterator[Any]:
        method = training_method(self)
        if method is None:
            plan = self._plan_of_operators()
        else:
            from rlframe.trainer.training_iteration import training_plan

            plan = training_plan(self, method)
        self._made_plan = plan
        return plan

    def _plan_of_operators(self) -> LocalIterator[Any]:
        gives = getattr(self._config_class, "gives_buffer", callable)(self.execution_plan)
        keywords = (
            {"local_replay_buffer": self.local_replay_buffer} if gives and self.local_replay_buffer is not None else {}
        )
        other_names = with_other_names(self._effective_config, self._config_class.deprecated_keys())
        config: Any = self._config_class.view(other_names)
        given: tuple[Any, ...] = (self.workers, config)
        wanted = required_positionals(self.execution_plan, "local_replay_buffer")
        if wanted > len(given):  # RLlib 1.6 to 1.8: (trainer, workers, config)
            given = (self, *given)
        plan = call_by_signature(self.execution_plan, *given, **keywords)
        try:
            return as_local_iterator(plan)
        except ValueError as error:
            raise ConfigError(
                f"execution_plan returned {type(plan).__name__}, wanted an iterator of result dicts: end the plan with "
                "StandardMetricsReporting(train_op, workers, config)"
            ) from error

    def _setup_logdir(self) -> None:
        if self._storage:
            cast(Any, super())._setup_logdir()
            return
        if self._logger_creator is not None:
            self._logger = self._logger_creator(self.config)
            self._logdir = getattr(self._logger, "logdir", None) or os.getcwd()
            return
        given = self.config.get("logger_config") or {}
        if given.get("type") is not None and given.get("logdir") is not None:  # of that logger, as in RLlib
            self._logdir = os.path.expanduser(given["logdir"])
            os.makedirs(self._logdir, exist_ok=True)
        else:
            self._logdir = make_logdir(self._name, self._env_id, given.get("logdir"))

    def validate_config(self, config: dict[str, Any]) -> None:
        """Hook: raises on a wrong config, or changes it; the declared keys are checked already."""

    @staticmethod
    def validate_env(env: Any, env_context: Any) -> None:
        """Hook: raises on a wrong environment; called in every worker that has one."""

    def env_validator(self) -> Callable[[Any, Any], None] | None:
        """Returns `validate_env` if it was overridden: a worker that is sent the hook imports the hook's module."""
        return None if self.validate_env is Trainer.validate_env else self.validate_env

    def get_default_policy_class(self, config: dict[str, Any]) -> Any:
        """Hook: returns the policy class for a config; None where `multiagent.policies` has the class of each.

        Raises:
            ConfigError: If the trainer names none.
        """
        if named := own_policy_class(type(self)):
            return named
        if has_all_classes((config.get("multiagent") or {}).get("policies")):
            return None
        raise NoPolicyError(f"{self._name} has no policy: pass default_policy, or override get_default_policy_class")

    def before_init(self) -> None:
        """Hook: called before workers exist."""

    def after_init(self) -> None:
        """Hook: called when everything is built."""

    def before_evaluate(self) -> None:
        """Hook: called at the start of each evaluation."""
        self._before_evaluate()

    def make_replay_buffer(self, config: dict[str, Any]) -> Any:
        """Returns the replay buffer that the plan gets as `local_replay_buffer`; None for plans without one.

        A plan that has `make_replay_buffer(config, seed)` as an attribute says which it takes.
        """
        of_plan = getattr(self.execution_plan, "make_replay_buffer", None)
        if of_plan is not None:
            return of_plan(config, self.seed)
        if self._plan_makes_buffer or not config.get("replay_buffer_config"):
            return None
        from rlframe.replay.registry import make_replay_buffer

        return make_replay_buffer(config, self.seed)

    @staticmethod
    def execution_plan(workers: WorkerSet, config: Any, **kwargs: Any) -> LocalIterator[Any]:
        """Returns the dataflow: synchronous on-policy unless overridden."""
        rollouts = ParallelRollouts(workers, mode="bulk_sync")
        train_op = rollouts.combine(ConcatBatches(min_batch_size=config["train_batch_size"])).for_each(
            TrainOneStep(workers)
        )
        return StandardMetricsReporting(train_op, workers, config)

    @classmethod
    def with_updates(cls, **overrides: Any) -> type[Trainer]:
        """Returns a trainer class derived from a built one, with some of `build_trainer`'s arguments replaced."""
        raise NotImplementedError(f"{cls.__name__} was not made by build_trainer; subclass it instead")

    @property
    def algorithm_name(self) -> str:
        """What checkpoints call the algorithm: the name given to `build_trainer`, "Trainer" where it made no class."""
        given = any("_name" in vars(level) for level in type(self).__mro__ if level is not Trainer)
        return str(self._name) if given else "Trainer"

    # --- training ---------------------------------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        """Runs one iteration and returns its result.

        Raises:
            EnvError: If an environment failed, and failures are not to be ignored.
            WorkerError: If no healthy worker is left.
            NonFiniteError: If a reward, observation, loss or weight became NaN or infinite.
            ConfigError: If it was stopped.
        """
        if self._stopped:
            raise ConfigError(
                f"this {type(self).__name__} was stopped, its workers and files are closed; make another one, and give "
                "it the state by restore(checkpoint), or from_checkpoint(checkpoint)"
            )
        try:
            result: dict[str, Any] = cast(Any, super()).train()
        except Exception as error:
            if self.config["log_level"] != "DEBUG":
                from rlframe.trainer.tracebacks import shorten_traceback

                shorten_traceback(error)
            raise
        return result

    def step(self) -> dict[str, Any]:
        """Runs one iteration, what workers failed in again if the config says so; called by `train()`."""
        return self._train()

    def _train(self) -> dict[str, Any]:
        """Does what `step` says; the name that programs for RLlib 0.8 override.

        Raises:
            ConfigError: If there is no plan, since `_init` built the trainer's parts.
        """
        if self.train_exec_impl is None:
            raise ConfigError(
                f"{type(self).__name__} builds its parts in _init() and has no step(); wanted step(self), which trains "
                "and returns a dict of results"
            )
        checkpointing.warn_of_another_plan(self)
        result = self.step_attempt()
        result["num_healthy_workers"] = len(self.workers.remote_workers())
        result["num_worker_restarts"] = self.workers.restarts
        if epsilons := epsilons_of(self.workers):
            result.setdefault("info", {})["exploration"] = epsilons
        self._ends.watch(self, result)
        if self.config["log_sys_usage"]:
            from rlframe.trainer.usage import system_usage

            result["perf"] = system_usage()
        if self.config["env_task_fn"] is not None:
            with_recovery(self, partial(self._set_tasks, result))
        from rlframe.trainer.results import as_result

        return as_result(result)

    def step_attempt(self) -> dict[str, Any]:
        """Pulls one result from the plan, evaluates if it is time to, and brings all workers to the same state.

        After a failure only the part that failed is done again.
        """
        self._interrupted.clear()
        interval = self.config["evaluation_interval"]
        evaluates = bool(interval) and (self.iteration + 1) % interval == 0
        beside = self.evaluation_workers if self.config["evaluation_parallel_to_training"] else None
        try:
            if evaluates and beside is not None:
                result, evaluation = self._train_and_evaluate(beside)
            else:
                result, self._uncounted = with_recovery(self, self._next_result, in_plan=True), 1
                evaluation = self.evaluate() if evaluates else None
        finally:
            self._uncounted = 0
        with_recovery(self, self._align_workers)
        if evaluation is not None:
            self._last_evaluation = evaluation["evaluation"]
        attached = evaluation is not None or self.config["always_attach_evaluation_results"]
        if attached and self._last_evaluation is not None:
            age = self.iteration + 1 - self._last_evaluation.get("training_iteration", self.iteration + 1)
            result["evaluation"] = {**self._last_evaluation, "age_iterations": max(age, 0)}
        return dict(result)

    def _align_workers(self) -> None:
        """Gives all workers the newest weights, and what the others have seen."""
        self.workers.update_workers()
        self.workers.sync_filters(sends_back=bool(self.config["synchronize_filters"]))

    def _next_result(self) -> Any:
        """Pulls a result from the plan; at `env_steps_limit` the iteration ends, whatever is left of it."""
        shared = getattr(self.train_exec_impl, "shared_metrics", None)
        if shared is None:
            return next(self.train_exec_impl)
        shared.get().steps_limit = 0 if self._interrupted.is_set() else self.env_steps_limit
        try:
            return next(self.train_exec_impl)
        except StepsLimitReached:  # of a plan that does not end with StandardMetricsReporting: its iterations are whole
            if self._interrupted.is_set():
                raise
            shared.get().steps_limit = None
            return next(self.train_exec_impl)

    def try_recover_from_step_attempt(self) -> None:
        """Drops or replaces dead workers and builds the plan anew; `train()` does so by itself if the config says so.

        Raises:
            WorkerError: If no healthy worker is left.
        """
        recover(self, WorkerError("the program asked for it"), in_plan=True)

    def _train_and_evaluate(self, beside: WorkerSet) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Trains while evaluation runs beside it, on the weights from before this iteration."""
        with_recovery(self, partial(send_weights, self.workers, beside))
        call_hook(self.callbacks, "on_evaluate_start", {"trainer": self})
        auto = self.config["evaluation_num_episodes"] == "auto"
        with ThreadPoolExecutor(2) as pool, ending(self._interrupt):  # by Ctrl-C: neither goes on behind it
            training = pool.submit(self._next_result)
            evaluating = pool.submit(self._evaluate_once, auto_rounds(training) if auto else None, synced=True)
            wait((training, evaluating))
        result = with_recovery(self, self._next_result, first=training.result, in_plan=True)
        self._uncounted = 1
        # What is left to evaluate after a failure has nothing beside it.
        return result, self._evaluated(with_recovery(self, self._evaluate_once, first=evaluating.result))

    def _interrupt(self) -> None:
        """Has training and evaluation, each in its thread, end with the fragment and the episodes at hand."""
        self._interrupted.set()
        shared = getattr(self.train_exec_impl, "shared_metrics", None)
        if shared is not None:
            shared.get().steps_limit = 0

    def _set_tasks(self, result: dict[str, Any]) -> None:
        from rlframe.evaluation.tasks import same_task, with_tasks

        task_fn = self.config["env_task_fn"]
        full = {**result, "training_iteration": self.iteration + 1}

        def set_task(env: Any, context: Any) -> None:
            task, env = call_by_signature(task_fn, full, env, context), with_tasks(env)
            if not same_task(env.get_task(), task):
                env.set_task(task)

        self.workers.set_tasks(set_task)

    def evaluate(
        self,
        episodes_left_fn: Callable[[int], bool] | None = None,
        *,
        synced: bool = False,
        duration_fn: Callable[[int], Any] | None = None,
    ) -> dict[str, Any]:
        """Runs `evaluation_num_episodes` fresh episodes with the current weights; anew where evaluation workers failed.

        Args:
            episodes_left_fn: `fn(episodes so far) -> whether to go on`, instead of a number.
            synced: Whether the evaluation workers have the weights already.
            duration_fn: RLlib 1.13's `fn(episodes so far) -> how many are left`, instead of `episodes_left_fn`.

        Returns:
            `{"evaluation": statistics of just these episodes}`.

        Raises:
            EnvError: If there is no environment to evaluate in.
        """
        if duration_fn is not None:
            left = duration_fn
            episodes_left_fn = lambda done: left(done) > 0  # noqa: E731 - as an argument it would be the same
        self._interrupted.clear()
        call_hook(self.callbacks, "on_evaluate_start", {"trainer": self})
        return self._evaluated(with_recovery(self, partial(self._evaluate_once, episodes_left_fn, synced=synced)))

    def _evaluated(self, metrics: dict[str, Any]) -> dict[str, Any]:
        self.evaluation_metrics, self._last_evaluation = metrics, metrics["evaluation"]
        call_hook(self.callbacks, "on_evaluate_end", {"trainer": self, "evaluation_metrics": metrics})
        return metrics

    def _evaluate(self) -> dict[str, Any]:
        """Returns what `evaluate()` does: its name up to RLlib 1.3."""
        return self.evaluate()

    def _evaluate_once(
        self, episodes_left_fn: Callable[[int], bool] | None = None, *, synced: bool = False
    ) -> dict[str, Any]:
        started = time.time()
        self.before_evaluate()
        if self.evaluation_workers is None:
            return {"evaluation": self._evaluate_in(self._spare_workers(), episodes_left_fn, started)}
        if not synced:
            send_weights(self.workers, self.evaluation_workers)
        custom = self.config["custom_eval_function"]
        if custom is not None:
            with in_context_of(self):  # whose counters RLlib's programs ask for here, too
                metrics = custom(self, self.evaluation_workers)
            if not metrics or not isinstance(metrics, dict):
                raise ConfigError(f"custom_eval_function: returned {metrics!r}, wanted a dict of metrics, not empty")
            return {"evaluation": {"training_iteration": self.iteration + self._uncounted, **metrics}}
        return {"evaluation": self._evaluate_in(self.evaluation_workers, episodes_left_fn, started)}

    def _evaluate_in(self, workers: WorkerSet, keep_going: Any, started: float) -> dict[str, Any]:
        wanted, steps = self.config["evaluation_num_episodes"], None
        count = None if keep_going is not None else (10 if wanted == "auto" else int(wanted))
        if count is not None and wanted != "auto" and self.config["evaluation_duration_unit"] == "timesteps":
            count, steps = None, count
        keep = bool(self.config["keep_per_episode_custom_metrics"])
        episodes = run_episodes(workers, count, keep_going, steps, self._interrupted.is_set)
        return summarize(episodes, self.iteration + self._uncounted, started, keep)

    def _spare_workers(self) -> WorkerSet:
        """Returns workers for an evaluation that the config did not announce; they are kept for the next one."""
        if self.env_creator is None:
            return self.workers  # says what is missing when it is asked to run
        with under(self._gates):
            made = make_evaluation_workers(self, self.merge_trainer_configs)
        send_weights(self.workers, made)
        self.evaluation_workers = made
        return made

    def log_result(self, result: dict[str, Any]) -> None:
        """Calls `on_train_result`, then the loggers."""
        with in_context_of(self):
            call_hook(self.callbacks, "on_train_result", {"trainer": self, "result": result})
        self._log_iteration(result)
        if self._storage:
            return
        if self._logger is None:
            self._logger = self._make_logger()
        self._logger.on_result(result)

    def _make_logger(self) -> Any:
        given = self.config["logger_config"] or {}
        kind = given.get("type")
        if isinstance(kind, str):
            kind = import_path(kind.replace("ray.tune.logger", "rlframe.tune.logger"))
        if kind is not None and not callable(kind):
            raise ConfigError(f"logger_config.type: got {kind!r}, wanted a logger class (config, logdir) or its path")
        if kind is not None:  # in RLlib options beside the type were all that it was given
            options = {key: value for key, value in given.items() if key not in ("type", "logdir")}
            return kind({**self.config, **options}, self.logdir)
        return RunLogger(self.logdir, self.config, old_name=True)

    def plan_report(self) -> PlanReport:
        """Returns the plan as a tree with each operator's share of time and rate; `print` shows it."""
        from rlframe.execution.plan.report import plan_report

        return plan_report(self.train_exec_impl)

    def collect_metrics(self, selected_workers: Any = None) -> dict[str, Any]:
        """Returns statistics of the episodes that ended since they were last asked for."""
        from rlframe.evaluation.metrics import collect_metrics

        return dict(collect_metrics(self.workers.local_worker(), selected_workers or self.workers.remote_workers()))

    # --- from a checkpoint, and the end ----------------------------------------------------------------------------

    @classmethod
    def from_checkpoint(
        cls,
        path: str | os.PathLike[str],
        config: Mapping[str, Any] | None = None,
        env: Any = None,
        *,
        trust: bool = False,
    ) -> Trainer:
        """Returns a trainer that goes on from a checkpoint, with its algorithm, config and environment.

        `DQNTrainer.from_checkpoint` makes that class; `Trainer.from_checkpoint` the one of the checkpoint's algorithm.

        Args:
            path: What `save()` returned, or a run directory of the command line, of which it takes the newest.
            config: What differs from the checkpoint's config, such as `{"num_workers": 0}`. Functions and classes of
                your own are given here: a checkpoint holds no code.
            env: The environment, where its name alone does not find it: a class or function of yours.
            trust: Whether classes that the checkpoint names are imported, though they are neither built in nor
                registered or given by this program.

        Raises:
            CheckpointError: If there is none, it is damaged, or it names what is not trusted.
        """
        from rlframe.trainer.rebuilding import rebuild

        return cast(Trainer, rebuild(None if cls is Trainer else cls, path, config, env, trust))

    def cleanup(self) -> None:
        """Ends the plan's threads and actors, stops workers and closes the log files; called by `stop()`."""
        self._stopped = True
        with ExitStack() as ends:  # in the other order, and the others also where one raises
            if self._logger is not None:
                ends.callback(self._logger.close)
                ends.callback(self._logger.flush)
            ends.callback(close_operator, self.local_replay_buffer)
            for workers in (self.evaluation_workers, self.workers):
                if workers is not None:
                    ends.callback(workers.stop)
            if self.train_exec_impl is not None:
                ends.callback(self.train_exec_impl.close)

    # Under their names in Ray 0.8, for `super()`.
    _setup, _stop, _log_result = setup, cleanup, Trainable.log_result
    _save, _restore = SavingMixin.save_checkpoint, SavingMixin.load_checkpoint

    def stop(self) -> None:
        """Ends workers, threads and files; the trainer is of no use afterwards."""
        self._monitor.stop()
        self._monitor = UtilMonitor(start=False)  # Tune would wait until the other has slept its 0.7 s
        cast(Any, super()).stop()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Returns False: a trainer is built anew for another config."""
        return False

    # --- resources --------------------------------------------------------------------------------------------

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """Returns what a Tune trial of this trainer reserves.

        Args:
            config: What the trainer is made with. Keys that it does not know are the program's own, for its function
                that makes the trainer; a trainer refuses them.
        """
        from rlframe.trainer.resources import requested_resources

        return requested_resources(cls, config)

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:
        """Returns which config keys change the resources."""
        return (
            "num_workers, num_cpus_per_worker, num_gpus_per_worker, custom_resources_per_worker, num_gpus, "
            "num_cpus_for_driver, evaluation_num_workers, placement_strategy"
        )


__all__ = ["COMMON_CONFIG", "MAX_WORKER_FAILURE_RETRIES", "Trainer", "with_common_config"]
