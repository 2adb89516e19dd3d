"""A policy as something to act with, step by step: it remembers what the policy needs from step to step."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.columns import OBS, REWARDS
from rlframe.evaluation.sampling.rollout import clip_rewards
from rlframe.policy.policy import Policy, unbatch_one
from rlframe.policy.recurrent_context import RecurrentContext
from rlframe.utils.spaces.space_utils import flatten_to_single_ndarray


class StatefulActor:
    """Acts in one episode after the other; owns recurrent state, past actions and past rewards.

        actor = trainer.make_actor()
        actor.reset()
        action = actor.act(obs)

    Observations are preprocessed and filtered (with the filter as it stands), actions are of the environment's space.

    Args:
        policy: What acts.
        explore: Whether it explores; None takes `config["explore"]`.
        how_to_clip: How rewards are clipped before the policy sees them: True to their sign, a number x to ±x.
    """

    def __init__(self, policy: Policy, explore: bool | None = None, how_to_clip: bool | float | None = None) -> None:
        self.policy = policy
        self._how_to_clip = how_to_clip
        self.explore = bool(policy.config.explore) if explore is None else explore
        self._memory = RecurrentContext(policy, 1)
        self._sees_rewards = any((view.data_col or name) == REWARDS for name, view in policy.acting_views().items())
        self._steps = 0

    def reset(self) -> None:
        """Begins an episode: states are the initial ones, nothing has been done."""
        self._memory.begin(0)
        self._steps = 0

    def act(self, obs: Any, reward: float | None = None) -> Any:
        """Returns an action for an observation of the environment.

        Args:
            obs: As the environment gives it.
            reward: What the last action brought, as the environment gives it. Only policies that see past rewards
                need it; at an episode's first step there is none.

        Raises:
            ValueError: If the policy sees past rewards, and the last one is missing.
        """
        if self._steps and self._sees_rewards:
            if reward is None:
                raise ValueError(
                    f"{type(self.policy).__name__} sees past rewards; wanted act(obs, reward) with the reward of the "
                    f"last action at step {self._steps}, got no reward (call reset() where an episode begins)"
                )
            self._memory.rewarded(clip_rewards(np.asarray([reward], np.float32), self._how_to_clip))
        row = self.policy._observed(obs)[None]
        inputs = self._memory.inputs(row)
        actions, states, _ = self.policy.compute_actions_from_input_dict({OBS: row, **inputs}, explore=self.explore)
        flat = flatten_to_single_ndarray(actions, 1)
        self._memory.acted(row, flat, {f"state_out_{index}": state for index, state in enumerate(states)})
        self._steps += 1
        return unbatch_one(self.policy.to_env_actions(actions))

    @property
    def state(self) -> list[Any]:
        """The recurrent state as it stands, arrays without batch dimension; empty for policies without memory."""
        columns = self._memory.inputs(np.zeros((1, *(self.policy.observation_space.shape or ()))))
        return [columns[f"state_in_{index}"][0] for index in range(self.policy.num_state_tensors())]


__all__ = ["StatefulActor"]
