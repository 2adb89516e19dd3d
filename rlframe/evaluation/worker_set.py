"""All rollout workers of a trainer: the local one, and Ray actors."""

from __future__ import annotations

import bisect
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rlframe.config.common import CommonConfig
from rlframe.evaluation.code_names import OF_FRAMEWORKS, reads_any_of
from rlframe.evaluation.filter_manager import FilterManager
from rlframe.evaluation.policy_states import policy_states, set_policy_states
from rlframe.evaluation.policy_table import algorithm_defaults, has_several, policy_specs
from rlframe.evaluation.process_environment import check_environment
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.fast.shared_memory import SharedMemoryClient, this_client
from rlframe.policy.numpy_policy import NumpyPolicy
from rlframe.utils.errors import EnvError, WorkerError, ending
from rlframe.utils.names import process_gates
from rlframe.utils.seeding import derive_seed

if TYPE_CHECKING:
    from rlframe.policy.policy_spec import PolicySpec

_LOGGER = logging.getLogger("rlframe")
#: Seconds that a worker may take to answer a ping; it may be sampling, or waiting for a neighbour.
PATIENCE_S = 120.0
#: How often a replacement is begun that dies before it is ready.
_STARTS = 3
#: How long files that remote workers write are waited for when they are stopped, s.
_STOP_TIMEOUT_S = 60.0


