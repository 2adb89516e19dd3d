"""Operators that few plans have: earlier batches among the new ones, waiting for env steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.execution.plan.context import STEPS_SAMPLED_COUNTER, _get_shared_metrics
from rlframe.execution.plan.item_state import pack_item, unpack_item
from rlframe.utils.seeding import entropy_seed, make_rng

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rlframe.execution.plan.context import Batch


class PoissonReplay:
    """Stores each new batch, and puts a random number of replayed ones behind it; for `.combine()`.

    Takes a batch; gives a list of this batch and of n out of the buffer, n drawn from a Poisson distribution; of this
    batch alone until the buffer has enough to begin. Touches no counters.

    Args:
        local_buffer: A buffer in this process (`add_batch(batch)`; `replay()` returns a batch, or None to wait).
        mean: Mean of n.
        seed: Seed of the numbers.

    Raises:
        ValueError: If the mean is negative.
    """

    def __init__(self, local_buffer: Any, mean: float, seed: int | None = None) -> None:
        if mean < 0:
            raise ValueError(f"Got mean={mean} replayed batches for each new one, wanted 0 or more")
        self.local_buffer = local_buffer
        self.mean = mean
        self._rng = make_rng(entropy_seed() if seed is None else seed, "poisson replay")

    def plan_args(self) -> str:
        """Returns the mean, for reports."""
        return f"{self.mean:g} old per new"

    def __call__(self, batch: Batch) -> list[Batch]:
        """Stores the batch, and returns it with the replayed ones."""
        self.local_buffer.add_batch(batch)
        replayed = (self.local_buffer.replay() for _ in range(int(self._rng.poisson(self.mean))))
        return [batch, *(earlier for earlier in replayed if earlier is not None)]

    def get_state(self) -> dict[str, Any]:
        """Returns the random stream; the buffer is the trainer's."""
        return {"rng": self._rng.bit_generator.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes it back."""
        self._rng.bit_generator.state = state["rng"]


class SimpleReplayBuffer:
    """Keeps the last batches whole, and gives random ones back.

    Args:
        num_slots: Batches to keep; the oldest is dropped for a new one. 0 keeps none.
        replay_proportion: Not used here; `MixInReplay` has its own.
        seed: Seed of the choice.
    """

    def __init__(self, num_slots: int, replay_proportion: float | None = None, seed: int | None = None) -> None:
        if num_slots < 0:
            raise ValueError(f"Got num_slots={num_slots}, wanted 0 or more batches to keep")
        self.num_slots = num_slots
        self.replay_proportion = replay_proportion
        self.replay_batches: list[Batch] = []
        self.replay_index = 0
        self._rng = make_rng(entropy_seed() if seed is None else seed, "simple replay")

    def add_batch(self, sample_batch: Batch) -> None:
        """Keeps a batch."""
        if self.num_slots == 0:
            return
        if len(self.replay_batches) < self.num_slots:
            self.replay_batches.append(sample_batch)
            return
        self.replay_batches[self.replay_index] = sample_batch
        self.replay_index = (self.replay_index + 1) % self.num_slots

    def replay(self) -> Batch | None:
        """Returns a random batch of those kept, or None while there are none."""
        if not self.replay_batches:
            return None
        return self.replay_batches[int(self._rng.integers(len(self.replay_batches)))]

    def get_state(self) -> dict[str, Any]:
        """Returns the batches and the random stream."""
        return {
            "batches": pack_item(self.replay_batches),
            "index": self.replay_index,
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self.replay_batches = unpack_item(state["batches"])
        self.replay_index = int(state["index"])
        self._rng.bit_generator.state = state["rng"]


class MixInReplay:
    """Mixes earlier batches among the new ones; for `.combine()`.

    Takes a batch; gives a list of this batch followed by earlier ones, `replay_proportion` of them per new one on
    average: 2.0 gives two, 0.5 gives one every other time, at random. Touches no counters.

    Args:
        num_slots: Batches to keep.
        replay_proportion: Earlier batches per new one.
        seed: Seed of the choices.

    Raises:
        ValueError: If something is to be mixed in, but nothing kept.
    """

    def __init__(self, num_slots: int, replay_proportion: float, seed: int | None = None) -> None:
        if replay_proportion < 0 or (replay_proportion > 0 and num_slots == 0):
            raise ValueError(
                f"Got replay_proportion={replay_proportion} with num_slots={num_slots}; "
                "wanted a proportion of 0, or above 0 with at least one slot"
            )
        seed = entropy_seed() if seed is None else seed
        self.replay_proportion = replay_proportion
        self.buffer = SimpleReplayBuffer(num_slots, seed=seed)
        self._rng = make_rng(seed, "mix in replay")

    def plan_args(self) -> str:
        """Returns the proportion, for reports."""
        return f"{self.replay_proportion:g} old per new"

    def __call__(self, batch: Batch) -> list[Batch]:
        """Returns the batch and the earlier ones mixed in."""
        mixed = [batch]
        if self.replay_proportion == 0:
            return mixed  # nothing is ever taken out again: keeping batches would only take memory
        self.buffer.add_batch(batch)
        whole = int(self.replay_proportion)
        extra = int(self._rng.random() < self.replay_proportion - whole)
        for _ in range(whole + extra):
            earlier = self.buffer.replay()
            if earlier is not None:
                mixed.append(earlier)
        return mixed

    def get_state(self) -> dict[str, Any]:
        """Returns the buffer and the random stream."""
        return {"buffer": self.buffer.get_state(), "rng": self._rng.bit_generator.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self.buffer.set_state(state["buffer"])
        self._rng.bit_generator.state = state["rng"]


class WaitUntilTimestepsElapsed:
    """False until more than `target_num_timesteps` env steps were sampled; for `.filter()`.

    Takes any item. Reads `num_steps_sampled`.

    Args:
        target_num_timesteps: Env steps to wait for.
    """

    def __init__(self, target_num_timesteps: int) -> None:
        self.target_num_timesteps = target_num_timesteps

    def plan_args(self) -> str:
        """Returns the target, for reports."""
        return f"{self.target_num_timesteps} steps sampled"

    def __call__(self, _item: Any) -> bool:
        """Returns whether more steps than the target were sampled."""
        return _get_shared_metrics().counters[STEPS_SAMPLED_COUNTER] > self.target_num_timesteps
