"""A copy of a network that is refreshed now and then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from rlframe.models.tf.networks import TFCustomNetwork
from rlframe.policy.parts import Component
from rlframe.policy.tf.weights import load_weights, to_arrays
from rlframe.utils.quiet_tf import tf


class TargetNetwork(Component):
    """Holds a second model of the same make; `update(tau)` moves it towards the online model.

    Args:
        online: The model that learns.
        model: The second one, e.g. from a second call of what made the first; it takes over the online weights.
    """

    def __init__(self, online: Any, model: Any) -> None:
        self.online, self.model = online, model
        for network in vars(model).values():
            if isinstance(network, TFCustomNetwork):
                network.follows = True
        self._copy = tf.function(self._copied, input_signature=[])
        self._mix = tf.function(self._mixed, input_signature=[tf.TensorSpec([], tf.float32)])
        self.update()

    def _copied(self) -> None:
        sources = self.online.named_variables()
        for name, target in self.model.named_variables().items():
            target.assign(sources[name])

    def _mixed(self, tau: Any) -> None:
        sources, trained = self.online.named_variables(), self.online.named_trainable_variables()
        for name, target in self.model.named_variables().items():
            step = tf.cast(tau, target.dtype) * (sources[name] - target) if name in trained else sources[name] - target
            target.assign_add(step)

    def update(self, tau: float = 1.0) -> None:
        """Sets target := target + tau · (online − target); variables that are not trained are copied."""
        if tau == 1.0:
            self._copy()
        else:
            self._mix(tf.constant(tau, tf.float32))

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of the target's variables, `{name: array}`."""
        return to_arrays(self.model.named_variables())

    def set_weights(self, weights: Mapping[str, Any], *, owner: str = "the target network") -> None:
        """Copies `{name: array}` into the target; a ValueError names `owner` where they do not fit."""
        load_weights(self.model.named_variables(), weights, owner=owner)

    def get_state(self) -> dict[str, Any]:
        """Returns the weights, as a policy's component does."""
        return {"weights": self.get_weights()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self.set_weights(state["weights"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the copy; stop the gradients where you use it in a loss."""
        return self.model(*args, **kwargs)
