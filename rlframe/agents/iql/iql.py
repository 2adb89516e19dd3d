"""IQL: values near the best of what the data show, and a policy that imitates what beats them; from data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.off_policy import (
    NetworkSectionsConfig,
    NStepConfig,
    SoftTargetConfig,
    TwinCriticConfig,
    TwoRatesConfig,
)
from rlframe.agents.families.offline import OfflineConfig, load_data, offline_plan
from rlframe.agents.families.optimization import GradientClippingConfig
from rlframe.config.options import option
from rlframe.execution.iterators import LocalIterator
from rlframe.replay.per_policy import LocalReplayBuffer
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class IQLConfig(
    OfflineConfig, NetworkSectionsConfig, TwoRatesConfig, TwinCriticConfig, NStepConfig, SoftTargetConfig,
    GradientClippingConfig,
):  # fmt: skip
    """Keys of IQL (Kostrikov et al. 2022)."""

    new_defaults: ClassVar[Any] = {
        "num_workers": 0,
        "train_batch_size": 256,
        "target_network_update_freq": 0,
        "actor_lr": 3e-4,
        "critic_lr": 3e-4,
        "initial_weights": "fan_in",
        "replay_buffer_config": {"capacity": 1_000_000},
        "evaluation_config": {"explore": False},
    }

    expectile: float = option(
        0.7, "τ: values lie where what is above counts τ, and what is below 1 − τ.", low=0, high=1,
        source="Kostrikov et al. 2022, eq. 5",
    )  # fmt: skip
    beta: float = option(
        3.0, "How much more actions with larger advantages are imitated; 0 clones all alike.", low=0,
        unit="1 / discounted reward units", source="Kostrikov et al. 2022, eq. 7",
    )  # fmt: skip
    largest_weight: float = option(100.0, "Largest weight of a row in the imitation.", above=0)


def execution_plan(
    workers: WorkerSet, config: IQLConfig, *, local_replay_buffer: LocalReplayBuffer
) -> LocalIterator[Any]:
    """Replays, learns, moves the targets; nothing is sampled."""
    return offline_plan(workers, config, local_replay_buffer)


DEFAULT_CONFIG: dict[str, Any] = IQLConfig.defaults()

IQLTrainer = build_trainer(
    name="IQL",
    config_class=IQLConfig,
    policies={
        "torch": "rlframe.agents.iql.iql_policy:IQLTorchPolicy",
        "tf": "rlframe.agents.iql.iql_policy:IQLTFPolicy",
    },
    execution_plan=execution_plan,
    after_init=load_data,
)
