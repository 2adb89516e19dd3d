"""QMIX: a team learns one value that is monotonic in each member's, from whole episodes; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.buffer_in_plans import names_buffer
from rlframe.agents.families.off_policy import DoubleQConfig, replay_plan
from rlframe.agents.families.optimization import GradientClippingConfig, LearningRateScheduleConfig
from rlframe.config.options import option
from rlframe.execution.iterators import LocalIterator
from rlframe.replay.episode import EpisodeReplayBuffer
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class QMixConfig(DoubleQConfig, LearningRateScheduleConfig, GradientClippingConfig):
    """Keys of QMIX (Rashid et al. 2018) and of VDN (Sunehag et al. 2018)."""

    gives_buffer: ClassVar[Any] = staticmethod(names_buffer)

    replays_episodes: ClassVar[bool] = True
    new_defaults = {  # noqa: RUF012
        "num_workers": 0,
        "rollout_fragment_length": 4,
        "batch_mode": "complete_episodes",
        "timesteps_per_iteration": 1000,
        "lr": 5e-4,
        "grad_clip": 10.0,
        "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 1000},
        "exploration_config": {
            "type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.02, "epsilon_timesteps": 10_000
        },
        "evaluation_config": {"explore": False},
        "model": {"lstm_cell_size": 64, "max_seq_len": 999_999},
    }  # fmt: skip

    # The value of all agents
    mixer: str | None = option(
        "qmix",
        "How the agents' values make one of the team: a network, their sum (VDN), or not at all: each agent learns for "
        "itself, from its own rewards.",
        choices=("qmix", "vdn"),
        source="Rashid et al. 2018, section 4; Sunehag et al. 2018, section 3",
    )
    mixing_embed_dim: int = option(32, "Width of the mixing network.", unit="units", low=1)

    # Replay
    train_batch_size: int = option(
        32, "Steps of one update at least: whole episodes are drawn until there are as many.", unit="env steps", low=1
    )

    # The optimiser
    optim_alpha: float = option(0.99, "RMSProp's decay of squared gradients.", low=0, high=1)
    optim_eps: float = option(1e-5, "RMSProp's ε.", above=0)

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.multiagent.replay_mode == "lockstep":
            yield "multiagent.replay_mode='lockstep': a group is one agent here, whose steps are together; leave it out"

    def remarks(self) -> Iterator[str]:
        """Yields remarks, one on each key of another network: programs hand whole copies of MODEL_DEFAULTS over."""
        yield from super().remarks()
        model, defaults = self.model, self.defaults()["model"]
        if model.custom_model or model.use_lstm or model.use_attention:
            return
        for key in ("fcnet_hiddens", "fcnet_activation", "conv_filters", "post_fcnet_hiddens"):
            value = getattr(model, key)
            if value != defaults[key]:
                yield f"model.{key}={value!r} has no effect on QMIX's recurrent network; set model.lstm_cell_size"


def execution_plan(
    workers: WorkerSet, config: QMixConfig, *, local_replay_buffer: EpisodeReplayBuffer
) -> LocalIterator[Any]:
    """Alternates (1) sample and store episodes with (2) replay some, learn, copy the target."""
    return replay_plan(workers, config, local_replay_buffer)


DEFAULT_CONFIG: dict[str, Any] = QMixConfig.defaults()

QMixTrainer = build_trainer(
    name="QMIX",
    config_class=QMixConfig,
    policies={
        "torch": "rlframe.agents.qmix.qmix_policy:QMixTorchPolicy",
        "tf": "rlframe.agents.qmix.qmix_policy:QMixTFPolicy",
    },
    execution_plan=execution_plan,
)
