"""Whole episodes, of which pieces of one length are drawn, for models of the dynamics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTIONS,
    DONES,
    NEXT_OBS,
    OBS,
    PREV_ACTIONS,
    PREV_REWARDS,
    REWARDS,
    SEQ_LENS,
    TERMINATEDS,
)
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.data.sequences import cut_into_sequences
from rlframe.replay.arguments import check_range
from rlframe.utils.errors import CheckpointError
from rlframe.utils.seeding import entropy_seed, make_rng

#: Whether the step before reached a terminal state. float32 `[B]`.
PREV_TERMINATEDS = "prev_terminateds"
_LONGEST = 2**31 - 1


def histories(batch: SampleBatch) -> list[dict[str, NDArray[Any]]]:
    """Returns an episode of T steps as T + 1 observations, each with the action that led to it and what that brought.

    Args:
        batch: Sampled rows with `new_obs`, episodes one after the other. Without `terminateds` these are `dones`.

    Returns:
        By episode, or piece of one: `obs [T + 1, ...]`, `prev_actions [T + 1, ...]`, `prev_rewards [T + 1]` and
        `prev_terminateds [T + 1]`, zeros in the first row.
    """
    rows = cut_into_sequences(batch, _LONGEST)
    ends = np.cumsum(rows[SEQ_LENS])
    over = next((rows[name] for name in (TERMINATEDS, DONES) if name in rows), np.zeros(rows.count, bool))
    steps = {PREV_ACTIONS: rows[ACTIONS], PREV_REWARDS: rows[REWARDS], PREV_TERMINATEDS: over}
    made = []
    for start, end in zip(ends - rows[SEQ_LENS], ends, strict=True):
        history = {OBS: np.concatenate([rows[OBS][start:end], rows[NEXT_OBS][end - 1 : end]])}
        for name, column in steps.items():
            brought = np.asarray(column[start:end], np.float32)
            history[name] = np.concatenate([np.zeros_like(brought[:1]), brought])
        made.append(history)
    return made


def joined(pieces: list[dict[str, NDArray[Any]]]) -> SampleBatch:
    """Returns histories, or pieces of them, one behind the other, with `seq_lens`."""
    columns = {key: np.concatenate([piece[key] for piece in pieces]) for key in pieces[0]}
    columns[SEQ_LENS] = np.array([len(piece[OBS]) for piece in pieces], np.int32)
    return SampleBatch.from_columns(columns)


class EpisodicBuffer:
    """The latest episodes; pieces are drawn from them, an episode and then a place in it uniformly.

    Args:
        max_length: Episodes kept; the oldest go first.
        length: Observations of a piece; episodes with fewer are drawn whole.
        batch_size: Pieces that `replay` gives.
        learning_starts: Steps that must have been added before `replay` gives any.
        seed: Seed of the draws; None for a fresh one.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        max_length: int = 1000,
        length: int = 50,
        *,
        batch_size: int = 50,
        learning_starts: int = 0,
        seed: int | None = None,
    ) -> None:
        check_range(1, max_length=max_length, length=length, batch_size=batch_size)
        check_range(0, learning_starts=learning_starts)
        self.max_length, self.length = max_length, length
        self.batch_size, self.learning_starts = batch_size, learning_starts
        self.episodes: list[dict[str, NDArray[Any]]] = []
        #: Steps that were ever added.
        self.timesteps = 0
        self._rng = make_rng(entropy_seed() if seed is None else seed, "episodes")

    def add(self, batch: SampleBatch | MultiAgentBatch) -> None:
        """Stores the episodes of a batch; those of a MultiAgentBatch must be of one policy."""
        parts = batch.policy_batches.values() if isinstance(batch, MultiAgentBatch) else [batch]
        for rows in parts:
            self.episodes += histories(rows.decompress_if_needed())
            self.timesteps += rows.count
        del self.episodes[: -self.max_length]

    add_batch = add

    def sample(self, batch_size: int) -> SampleBatch:
        """Returns so many pieces, one behind the other.

        Raises:
            ValueError: If there are no episodes.
        """
        if not self.episodes:
            raise ValueError("EpisodicBuffer.sample: there are no episodes yet; add() some first")
        return joined([self._piece() for _ in range(batch_size)])

    def _piece(self) -> dict[str, NDArray[Any]]:
        episode = self.episodes[int(self._rng.integers(len(self.episodes)))]
        start = int(self._rng.integers(max(len(episode[OBS]) - self.length, 0) + 1))
        return {key: column[start : start + self.length] for key, column in episode.items()}

    def replay(self) -> SampleBatch | None:
        """Returns `batch_size` pieces; None before `learning_starts`."""
        return self.sample(self.batch_size) if self.has_enough() else None

    def has_enough(self, _item: Any = None) -> bool:
        """Returns whether there is enough to learn from."""
        return bool(self.episodes) and self.timesteps >= self.learning_starts

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self.episodes)

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """Returns counts of episodes and steps, and the memory they take.

        Args:
            debug: No effect; other buffers give more.
        """
        del debug
        size = sum(column.nbytes for episode in self.episodes for column in episode.values())
        return {"num_entries": len(self), "added_steps": self.timesteps, "est_size_bytes": size}

    def get_state(self, *, copy: bool = True) -> dict[str, Any]:
        """Returns everything needed to go on exactly, the draws included.

        Args:
            copy: No effect: episodes are joined for the state, which copies them.
        """
        del copy
        columns = dict(joined(self.episodes)) if self.episodes else {}
        rng = self._rng.bit_generator.state
        return {"kind": type(self).__name__, "timesteps": self.timesteps, "columns": columns, "rng": rng}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back; what was stored here is forgotten.

        Raises:
            CheckpointError: If it is the state of another kind of buffer.
        """
        if state.get("kind") != type(self).__name__:
            raise CheckpointError(
                f"The saved replay buffer is a {state.get('kind', 'LocalReplayBuffer')}, this one a "
                f"{type(self).__name__}; restore it with the algorithm that saved it"
            )
        columns = dict(state["columns"])
        cuts = np.cumsum(columns.pop(SEQ_LENS, np.zeros(0, np.int64)))
        split = {key: np.split(np.array(column), cuts[:-1]) for key, column in columns.items()}
        self.episodes = [{key: parts[index] for key, parts in split.items()} for index in range(len(cuts))]
        del self.episodes[: -self.max_length]
        self.timesteps = int(state["timesteps"])
        self._rng.bit_generator.state = state["rng"]

    def check_invariants(self) -> None:
        """Raises AssertionError if the buffer contradicts itself."""
        if len(self) > self.max_length:
            raise AssertionError(f"{len(self)} episodes are kept, wanted {self.max_length} at most")
        for episode in self.episodes:
            if len({len(column) for column in episode.values()}) != 1:
                raise AssertionError(f"The columns of an episode differ: { {k: len(v) for k, v in episode.items()} }")
