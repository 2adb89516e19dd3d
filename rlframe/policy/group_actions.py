"""Actions of a group of agents, a Tuple of equal Discrete spaces: each agent chooses, and explores, for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.models.distributions import Categorical, NumpyDistribution
from rlframe.utils.errors import EnvError
from rlframe.utils.numpy import FLOAT_MIN


class GroupCategorical(NumpyDistribution):
    """The choices of N agents among A actions each, from logits or values of all side by side, `[B, N · A]`.

    Args:
        inputs: Float `[B, N · A]`; FLOAT_MIN where an action is invalid.
        rng: Generator that `sample` draws from.
        n_agents: N.

    Attributes:
        by_agent: The single choices, as a distribution of B · N rows.

    Raises:
        EnvError: If an agent has no valid action.
    """

    def __init__(self, inputs: NDArray[Any], rng: np.random.Generator | None = None, *, n_agents: int) -> None:
        super().__init__(inputs, rng)
        by_agent = inputs.reshape(len(inputs) * n_agents, -1)
        stuck = np.flatnonzero(np.maximum.reduce(by_agent, axis=1) <= np.float32(FLOAT_MIN))
        if len(stuck):
            raise EnvError(
                f'agent number {int(stuck[0]) % n_agents} of a group has an "action_mask" of zeros; wanted at least '
                "one valid action (an agent that is through needs a no-op)"
            )
        self.n_agents = n_agents
        self.by_agent = Categorical(by_agent, rng)

    def in_tuple(self, choices: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Returns single choices `[B · N]` as actions of the group: a tuple with `[B]` for each agent."""
        actions = tuple(choices.reshape(-1, self.n_agents).T)
        self.last_sample = actions
        return actions

    def sample(self) -> Any:
        """Draws a tuple of actions, integer `[B]` each."""
        return self.in_tuple(self.by_agent.sample())

    def deterministic_sample(self) -> Any:
        """Returns the tuple of most likely actions, integer `[B]` each."""
        return self.in_tuple(self.by_agent.deterministic_sample())

    def logp(self, x: Any) -> NDArray[Any]:
        """Returns the agents' summed log-likelihoods `[B]` of actions, `[B, N]` or a tuple of `[B]`."""
        choices = np.stack(x, axis=1) if isinstance(x, tuple) else np.asarray(x)
        return self.summed(self.by_agent.logp(choices.reshape(-1)))

    def entropy(self) -> NDArray[Any]:
        """Returns the agents' summed entropies. Float `[B]`."""
        return self.summed(self.by_agent.entropy())

    def kl(self, other: GroupCategorical) -> NDArray[Any]:
        """Returns the agents' summed divergences. Float `[B]`."""
        return self.summed(self.by_agent.kl(other.by_agent))

    def summed(self, single: NDArray[Any]) -> NDArray[Any]:
        """Returns numbers `[B · N]` summed over the agents. `[B]`."""
        total: NDArray[Any] = single.reshape(-1, self.n_agents).sum(axis=1)
        return total


def explored_by_agent(choose: Any, /, *, action_distribution: GroupCategorical, **kwargs: Any) -> tuple[Any, Any]:
    """Returns what an exploration in the space of one agent gives for each, as actions of the group, with log π `[B]`.

    Args:
        choose: `get_exploration_action` of the exploration.
        action_distribution: That of the group.
        **kwargs: As for `choose`.
    """
    choices, logp = choose(action_distribution=action_distribution.by_agent, **kwargs)
    return action_distribution.in_tuple(choices), action_distribution.summed(logp)
