"""A worker: environments, policies and filters in one process, which samples, learns and reports."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.env.base_env import BaseEnv, maker_of
from rlframe.env.env_context import EnvContext
from rlframe.env.external_env import ExternalEnv
from rlframe.env.wrappers.atari_wrappers import is_atari, with_preprocessing
from rlframe.evaluation import shared_names
from rlframe.evaluation.callbacks import call_hook, make_callbacks, overridden_hooks
from rlframe.evaluation.episodic_life import EpisodicLifeMetrics
from rlframe.evaluation.process_environment import set_environment
from rlframe.evaluation.sampling.multi_agent import MultiAgentRunner
from rlframe.evaluation.sampling.single_agent import EnvRunner
from rlframe.evaluation.sampling.slot import EnvSlot
from rlframe.evaluation.worker_building import LiveEnvs, make_runner, make_slots, with_overrides
from rlframe.evaluation.worker_policies import WorkerPolicies
from rlframe.fast.shared_memory import SharedMemoryClient, SharedMemoryPool
from rlframe.policy.policy_map import PolicyMap, TrainedPolicies
from rlframe.utils.errors import EnvError
from rlframe.utils.logs import set_log_level
from rlframe.utils.names import Gate, install
from rlframe.utils.spaces.old_gym import convert_spaces
from rlframe.utils.threads import blas_in_one_thread

if TYPE_CHECKING:
    from rlframe.evaluation.metrics import RolloutMetrics
    from rlframe.offline.estimators import OffPolicyEstimate
    from rlframe.offline.input_reader import InputReader
    from rlframe.offline.output_writer import OutputWriter
    from rlframe.offline.worker_data import WorkerData
    from rlframe.policy.policy_spec import PolicySpec

_LOGGER = logging.getLogger("rlframe")
shared_names.connect()
_GLOBAL_WORKER: RolloutWorker | None = None


def get_global_worker() -> RolloutWorker | None:
    """Returns the worker made last in this process; callbacks are given theirs as an argument instead."""
    return _GLOBAL_WORKER


class RolloutWorker(WorkerPolicies):
    """Samples with its policies in its environments; the same class is used in-process and as a Ray actor.

    Keyword arguments are those of RLlib 1.x; everything not named there is read from `policy_config`, the trainer's
    whole config.

    Args:
        env_creator: `fn(EnvContext) -> environment`.
        validate_env: `fn(env, env_context)` that raises on a wrong environment; called in every worker.
        policy_spec: A policy class, a `PolicySpec`, or `{policy_id: PolicySpec}`; None builds no policy yet
            (`add_policies` does).
        worker_index: 0 for the worker in the driver, 1.. for remote ones.
        num_workers: Remote workers in all.
        policy_config: The trainer's config; keys that are missing have their defaults.
        make_env: Whether this worker has environments.
        spaces: `(observation_space, action_space)` where there is no environment to take them from.
        callbacks: Callbacks class (or any other form that `make_callbacks` takes).
        log_dir: The trainer's directory, for `output="logdir"`.
        restarts: How many workers were replaced before, where this one replaces another; tells their episodes apart.
        gates: Which names the driver does not import since a file gave them; for the process of a remote worker.
        **overrides: Keys of the trainer's config that differ for this worker, by RLlib's constructor names
            (`num_envs`, `episode_horizon`, `rollout_fragment_length`, ...).
    """

    def __init__(
        self,
        *,
        env_creator: Callable[[EnvContext], Any] | None = None,
        validate_env: Callable[[Any, EnvContext], None] | None = None,
        policy_spec: Any = None,
        worker_index: int = 0,
        num_workers: int = 0,
        policy_config: Mapping[str, Any] | None = None,
        make_env: bool = True,
        spaces: tuple[gym.Space[Any], gym.Space[Any]] | None = None,
        callbacks: Any = None,
        log_dir: str | None = None,
        gates: tuple[Gate, ...] = (),
        restarts: int = 0,
        **overrides: Any,
    ) -> None:
        global _GLOBAL_WORKER
        if gates:
            install(gates)
        _GLOBAL_WORKER = self
        self._creation_args = {
            "env_creator": env_creator, "validate_env": validate_env, "policy_spec": policy_spec,
            "worker_index": worker_index, "num_workers": num_workers, "policy_config": policy_config,
            "make_env": make_env, "spaces": spaces, "callbacks": callbacks, "log_dir": log_dir, **overrides,
        }  # fmt: skip
        self.policy_config = with_overrides(policy_config or {}, overrides, worker_index, num_workers)
        config = self.policy_config
        self.worker_index, self.num_workers, self._restarts = worker_index, num_workers, restarts
        self.env_context = EnvContext(config.env_config or {}, worker_index, num_workers=num_workers)
        if worker_index > 0:
            set_environment("extra_python_environs_for_worker", config)
        set_log_level(config.log_level)
        self.callbacks = make_callbacks(config.callbacks if callbacks is None else callbacks)
        self._hooks = overridden_hooks(self.callbacks)
        self._env_creator, self._validate_env = with_preprocessing(env_creator, config), validate_env
        self._episodic_life = EpisodicLifeMetrics()
        self.slots: list[EnvSlot] = []
        given = spaces or (config.observation_space, config.action_space)
        self.observation_space: Any = convert_spaces(given[0])
        self.action_space: Any = convert_spaces(given[1])
        if make_env:
            self.open_envs()
        multiagent = config.multiagent
        self.policy_map = PolicyMap(multiagent.policy_map_capacity, multiagent.policy_map_cache)
        self.preprocessors: dict[str, Any] = {}
        self.filters: dict[str, Any] = {}
        self.policy_specs: dict[str, PolicySpec] = {}
        self.is_policy_to_train = TrainedPolicies(multiagent.policies_to_train)
        self._mapping_fn: Any = multiagent.policy_mapping_fn
        self.runner: EnvRunner | MultiAgentRunner | None = None
        self.global_vars: dict[str, Any] = {"timestep": 0}
        self._compresses, self._keeps_first_batch = config.compress_observations, config.fake_sampler
        self._fake_batch: SampleBatch | MultiAgentBatch | None = None
        self._shared_memory = SharedMemoryPool()
        self._log_dir = log_dir
        self._data: WorkerData | None = None
        if policy_spec is not None:
            self.add_policies(policy_spec)

    def __repr__(self) -> str:
        parts: dict[str, Any] = vars(self)  # may be asked for before all is there
        slots, specs = parts.get("slots", ()), parts.get("policy_specs", ())
        return f"RolloutWorker(index={parts.get('worker_index')}, envs={len(slots)}, policies={list(specs)})"

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

    # --- building ---------------------------------------------------------------------------------------------

    def open_envs(self) -> None:
        """Makes the environments; the constructor does, but for Ray actors, whose constructors lose their errors.

        Raises:
            EnvError: If one cannot be made, or is wrong.
        """
        if self._env_creator is None:
            return
        self.slots = make_slots(
            self.policy_config, self.env_context, self._env_creator, self._validate_env, self._restarts
        )
        for name in ("observation_space", "action_space"):
            told = getattr(self.slots[0].env, name)
            if told is not None:  # simulators need not know
                setattr(self, name, told)

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

    def _make_data(self) -> WorkerData | None:
        """Returns what reads and writes, None where the config asks for neither."""
        config = self.policy_config
        if config.input == "sampler" and config.output is None:
            return None
        from rlframe.offline.io_context import IOContext
        from rlframe.offline.worker_data import WorkerData

        return WorkerData(IOContext(self._log_dir, config, self.worker_index, self))

    @property
    def input_reader(self) -> InputReader | None:
        """What is read from instead of the environments; None where these are sampled."""
        return None if self._data is None else self._data.reader

    @property
    def output_writer(self) -> OutputWriter | None:
        """What keeps the batches of `sample`; None where nothing does."""
        return None if self._data is None else self._data.writer

    @property
    def policies_to_train(self) -> list[str]:
        """Ids of the policies that learn."""
        return [pid for pid in self.policy_map if self.is_policy_to_train(pid)]

    @property
    def clips_rewards(self) -> bool | float | None:
        """How rewards are clipped: as `clip_rewards` says; where it says nothing, Atari's to their sign."""
        how = self.policy_config.clip_rewards
        return True if how is None and self.env is not None and is_atari(self.env) else how

    # --- sampling ---------------------------------------------------------------------------------------------

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

    def sample(self) -> SampleBatch | MultiAgentBatch:
        """Returns a batch of `rollout_fragment_length · num_envs_per_worker` rows (at least, for complete episodes).

        With an `input`, it is the next one that is read there.

        Raises:
            EnvError: If this worker has no environment, or one of its environments failed.
            DataError: If what is read is no batch.
        """
        if self._fake_batch is not None:
            return self._fake_batch
        batch = self.sample_environments() if self._data is None else self._data.next()
        if "on_sample_end" in self._hooks:
            call_hook(self.callbacks, "on_sample_end", {"worker": self, "samples": batch})
        if self._data is not None and self._data.writer is not None:
            self._data.writer.write(batch)
        if self._compresses:
            batch.compress(bulk=True)
        if self._keeps_first_batch:
            self._fake_batch = batch
        return batch

    def sample_environments(self) -> SampleBatch | MultiAgentBatch:
        """Returns what the environments give, whatever `input` says; no callback hears of it, and nothing is written.

        Raises:
            EnvError: If this worker has no environment, or one of its environments failed.
        """
        if self.runner is None:
            raise EnvError(
                f"worker {self.worker_index} has no environment to sample from: remote workers sample here; "
                'set "create_env_on_driver": True if the driver shall have one too'
            )
        with blas_in_one_thread():
            batch: SampleBatch | MultiAgentBatch = self.runner.sample()
        return batch

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

    # --- learning ---------------------------------------------------------------------------------------------

    def learn_on_batch(self, samples: SampleBatch | MultiAgentBatch) -> dict[str, Any]:
        """Learns on one batch and returns the learner's info, by policy id for a `MultiAgentBatch`."""
        if isinstance(samples, MultiAgentBatch):
            return {
                pid: self.policy_map[pid].learn_on_batch(batch)
                for pid, batch in samples.policy_batches.items()
                if pid in self.policy_map and self.is_policy_to_train(pid, batch)
            }
        return self.policy_map[DEFAULT_POLICY_ID].learn_on_batch(samples)

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

    # --- access -----------------------------------------------------------------------------------------------

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

    def get_global_vars(self) -> dict[str, Any]:
        """Returns `{"timestep": environment steps of all workers}` as last heard."""
        return self.global_vars

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Tells policies the global step count; their schedules follow it."""
        self.global_vars = dict(global_vars)
        self.policy_map.update_global_vars(global_vars)

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Returns `func(self, *args, **kwargs)`."""
        return func(self, *args, **kwargs)

    def ping(self) -> int:
        """Returns this worker's index: it is alive."""
        return self.worker_index

    # --- the rest ---------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Closes the environments, and removes the files of policies that wait on disk."""
        for slot in self.slots:
            slot.env.close()
        if self._data is not None:
            self._data.close()
        self.policy_map.close()

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


__all__ = ["RolloutWorker", "get_global_worker"]
