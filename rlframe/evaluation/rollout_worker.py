"""A worker: environments, policies by id, and filters in one process, which samples, learns and reports."""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
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
from rlframe.evaluation.sampling.rollout import EnvSlot
from rlframe.evaluation.sampling.single_agent import EnvRunner
from rlframe.evaluation.worker_building import with_overrides
from rlframe.evaluation.worker_requests import WorkerRequests
from rlframe.fast.shared_memory import SharedMemoryPool
from rlframe.policy.policy import Policy
from rlframe.policy.waiting_policies import Entry, WaitingPolicies, can_wait
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


class PolicyMap(WaitingPolicies, dict[str, Policy]):
    """Policies by id; at most `capacity` of them are in memory, the others wait on disk.

    A policy that waits is a directory of arrays and JSON, as in a checkpoint, and how it was made. It comes back, to
    where it was, when somebody uses it: the object stays the same one all the while, so that also who has kept it has
    the policy itself. What comes back is what `get_state` tells and `set_state` takes, and the schedules and learning
    rate that it had last; attributes of other kinds that a user's class collects are lost, and layers that policies
    share through a global must not wait (each policy would bring its own old copy of them back).

    Args:
        capacity: Policies in memory, 1 or more.
        cache: Folder for those that wait; a temporary one when None. Each map makes a folder of its own in it.
        worker_index: Not used, as the next one: they named RLlib's variable scopes.
        num_workers: Not used.
        path: Another name of `cache`.
        policy_config: Not used: `create_policy` gets each policy's whole config.
        session_creator: Not used: there are no sessions.
        seed: Not used: a policy's config has its own.

    Raises:
        ConfigError: If the folder cannot be made.
    """

    def __init__(
        self,
        capacity: int = 100,
        cache: str | None = None,
        *,
        worker_index: int = 0,
        num_workers: int = 0,
        path: str | None = None,
        policy_config: Mapping[str, Any] | None = None,
        session_creator: Any = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        del worker_index, num_workers, policy_config, session_creator, seed
        cache = path if cache is None else cache
        self.capacity = capacity
        #: Held while policies come and go. Who uses a policy in a thread of its own holds it, too.
        self.lock = threading.RLock()
        self._cache = cache
        self._entries: dict[str, Entry] = {}
        self._numbers = itertools.count()
        self._present: OrderedDict[str, None] = OrderedDict()  # by id, the longest unused first
        self._folder: Path | None = None
        self._closed = False
        if cache is not None:
            self._make_folder()

    # --- the table ---------------------------------------------------------------------------------------------

    def add(self, policy_id: str, policy: Policy, rebuild: Callable[[Policy], None] | None = None) -> None:
        """Takes a policy.

        Args:
            policy_id: Its id.
            policy: The policy.
            rebuild: `fn(policy)` that initialises it anew, see `rebuilder`; None keeps it in memory for good.
        """
        with self.lock:
            entry = Entry(policy_id, next(self._numbers), policy, rebuild if can_wait(policy) else None)
            self._entries[policy_id] = entry
            super().__setitem__(policy_id, policy)
            self._make_room(1)
            self._present[policy_id] = None

    def __setitem__(self, policy_id: str, policy: Policy) -> None:
        self.add(policy_id, policy)

    def __getitem__(self, policy_id: str) -> Policy:
        policy = super().__getitem__(policy_id)
        self._touch(policy_id)
        return policy

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a policy, `default` for an unknown id."""
        self._touch(key)
        return super().get(key, default)

    def pop(self, policy_id: str, *default: Any) -> Any:
        """Takes a policy out; one that waits is gone with its files."""
        with self.lock:
            entry = self._entries.pop(policy_id, None)
            self._present.pop(policy_id, None)
            if entry is not None and entry.path is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
            return super().pop(policy_id, *default)

    def __delitem__(self, policy_id: str) -> None:
        self[policy_id]  # an unknown id is a KeyError
        self.pop(policy_id)

    def _touch(self, policy_id: str) -> None:
        if not self.overflows:
            return
        with self.lock:
            if policy_id in self._present:
                self._present.move_to_end(policy_id)

    # --- in memory, and on disk --------------------------------------------------------------------------------

    @property
    def overflows(self) -> bool:
        """Whether there are more policies than may be in memory."""
        return len(self) > self.capacity

    def update_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Tells all policies the global step count; those that wait hear of it when they come back."""
        with held(self):
            for policy_id, entry in self._entries.items():
                if policy_id in self._present:
                    entry.policy.on_global_var_update(global_vars)
                else:
                    entry.global_vars = dict(global_vars)

    # A dict of policies travels nowhere: what is sent are weights and specifications.
    __reduce__ = None  # type: ignore[assignment]


class TrainedPolicies:
    """Which policies learn, by `multiagent.policies_to_train`: ids, one id, a function `(id, batch) -> bool`, or None.

    Args:
        wanted: The config's value.
    """

    def __init__(self, wanted: Any = None) -> None:
        self.wanted = [wanted] if isinstance(wanted, str) else wanted

    def __call__(self, policy_id: str, batch: Any = None) -> bool:
        """Returns whether a policy learns from a batch."""
        if self.wanted is None:
            return True
        return bool(self.wanted(policy_id, batch)) if callable(self.wanted) else policy_id in self.wanted


def held(policies: Any) -> Any:
    """Returns a context in which no policy of a map comes or goes, for threads; without policies on disk a void one."""
    return policies.lock if isinstance(policies, PolicyMap) and policies.overflows else nullcontext()


__all__ = ["PolicyMap", "TrainedPolicies", "held"]


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
    trained_policies = TrainedPolicies

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
