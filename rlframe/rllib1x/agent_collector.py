"""RLlib's collector of one agent's rows, for loops that run a policy without a worker and read its `buffers`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tree
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTIONS,
    AGENT_INDEX,
    DONES,
    ENV_ID,
    EPS_ID,
    INFOS,
    NEXT_OBS,
    OBS,
    SEQ_LENS,
    STATE_OUT_PREFIX,
    UNROLL_ID,
    T,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.sample_batch_builder import to_float_array
from rlframe.data.view_requirements import ViewRequirement

_OF_OBS = (OBS, ENV_ID, EPS_ID, AGENT_INDEX, T, UNROLL_ID)
"""Columns whose first entry comes with the first observation, one step before those of the first action."""


class AgentCollector:
    """Keeps one agent's columns, step by step, with room in front for what views see before the first step.

    Args:
        view_reqs: The policy's `view_requirements`; the one that reaches back furthest says how much room there is.
        policy: The policy.

    Attributes:
        policy: The policy.
        shift_before: Entries in front of the first step's, the first observation among them: copies of it, zeros of
            other columns.
        buffers: Lists of entries by column: one list for each leaf of a nested column, one for any other.
        buffer_structs: An entry of each column that is kept by its leaves.
        episode_id: Whose rows they are.
        unroll_id: A number of the rows' own.
        agent_steps: Steps since the last `build`.
    """

    _ids = itertools.count()

    def __init__(self, view_reqs: Mapping[str, ViewRequirement], policy: Any) -> None:
        self.policy = policy
        self.shift_before = -min(
            int(view.shift_arr.min()) - (OBS in (name, view.data_col)) for name, view in view_reqs.items()
        )
        self.buffers: dict[str, list[list[Any]]] = {}
        self.buffer_structs: dict[str, Any] = {}
        self.episode_id: Any = None
        self.unroll_id: int | None = None
        self.agent_steps = 0

    def add_init_obs(self, episode_id: Any, agent_index: int, env_id: Any, t: int, init_obs: Any) -> None:
        """Takes the first observation, preprocessed, at step `t` (-1 in RLlib's loops)."""
        self.episode_id = episode_id
        if self.unroll_id is None:
            self.unroll_id = next(self._ids)
        row = {OBS: init_obs, AGENT_INDEX: agent_index, ENV_ID: env_id, T: t}
        self._add({**row, EPS_ID: episode_id, UNROLL_ID: self.unroll_id})

    def add_action_reward_next_obs(self, values: Mapping[str, Any]) -> None:
        """Takes a step by column: at least `actions`, `rewards`, `dones` and `new_obs`.

        Raises:
            ValueError: If the step is of another episode.
        """
        if values.get(EPS_ID, self.episode_id) != self.episode_id:
            raise ValueError(f"Got a step of episode {values[EPS_ID]}; wanted one of {self.episode_id}, which is kept.")
        row = {OBS if name == NEXT_OBS else name: value for name, value in values.items()}
        self._add({**row, EPS_ID: self.episode_id, UNROLL_ID: self.unroll_id})
        self.agent_steps += 1

    def _add(self, row: Mapping[str, Any]) -> None:
        self._build_buffers(row)
        for name, value in row.items():
            for entries, leaf in zip(self.buffers[name], _leaves(name, value), strict=True):
                entries.append(leaf)

    def _build_buffers(self, single_row: Mapping[str, Any]) -> None:
        """Makes the lists of columns that have none yet, with what is seen before the first step."""
        for name, value in single_row.items():
            if name in self.buffers:
                continue
            size = max(self.shift_before - (name in _OF_OBS), 0)
            leaves = _leaves(name, value)
            repeated = name in (*_OF_OBS, INFOS)
            self.buffers[name] = [[leaf if repeated else _zero(leaf) for _ in range(size)] for leaf in leaves]
            if not _is_whole(name):
                self.buffer_structs[name] = value

    def build(self, view_requirements: Mapping[str, ViewRequirement]) -> SampleBatch:
        """Returns the rows so far, as the views show them; where the episode goes on, what later rows see is kept."""
        steps, made = self.agent_steps, {}
        for name, view in view_requirements.items():
            column = view.data_col or name
            if column in self.buffers:
                parts = [self._view(to_float_array(entries), column, view, steps) for entries in self.buffers[column]]
                struct = self.buffer_structs.get(column)
                made[name] = parts[0] if struct is None else tree.unflatten_as(struct, parts)
        if not self.buffers[DONES][0][-1]:
            self.buffers = {
                name: [entries[-self.shift_before :] for entries in lists] for name, lists in self.buffers.items()
            }
        self.agent_steps, self.unroll_id = 0, None
        batch = SampleBatch(made)
        if self.policy.is_recurrent() and SEQ_LENS not in batch:
            longest = int(self.policy.config["model"]["max_seq_len"])
            batch[SEQ_LENS] = np.array([min(longest, steps - at) for at in range(0, steps, longest)], np.int32)
        return batch

    def _view(self, data: NDArray[Any], column: str, view: ViewRequirement, steps: int) -> NDArray[Any]:
        """Returns what a view shows at each step; zeros behind the last one."""
        first = self.shift_before - (column == OBS)
        wanted = np.arange(steps)[:, None] + view.shift_arr + first
        padding = np.zeros((max(int(wanted.max(initial=0)) + 1 - len(data), 0), *data.shape[1:]), data.dtype)
        found: NDArray[Any] = np.concatenate([data, padding])[wanted]
        return found if view.has_time_axis else found[:, 0]


def _is_whole(name: str) -> bool:
    """Returns whether a column's entries are kept as they are: they may differ from step to step, or are flat."""
    return name in (INFOS, ACTIONS) or name.startswith(STATE_OUT_PREFIX)


def _leaves(name: str, value: Any) -> list[Any]:
    return [value] if _is_whole(name) else tree.flatten(value)


def _zero(leaf: Any) -> Any:
    return tree.map_structure(lambda part: np.zeros_like(np.asarray(part)), leaf)
