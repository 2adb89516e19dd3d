"""CQL: SAC that learns from data alone, with critics that distrust what is not in them; config, plan, trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.offline import OfflineConfig, load_data, offline_plan
from rlframe.agents.sac.sac import SACConfig, SACTrainer
from rlframe.config.options import option
from rlframe.execution.iterators import LocalIterator
from rlframe.replay.per_policy import LocalReplayBuffer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class CQLConfig(OfflineConfig, SACConfig):
    """Keys of CQL (Kumar et al. 2020)."""

    unsupported: ClassVar[Any] = {**SACConfig.unsupported, **OfflineConfig.unsupported}
    new_defaults: ClassVar[Any] = {"use_huber": False}

    bc_iters: int = option(20_000, "Updates in which the actor clones the data's behaviour at first.", low=0)
    temperature: float = option(
        1.0, "T: how much the highest values alone make up the penalty.", above=0, source="Kumar et al. 2020, eq. 4"
    )
    num_actions: int = option(10, "Actions of each kind that are compared with the data's.", low=1)
    mean_target_actions: bool = option(
        False, "Targets value the mean of the actor's next actions, as d3rlpy's, instead of one that is drawn."
    )
    lagrangian: bool = option(False, "The penalty's weight is adapted to lagrangian_thresh.")
    lagrangian_thresh: float = option(
        5.0, "What the penalty of a critic is kept near.", source="Kumar et al. 2020, eq. 30"
    )
    min_q_weight: float = option(5.0, "Weight of the penalty.", low=0)


def execution_plan(
    workers: WorkerSet, config: CQLConfig, *, local_replay_buffer: LocalReplayBuffer
) -> LocalIterator[Any]:
    """Replays, learns, re-prioritises, moves the targets; nothing is sampled."""
    return offline_plan(workers, config, local_replay_buffer)


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
