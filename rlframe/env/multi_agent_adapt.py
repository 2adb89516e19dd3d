"""Gives every environment with several agents one contract, checked, with the agent's id in every message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from rlframe.env.adapt import TIME_LIMIT_KEY
from rlframe.env.agent_dicts import ALL, finite_reward, pettingzoo_kind, spaces_by_agent
from rlframe.env.contracts import check_reward, reset_takes
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.env.wrappers.pettingzoo_env import ParallelPettingZooEnv, PettingZooEnv
from rlframe.utils.errors import EnvError
from rlframe.utils.spaces.observations import describe

StepDicts = tuple[dict[Any, Any], dict[Any, float], dict[Any, bool], dict[Any, bool], dict[Any, Any]]
_NEW = "(observations, rewards, terminateds, truncateds, infos)"
_OLD = "(observations, rewards, dones, infos)"
#: What `make` of gym and of Gymnasium puts around all that it makes, and that knows a single agent alone.
_CHECKS = ("PassiveEnvChecker", "OrderEnforcing")


def is_multi_agent(env: Any) -> bool:
    """Returns whether an environment has several agents: a `MultiAgentEnv`, or one of PettingZoo's."""
    env = _within_checks(env)
    return isinstance(env, MultiAgentEnv) or pettingzoo_kind(env) is not None


def _within_checks(env: Any) -> Any:
    """Returns an environment without the checks around it that `make` of gym and of Gymnasium adds."""
    while type(env).__name__ in _CHECKS and type(env).__module__.startswith(("gym.", "gymnasium.")):
        env = env.env
    return env


class MultiAgentAdapter:
    """An environment with several agents as the sampling loop sees it: dicts by agent, five of them at each step.

    - `reset()` may return observations, or observations and infos.
    - `step()` may return four dicts (`dones`) or five (`terminateds`, `truncateds`).
    - Of four, an agent's `done` counts as truncation if its info says `TimeLimit.truncated`, as for a single agent; so
      does that of `"__all__"` where an agent of the same step was cut off.
    - `"__all__"` must be among `terminateds` (or `dones`); it may be among `truncateds`.

    Args:
        env: A `MultiAgentEnv`, or an environment of PettingZoo's of either kind.

    Attributes:
        env: The environment as its creator returned it.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        env = _within_checks(env)
        kind = pettingzoo_kind(env)
        if kind is not None:
            env = (ParallelPettingZooEnv if kind == "parallel" else PettingZooEnv)(env)
        self._inner: Any = env
        self._takes_seed = reset_takes(env, "seed") is not None
        self.spec = None
        self.metadata = getattr(self.env, "metadata", None) or {"render_modes": []}

    @property
    def multi_agent_env(self) -> Any:
        """The environment as a `MultiAgentEnv`: PettingZoo's wrapped, another without what `make` put around it."""
        return self._inner

    @property
    def observation_space(self) -> Any:
        """One space for all agents, a dict of spaces by agent, or None where the environment says nothing."""
        return spaces_by_agent(self._inner, "observation_space")

    @property
    def action_space(self) -> Any:
        """One space for all agents, a dict of spaces by agent, or None where the environment says nothing."""
        return spaces_by_agent(self._inner, "action_space")

    @property
    def possible_agents(self) -> list[Any]:
        """Ids of all agents that may appear, where the environment knows them; else `[]`."""
        for name in ("possible_agents", "_agent_ids", "agents"):
            known = getattr(self._inner, name, None)
            if known:
                return list(known)
        spaces = self.observation_space
        return list(spaces) if isinstance(spaces, dict) else []

    def reset(self, *, seed: int | None = None) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Starts an episode; returns observations and infos by agent, none where nobody is there yet.

        Raises:
            EnvError: If the environment returned something else.
        """
        if self._takes_seed:
            result = self._inner.reset(seed=seed)
        else:
            seeder = getattr(self._inner, "seed", None)
            if callable(seeder) and seed is not None:
                seeder(seed)
            result = self._inner.reset()
        obs, infos = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
        if not isinstance(obs, Mapping) or not isinstance(infos, Mapping):
            raise EnvError(
                f"reset() returned {describe(result)}; wanted {{agent id: observation}}, or that and a dict of infos"
            )
        return dict(obs), dict(infos)

    def step(self, actions: dict[Any, Any]) -> StepDicts:
        """Lets the agents act; returns observations, rewards, terminateds, truncateds and infos by agent.

        Raises:
            EnvError: If the environment returned something else; names the agent.
        """
        result = self._inner.step(actions)
        result = tuple(result) if isinstance(result, list) else result
        if not isinstance(result, tuple) or len(result) not in (4, 5):
            shown = f"a tuple of length {len(result)}" if isinstance(result, tuple) else describe(result)
            raise EnvError(f"step() returned {shown}; wanted {_NEW}, or {_OLD}")
        names = (_NEW if len(result) == 5 else _OLD).strip("()").split(", ")
        for name, part in zip(names, result, strict=True):
            if not isinstance(part, Mapping):
                raise EnvError(f"step() returned {name} as {describe(part)}; wanted a dict by agent id")
        obs, rewards, ended, *rest = result
        if len(rest) == 1:
            ended, truncateds = _told_by_infos(ended, rest[0])
        else:
            truncateds = rest[0]
        infos = rest[-1]
        if ALL not in ended:
            raise EnvError(
                f'step() returned {names[2]} without "__all__"; wanted it: it says whether the episode is over'
            )
        return (
            dict(obs),
            # Those of turn-based games give None for an agent that has not acted yet.
            {
                agent: finite_reward(reward, agent)
                for agent, reward in rewards.items()
                if reward is not None or agent in actions
            },
            {agent: bool(flag) for agent, flag in ended.items()},
            {agent: bool(flag) for agent, flag in truncateds.items()},
            dict(infos),
        )

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Shows the environment."""
        return self.env.render(*args, **kwargs)

    def close(self) -> None:
        """Frees what the environment holds."""
        close = getattr(self.env, "close", None)
        if callable(close):
            close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.env, name)


