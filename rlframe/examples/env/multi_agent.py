"""Environments with several agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Discrete

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
        return {0: self.agents[0].observe()}

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
        return obs, dict.fromkeys(who, paid), {"__all__": over}, {}


class EarlyDoneMultiAgent(MultiAgentEnv):
    """Two agents that act in turn, of 3 and 5 steps; the episode is over when the first is through."""

    def __init__(self) -> None:
        self.agents = [MockEnv(3), MockEnv(5)]
        self.possible_agents = [0, 1]
        self.observation_space, self.action_space = Discrete(10), self.agents[0].action_space
        self.dones: set[int] = set()
        self.i = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins with agent 0."""
        del seed, options
        self.dones, self.i = set(), 0
        for agent in self.agents:
            agent.reset()
        return {0: self.agents[0].observe()}

    def step(self, action_dict: dict[Any, Any]) -> tuple[dict[Any, Any], ...]:
        """Takes the turn of one agent; the other sees what its last step paid, and nothing for its last one."""
        for agent, action in action_dict.items():
            self.agents[agent].step(action)
        self.i = 1 - self.i
        turn, env = self.i, self.agents[self.i]
        through = env.i >= env.episode_length
        if through:
            self.dones.add(turn)
        paid = 0.0 if through or not env.i else env.paid
        return {turn: env.observe()}, {turn: paid}, {turn: through, "__all__": bool(self.dones)}, {turn: {}}


class FlexAgentsMultiAgent(MultiAgentEnv):
    """Agents of 25 steps each that come and go: one begins, in a quarter of the steps one joins, in three one leaves.

    The last one stays. The episode is over when none is left.
    """

    def __init__(self) -> None:
        self.agents: dict[int, MockEnv] = {}
        self.agentID = 0
        self.observation_space, self.action_space = Discrete(2), Discrete(2)
        self.np_random = np.random.default_rng()

    def spawn(self) -> int:
        """Lets an agent join; returns its id."""
        joined, self.agentID = self.agentID, self.agentID + 1
        self.agents[joined] = MockEnv(25)
        self.agents[joined].reset()
        return joined

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins with one agent, which no episode before had."""
        del options
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.agents = {}
        first = self.spawn()
        return {first: self.agents[first].observe()}

    def step(self, action_dict: dict[Any, Any]) -> tuple[dict[Any, Any], ...]:
        """Steps who acts; then one may join, and one leave."""
        made = {agent: self.agents[agent].step(action) for agent, action in action_dict.items()}
        obs = {agent: m[0] for agent, m in made.items()}
        rewards = {agent: float(m[1]) for agent, m in made.items()}
        dones = {agent: m[2] for agent, m in made.items()}
        if self.np_random.random() > 0.75:
            joined = self.spawn()
            obs[joined], rewards[joined], dones[joined] = self.agents[joined].observe(), 0.0, False
        staying = [agent for agent in self.agents if not dones[agent]]
        if len(staying) > 1 and self.np_random.random() > 0.25:
            dones[int(self.np_random.choice(staying))] = True
        self.agents = {agent: env for agent, env in self.agents.items() if not dones[agent]}
        return obs, rewards, {**dones, "__all__": not self.agents}, {}


class MultiAgentDebugCounterEnv(MultiAgentEnv):
    """Agents with episodes of different lengths, whose actions come back in their observations.

    An observation is the agent's number, both numbers of its last action (0 at first), and its steps: float32 `[4]`.
    Rewards are 0, 1, 2, 0, ... An agent is through when it had more than `base_episode_len` plus its number of steps.

    Args:
        config: `num_agents`, `base_episode_len` (103).
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.num_agents = int(config["num_agents"])
        self.base_episode_len = int(config.get("base_episode_len", 103))
        self.action_space = Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = Box(-np.inf, np.inf, (4,), np.float32)
        self.possible_agents = list(range(self.num_agents))
        self.timesteps = [0] * self.num_agents
        self.dones: set[int] = set()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins with all agents."""
        del seed, options
        self.timesteps, self.dones = [0] * self.num_agents, set()
        return {agent: np.array([agent, 0.0, 0.0, 0.0], np.float32) for agent in self.possible_agents}

    def step(self, action_dict: dict[Any, Any]) -> tuple[dict[Any, Any], ...]:
        """Counts, for each agent that acts."""
        obs, rewards, dones = {}, {}, {}
        for agent, action in action_dict.items():
            self.timesteps[agent] += 1
            steps = self.timesteps[agent]
            obs[agent] = np.array([agent, action[0], action[1], steps], np.float32)
            rewards[agent] = float(steps % 3)
            dones[agent] = steps > self.base_episode_len + agent
        self.dones |= {agent for agent, done in dones.items() if done}
        return obs, rewards, {**dones, "__all__": len(self.dones) == self.num_agents}, {}
