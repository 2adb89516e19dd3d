"""DQN's loss and its gradient for dense networks without autograd: the same numbers in less time.

Nothing here is needed to understand DQN: `DoubleQLoss` says what is computed, and a test holds both to the same
gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlframe.agents.dqn.dqn_torch_model import DQNTorchModel
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS
from rlframe.data.sample_batch import SampleBatch
from rlframe.fast.dense_torch import ArrayLayer, DenseChain, as_rows
from rlframe.models.actor_layers import ACTIVATIONS, ZERO, FloatArray
from rlframe.models.modelv2 import ModelV2
from rlframe.policy.parts import LossOutput
from rlframe.policy.torch.fused import FusedLoss

# 0-d arrays: a Python scalar is converted at every call, which costs as much as the operation.
_ONE, _MINUS_ONE, _HALF = (np.full((), number, np.float32) for number in (1.0, -1.0, 0.5))


class DenseQGradients(FusedLoss):
    """Fills the gradients of the mean of w · huber(δ) for a Q-network of dense layers.

    Where one thread computes on the CPU, in arrays that share their memory with the weights (`ArrayQGradients`).

    Args:
        policy: A policy whose gradients lie in one buffer.

    Raises:
        ValueError: If its networks are not made of dense layers alone.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)
        trunk = policy.model.trunk_spec()
        if trunk is None or "lstm" in trunk or policy.model.num_atoms > 1:
            raise ValueError("not a network of dense layers with expected values")
        self._trunk, self._advantage, self._state_value = _chains(policy.model, trunk)
        self._target = _chains(policy.target_model, trunk)
        self._double_q = policy.selects_online
        self._by_arrays: ArrayQGradients | None = None
        weights = policy._flat_parameters.param
        if weights.is_cpu and weights.dtype == torch.float32:
            online, target = (
                (ArrayChain(trunk.arrays()), ArrayChain(advantage.arrays()), ArrayChain(value.arrays()))
                for trunk, advantage, value in ((self._trunk, self._advantage, self._state_value), self._target)
            )
            self._by_arrays = ArrayQGradients(online, target, self._double_q)

    @classmethod
    def knows(cls, policy: Any) -> bool:
        """Returns whether the policy need not go by autograd.

        It must where the model adds to the loss, has noise, normalisation, or is no model with heads; and where the
        parameters do not share a buffer.
        """
        plain = isinstance(policy.model, DQNTorchModel) and type(policy.model).custom_loss is ModelV2.custom_loss
        if not plain or policy._flat_parameters is None:
            return False
        return not (policy.model.use_noisy or policy.model.add_layer_norm)

    def host_state(self) -> tuple[Any, ...]:
        """Returns nothing: batch and weights are all there is."""
        return ()

    @torch.no_grad()
    def __call__(self, batch: SampleBatch) -> Tensor:
        """Fills the gradients, has the policy keep TD errors and statistics, and returns the loss, a scalar."""
        if self._by_arrays is not None and torch.get_num_threads() == 1:
            return self._from_arrays(self._by_arrays, batch)
        policy, rows = self._policy, batch[OBS].shape[0]
        trunk = self._trunk.forward(as_rows(batch[OBS]))
        advantage = self._advantage.forward(trunk[-1])
        value = self._state_value.forward(trunk[-1])
        q_t = policy.model.combine(advantage[-1], value[-1] if self._state_value else None).q
        next_obs = as_rows(batch[NEXT_OBS])
        q_tp1 = self._q_values(self._target, next_obs)
        if self._double_q:
            online = self._q_values((self._trunk, self._advantage, self._state_value), next_obs)
            q_next = q_tp1.gather(1, online.argmax(1, keepdim=True)).squeeze(1)
        else:
            q_next = q_tp1.amax(1)
        index = batch[ACTIONS].long().unsqueeze(1)
        taken = q_t.gather(1, index).squeeze(1)
        td_error = taken - torch.addcmul(batch[REWARDS], batch[DISCOUNTS], q_next)
        # The slope of huber(δ) is δ within ±1, and the sign of δ beyond; the loss follows from the slope.
        slope = td_error.clamp(-1.0, 1.0)
        per_row = slope * (td_error - 0.5 * slope)
        weights = batch.get(WEIGHTS)
        if weights is not None:
            slope, per_row = weights * slope, weights * per_row
        low, high = taken.aminmax()
        self._backward(trunk, advantage, value, index, (slope / rows).unsqueeze(1))
        loss: Tensor = per_row.mean()
        stats = {"mean_q": taken.mean(), "min_q": low, "max_q": high}
        policy.keep_output(LossOutput(loss, stats, {"td_error": td_error}))
        return loss

    def _from_arrays(self, by_arrays: ArrayQGradients, batch: SampleBatch) -> Tensor:
        """Does the same in arrays."""
        weights = batch.get(WEIGHTS)
        loss, td_error, stats = by_arrays(
            _array(batch[OBS]),
            batch[ACTIONS].numpy(),
            batch[REWARDS].numpy(),
            _array(batch[NEXT_OBS]),
            batch[DISCOUNTS].numpy(),
            None if weights is None else weights.numpy(),
        )
        made = torch.tensor(loss)
        self._policy.keep_output(LossOutput(made, stats, {"td_error": torch.from_numpy(td_error)}))
        return made

    def _q_values(self, chains: tuple[DenseChain, DenseChain, DenseChain], obs: Tensor) -> Tensor:
        """Returns a network's Q-values [B, A] of `obs` [B, D]."""
        trunk, advantage, state_value = chains
        features = trunk(obs)
        q: Tensor = self._policy.model.combine(advantage(features), state_value(features) if state_value else None).q
        return q

    def _backward(
        self, trunk: list[Tensor], advantage: list[Tensor], value: list[Tensor], index: Tensor, slope: Tensor
    ) -> None:
        """Fills the gradients from ∂loss/∂Q(s, a) [B, 1] of the actions taken."""
        actions = self._policy.model.num_actions
        grad = torch.zeros(slope.shape[0], actions, dtype=slope.dtype, device=slope.device).scatter_(1, index, slope)
        by_features: Tensor | None
        if self._state_value:
            # Q = V + A − mean A: V takes the whole slope, and every advantage gives up its share of the mean.
            by_features = self._advantage.backward(advantage, grad - slope / actions, input_grad=True)
            by_value = self._state_value.backward(value, slope, input_grad=True)
            assert by_features is not None
            assert by_value is not None
            by_features = by_features + by_value
        elif self._advantage:
            by_features = self._advantage.backward(advantage, grad, input_grad=True)
        else:
            by_features = grad
        assert by_features is not None
        self._trunk.backward(trunk, by_features, input_grad=False)


