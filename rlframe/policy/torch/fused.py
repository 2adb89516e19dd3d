"""What fills the gradients of a policy's own loss without autograd: how it is found for a policy that it fits."""

from __future__ import annotations

from typing import Any

from typing_extensions import Self

from rlframe.data.sample_batch import SampleBatch


class FusedLoss:
    """A loss with its gradient, as the classes that a `FusedGradients` names: the same numbers in less time.

    Nothing of it is needed to understand an algorithm: the policy's `loss` says what is computed, and a test holds both
    to the same gradients.

    Args:
        policy: The policy.

    Raises:
        ValueError: If its networks are not made of what the class knows.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    @classmethod
    def of(cls, policy: Any) -> Self | None:
        """Returns the gradients' function for a policy, or None where it must go by autograd."""
        try:
            return cls(policy) if cls.knows(policy) else None
        except ValueError:
            return None

    @classmethod
    def knows(cls, policy: Any) -> bool:
        """Returns whether the equations are those of the policy, as it is configured; of its networks nothing yet."""
        del policy
        return True

    def __call__(self, batch: SampleBatch) -> Any:
        """Fills the gradients, has the policy keep its statistics, and returns the loss, or losses by optimiser.

        Args:
            batch: Tensors.
        """
        raise NotImplementedError
