"""Methods that RLlib's `RolloutWorker` had and nothing here calls: the names that programs know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.columns import DONES, REWARDS
from rlframe.data.minibatches import do_minibatch_sgd
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, SampleBatch
from rlframe.policy.policy_spec import PolicySpec

if TYPE_CHECKING:
    from rlframe.policy.policy import Policy

#: Seconds that learners wait for each other.
_PATIENCE_S = 300.0


def _of_config(key: str) -> property:
    return property(lambda worker: worker.policy_config[key], doc=f"The config's `{key}`.")


class RLlibWorkerNames:
    """Methods of a `RolloutWorker` for the sake of RLlib's names alone."""

    policy_map: Any  # the worker's `PolicyMap`
    policy_config: Any
    _creation_args: dict[str, Any]

    batch_mode = _of_config("batch_mode")
    compress_observations = _of_config("compress_observations")
    fake_sampler = _of_config("fake_sampler")
    num_envs = _of_config("num_envs_per_worker")
    observation_filter = _of_config("observation_filter")

    @property
    def rollout_fragment_length(self) -> int:
        """Steps of all environments that a batch has, or has at least."""
        return int(self.policy_config.rollout_fragment_length * self.policy_config.num_envs_per_worker)

    @property
    def count_steps_by(self) -> str:
        """What a batch's length counts: "env_steps" or "agent_steps"."""
        return str(self.policy_config.multiagent.count_steps_by)

    @property
    def multiagent(self) -> bool:
        """Whether there are policies beside, or in place of, the default one."""
        return set(self.policy_map) != {DEFAULT_POLICY_ID}

    @property
    def preprocessing_enabled(self) -> bool:
        """Whether policies get observations preprocessed."""
        return not self.policy_config.disable_preprocessor_api

    @property
    def env_creator(self: Any) -> Any:
        """What makes the environments."""
        return self._env_creator

    def creation_args(self) -> dict[str, Any]:
        """Returns the arguments that this worker was made with."""
        return dict(self._creation_args)

    @property
    def _original_kwargs(self) -> dict[str, Any]:
        """Where programs look for what has no other name in RLlib: `worker._original_kwargs["log_dir"]`."""
        return self.creation_args()

    # --- policies ----------------------------------------------------------------------------------------------

    def get_policies_to_train(self: Any, batch: Any = None) -> list[str]:
        """Returns the ids of the policies that are trained.

        Args:
            batch: Rows that `policies_to_train` is asked about, where that is a function of them.
        """
        if batch is None:
            return list(self.policies_to_train)
        return [pid for pid in self.policy_map if self.is_policy_to_train(pid, batch)]

    def foreach_policy_to_train(self: Any, func: Callable[..., Any], **kwargs: Any) -> list[Any]:
        """Returns `func(policy, policy_id)` for each policy that is trained."""
        return [func(self.policy_map[pid], pid, **kwargs) for pid in self.policies_to_train]

    def add_policy(  # noqa: PLR0913 - RLlib's signature, keyword-only
        self: Any,
        *,
        policy_id: str,
        policy_cls: type[Policy],
        observation_space: Any = None,
        action_space: Any = None,
        config: Mapping[str, Any] | None = None,
        policy_state: dict[str, Any] | None = None,
        policy_mapping_fn: Any = None,
        policies_to_train: Any = None,
    ) -> Policy:
        """Adds a policy to this worker only; `Trainer.add_policy` does to all.

        Args:
            policy_id: Its id.
            policy_cls: Its class.
            observation_space: Space of its agents' observations; None takes the environment's.
            action_space: Space of its agents' actions; None takes the environment's.
            config: What differs from the trainer's config.
            policy_state: What another policy's `get_state()` returned; None begins anew.
            policy_mapping_fn: A new mapping of agents to policies, for agents that appear from now on; None keeps it.
            policies_to_train: New policies to learn; None keeps them.

        Raises:
            ValueError: If there is a policy of this id.
        """
        if policy_id in self.policy_map:
            raise ValueError(f"policy_id={policy_id!r}: there is one already, wanted a new id")
        self.add_policies({policy_id: PolicySpec(policy_cls, observation_space, action_space, config)})
        self.set_policy_mapping_fn(policy_mapping_fn)
        self.set_policies_to_train(policies_to_train)
        added: Policy = self.policy_map[policy_id]
        if policy_state is not None:
            added.set_state(policy_state)
        return added

    def set_is_policy_to_train(self: Any, is_policy_to_train: Any) -> None:
        """Takes other policies to learn (the name of RLlib 1.13); see `set_policies_to_train`."""
        self.set_policies_to_train(is_policy_to_train)

    def export_policy_model(self, export_dir: str, policy_id: str = DEFAULT_POLICY_ID, onnx: int | None = None) -> None:
        """Writes a policy's network; see its `export_model`."""
        self.policy_map[policy_id].export_model(export_dir, onnx)

    def export_policy_checkpoint(
        self, export_dir: str, filename_prefix: str = "model", policy_id: str = DEFAULT_POLICY_ID
    ) -> None:
        """Writes a policy's whole state; see its `export_checkpoint`."""
        self.policy_map[policy_id].export_checkpoint(export_dir, filename_prefix)

    def import_policy_model_from_h5(self, import_file: str, policy_id: str = DEFAULT_POLICY_ID) -> None:
        """Has a policy's model load a file; see its `import_model_from_h5`."""
        self.policy_map[policy_id].import_model_from_h5(import_file)

    # --- sampling ----------------------------------------------------------------------------------------------

    @property
    def sampler(self) -> WorkerSampler:
        """What samples for this worker: its environments' batches and the episodes that ended."""
        return WorkerSampler(self)

    # --- learning ----------------------------------------------------------------------------------------------

    def sample_and_learn(
        self: Any,
        expected_batch_size: int,
        num_sgd_iter: int,
        sgd_minibatch_size: int,
        standardize_fields: Sequence[str],
    ) -> tuple[dict[str, Any], int]:
        """Samples a batch and learns from it; see `do_minibatch_sgd`.

        Args:
            expected_batch_size: Rows that the batch must have: learners that average gradients do equally many steps.
            num_sgd_iter: Passes over the batch.
            sgd_minibatch_size: Rows of each minibatch; 0 for all.
            standardize_fields: Columns that get mean 0 and standard deviation 1 first.

        Returns:
            The learner's info by policy id, and the number of rows.

        Raises:
            ValueError: If the batch has more or fewer rows.
        """
        batch = self.sample()
        if batch.count != expected_batch_size:
            raise ValueError(f"Sampled {batch.count} rows; wanted {expected_batch_size}, as all other workers have.")
        info = do_minibatch_sgd(batch, self.policy_map, self, num_sgd_iter, sgd_minibatch_size, standardize_fields)
        return info, batch.count

    def setup_torch_data_parallel(self, url: str, world_rank: int, world_size: int, backend: str) -> None:
        """Joins a `torch.distributed` group; from then on the policies average gradients with the others'.

        Args:
            url: `tcp://host:port` of the worker with rank 0.
            world_rank: Number of this worker, from 0.
            world_size: Number of workers.
            backend: "gloo" (CPU) or "nccl" (GPU).

        Raises:
            ValueError: If a policy is none of PyTorch.
        """
        others = [pid for pid, policy in self.policy_map.items() if policy.framework != "torch"]
        if others:
            raise ValueError(f"The policies {others} are none of PyTorch; gradients are averaged in PyTorch only.")
        from rlframe.policy.torch import distributed

        distributed.join(url, world_rank, world_size, backend, _PATIENCE_S)
        for policy in self.policy_map.values():
            policy.distributed_world_size = world_size


