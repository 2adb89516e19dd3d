"""What all policies with a target network share: copying it, and its place in the state; free of frameworks."""

from __future__ import annotations

from typing import Any

from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.policy import State
from rlframe.tensor import ops


class TargetPolicy(LearningPolicy):
    """A policy with a second network that follows its own.

    Attributes:
        target_network: A `TargetNetwork` of the policy's framework.
    """

    target_network: Any

    def update_target(self, tau: float | None = None) -> None:
        """Copies the online network into the target network; with τ below 1, moves it there by so much."""
        self.target_network.update(1.0 if tau is None else tau)

    def _modules_by_role(self) -> dict[str, Any]:
        return {"online": self.model, "target": self.target_network.model}

    def extra_compute_grad_fetches(self) -> dict[str, Any]:
        """Returns the TD errors `[B]` of the batch and their mean, where the loss kept `td_error`."""
        if "td_error" not in self._loss_outputs:
            return {}
        td_error = self._loss_outputs["td_error"]
        return {"td_error": td_error, "mean_td_error": ops.mean(td_error)}

    def get_state(self) -> State:
        """Returns the policy's state with the target network's weights."""
        return {**super().get_state(), "_target_weights": self.target_network.get_weights()}

    def set_state(self, state: State) -> None:
        """Takes what `get_state` returned; a state without target weights copies the online ones."""
        super().set_state(state)
        saved = state.get("_target_weights")
        if saved is None:
            self.target_network.update()
        else:
            self.target_network.set_weights(saved, owner=f"{type(self).__name__}'s target network")


__all__ = ["TargetPolicy"]
