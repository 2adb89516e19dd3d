"""A base for what `multiagent.observation_fn` may be."""

from __future__ import annotations

from typing import Any


class ObservationFunction:
    """Changes the observations of all agents together, e.g. to let each see what others do.

    A plain function with the same arguments does as well.
    """

    def __call__(
        self, agent_obs: dict[Any, Any], worker: Any, base_env: Any, policies: Any, episode: Any, **kw: Any
    ) -> dict[Any, Any]:
        """Returns the new observations by agent, in the policies' observation spaces.

        Args:
            agent_obs: Observations by agent, of those that act next.
            worker: The worker.
            base_env: Its environments.
            policies: Policies by id.
            episode: The episode.
            **kw: May come later.
        """
        raise NotImplementedError("an ObservationFunction defines __call__")