class WorkerSampler:
    """A worker's environments, asked for batches apart from its `input`, callbacks and output."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def get_data(self) -> Any:
        """Returns the next batch of the environments; see `RolloutWorker.sample_environments`."""
        return self._worker.sample_environments()

    next = get_data

    def get_metrics(self) -> list[Any]:
        """Returns the episodes that ended since the last call."""
        metrics: list[Any] = self._worker.get_metrics()
        return metrics

    def get_extra_batches(self) -> list[Any]:
        """Returns no batches: `get_data` gives all that there is."""
        return []


class RowsOfPolicy:
    """One policy's rows of an episode so far, as far as the episode knows them: the rewards and dones of its agents."""

    def __init__(self, views: Sequence[Any]) -> None:
        self._views = views

    @property
    def batches(self) -> list[SampleBatch]:
        """Returns a batch for each agent that has acted: raw `rewards`, float `[T]`, and `dones`, bool `[T]`."""
        batches = [SampleBatch({REWARDS: np.asarray(view.rewards, np.float32)}) for view in self._views]
        for view, batch in zip(self._views, batches, strict=True):
            batch[DONES] = np.arange(batch.count) == (batch.count - 1 if view.done else -1)
        return batches

    @property
    def buffers(self) -> dict[str, list[Any]]:
        """Returns the columns of `batches`, one agent's rows after the other's, as RLlib 1.2 kept them."""
        return {name: [item for batch in self.batches for item in batch[name].tolist()] for name in (REWARDS, DONES)}


