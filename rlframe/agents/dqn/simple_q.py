"""SimpleQ: the deep Q-network of Mnih et al. 2015 without extensions; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlframe.config.common import CommonConfig
from rlframe.config.options import option
from rlframe.config.replay import REPLAY_BUFFERS, faults_of_rows
from rlframe.evaluation.worker_set import WorkerSet
from rlframe.execution.concurrency_ops import Concurrently
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.replay_buffer import LocalReplayBuffer
from rlframe.execution.replay_ops import Replay, StoreToReplayBuffer
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import TrainOneStep, UpdateTargetNetwork
from rlframe.trainer.template import build_trainer


class SimpleQConfig(CommonConfig):
    """Keys of SimpleQ: replay, a target network, ε-greedy exploration."""

    num_workers: int = option(0, "Remote rollout workers; 0 samples in the driver's process.", unit="processes", low=0)
    rollout_fragment_length: int = option(4, "Steps of each environment between two updates.", unit="steps", low=1)
    train_batch_size: int = option(32, "Replayed rows of one update.", unit="rows", low=1)
    lr: float = option(5e-4, "Learning rate of Adam.", low=0)
    lr_schedule: Sequence[Sequence[float]] | None = option(
        None, "Points [env step, learning rate], linear between them; None keeps lr.", wanted="a list of [step, value]"
    )
    exploration_config: dict[Any, Any] = option(
        {"type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.02, "epsilon_timesteps": 10000},
        "How to explore.",
        variants=CommonConfig.options()["exploration_config"].variants,
    )
    evaluation_config: dict[Any, Any] = option(
        {"explore": False}, "Overrides of this config for evaluation.", overrides=True
    )
    timesteps_per_iteration: int = option(1000, "Sampled steps of one train() at least.", unit="env steps", low=0)
    target_network_update_freq: int = option(
        500, "Steps between two copies into the target network.", unit="env steps sampled", low=0,
        source="Mnih et al. 2015, algorithm 1",
    )  # fmt: skip
    replay_buffer_config: dict[Any, Any] | None = option(
        {"type": "LocalReplayBuffer", "capacity": 50_000},
        "The replay buffer; None for plans without one.",
        variants=REPLAY_BUFFERS,
    )
    buffer_size: int = option(-1, "Old name of replay_buffer_config.capacity.", deprecated=True)
    store_buffer_in_checkpoints: bool = option(
        True, "Checkpoints hold the replay buffer, so that resuming is exact; False leaves it out in restore() too."
    )
    replay_sequence_length: int = option(1, "Consecutive rows replayed together; 1 replays single rows.", low=1)
    adam_epsilon: float = option(1e-8, "Adam's ε.", above=0)
    grad_clip: float | None = option(
        40.0, "Largest global norm of the gradient; None does not clip.", above=0, infinite=True
    )
    learning_starts: int = option(1000, "Steps sampled before the first update.", unit="env steps", low=0)

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        yield from faults_of_rows(self.replay_buffer_config)


def execution_plan(
    workers: WorkerSet, config: dict[str, Any], *, local_replay_buffer: LocalReplayBuffer
) -> LocalIterator[Any]:
    """Alternates (1) sample and store with (2) replay, learn, copy the target."""
    store = ParallelRollouts(workers, mode="bulk_sync").for_each(StoreToReplayBuffer(local_buffer=local_replay_buffer))
    learn = (
        Replay(local_buffer=local_replay_buffer)
        .for_each(TrainOneStep(workers))
        .for_each(UpdateTargetNetwork(workers, config["target_network_update_freq"]))
    )
    train = Concurrently([store, learn], mode="round_robin", output_indexes=[1])
    return StandardMetricsReporting(train, workers, config)


DEFAULT_CONFIG: dict[str, Any] = SimpleQConfig.defaults()

SimpleQTrainer = build_trainer(
    name="SimpleQ",
    config_class=SimpleQConfig,
    policies={
        "torch": "rlframe.agents.dqn.simple_q_torch_policy:SimpleQTorchPolicy",
        "tf": "rlframe.agents.dqn.simple_q_tf_policy:SimpleQTFPolicy",
    },
    execution_plan=execution_plan,
)
