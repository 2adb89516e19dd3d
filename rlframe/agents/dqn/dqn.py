"""DQN: double, dueling, n-step, prioritised, distributional, noisy; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlframe.agents.dqn.simple_q import SimpleQConfig
from rlframe.agents.families.off_policy import (
    DoubleQConfig,
    NStepConfig,
    PrioritizedReplayConfig,
    TrainingIntensityConfig,
    replay_plan,
)
from rlframe.config.options import option
from rlframe.execution.train_ops import BeforeLearn
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.execution.iterators import LocalIterator
    from rlframe.replay.per_policy import LocalReplayBuffer


class DQNConfig(SimpleQConfig, DoubleQConfig, PrioritizedReplayConfig, NStepConfig, TrainingIntensityConfig):
    """Keys of DQN; with all its options on it is Rainbow (Hessel et al. 2018)."""

    num_atoms: int = option(
        1, "Atoms of the value distribution; 1 learns expected values.", low=1, source="Bellemare et al. 2017"
    )
    v_min: float = option(-10.0, "Smallest return the atoms cover.", unit="discounted return")
    v_max: float = option(10.0, "Largest return the atoms cover.", unit="discounted return")
    noisy: bool = option(False, "Heads explore by learned noise on their weights.", source="Fortunato et al. 2018")
    sigma0: float = option(0.5, "Initial size of that noise.", low=0, source="Fortunato et al. 2018, section 3.2")
    dueling: bool = option(True, "Separate state value and advantages.", source="Wang et al. 2016, eq. 9")
    hiddens: Sequence[int] = option([256], "Hidden layers of each head; [] puts heads on the trunk itself.", low=1)
    before_learn_on_batch: Callable[..., Any] | None = option(
        None, "(batch, workers, config) -> batch, called on every replayed batch."
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.v_min >= self.v_max:
            yield f"v_min={self.v_min} must be smaller than v_max={self.v_max}"
        if self.exploration_config.get("type") == "ParameterNoise" and self.noisy:
            yield "exploration_config.type='ParameterNoise' and noisy=True both put noise on the weights; choose one"


def execution_plan(
    workers: WorkerSet, config: DQNConfig, *, local_replay_buffer: LocalReplayBuffer
) -> LocalIterator[Any]:
    """Alternates (1) sample and store with (2) replay, learn, re-prioritise, copy the target."""
    return replay_plan(workers, config, local_replay_buffer, before_learning=[BeforeLearn(workers, config)])


DEFAULT_CONFIG: dict[str, Any] = DQNConfig.defaults()

DQNTrainer = build_trainer(
    name="DQN",
    config_class=DQNConfig,
    policies={
        "torch": "rlframe.agents.dqn.dqn_policy:DQNTorchPolicy",
        "tf": "rlframe.agents.dqn.dqn_policy:DQNTFPolicy",
    },
    execution_plan=execution_plan,
)

#: RLlib's name for the base of other off-policy algorithms.
GenericOffPolicyTrainer = DQNTrainer
