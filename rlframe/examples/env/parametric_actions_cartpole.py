"""CartPole whose two actions lie at changing places among many, and are known by what the observation says of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Dict, Discrete
from numpy.typing import NDArray

_TIME_LIMIT = 200  # CartPole-v0's


class _Cart(gymnasium.Env[Any, Any]):
    """Keeps two places among `max_avail_actions`, drawn anew at each step, for pushing to the left and to the right."""

    def __init__(self, max_avail_actions: int) -> None:
        self.wrapped = gymnasium.wrappers.TimeLimit(CartPoleEnv(), _TIME_LIMIT)
        self.action_space = Discrete(max_avail_actions)
        self.max_avail_actions = max_avail_actions
        self.left_idx, self.right_idx = 0, 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed, options=options)
        cart, info = self.wrapped.reset(seed=seed)
        return self.observe(cart), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Pushes the cart; a place without an action is a ValueError."""
        if action not in {self.left_idx, self.right_idx}:
            raise ValueError(f"got the action {action}, wanted {self.left_idx} (left) or {self.right_idx} (right)")
        cart, reward, terminated, truncated, info = self.wrapped.step(0 if action == self.left_idx else 1)
        return self.observe(cart), float(reward), terminated, truncated, info

    def draw_places(self) -> NDArray[np.float32]:
        """Draws where the two actions are, and returns the mask of them."""
        places = self.np_random.choice(self.max_avail_actions, 2, replace=False)
        self.left_idx, self.right_idx = (int(place) for place in places)
        mask = np.zeros(self.max_avail_actions, np.float32)
        mask[[self.left_idx, self.right_idx]] = 1.0
        return mask

    def observe(self, cart: NDArray[np.float32]) -> dict[str, Any]:
        """Returns the observation of the cart."""
        raise NotImplementedError


class ParametricActionsCartPole(_Cart):
    """Observations are `action_mask [A]`, `avail_actions [A, 2]` (what each action is, zeros for none) and `cart [4]`.

    Args:
        max_avail_actions: A.
    """

    def __init__(self, max_avail_actions: int) -> None:
        super().__init__(max_avail_actions)
        rng = np.random.default_rng(0)
        self.left_action_embed, self.right_action_embed = rng.normal(size=(2, 2)).astype(np.float32)
        self.observation_space = Dict(
            {
                "action_mask": Box(0.0, 1.0, (max_avail_actions,), np.float32),
                "avail_actions": Box(-10.0, 10.0, (max_avail_actions, 2), np.float32),
                "cart": self.wrapped.observation_space,
            }
        )

    def observe(self, cart: NDArray[np.float32]) -> dict[str, Any]:
        """Returns the observation of the cart."""
        self.update_avail_actions()
        return {"action_mask": self.action_mask, "avail_actions": self.action_assignments, "cart": cart}

    def update_avail_actions(self) -> None:
        """Draws where the two actions are: `action_mask`, and `action_assignments`, which says what each is."""
        self.action_mask = self.draw_places()
        self.action_assignments = np.zeros((self.max_avail_actions, 2), np.float32)
        self.action_assignments[self.left_idx] = self.left_action_embed
        self.action_assignments[self.right_idx] = self.right_action_embed


class ParametricActionsCartPoleNoEmbeddings(_Cart):
    """Observations are `valid_avail_actions_mask [A]` and `cart [4]`; the two places stay what they are.

    Args:
        max_avail_actions: A.
    """

    def __init__(self, max_avail_actions: int) -> None:
        super().__init__(max_avail_actions)
        self.observation_space = Dict(
            {
                "valid_avail_actions_mask": Box(0.0, 1.0, (max_avail_actions,), np.float32),
                "cart": self.wrapped.observation_space,
            }
        )

    def draw_places(self) -> NDArray[np.float32]:
        """Returns the mask of the first two places."""
        mask = np.zeros(self.max_avail_actions, np.float32)
        mask[[self.left_idx, self.right_idx]] = 1.0
        return mask

    def observe(self, cart: NDArray[np.float32]) -> dict[str, Any]:
        """Returns the observation of the cart."""
        return {"valid_avail_actions_mask": self.draw_places(), "cart": cart}
