"""What keeps a trainer from learning, seen in its networks and environment while its policy acts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.doctor.environment import examine_env, hidden_by_clipping
from rlframe.doctor.finding import Finding, in_order
from rlframe.doctor.run import Results, examine_results
from rlframe.doctor.units import units_without_effect
from rlframe.env.adapt import adapt_env
from rlframe.env.env_context import EnvContext
from rlframe.env.wrappers.atari_wrappers import with_preprocessing
from rlframe.serving.export.recorded import Step, record
from rlframe.utils.errors import ConfigError, EnvError, NonFiniteError, describe_error

_ACTED_STEPS = 500
#: Episodes that each of several policies is seen in.
_EPISODES = 5
#: What random steps say, and results of the whole run say better.
_KNOWN_FROM_RESULTS = frozenset({"no_end", "no_reward", "small_rewards"})


def examine_trainer(
    trainer: Any, results: Results, *, num_steps: int = 2000, config: Mapping[str, Any] | None = None
) -> list[Finding]:
    """Returns what is likely to keep a trainer from learning, what matters most first.

    Beside what `examine_results` sees, an environment of its own is stepped at random and by the policy, and units of
    its networks are counted. Of several agents each policy acts, and nothing is stepped at random. External
    environments, and models of a program's own, are left out.

    Args:
        trainer: Built, with weights; it is not changed.
        results: Of its `train()`, oldest first; at least one.
        num_steps: Random steps, in env steps.
        config: That it trained with, where it was built with another one; None is the trainer's own.

    Raises:
        EnvError: If its environment cannot be made.
    """
    config = trainer.config if config is None else config
    found = examine_results(results, config)
    env = _own_env(trainer)
    if env is None:
        return in_order([*found, *_of_several(trainer)])
    try:
        of_env = examine_env(env, num_steps=num_steps, config=config)
        if results[-1].get("episodes_total"):
            of_env = [finding for finding in of_env if finding.name not in _KNOWN_FROM_RESULTS]
        if not any(finding.name == "invalid" for finding in of_env):
            of_env += examine_policy(trainer, env, config)
    finally:
        env.close()
    return in_order([*found, *of_env])


def examine_policy(trainer: Any, env: Any, config: Mapping[str, Any]) -> list[Finding]:
    """Returns what shows while a trainer's policy acts: units without effect, rewards clipped to one size.

    Args:
        trainer: With weights.
        env: Of one agent; stepped.
        config: That it trained with.
    """
    episodes, rewards = _act(trainer, env)
    clipping = config.get("clip_rewards")
    found = units_without_effect(trainer.get_policy(), episodes, trainer.how_rewards_are_clipped())
    if clipping is not None and clipping is not False and rewards.any():
        found += hidden_by_clipping(rewards, clipping)
    return found


def _of_several(trainer: Any) -> list[Finding]:
    """Returns what shows while each of several policies acts greedily; nothing of external environments."""
    found: list[Finding] = []
    if trainer.env_creator is None:
        return found
    for policy_id, policy in trainer.workers.local_worker().policy_map.items():
        try:
            episodes = record(trainer, policy_id, _EPISODES)
        except (ConfigError, EnvError, NonFiniteError):  # acts for nobody, in no such environment, or is NaN
            continue
        units = units_without_effect(policy, episodes, trainer.how_rewards_are_clipped())
        found += [replace(each, evidence=f"{policy_id}: {each.evidence}", policy=policy_id) for each in units]
    return found


def _own_env(trainer: Any) -> Any:
    """Returns an environment of the trainer's, adapted; None where it is none of one agent."""
    local = trainer.workers.local_worker()
    if trainer.env_creator is None or "default_policy" not in local.policy_map:
        return None
    try:
        creator: Any = with_preprocessing(trainer.env_creator, {**trainer.config, "in_evaluation": True})
        made = creator(EnvContext(dict(trainer.config.get("env_config") or {})))
    except Exception as error:
        raise EnvError(f"the environment cannot be made: {describe_error(error)}") from error
    try:
        return adapt_env(made)
    except (ConfigError, EnvError):  # vectorised, external, of several agents: its fault would have shown in training
        return None


def _act(trainer: Any, env: Any) -> tuple[list[list[Step]], NDArray[Any]]:
    """Returns the episodes of the policy, the last one cut, and the raw rewards, float64 `[N]`."""
    actor = trainer.make_actor()
    observation, _ = env.reset(seed=0)
    actor.reset()
    episodes: list[list[Step]] = [[]]
    rewards: list[float] = []
    reward: float | None = None
    for _ in range(_ACTED_STEPS):
        try:
            action = actor.act(copy.deepcopy(observation), reward)
            episodes[-1].append(Step(copy.deepcopy(observation), reward, action))
            observation, step_reward, terminated, truncated, _ = env.step(action)
        except NonFiniteError:  # weights that are NaN: the results tell
            break
        reward = float(step_reward)
        rewards.append(reward)
        if terminated or truncated:
            observation, _ = env.reset()
            actor.reset()
            reward = None
            episodes.append([])
    return [episode for episode in episodes if episode], np.array(rewards)
