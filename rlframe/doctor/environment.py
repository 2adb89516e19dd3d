"""What keeps an environment from being learned, seen in random steps."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import tree
from gymnasium import spaces

from rlframe.doctor.finding import Finding
from rlframe.env.adapt import adapt_env
from rlframe.env.checks import check_env
from rlframe.utils.errors import EnvError, NonFiniteError

#: Mean sizes beyond which inputs saturate a tanh network, and rewards below or above which losses lose their scale.
_LARGE_INPUT, _SMALL_REWARD, _LARGE_REWARD = 20.0, 1e-3, 1e3
_COMPARED = 20


def examine_env(env: Any, *, num_steps: int = 2000, seed: int = 0) -> list[Finding]:
    """Returns what is likely to keep a policy from learning in an environment, what matters most first.

    The environment is stepped at random, and needs a reset afterwards.

    Args:
        env: Of one agent, as `check_env` takes it.
        num_steps: Random steps, in env steps.
        seed: Of resets and actions.
    """
    try:
        env = adapt_env(env)
        check_env(env, num_steps=num_steps, seed=seed)
    except (EnvError, NonFiniteError) as error:
        return [Finding("invalid", str(error), "the environment", "docs/environments.md")]
    found = _unbounded_actions(env)
    if found:
        return found
    observations, rewards, ended = _steps(env, num_steps, seed)
    found += _ends(ended, num_steps)
    found += _rewards(rewards)
    found += _determinism(env, seed)
    found += _observations(env, observations)
    return found


def _unbounded_actions(env: Any) -> list[Finding]:
    leaves = tree.flatten(env.action_space) if isinstance(env.action_space, (dict, tuple)) else [env.action_space]
    boxes = [leaf for leaf in leaves if isinstance(leaf, spaces.Box)]
    if all(box.is_bounded() for box in boxes):
        return []
    return [
        Finding(
            "unbounded_actions",
            f"the action space is {env.action_space}: normalize_actions has no bounds to map actions to",
            "the bounds of the action space, finite",
            "docs/environments.md",
        )
    ]


def _flat(observation: Any) -> Any:
    parts = [np.asarray(leaf, np.float64).ravel() for leaf in tree.flatten(observation)]
    return np.concatenate(parts)


def _steps(env: Any, num_steps: int, seed: int, *, tail: int | None = None) -> tuple[list[Any], Any, int]:
    """Returns the observations, rewards `[num_steps]` and number of ends of random steps."""
    actions = copy.deepcopy(env.action_space)
    actions.seed(seed if tail is None else tail)
    observation, _ = env.reset(seed=seed)
    observations, rewards, ended = [observation], [], 0
    for _ in range(num_steps):
        observation, reward, terminated, truncated, _ = env.step(actions.sample())
        rewards.append(float(reward))
        observations.append(observation)
        if terminated or truncated:
            ended += 1
            observation, _ = env.reset()
            observations.append(observation)
    return observations, np.array(rewards), ended


def _ends(ended: int, num_steps: int) -> list[Finding]:
    if ended:
        return []
    return [
        Finding(
            "no_end",
            f"no episode ended in {num_steps} random steps",
            "horizon, or terminated and truncated in the environment; longer episodes: look at more --steps",
        )
    ]


def _rewards(rewards: Any) -> list[Finding]:
    if np.ptp(rewards) == 0 and rewards[0] == 0:
        text = f"all {len(rewards)} rewards of random actions were 0: nothing tells a better action"
        return [Finding("no_reward", text, "the reward: let it say more often what is better")]
    size = float(np.abs(rewards[rewards != 0]).mean())
    if _SMALL_REWARD <= size <= _LARGE_REWARD:
        return []
    name, word = ("small_rewards", "small") if size < _SMALL_REWARD else ("large_rewards", "large")
    return [Finding(name, f"rewards are {word}: {size:.3g} on average", "the reward, scaled to about 1")]


def _determinism(env: Any, seed: int) -> list[Finding]:
    """Equal seeds and actions, equal steps? And do other actions make other ones?"""
    first, again, other = (_steps(env, _COMPARED, seed, tail=tail) for tail in (seed, seed, seed + 1))
    if not _same(first, again):
        text = f"{_COMPARED} steps with the same seed and actions differed"
        change = "draw from self.np_random in the environment, which reset(seed=) seeds"
        return [Finding("not_deterministic", text, change, "docs/environments.md")]
    if _same(first, other):
        text = f"other actions gave the same observations and rewards in all of {_COMPARED} steps"
        return [Finding("actions_without_effect", text, "step() of the environment: it must use the action")]
    return []


def _same(first: tuple[list[Any], Any, int], second: tuple[list[Any], Any, int]) -> bool:
    if len(first[0]) != len(second[0]) or not np.array_equal(first[1], second[1]):
        return False
    return all(np.array_equal(_flat(a), _flat(b)) for a, b in zip(first[0], second[0], strict=True))


def _observations(env: Any, observations: list[Any]) -> list[Finding]:
    space = env.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:  # pictures are scaled, numbers of choices one-hot
        return []
    table = np.stack([_flat(observation) for observation in observations])
    sizes = np.abs(table).mean(axis=0)
    if sizes.max() > _LARGE_INPUT:
        text = f"column {int(sizes.argmax())} of the observations is {sizes.max():.3g} on average; wanted about 1"
        return [Finding("large_observations", text, 'observation_filter: "MeanStdFilter"')]
    if not np.ptp(table, axis=0).any():
        text = f"no column of the observations changed in {len(table)} of them"
        return [Finding("constant_observations", text, "what the environment observes", "docs/environments.md")]
    return []
