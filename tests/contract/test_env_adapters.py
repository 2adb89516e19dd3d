"""One environment, written for every contract that is understood, gives the same transitions through `adapt_env`."""

from __future__ import annotations

import math
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlframe.env import EnvContext, check_env, register_env, registry
from rlframe.env.adapt import OldGymAdapter, adapt_env, user_env
from rlframe.env.registry import resolve_env

MAX_STEPS = 30
HIGH = np.array([4.8, np.finfo(np.float32).max, 0.42, np.finfo(np.float32).max], np.float32)


class Pole:
    """The physics of a cart with a pole; knows nothing of environments."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def start(self) -> np.ndarray:
        self.steps = 0
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        return self.state.astype(np.float32)

    def move(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """Returns observation, reward, and whether the pole fell or the time is over."""
        _, x_dot, theta, theta_dot = self.state
        push = (10.0 if action == 1 else -10.0) + 0.05 * theta_dot**2 * math.sin(theta)
        turn = (9.8 * math.sin(theta) - math.cos(theta) * push / 1.1) / (
            0.5 * (4 / 3 - 0.1 * math.cos(theta) ** 2 / 1.1)
        )
        shove = (push - 0.05 * turn * math.cos(theta)) / 1.1
        self.state = self.state + 0.02 * np.array([x_dot, shove, theta_dot, turn])
        self.steps += 1
        fell = bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21)
        return self.state.astype(np.float32), 1.0, fell, not fell and self.steps >= MAX_STEPS


def make_gymnasium() -> Any:
    """Gymnasium's own contract."""

    class GymnasiumPole(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-HIGH, HIGH)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, config: Any = None) -> None:
            self.config, self.pole = config, Pole()

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            if seed is not None:
                self.pole.rng = np.random.default_rng(seed)
            return self.pole.start(), {}

        def step(self, action):
            return (*self.pole.move(action), {})

    return GymnasiumPole


class _OldStyle:
    """The contract of gym 0.21: a bare observation, four items, `seed()`."""

    def __init__(self, config: Any = None) -> None:
        self.config, self.pole = config, Pole()

    def seed(self, seed=None):
        self.pole.rng = np.random.default_rng(seed)
        return [seed]

    def reset(self):
        return self.pole.start()

    def step(self, action):
        obs, reward, fell, over_time = self.pole.move(action)
        return obs, reward, fell or over_time, {"TimeLimit.truncated": True} if over_time else {}


def make_gym_021_style() -> Any:
    """Spaces that only look like gym's, as where gym is not installed."""
    box = type("Box", (), {"low": -HIGH, "high": HIGH, "shape": (4,), "dtype": np.dtype("float32")})
    discrete = type("Discrete", (), {"n": 2})
    return type("OldPole", (_OldStyle,), {"observation_space": box(), "action_space": discrete()})


def import_gym() -> types.ModuleType:
    """Imports the real gym, which prints and warns of its age."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("gym")


def make_gym_026() -> Any:
    """A subclass of the real gym's Env with the contract of 0.26."""
    gym = import_gym()

    class GymPole(gym.Env):
        observation_space = gym.spaces.Box(-HIGH, HIGH, dtype=np.float32)
        action_space = gym.spaces.Discrete(2)

        def __init__(self, config: Any = None) -> None:
            self.config, self.pole = config, Pole()

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            if seed is not None:
                self.pole.rng = np.random.default_rng(seed)
            return self.pole.start(), {}

        def step(self, action):
            return (*self.pole.move(action), {})

    return GymPole


def make_gym_026_old_contract() -> Any:
    """A subclass of the real gym's Env and one of its wrappers, with the contract of 0.21."""
    gym = import_gym()
    spaces = {
        "observation_space": gym.spaces.Box(-HIGH, HIGH, dtype=np.float32),
        "action_space": gym.spaces.Discrete(2),
    }
    cls = type("OldGymPole", (_OldStyle, gym.Env), spaces)
    return lambda config: gym.Wrapper(cls(config))


