"""TD3+BC: TD3 that learns from data alone, close to what is in them; with ReBRAC's options. Config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.ddpg.ddpg import DDPGTrainer
from rlframe.agents.ddpg.td3 import TD3Config
from rlframe.agents.families.offline import OfflineConfig, load_data, offline_plan, with_next_actions
from rlframe.config.options import option
from rlframe.execution.iterators import LocalIterator
from rlframe.replay.per_policy import LocalReplayBuffer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class TD3BCConfig(OfflineConfig, TD3Config):
    """Keys of TD3+BC (Fujimoto & Gu 2021) and of ReBRAC (Tarasov et al. 2023)."""

    unsupported: ClassVar[Any] = {**TD3Config.unsupported, **OfflineConfig.unsupported}
    new_defaults: ClassVar[Any] = {
        "actor_hiddens": [256, 256],
        "critic_hiddens": [256, 256],
        "actor_lr": 3e-4,
        "critic_lr": 3e-4,
        "train_batch_size": 256,
    }

    value_weight: float = option(
        2.5, "α: weight of the value of the actor's actions, in units of its mean size.", low=0,
        source="Fujimoto & Gu 2021, eq. 5",
    )  # fmt: skip
    actor_bc_weight: float = option(
        1.0, "β₁: weight of the actor's squared distance from the data's actions.", low=0,
        source="Tarasov et al. 2023, eq. 4",
    )  # fmt: skip
    critic_bc_weight: float = option(
        0.0, "β₂: weight of the next actions' squared distance from the data's, in targets.", low=0,
        unit="reward units", source="Tarasov et al. 2023, eq. 5",
    )  # fmt: skip
    critic_layer_norm: bool = option(
        False, "The critics' hidden layers are normalised, row by row.", source="Tarasov et al. 2023, section 3"
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.critic_bc_weight and self.n_step > 1:
            yield (
                f"critic_bc_weight={self.critic_bc_weight:g} compares the next step's actions; set n_step=1, or leave "
                "it 0"
            )


def load_rows(trainer: Any) -> None:
    """Reads all rows of a trainer's `input` into its replay buffer, with the actions that follow where they count."""
    load_data(trainer, with_next_actions if trainer.config["critic_bc_weight"] else None)


def execution_plan(
    workers: WorkerSet, config: TD3BCConfig, *, local_replay_buffer: LocalReplayBuffer
) -> LocalIterator[Any]:
    """Replays, learns, re-prioritises, moves the targets; nothing is sampled."""
    return offline_plan(workers, config, local_replay_buffer)


TD3_BC_DEFAULT_CONFIG: dict[str, Any] = TD3BCConfig.defaults()

TD3BCTrainer = DDPGTrainer.with_updates(
    name="TD3BC",
    config_class=TD3BCConfig,
    policies={
        "torch": "rlframe.agents.ddpg.td3_bc_policy:TD3BCTorchPolicy",
        "tf": "rlframe.agents.ddpg.td3_bc_policy:TD3BCTFPolicy",
    },
    execution_plan=execution_plan,
    after_init=load_rows,
)
