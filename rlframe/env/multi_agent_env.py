"""Environments with several agents: the base class, independent copies of one environment, and groups of agents."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
from gymnasium.envs.registration import load_env_creator

from rlframe.env.adapt import OldGymAdapter, adapt_env
from rlframe.env.agent_dicts import ALL, finite_reward, pettingzoo_kind, spaces_by_agent
from rlframe.env.contracts import reset_takes
from rlframe.env.old_ids import is_stub, successor
from rlframe.utils.errors import EnvError
from rlframe.utils.spaces.old_gym import convert_space

logger = logging.getLogger(__name__)

MultiAgentDict = dict[Any, Any]

# Key of the observation under which a group of agents finds the state of the whole environment.
ENV_STATE = "state"
#: Key of a group's info: its members' rewards of the step, a list in the group's order.
GROUP_REWARDS = "_group_rewards"
#: Key of a group's info: its members' infos, a list in the group's order, `{}` where there is none.
GROUP_INFO = "_group_info"


def _needs_arguments(function: Callable[..., Any]) -> bool:
    """Returns whether a constructor cannot be called without arguments; False for one in C, which tells nothing."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return False
    return any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


class MultiAgentEnv:
    """An environment in which agents, known by any hashable id, act at the same time or in turns.

    Only agents whose observation is returned act in the next step. `terminateds` and `truncateds` (or the older
    `dones`) carry the key `"__all__"`, which ends the episode for everybody.
    """

    #: Why it is not stepped singly, in a message.
    not_single: ClassVar[str] = "a MultiAgentEnv; the single-agent trainers cannot step several agents"

    observation_space: Any = None
    action_space: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Hands on to the class behind this one, but not without the arguments that it needs (RLlib 1.10 never did).

        Args:
            args: Of the class behind.
            kwargs: Of the class behind.
        """
        following = super().__init__
        if args or kwargs or not _needs_arguments(following):
            following(*args, **kwargs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode.

        Returns:
            `{agent id: observation}` of the agents that act first, or that and a dict of infos.
        """
        raise NotImplementedError(f"{type(self).__name__} must define reset().")

    def step(self, action_dict: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Lets the agents act.

        Args:
            action_dict: `{agent id: action}`, one for every agent of the last observations.

        Returns:
            Dicts by agent id: observations, rewards, terminateds, truncateds, infos; or observations, rewards,
            dones, infos.
        """
        raise NotImplementedError(f"{type(self).__name__} must define step().")

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Shows the environment as another base class of it does (`class Mine(MultiAgentEnv, Traffic)`), if any."""
        behind = type(self).__mro__[type(self).__mro__.index(MultiAgentEnv) + 1 :]
        own = (cls for cls in behind if cls.__module__.partition(".")[0] not in ("gym", "gymnasium"))
        draw = next((cls.__dict__["render"] for cls in own if "render" in cls.__dict__), None)
        return None if draw is None else draw(self, *args, **kwargs)

    def close(self) -> None:
        """Frees what the environment holds: what another base class of it does, if any."""
        close = getattr(super(), "close", None)
        if close is not None:
            close()

    def get_agent_ids(self) -> set[Any]:
        """Returns the ids of all agents that the environment tells of: by spaces, `possible_agents` or `_agent_ids`."""
        return set(_known_agents(self))

    def observation_space_sample(self, agent_ids: Iterable[Any] | None = None) -> MultiAgentDict:
        """Returns a random observation of each agent; None for `agent_ids` means all."""
        return self._samples("observation_space", agent_ids)

    def action_space_sample(self, agent_ids: Iterable[Any] | None = None) -> MultiAgentDict:
        """Returns a random action of each agent; None for `agent_ids` means all."""
        return self._samples("action_space", agent_ids)

    def observation_space_contains(self, x: Mapping[Any, Any]) -> bool:
        """Returns whether each agent's observation is in its space."""
        return self._contain("observation_space", x)

    def action_space_contains(self, x: Mapping[Any, Any]) -> bool:
        """Returns whether each agent's action is in its space."""
        return self._contain("action_space", x)

    def _samples(self, name: str, agents: Iterable[Any] | None) -> MultiAgentDict:
        known = spaces_by_agent(self, name)
        chosen = self.get_agent_ids() if agents is None else agents
        return {agent: _space_of(known, agent, name).sample() for agent in chosen}

    def _contain(self, name: str, x: Mapping[Any, Any]) -> bool:
        known = spaces_by_agent(self, name)
        return all(_space_of(known, agent, name).contains(value) for agent, value in x.items())

    def with_agent_groups(
        self, groups: Mapping[Any, Sequence[Any]], obs_space: Any = None, act_space: Any = None
    ) -> GroupAgentsWrapper:
        """Returns this environment with groups of agents in the place of their members; see `GroupAgentsWrapper`.

        Args:
            groups: `{group id: [agent id, ...]}`; agents in none stay as they are.
            obs_space: `Tuple` space of a group's observations; None makes it of the members' spaces.
            act_space: `Tuple` space of a group's actions; None makes it of the members' spaces.

        Raises:
            EnvError: If the groups do not fit the environment; names the agent.
        """
        return GroupAgentsWrapper(self, groups, obs_space, act_space)


def _space_of(known: Any, agent: Any, name: str) -> Any:
    """Returns the space of an agent.

    Raises:
        EnvError: If the environment tells none.
    """
    space = known.get(agent) if isinstance(known, Mapping) else known
    if space is None:
        raise EnvError(f"agent {agent!r} has no {name}; wanted one for all agents, or {{agent id: space}}")
    return space


def make_multi_agent(env_name_or_creator: str | Callable[..., Any]) -> type[MultiAgentEnv]:
    """Returns a `MultiAgentEnv` class of N independent copies of an environment.

    An agent whose copy has ended is through; the episode is over when all are. Copies of an environment of the old
    contract answer by it: observations alone from `reset()`, four dicts from `step()`.

    Args:
        env_name_or_creator: A Gymnasium id, or one of the old gym that has a successor there; or a function from the
            environment's config to an environment.

    Returns:
        A class whose config has `num_agents` (1), the agents being numbered from 0; the rest is for the copies: for an
        id, as far as its constructor has such arguments.
    """
    creator = env_name_or_creator if isinstance(env_name_or_creator, str) else staticmethod(env_name_or_creator)
    return type("MultiEnv", (_Copies,), {"made_by": creator, "__doc__": _Copies.__doc__})


def _spec_of(env_id: str) -> Any:
    """Returns the spec of a Gymnasium id; of one of the old gym that is gone what stands for it, with a warning."""
    try:
        spec = gymnasium.spec(env_id)
        later = successor(env_id) if is_stub(spec) else None
    except gymnasium.error.Error:
        later = successor(env_id)
        if later is None:
            raise
    if later is None:
        return spec
    _warn_once(later[1])
    return later[0]


@functools.cache
def _warn_once(sentence: str) -> None:
    """Logs a warning, however many copies are made."""
    logger.warning(sentence)


def _accepted(spec: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that `gymnasium.make` or the environment's constructor has an argument for."""
    entry = spec.entry_point
    maker: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    parameters = inspect.signature(maker).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(options)
    names = {parameter.name for parameter in parameters} | set(inspect.signature(gymnasium.make).parameters)
    return {key: value for key, value in options.items() if key in names}


class _Copies(MultiAgentEnv):
    """N copies of an environment side by side.

    Args:
        config: `num_agents`, N (1), and what the environment takes; or N alone, as in RLlib 0.8.
    """

    #: A Gymnasium id, or a function from the environment's config to an environment.
    made_by: Any = None

    def __init__(self, config: Mapping[str, Any] | int | None = None) -> None:
        options = {"num_agents": config} if isinstance(config, int) else dict(config or {})
        count = int(options.pop("num_agents", 1))
        self.agents = [self._make(options) for _ in range(count)]
        self._copies = [adapt_env(env) for env in self.agents]  # what is in `agents` is the user's, old or new
        self._agent_ids = list(range(count))
        self.observation_space = self._copies[0].observation_space
        self.action_space = self._copies[0].action_space
        self.terminateds: set[int] = set()
        self.truncateds: set[int] = set()

    @property
    def dones(self) -> set[int]:
        """Agents that are through, for either reason; RLlib's name."""
        return self.terminateds | self.truncateds

    def _make(self, options: dict[str, Any]) -> Any:
        made_by = type(self).made_by
        if not isinstance(made_by, str):
            return made_by(options)
        spec = _spec_of(made_by)
        return gymnasium.make(spec, **_accepted(spec, options))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts all copies; returns observations, and infos where the copies give them."""
        del options
        self.terminateds, self.truncateds = set(), set()
        started = [env.reset(seed=None if seed is None else seed + index) for index, env in enumerate(self._copies)]
        first = {index: obs for index, (obs, _) in enumerate(started)}
        if any(isinstance(env, OldGymAdapter) and not env.reset_gives_info for env in self._copies):
            return first
        return first, {index: info for index, (_, info) in enumerate(started)}

    def step(self, action_dict: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Steps the copies of the agents that act; returns four dicts where they give four items."""
        obs, rewards, terminateds, truncateds, infos = {}, {}, {}, {}, {}
        for index, action in action_dict.items():
            made = self._copies[index].step(action)
            obs[index], rewards[index], terminateds[index], truncateds[index], infos[index] = made
            if terminateds[index]:
                self.terminateds.add(index)
            if truncateds[index]:
                self.truncateds.add(index)
        over = len(self.dones) == len(self.agents)
        if any(isinstance(env, OldGymAdapter) and env.step_gives == 4 for env in self._copies):
            dones = {index: terminateds[index] or truncateds[index] for index in obs}
            return obs, rewards, {**dones, ALL: over}, infos
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


class GroupAgentsWrapper(MultiAgentEnv):
    """Makes one agent of each group: `MultiAgentEnv.with_agent_groups` calls this.

    A group's observation is the tuple of its members' observations, its action the tuple of their actions, its reward
    the sum of theirs; the single rewards are in its info under `"_group_rewards"`, the infos under `"_group_info"`. A
    group is terminated when all members are, and truncated when all are over and some were truncated. Its members
    observe at the same time, or none of them. Agents in no group pass through. A `step` of four parts stays one of four
    (`dones`), one of five one of five.

    Args:
        env: The environment.
        groups: `{group id: [agent id, ...]}`; the order of members is that of the tuples.
        obs_space: `Tuple` space of a group's observations; None makes it of the members' spaces.
        act_space: `Tuple` space of a group's actions; None makes it of the members' spaces.

    Attributes:
        env: The environment.
        groups: The groups, as lists.
        observation_spaces: Spaces by group and ungrouped agent, as far as they are known.
        action_spaces: The same of actions.

    Raises:
        EnvError: If the groups do not fit the environment; names the agent.
    """

    def __init__(
        self, env: Any, groups: Mapping[Any, Sequence[Any]], obs_space: Any = None, act_space: Any = None
    ) -> None:
        if not isinstance(env, MultiAgentEnv):
            kind = pettingzoo_kind(env)
            wrapper = "ParallelPettingZooEnv" if kind == "parallel" else "PettingZooEnv"
            hint = f"; wrap it in {wrapper} first" if kind else ""
            raise EnvError(f"groups of agents: got {type(env).__name__}, wanted a MultiAgentEnv{hint}")
        self.env = env
        self.groups = {group: list(members) for group, members in groups.items()}
        known = _known_agents(env)
        self.agent_id_to_group = _check_groups(self.groups, known)
        single = [agent for agent in known if agent not in self.agent_id_to_group]
        self.observation_spaces = self._grouped_spaces("observation_space", obs_space, single)
        self.action_spaces = self._grouped_spaces("action_space", act_space, single)
        self.observation_space = _only(self.observation_spaces)
        self.action_space = _only(self.action_spaces)
        self.possible_agents = [*self.groups, *single]
        #: How members ended that did in this episode: True for terminated.
        self._over: dict[Any, bool] = {}

    def _grouped_spaces(self, name: str, given: Any, single: list[Any]) -> dict[Any, Any]:
        """Returns the spaces of groups and other agents; those that nobody tells are left out."""
        of_env = spaces_by_agent(self.env, name)

        def of_agent(agent: Any) -> Any:
            return of_env.get(agent) if isinstance(of_env, dict) else of_env

        spaces: dict[Any, Any] = {}
        for group, members in self.groups.items():
            if given is not None:
                spaces[group] = _check_given(given, name, group, members)
                continue
            parts = [of_agent(agent) for agent in members]
            if any(part is not None for part in parts):
                missing = [agent for agent, part in zip(members, parts, strict=True) if part is None]
                if missing:
                    short = "obs_space" if name == "observation_space" else "act_space"
                    raise EnvError(
                        f"group {group!r}: the environment tells no {name} for agent {missing[0]!r}; give it in its "
                        f"{name}s, or pass {short} to with_agent_groups"
                    )
                spaces[group] = gymnasium.spaces.Tuple(parts)
        spaces.update({agent: of_agent(agent) for agent in single if of_agent(agent) is not None})
        return spaces

    def seed(self, seed: int | None = None) -> Any:
        """Seeds an environment of the older contract, by its `seed(seed)`; newer ones are seeded by `reset`."""
        seeder = getattr(self.env, "seed", None)
        return seeder(seed) if callable(seeder) else None

    # --- the course of an episode -----------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode.

        Returns:
            Observations by group and ungrouped agent; with infos where the environment returns them.

        Raises:
            EnvError: If some members of a group observe, and others do not.
        """
        self._over = {}
        given: dict[str, Any] = {"seed": seed, "options": options}
        keywords = {name: value for name, value in given.items() if reset_takes(self.env, name) is not None}
        seeder = getattr(self.env, "seed", None)
        if "seed" not in keywords and callable(seeder) and seed is not None:
            seeder(seed)
        result = self.env.reset(**keywords)
        if isinstance(result, tuple) and len(result) == 2 and all(isinstance(part, Mapping) for part in result):
            return self._group_obs(result[0]), self._group_infos(result[1], {}, {})
        return self._group_obs(result) if isinstance(result, Mapping) else result

    def step(self, action_dict: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Lets the agents act.

        Args:
            action_dict: `{group or agent id: action}`; a group's action has one part for each member, in order.

        Returns:
            The dicts that the environment's own `step` returns, four or five, by group and ungrouped agent.

        Raises:
            EnvError: If a group's action has too many or too few parts, some of its members do not observe, or a
                reward is no number.
            NonFiniteError: If a reward is NaN or infinite; a group's sum would not tell whose.
        """
        actions = self._single_actions(action_dict)
        result = self.env.step(actions)
        whole = isinstance(result, tuple) and len(result) in (4, 5)
        if not whole or not all(isinstance(part, Mapping) for part in result):
            return result  # against the contract: the sampling loop says how
        obs, rewards, *flags, infos = result
        rewards = {
            agent: finite_reward(reward, agent)
            for agent, reward in rewards.items()
            if reward is not None or agent in actions
        }
        self._note_ends(*flags)
        grouped_obs = self._group_obs(obs)
        grouped_infos = self._group_infos(infos, rewards, grouped_obs)
        ends = [self._group_flags(part, terminated=not index) for index, part in enumerate(flags)]
        return (grouped_obs, self._group_rewards(rewards), *ends, grouped_infos)

    def _single_actions(self, action_dict: MultiAgentDict) -> MultiAgentDict:
        actions: MultiAgentDict = {}
        for agent, action in action_dict.items():
            members = self.groups.get(agent)
            if members is None:
                actions[agent] = action
                continue
            if len(action) != len(members):
                raise EnvError(
                    f"group {agent!r}: got an action of {len(action)} parts, wanted {len(members)}, one for each of "
                    f"its members {members}"
                )
            actions.update(zip(members, action, strict=True))
        return actions

    def _group_obs(self, obs: Mapping[Any, Any]) -> MultiAgentDict:
        grouped = self._without_members(obs)
        for group, members in self.groups.items():
            missing = [agent for agent in members if agent not in obs]
            if not missing:
                grouped[group] = tuple(obs[agent] for agent in members)
            elif len(missing) < len(members):
                through = " (an agent that is through goes on observing, with a no-op as its action)"
                raise EnvError(
                    f"group {group!r}: there is no observation of agent {missing[0]!r}, but of other members; wanted "
                    f"those of all of {members}, or of none"
                    f"{through if missing[0] in self._over else ''}"
                )
        return grouped

    def _group_rewards(self, rewards: Mapping[Any, Any]) -> MultiAgentDict:
        grouped = self._without_members(rewards)
        for group, members in self.groups.items():
            if any(agent in rewards for agent in members):
                grouped[group] = sum(rewards.get(agent, 0.0) for agent in members)
        return grouped

    def _group_infos(
        self, infos: Mapping[Any, Any], rewards: Mapping[Any, Any], obs: Mapping[Any, Any]
    ) -> MultiAgentDict:
        """Returns infos by group and ungrouped agent; groups that observe or have a reward get their rewards, too."""
        grouped = self._without_members(infos)
        for group, members in self.groups.items():
            if group in obs or any(agent in rewards or agent in infos for agent in members):
                grouped[group] = {
                    GROUP_INFO: [infos.get(agent, {}) for agent in members],
                    GROUP_REWARDS: [rewards.get(agent, 0.0) for agent in members],
                }
        return grouped

    # --- ends -------------------------------------------------------------------------------------------------

    def _note_ends(self, ended: Mapping[Any, Any], truncateds: Mapping[Any, Any] | None = None) -> None:
        for agent in self.agent_id_to_group:
            if ended.get(agent):
                self._over.setdefault(agent, True)
            elif (truncateds or {}).get(agent):
                self._over.setdefault(agent, False)

    def _is_over(self, group: Any) -> bool:
        members = self.groups[group]
        return bool(members) and all(agent in self._over for agent in members)

    def _group_flags(self, flags: Mapping[Any, Any], *, terminated: bool) -> MultiAgentDict:
        grouped = self._without_members(flags)
        for group, members in self.groups.items():
            if self._is_over(group):
                grouped[group] = terminated == all(self._over[agent] for agent in members)
            elif any(agent in flags for agent in members):
                grouped[group] = False
        return grouped

    def _without_members(self, by_agent: Mapping[Any, Any]) -> MultiAgentDict:
        return {agent: value for agent, value in by_agent.items() if agent not in self.agent_id_to_group}

    # --- the rest ---------------------------------------------------------------------------------------------

    def render(self, mode: str | None = None) -> Any:
        """Shows the environment."""
        return self.env.render() if mode is None else self.env.render(mode)

    def close(self) -> None:
        """Frees what the environment holds."""
        self.env.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)


def _known_agents(env: Any) -> list[Any]:
    """Returns the ids of an environment's agents, `[]` where it does not tell."""
    for name in ("possible_agents", "_agent_ids"):
        known = getattr(env, name, None)
        if known:
            return list(known)
    spaces = spaces_by_agent(env, "observation_space")
    return list(spaces) if isinstance(spaces, dict) else []


def _check_groups(groups: Mapping[Any, list[Any]], known: list[Any]) -> dict[Any, Any]:
    """Returns the groups by their members; raises an EnvError for groups that cannot be."""
    if not groups:
        raise EnvError("groups of agents: got none, wanted {group id: [agent id, ...]}")
    by_agent: dict[Any, Any] = {}
    for group, members in groups.items():
        if not members:
            raise EnvError(f"group {group!r} has no members, wanted a list of agent ids")
        if group in known or group == ALL:
            raise EnvError(f"group {group!r}: there is an agent of this id; give the group another one")
        for agent in members:
            if known and agent not in known:
                raise EnvError(
                    f"group {group!r}: the environment has no agent {agent!r}, wanted one of "
                    f"{', '.join(map(repr, known))}"
                )
            if agent in by_agent:
                raise EnvError(
                    f"agent {agent!r} is in group {by_agent[agent]!r} and again in group {group!r}; wanted it once"
                )
            by_agent[agent] = group
    return by_agent


def _check_given(space: Any, name: str, group: Any, members: list[Any]) -> Any:
    """Returns a space that the user gave for groups; raises an EnvError unless it is a Tuple of one part a member."""
    space = convert_space(space)
    parts = getattr(space, "spaces", None)
    if not isinstance(space, gymnasium.spaces.Tuple) or len(parts or ()) != len(members):
        raise EnvError(
            f"group {group!r}: got the {name} {space}, wanted a Tuple of {len(members)} spaces, one for each of its "
            f"members {members}; leave it out to have it made of the members' own"
        )
    return space


def _only(spaces: Mapping[Any, Any]) -> Any:
    """Returns the space that all have, None where they differ or none is known."""
    found = list(spaces.values())
    return found[0] if found and all(space == found[0] for space in found) else None