def _chains(model: Any, trunk: Any) -> tuple[DenseChain, DenseChain, DenseChain]:
    """Returns trunk, advantages and state values of a Q-network as chains."""
    advantage, state_value = (
        DenseChain(model, [layer.to_spec() for layer in layers])
        for layers in (model.advantage_layers, model.state_value_layers)
    )
    return DenseChain(model, trunk["outputs"]), advantage, state_value


def _array(obs: Tensor) -> FloatArray:
    """Returns observations as float32 rows `[B, n]`."""
    array: FloatArray = obs.numpy().reshape(len(obs), -1).astype(np.float32, copy=False)
    return array


# --- the same in arrays -------------------------------------------------------------------------------------------


class ArrayChain:
    """A stack of dense layers for learner steps, on arrays that share their memory with a network's weights.

    On small batches, such as DQN's of 32 rows, PyTorch's bookkeeping around an operation takes longer than that.

    Args:
        layers: Its layers; none for a chain that changes nothing.
    """

    def __init__(self, layers: Sequence[ArrayLayer]) -> None:
        self._layers = [
            (layer, layer.weight.T, ACTIVATIONS[layer.activation], _SLOPES[layer.activation]) for layer in layers
        ]

    def __bool__(self) -> bool:
        """Whether there are layers."""
        return bool(self._layers)

    def forward(self, x: FloatArray) -> list[FloatArray]:
        """Returns `x` `[B, in]` and every layer's outputs; the last are the chain's. `backward` takes the list."""
        kept = [x]
        for layer, transposed, activation, _ in self._layers:
            x = np.dot(x, transposed)
            np.add(x, layer.bias, x)
            if activation is not None:
                activation(x, out=x)
            kept.append(x)
        return kept

    def backward(self, kept: list[FloatArray], grad: FloatArray, *, input_grad: bool) -> FloatArray | None:
        """Writes all parameters' gradients over what is there.

        Args:
            kept: What `forward` returned.
            grad: Gradient of the loss by the chain's outputs `[B, out]`.
            input_grad: Whether the gradient by the chain's inputs is wanted.

        Returns:
            The gradient by the inputs `[B, in]`, or None.
        """
        for index in range(len(self._layers) - 1, -1, -1):
            layer, _, _, slope = self._layers[index]
            if slope is not None:
                grad = slope(grad, kept[index + 1])
            np.dot(grad.T, kept[index], layer.weight_grad)
            np.add.reduce(grad, 0, out=layer.bias_grad)
            if index or input_grad:
                grad = np.dot(grad, layer.weight)
        return grad if input_grad else None


def _relu_slope(grad: FloatArray, y: FloatArray) -> FloatArray:
    return np.multiply(grad, np.greater(y, ZERO))


def _tanh_slope(grad: FloatArray, y: FloatArray) -> FloatArray:
    return grad * (_ONE - y * y)


