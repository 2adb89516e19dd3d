"""What fills the gradients of a policy's own loss without autograd: how it is found for a policy that it fits."""

from __future__ import annotations

from typing import Any

from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.users_code import overridden_by_user

#: Methods of policies that losses with their gradients call, and that a program may override.
_CALLED = ("output", "keep_output", "with_penalty", "due")


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
    def of(cls, policy: Any) -> Any:
        """Returns the gradients' function for a policy, or None where it must go by autograd."""
        try:
            made = cls(policy) if cls.knows(policy) else None
        except ValueError:
            return None
        if made is None or policy.device.type != "cuda" or cls.host_state is FusedLoss.host_state:
            return made
        if any(overridden_by_user(type(policy), name) for name in _CALLED):  # which may wait for the device
            return made
        from rlframe.policy.torch.captured import CapturedLoss

        return CapturedLoss(made, policy)

    @classmethod
    def knows(cls, policy: Any) -> bool:
        """Returns whether the equations are those of the policy, as it is configured; of its networks nothing yet."""
        del policy
        return True

    def host_state(self) -> tuple[Any, ...] | None:
        """Returns the numbers beside batch and weights that it computes with, for graphs of a GPU's launches.

        None where it must not be captured in one: because it waits for the device or copies from or to it, or because
        such numbers change all the time.
        """
        return None

    def inputs(self) -> dict[str, Any]:
        """Returns what else it computes with and changes with every step, as tensors that a graph gets as columns."""
        return {}

    def __call__(self, batch: SampleBatch) -> Any:
        """Fills the gradients, has the policy keep its statistics, and returns the loss, or losses by optimiser.

        Args:
            batch: Tensors.
        """
        raise NotImplementedError
