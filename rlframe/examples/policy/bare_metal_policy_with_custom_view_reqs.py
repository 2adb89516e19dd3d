"""A policy without framework or model that says itself which views of the past it acts on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from rlframe.data.columns import INFOS, OBS, PREV_ACTIONS, PREV_REWARDS
from rlframe.data.view_requirements import ViewRequirement
from rlframe.policy.policy import Policy


class BareMetalPolicyWithCustomViewReqs(Policy):
    """Acts at random, learns nothing, and is given its last two states, the infos, and what there was before.

    Args:
        observation_space: Observation space.
        action_space: Action space.
        model_config: The config, which RLlib's policy of this name called so.
        *args: Of `Policy`.
        **kwargs: Of `Policy`.
    """

    def __init__(self, observation_space: Any, action_space: Any, model_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(observation_space, action_space, model_config, *args, **kwargs)
        self.state_size = 10
        self.model_config = model_config or {}
        self.action_space.seed(int(self._action_rng.integers(2**31)))
        space = Box(-np.inf, np.inf, (self.state_size,))
        self.view_requirements["state_in_0"] = ViewRequirement(
            "state_out_0", shift="-2:-1", used_for_training=False, batch_repeat_value=1, space=space
        )
        self.view_requirements["state_out_0"] = ViewRequirement(
            used_for_training=False, used_for_compute_actions=False, space=space
        )
        self.view_requirements[INFOS] = ViewRequirement()

    def get_initial_state(self) -> list[Any]:
        """Returns zeros `[state_size]`."""
        return [np.zeros(self.state_size, np.float32)]

    def compute_actions(  # type: ignore[override]  # with the parameters that it has in RLlib
        self, obs_batch: Any = None, state_batches: Any = None, prev_action_batch: Any = None,
        prev_reward_batch: Any = None, info_batch: Any = None, episodes: Any = None, **kwargs: Any,
    ) -> tuple[Any, list[Any], dict[str, Any]]:  # fmt: skip
        """Returns an action for each of the states `[B, 2, state_size]`, and their newer ones as they are."""
        states = np.asarray(state_batches[0])
        return np.stack([self.action_space.sample() for _ in states]), [states[:, -1]], {}

    def compute_actions_from_input_dict(
        self, input_dict: Any, explore: Any = None, timestep: Any = None, episodes: Any = None, **kwargs: Any
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """Returns what `compute_actions` does.

        Raises:
            ValueError: If the infos are not there, or not the last two states.
        """
        states = [column for name, column in input_dict.items() if name.startswith("state_in_")]
        shapes = [np.shape(state)[1:] for state in states]
        if input_dict.get(INFOS) is None or shapes != [(2, self.state_size)]:
            raise ValueError(
                f"{type(self).__name__} got the columns {sorted(input_dict)} with states of the shapes {shapes}; "
                f"wanted infos, and state_in_0 [B, 2, {self.state_size}]."
            )
        previous = (input_dict.get(PREV_ACTIONS), input_dict.get(PREV_REWARDS))
        asked = {"explore": explore, "timestep": timestep, "episodes": episodes, **kwargs}
        return self.compute_actions(input_dict[OBS], states, *previous, input_dict[INFOS], **asked)

    def learn_on_batch(self, samples: Any) -> dict[str, Any]:
        """Learns nothing."""
        return {}

    def get_weights(self) -> dict[str, Any]:
        """Returns no weights."""
        return {}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Takes no weights."""