def _told_by_infos(dones: Mapping[Any, Any], infos: Mapping[Any, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Returns who terminated and who was truncated, by `dones` and what the old gym's time limit writes into infos."""
    cut = {agent for agent, info in infos.items() if isinstance(info, Mapping) and info.get(TIME_LIMIT_KEY)}
    cut = {agent for agent in cut if dones.get(agent) or dones.get(ALL)}
    if cut and dones.get(ALL):
        cut.add(ALL)
    return {agent: flag and agent not in cut for agent, flag in dones.items()}, dict.fromkeys(cut, True)


class SingleAgentAsMany:
    """An environment with one agent, `agent0`, in the contract of several: for tables of policies on such a one.

    Args:
        env: The environment with Gymnasium's interface.
        agent_id: Id of its agent.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], agent_id: str) -> None:
        self.env = env
        self._agent = agent_id
        self.spec, self.metadata = env.spec, env.metadata
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.possible_agents = [agent_id]

    def reset(self, *, seed: int | None = None) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Starts an episode."""
        obs, info = self.env.reset(seed=seed)
        return {self._agent: obs}, {self._agent: info}

    def step(self, actions: dict[Any, Any]) -> StepDicts:
        """Lets the agent act."""
        obs, reward, terminated, truncated, info = self.env.step(actions[self._agent])
        agent = self._agent
        reward = check_reward(reward, f"step(): agent {agent!r}")
        return {agent: obs}, {agent: reward}, {ALL: bool(terminated)}, {ALL: bool(truncated)}, {agent: info}

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Shows the environment."""
        return self.env.render(*args, **kwargs)

    def close(self) -> None:
        """Frees what the environment holds."""
        self.env.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.env, name)
