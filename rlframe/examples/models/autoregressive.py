"""Two dependent choices, in either framework: what the distributions of both do."""

from __future__ import annotations

from typing import Any, TypeAlias

Tensor: TypeAlias = Any


class TwoBits:
    """P(a1, a2) = P(a1) P(a2 | a1) of two bits, whose logits a part of the model computes.

    A mixin before a framework's base of distributions; `inputs` are the model's features, float `[B, D]`.
    """

    #: The framework's class for one choice.
    categorical: Any
    inputs: Tensor
    _action_logp: Tensor

    def _logits(self, first: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns logits `[B, 2]` of the first bit, and of the second one after `first` `[B]` (None: 0)."""
        raise NotImplementedError

    def _first(self) -> Any:
        return self.categorical(self._logits(None)[0])

    def _second(self, first: Tensor) -> Any:
        return self.categorical(self._logits(first)[1])

    def _pick(self, draw: str) -> tuple[Tensor, Tensor]:
        first_dist = self._first()
        first = getattr(first_dist, draw)()
        second_dist = self._second(first)
        second = getattr(second_dist, draw)()
        self._action_logp = first_dist.logp(first) + second_dist.logp(second)
        return first, second

    def sample(self) -> Any:
        """Returns both bits `[B]`."""
        return self._pick("sample")

    def deterministic_sample(self) -> Any:
        """Returns the likeliest first bit, and the likeliest second one after it."""
        return self._pick("deterministic_sample")

    def logp(self, actions: Any) -> Tensor:
        """Returns log P `[B]` of bits `[B, 2]`, or of a tuple of two `[B]`."""
        first, second = actions if isinstance(actions, tuple) else (actions[:, 0], actions[:, 1])
        logits = self._logits(first)
        return self.categorical(logits[0]).logp(first) + self.categorical(logits[1]).logp(second)

    def sampled_action_logp(self) -> Tensor:
        """Returns log P `[B]` of what was drawn last."""
        return self._action_logp

    def entropy(self) -> Tensor:
        """Returns an estimate of the entropy `[B]`, with one first bit drawn."""
        first = self._first()
        return first.entropy() + self._second(first.sample()).entropy()

    def kl(self, other: Any) -> Tensor:
        """Returns an estimate of the divergence `[B]` from another of its kind, with one first bit drawn."""
        first = self._first()
        chosen = first.sample()
        return first.kl(other._first()) + self._second(chosen).kl(other._second(chosen))

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any) -> int:
        """Returns the number of features that the model makes."""
        del action_space, model_config
        return 16


def check_two_bits(model: str, action_space: Any) -> None:
    """Checks that actions are two bits.

    Raises:
        ValueError: If they are not.
    """
    if [getattr(part, "n", None) for part in getattr(action_space, "spaces", ())] != [2, 2]:
        raise ValueError(f"{model} got the action space {action_space}; wanted Tuple([Discrete(2), Discrete(2)]).")
