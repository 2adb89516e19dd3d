"""What gives experience: the base of all readers, and those that stand around another one."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline.json_format import as_text, from_line

Batch = SampleBatch | MultiAgentBatch
_LOGGER = logging.getLogger("rlframe")


class InputReader(ABC):
    """Gives batches of experience, without end. Derive from it to read what no reader here does.

    A reader whose place shall be in checkpoints has `get_state() -> dict` and `set_state(state)`, too.
    """

    @abstractmethod
    def next(self) -> Batch:
        """Returns the next batch."""

    def tf_input_ops(self, queue_size: int = 1) -> dict[str, Any]:
        """Returns the columns of the next batch as tensors of TensorFlow, read anew by each traced execution.

        Args:
            queue_size: RLlib's; batches are read when they are wanted.
        """
        from rlframe.offline.reader_tf import input_ops

        del queue_size
        return input_ops(self)


class SampledInput(InputReader):
    """What a worker samples in its environments, as a reader.

    Args:
        worker: The RolloutWorker.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def next(self) -> Batch:
        """Returns the next fragment."""
        batch: Batch = self._worker.sample_environments()
        return batch


class ShuffledInput(InputReader):
    """Mixes the batches of another reader among each other; rows stay in their batches.

    Args:
        child: The other reader.
        n: Batches among which the next one is drawn; that many are read at first. 0 shuffles nothing.
        seed: Of the draws.
    """

    def __init__(self, child: InputReader, n: int = 0, seed: int | None = None) -> None:
        self.child, self.n = child, n
        self.buffer: list[Batch] = []
        self._rng = np.random.default_rng(seed)

    def next(self) -> Batch:
        """Returns one of the batches held, and reads another in its place."""
        if self.n <= 1:
            return self.child.next()
        while len(self.buffer) < self.n:
            self.buffer.append(self.child.next())
        place = int(self._rng.integers(self.n))
        drawn, self.buffer[place] = self.buffer[place], self.child.next()
        return drawn

    def get_state(self) -> dict[str, Any]:
        """Returns the other reader's place, the batches held and the generator's state."""
        return {
            "child": state_of(self.child),
            "buffer": [as_text(batch) for batch in self.buffer],
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        give_state(self.child, state["child"])
        self.buffer = [from_line(text) for text in state["buffer"]]
        self._rng.bit_generator.state = state["rng"]


def state_of(reader: Any) -> dict[str, Any] | None:
    """Returns the place of a reader, None of one that cannot tell it."""
    if not callable(getattr(reader, "get_state", None)):
        return None
    return {"kind": type(reader).__name__, "place": reader.get_state()}


def give_state(reader: Any, state: Mapping[str, Any] | None) -> None:
    """Takes a reader to a place that `state_of` returned; one of another kind begins anew, which is said."""
    if state is None:
        return
    if state["kind"] == type(reader).__name__:
        reader.set_state(state["place"])
    else:
        _LOGGER.warning("input: it was read by a %s, and begins anew with a %s", state["kind"], type(reader).__name__)


def rotated(count: int, first: int) -> list[int]:
    """Returns 0, 1, ... count - 1, beginning at `first`."""
    return [(first + index) % count for index in range(count)]


__all__ = ["InputReader", "SampledInput", "ShuffledInput", "give_state", "rotated", "state_of"]
