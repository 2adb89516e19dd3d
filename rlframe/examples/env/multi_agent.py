"""Environments with several agents."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Discrete

from rlframe.env.multi_agent_env import MultiAgentEnv, _Copies, make_multi_agent
from rlframe.examples.env.toy_envs import MockEnv, MockEnv2


def _cartpole(config: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """Returns CartPole-v0, whose episodes end after 200 steps, without the warning that there is a v1."""
    return gymnasium.wrappers.TimeLimit(CartPoleEnv(render_mode=config.get("render_mode")), 200)


def _stateless(config: dict[str, Any]) -> CartPoleEnv:
    from rlframe.examples.env.stateless_cartpole import StatelessCartPole

    return StatelessCartPole(config)


MultiAgentCartPole = make_multi_agent(_cartpole)
MultiAgentMountainCar = make_multi_agent("MountainCarContinuous-v0")
MultiAgentPendulum = make_multi_agent("Pendulum-v1")
MultiAgentStatelessCartPole = make_multi_agent(_stateless)


class BasicMultiAgent(_Copies):
    """N agents with 25 steps each, which pay 1.

    Args:
        num: N, or a config with `num_agents`.
    """

    made_by = staticmethod(lambda config: MockEnv(25, config))

    def __init__(self, num: Any = 2) -> None:
        super().__init__({"num_agents": num} if isinstance(num, int) else num)
        self.observation_space = Discrete(2)


class RoundRobinMultiAgent(MultiAgentEnv):
    """N agents that act in turn; each has 5 steps, which pay 1, or 100 with `increment_obs`.

    Args:
        num: N.
        increment_obs: Whether agents see how many steps they had, instead of 0.
    """

    def __init__(self, num: int = 2, increment_obs: bool = False) -> None:
        self.agents = [(MockEnv2 if increment_obs else MockEnv)(5) for _ in range(num)]
        self.possible_agents = list(range(num))
        self.observation_space, self.action_space = Discrete(10), self.agents[0].action_space
        self._turn = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins with agent 0."""
        del seed, options
        self._turn = 0
        for agent in self.agents:
            agent.reset()
        return {0: self.agents[0].observe()}, {}

    def step(self, action_dict: dict[Any, Any]) -> tuple[dict[Any, Any], ...]:
        """Takes the turn of one agent; the next one sees that it is its turn, and what its last step paid."""
        done = [agent.i >= agent.episode_length for agent in self.agents]
        for agent, action in action_dict.items():
            done[agent] = self.agents[agent].step(action)[2]
        self._turn = (self._turn + 1) % len(self.agents)
        paid = self.agents[self._turn].paid if self.agents[self._turn].i else 0.0
        over = all(done)
        who = self.possible_agents if over else [self._turn]
        obs = {agent: self.agents[agent].observe() for agent in who}
        return obs, dict.fromkeys(who, paid), {"__all__": over}, {"__all__": False}, {}
