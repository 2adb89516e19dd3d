"""Small environments that show one thing each: memory, nested spaces, images, known returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import tree
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from rlframe.env.vector_env import VectorEnv
from rlframe.utils.errors import EnvError
from rlframe.utils.spaces.old_gym import known_to_both
from rlframe.utils.spaces.space_utils import get_base_struct_from_space

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class SimpleCorridor(gymnasium.Env[Any, Any]):
    """Walk to the right end: 0 goes left, 1 right; the end pays 1.

    Args:
        config: `corridor_length` (10).
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.action_space, self.observation_space = Discrete(2), Box(0.0, 999.0, (1,), np.float32)
        self.set_corridor_length(int((config or {}).get("corridor_length", 10)))
        self.cur_pos = 0

    def set_corridor_length(self, length: int) -> None:
        """Sets where the end is."""
        self.end_pos = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins at the left end."""
        super().reset(seed=seed, options=options)
        self.cur_pos = 0
        return np.array([self.cur_pos], np.float32), {}

    def step(self, action: Any) -> Step:
        """Goes left, if there is a left, or right."""
        self.cur_pos = max(self.cur_pos - 1, 0) if action == 0 else self.cur_pos + 1
        done = self.cur_pos >= self.end_pos
        return np.array([self.cur_pos], np.float32), 1.0 if done else 0.0, done, False, {}


class CorridorWithCosts(SimpleCorridor):
    """The corridor of RLlib's custom_env.py: each step costs 0.1, and the end pays up to 2, at random.

    Args:
        config: `corridor_length` (5).
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__({"corridor_length": 5, **(config or {})})
        self.observation_space = Box(0.0, self.end_pos, (1,), np.float32)

    def step(self, action: Any) -> Step:
        """Goes left, if there is a left, or right."""
        obs, _, done, truncated, info = super().step(action)
        return obs, 2.0 * float(self.np_random.random()) if done else -0.1, done, truncated, info


class GPURequiringEnv(SimpleCorridor):
    """A corridor that can be made only where Ray has given a GPU to the process: by `num_gpus_per_worker`, `num_gpus`.

    Args:
        config: `corridor_length`.

    Raises:
        EnvError: If there is no GPU.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(config)
        import ray  # noqa: TID251  this asks Ray

        if not (ray.is_initialized() and ray.get_gpu_ids()):  # the question alone would start Ray
            raise EnvError(
                "GPURequiringEnv: Ray has given this process no GPU; set num_gpus_per_worker, or, for an environment "
                "in the driver, num_gpus"
            )


class RepeatInitialObsEnv(gymnasium.Env[Any, Any]):
    """Shows a token at the start of an episode, 0 after it; each step pays 1 for the token as action, -1 otherwise.

    Args:
        episode_len: Steps of an episode.
    """

    def __init__(self, episode_len: Any = 100) -> None:
        self.observation_space = self.action_space = Discrete(2)
        self.episode_len = episode_len if isinstance(episode_len, int) else 100
        self.token, self.num_steps = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Shows the token."""
        super().reset(seed=seed, options=options)
        self.token, self.num_steps = int(self.np_random.integers(2)), 0
        return self.token, {}

    def step(self, action: Any) -> Step:
        """Compares the action with the token."""
        self.num_steps += 1
        return 0, 1.0 if action == self.token else -1.0, self.num_steps >= self.episode_len, False, {}