def make_plain() -> Any:
    """No base class, Gymnasium's spaces, a seed by name, five items, no info at reset, lists of Python floats."""

    class PlainPole:
        def __init__(self, config: Any = None) -> None:
            self.config, self.pole = config, Pole()
            self.observation_space = gymnasium.spaces.Box(-HIGH, HIGH)
            self.action_space = gymnasium.spaces.Discrete(2)

        def reset(self, seed=None):
            if seed is not None:
                self.pole.rng = np.random.default_rng(seed)
            return self.pole.start().tolist()

        def step(self, action):
            obs, *rest = self.pole.move(action)
            return (obs.tolist(), *rest, {})

    return PlainPole


MAKERS = [make_gymnasium, make_gym_021_style, make_gym_026, make_gym_026_old_contract, make_plain]
all_kinds = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__.removeprefix("make_"))


def rollout(env: Any, seed: int, steps: int) -> list[tuple[Any, ...]]:
    """Returns transitions under a fixed sequence of actions, with resets between episodes."""
    actions = np.random.default_rng(0).integers(0, 2, steps)
    obs, info = env.reset(seed=seed)
    assert info == {}
    result: list[tuple[Any, ...]] = [tuple(np.asarray(obs, np.float32))]
    for action in actions:
        obs, reward, terminated, truncated, info = env.step(action)
        assert isinstance(info, dict)
        result.append((*np.asarray(obs, np.float32), reward, terminated, truncated))
        if terminated or truncated:
            result.append(tuple(np.asarray(env.reset()[0], np.float32)))
    return result


def balanced(env: Any, seed: int) -> list[tuple[bool, bool]]:
    """Returns the flags of an episode of a policy that keeps the pole up until the time is over."""
    obs, _ = env.reset(seed=seed)
    flags = []
    for _ in range(MAX_STEPS):
        obs, _, *ends, _ = env.step(int(obs[2] + obs[3] > 0))
        flags.append(tuple(ends))
    return flags


@pytest.fixture(autouse=True)
def _clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_creators", {})


@all_kinds
def test_transitions_any_contract_are_equal(make: Callable[[], Any]):
    want = rollout(make_gymnasium()(), seed=7, steps=100)
    assert rollout(adapt_env(make()({})), seed=7, steps=100) == want
    assert any(row[-2:] == (True, False) for row in want if len(row) == 7)


@all_kinds
def test_time_limit_any_contract_is_truncation(make: Callable[[], Any]):
    flags = balanced(adapt_env(make()({})), seed=3)
    assert flags == [(False, False)] * (MAX_STEPS - 1) + [(False, True)]


@all_kinds
def test_same_seed_any_contract_gives_same_episode(make: Callable[[], Any]):
    env = adapt_env(make()({}))
    assert rollout(env, seed=5, steps=20) == rollout(env, seed=5, steps=20)
    assert rollout(env, seed=6, steps=20) != rollout(env, seed=5, steps=20)


@all_kinds
def test_check_env_any_contract_passes(make: Callable[[], Any]):
    check_env(make()({}), num_steps=50)


@all_kinds
def test_spaces_any_contract_are_gymnasiums(make: Callable[[], Any]):
    env = adapt_env(make()({}))
    assert env.observation_space == gymnasium.spaces.Box(-HIGH, HIGH)
    assert env.action_space == gymnasium.spaces.Discrete(2)


@all_kinds
def test_registered_any_contract_gets_its_context_and_stays_reachable(make: Callable[[], Any]):
    register_env("pole", make())
    _, creator = resolve_env("pole")
    env = adapt_env(creator(EnvContext({"size": 2}, worker_index=1)))
    assert env.unwrapped.config == {"size": 2}
    assert env.unwrapped.config.worker_index == 1
    assert env.unwrapped.pole is not None


def test_only_gymnasiums_contract_is_not_wrapped():
    native = make_gymnasium()()
    assert adapt_env(native) is native
    for make in (make_gym_021_style, make_plain):
        env = make()()
        assert isinstance(adapt_env(env), OldGymAdapter)
        assert user_env(adapt_env(env)) is env


def test_id_of_the_real_gym_is_made_by_it():
    gym = import_gym()
    gym.register("OnlyInOldGym-v0", make_gym_026(), max_episode_steps=4)
    try:
        _, creator = resolve_env("OnlyInOldGym-v0")
        env = adapt_env(creator(EnvContext()))
    finally:
        del sys.modules["gym.envs.registration"].registry["OnlyInOldGym-v0"]
    env.reset(seed=1)
    assert [env.step(0)[2:4] for _ in range(4)] == [(False, False)] * 3 + [(False, True)]
