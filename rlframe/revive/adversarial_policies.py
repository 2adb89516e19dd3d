"""Generators and discriminators of nodes, whose contest makes rollouts of an environment like what was logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from rlframe.agents.ppo.ppo_policy import PPOPolicy, ppo_loss
from rlframe.data.columns import ADVANTAGES, OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.actor_critic import half_squares
from rlframe.models.actor import ChainActor
from rlframe.models.spec import Dense, Network, Part, dense_layers
from rlframe.policy.acting_parts import make_networks
from rlframe.policy.backends import with_backend
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import AdamSpec, LossOutput
from rlframe.revive.node_policy import NodePolicy, supervised_loss
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

__all__ = ["LOGGED", "DiscriminatorPolicy", "GeneratorPolicy"]

#: Whether a row was logged (1) or generated (0), float `[B]`.
LOGGED = "logged"


class _ActorCritic:
    """Actor and critic as the one model that PPO's loss asks: values are those of the rows that it was called with."""

    def __init__(self, model: Any) -> None:
        self._model, self._obs = model, None

    def __call__(self, train_batch: SampleBatch) -> tuple[Tensor, list[Any]]:
        """Returns distribution inputs, and no states."""
        self._obs = train_batch[OBS]
        return self._model.actor(self._obs), []

    def value_function(self) -> Tensor:
        """Returns values, `[B]`."""
        return self._model.critic(self._obs)[:, 0]


class GeneratorPolicy(NodePolicy, PPOPolicy):
    """A node that learns by PPO what its discriminator takes for logged, and supervised from logged values.

    Which of both is learned the batch says: rows with advantages are of rollouts, and the loss is `ppo_loss`; others
    were logged, and it is that of `NodePolicy`.
    """

    defaults_from = "rlframe.revive.adversarial:DEFAULT_CONFIG"
    learn_columns = None  # type: ignore[assignment]  # two kinds of batches
    wants_values = False
    reported: Mapping[str, str] = {}  # what the loss of the batch told is all
    kept_names: Mapping[str, tuple[str, ...]] = {}

    def prepare(self) -> None:
        """Reads the layout, and makes what PPO's loss asks of a policy."""
        PPOPolicy.prepare(self)
        NodePolicy.prepare(self)

    def networks(self) -> Mapping[str, Part]:
        """Returns the node's network, and one of the values of what it sees."""
        config, width = self.config, gym.spaces.flatdim(self.observation_space)
        hidden = dense_layers([config.hidden_features] * config.hidden_layers, "tanh")
        return {**super().networks(), "critic": Network({OBS: width}, (*hidden, Dense("output", "linear", 1)))}

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam for the node with `lr`, and for its values with `d_lr`, as they follow the discriminator."""
        config = self.config
        return {
            "actor": AdamSpec(("actor",), config.lr, grad_clip=config.grad_clip),
            "critic": AdamSpec(("critic",), config.d_lr, grad_clip=config.grad_clip, follows_schedule=False),
        }

    def model_options(self) -> dict[str, Any]:
        """Returns the `model` section of the config."""
        options: dict[str, Any] = self.config["model"]
        return options

    def values_of(self, obs: Any) -> Any:
        """Returns the critic's values, float32 `[B]`, of what the node sees, `[B, D]`."""
        layers = self.model.parts["critic"].prefixed("critic")
        weights: Any = self.live_weights()
        return ChainActor({"outputs": layers, "values": None}, weights).forward(obs)[:, 0]

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see the class."""
        if ADVANTAGES not in train_batch:
            output = supervised_loss(self, model, dist_class, train_batch)
            return LossOutput({"actor": output.losses}, output.stats)
        output = ppo_loss(self, _ActorCritic(model), dist_class, train_batch)
        return LossOutput({"actor": output.losses, "critic": output.losses}, output.stats)


class NoDistribution:
    """Stands where a policy has a distribution of actions; a discriminator does not act.

    Args:
        inputs: Logits.
        model: The model that made them.
    """

    def __init__(self, inputs: Tensor, model: Any = None) -> None:
        self.inputs, self.model = inputs, model


class DiscriminatorPolicy(LearningPolicy):
    """Tells a node's logged values from generated ones, by them and what they were made of.

        −mean over logged rows of log D(x) − mean over generated rows of log(1 − D(x)) + weight_decay · ½ w²

    D is the sigmoid of the network's output. Where it cannot tell, the loss is 2 log 2, about 1.386.

    Source: Ho and Ermon 2016, "Generative Adversarial Imitation Learning", eq. 15.
    """

    config: Any
    defaults_from = "rlframe.revive.adversarial:DEFAULT_CONFIG"
    learn_columns: tuple[str, ...] = (OBS, LOGGED)

    def networks(self) -> Mapping[str, Part]:
        """Returns the network."""
        config, width = self.config, gym.spaces.flatdim(self.observation_space)
        hidden = dense_layers([config.matcher_hidden_features] * config.matcher_hidden_layers, "tanh")
        return {"actor": Network({OBS: width}, (*hidden, Dense("output", "linear", 1)))}

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam with `d_lr`."""
        return {"actor": AdamSpec(("actor",), self.config.d_lr, grad_clip=self.config.grad_clip)}

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the network, and no distribution."""
        return make_networks(self, self.networks(), 1), NoDistribution

    def _numpy_distribution(self) -> Any:
        return NoDistribution

    def logits(self, obs: Any) -> Any:
        """Returns how much rows `[B, D]` look like logged ones: log D − log(1 − D), float32 `[B]`."""
        layers, weights = self.model.parts["actor"].prefixed("actor"), self.live_weights()
        return ChainActor({"outputs": layers, "values": None}, weights or {}).forward(obs)[:, 0]

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see the class."""
        del dist_class
        logits, logged = model.actor(train_batch[OBS])[:, 0], train_batch[LOGGED]
        told = _share(ops.softplus(-logits), logged) + _share(ops.softplus(logits), 1.0 - logged)
        total = told + self.config.weight_decay * half_squares(model.actor.kernels())
        return LossOutput(total, {"loss": told})


def _share(values: Tensor, weights: Tensor) -> Tensor:
    """Returns the mean over the rows with the weight 1; 0 where there are none."""
    return ops.sum(values * weights) / ops.maximum(ops.sum(weights), 1.0)


def __getattr__(name: str) -> Any:
    policies = {"GeneratorTorchPolicy": GeneratorPolicy, "DiscriminatorTorchPolicy": DiscriminatorPolicy}
    if name not in policies:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = with_backend(policies[name], "torch", name)
    return globals()[name]
