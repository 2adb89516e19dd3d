"""MARWIL and BC: policies from data, weighted by how well actions came out, or not; configs, plan, trainers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.buffer_in_plans import names_buffer
from rlframe.agents.families.off_policy import ReplayConfig
from rlframe.agents.families.optimization import GradientClippingConfig
from rlframe.config.options import option
from rlframe.execution.concurrency_ops import Concurrently
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import Replay, StoreToReplayBuffer, TrainOneStep
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class MARWILConfig(ReplayConfig, GradientClippingConfig):
    """Keys of MARWIL (Wang et al. 2018)."""

    gives_buffer: ClassVar[Any] = staticmethod(names_buffer)

    new_defaults: ClassVar[Any] = {
        "num_workers": 0,
        "postprocess_inputs": True,
        "train_batch_size": 2000,
        "learning_starts": 0,
        "lr": 1e-4,
        "replay_buffer_config": {"capacity": 10_000},
    }

    beta: float = option(
        1.0, "How much better actions weigh more; 0 clones all alike.", low=0, source="Wang et al. 2018, eq. 3"
    )
    use_gae: bool = option(True, "Where a trajectory is cut off, V stands for what followed; 0 otherwise.")
    vf_coeff: float = option(1.0, "Weight of the value loss.", low=0)
    moving_average_sqd_adv_norm_start: float = option(
        100.0, "Mean of squared advantages at the start.", unit="squared returns", above=0
    )
    moving_average_sqd_adv_norm_update_rate: float = option(
        1e-8, "Share of a batch's mean in the moving average.", low=0, high=1
    )
    replay_buffer_size: int = option(-1, "Old name of replay_buffer_config.capacity.", deprecated=True)

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if (self.model.use_lstm or self.model.use_attention) and self.model.max_seq_len < 2:
            yield (
                f"model.max_seq_len={self.model.max_seq_len}: a model with memory learns from sequences of steps; set "
                "2 or more, such as 20"
            )
        if self.beta > 0 and self.input != "sampler" and not self.postprocess_inputs:
            yield "beta > 0 needs postprocess_inputs=True: advantages are computed of the trajectories that are read"


class BCConfig(MARWILConfig):
    """Keys of behaviour cloning: MARWIL's with β = 0."""

    new_defaults: ClassVar[Any] = {"beta": 0.0, "postprocess_inputs": False, "input_evaluation": []}

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.beta != 0.0:
            yield f"beta={self.beta:g}: BC clones all rows alike, which is beta=0; MARWIL weighs them"


def execution_plan(workers: WorkerSet, config: MARWILConfig, *, local_replay_buffer: Any) -> LocalIterator[Any]:
    """Alternates reading (or sampling) a batch into the buffer with a learner step on rows drawn from it."""
    store = ParallelRollouts(workers, mode="bulk_sync").for_each(StoreToReplayBuffer(local_buffer=local_replay_buffer))
    learn = Replay(local_buffer=local_replay_buffer).for_each(TrainOneStep(workers))
    train = Concurrently([store, learn], mode="round_robin", output_indexes=[1])
    return StandardMetricsReporting(train, workers, config)


DEFAULT_CONFIG: dict[str, Any] = MARWILConfig.defaults()
BC_DEFAULT_CONFIG: dict[str, Any] = BCConfig.defaults()

MARWILTrainer = build_trainer(
    name="MARWIL",
    config_class=MARWILConfig,
    policies={
        "torch": "rlframe.agents.marwil.marwil_policy:MARWILTorchPolicy",
        "tf": "rlframe.agents.marwil.marwil_policy:MARWILTFPolicy",
    },
    execution_plan=execution_plan,
)
BCTrainer = MARWILTrainer.with_updates(name="BC", config_class=BCConfig)
