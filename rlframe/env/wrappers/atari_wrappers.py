"""Atari games as Mnih et al. 2015 saw them: skipped, pooled, grey, small, stacked frames, and lives as episodes.

Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods. Where it says nothing
(no-op starts, one life as one episode, pressing FIRE), the names and habits are those of RLlib 1.x.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlframe.config.common import CommonConfig
from rlframe.env.wrappers.any_contract import AnyContract
from rlframe.utils.errors import EnvError

Array = np.ndarray[Any, Any]
Reset = tuple[Any, dict[str, Any]]
Step = tuple[Any, Any, bool, bool, dict[str, Any]]

_NOOP, _FIRE = 0, 1
_COLOURS = 3


def is_atari(env: Any) -> bool:
    """Whether an environment is an Atari game that gives screens (not its 128 bytes of memory)."""
    shape = getattr(getattr(env, "observation_space", None), "shape", None)
    return shape is not None and len(shape) > 2 and hasattr(getattr(env, "unwrapped", None), "ale")


def get_wrapper_by_cls(env: Any, cls: type[Any]) -> Any:
    """Returns the outermost wrapper of a class around an environment, None if there is none."""
    current = env
    while current is not None:
        if isinstance(current, cls):
            return current
        current = getattr(current, "env", None)
    return None


def wrap_deepmind(env: Any, dim: int = 84, framestack: bool = True, episodic_life: bool = True) -> Any:
    """Returns an Atari game in the form in which it is learned.

    Rewards stay as they are: the config's `clip_rewards` clips what is learned from, and metrics count whole games.

    Args:
        env: The game, its observations screens `[210, 160, 3]`.
        dim: Height and width that screens are resized to, in pixels.
        framestack: Whether the last four frames are one observation: `[dim, dim, 4]` instead of `[dim, dim, 1]`.
        episodic_life: Whether losing a life ends an episode.
    """
    wrapped: Any = NoopResetEnv(MonitorEnv(env), noop_max=30)
    if hasattr(getattr(env.unwrapped, "ale", None), "getScreenGrayscale"):
        wrapped = GreyScreen(wrapped)
    if _shows_every_frame(env):
        wrapped = MaxAndSkipEnv(wrapped, skip=4)
    if episodic_life:
        wrapped = EpisodicLifeEnv(wrapped)
    if "FIRE" in env.unwrapped.get_action_meanings():
        wrapped = FireResetEnv(wrapped)
    wrapped = WarpFrame(wrapped, dim)
    return FrameStack(wrapped, 4) if framestack else wrapped


def with_preprocessing(creator: Callable[..., Any] | None, config: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Returns a creator whose Atari games are wrapped as the config's `preprocessor_pref` says.

    In evaluation a life is no episode: what is measured there is the return of whole games.

    Args:
        creator: Makes environments; None stays None.
        config: Of a worker: `preprocessor_pref`, `model.dim`, `model.framestack`, `in_evaluation`.
    """
    settings = CommonConfig.view(config)
    if creator is None or settings.preprocessor_pref != "deepmind":
        return creator
    make: Callable[..., Any] = creator
    model = settings.model

    def make_wrapped(context: Any) -> Any:
        env = make(context)
        if not _is_raw(env):
            return env
        return wrap_deepmind(
            env,
            dim=model.dim,
            framestack=model.framestack,
            episodic_life=not settings.in_evaluation,
        )

    return make_wrapped


def _is_raw(env: Any) -> bool:
    """Whether an environment is a game whose screens nobody has changed yet."""
    space: Any = getattr(env, "observation_space", None)
    return is_atari(env) and space.dtype == np.uint8 and len(space.shape) == 3 and space.shape[2] == _COLOURS


def _shows_every_frame(env: Any) -> bool:
    """Whether a game skips no frames of its own."""
    spec = getattr(env, "spec", None)
    named = spec is not None and "NoFrameskip" in spec.id
    return named or getattr(env.unwrapped, "_frameskip", None) == 1


class AtariWrapper(AnyContract, gymnasium.Wrapper[Any, Any, Any, Any]):
    """Base of the wrappers: around an environment of the old gym, they answer in its contract."""


