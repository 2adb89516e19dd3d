"""Contextual bandits: what an action is worth now, and nothing else, depends on what is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from numpy.typing import NDArray

from rlframe.utils.errors import ConfigError
from rlframe.utils.seeding import make_rng

Stepped = tuple[Any, float, bool, bool, dict[str, Any]]


class _Bandit(gymnasium.Env[Any, Any]):
    """Shows a context, pays for an action, shows the next one; `info["regret"]` is what the best would have paid more.

    What is drawn once, such as weights, is drawn from the key `seed`: environments of all workers are the same. After
    `episode_len` steps an episode is cut off.

    Args:
        config: Replaces keys of `defaults`.
    """

    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        known = {"seed": 1, "episode_len": 100, **self.defaults}
        given = dict(config or {})
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ConfigError(f"{type(self).__name__}: got the keys {unknown}, wanted some of {sorted(known)}")
        self.config: dict[str, Any] = {**known, **given}
        self._elapsed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode with a context."""
        super().reset(seed=seed, options=options)
        self._elapsed = 0
        return self._next_context(), {}

    def step(self, action: Any) -> Stepped:
        """Pays for the action, and shows the next context."""
        means = self._means()
        best = int(means.argmax())
        reward = float(means[int(action)] + self._noise())
        info = {"regret": float(means[best] - means[int(action)]), "opt_action": best}
        self._elapsed += 1
        return self._next_context(), reward, False, self._elapsed >= self.config["episode_len"], info

    def _next_context(self) -> Any:
        """Draws and returns a context."""
        raise NotImplementedError

    def _means(self) -> NDArray[np.float64]:
        """Returns the mean reward of each action in the context now shown."""
        raise NotImplementedError

    def _noise(self) -> float:
        """Returns what is added to the reward."""
        return 0.0


class SimpleContextualBandit(gymnasium.Env[Any, Any]):
    """Three actions, worth 0, 0.5 and 1 or, with the other of two contexts, 1, 0.5 and 0; each step is an episode."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space = Discrete(3)

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        del config
        self._context = 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Shows (1, -1) or (-1, 1)."""
        super().reset(seed=seed, options=options)
        self._context = float(self.np_random.choice([-1.0, 1.0]))
        return self._seen(), {}

    def step(self, action: Any) -> Stepped:
        """Pays for the action."""
        reward = 0.5 + 0.5 * self._context * (1 - int(action))
        return self._seen(), reward, True, False, {"regret": 1.0 - reward}

    def _seen(self) -> Any:
        return np.array([self._context, -self._context], np.float32)


class LinearDiscreteEnv(_Bandit):
    """An action is worth its own weights, unit vectors, times the context, normal numbers of deviation 1/3.

    Keys: `feature_dim` (8), `num_actions` (4), `reward_noise_std` (0.01), `seed` (1), `episode_len` (100).
    """

    defaults: ClassVar[Any] = {"feature_dim": 8, "num_actions": 4, "reward_noise_std": 0.01}

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(config)
        features, actions = self.config["feature_dim"], self.config["num_actions"]
        self.observation_space = Box(-10.0, 10.0, (features,), np.float32)
        self.action_space = Discrete(actions)
        thetas = make_rng(self.config["seed"], "thetas").uniform(-1, 1, (actions, features))
        self.thetas = thetas / np.linalg.norm(thetas, axis=1, keepdims=True)
        self._context = np.zeros(features, np.float32)

    def _next_context(self) -> Any:
        drawn = self.np_random.normal(0.0, 1 / 3, self.config["feature_dim"])
        self._context = np.clip(drawn, -10.0, 10.0).astype(np.float32)
        return self._context.copy()

    def _means(self) -> NDArray[np.float64]:
        return np.asarray(self.thetas @ self._context, np.float64)

    def _noise(self) -> float:
        return float(self.np_random.normal(0.0, self.config["reward_noise_std"]))


