"""How an environment gets back to where it stood: the actions of its episode, or of its game, are repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import tree
from numpy.typing import NDArray

from rlframe.utils.spaces.space_utils import get_base_struct_from_space


class RepeatsActions:
    """The part of an `EnvSlot` that saves its place and goes back there."""

    env: Any
    seed: int
    episode: int
    actions: list[Any] | None
    lives: list[list[Any] | None]
    failed: bool | str
    begin: Any  # methods of the slot
    record: Any
    _end_game: Any
    #: Infos of the steps that were repeated last.
    repeated_infos: Sequence[Any] = ()

    def get_state(self) -> dict[str, Any]:
        """Returns the slot's place: episode, and the actions since the environment began anew."""
        done = self.actions_of_game()
        return {
            "seed": self.seed,
            "episode": self.episode,
            "replayable": done is not None,
            "actions": _columns(done) if done else {},
            "lives": [] if done is None else [len(actions or ()) for actions in self.lives],
        }

    def actions_of_game(self) -> list[Any] | None:
        """Returns the actions since the environment began anew, of all lives; None where they cannot be repeated."""
        episodes = [*self.lives, self.actions]
        if self.failed or any(actions is None for actions in episodes):
            return None
        return [action for actions in episodes for action in actions or ()]

    def replay(self, state: dict[str, Any]) -> Any | None:
        """Brings the environment to a saved place by repeating its actions.

        Returns:
            The observation there, or None where the saved place cannot be reached (the caller starts a new episode).
        """
        self.seed, episode = int(state["seed"]), int(state["episode"])
        obs = self._repeat(state) if state["replayable"] and episode >= 0 else None
        self.episode = episode
        return obs

    def _repeat(self, state: dict[str, Any]) -> Any | None:
        """Repeats a game from its first life on; returns the observation, None where it went another way."""
        actions = iter(_actions(state["actions"], self.env.action_space))
        obs, over = None, False
        self.repeated_infos = infos = []
        for count in self.rewind(state):
            obs, over = self.begin()[0], False
            for action in islice(actions, count):
                if over:
                    return None
                self.record(action)
                obs, _, terminated, truncated, info = self.env.step(action)
                infos.append(info)
                over = bool(terminated or truncated)
        return None if over else obs

    def rewind(self, state: Mapping[str, Any]) -> list[int | None]:
        """Has the next `begin()` start the game that a saved place is in, whatever game runs now.

        Returns:
            How many actions follow on each `begin()`; None, for the last, for all that are left.
        """
        lives = [int(count) for count in state.get("lives", [])]
        self._end_game()
        self.episode = int(state["episode"]) - len(lives) - 1
        return [*lives, None]


def _columns(actions: list[Any]) -> dict[str, NDArray[Any]]:
    """Returns actions as one array per leaf of their space."""
    rows = [tree.flatten(action) for action in actions]
    return {str(leaf): np.asarray([row[leaf] for row in rows]) for leaf in range(len(rows[0]))}


def _actions(columns: Mapping[str, NDArray[Any]], space: Any) -> list[Any]:
    """Returns the actions that `_columns` took apart; an array, as older checkpoints have it, row by row."""
    if not isinstance(columns, Mapping):
        return list(columns)
    leaves = [columns[str(leaf)] for leaf in range(len(columns))]
    struct = get_base_struct_from_space(space)
    return [tree.unflatten_as(struct, list(row)) for row in zip(*leaves, strict=True)]
