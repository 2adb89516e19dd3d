"""Policies whose actions say whose they are, and whose states say when: for looking at what samplers collect."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from rlframe.data.columns import ACTIONS, AGENT_INDEX, ENV_ID, EPS_ID, OBS, PREV_ACTIONS, PREV_REWARDS, REWARDS, T
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.view_requirements import ViewRequirement
from rlframe.examples.policy.random_policy import RandomPolicy


class _Aware(RandomPolicy):
    """Acts by [agent index, episode id modulo 2²⁴, environment's index], which takes a Box of three numbers.

    Actions are float32, which holds no larger integers; ids begin with the worker's index, and count behind that.
    """

    #: How many states there are, each the env step `[1]` at which the policy acted.
    num_states = 1
    #: Postprocessing adds this multiple of the observations, as a column of its own.
    multiple = 2

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.state_space = Box(-1.0, 1.0, (1,))
        for name in (AGENT_INDEX, EPS_ID, ENV_ID, T):
            self.view_requirements[name] = ViewRequirement()
        for index in range(self.num_states):
            self.view_requirements[f"state_in_{index}"] = self._state_view(index)
            self.view_requirements[f"state_out_{index}"] = ViewRequirement(
                space=self.state_space, used_for_compute_actions=False
            )

    def _state_view(self, index: int) -> ViewRequirement:
        return ViewRequirement(f"state_out_{index}", shift=-1, space=self.state_space)

    def is_recurrent(self) -> bool:
        """Returns True."""
        return True

    def compute_actions_from_input_dict(  # type: ignore[override]  # with the parameters that it has in RLlib
        self, input_dict: Any, explore: Any = None, timestep: Any = None, **kwargs: Any
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """Returns the actions `[B, 3]`, and the env steps as states `[B, 1]`."""
        episodes = np.asarray(input_dict[EPS_ID]) % 2**24
        actions = np.stack([input_dict[AGENT_INDEX], episodes, input_dict[ENV_ID]], axis=1)
        steps = np.asarray(input_dict[T], np.float32)[:, None]
        return actions.astype(np.float32), [steps] * self.num_states, {}

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Returns the batch with a multiple of its observations, as `2xobs` or `3xobs`."""
        sample_batch[f"{self.multiple}xobs"] = sample_batch[OBS] * float(self.multiple)
        return sample_batch


class EpisodeEnvAwareLSTMPolicy(_Aware):
    """Has two states as an LSTM has, and is given the last actions and rewards."""

    num_states = 2

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.view_requirements[PREV_ACTIONS] = ViewRequirement(ACTIONS, shift=-1, space=self.action_space)
        self.view_requirements[PREV_REWARDS] = ViewRequirement(REWARDS, shift=-1)


class EpisodeEnvAwareAttentionPolicy(_Aware):
    """Has its last 50 states as its state, as attention has."""

    multiple = 3

    def _state_view(self, index: int) -> ViewRequirement:
        return ViewRequirement(f"state_out_{index}", shift="-50:-1", batch_repeat_value=50, space=self.state_space)
