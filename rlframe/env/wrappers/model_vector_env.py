"""Copies of an environment whose episodes begin in it, and go on in a learned model of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.env.contracts import check_reset_result
from rlframe.env.vector_env import VectorizedGymEnv
from rlframe.utils.errors import EnvError
from rlframe.utils.seeding import derive_seed

#: Observations that a model predicts are kept within ± this, and within their space.
LARGEST_OBSERVATION = 1000.0


def layer_with_reward(env: Any) -> Any:
    """Returns the outermost of an environment's layers that has `reward(obs, action, next_obs)`.

    Raises:
        EnvError: If none has.
    """
    for layer in _layers(env):
        # What Gymnasium's wrapper of rewards has under that name takes a reward.
        if not isinstance(layer, gym.RewardWrapper) and callable(getattr(type(layer), "reward", None)):
            return layer
    raise EnvError(
        f"got {env!r}, which has no reward(); wanted reward(obs, action, next_obs), which gives rewards [B] for rows "
        "[B, ...] of what a learned model predicts, and done(next_obs), [B], where episodes end: write them into the "
        "environment, as those of rlframe.examples.env.known_rewards do, or use an algorithm without a model, as PPO"
    )


def _layers(env: Any) -> Iterator[Any]:
    while env is not None:
        yield env
        env = getattr(env, "__dict__", {}).get("env")


def action_rows(space: Any, actions: Any) -> NDArray[np.float32]:
    """Returns actions of an environment as models and `reward` get them: one-hot those of Discrete spaces, `[B, A]`."""
    if isinstance(space, gym.spaces.Discrete):
        return np.eye(int(space.n), dtype=np.float32)[np.asarray(actions, np.int64) - int(space.start)]
    return np.asarray(actions, np.float32).reshape(len(actions), -1)


class ModelVectorEnv(VectorizedGymEnv):
    """Environments that are reset as they are, and stepped together by a learned model; see `layer_with_reward`.

    Args:
        make_env: `fn(index)` that makes one.
        num_envs: How many there shall be.
    """

    def __init__(self, make_env: Callable[[int], Any], num_envs: int) -> None:
        super().__init__(make_env, num_envs=num_envs)
        self._rules = layer_with_reward(self._envs[0])
        self._obs = np.zeros((num_envs, *self.observation_space.shape), self.observation_space.dtype)
        self._begun = [0] * num_envs
        self._seed: int | None = None
        self._model: Any = None

    def begin(self, model: Any, seed: int | None) -> None:
        """Takes what predicts from now on, by `next_obs(obs, action rows)`, and the seed of the coming resets."""
        self._model, self._seed, self._begun = model, seed, [0] * self.num_envs

    def reset_at(self, index: int | None = None) -> Any:
        """Resets the copy at `index` (0 if None) and returns its observation."""
        place = index or 0
        seed = None if self._seed is None else derive_seed(self._seed, place, self._begun[place])
        self._begun[place] += 1
        obs, _ = check_reset_result(self._envs[place].reset(seed=seed), f"reset() of copy {place}")
        self._obs[place] = obs
        return obs

    def vector_step(self, actions: list[Any]) -> tuple[list[Any], list[float], list[bool], list[dict[str, Any]]]:
        """Returns what the model predicts for all copies, and what these are worth."""
        obs, rows = self._obs, action_rows(self.action_space, actions)
        found = np.clip(self._model.next_obs(obs, rows), -LARGEST_OBSERVATION, LARGEST_OBSERVATION)
        self._obs = np.clip(found, self.observation_space.low, self.observation_space.high).astype(obs.dtype)
        rewards = np.asarray(self._rules.reward(obs, rows, self._obs), np.float64)
        ends = callable(getattr(self._rules, "done", None))
        dones = np.asarray(self._rules.done(self._obs) if ends else np.zeros(len(obs)), bool)
        for name, answer in (("reward", rewards), ("done", dones)):
            if answer.shape != (len(obs),):
                raise EnvError(
                    f"{name}() of {self._rules!r} returned the shape {answer.shape} for {len(obs)} rows; wanted "
                    f"({len(obs)},), a number for each"
                )
        return list(self._obs), rewards.tolist(), dones.tolist(), [{} for _ in rewards]

    def get_sub_environments(self) -> list[Any]:
        """Returns the environments, which need not be seeded: `begin` does."""
        return [_SeededByBegin(env) for env in super().get_sub_environments()]


class _SeededByBegin:
    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["env"], name)

    def seed(self, seed: int) -> None:
        """Does nothing."""
