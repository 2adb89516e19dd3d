"""The action with the highest bound, of bandits whose models give bounds."""

from __future__ import annotations

from typing import Any

from rlframe.exploration.exploration import Array, Exploration, greedy
from rlframe.utils.errors import ConfigError


class UpperConfidenceBound(Exploration):
    """Takes the action of the largest score that the policy's model gives while it explores: an upper bound.

    Source: Li et al. 2010, "A contextual-bandit approach to personalized news article recommendation", algorithm 1.
    """

    part_arguments = ("action_dist", "explore")

    @property
    def policy(self) -> Any:
        """The policy acted for; whoever makes an exploration for a policy sets it."""
        return self._policy

    @policy.setter
    def policy(self, policy: Any) -> None:
        """Raises a ConfigError where the policy's outputs are no scores to explore by: it would always be greedy."""
        if policy is not None and not getattr(policy, "scores_explore", False):
            raise ConfigError(
                f"exploration_config.type: got {type(self).__name__!r} for a {type(policy).__name__}; it is for linear "
                "bandits, whose models know how sure they are: take contrib/LinUCB or contrib/LinTS, or another type"
            )
        self._policy = policy

    def get_exploration_action(
        self, *, action_distribution: Any, timestep: int | None, explore: bool = True
    ) -> tuple[Any, Array]:
        """Returns the actions of the largest scores, integer `[B]`, and zeros, float32 `[B]`."""
        del explore  # the scores are those of the means where it is False
        self.advance(timestep)
        return greedy(action_distribution)
