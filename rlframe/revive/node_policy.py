"""The policy of a node: from the nodes that it is made of to its own value, in the learned space."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import ACTIONS, OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.actor_critic import half_squares
from rlframe.models.spec import Dense, Initial, Layer, Network, Part, Sum, dense_layers
from rlframe.policy.acting_parts import make_networks
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import AdamSpec, LossOutput
from rlframe.revive.distributions import (
    NodeDistribution,
    NodeLayout,
    divergence,
    entropy,
    linear_start,
    log_prob,
    mode,
)
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

__all__ = ["NODE_MASK", "NodePolicy", "TensorNodeDistribution", "hidden_layers", "node_network"]

#: Which numbers of a value count, float `[B, width]`.
NODE_MASK = "node_mask"


def hidden_layers(width: int, count: int, backbone: str) -> tuple[Layer, ...]:
    """Returns the hidden layers of a network.

    Args:
        width: Of each.
        count: How many.
        backbone: "mlp", one behind the other; "res", each but the first added to what it gets.
    """
    layers = dense_layers([width] * count, "swish")
    if backbone == "mlp":
        return layers
    return (layers[0], *(Sum(f"block_{place}", (), (layer,)) for place, layer in enumerate(layers[1:], 1)))


def node_network(inputs: int, outputs: int, hidden: tuple[Layer, ...]) -> Network:
    """Returns a linear map beside a network that begins as zero: what is nearly linear is learned at once.

    Args:
        inputs: Width of what it sees.
        outputs: Width of what it gives.
        hidden: The network's hidden layers.
    """
    zero = Initial("uniform", 0.0)
    linear = Dense("linear", "linear", outputs, zero)
    return Network({OBS: inputs}, (Sum("skip", (linear,), (*hidden, Dense("output", "linear", outputs, zero))),))


class TensorNodeDistribution:
    """What `NodeDistribution` is, of tensors; it does not draw.

    Args:
        inputs: Tensor `[B, layout.inputs]`.
        model: The model that made them.
        layout: Of the node.
    """

    def __init__(self, inputs: Tensor, model: Any = None, *, layout: NodeLayout) -> None:
        self.inputs, self.model, self.layout = inputs, model, layout

    def logp(self, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns log-densities, `[B]`, of values `[B, width]`, of the numbers that count."""
        return log_prob(self.layout, self.inputs, values, ops, mask)

    def entropy(self) -> Tensor:
        """Returns entropies, `[B]`."""
        return entropy(self.layout, self.inputs, ops)

    def kl(self, other: TensorNodeDistribution) -> Tensor:
        """Returns divergences from this one to another one of the node, `[B]`."""
        return divergence(self.layout, self.inputs, other.inputs, ops)

    def mode(self) -> Tensor:
        """Returns means, and shares of categories, `[B, width]`."""
        return mode(self.layout, self.inputs, ops)


class NodePolicy(LearningPolicy):
    """A node of a decision graph as a policy.

    Supervised learning minimises −log p(value | inputs), or the distance of the mode, over what was logged, and ½ w²
    of weight matrices by `weight_decay`.
    """

    config: Any
    layout: NodeLayout
    defaults_from = "rlframe.revive.supervised:DEFAULT_CONFIG"
    learn_columns: tuple[str, ...] = (OBS, ACTIONS, NODE_MASK)

    def prepare(self) -> None:
        """Reads the layout."""
        self.layout = NodeLayout.from_dict(self.config["layout"])

    def networks(self) -> Mapping[str, Part]:
        """Returns the network."""
        config = self.config
        hidden = hidden_layers(config.hidden_features, config.hidden_layers, config.backbone)
        return {"actor": node_network(gym.spaces.flatdim(self.observation_space), self.layout.inputs, hidden)}

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam with `lr`, clipped to `grad_clip`."""
        return {"actor": AdamSpec(("actor",), self.config.lr, grad_clip=self.config.grad_clip)}

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the network and the distribution of the node's columns."""
        model = make_networks(self, self.networks(), self.layout.inputs)
        return model, functools.partial(TensorNodeDistribution, layout=self.layout)

    def _numpy_distribution(self) -> Any:
        """Returns what makes the NumPy distribution."""
        return functools.partial(NodeDistribution, layout=self.layout)

    def start_linear(self, obs: NDArray[Any], values: NDArray[Any], mask: NDArray[Any], codes: int = 0) -> None:
        """Begins with the linear map that is nearest to logged values.

        Args:
            obs: What the node sees, float `[N, D]`.
            values: Its values, float `[N, width]`.
            mask: Which of them were logged, `[N, width]`.
            codes: How many of the last numbers that it sees are codes of step and trajectory, which the map leaves out:
                slow sines are powers of the step, by which it would follow noise, and leave all bounds behind the log.
        """
        weight, bias = linear_start(self.layout, obs[:, : obs.shape[1] - codes], values, mask)
        weight = np.pad(weight, ((0, 0), (0, codes)))
        self.set_weights({**self.get_weights(), "actor.linear.weight": weight, "actor.linear.bias": bias})

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see the class."""
        return supervised_loss(self, model, dist_class, train_batch)


def supervised_loss(policy: NodePolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the supervised loss of a batch of logged values; see `NodePolicy`."""
    config = policy.config
    distribution = dist_class(model.actor(train_batch[OBS]), model)
    values, mask = train_batch[ACTIONS], train_batch[NODE_MASK]
    error = mask * (distribution.mode() - values)
    if config.loss_type == "log_prob":
        fit = -ops.mean(distribution.logp(values, mask))
    else:
        fit = ops.mean(ops.abs(error) if config.loss_type == "mae" else ops.square(error))
    total = fit + config.weight_decay * half_squares(model.actor.kernels())
    return LossOutput(total, {"loss": total, "fit": fit, "mae": ops.mean(ops.abs(error))})


def node_spaces(width: int, layout: NodeLayout) -> tuple[gym.spaces.Box, gym.spaces.Box]:
    """Returns what a node's policy sees and what it gives, in the learned space.

    Args:
        width: Of what it sees.
        layout: Of its values.
    """
    return tuple(gym.spaces.Box(-np.inf, np.inf, (size,), np.float32) for size in (width, layout.width))  # type: ignore[return-value]


__getattr__ = lazy_policies(__name__, NodePolicy, NodeTorchPolicy="torch", NodeTFPolicy="tf")
