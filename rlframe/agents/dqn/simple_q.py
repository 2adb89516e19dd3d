"""SimpleQ: the deep Q-network of Mnih et al. 2015 without extensions; config, plan, trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.agents.families.off_policy import SequenceReplayConfig, replay_plan
from rlframe.agents.families.optimization import AdamEpsilonConfig, GradientClippingConfig, LearningRateScheduleConfig
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.execution.iterators import LocalIterator
    from rlframe.replay.per_policy import LocalReplayBuffer


class SimpleQConfig(SequenceReplayConfig, LearningRateScheduleConfig, GradientClippingConfig, AdamEpsilonConfig):
    """Keys of SimpleQ: replay, a target network, ε-greedy exploration."""

    new_defaults = {  # noqa: RUF012
        "num_workers": 0,
        "rollout_fragment_length": 4,
        "train_batch_size": 32,
        "timesteps_per_iteration": 1000,
        "lr": 5e-4,
        "grad_clip": 40.0,
        "exploration_config": {
            "type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.02, "epsilon_timesteps": 10_000
        },
        "evaluation_config": {"explore": False},
    }  # fmt: skip


def execution_plan(
    workers: WorkerSet, config: SimpleQConfig, *, local_replay_buffer: LocalReplayBuffer
) -> LocalIterator[Any]:
    """Alternates (1) sample and store with (2) replay, learn, copy the target."""
    return replay_plan(workers, config, local_replay_buffer)


DEFAULT_CONFIG: dict[str, Any] = SimpleQConfig.defaults()

SimpleQTrainer = build_trainer(
    name="SimpleQ",
    config_class=SimpleQConfig,
    policies={
        "torch": "rlframe.agents.dqn.simple_q_policy:SimpleQTorchPolicy",
        "tf": "rlframe.agents.dqn.simple_q_policy:SimpleQTFPolicy",
    },
    execution_plan=execution_plan,
)