class NestedSpaceRepeatAfterMeEnv(gymnasium.Env[Any, Any]):
    """Repeat the observation as the action: +1 for each Discrete part that is right, minus the distance for Boxes.

    Args:
        config: `space` of both (a Tuple of a Discrete and a Dict), `episode_len` (100).
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = dict(config or {})
        default = Tuple([Discrete(2), Dict({"a": Box(-1.0, 1.0, (2,), np.float32)})])
        self.observation_space = self.action_space = known_to_both(options.get("space", default))
        self.episode_len = int(options.get("episode_len", 100))
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self._next(), {}

    def step(self, action: Any) -> Step:
        """Compares the action with the last observation."""
        self.steps += 1
        spaces = tree.flatten(get_base_struct_from_space(self.observation_space))
        reward = 0.0
        for space, got, wanted in zip(spaces, tree.flatten(action), tree.flatten(self.current_obs), strict=True):
            if isinstance(space, Box):
                reward -= float(np.abs(np.asarray(got) - wanted).sum())
            elif isinstance(space, Discrete):
                reward += float(got == wanted)
        return self._next(), reward, self.steps >= self.episode_len, False, {}

    def _next(self) -> Any:
        self.current_obs = self.observation_space.sample()
        return self.current_obs


class LookAndPush(gymnasium.Env[Any, Any]):
    """Five states; the last pays 10 for the action that a look at state 0 or 1 has told, and -10 for the other.

    In state 2, 0 looks (state 0 or 1 is shown); 1 goes on. Each step before the last costs 1.
    """

    def __init__(self, config: Any = None) -> None:
        del config
        self.action_space, self.observation_space = Discrete(2), Discrete(5)
        self._state, self._case = 2, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins in state 2."""
        super().reset(seed=seed, options=options)
        self._state, self._case = 2, int(self.np_random.integers(2))
        return self._state, {}

    def step(self, action: Any) -> Step:
        """Looks, goes on, or decides."""
        if self._state == 4:
            return 4, 10.0 if action and self._case else -10.0, True, False, {}
        if action:
            self._state = 2 if self._state == 0 else self._state + 1
        elif self._state == 2:
            self._state = self._case
        return self._state, -1.0, False, False, {}


class OneHot(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Discrete observations as vectors with a one."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = Box(0.0, 1.0, (int(env.observation_space.n),), np.float32)

    def observation(self, observation: Any) -> Any:
        """Returns the vector."""
        return np.eye(len(self.observation_space.sample()), dtype=np.float32)[observation]


class FastImageEnv(gymnasium.Env[Any, Any]):
    """Black images [84, 84, 4], which cost nothing to make; 1 a step, 1,001 steps.

    Args:
        config: Not used.
    """

    def __init__(self, config: Any = None) -> None:
        del config
        self.observation_space = Box(0.0, 1.0, (84, 84, 4), np.float32)
        self.action_space = Discrete(2)
        self._image, self._steps = np.zeros((84, 84, 4), np.float32), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed, options=options)
        self._steps = 0
        return self._image, {}

    def step(self, action: Any) -> Step:
        """Counts."""
        del action
        self._steps += 1
        return self._image, 1.0, self._steps > 1000, False, {}


class DebugCounterEnv(gymnasium.Env[Any, Any]):
    """Shows how many steps there were; rewards are 0, 1, 2, 0, ...; 15 steps.

    Args:
        config: `start_at_t`, the first count (0).
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.action_space, self.observation_space = Discrete(2), Box(0.0, 100.0, (1,), np.float32)
        self.start_at_t = int((config or {}).get("start_at_t", 0))
        self.i = self.start_at_t

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins to count."""
        super().reset(seed=seed, options=options)
        self.i = self.start_at_t
        return np.array([self.i], np.float32), {}

    def step(self, action: Any) -> Step:
        """Counts."""
        del action
        self.i += 1
        return np.array([self.i], np.float32), float(self.i % 3), self.i >= 15 + self.start_at_t, False, {}


class MockEnv(gymnasium.Env[Any, Any]):
    """Pays 1 at each of a known number of steps.

    Args:
        episode_length: Steps of an episode.
        config: Not used.
    """

    #: What a step pays.
    paid = 1.0

    def __init__(self, episode_length: int, config: Any = None) -> None:
        del config
        self.episode_length, self.i = episode_length, 0
        self.observation_space, self.action_space = Discrete(1), Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed, options=options)
        self.i = 0
        return self.observe(), {}

    def step(self, action: Any) -> Step:
        """Counts."""
        del action
        self.i += 1
        return self.observe(), self.paid, self.i >= self.episode_length, False, {}

    def observe(self) -> int:
        """Returns the observation."""
        return 0


