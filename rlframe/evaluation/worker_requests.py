"""What a worker is asked for beside samples: its environments, its data, learning, and where it runs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.env.base_env import BaseEnv, maker_of
from rlframe.env.env_context import EnvContext
from rlframe.env.external_env import ExternalEnv
from rlframe.env.wrappers.atari_wrappers import is_atari
from rlframe.evaluation.callbacks import call_hook
from rlframe.evaluation.episodic_life import EpisodicLifeMetrics
from rlframe.evaluation.extra_batches import check_extra, join_extra
from rlframe.evaluation.sampling.single_agent import EnvRunner
from rlframe.evaluation.sampling.vectorized import VectorRunner
from rlframe.evaluation.worker_building import LiveEnvs, make_runner, make_slots
from rlframe.evaluation.worker_policies import WorkerPolicies
from rlframe.fast.shared_memory import SharedMemoryClient, SharedMemoryPool
from rlframe.utils.errors import ConfigError
from rlframe.utils.metrics.learner_info import LearnerInfo

if TYPE_CHECKING:
    from rlframe.evaluation.metrics import RolloutMetrics
    from rlframe.offline.estimators import OffPolicyEstimate
    from rlframe.offline.input_reader import InputReader
    from rlframe.offline.io_context import IOContext
    from rlframe.offline.output_writer import OutputWriter
    from rlframe.offline.worker_data import WorkerData


class WorkerRequests(WorkerPolicies):
    """What a `RolloutWorker` answers between two samples."""

    env_context: EnvContext
    sample: Any  # a method of the worker
    callbacks: Any
    _hooks: frozenset[str]
    _env_creator: Any
    _validate_env: Any
    _restarts: int
    _creation_args: dict[str, Any]
    _log_dir: str | None
    _shared_memory: SharedMemoryPool
    _episodic_life: EpisodicLifeMetrics
    _extra_batches: tuple[SampleBatch | MultiAgentBatch, ...] = ()

    @classmethod
    def as_remote(
        cls,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        memory: int | None = None,
        object_store_memory: int | None = None,
        resources: dict[str, float] | None = None,
    ) -> Any:
        """Returns the Ray actor class with the given resources."""
        import ray

        del object_store_memory  # today's Ray has one store per node, not per actor
        options: dict[str, Any] = {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory, "resources": resources}
        chosen = {key: value for key, value in options.items() if value is not None}
        return ray.remote(**chosen)(cls) if chosen else ray.remote(cls)

    # --- environments and data --------------------------------------------------------------------------------------

    def open_envs(self) -> None:
        """Makes the environments; the constructor does, but for Ray actors, whose constructors lose their errors.

        Raises:
            EnvError: If one cannot be made, or is wrong.
        """
        if self._env_creator is None:
            return
        told = self._tell_of_env if "on_sub_environment_created" in self._hooks else None
        creator = self._env_creator if self.policy_config.record_env in (False, None) else self._filming_creator()
        self.slots = make_slots(self.policy_config, self.env_context, creator, self._validate_env, self._restarts, told)
        for name in ("observation_space", "action_space"):
            space = getattr(self.slots[0].env, name)
            if space is not None:  # simulators need not know
                setattr(self, name, space)

    def _filming_creator(self) -> Callable[[EnvContext], Any]:
        from rlframe.env.recording import with_recording
        from rlframe.env.registry import SpecCreator

        config, given = self.policy_config, self._creation_args
        if config.vectorized_env:
            raise ConfigError("record_env films environments one by one; set vectorized_env=False")
        by_id = isinstance(given["env_creator"], SpecCreator)
        prefix = "evaluation_" if config.in_evaluation else ""
        return with_recording(self._env_creator, config.record_env, given["log_dir"], prefix=prefix, by_id=by_id)

    def _tell_of_env(self, env: Any, context: EnvContext) -> None:
        given = {"worker": self, "sub_environment": env, "env_context": context, "env_index": context.vector_index}
        call_hook(self.callbacks, "on_sub_environment_created", given)

    def serve(self, simulator: ExternalEnv) -> None:
        """Samples from a simulator from now on, in place of the environments that the config names."""
        for slot in self.slots:
            slot.env.close()
        self._env_creator, self._validate_env = lambda _: simulator, None
        spaces = self.observation_space, self.action_space
        self.open_envs()
        self.observation_space, self.action_space = (
            told if before is None else before for told, before in zip(self.get_spaces(), spaces, strict=True)
        )
        self.runner = make_runner(self, self._hooks)

    def get_spaces(self) -> tuple[Any, Any]:
        """Returns the environment's observation and action space."""
        return self.observation_space, self.action_space

    @property
    def io_context(self) -> IOContext:
        """What readers and writers of this worker are told: the trainer's directory, the config, its index, itself."""
        from rlframe.offline.io_context import IOContext

        return IOContext(self._log_dir, self.policy_config, self.worker_index, self)

    def _make_data(self) -> WorkerData | None:
        """Returns what reads and writes, None where the config asks for neither."""
        if self.policy_config.input == "sampler" and self.policy_config.output is None:
            return None
        from rlframe.offline.worker_data import WorkerData

        return WorkerData(self.io_context)

    @property
    def input_reader(self) -> InputReader | None:
        """What is read from instead of the environments; None where these are sampled."""
        return None if self._data is None else self._data.reader

    @property
    def output_writer(self) -> OutputWriter | None:
        """What keeps the batches of `sample`; None where nothing does."""
        return None if self._data is None else self._data.writer

    @property
    def clips_rewards(self) -> bool | float | None:
        """How rewards are clipped: as `clip_rewards` says; where it says nothing, Atari's to their sign."""
        how = self.policy_config.clip_rewards
        return True if how is None and self.env is not None and is_atari(self.env) else how

    @property
    def env(self) -> Any:
        """The first environment as the user made it, None if this worker has none."""
        if not self.slots:
            return None
        first = self.slots[0].env
        return maker_of(first) or BaseEnv([first]).envs[0]

    @property
    def async_env(self) -> BaseEnv:
        """A view of all environments of this worker."""
        return BaseEnv(LiveEnvs(self.slots))

    def foreach_env(self, func: Callable[[Any], Any]) -> list[Any]:
        """Returns `func(env)` for each environment of this worker; for a user's own of several that has none in it."""
        return [func(env) for env in self.async_env.envs or [self.env] if env is not None]

    def foreach_env_with_context(self, func: Callable[[Any, EnvContext], Any]) -> list[Any]:
        """Returns `func(env, env_context)` for each environment of this worker."""
        envs = self.async_env.envs
        contexts = [slot._context for slot in self.slots]
        if len(envs) != len(contexts):  # of a VectorEnv or BaseEnv of the user's
            return [func(env, contexts[0]) for env in envs or [self.env]]
        return [func(env, context) for env, context in zip(envs, contexts, strict=True)]

    # --- samples on other ways --------------------------------------------------------------------------------------

    def add_extra_batch(self, batch: SampleBatch | MultiAgentBatch) -> None:
        """Adds rows to the batch that is being sampled, or else to the next; see `Episode.add_extra_batch`.

        Raises:
            ValueError: If it is no batch, or has rows of an unknown policy.
        """
        check_extra(batch, self.policy_map)
        self._extra_batches = (*self._extra_batches, batch)

    def new_batch_builder(self) -> Any:
        """Returns what makes batches of rows that a program gives; see `Episode.new_batch_builder`."""
        from rlframe.evaluation.sample_builders import MultiAgentSampleBatchBuilder

        return MultiAgentSampleBatchBuilder(self.policy_map, self.clips_rewards or False, self.callbacks, worker=self)

    def _with_extra(self, batch: SampleBatch | MultiAgentBatch) -> SampleBatch | MultiAgentBatch:
        """Returns a batch with the rows that a program added."""
        extra, self._extra_batches = self._extra_batches, ()
        return join_extra(batch, extra, self.policy_map)

    def sample_shared(
        self,
        client: SharedMemoryClient,
        weights: Mapping[str, Any] | None = None,
        global_vars: Mapping[str, Any] | None = None,
    ) -> Any:
        """Returns what `sample` does, and large observations through memory that the asking process maps, if it can.

        The caller must fetch each answer once.

        Args:
            client: The process that asks; see `this_client`.
            weights: `{policy_id: weights}` to take first; None keeps those that are there.
            global_vars: The global step count, likewise.
        """
        if weights is not None:
            self.set_weights(weights)
        if global_vars is not None:
            self.set_global_vars(global_vars)
        if not isinstance(self.runner, EnvRunner) or not self._shared_memory.reaches(client):
            return self.sample()
        self.runner.empty = self._shared_memory.empty
        try:
            return self._shared_memory.export(self.sample())
        finally:
            del self.runner.empty

    def sample_with_count(self) -> tuple[SampleBatch | MultiAgentBatch, int]:
        """Returns a batch and its number of environment steps."""
        batch = self.sample()
        return batch, batch.count

    def get_metrics(self) -> list[RolloutMetrics | OffPolicyEstimate]:
        """Returns the episodes that ended since the last call, and estimates from data that was read."""
        lives = [] if self.runner is None else self.runner.get_metrics()
        episodes: list[Any] = self._episodic_life.merge((slot.env for slot in self.slots), lives)
        return episodes if self._data is None else episodes + self._data.get_metrics()

    def get_global_vars(self) -> dict[str, Any]:
        """Returns `{"timestep": environment steps of all workers}` as last heard."""
        return self.global_vars

    # --- learning ---------------------------------------------------------------------------------------------

    def learn_on_batch(self, samples: SampleBatch | MultiAgentBatch) -> dict[str, Any]:
        """Learns on one batch and returns the learner's info by policy id; that of the default policy by name, too."""
        if isinstance(samples, MultiAgentBatch):
            return {
                pid: self.policy_map[pid].learn_on_batch(batch)
                for pid, batch in samples.policy_batches.items()
                if pid in self.policy_map and self.is_policy_to_train(pid, batch)
            }
        return LearnerInfo({DEFAULT_POLICY_ID: self.policy_map[DEFAULT_POLICY_ID].learn_on_batch(samples)})

    def compute_gradients(self, samples: SampleBatch | MultiAgentBatch) -> tuple[Any, dict[str, Any]]:
        """Returns gradients and learner info, by policy id for a `MultiAgentBatch`."""
        if isinstance(samples, MultiAgentBatch):
            made = {
                pid: self.policy_map[pid].compute_gradients(batch)
                for pid, batch in samples.policy_batches.items()
                if pid in self.policy_map and self.is_policy_to_train(pid, batch)
            }
            return {pid: grads for pid, (grads, _) in made.items()}, {pid: info for pid, (_, info) in made.items()}
        grads, info = self.policy_map[DEFAULT_POLICY_ID].compute_gradients(samples)
        return grads, info

    def apply_gradients(self, grads: Any) -> None:
        """Applies what `compute_gradients` returned."""
        if isinstance(grads, Mapping):
            for pid, gradients in grads.items():
                self.policy_map[pid].apply_gradients(gradients)
            return
        self.policy_map[DEFAULT_POLICY_ID].apply_gradients(grads)

    # --- the process ------------------------------------------------------------------------------------------------

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Returns `func(self, *args, **kwargs)`."""
        return func(self, *args, **kwargs)

    def ping(self) -> int:
        """Returns this worker's index: it is alive."""
        return self.worker_index

    def stop(self) -> None:
        """Closes the environments, and removes the files of policies that wait on disk."""
        with ExitStack() as ends:  # the others end, too, where one raises
            ends.callback(self.policy_map.close)
            if self._data is not None:
                ends.callback(self._data.close)
            for slot in reversed(self.slots):
                ends.callback(slot.env.close)
            if isinstance(self.runner, VectorRunner):
                ends.callback(self.runner.vector_env.close)

    def get_host(self) -> str:
        """Returns the machine's name."""
        return socket.gethostname()

    def get_node_ip(self) -> str:
        """Returns the machine's address within the cluster."""
        import ray

        return str(ray.util.get_node_ip_address())

    def find_free_port(self) -> int:
        """Returns a TCP port that was free a moment ago."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])
