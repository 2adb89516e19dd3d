"""CQL: SAC that learns from data alone, with critics that distrust what is not in them; config, plan, trainer."""

from __future__ import annotations

from typing import Any, ClassVar

from rlframe.agents.sac.sac import SACConfig, SACTrainer
from rlframe.config.options import option
from rlframe.data.columns import ACTIONS, DONES, NEXT_OBS, OBS, REWARDS, TERMINATEDS
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.evaluation.worker_set import WorkerSet
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.plan.context import AGENT_STEPS_SAMPLED_COUNTER, STEPS_SAMPLED_COUNTER, _get_shared_metrics
from rlframe.execution.replay_ops import Replay, UpdatePriorities
from rlframe.execution.rollout_ops import agent_steps
from rlframe.execution.train_ops import TrainOneStep, UpdateTargetNetwork
from rlframe.offline.io_context import IOContext
from rlframe.offline.json_reader import JsonReader
from rlframe.replay.per_policy import LocalReplayBuffer
from rlframe.utils.errors import ConfigError, DataError


class CQLConfig(SACConfig):
    """Keys of CQL (Kumar et al. 2020)."""

    new_defaults: ClassVar = {"input_evaluation": [], "learning_starts": 0, "timesteps_per_iteration": 25_600}

    bc_iters: int = option(20_000, "Updates in which the actor clones the data's behaviour at first.", low=0)
    temperature: float = option(
        1.0, "T: how much the highest values alone make up the penalty.", above=0, source="Kumar et al. 2020, eq. 4"
    )
    num_actions: int = option(10, "Actions of each kind that are compared with the data's.", low=1)
    lagrangian: bool = option(False, "The penalty's weight is adapted to lagrangian_thresh.")
    lagrangian_thresh: float = option(5.0, "What the penalty of a critic is kept near.", source="the same, eq. 30")
    min_q_weight: float = option(5.0, "Weight of the penalty.", low=0)


def load_data(trainer: Any) -> None:
    """Reads all rows of a trainer's `input` into its replay buffer.

    Raises:
        DataError: If rows lack a column that learning needs.
        ConfigError: If `input` is no files, or the buffer is too small for all of them.
    """
    config, buffer = trainer.config, trainer.local_replay_buffer
    if not isinstance(config["input"], (str, list, tuple)) or config["input"] == "sampler":
        raise ConfigError(
            f"input={config['input']!r}: CQL learns from data that it holds as a whole; set the files that they are "
            "in, as SAC's or another trainer's output writes them"
        )
    reader = JsonReader(config["input"], IOContext(trainer.logdir, config, 0, trainer.workers.local_worker()))
    rows, capacity = 0, int(config["replay_buffer_config"]["capacity"])
    for batch in reader.read_all_files():
        parts = list(batch.policy_batches.values()) if isinstance(batch, MultiAgentBatch) else [batch]
        for part in parts:
            missing = [name for name in (OBS, ACTIONS, REWARDS, NEXT_OBS) if name not in part]
            if missing or (DONES not in part and TERMINATEDS not in part):
                raise DataError(f"input: got rows with {sorted(part)}, wanted {missing or [DONES]}, too")
        rows += max(part.count for part in parts)
        if rows > capacity:
            raise ConfigError(
                f"replay_buffer_config.capacity: got {capacity}, and data of more rows than that; CQL holds all of "
                "them: raise it"
            )
        buffer.add_batch(batch)
    if not rows:
        raise DataError(f"input={config['input']!r}: found no rows, wanted those that CQL learns from")
    buffer.learning_starts = min(buffer.learning_starts, buffer.num_added)  # nothing is added later


class CountReplayed:
    """Item in and out: a batch. Counts its steps as sampled: what a result and its limits go by."""

    def __call__(self, batch: SampleBatch | MultiAgentBatch) -> SampleBatch | MultiAgentBatch:
        """Counts a batch and returns it."""
        counters = _get_shared_metrics().counters
        counters[STEPS_SAMPLED_COUNTER] += batch.count
        counters[AGENT_STEPS_SAMPLED_COUNTER] += agent_steps(batch)
        return batch


def execution_plan(
    workers: WorkerSet, config: CQLConfig, *, local_replay_buffer: LocalReplayBuffer
) -> LocalIterator[Any]:
    """Replays, learns, re-prioritises, moves the targets; nothing is sampled."""
    config = CQLConfig.view(config)
    learn = Replay(local_buffer=local_replay_buffer).for_each(CountReplayed()).for_each(TrainOneStep(workers))
    if config.prioritized_replay:
        learn = learn.for_each(UpdatePriorities(local_replay_buffer))
    learn = learn.for_each(UpdateTargetNetwork(workers, config.target_network_update_freq, by_steps_trained=True))
    return StandardMetricsReporting(learn, workers, config, by_steps_trained=True)


CQL_DEFAULT_CONFIG: dict[str, Any] = CQLConfig.defaults()

CQLTrainer = SACTrainer.with_updates(
    name="CQL",
    config_class=CQLConfig,
    policies={
        "torch": "rlframe.agents.sac.cql_policy:CQLTorchPolicy",
        "tf": "rlframe.agents.sac.cql_policy:CQLTFPolicy",
    },
    execution_plan=execution_plan,
    after_init=load_data,
)
