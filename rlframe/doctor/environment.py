"""What keeps an environment from being learned, seen in random steps."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tree
from gymnasium import spaces
from numpy.typing import NDArray

from rlframe.doctor.finding import Finding, in_order
from rlframe.env.adapt import adapt_env
from rlframe.env.checks import check_env
from rlframe.evaluation.sampling.rollout import clip_rewards
from rlframe.utils.errors import EnvError, NonFiniteError

#: Mean sizes beyond which inputs saturate a tanh network, and rewards below or above which losses lose their scale.
LARGE_INPUT, SMALL_REWARD, LARGE_REWARD = 20.0, 1e-3, 1e3
#: Milliseconds of a step that are worth workers: inference and learning of small networks take about one.
SLOW_STEP_MS = 20.0
#: How much larger than another a reward is to be for their being clipped to one size to matter.
_HIDDEN_RATIO = 5.0
_COMPARED = 20
#: Most seconds of random steps, of an environment that is slow.
_MOST_S = 5.0


@dataclass(frozen=True)
class Steps:
    """What random steps of an environment gave.

    Attributes:
        observations: As the environment gives them, resets included.
        rewards: Float64 `[N]`.
        ended: Episodes that ended.
        step_ms: Median duration of `step()`.
    """

    observations: list[Any]
    rewards: NDArray[Any]
    ended: int
    step_ms: float


def examine_env(
    env: Any, *, num_steps: int = 2000, seed: int = 0, config: Mapping[str, Any] | None = None
) -> list[Finding]:
    """Returns what is likely to keep a policy from learning in an environment, what matters most first.

    The environment is stepped at random, and needs a reset afterwards. A slow one gets fewer steps.

    Args:
        env: Of one agent, as `check_env` takes it.
        num_steps: Random steps, in env steps.
        seed: Of resets and actions.
        config: Of the trainer that learns in it: `clip_rewards`, `horizon`, `observation_filter` and `normalize_values`
            are taken into account.
    """
    try:
        env = adapt_env(env)
        check_env(env, num_steps=_COMPARED, seed=seed)
        wanted = _affordable(take_steps(env, _COMPARED, seed).step_ms, num_steps)
        check_env(env, num_steps=wanted, seed=seed)
    except (EnvError, NonFiniteError) as error:
        return [Finding("invalid", str(error), "the environment", "docs/environments.md")]
    found = _unbounded_actions(env)
    if found:
        return found
    config, seen = config or {}, take_steps(env, wanted, seed)
    if wanted == num_steps and not config.get("horizon"):
        found += _ends(seen.ended, wanted)
    found += [*_rewards(seen.rewards, config), *_determinism(env, seed), *_speed(seen.step_ms)]
    if config.get("observation_filter", "NoFilter") == "NoFilter":
        found += _observations(env, seen.observations)
    return in_order(found)


def _affordable(step_ms: float, num_steps: int) -> int:
    return min(num_steps, max(_COMPARED, int(1e3 * _MOST_S / max(step_ms, 1e-3))))


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


def take_steps(env: Any, num_steps: int, seed: int, *, tail: int | None = None) -> Steps:
    """Returns what random steps give.

    Args:
        env: Adapted.
        num_steps: How many, in env steps.
        seed: Of the reset, and of the actions unless `tail` is given.
        tail: Seed of the actions.
    """
    actions = copy.deepcopy(env.action_space)
    actions.seed(seed if tail is None else tail)
    observation, _ = env.reset(seed=seed)
    observations, rewards, durations, ended = [observation], [], [], 0
    for _ in range(num_steps):
        action = actions.sample()
        begun = time.perf_counter()
        observation, reward, terminated, truncated, _ = env.step(action)
        durations.append(time.perf_counter() - begun)
        rewards.append(float(reward))
        observations.append(observation)
        if terminated or truncated:
            ended += 1
            observation, _ = env.reset()
            observations.append(observation)
    return Steps(observations, np.array(rewards), ended, 1e3 * float(np.median(durations)))


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


def _rewards(rewards: NDArray[Any], config: Mapping[str, Any]) -> Iterator[Finding]:
    if not rewards.any():
        text = f"all {len(rewards)} rewards of random actions were 0: nothing tells a better action"
        yield Finding("no_reward", text, "the reward: let it say more often what is better")
        return
    clipping = config.get("clip_rewards")
    if clipping is not None and clipping is not False:
        yield from hidden_by_clipping(rewards, clipping)
    elif not config.get("normalize_values"):
        yield from size_of_rewards(float(np.abs(rewards[rewards != 0]).mean()))


def size_of_rewards(size: float) -> Iterator[Finding]:
    """Yields what is wrong with rewards of this mean size."""
    if SMALL_REWARD <= size <= LARGE_REWARD:
        return
    name, word = ("small_rewards", "small") if size < SMALL_REWARD else ("large_rewards", "large")
    yield Finding(name, f"rewards are {word}: {size:.3g} on average", "the reward, scaled to about 1")


def hidden_by_clipping(rewards: NDArray[Any], how: bool | float) -> Iterator[Finding]:
    """Yields whether rewards that differ much are clipped to one size."""
    clipped = clip_rewards(rewards.astype(np.float32), how)
    limit = np.abs(clipped).max()
    alike = np.abs(rewards[np.abs(clipped) == limit])
    if limit and alike.max() >= _HIDDEN_RATIO * alike.min():
        text = f"rewards of {alike.min():.3g} and of {alike.max():.3g} are both clipped to {limit:.3g}"
        yield Finding("rewards_clipped", text, f"clip_rewards, now {how}: None, and rewards of about 1")


def _determinism(env: Any, seed: int) -> list[Finding]:
    """Equal seeds and actions, equal steps? And do other actions make other ones?"""
    first, again, other = (take_steps(env, _COMPARED, seed, tail=tail) for tail in (seed, seed, seed + 1))
    if not _same(first, again):
        text = f"{_COMPARED} steps with the same seed and actions differed"
        change = "draw from self.np_random in the environment, which reset(seed=) seeds"
        return [Finding("not_deterministic", text, change, "docs/environments.md")]
    if _same(first, other):
        text = f"other actions gave the same observations and rewards in all of {_COMPARED} steps"
        return [Finding("actions_without_effect", text, "step() of the environment: it must use the action")]
    return []


def _same(first: Steps, second: Steps) -> bool:
    if len(first.observations) != len(second.observations) or not np.array_equal(first.rewards, second.rewards):
        return False
    pairs = zip(first.observations, second.observations, strict=True)
    return all(np.array_equal(_flat(a), _flat(b)) for a, b in pairs)


def _speed(step_ms: float) -> Iterator[Finding]:
    if step_ms > SLOW_STEP_MS:
        text = f"a step takes {step_ms:.3g} ms: one process does {1e3 / step_ms:.3g} env steps a second"
        yield Finding("slow_env", text, "num_workers, larger; or a faster step()", "docs/cluster.md")


def _observations(env: Any, observations: list[Any]) -> list[Finding]:
    space = env.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:  # pictures are scaled, numbers of choices one-hot
        return []
    table = np.stack([_flat(observation) for observation in observations])
    sizes = np.abs(table).mean(axis=0)
    if sizes.max() > LARGE_INPUT:
        text = f"column {int(sizes.argmax())} of the observations is {sizes.max():.3g} on average; wanted about 1"
        return [Finding("large_observations", text, 'observation_filter: "MeanStdFilter"')]
    if not np.ptp(table, axis=0).any():
        text = f"no column of the observations changed in {len(table)} of them"
        return [Finding("constant_observations", text, "what the environment observes", "docs/environments.md")]
    return []