class MockEnv2(MockEnv):
    """Shows the number of steps, and pays 100 at each."""

    paid = 100.0

    def __init__(self, episode_length: int, config: Any = None) -> None:
        super().__init__(episode_length, config)
        self.observation_space = Discrete(episode_length + 1)
        self.rng_seed: int | None = None

    def seed(self, rng_seed: int | None = None) -> None:
        """Keeps the seed, so that it can be looked at."""
        self.rng_seed = rng_seed

    def observe(self) -> int:
        """Returns the number of steps."""
        return self.i


class MockEnv3(MockEnv):
    """Shows the number of steps, and pays it; so does `timestep` in the infos.

    Args:
        episode_length: Steps of an episode.
        config: Not used.
    """

    def __init__(self, episode_length: int, config: Any = None) -> None:
        super().__init__(episode_length, config)
        self.observation_space = Discrete(100)

    def step(self, action: Any) -> Step:
        """Counts."""
        obs, _, done, truncated, _ = super().step(action)
        return obs, float(self.i), done, truncated, {"timestep": self.i}

    def observe(self) -> int:
        """Returns the number of steps."""
        return self.i


class VectorizedMockEnv(VectorEnv):
    """Several MockEnvs, stepped by one call.

    Args:
        episode_length: Steps of an episode.
        num_envs: How many.
    """

    def __init__(self, episode_length: int, num_envs: int) -> None:
        super().__init__(Discrete(1), Discrete(2), num_envs)
        self.envs = [MockEnv(episode_length) for _ in range(num_envs)]

    def vector_reset(self) -> list[Any]:
        """Resets all of them."""
        return [env.reset()[0] for env in self.envs]

    def reset_at(self, index: int | None = None) -> Any:
        """Resets one of them."""
        return self.envs[index or 0].reset()[0]

    def vector_step(self, actions: list[Any]) -> tuple[list[Any], list[float], list[bool], list[dict[str, Any]]]:
        """Steps all of them."""
        made = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        return [m[0] for m in made], [m[1] for m in made], [m[2] for m in made], [m[4] for m in made]

    def get_sub_environments(self) -> list[Any]:
        """Returns the single ones."""
        return list(self.envs)


class MockVectorEnv(VectorEnv):
    """One CartPole that takes the actions of several environments, one after the other.

    It shows that a `VectorEnv` needs no single environments below it. Where the pole falls, or after `episode_length`
    calls, all environments end.

    Args:
        episode_length: Calls of an episode.
        mocked_num_envs: How many environments it looks like.
    """

    def __init__(self, episode_length: int, mocked_num_envs: int) -> None:
        self.env: gymnasium.Env[Any, Any] = CartPoleEnv()
        super().__init__(self.env.observation_space, self.env.action_space, mocked_num_envs)
        self.episode_len, self.ts = episode_length, 0
        self._seed: int | None = None

    def seed(self, seed: int | None = None) -> None:
        """Seeds the one, at its next reset."""
        self._seed = seed

    def vector_reset(self) -> list[Any]:
        """Resets the one."""
        return [self.reset_at()] * self.num_envs

    def reset_at(self, index: int | None = None) -> Any:
        """Resets the one, whichever is asked for."""
        del index
        self.ts = 0
        seed, self._seed = self._seed, None
        return self.env.reset(seed=seed)[0]

    def vector_step(self, actions: list[Any]) -> tuple[list[Any], list[float], list[bool], list[dict[str, Any]]]:
        """Steps the one by each action, until it ends; what is left gets its last observation."""
        self.ts += 1
        made: list[tuple[Any, float, bool, dict[str, Any]]] = []
        for action in actions:
            obs, reward, fallen, _, info = self.env.step(action)
            made.append((obs, float(reward), fallen or self.ts >= self.episode_len, info))
            if made[-1][2]:
                break
        made += [made[-1]] * (self.num_envs - len(made))
        return [m[0] for m in made], [m[1] for m in made], [m[2] for m in made], [m[3] for m in made]

    def get_sub_environments(self) -> list[Any]:
        """Returns the one, once for each."""
        return [self.env] * self.num_envs
