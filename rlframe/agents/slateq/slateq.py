"""SlateQ: slates of documents by the values of single ones, and of who clicks what; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.off_policy import PrioritizedReplayConfig, TrainingIntensityConfig, replay_plan
from rlframe.agents.families.optimization import AdamEpsilonConfig, GradientClippingConfig
from rlframe.config.options import option
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.execution.iterators import LocalIterator
    from rlframe.replay.per_policy import LocalReplayBuffer

#: What `slateq_strategy` may be.
ALL_SLATEQ_STRATEGIES = ["RANDOM", "MYOP", "SARSA", "QL"]


class SlateQConfig(PrioritizedReplayConfig, TrainingIntensityConfig, GradientClippingConfig, AdamEpsilonConfig):
    """Keys of SlateQ (Ie et al. 2019)."""

    new_defaults: ClassVar[Any] = {
        "num_workers": 0,
        "batch_mode": "complete_episodes",
        "rollout_fragment_length": 1000,
        "train_batch_size": 32,
        "timesteps_per_iteration": 1000,
        "grad_clip": 40.0,
        "prioritized_replay": False,
        "target_network_update_freq": 3200,
        "exploration_config": {
            "type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.02, "epsilon_timesteps": 10_000
        },
        "evaluation_config": {"explore": False},
    }  # fmt: skip

    slateq_strategy: str = option(
        "QL",
        "What follows a slate is worth what the best one is (QL), the one shown (SARSA), or nothing (MYOP); RANDOM "
        "shows any and learns nothing.",
        choices=tuple(ALL_SLATEQ_STRATEGIES),
        source="Ie et al. 2019, section 4",
    )
    hiddens: Sequence[int] = option([256, 64, 16], "Hidden layers of the documents' values.", low=1)
    lr_choice_model: float = option(1e-2, "Learning rate of Adam for who clicks what.", low=0, log=True)
    lr_q_model: float = option(1e-2, "Learning rate of Adam for the documents' values.", low=0, log=True)
    recsim_embedding_size: int = option(
        20, "Width of users and documents in RLlib; here it is that of the observations, whatever this says.", low=1
    )
    replay_sequence_length: int = option(
        1, "Rows of a replayed sequence; 1, single steps, is all that slates learn from.", low=1, high=1
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.slateq_strategy == "SARSA" and self.batch_mode != "complete_episodes":
            yield (
                f"batch_mode={self.batch_mode!r}: slateq_strategy='SARSA' learns from the slate shown next, which a "
                "fragment's end cuts off; set 'complete_episodes', or slateq_strategy='QL'"
            )
        if self.observation_filter != "NoFilter":
            yield (
                f"observation_filter={self.observation_filter!r} would change the clicks in the observations, too; set "
                "'NoFilter', and scale what is shown in the environment"
            )

        if self.model.use_lstm or self.model.use_attention or self.model.custom_model:
            yield "model: documents are valued by layers of their own; set hiddens, and leave networks out of model"

    def remarks(self) -> Iterator[str]:
        """Yields remarks on keys that are not read."""
        yield from super().remarks()
        defaults = self.defaults()
        if self.lr != defaults["lr"]:
            yield f"lr={self.lr} has no effect here; set lr_q_model and lr_choice_model"
        if self.recsim_embedding_size != defaults["recsim_embedding_size"]:
            yield "recsim_embedding_size has no effect here: widths of users and documents are those that are observed"


def execution_plan(
    workers: WorkerSet, config: SlateQConfig, *, local_replay_buffer: LocalReplayBuffer
) -> LocalIterator[Any]:
    """Alternates (1) sample and store with (2) replay and learn; RANDOM only samples."""
    config = SlateQConfig.view(config)
    if config.slateq_strategy != "RANDOM":
        return replay_plan(workers, config, local_replay_buffer)
    return StandardMetricsReporting(ParallelRollouts(workers, mode="bulk_sync"), workers, config)


DEFAULT_CONFIG: dict[str, Any] = SlateQConfig.defaults()

SlateQTrainer = build_trainer(
    name="SlateQ",
    config_class=SlateQConfig,
    policies={
        "torch": "rlframe.agents.slateq.slateq_policy:SlateQTorchPolicy",
        "tf": "rlframe.agents.slateq.slateq_policy:SlateQTFPolicy",
    },
    execution_plan=execution_plan,
)
