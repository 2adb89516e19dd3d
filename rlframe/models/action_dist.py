"""The interface of action distributions, whatever computes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ActionDistribution:
    """A batch of distributions over actions, one per row of the model's outputs.

    Subclasses of users override `sample`, `deterministic_sample`, `logp`, `kl`, `entropy`, `sampled_action_logp` and
    `required_model_output_shape`.

    Args:
        inputs: Outputs of the model. Float `[B, K]`.
        model: The model that made them; may be None.
    """

    def __init__(self, inputs: Any, model: Any = None) -> None:
        self.inputs = inputs
        self.model = model

    def sample(self) -> Any:
        """Draws one action per row; `sampled_action_logp` then speaks of these."""
        raise NotImplementedError(_missing(self, "sample"))

    def deterministic_sample(self) -> Any:
        """Returns the most likely (or the mean) action of every row, without randomness."""
        raise NotImplementedError(_missing(self, "deterministic_sample"))

    def sampled_action_logp(self) -> Any:
        """Returns the log-likelihood of the actions drawn last. Float `[B]`."""
        raise NotImplementedError(_missing(self, "sampled_action_logp"))

    def logp(self, x: Any) -> Any:
        """Returns the log-likelihood of the actions `x [B, ...]`. Float `[B]`."""
        raise NotImplementedError(_missing(self, "logp"))

    def kl(self, other: Any) -> Any:
        """Returns the Kullback-Leibler divergence KL(self ‖ other) in nats. Float `[B]`."""
        raise NotImplementedError(_missing(self, "kl"))

    def entropy(self) -> Any:
        """Returns the entropy in nats. Float `[B]`."""
        raise NotImplementedError(_missing(self, "entropy"))

    def multi_kl(self, other: Any) -> Any:
        """Returns the divergence of a joint distribution; the same as `kl` unless a subclass knows better."""
        return self.kl(other)

    def multi_entropy(self) -> Any:
        """Returns the entropy of a joint distribution; the same as `entropy` unless a subclass knows better."""
        return self.entropy()

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int | tuple[int, ...]:
        """Returns how many outputs the model needs for `action_space`."""
        raise NotImplementedError(
            f"A custom action distribution must define the static method required_model_output_shape(action_space, "
            f"model_config); it is missing for {action_space}."
        )


def _missing(dist: ActionDistribution, method: str) -> str:
    return f"{type(dist).__name__} does not define {method}(); a custom action distribution must."
