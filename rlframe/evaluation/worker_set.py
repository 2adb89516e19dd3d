"""All rollout workers of a trainer: the local one, and Ray actors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rlframe.evaluation.policy_table import policy_specs
from rlframe.evaluation.rollout_worker import RolloutWorker, check_environment
from rlframe.policy.numpy_policy import NumpyPolicy
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import WorkerError
from rlframe.utils.names import process_gates

_LOGGER = logging.getLogger("rlframe")


class WorkerSet:
    """Holds a local worker and `num_workers` remote ones.

    Args:
        env_creator: `fn(EnvContext) -> environment`, or None without one.
        validate_env: Hook that raises on a wrong environment; called in every worker.
        policy_class: Class of the default policy.
        trainer_config: The trainer's whole config.
        num_workers: Remote workers; with 0 the local one samples, and no Ray runtime is needed.
        logdir: The trainer's directory (unused by the workers so far).
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
        self._config = dict(trainer_config or {})
        self._env_creator = env_creator
        self._validate_env = validate_env
        self._policy_class = policy_class
        self._syncs_lazily = False
        self._version = 0
        self._versions: dict[Any, int] = {}
        self._told: dict[Any, int] = {}  # of how many steps each worker knows
        self._unsent: tuple[list[str] | None, Mapping[str, Any] | None] = (None, None)
        self._reference: Any = None
        self._snapshot: dict[str, Any] | None = None
        self._num_workers = num_workers
        self._logdir = logdir
        self._remote_workers: list[Any] = []
        self._indexes: list[int] = []
        self.restarts = 0
        #: Whether the remote workers' policies learn, and the local worker's follow them.
        self.learns_remotely = False
        self._local_worker: Any = None
        if not _setup:
            return
        if local_env is None:
            local_env = num_workers == 0 or bool(self._config.get("create_env_on_driver"))
        spaces = None
        if num_workers > 0:
            check_environment("extra_python_environs_for_worker", self._config)
            self._start_remotes(num_workers)
        if num_workers > 0 and not local_env and env_creator is not None:
            spaces = self._ask_spaces()
        self._local_worker = self._make_local(local_env, spaces)
        self._give_policies(self._remote_workers)
        self.sync_weights()

    def __repr__(self) -> str:
        return f"WorkerSet(local={self._local_worker!r}, remote={self._indexes})"

    # --- building ---------------------------------------------------------------------------------------------

    def _worker_arguments(self, index: int) -> dict[str, Any]:
        return {
            "env_creator": self._env_creator,
            "validate_env": self._validate_env,
            "worker_index": index,
            "num_workers": self._num_workers,
            "policy_config": self._config,
        }

    def _make_local(self, local_env: bool, spaces: Any) -> RolloutWorker:
        worker = RolloutWorker(**self._worker_arguments(0), make_env=local_env, spaces=spaces)
        if self._policy_class is not None:
            worker.add_policies(policy_specs(self._config, self._policy_class))
        return worker

    def _start_remotes(self, count: int) -> None:
        from rlframe.evaluation.cluster import check_room, ensure_ray

        ensure_ray()
        check_room(self._config, count)
        self.add_workers(count)

    def add_workers(self, num_workers: int) -> None:
        """Starts more remote workers, numbered on from the last one."""
        first = max(self._indexes, default=0) + 1
        for index in range(first, first + num_workers):
            self._remote_workers.append(self._make_remote(index))
            self._indexes.append(index)
        self._open_envs(self._remote_workers[-num_workers:])
        if self._local_worker is not None:
            self._give_policies(self._remote_workers[-num_workers:])
            self.sync_weights()

    def _make_remote(self, index: int) -> Any:
        config = self._config
        actor_class = RolloutWorker.as_remote(
            num_cpus=config.get("num_cpus_per_worker", 1),
            num_gpus=config.get("num_gpus_per_worker", 0),
            resources=config.get("custom_resources_per_worker") or None,
        )
        return actor_class.options(max_restarts=0).remote(
            **self._worker_arguments(index), make_env=False, gates=process_gates()
        )

    def _open_envs(self, remotes: list[Any]) -> None:
        import ray

        from rlframe.evaluation.cluster import unwrap_ray_error

        try:
            ray.get([worker.open_envs.remote() for worker in remotes])
        except Exception as error:
            self._kill()
            raise unwrap_ray_error(error) from error

    def _ask_spaces(self) -> Any:
        import ray

        return ray.get(self._remote_workers[0].get_spaces.remote())

    def _give_policies(self, remotes: list[Any]) -> None:
        """Sends remote workers the policies they sample with: NumPy ones where the local policy can be one."""
        if not remotes or self._policy_class is None:
            return
        import ray

        from rlframe.evaluation.cluster import unwrap_ray_error

        specs = ray.put({pid: self._remote_spec(pid) for pid in self._local_worker.policy_map})
        registered = _registered_models()
        try:
            ray.get([worker.apply.remote(_install_models, registered) for worker in remotes])
            local = self._local_worker
            ray.get([worker.set_policy_mapping_fn.remote(local._mapping_fn) for worker in remotes])
            ray.get([worker.set_policies_to_train.remote(local.is_policy_to_train.wanted) for worker in remotes])
            ray.get([worker.add_policies.remote(specs) for worker in remotes])
        except Exception as error:
            self._kill()
            raise unwrap_ray_error(error) from error

    def _remote_spec(self, policy_id: str) -> PolicySpec:
        """Returns what a remote worker builds a policy from: what acts in NumPy, where the local policy can."""
        local = self._local_worker
        spec: PolicySpec = local.policy_specs[policy_id]
        describe = getattr(local.policy_map[policy_id], "acting_recipe", None)
        recipe = describe() if describe is not None and self._config.get("sample_in_numpy", True) else None
        if recipe is None:
            return spec
        made: Any = partial(recipe.policy_class or NumpyPolicy, recipe=recipe)
        made.defaults_from = getattr(spec.policy_class, "defaults_from", None)  # postprocessing reads the config, too
        return spec._replace(policy_class=made)

    def add_policy(
        self, policy_id: str, spec: PolicySpec, policy_mapping_fn: Any = None, policies_to_train: Any = None
    ) -> None:
        """Adds a policy to all workers, and takes a new mapping and new policies to train where they are given."""
        local = self._local_worker
        before = local._mapping_fn
        local.set_policy_mapping_fn(policy_mapping_fn)  # it may tell the new policy's spaces
        try:
            local.add_policies({policy_id: spec})
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
        """Returns the Ray actors."""
        return self._remote_workers

    def remote_indexes(self) -> list[int]:
        """Returns the remote workers' numbers, in the order of `remote_workers()`."""
        return list(self._indexes)

    def sync_weights(self, policies: list[str] | None = None, global_vars: Mapping[str, Any] | None = None) -> None:
        """Sends the local worker's weights to all remote ones: put once, fetched by each."""
        if not self._remote_workers:
            return
        import ray

        reference = ray.put(self._local_worker.get_weights(policies))
        self._reference = self._snapshot = None  # may be older than these, e.g. from before a restore
        for worker in self._remote_workers:
            worker.set_weights.remote(reference, global_vars)

    @property
    def shares_memory(self) -> bool:
        """Whether large observations come through memory that workers and this process map, where they can."""
        return bool(self._config.get("share_memory"))

    @property
    def samples_ahead(self) -> bool:
        """Whether remote workers sample the next round while the learner learns from the last (`sample_async`)."""
        return bool(self._config.get("sample_async"))

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
        self._reference, self._snapshot = None, weights

    def update_worker(self, worker: Any, global_vars: Mapping[str, Any] | None = None) -> None:
        """Sends a remote worker the newest weights, unless it has them.

        Args:
            worker: The worker.
            global_vars: `{"timestep": steps of all workers so far}`, sent where the worker has been told of fewer: it
                counts its own alone, and schedules of exploration follow the sum. None for those of the last update.
        """
        if self._versions.get(worker, 0) == self._version:
            if global_vars is not None and global_vars["timestep"] > self._told.get(worker, 0):
                self._told[worker] = global_vars["timestep"]
                worker.set_global_vars.remote(global_vars)
            return
        import ray

        policies, of_update = self._unsent
        global_vars = of_update if global_vars is None else global_vars
        if global_vars is not None:
            self._told[worker] = global_vars["timestep"]
        if self._reference is None:
            weights = self._local_worker.get_weights(policies) if self._snapshot is None else self._snapshot
            self._reference = ray.put(weights)
        self._versions[worker] = self._version
        worker.set_weights.remote(self._reference, global_vars)

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

    def foreach_env(self, func: Callable[[Any], Any]) -> list[list[Any]]:
        """Returns, per worker, `func(env)` of each of its environments."""
        return self.foreach_worker(lambda worker: worker.foreach_env(func))

    def foreach_env_with_context(self, func: Callable[[Any, Any], Any]) -> list[list[Any]]:
        """Returns, per worker, `func(env, env_context)` of each of its environments."""
        return self.foreach_worker(lambda worker: worker.foreach_env_with_context(func))

    # --- failures and end -------------------------------------------------------------------------------------

    def probe(self, timeout_s: float = 30.0) -> list[int]:
        """Returns the positions of remote workers that do not answer a ping (no sampling involved)."""
        import ray

        calls = {worker.ping.remote(): position for position, worker in enumerate(self._remote_workers)}
        ready, pending = ray.wait(list(calls), num_returns=len(calls), timeout=timeout_s)
        dead = [calls[reference] for reference in pending]
        for reference in ready:
            try:
                ray.get(reference)
            except ray.exceptions.RayError:
                dead.append(calls[reference])
        return sorted(dead)

    def drop(self, positions: list[int]) -> None:
        """Forgets remote workers that are dead."""
        kept = [i for i in range(len(self._remote_workers)) if i not in positions]
        self._remote_workers = [self._remote_workers[i] for i in kept]
        self._indexes = [self._indexes[i] for i in kept]

    def recreate(self, positions: list[int]) -> None:
        """Replaces dead remote workers by new ones with the same numbers."""
        fresh = []
        for position in positions:
            worker = self._make_remote(self._indexes[position])
            self._remote_workers[position] = worker
            fresh.append(worker)
            self.restarts += 1
            _LOGGER.warning("worker %s died and was replaced", self._indexes[position])
        self._open_envs(fresh)
        self._give_policies(fresh)
        self.sync_weights(global_vars=self._local_worker.get_global_vars())

    def reset(self, new_remote_workers: list[Any]) -> None:
        """Takes a given list of remote workers."""
        self._remote_workers = list(new_remote_workers)
        self._indexes = list(range(1, len(new_remote_workers) + 1))

    def stop(self) -> None:
        """Closes environments and ends the remote workers."""
        if self._local_worker is not None:
            self._local_worker.stop()
        self._kill()

    def _kill(self) -> None:
        if not self._remote_workers:
            return
        import ray

        if ray.is_initialized():
            for worker in self._remote_workers:
                worker.stop.remote()
                worker.__ray_terminate__.remote()
        self._remote_workers, self._indexes = [], []


def _registered_models() -> Any:
    from rlframe.models.catalog import ModelCatalog

    return ModelCatalog.registered()


def _install_models(worker: Any, snapshot: Any) -> None:
    from rlframe.models.catalog import ModelCatalog

    ModelCatalog.install(snapshot)


__all__ = ["WorkerError", "WorkerSet"]
