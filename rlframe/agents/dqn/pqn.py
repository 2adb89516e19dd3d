"""PQN: Q-learning on what many environments just did, without replay and target network; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlframe.agents.families.optimization import (
    AdamEpsilonConfig,
    GradientClippingConfig,
    LearningRateScheduleConfig,
    MinibatchConfig,
)
from rlframe.config.options import option
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.multi_gpu_train_ops import MultiGPUTrainOneStep
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts, SelectExperiences
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class PQNConfig(LearningRateScheduleConfig, GradientClippingConfig, AdamEpsilonConfig, MinibatchConfig):
    """Keys of PQN (Gallici et al. 2024)."""

    new_defaults = {  # noqa: RUF012
        "num_workers": 0,
        "num_envs_per_worker": 32,
        "rollout_fragment_length": 32,
        "train_batch_size": 1024,
        "sgd_minibatch_size": 128,
        "num_sgd_iter": 4,
        "lr": 5e-4,
        "grad_clip": 10.0,
        "model": {"fcnet_hiddens": [128, 128], "fcnet_activation": "relu"},
        "exploration_config": {
            "type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.05, "epsilon_timesteps": 25_000
        },
        "evaluation_config": {"explore": False},
    }  # fmt: skip

    lambda_: float = option(
        0.65, "λ: decay of the targets' trace; 0 bootstraps behind one step, 1 at the end of the fragment.", low=0,
        high=1, key="lambda", source="Gallici et al. 2024, section 4",
    )  # fmt: skip
    layer_norm: bool = option(
        True, "Hidden layers are normalised, which keeps values bounded in place of a target network.",
        source="Gallici et al. 2024, section 3",
    )  # fmt: skip

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        for key in ("use_lstm", "use_attention"):
            if getattr(self.model, key):
                yield f"model.{key}=True: PQN's network has no memory; use PPO, APPO or IMPALA, or leave it out"
        if self.exploration_config.get("type") == "ParameterNoise":
            yield "exploration_config.type='ParameterNoise' is for DQN and DDPG, which replay; use 'EpsilonGreedy'"

    def remarks(self) -> Iterator[str]:
        """Yields remarks on a config that is allowed and hardly meant."""
        yield from super().remarks()
        if not self.layer_norm and not self.model.custom_model:
            yield "layer_norm=False: without a target network values hardly stay bounded"


def execution_plan(workers: WorkerSet, config: PQNConfig) -> LocalIterator[Any]:
    """Collects a train batch, and learns from it in minibatches."""
    config = PQNConfig.view(config)
    train = (
        ParallelRollouts(workers, mode="bulk_sync")
        .for_each(SelectExperiences(workers.trainable_policies))
        .combine(ConcatBatches(config.train_batch_size, config.multiagent.count_steps_by))
        .for_each(
            MultiGPUTrainOneStep(
                workers=workers,
                sgd_minibatch_size=config.sgd_minibatch_size,
                num_sgd_iter=config.num_sgd_iter,
                shuffle_sequences=config.shuffle_sequences,
            )
        )
    )
    return StandardMetricsReporting(train, workers, config)


DEFAULT_CONFIG: dict[str, Any] = PQNConfig.defaults()

PQNTrainer = build_trainer(
    name="PQN",
    config_class=PQNConfig,
    policies={
        "torch": "rlframe.agents.dqn.pqn_policy:PQNTorchPolicy",
        "tf": "rlframe.agents.dqn.pqn_policy:PQNTFPolicy",
    },
    execution_plan=execution_plan,
)
