"""Where the parts of a group's observations lie, and how one network acts for all of its agents."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import STATE_IN_PREFIX
from rlframe.env.multi_agent_env import ENV_STATE
from rlframe.models.preprocessors import get_preprocessor
from rlframe.models.recurrent_actor import MemoryActor
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.numpy import FLOAT_MIN

#: Keys of an agent's Dict observation that are read, beside `ENV_STATE`.
MEMBER_OBS, ACTION_MASK = "obs", "action_mask"


class GroupLayout:
    """Where the parts of a group's flat observations lie.

    Each agent's observation is a plain space, or a `Dict` with "obs", "state" (the environment's state, of which the
    first agent's copy is taken) and "action_mask" (1 for each action that is valid now).

    Args:
        obs_space: Preprocessed observation space of the group; its `original_space` is a Tuple.
        action_space: Tuple of the agents' Discrete spaces.

    Attributes:
        n_agents: N.
        n_actions: A.
        agent_obs_space: Preprocessed space of one agent's "obs".
        obs_size: Its width, Do.
        agent_action_space: The agents' Discrete space.
        state_size: Width of the mixer's state, Ds: of "state", or of all agents' observations side by side.
        has_mask: Whether observations have an "action_mask".

    Raises:
        UnsupportedSpaceException: If the spaces are not those of a group of equal agents with Discrete actions.
    """

    def __init__(self, obs_space: Any, action_space: Any) -> None:
        original = getattr(obs_space, "original_space", obs_space)
        member = _member_space(original, "observation space")
        self.agent_action_space = _member_space(action_space, "action space")
        if not isinstance(self.agent_action_space, gym.spaces.Discrete):
            raise UnsupportedSpaceException(
                f"QMIX needs agents with Discrete actions, got {self.agent_action_space} in {action_space}; use an "
                "actor-critic algorithm, or discretise the actions in an environment wrapper"
            )
        self.n_agents = len(action_space.spaces)
        self.n_actions = int(self.agent_action_space.n)
        if len(original.spaces) != self.n_agents:
            raise UnsupportedSpaceException(
                f"a group's observation space has {len(original.spaces)} parts and its action space {self.n_agents}; "
                "wanted one of each for every agent"
            )
        self._places = self._find_places(member)
        self.agent_obs_space = get_preprocessor(self._obs_part)(self._obs_part).observation_space
        self.obs_size = math.prod(self.agent_obs_space.shape or ())
        self.has_mask, self.has_state = ACTION_MASK in self._places, ENV_STATE in self._places
        start, stop = self._places[ENV_STATE if self.has_state else MEMBER_OBS]
        self.state_size = (stop - start) * (1 if self.has_state else self.n_agents)

    def _find_places(self, member: Any) -> dict[str, tuple[int, int]]:
        """Returns where the parts of one agent's flat observation begin and end."""
        if not isinstance(member, gym.spaces.Dict):
            self._obs_part = member
            return {MEMBER_OBS: (0, get_preprocessor(member)(member).size)}
        if MEMBER_OBS not in member.spaces:
            raise UnsupportedSpaceException(
                f"an agent's Dict observation has the keys {', '.join(map(repr, member.spaces))}; QMIX reads "
                f'"{MEMBER_OBS}" (wanted), "{ENV_STATE}" and "{ACTION_MASK}" (both optional): name them so in '
                "the environment"
            )
        self._obs_part = member.spaces[MEMBER_OBS]
        preprocessor: Any = get_preprocessor(member)(member)
        places, start = {}, 0
        for key, child in zip(preprocessor.keys, preprocessor.preprocessors, strict=True):
            places[key] = (start, start + child.size)
            start += child.size
        mask = places.get(ACTION_MASK, (0, self.n_actions))
        if mask[1] - mask[0] != self.n_actions:
            raise UnsupportedSpaceException(
                f'"{ACTION_MASK}" has {mask[1] - mask[0]} numbers, wanted {self.n_actions}, one for each action of '
                f"{self.agent_action_space}"
            )
        return places

    def unread_keys(self) -> list[str]:
        """Returns the keys of the agents' observations that nothing reads."""
        return [key for key in self._places if key not in (MEMBER_OBS, ACTION_MASK, ENV_STATE)]

    def observations(self, flat: Tensor) -> Tensor:
        """Returns the agents' observations `[..., N, Do]` of flat ones `[..., D]`."""
        start, stop = self._places[MEMBER_OBS]
        return ops.split_last(flat, self.n_agents)[..., start:stop]

    def mixer_states(self, flat: Tensor) -> Tensor:
        """Returns the mixer's states `[..., Ds]` of flat observations `[..., D]`."""
        if self.has_state:
            start, stop = self._places[ENV_STATE]
            return flat[..., start:stop]  # the first agent's copy
        return ops.merge_last(self.observations(flat))

    def valid_actions(self, flat: Tensor) -> Tensor | None:
        """Returns which actions are valid, bool `[..., N, A]`, of flat observations `[..., D]`; None for all."""
        if not self.has_mask:
            return None
        start, stop = self._places[ACTION_MASK]
        return ops.split_last(flat, self.n_agents)[..., start:stop] > 0.5

    def values(self, network: Any, flat: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Returns the values of all agents' actions, step by step.

        Args:
            network: The network that the agents share.
            flat: Flat observations of S sequences of T steps. Float `[S, T, D]`.
            states: The agents' states before the first step, `[S, N, ...]` each.

        Returns:
            Values, float `[S, T, N, A]`, and the states behind the last step, `[S, N, ...]` each.
        """
        by_agent = ops.swap_axes(self.observations(flat), 1, 2)  # [S, N, T, Do]: each agent's steps are a sequence
        made, after = network.unroll(ops.flatten_sequences(by_agent), [ops.flatten_sequences(s) for s in states])
        values = ops.swap_axes(ops.split_sequences(made, flat), 1, 2)
        return values, [ops.split_sequences(state, flat) for state in after]

    # --- acting: an `ActingView` --------------------------------------------------------------------------------

    def act(self, network: Any, obs: Tensor, states: list[Tensor], seq_lens: Any) -> tuple[Tensor, list[Tensor]]:
        """Returns values `[B, N · A]` of flat observations `[B, D]`, FLOAT_MIN for invalid actions, and new states."""
        flat = obs[:, None] if seq_lens is None else ops.split_sequences(obs, seq_lens)
        values, after = self.values(network, flat, states)
        rows, valid = ops.flatten_sequences(values), self.valid_actions(obs)
        masked = rows if valid is None else ops.where(valid, rows, FLOAT_MIN)
        return ops.merge_last(masked), after

    def states(self, initial: list[Any]) -> list[Any]:
        """Returns the agents' states at the start of an episode, `[N, ...]` each, of those of one."""
        return [np.repeat(np.asarray(state)[None], self.n_agents, axis=0) for state in initial]

    def allow_actions(self, obs: NDArray[Any]) -> None:
        """Makes all actions valid in arrays of flat observations `[B, D]`."""
        if self.has_mask:
            obs.reshape(len(obs), self.n_agents, -1)[..., slice(*self._places[ACTION_MASK])] = 1

    def to_spec(self) -> dict[str, Any]:
        """Returns what `GroupActor` cuts observations by, as plain data."""
        return {"n_agents": self.n_agents, "obs": self._places[MEMBER_OBS], "mask": self._places.get(ACTION_MASK)}


class GroupActor:
    """Acts for all agents of a group by their common network, in NumPy.

    Args:
        spec: That of a `MemoryActor`, and `GroupLayout.to_spec()`.
        weights: Float32 arrays by name, possibly views of a live model's memory.
        rng: Generator for noisy layers; None switches their noise off.
    """

    def __init__(self, spec: Mapping[str, Any], weights: Any, rng: np.random.Generator | None = None) -> None:
        self._network, self._agents = MemoryActor(spec, weights, rng), int(spec["n_agents"])
        self._obs, self._mask = slice(*spec["obs"]), None if spec["mask"] is None else slice(*spec["mask"])

    @property
    def mean(self) -> GroupActor:
        """The actor itself: its layers have no noise."""
        return self

    def step(self, obs: NDArray[Any], inputs: Mapping[str, NDArray[Any]]) -> tuple[Any, None, list[NDArray[Any]]]:
        """Returns values [B, N · A], FLOAT_MIN for invalid actions; None (no state values); new states [[B, N, S]].

        Args:
            obs: Flat observations of groups. `[B, D]`.
            inputs: `state_in_0`, float `[B, N, S]`.
        """
        rows = len(obs)
        by_agent = np.asarray(obs, np.float32).reshape(rows * self._agents, -1)
        states = {
            name: state.reshape(len(by_agent), -1) for name, state in inputs.items() if name.startswith(STATE_IN_PREFIX)
        }
        values, _, after = self._network.step(by_agent[:, self._obs], states)
        if self._mask is not None:
            values[by_agent[:, self._mask] <= 0.5] = FLOAT_MIN
        return values.reshape(rows, -1), None, [state.reshape(rows, self._agents, -1) for state in after]


def _member_space(space: Any, what: str) -> Any:
    """Returns the space that all agents of a group have; raises an UnsupportedSpaceException where there is none."""
    if not isinstance(space, gym.spaces.Tuple) or not space.spaces:
        raise UnsupportedSpaceException(
            f"QMIX acts for groups of agents, whose {what} is a Tuple with a part for each; got {space}. Group the "
            'agents: env.with_agent_groups({"team": [agent ids]})'
        )
    for number, part in enumerate(space.spaces):
        if part != space.spaces[0]:
            raise UnsupportedSpaceException(
                f"QMIX's agents share one network, so all in a group need the same {what}; got {space.spaces[0]} for "
                f"agent 0 and {part} for agent {number}: make them equal (pad them), or put such agents into groups "
                "with policies of their own"
            )
    return space.spaces[0]
