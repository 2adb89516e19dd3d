"""PettingZoo's environments as `MultiAgentEnv`s; environments given to a trainer are wrapped by itself.

Programs that step them by hand get what the environment gives: one of PettingZoo's contract since 1.22 infos from
`reset()` and five dicts from `step()`, one of the contract before observations alone and four (`dones`), as in RLlib.
"""

from __future__ import annotations

from typing import Any

from rlframe.env.contracts import reset_takes
from rlframe.env.multi_agent_env import MultiAgentDict, MultiAgentEnv
from rlframe.utils.spaces.old_gym import known_to_both

_ALL = "__all__"


def _only(spaces: MultiAgentDict) -> Any:
    """Returns the space that all agents share; None where they have several."""
    first = next(iter(spaces.values()), None)
    return first if all(space == first for space in spaces.values()) else None


def _spaces(env: Any, kind: str) -> MultiAgentDict:
    """Returns the spaces by agent of `kind`, "observation_space" or "action_space"; up to PettingZoo 1.10 a dict."""

    def space_of(agent: Any) -> Any:
        tells = getattr(env, kind, None)
        return getattr(env, f"{kind}s")[agent] if tells is None else tells(agent)

    return {agent: known_to_both(space_of(agent)) for agent in env.possible_agents}


def _ends(env: Any, agent: Any) -> tuple[bool, bool]:
    """Returns whether an agent's episode terminated, and whether it was truncated; up to 1.21 `dones` say both."""
    if hasattr(env, "terminations"):
        return env.terminations[agent], env.truncations[agent]
    return env.dones[agent], False


class _FromPettingZoo(MultiAgentEnv):
    """What both kinds share: the environment, and its agents' spaces."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents = list(env.possible_agents)
        self.agents = list(self.possible_agents)  # RLlib's name, of all that there may be
        self.observation_spaces = _spaces(env, "observation_space")
        self.action_spaces = _spaces(env, "action_space")
        # RLlib's wrapper demanded one space for all, and programs give it to their policies.
        self.observation_space = _only(self.observation_spaces)
        self.action_space = _only(self.action_spaces)
        self._next_seed: int | None = None

    def seed(self, seed: int | None = None) -> None:
        """Gives the seed of the next reset that is given none."""
        self._next_seed = seed

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        """Resets the environment with what its `reset()` takes; up to PettingZoo 1.21 seeds went to `seed()`."""
        chosen, self._next_seed = self._next_seed if seed is None else seed, None
        takes = {name for name in ("seed", "options") if reset_takes(self.env, name) is not None}
        if "seed" not in takes and chosen is not None and callable(getattr(self.env, "seed", None)):
            self.env.seed(chosen)
        given = {"seed": chosen, "options": options}
        return self.env.reset(**{name: given[name] for name in takes})

    def render(self, mode: str | None = None) -> Any:
        """Shows the environment in the mode that it was made with."""
        del mode
        return self.env.render()

    def close(self) -> None:
        """Frees what the environment holds."""
        self.env.close()


class ParallelPettingZooEnv(_FromPettingZoo):
    """An environment in which all agents act at the same time.

    Args:
        env: A `pettingzoo.ParallelEnv`.
    """

    @property
    def par_env(self) -> Any:
        """The environment, by RLlib's name."""
        return self.env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode; returns observations by agent, and infos where the environment does."""
        return self._reset(seed, options)

    def step(self, action_dict: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Lets all agents act; returns four dicts where the environment does, `dones` in place of both flags."""
        obs, rewards, *ends, infos = self.env.step(action_dict)
        over = not self.env.agents
        if len(ends) == 1:
            return obs, rewards, {**ends[0], _ALL: over or all(ends[0].values())}, infos
        terminateds, truncateds = ends
        all_terminated = over and bool(terminateds) and all(terminateds.values())
        return (
            obs,
            rewards,
            {**terminateds, _ALL: all_terminated},
            {**truncateds, _ALL: over and not all_terminated},
            infos,
        )


class PettingZooEnv(_FromPettingZoo):
    """An environment in which agents act in turns.

    One step lets one agent act. Rewards are those that all agents got since the last observation was returned, so an
    agent gets what the others' moves brought it with its next turn, or with the end.

    Args:
        env: A `pettingzoo.AECEnv`.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode; returns the observation of the agent whose turn it is, and since 1.22 its info."""
        self._reset(seed, options)
        agent = self.env.agent_selection
        obs, infos = {agent: self.env.observe(agent)}, {agent: self.env.infos.get(agent, {})}
        return (obs, infos) if hasattr(self.env, "terminations") else obs

    def step(self, action: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Lets the agent act whose turn it is; agents that are over are taken out behind it.

        Returns:
            Observations, rewards, terminateds, truncateds and infos; up to PettingZoo 1.21 `dones` in place of both.
        """
        env = self.env
        agent = env.agent_selection
        rewards: MultiAgentDict = {}
        obs: MultiAgentDict = {}
        terminateds: MultiAgentDict = {}
        truncateds: MultiAgentDict = {}
        infos: MultiAgentDict = {}
        move: Any = action[agent]
        while True:
            env.step(move)
            for other, reward in env.rewards.items():
                rewards[other] = rewards.get(other, 0.0) + float(reward)
            if not env.agents:
                break
            agent = env.agent_selection
            over = _ends(env, agent)
            obs[agent], infos[agent] = env.observe(agent), env.infos.get(agent, {})
            if not any(over):
                break
            terminateds[agent], truncateds[agent] = bool(over[0]), bool(over[1]) and not over[0]
            move = None  # PettingZoo's way to take out an agent that is over
        done = not env.agents
        truncated = done and not (terminateds and all(terminateds.values()))
        terminateds[_ALL], truncateds[_ALL] = done and not truncated, truncated
        if not hasattr(env, "terminations"):
            dones = {who: terminateds[who] or truncateds[who] for who in terminateds if who != _ALL}
            return obs, rewards, {**(dict.fromkeys(obs, False) | dones), _ALL: done}, infos
        return obs, rewards, terminateds, truncateds, infos
