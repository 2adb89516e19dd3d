"""Environments with several agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

from rlframe.env.multi_agent_env import MultiAgentDict, MultiAgentEnv


def make_multi_agent(env_name_or_creator: str | Callable[..., Any]) -> type[MultiAgentEnv]:
    """Returns a `MultiAgentEnv` class of N independent copies of an environment.

    An agent whose copy has ended is through; the episode is over when all are.

    Args:
        env_name_or_creator: A Gymnasium id, or a function from the environment's config to an environment.

    Returns:
        A class whose config has `num_agents` (1), the agents being numbered from 0; the rest is for the copies.
    """
    creator = env_name_or_creator if isinstance(env_name_or_creator, str) else staticmethod(env_name_or_creator)
    return type("MultiEnv", (_Copies,), {"made_by": creator, "__doc__": _Copies.__doc__})


class _Copies(MultiAgentEnv):
    """N copies of an environment side by side."""

    #: A Gymnasium id, or a function from the environment's config to an environment.
    made_by: Any = None

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = dict(config or {})
        count = int(options.pop("num_agents", 1))
        self.agents = [self._make(options) for _ in range(count)]
        self._agent_ids = list(range(count))
        self.observation_space = self.agents[0].observation_space
        self.action_space = self.agents[0].action_space
        self.terminateds: set[int] = set()
        self.truncateds: set[int] = set()

    def _make(self, options: dict[str, Any]) -> Any:
        made_by = type(self).made_by
        return gymnasium.make(made_by, **options) if isinstance(made_by, str) else made_by(options)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts all copies."""
        del options
        self.terminateds, self.truncateds = set(), set()
        started = [env.reset(seed=None if seed is None else seed + index) for index, env in enumerate(self.agents)]
        return {index: obs for index, (obs, _) in enumerate(started)}, {
            index: info for index, (_, info) in enumerate(started)
        }

    def step(self, action_dict: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Steps the copies of the agents that act."""
        obs, rewards, terminateds, truncateds, infos = {}, {}, {}, {}, {}
        for index, action in action_dict.items():
            made = self.agents[index].step(action)
            obs[index], rewards[index], terminateds[index], truncateds[index], infos[index] = made
            if terminateds[index]:
                self.terminateds.add(index)
            if truncateds[index]:
                self.truncateds.add(index)
        over = len(self.terminateds | self.truncateds) == len(self.agents)
        # Where the last of them were cut off, so is the episode.
        terminateds["__all__"] = over and not self.truncateds
        truncateds["__all__"] = over and bool(self.truncateds)
        return obs, rewards, terminateds, truncateds, infos

    def render(self, mode: str | None = None) -> Any:
        """Shows the first copy."""
        del mode
        return self.agents[0].render()

    def close(self) -> None:
        """Closes all copies."""
        for env in self.agents:
            env.close()


MultiAgentCartPole = make_multi_agent("CartPole-v1")
MultiAgentMountainCar = make_multi_agent("MountainCar-v0")
MultiAgentPendulum = make_multi_agent("Pendulum-v1")
MultiAgentStatelessCartPole = make_multi_agent(lambda config: _stateless(config))


def _stateless(config: dict[str, Any]) -> CartPoleEnv:
    from rlframe.examples.env.stateless_cartpole import StatelessCartPole

    return StatelessCartPole(config)
