"""DDPG: an actor that climbs its critic's slope, for continuous actions; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlframe.agents.families.off_policy import DeterministicActorConfig, ReplayedActorCriticConfig, replay_plan
from rlframe.config.options import option
from rlframe.execution.iterators import LocalIterator
from rlframe.replay.per_policy import LocalReplayBuffer
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class DDPGConfig(DeterministicActorConfig, ReplayedActorCriticConfig):
    """Keys of DDPG (Lillicrap et al. 2016) and of TD3 (Fujimoto et al. 2018)."""

    new_defaults = {  # noqa: RUF012
        "timesteps_per_iteration": 1000,
        "tau": 0.002,
        "twin_q": False,
        "exploration_config": {
            "type": "OrnsteinUhlenbeckNoise", "random_timesteps": 1000, "ou_base_scale": 0.1, "ou_theta": 0.15,
            "ou_sigma": 0.2, "initial_scale": 1.0, "final_scale": 0.02, "scale_timesteps": 10_000,
        },
        "evaluation_config": {"explore": False},
    }  # fmt: skip

    policy_delay: int = option(
        1, "Updates of the critics for one of the actor.", low=1, source="Fujimoto et al. 2018, section 5.2"
    )
    smooth_target_policy: bool = option(
        False, "Target actions have clipped noise.", source="Fujimoto et al. 2018, section 5.3"
    )
    target_noise: float = option(
        0.2, "Standard deviation of that noise, of actions in [-1, 1].", low=0, source="Fujimoto et al. 2018, eq. 14"
    )
    target_noise_clip: float = option(0.5, "Largest size of that noise.", low=0, source="Fujimoto et al. 2018, eq. 14")
    initial_weights: str = option(
        "xavier", "How weights begin: 'xavier' as RLlib's (Glorot & Bengio 2010), biases 0; 'fan_in' as PyTorch's own.",
        choices=("xavier", "fan_in"),
    )  # fmt: skip
    use_state_preprocessor: bool = option(
        False, "Observations pass through the network of `model` first, which learns with the critics."
    )
    l2_reg: float | None = option(
        1e-6, "Weight of ½‖w‖² over all weights but biases, in the losses of actor and critic; None is 0.", low=0,
        log=True,
    )  # fmt: skip

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.smooth_target_policy and self.target_noise_clip == 0:
            yield "target_noise_clip=0 cuts the noise of smooth_target_policy=True off; set smooth_target_policy=False"


def execution_plan(
    workers: WorkerSet, config: DDPGConfig, *, local_replay_buffer: LocalReplayBuffer
) -> LocalIterator[Any]:
    """Alternates (1) sample and store with (2) replay, learn, re-prioritise, move the targets."""
    return replay_plan(workers, config, local_replay_buffer)


DEFAULT_CONFIG: dict[str, Any] = DDPGConfig.defaults()

DDPGTrainer = build_trainer(
    name="DDPG",
    config_class=DDPGConfig,
    policies={
        "torch": "rlframe.agents.ddpg.ddpg_policy:DDPGTorchPolicy",
        "tf": "rlframe.agents.ddpg.ddpg_policy:DDPGTFPolicy",
    },
    execution_plan=execution_plan,
)