def _sigmoid_slope(grad: FloatArray, y: FloatArray) -> FloatArray:
    return grad * (y * (_ONE - y))


#: By activation, the gradient of its input from that of its output and the output.
_SLOPES: dict[str, Callable[[FloatArray, FloatArray], FloatArray] | None] = {
    "linear": None,
    "relu": _relu_slope,
    "tanh": _tanh_slope,
    "sigmoid": _sigmoid_slope,
}


#: Trunk, advantages and state values of a Q-network; the latter two may be empty.
Chains = tuple[ArrayChain, ArrayChain, ArrayChain]


class ArrayQGradients:
    """Fills the gradients of the mean of w · huber(δ) for a Q-network of dense layers.

    Args:
        online: The chains that learn.
        target: Those that targets come from.
        double_q: Whether the online chains choose the next action.
    """

    def __init__(self, online: Chains, target: Chains, double_q: bool) -> None:
        self._trunk, self._advantage, self._state_value = online
        self._online, self._target, self._double_q = online, target, double_q
        self._places = np.arange(0)

    @np.errstate(over="ignore", invalid="ignore")  # the policy looks at the loss
    def __call__(
        self,
        obs: FloatArray,
        actions: NDArray[Any],
        rewards: FloatArray,
        next_obs: FloatArray,
        discounts: FloatArray,
        weights: FloatArray | None,
    ) -> tuple[float, FloatArray, dict[str, float]]:
        """Fills the gradients; returns the loss, the TD errors `[B]`, and statistics of the Q-values.

        Args:
            obs: Float32 `[B, D]`.
            actions: Integer `[B]`.
            rewards: Float32 `[B]`.
            next_obs: Float32 `[B, D]`.
            discounts: Float32 `[B]`.
            weights: Importance weights, float32 `[B]`; None for ones.
        """
        rows = len(obs)
        if len(self._places) != rows:
            self._places = np.arange(rows)
        places = self._places
        trunk = self._trunk.forward(obs)
        advantage, value = self._advantage.forward(trunk[-1]), self._state_value.forward(trunk[-1])
        q_t = _combined(advantage[-1], value[-1]) if self._state_value else advantage[-1]
        q_tp1 = _q_values(self._target, next_obs)
        if self._double_q:
            q_next = q_tp1[places, _q_values(self._online, next_obs).argmax(1)]
        else:
            q_next = np.maximum.reduce(q_tp1, 1)
        taken = q_t[places, actions]
        td_error = taken - (rewards + discounts * q_next)
        # The slope of huber(δ) is δ within ±1, and the sign of δ beyond; the loss follows from the slope.
        slope = np.minimum(np.maximum(td_error, _MINUS_ONE), _ONE)
        per_row = slope * (td_error - _HALF * slope)
        if weights is not None:
            slope, per_row = weights * slope, weights * per_row
        stats = {
            "mean_q": float(np.add.reduce(taken)) / rows,
            "min_q": float(np.minimum.reduce(taken)),
            "max_q": float(np.maximum.reduce(taken)),
        }
        slope /= np.float32(rows)
        grad = np.zeros(q_t.shape, np.float32)
        grad[places, actions] = slope
        self._backward(trunk, advantage, value, grad, slope)
        return float(np.add.reduce(per_row)) / rows, td_error, stats

    def _backward(
        self,
        trunk: list[FloatArray],
        advantage: list[FloatArray],
        value: list[FloatArray],
        grad: FloatArray,
        slope: FloatArray,
    ) -> None:
        """Fills the gradients from ∂loss/∂Q `[B, A]`, of which rows sum to `slope` `[B]`."""
        by_features: FloatArray | None = grad
        if self._state_value:
            # Q = V + A − mean A: V takes the whole slope, and every advantage gives up its share of the mean.
            whole = slope[:, None]
            by_features = self._advantage.backward(advantage, grad - whole / np.float32(grad.shape[1]), input_grad=True)
            by_value = self._state_value.backward(value, whole, input_grad=True)
            assert by_features is not None
            assert by_value is not None
            by_features = by_features + by_value
        elif self._advantage:
            by_features = self._advantage.backward(advantage, grad, input_grad=True)
        assert by_features is not None
        self._trunk.backward(trunk, by_features, input_grad=False)


def _q_values(chains: Chains, obs: FloatArray) -> FloatArray:
    trunk, advantage, state_value = chains
    features = trunk.forward(obs)[-1]
    scores = advantage.forward(features)[-1]
    return _combined(scores, state_value.forward(features)[-1]) if state_value else scores


def _combined(scores: FloatArray, value: FloatArray) -> FloatArray:
    """Returns V + A − mean A. Float32 `[B, A]`."""
    q: FloatArray = value + (scores - scores.mean(1, keepdims=True))
    return q