class MonitorEnv(AtariWrapper):
    """Adds up the returns of whole games, whatever other wrappers make of them.

    Args:
        env: The game.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._current_reward: float | None = None
        self._num_steps = 0
        self._total_steps = 0
        self._results: list[tuple[float, int]] = []
        self._reported = 0

    def reset(self, **kwargs: Any) -> Reset:
        """Begins a game; one that was broken off does not count."""
        self._current_reward, self._num_steps = 0.0, 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Step:
        """Does one step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self._current_reward is not None:
            self._current_reward += float(reward)
            self._num_steps += 1
            self._total_steps += 1
            if terminated or truncated:
                self._results.append((self._current_reward, self._num_steps))
                self._current_reward = None
        return obs, reward, terminated, truncated, info

    def get_episode_rewards(self) -> list[float]:
        """Returns the returns of all games that have ended."""
        return [reward for reward, _ in self._results]

    def get_episode_lengths(self) -> list[int]:
        """Returns the frames of all games that have ended."""
        return [length for _, length in self._results]

    def get_total_steps(self) -> int:
        """Returns the frames so far."""
        return self._total_steps

    def next_episode_results(self) -> Iterator[tuple[float, int]]:
        """Yields return and frames of each game that has ended since this was last asked."""
        while self._reported < len(self._results):
            self._reported += 1
            yield self._results[self._reported - 1]


class NoopResetEnv(AtariWrapper):
    """Begins each game with a random number of steps in which nothing is done.

    Args:
        env: The game; its action 0 does nothing.
        noop_max: Most such steps, at least 1.
    """

    def __init__(self, env: Any, noop_max: int = 30) -> None:
        super().__init__(env)
        self.noop_max = noop_max
        self.override_num_noops: int | None = None
        if env.unwrapped.get_action_meanings()[_NOOP] != "NOOP":
            raise EnvError(f"action 0 of {env} is {env.unwrapped.get_action_meanings()[_NOOP]}, wanted NOOP")

    def reset(self, **kwargs: Any) -> Reset:
        """Begins a game and waits."""
        obs, info = self.env.reset(**kwargs)
        drawn = self.override_num_noops or _draw(self.unwrapped.np_random, self.noop_max)
        for _ in range(drawn):
            obs, _, terminated, truncated, info = self.env.step(_NOOP)
            if terminated or truncated:
                obs, info = self.env.reset(**{**kwargs, "seed": None})
        return obs, info


def _draw(rng: Any, most: int) -> int:
    """Returns a number from 1 to `most`; generators of the older gym have other names for that."""
    return int(rng.integers(1, most + 1) if hasattr(rng, "integers") else rng.randint(1, most + 1))


class GreyScreen(AtariWrapper):
    """Gives the screen in grey, as the emulator itself makes it: `[210, 160, 1]` uint8.

    Args:
        env: The game.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        shape = env.observation_space.shape[:2]
        self.observation_space = spaces.Box(0, 255, (*shape, 1), np.uint8)

    def reset(self, **kwargs: Any) -> Reset:
        """Begins a game."""
        _, info = self.env.reset(**kwargs)
        return self._screen(), info

    def step(self, action: Any) -> Step:
        """Does one step."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._screen(), reward, terminated, truncated, info

    def _screen(self) -> Array:
        game: Any = self.unwrapped
        screen: Array = game.ale.getScreenGrayscale()
        return screen[:, :, None]


class MaxAndSkipEnv(AtariWrapper):
    """Repeats each action, and gives the maximum of the last two frames: sprites are drawn in every other one.

    Args:
        env: The game.
        skip: Frames in which an action is repeated.
    """

    def __init__(self, env: Any, skip: int = 4) -> None:
        super().__init__(env)
        self._skip = skip

    def step(self, action: Any) -> Step:
        """Repeats an action and adds its rewards up."""
        frames: deque[Array] = deque(maxlen=2)
        info: dict[str, Any] = {}
        total, terminated, truncated = 0.0, False, False
        for _ in range(self._skip):
            frame, reward, terminated, truncated, info = self.env.step(action)
            frames.append(frame)
            total += float(reward)
            if terminated or truncated:
                break
        return np.max(np.stack(frames), axis=0), total, terminated, truncated, info


