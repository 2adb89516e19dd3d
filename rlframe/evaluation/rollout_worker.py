"""A worker: environments, policies and filters in one process, which samples, learns and reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.env.env_context import EnvContext
from rlframe.env.wrappers.atari_wrappers import with_preprocessing
from rlframe.evaluation import shared_names
from rlframe.evaluation.callbacks import call_hook, make_callbacks, overridden_hooks
from rlframe.evaluation.episodic_life import EpisodicLifeMetrics
from rlframe.evaluation.process_environment import set_environment
from rlframe.evaluation.sampling.multi_agent import MultiAgentRunner
from rlframe.evaluation.sampling.single_agent import EnvRunner
from rlframe.evaluation.sampling.slot import EnvSlot
from rlframe.evaluation.worker_building import with_overrides
from rlframe.evaluation.worker_requests import WorkerRequests
from rlframe.fast.shared_memory import SharedMemoryPool
from rlframe.policy.policy_map import PolicyMap, TrainedPolicies
from rlframe.utils.errors import EnvError
from rlframe.utils.logs import set_log_level
from rlframe.utils.names import Gate, install
from rlframe.utils.spaces.old_gym import convert_spaces
from rlframe.utils.threads import blas_in_one_thread

if TYPE_CHECKING:
    from rlframe.offline.worker_data import WorkerData
    from rlframe.policy.policy_spec import PolicySpec

_LOGGER = logging.getLogger("rlframe")
shared_names.connect()
_GLOBAL_WORKER: RolloutWorker | None = None


def get_global_worker() -> RolloutWorker | None:
    """Returns the worker made last in this process; callbacks are given theirs as an argument instead."""
    return _GLOBAL_WORKER


class RolloutWorker(WorkerRequests):
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
        policy: Old name of `policy_spec`.
        **overrides: Keys of the trainer's config that differ for this worker, by RLlib's constructor names
            (`num_envs`, `episode_horizon`, `policy_mapping_fn`, `input_creator`, ...).
    """

    #: Calls of `sample` that failed since the last that did not.
    failures_in_a_row = 0

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
        policy: Any = None,
        **overrides: Any,
    ) -> None:
        global _GLOBAL_WORKER
        if gates:
            install(gates)
        _GLOBAL_WORKER = self
        policy_spec = policy if policy_spec is None else policy_spec
        self._creation_args = {
            "env_creator": env_creator, "validate_env": validate_env, "policy_spec": policy_spec,
            "worker_index": worker_index, "num_workers": num_workers, "policy_config": policy_config,
            "make_env": make_env, "spaces": spaces, "callbacks": callbacks, "log_dir": log_dir, **overrides,
        }  # fmt: skip
        self.policy_config = with_overrides(policy_config or {}, overrides, worker_index, num_workers)
        config = self.policy_config
        self.worker_index, self.num_workers, self._restarts = worker_index, num_workers, restarts
        self.env_context = EnvContext(config.env_config or {}, worker_index, num_workers=num_workers)
        if worker_index > 0 or "extra_python_environs" in overrides:
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

    @property
    def policies_to_train(self) -> list[str]:
        """Ids of the policies that learn."""
        return [pid for pid in self.policy_map if self.is_policy_to_train(pid)]

    # --- sampling ---------------------------------------------------------------------------------------------

    def sample(self) -> SampleBatch | MultiAgentBatch:
        """Returns a batch of `rollout_fragment_length · num_envs_per_worker` rows (at least, for complete episodes).

        With an `input`, it is the next one that is read there.

        Raises:
            EnvError: If this worker has no environment, or one of its environments failed.
            DataError: If what is read is no batch.
        """
        if self._fake_batch is not None:
            return self._fake_batch
        self.failures_in_a_row += 1  # until it is known to be none
        batch = self.sample_environments() if self._data is None else self._data.next()
        self.failures_in_a_row = 0
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
        return self._with_extra(batch) if self._extra_batches else batch

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Tells policies the global step count; their schedules follow it."""
        self.global_vars = dict(global_vars)
        self.policy_map.update_global_vars(global_vars)


__all__ = ["RolloutWorker", "get_global_worker"]
