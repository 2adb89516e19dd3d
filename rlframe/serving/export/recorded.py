"""Observations of the environment that a policy acted on, and what it did: what an exported file has to do as well."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from rlframe.env.adapt import adapt_env
from rlframe.env.env_context import EnvContext
from rlframe.env.multi_agent_adapt import MultiAgentAdapter, is_multi_agent
from rlframe.env.wrappers.atari_wrappers import with_preprocessing
from rlframe.utils.errors import ConfigError
from rlframe.utils.seeding import derive_seed

_EPISODES, _STEPS = 3, 40
_SEED = 1


@dataclass(frozen=True)
class Step:
    """One step of an episode.

    Attributes:
        observation: As the environment gave it.
        reward: That of the action before; None at the first step.
        action: What the policy did, greedily.
    """

    observation: Any
    reward: float | None
    action: Any


def record(trainer: Any, policy_id: str, episodes: int = _EPISODES) -> list[list[Step]]:
    """Returns episodes, or their beginnings, of a policy that acts greedily.

    They are played in the trainer's environment; where it has none, observations are drawn from the space.

    Args:
        trainer: With weights.
        policy_id: Which policy; of several agents that it acts for, the first.
        episodes: How many.

    Raises:
        ConfigError: If it acts for no agent of the environment.
    """
    creator = with_preprocessing(trainer.env_creator, {**trainer.config, "in_evaluation": True})
    if creator is None:
        return [_from_space(trainer, policy_id, number) for number in range(episodes)]
    env: Any = creator(EnvContext(dict(trainer.config.get("env_config") or {})))
    several = is_multi_agent(env)
    env = MultiAgentAdapter(env) if several else adapt_env(env)
    play = _play_several if several else _play_one
    try:
        return [play(trainer, policy_id, env, derive_seed(_SEED, number)) for number in range(episodes)]
    finally:
        env.close()


def _from_space(trainer: Any, policy_id: str, number: int) -> list[Step]:
    space = trainer.get_policy(policy_id).observation_space
    space = copy.deepcopy(getattr(space, "original_space", space))
    space.seed(derive_seed(_SEED, number))
    actor, steps = trainer.make_actor(policy_id, explore=False), []
    for index in range(_STEPS):
        seen, reward = space.sample(), None if index == 0 else float(index % 3 - 1)
        steps.append(Step(seen, reward, actor.act(seen, reward)))
    return steps


def _play_one(trainer: Any, policy_id: str, env: Any, seed: int) -> list[Step]:
    actor, steps, reward = trainer.make_actor(policy_id, explore=False), [], None
    seen, _ = env.reset(seed=seed)
    for _ in range(_STEPS):
        given, action = copy.deepcopy(seen), actor.act(seen, reward)
        steps.append(Step(given, reward, copy.deepcopy(action)))
        seen, reward, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            break
    return steps


def _play_several(trainer: Any, policy_id: str, env: MultiAgentAdapter, seed: int) -> list[Step]:
    find = trainer.workers.local_worker().policy_mapping_fn
    seen, _ = env.reset(seed=seed)
    actors: dict[Any, Any] = {}
    rewards: dict[Any, float] = {}
    steps: list[Step] = []
    followed = None
    for _ in range(_STEPS):
        actions = {}
        for agent, observation in seen.items():
            if agent not in actors:
                mapped = find(agent)
                actors[agent] = trainer.make_actor(mapped, explore=False)
                followed = agent if followed is None and mapped == policy_id else followed
            given = copy.deepcopy(observation)
            reward = rewards.pop(agent, None)
            actions[agent] = actors[agent].act(observation, reward)
            if agent == followed:
                steps.append(Step(given, reward, copy.deepcopy(actions[agent])))
        seen, earned, terminated, truncated, _ = env.step(actions)
        rewards = {agent: rewards.get(agent, 0.0) + earned.get(agent, 0.0) for agent in {*rewards, *earned}}
        over = {agent for ends in (terminated, truncated) for agent, flag in ends.items() if flag}
        seen = {agent: part for agent, part in seen.items() if agent not in over}
        if "__all__" in over or not seen:
            break
    if not steps:
        raise ConfigError(f"export: the policy {policy_id!r} acts for no agent that the environment has; say another")
    return steps