class WorkerSet:
    """Holds a local worker and `num_workers` remote ones.

    Args:
        env_creator: `fn(EnvContext) -> environment`, or None without one.
        validate_env: Hook that raises on a wrong environment; called in every worker.
        policy_class: Class of the default policy.
        trainer_config: The trainer's whole config.
        num_workers: Remote workers; with 0 the local one samples, and no Ray runtime is needed.
        logdir: The trainer's directory.
        local_env: Whether the local worker has environments; None: only without remote workers, or when
            `create_env_on_driver` says so.

    Raises:
        WorkerError: If the cluster cannot hold the workers.
    """

    def __init__(
        self,
        *,
        env_creator: Callable[..., Any] | None,
        validate_env: Callable[..., None] | None = None,
        policy_class: Any = None,
        trainer_config: Mapping[str, Any] | None = None,
        num_workers: int = 0,
        logdir: str | None = None,
        local_env: bool | None = None,
        _setup: bool = True,
    ) -> None:
        self._config = CommonConfig.view(trainer_config or {})
        self._env_creator = env_creator
        self._validate_env = validate_env
        self._policy_class = policy_class
        self._syncs_lazily = False
        self._version = 0
        self._versions: dict[Any, int] = {}
        self._told: dict[Any, int] = {}  # of how many steps each worker knows
        self._unsent: tuple[list[str] | None, Mapping[str, Any] | None] = (None, None)
        #: The newest weights as an argument of calls; None until somebody asks.
        self._weights: Any = None
        self._snapshot: dict[str, Any] | None = None
        self._num_workers = num_workers
        self._logdir = logdir
        self._remote_workers: list[Any] = []
        self._indexes: list[int] = []
        #: How many remote workers were replaced.
        self.restarts = 0
        self._vacant: list[int] = []
        self._highest = 0
        self._set_task: Callable[[Any, Any], Any] | None = None
        #: Whether the remote workers' policies learn, and the local worker's follow them.
        self.learns_remotely = False
        self._local_worker: Any = None
        if not _setup:
            return
        if local_env is None:
            local_env = num_workers == 0 or self._config.create_env_on_driver
        spaces = None
        with ending(self.stop):
            if num_workers > 0:
                check_environment("extra_python_environs_for_worker", self._config)
                self._start_remotes(num_workers)
            if num_workers > 0 and not local_env and env_creator is not None:
                spaces = self._ask_spaces()
            self._make_local(local_env, spaces)
            self._give_policies(self._remote_workers)
            self.sync_weights()

    def __repr__(self) -> str:
        return f"WorkerSet(local={self._local_worker!r}, remote={self._indexes})"

    # --- building ---------------------------------------------------------------------------------------------

    @staticmethod
    def _from_existing(local_worker: RolloutWorker, remote_workers: Collection[Any] = ()) -> WorkerSet:
        """Returns a set of workers that a program made itself: a `RolloutWorker`, and actors of its `as_remote()`."""
        workers = WorkerSet(env_creator=None, trainer_config=local_worker.policy_config, _setup=False)
        workers._local_worker, workers._num_workers = local_worker, len(remote_workers or ())
        workers.reset(list(remote_workers or ()))
        return workers

    def _worker_arguments(self, index: int, restarts: int = 0) -> dict[str, Any]:
        config: Mapping[str, Any] = self._config
        if restarts and self._config.seed is not None:
            # Else it would repeat the episodes and the exploration of the worker that it replaces.
            config = {**config, "seed": derive_seed(self._config.seed, "restart", restarts)}
        return {
            "env_creator": self._env_creator,
            "validate_env": self._validate_env,
            "worker_index": index,
            "num_workers": self._num_workers,
            "policy_config": config,
            "log_dir": self._logdir,
        }

    def _make_local(self, local_env: bool, spaces: Any) -> None:
        self._local_worker = RolloutWorker(**self._worker_arguments(0), make_env=local_env, spaces=spaces)
        if self._has_policies():
            self._local_worker.add_policies(policy_specs(self._config, self._policy_class))

    def _has_policies(self) -> bool:
        """Returns whether there are policies: a default one, or a table, which may name each one's class."""
        return self._policy_class is not None or has_several(self._config)

    def _start_remotes(self, count: int) -> None:
        from rlframe.evaluation.cluster import check_room, ensure_ray

        ensure_ray()
        check_room(self._config, count)
        self.add_workers(count)

    def add_workers(self, num_workers: int) -> None:
        """Starts more remote workers, numbered on from the last one there was; they get what the others have."""
        had = len(self._remote_workers)
        for _ in range(num_workers):
            self._highest += 1
            self._remote_workers.append(self._make_remote(self._highest))
            self._indexes.append(self._highest)
        if self._local_worker is None:
            self._open_envs(self._remote_workers)
            return
        try:
            for worker in self._remote_workers[had:]:
                self._equip(worker)
        except BaseException:
            self.drop(range(had, len(self._remote_workers)))
            raise

    def _make_remote(self, index: int, restarts: int = 0) -> Any:
        config = self._config
        actor_class = RolloutWorker.as_remote(
            num_cpus=config.num_cpus_per_worker,
            num_gpus=config.num_gpus_per_worker,
            resources=config.custom_resources_per_worker or None,
        )
        return actor_class.options(max_restarts=0).remote(
            **self._worker_arguments(index, restarts), make_env=False, gates=process_gates(), restarts=restarts
        )

    def _open_envs(self, remotes: list[Any]) -> None:
        import ray

        from rlframe.evaluation.cluster import unwrap_ray_error

        try:
            ray.get([worker.open_envs.remote() for worker in remotes])
        except Exception as error:
            raise unwrap_ray_error(error) from error

    def _ask_spaces(self) -> Any:
        import ray

        return ray.get(self._remote_workers[0].get_spaces.remote())

    def _give_policies(self, remotes: list[Any]) -> None:
        """Sends remote workers the policies they sample with: NumPy ones where the local policy can be one."""
        if not remotes or not self._has_policies():
            return
        import ray

        from rlframe.evaluation.cluster import unwrap_ray_error

        try:
            ray.get(self._policy_calls(remotes))
        except Exception as error:
            raise unwrap_ray_error(error) from error

    def _policy_calls(self, remotes: list[Any]) -> list[Any]:
        """Returns the references of the calls that give workers their policies, in the order in which they run."""
        import ray

        local = self._local_worker
        specs = ray.put({pid: self._remote_spec(pid) for pid in local.policy_map})
        registered = _registered_models()
        calls = [worker.apply.remote(_install_models, registered) for worker in remotes]
        calls += [worker.set_policy_mapping_fn.remote(local._mapping_fn) for worker in remotes]
        calls += [worker.set_policies_to_train.remote(local.is_policy_to_train.wanted) for worker in remotes]
        return calls + [worker.add_policies.remote(specs) for worker in remotes]

    def _remote_spec(self, policy_id: str) -> PolicySpec:
        """Returns what a remote worker builds a policy from: what acts in NumPy, where the local policy can."""
        local = self._local_worker
        spec: PolicySpec = local.policy_specs[policy_id]
        describe = getattr(local.policy_map[policy_id], "acting_recipe", None)
        recipe = describe() if describe is not None and self._samples_in_numpy() else None
        if recipe is None:
            return spec
        made: Any = partial(NumpyPolicy, recipe=recipe)
        made.framework_class = _stored(spec.policy_class)
        made.defaults_from = getattr(spec.policy_class, "defaults_from", None)
        # Postprocessing reads the config, too. With the algorithm's module a worker would import all of Ray Tune.
        defaults = algorithm_defaults(spec.policy_class).items()
        made.algorithm_defaults = {key: value for key, value in defaults if key not in self._config}
        return spec._replace(policy_class=made)

    def _samples_in_numpy(self) -> bool:
        """Whether remote workers may act without a framework: not where a program's hooks read what they lack then."""
        return self._config.sample_in_numpy and not reads_any_of(self._local_worker.callbacks, OF_FRAMEWORKS)

    def add_policy(
        self,
        policy_id: str,
        spec: Any,
        policy_mapping_fn: Any = None,
        policies_to_train: Any = None,
        policy_state: dict[str, Any] | None = None,
    ) -> None:
        """Adds a policy to all workers, and takes a new mapping and new policies to train where they are given.

        Args:
            policy_id: Its id.
            spec: A `PolicySpec`, or a tuple of its parts.
            policy_mapping_fn: A new mapping of agents to policies; None keeps it.
            policies_to_train: New policies to learn; None keeps them.
            policy_state: What another policy's `get_state()` returned; None begins anew.
        """
        local = self._local_worker
        before = local._mapping_fn
        local.set_policy_mapping_fn(policy_mapping_fn)  # it may tell the new policy's spaces
        try:
            local.add_policies({policy_id: spec})
            if policy_state is not None:
                local.policy_map[policy_id].set_state(policy_state)
        except Exception:
            local._mapping_fn = before
            raise
        self._on_all(policy_mapping_fn, policies_to_train)
        if self._remote_workers:
            import ray

            made = ray.put({policy_id: self._remote_spec(policy_id)})
            ray.get([worker.add_policies.remote(made) for worker in self._remote_workers])
            self.sync_weights([policy_id])

    def remove_policy(self, policy_id: str, policy_mapping_fn: Any = None, policies_to_train: Any = None) -> None:
        """Removes a policy from all workers; new mapping and policies to train as in `add_policy`."""
        self._local_worker.remove_policy(policy_id)
        if self._remote_workers:
            import ray

            ray.get([worker.remove_policy.remote(policy_id) for worker in self._remote_workers])
        self._on_all(policy_mapping_fn, policies_to_train)

    def _on_all(self, policy_mapping_fn: Any, policies_to_train: Any) -> None:
        self._local_worker.set_policy_mapping_fn(policy_mapping_fn)
        self._local_worker.set_policies_to_train(policies_to_train)
        if not self._remote_workers:
            return
        import ray

        calls = [worker.set_policy_mapping_fn.remote(policy_mapping_fn) for worker in self._remote_workers]
        calls += [worker.set_policies_to_train.remote(policies_to_train) for worker in self._remote_workers]
        ray.get(calls)

    # --- access -----------------------------------------------------------------------------------------------

    def local_worker(self) -> RolloutWorker:
        """Returns the worker in this process."""
        worker: RolloutWorker = self._local_worker
        return worker

    def remote_workers(self) -> list[Any]:
        """Returns the Ray actors, in the list in which they come and go."""
        return self._remote_workers

    def remote_indexes(self) -> list[int]:
        """Returns the remote workers' numbers, in the order of `remote_workers()`."""
        return list(self._indexes)

    def sync_weights(
        self,
        policies: list[str] | None = None,
        global_vars: Mapping[str, Any] | None = None,
        *,
        from_worker: RolloutWorker | None = None,
    ) -> None:
        """Sends the local worker's weights to all remote ones.

        Args:
            policies: Ids of the policies; all when None.
            global_vars: `{"timestep": steps of all workers so far}`, of which the local worker is told, too.
            from_worker: A worker of another set, whose weights all workers of this one get; None is the local worker.
        """
        if from_worker is not None:
            self._local_worker.set_weights(from_worker.get_weights(policies))
        if global_vars is not None:
            self._local_worker.set_global_vars(global_vars)
        if not self._remote_workers:
            return
        from rlframe.evaluation.cluster import as_argument

        weights = as_argument(self._local_worker.get_weights(policies), len(self._remote_workers))
        self._weights = self._snapshot = None  # may be older than these, e.g. from before a restore
        for worker in self._remote_workers:
            worker.set_weights.remote(weights, global_vars)

    def shared_memory_client(self) -> SharedMemoryClient | None:
        """Returns who maps large observations that remote workers write; None where they go through Ray's store."""
        return this_client() if self._config.share_memory else None

    @property
    def tolerates_failures(self) -> bool:
        """Whether failures of workers and environments end nothing: the dead are replaced, or left out."""
        return self._config.ignore_worker_failures or self._config.recreate_failed_workers

    @property
    def samples_ahead(self) -> bool:
        """Whether remote workers sample the next round while the learner learns from the last (`sample_async`)."""
        return self._config.sample_async

    def pull_policies(self) -> None:
        """Brings the local worker's policies to the state of those that have learned, in a remote worker that lives."""
        import ray

        for worker in self._remote_workers:
            try:
                states = ray.get(worker.apply.remote(policy_states))
            except ray.exceptions.RayActorError:
                continue
            set_policy_states(self._local_worker, states)
            return
        _LOGGER.warning(
            "no worker that learned is alive: of what they knew there are the weights that the driver had last, but "
            "not the optimisers' state"
        )

    def push_policies(self) -> None:
        """Brings the remote workers' policies to the state of the local worker's."""
        import ray

        learned = ray.put(policy_states(self._local_worker))
        ray.get([worker.apply.remote(set_policy_states, learned) for worker in self._remote_workers])

    def sync_filters(self, *, sends_back: bool = True) -> None:
        """Merges what remote workers saw into the local observation filters, and may send the result back."""
        FilterManager.synchronize(self._local_worker.filters, self._remote_workers, sends_back)

    def sync_before_sampling(self) -> None:
        """From now on, what samples calls `update_worker` first, and `weights_changed` only notes the change.

        A worker needs the newest weights when it samples, not those of every update in between: sending each of them
        costs more than many an update does.
        """
        self._syncs_lazily = True

    def weights_changed(
        self,
        policies: list[str] | None = None,
        global_vars: Mapping[str, Any] | None = None,
        weights: dict[str, Any] | None = None,
    ) -> None:
        """Says that the local worker has learned: remote workers get the new weights, now or before they sample.

        Args:
            policies: Ids of the policies that have learned; all when None.
            global_vars: What workers are told with the weights.
            weights: A copy of the weights, `{policy id: weights}`, for learners that go on while it is sent; without
                it the weights are read when they are sent.
        """
        if not self._syncs_lazily:
            self.sync_weights(policies, global_vars)
            return
        known = self._unsent[0]
        # What any update has trained: workers that missed some updates must not miss a policy of theirs.
        both = None if policies is None or (self._version and known is None) else sorted({*(known or ()), *policies})
        self._version += 1
        self._unsent = (both, global_vars)
        self._weights, self._snapshot = None, weights

    def update_worker(self, worker: Any, global_vars: Mapping[str, Any] | None = None) -> None:
        """Sends a remote worker the newest weights, unless it has them; see `news_for`."""
        weights, told = self.news_for(worker, global_vars)
        if weights is not None:
            worker.set_weights.remote(weights, told)
        elif told is not None:
            worker.set_global_vars.remote(told)

    def news_for(self, worker: Any, global_vars: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
        """Returns what a remote worker lacks, and takes it as sent.

        Args:
            worker: The worker.
            global_vars: `{"timestep": steps of all workers so far}`, sent where the worker has been told of fewer: it
                counts its own alone, and schedules of exploration follow the sum. None for those of the last update.

        Returns:
            The newest weights as an argument of calls, and global variables; None each where it has them.
        """
        if self._versions.get(worker, 0) == self._version:
            if global_vars is None or global_vars["timestep"] <= self._told.get(worker, 0):
                return None, None
            self._told[worker] = global_vars["timestep"]
            return None, global_vars
        from rlframe.evaluation.cluster import as_argument

        policies, of_update = self._unsent
        global_vars = of_update if global_vars is None else global_vars
        if global_vars is not None:
            self._told[worker] = global_vars["timestep"]
        if self._weights is None:
            copied = self._snapshot or {}
            # Of the policies that a learner's copy does not have, a program may have set the weights since.
            wanted = self._local_worker.policy_map if policies is None else policies
            others = [pid for pid in wanted if pid not in copied]
            read = self._local_worker.get_weights(others) if others else {}
            self._weights = as_argument({**read, **copied}, len(self._remote_workers))
        self._versions[worker] = self._version
        return self._weights, global_vars

    def update_workers(self) -> None:
        """Sends every remote worker the newest weights, unless it has them."""
        for worker in self._remote_workers:
            self.update_worker(worker)

    def foreach_worker(self, func: Callable[[Any], Any]) -> list[Any]:
        """Returns `func(worker)` of each worker, the local one first."""
        local = func(self._local_worker)
        if not self._remote_workers:
            return [local]
        import ray

        return [local, *ray.get([worker.apply.remote(func) for worker in self._remote_workers])]

    def foreach_worker_with_index(self, func: Callable[[Any, int], Any]) -> list[Any]:
        """Returns `func(worker, index)` of each worker, the local one (index 0) first."""
        local = func(self._local_worker, 0)
        if not self._remote_workers:
            return [local]
        import ray

        calls = [
            worker.apply.remote(func, index) for worker, index in zip(self._remote_workers, self._indexes, strict=True)
        ]
        return [local, *ray.get(calls)]

    def foreach_policy(self, func: Callable[[Any, str], Any]) -> list[Any]:
        """Returns `func(policy, policy_id)` of each policy of each worker, the local worker's first."""
        return [item for items in self.foreach_worker(lambda w: w.foreach_policy(func)) for item in items]

    def trainable_policies(self) -> list[str]:
        """Returns the ids of the policies that are trained."""
        return list(self._local_worker.policies_to_train)

    def foreach_trainable_policy(self, func: Callable[[Any, str], Any]) -> list[Any]:
        """Returns `func(policy, policy_id)` of each trained policy of each worker."""
        return [item for items in self.foreach_worker(lambda w: w.foreach_trainable_policy(func)) for item in items]

    def is_policy_to_train(self, policy_id: str, batch: Any = None) -> bool:
        """Returns whether a policy learns, from this batch where `policies_to_train` is a function of batches."""
        return bool(self._local_worker.is_policy_to_train(policy_id, batch))

    def foreach_policy_to_train(self, func: Callable[[Any, str], Any]) -> list[Any]:
        """Returns what `foreach_trainable_policy` does."""
        return self.foreach_trainable_policy(func)

    def foreach_env(self, func: Callable[[Any], Any]) -> list[list[Any]]:
        """Returns, per worker, `func(env)` of each of its environments."""
        return self.foreach_worker(lambda worker: worker.foreach_env(func))

    def foreach_env_with_context(self, func: Callable[[Any, Any], Any]) -> list[list[Any]]:
        """Returns, per worker, `func(env, env_context)` of each of its environments."""
        return self.foreach_worker(lambda worker: worker.foreach_env_with_context(func))

    def set_tasks(self, set_task: Callable[[Any, Any], Any]) -> None:
        """Calls `set_task(env, env_context)` on all environments, and on those of workers that are replaced later."""
        self._set_task = set_task
        self.foreach_env_with_context(set_task)

    # --- failures and end -------------------------------------------------------------------------------------

    def probe(self, timeout_s: float = PATIENCE_S) -> dict[int, str]:
        """Returns the positions of remote workers that do not answer a ping (no sampling involved), and in words why.

        Args:
            timeout_s: Seconds after which one that has not answered counts as dead.
        """
        if not self._remote_workers:
            return {}
        from rlframe.evaluation.cluster import answers_of

        _, failures = answers_of([worker.ping.remote() for worker in self._remote_workers], timeout_s)
        return {position: str(error).strip().partition("\n")[0] for position, error in failures.items()}

    def remove_failed_workers(self) -> None:
        """Forgets the remote workers that do not answer.

        Raises:
            WorkerError: If none is left.
        """
        failures = self.probe()
        self.drop(list(failures))
        if failures and not self._remote_workers:
            raise WorkerError(f"no remote worker is left: {'; '.join(failures.values())}; wanted one that answers")

    def recreate_failed_workers(self) -> None:
        """Replaces the remote workers that do not answer; see `recreate`.

        Raises:
            WorkerError: If one cannot be replaced.
        """
        failures = self.recreate(list(self.probe()))
        for number, error in failures.items():
            raise WorkerError(f"worker {number} could not be replaced: {error}") from error

    def drop(self, positions: Collection[int]) -> None:
        """Forgets remote workers that are dead."""
        for position in positions:
            self._end(self._remote_workers[position])
        kept = [i for i in range(len(self._remote_workers)) if i not in positions]
        self._remote_workers[:] = [self._remote_workers[i] for i in kept]
        self._indexes = [self._indexes[i] for i in kept]

    def recreate(self, positions: Collection[int] = ()) -> dict[int, BaseException]:
        """Replaces dead remote workers by new ones with the same numbers and random streams of their own.

        They get what the others have: policies, weights, filters, and the task of `set_tasks`. Those that cannot be
        replaced, because there is no room or their environments fail, are dropped, and begun anew at the next call.

        Returns:
            Why workers could not be replaced, by their numbers.
        """
        from rlframe.evaluation.cluster import check_room

        missing = sorted({*self._vacant, *(self._indexes[position] for position in positions)})
        self.drop(positions)
        failures = dict[int, BaseException]()
        for _ in range(_STARTS):
            if not missing:
                break
            try:
                check_room(self._config, len(missing))
            except WorkerError as error:
                failures.update(dict.fromkeys(missing, error))
                break
            for number in missing:
                failures.pop(number, None)
            failures.update(self._start_anew(missing))
            missing = [
                number for number in missing if number in failures and not isinstance(failures[number], EnvError)
            ]
        self._vacant = sorted(failures)
        return failures

    def _start_anew(self, numbers: list[int]) -> dict[int, BaseException]:
        """Starts new workers with these numbers, and returns how those failed that are not ready."""
        failures, started = dict[int, BaseException](), dict[int, Any]()
        for number in numbers:
            self.restarts += 1
            started[number] = self._make_remote(number, self.restarts)
        for number, worker in started.items():
            try:
                self._equip(worker)
            except Exception as error:
                failures[number] = error
                continue
            place = bisect.bisect(self._indexes, number)
            self._indexes.insert(place, number)
            self._remote_workers.insert(place, worker)
        return failures

    def _equip(self, worker: Any) -> None:
        """Gives a new worker what the others have."""
        import ray

        from rlframe.evaluation.cluster import unwrap_ray_error

        local = self._local_worker
        calls = [worker.open_envs.remote(), *self._policy_calls([worker])]
        calls.append(worker.set_weights.remote(local.get_weights(), local.get_global_vars()))
        calls.append(worker.sync_filters.remote(local.get_filters()))
        if self._set_task is not None:
            calls.append(worker.foreach_env_with_context.remote(self._set_task))
        try:
            ray.get(calls)
        except Exception as error:
            self._end(worker)
            raise unwrap_ray_error(error) from error
        self._versions[worker] = self._version

    def _end(self, worker: Any) -> None:
        """Ends a worker that is dead or does not answer, so that it holds no resources."""
        import ray

        for known in (self._versions, self._told):
            known.pop(worker, None)
        ray.kill(worker, no_restart=True)

    def reset(self, new_remote_workers: list[Any]) -> None:
        """Takes a given list of remote workers."""
        self._remote_workers[:] = new_remote_workers
        self._indexes = list(range(1, len(new_remote_workers) + 1))
        self._highest = max(self._highest, len(new_remote_workers))

    def stop(self) -> None:
        """Closes environments and ends the remote workers."""
        try:
            if self._local_worker is not None:
                self._local_worker.stop()
        finally:
            self._kill()

    def _kill(self) -> None:
        if not self._remote_workers:
            return
        import ray

        if ray.is_initialized():
            stopped = [worker.stop.remote() for worker in self._remote_workers]
            if self._config.output is not None:
                self._wait_for_files(stopped)
            for worker in self._remote_workers:
                worker.__ray_terminate__.remote()
        self._remote_workers, self._indexes = [], []

    def _wait_for_files(self, stopped: list[Any]) -> None:
        """Waits until workers have ended the files that they write: a program that ends would kill them before."""
        import ray

        _, late = ray.wait(stopped, num_returns=len(stopped), timeout=_STOP_TIMEOUT_S)
        for index, ref in zip(self._indexes, stopped, strict=True):
            if ref in late:
                _LOGGER.warning(
                    "worker %d did not end within %g s: its last file of output is not whole", index, _STOP_TIMEOUT_S
                )
                continue
            try:
                ray.get(ref)
            except ray.exceptions.RayError as error:
                _LOGGER.warning("worker %d did not end its file of output: %s", index, error)


def _stored(policy_class: Any) -> Any:
    """Returns Ray's reference of a policy's class, for workers that load the framework; None of one that stays."""
    import ray

    try:
        return ray.put(policy_class) if isinstance(policy_class, type) else None
    except Exception:  # of whatever it has: that it cannot be sent is told to who asks for it, sampling goes without
        return None


def _registered_models() -> Any:
    from rlframe.models.catalog import ModelCatalog

    return ModelCatalog.registered()


def _install_models(worker: Any, snapshot: Any) -> None:
    from rlframe.models.catalog import ModelCatalog

    ModelCatalog.install(snapshot)


__all__ = ["WorkerError", "WorkerSet"]
