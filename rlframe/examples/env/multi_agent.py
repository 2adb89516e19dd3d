"""Environments with several agents."""

from __future__ import annotations

from typing import Any

from gymnasium.envs.classic_control import CartPoleEnv

from rlframe.env.multi_agent_env import make_multi_agent

MultiAgentCartPole = make_multi_agent("CartPole-v1")
MultiAgentMountainCar = make_multi_agent("MountainCar-v0")
MultiAgentPendulum = make_multi_agent("Pendulum-v1")
MultiAgentStatelessCartPole = make_multi_agent(lambda config: _stateless(config))


def _stateless(config: dict[str, Any]) -> CartPoleEnv:
    from rlframe.examples.env.stateless_cartpole import StatelessCartPole

    return StatelessCartPole(config)