class RowsOfEpisode:
    """What callbacks read of RLlib's builder of batches: `policy_collectors`, by policy that has acted."""

    def __init__(self, episode: Any) -> None:
        self._episode = episode

    @property
    def policy_collectors(self) -> dict[str, RowsOfPolicy]:
        """Returns the rows by policy id."""
        views: dict[str, list[Any]] = {}
        for agent, view in self._episode._views.items():
            if view.rewards:
                views.setdefault(self._episode.policy_for(agent), []).append(view)
        return {policy_id: RowsOfPolicy(own) for policy_id, own in views.items()}


def _by_agent(part: str) -> property:
    def collect(self: Any) -> dict[Any, Any]:
        seen = {agent: view for agent, view in self._views.items() if view.obs is not None or view.rewards}
        views = {agent: getattr(view, part) for agent, view in seen.items()}
        return {agent: value for agent, value in views.items() if value is not None}

    return property(collect, doc=f"By agent that has observed something: its `{part}`, if there is one; a copy.")


class RLlibEpisodeNames:
    """Attributes of RLlib's `Episode` that programs read although they are private; each is a copy."""

    _agent_to_last_obs = _by_agent("obs")
    _agent_to_last_raw_obs = _by_agent("raw_obs")
    _agent_to_last_info = _by_agent("info")
    _agent_to_last_done = _by_agent("done")
    _agent_to_last_action = _by_agent("action")
    _agent_to_prev_action = _by_agent("prev_action")
    _agent_to_last_extra_action_outs = _by_agent("extras")

    _batch_builder: Any

    @property
    def _agent_reward_history(self: Any) -> dict[Any, list[float]]:
        return defaultdict(list, {agent: list(view.rewards) for agent, view in self._views.items() if view.rewards})

    @property
    def batch_builder(self) -> Any:
        """What the program's factory made; else a view of the rows, the last of which has done True at the end."""
        return RowsOfEpisode(self) if self._batch_builder is None else self._batch_builder

    def new_batch_builder(self: Any) -> Any:
        """Returns a `MultiAgentSampleBatchBuilder`, whose batches `add_extra_batch` takes."""
        return self.worker.new_batch_builder()

    @property
    def _agent_to_rnn_state(self: Any) -> dict[Any, Any]:
        return {agent: self.rnn_state_for(agent) for agent in self._views}

    @property
    def _agent_to_policy(self: Any) -> dict[Any, str]:
        return {agent: self.policy_for(agent) for agent in self.get_agents()}

    @property
    def _agent_to_index(self: Any) -> dict[Any, int]:
        return {agent: index for index, agent in enumerate(self.get_agents())}

    @property
    def _policies(self: Any) -> Any:
        return self.policy_map

    def _agent_index(self: Any, agent_id: Any) -> int:
        """Returns the agent's number in the order in which agents appeared."""
        index: int = self.get_agents().index(agent_id)
        return index

    def last_pi_info_for(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Returns what `last_extra_action_outs_for` does (the older name)."""
        extras: dict[str, Any] = self.last_extra_action_outs_for(*args, **kwargs)
        return extras
