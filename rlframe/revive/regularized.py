"""PPO, SAC and TD3 that stay near the behaviour in the data: their losses, and one term more.

The term is `w_kl` · KL(π‖b), b the behaviour that was cloned. Where π is no Gaussian, it is the divergence of Gaussians
around both actions with the clone's own variance, ½ Σ (π(s) − b(s))² / σ².
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.ddpg.ddpg_policy import DDPGPolicy
from rlframe.agents.ddpg.td3 import TD3Config, TD3Trainer
from rlframe.agents.families.replayed_sequences import encoded
from rlframe.agents.ppo.ppo import PPOConfig, PPOTrainer
from rlframe.agents.ppo.ppo_policy import PPOPolicy
from rlframe.agents.sac.sac import SACConfig, SACTrainer
from rlframe.agents.sac.sac_policy import NOISE, SACPolicy
from rlframe.config.options import Section, option
from rlframe.data.columns import OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.actor_critic import squashed_gaussian
from rlframe.losses.masking import valid_mean
from rlframe.models.actor import ChainActor
from rlframe.policy.backends import with_backend
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import FusedGradients, LossOutput
from rlframe.revive.policy_model import PolicyNetwork
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

#: What the behaviour does: distribution inputs of a Gaussian `[B, 2A]`, or actions `[B, A]`.
BEHAVIOUR = "behaviour"


class NearBehaviourConfig(Section):
    """How near a policy stays to the behaviour."""

    w_kl: float = option(0.0, "Weight of KL(π‖behaviour).", low=0)


class NearPPOConfig(PPOConfig, NearBehaviourConfig):
    """PPO's keys, and the weight."""


class NearSACConfig(SACConfig, NearBehaviourConfig):
    """SAC's keys, and the weight."""


class NearTD3Config(TD3Config, NearBehaviourConfig):
    """TD3's keys, and the weight."""


def gaussian_distance(means: Tensor, others: Tensor, variance: float) -> Tensor:
    """Returns ½ Σ (μ − ν)² / σ², the divergence of Gaussians of one variance, float `[B]`.

    Args:
        means: μ. Float `[B, A]`.
        others: ν. Float `[B, A]`.
        variance: σ², above 0.
    """
    return ops.sum(ops.square(means - others), axis=-1) * (0.5 / variance)


class NearBehaviour(LearningPolicy):
    """A policy that is told what the behaviour would have done; mixed into those of algorithms."""

    behaviour: PolicyNetwork
    variance: float

    def set_behaviour(self, network: PolicyNetwork, error: float) -> None:
        """Takes the cloned behaviour, and the mean squared error of its actions."""
        self.behaviour, self.variance = network, max(error, 0.01)

    def complete_batch(self, batch: SampleBatch) -> SampleBatch:
        """Adds what the behaviour does at the batch's observations."""
        batch = super().complete_batch(batch).copy(shallow=True)
        batch[BEHAVIOUR] = self._told(np.asarray(batch[OBS], np.float32))
        return batch

    def _told(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.behaviour.means(obs)

    def distance(self, actions: Tensor, batch: SampleBatch) -> Tensor:
        """Returns the divergence of Gaussians around both actions, float `[B]`."""
        return gaussian_distance(actions, batch[BEHAVIOUR], self.variance)

    def nearer(self, output: LossOutput, distance: Tensor) -> LossOutput:
        """Returns the output of a loss with the term in it, and in its report."""
        term = self.config["w_kl"] * distance
        losses: Any = output.losses
        stats = {**output.stats, "behaviour_kl": ops.stop_gradient(distance)}
        if isinstance(losses, dict):
            losses = {**losses, "actor": losses["actor"] + term}
        else:
            losses = stats["total_loss"] = losses + term
        return dataclasses.replace(output, losses=losses, stats=stats)


class NearPPOPolicy(NearBehaviour, PPOPolicy):
    """PPO's, near the behaviour."""

    learn_columns: tuple[str, ...] = (*PPOPolicy.learn_columns, BEHAVIOUR)  # type: ignore[assignment]
    fused_gradients = FusedGradients({"torch": "rlframe.revive.near_ppo_torch:NearPPOGradients"})

    def _told(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        return ChainActor(self.behaviour.spec, self.behaviour.weights).forward(obs)

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns PPO's loss with the term; see `ppo_loss`."""
        output = super().loss(model, dist_class, train_batch)
        own = dist_class(model(train_batch)[0], model)
        divergence = own.kl(dist_class(train_batch[BEHAVIOUR], model))
        return self.nearer(output, valid_mean(train_batch)(divergence))


class NearSACPolicy(NearBehaviour, SACPolicy):
    """SAC's, near the behaviour."""

    learn_columns: tuple[str, ...] = (*SACPolicy.learn_columns, BEHAVIOUR)  # type: ignore[assignment]
    config: NearSACConfig

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns SAC's losses with the term in the actor's; see `actor_critic_loss`."""
        output = super().loss(model, dist_class, train_batch)
        own, _ = squashed_gaussian(model.actor(encoded(self, model, train_batch)), train_batch[NOISE])
        return self.nearer(output, ops.mean(self.distance(own, train_batch)))


class NearTD3Policy(NearBehaviour, DDPGPolicy):
    """TD3's, near the behaviour."""

    learn_columns = (*(DDPGPolicy.learn_columns or ()), BEHAVIOUR)
    config: NearTD3Config

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns TD3's losses with the term in the actor's, where it is due; see `ddpg_actor_critic_loss`."""
        output = super().loss(model, dist_class, train_batch)
        if not self.due("actor"):
            return output
        own = model.actor(encoded(self, model, train_batch))
        return self.nearer(output, ops.mean(self.distance(own, train_batch)))


def __getattr__(name: str) -> Any:
    policies = {
        "NearPPOTorchPolicy": NearPPOPolicy,
        "NearSACTorchPolicy": NearSACPolicy,
        "NearTD3TorchPolicy": NearTD3Policy,
    }
    if name not in policies:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = with_backend(policies[name], "torch", name)
    return globals()[name]


def _near(trainer: Any, name: str, config_class: type[Section]) -> Any:
    """Returns a trainer class whose policy stays near the behaviour; learned environments are in PyTorch alone."""
    return trainer.with_updates(
        name=name, config_class=config_class, policies={"torch": f"{__name__}:{name}TorchPolicy"}
    )


#: Trainers that stay near the behaviour, by the algorithm's name in a configuration.
NEAR = {
    "ppo": _near(PPOTrainer, "NearPPO", NearPPOConfig),
    "sac": _near(SACTrainer, "NearSAC", NearSACConfig),
    "td3": _near(TD3Trainer, "NearTD3", NearTD3Config),
}
#: The same without the term.
PLAIN = {"ppo": PPOTrainer, "sac": SACTrainer, "td3": TD3Trainer}