class EpisodicLifeEnv(AtariWrapper):
    """Ends an episode where a life is lost; the game itself goes on, so that all of its states are reached.

    Args:
        env: The game.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.lives = 0
        self.was_real_done = True

    def step(self, action: Any) -> Step:
        """Does one step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.was_real_done = terminated or truncated
        lives = self._count()
        if 0 < lives < self.lives:
            terminated = True
        self.lives = lives
        return obs, reward, terminated, truncated, info

    def reset(self, **kwargs: Any) -> Reset:
        """Begins a game, or goes on with the next life; a seed concerns games only."""
        if self.was_real_done:
            obs, info = self.env.reset(**kwargs)
        else:
            obs, _, terminated, truncated, info = self.env.step(_NOOP)
            if terminated or truncated:  # the life was the last after all
                obs, info = self.env.reset(**kwargs)
        self.was_real_done = False
        self.lives = self._count()
        return obs, info

    def _count(self) -> int:
        game: Any = self.unwrapped
        return int(game.ale.lives())


class FireResetEnv(AtariWrapper):
    """Presses FIRE after a reset, in games that stand still until then.

    Args:
        env: The game; its action 1 is FIRE.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        meanings = env.unwrapped.get_action_meanings()
        if len(meanings) <= _FIRE or meanings[_FIRE] != "FIRE":
            raise EnvError(f"{env} has the actions {', '.join(meanings)}, wanted FIRE as action 1")

    def reset(self, **kwargs: Any) -> Reset:
        """Begins an episode and presses FIRE, then the action after it, which starts some games."""
        self.env.reset(**kwargs)
        for action in (_FIRE, _FIRE + 1):
            obs, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                obs, info = self.env.reset(**{**kwargs, "seed": None})
        return obs, info


class ClipRewardEnv(AnyContract, gymnasium.RewardWrapper[Any, Any]):
    """Gives the sign of each reward."""

    def reward(self, reward: Any) -> float:
        """Returns -1, 0 or 1."""
        return float(np.sign(reward))


class WarpFrame(AnyContract, gymnasium.ObservationWrapper[Any, Any, Any]):
    """Resizes frames to a grey square, `[dim, dim, 1]` uint8.

    Args:
        env: Its frames are `[H, W, 3]` or grey, `[H, W, 1]`.
        dim: Height and width in pixels.

    Raises:
        EnvError: If OpenCV is not installed.
    """

    def __init__(self, env: Any, dim: int = 84) -> None:
        super().__init__(env)
        self.width = self.height = dim
        self.observation_space = spaces.Box(0, 255, (dim, dim, 1), np.uint8)
        try:
            import cv2
        except ImportError as error:
            raise EnvError('Atari frames are resized with OpenCV: pip install "rlframe[atari]"') from error
        self._cv2: Any = cv2

    def observation(self, frame: Any) -> Array:
        """Returns a frame resized, by the mean of the pixels that fall on each."""
        cv2 = self._cv2
        grey = frame[:, :, 0] if frame.shape[2] == 1 else cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
        small: Array = cv2.resize(grey, (self.width, self.height), interpolation=cv2.INTER_AREA)
        return small[:, :, None]


class FrameStack(AtariWrapper):
    """Gives the last k frames as one observation, the newest last: `[H, W, k·C]`.

    After a reset all k are the first frame.

    Args:
        env: Its frames are `[H, W, C]`.
        k: How many.
    """

    def __init__(self, env: Any, k: int) -> None:
        super().__init__(env)
        self.k = k
        self.frames: deque[Array] = deque(maxlen=k)
        space = env.observation_space
        height, width, channels = space.shape
        self.observation_space = spaces.Box(0, 255, (height, width, channels * k), space.dtype)

    def reset(self, **kwargs: Any) -> Reset:
        """Begins an episode."""
        frame, info = self.env.reset(**kwargs)
        self.frames.extend([frame] * self.k)
        return self._stacked(), info

    def step(self, action: Any) -> Step:
        """Does one step."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        self.frames.append(frame)
        return self._stacked(), reward, terminated, truncated, info

    def _stacked(self) -> Array:
        return np.concatenate(self.frames, axis=2)