class WheelBanditEnv(_Bandit):
    """Points of a disc: inside of radius `delta` action 0 is best, outside one of four others, by quadrant, and by far.

    Keys: `delta` (0.5), `mu_1` (1.2), worth of action 0, `mu_2` (1.0), of others, `mu_3` (50.0), of the one that is
    right for its quadrant, `std` (0.01), the noise, `seed` (1), `episode_len` (100).

    Source: Riquelme et al. 2018, "Deep Bayesian Bandits Showdown", section 5.4.
    """

    feature_dim, num_actions = 2, 5
    observation_space = Box(-1.0, 1.0, (feature_dim,), np.float32)
    action_space = Discrete(num_actions)
    defaults: ClassVar[Any] = {"delta": 0.5, "mu_1": 1.2, "mu_2": 1.0, "mu_3": 50.0, "std": 0.01}

    def _next_context(self) -> Any:
        angle, radius = self.np_random.uniform(0.0, 2 * np.pi), np.sqrt(self.np_random.uniform())
        self._context = (radius * np.array([np.cos(angle), np.sin(angle)])).astype(np.float32)
        return self._context.copy()

    def _means(self) -> NDArray[np.float64]:
        means = np.full(5, float(self.config["mu_2"]))
        means[0] = self.config["mu_1"]
        if np.linalg.norm(self._context) >= self.config["delta"]:
            right, above = self._context > 0
            means[{(True, True): 1, (False, True): 2, (False, False): 3}.get((bool(right), bool(above)), 4)] = (
                self.config["mu_3"]
            )
        return means

    def _noise(self) -> float:
        return float(self.np_random.normal(0.0, self.config["std"]))


class ParametricItemRecoEnv(_Bandit):
    """Recommends one of some items to a user: each step shows others, as rows of features `item`, with their `item_id`.

    An item is worth its features, a positive unit vector, times the user's, which are hidden. `response` is the last
    reward; with several users `user` says whose turn it is, which linear bandits do not read: they learn one taste.

    Keys: `num_users` (1), `num_items` (100), `feature_dim` (16), `num_candidates` (25), `slate_size` (1, the only
    one), `seed` (1), `episode_len` (100).
    """

    defaults: ClassVar[Any] = {
        "num_users": 1, "num_items": 100, "feature_dim": 16, "num_candidates": 25, "slate_size": 1
    }  # fmt: skip

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(config)
        self.slate_size = self.config["slate_size"]
        self.num_users, self.num_items, self.feature_dim, self.num_candidates = users, items, features, shown = [
            int(self.config[key]) for key in ("num_users", "num_items", "feature_dim", "num_candidates")
        ]
        if self.slate_size != 1 or shown > items:
            raise ConfigError(
                f"ParametricItemRecoEnv: got slate_size={self.slate_size}, num_candidates={shown} of "
                f"num_items={items}; wanted slate_size=1, and no more candidates than items"
            )
        spaces: dict[str, Any] = {
            "item": Box(-np.inf, np.inf, (shown, features), np.float32),
            "item_id": MultiDiscrete([items] * shown),
            "response": Box(-1.0, 1.0, (1,), np.float32),
        }
        self.observation_space = Dict({**spaces, "user": Discrete(users)} if users > 1 else spaces)
        self.action_space = Discrete(shown)
        self._items, self._users = (
            _unit_rows(make_rng(self.config["seed"], name), count, features)
            for name, count in (("items", items), ("users", users))
        )
        self._shown, self._user, self._response = np.arange(shown), 0, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode with some items."""
        self._response = 0.0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Stepped:
        """Pays for the item, and shows others."""
        self._response = float(self._means()[int(action)])
        return super().step(action)

    def _next_context(self) -> Any:
        self._user = int(self.np_random.integers(len(self._users)))
        self._shown = self.np_random.choice(len(self._items), len(self._shown), replace=False)
        seen = {
            "item": self._items[self._shown].astype(np.float32),
            "item_id": self._shown.astype(np.int64),
            "response": np.array([self._response], np.float32),
        }
        return {**seen, "user": self._user} if len(self._users) > 1 else seen

    def _means(self) -> NDArray[np.float64]:
        return np.asarray(self._items[self._shown] @ self._users[self._user], np.float64)


def _unit_rows(rng: np.random.Generator, rows: int, size: int) -> NDArray[np.float64]:
    drawn = rng.random((rows, size))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), np.float64)
