"""Both sides of shared memory, for processes that are started to be one: no more is imported than they need."""

import pickle

import numpy as np

from rlframe.data.sample_batch import SampleBatch
from rlframe.fast.shared_memory import SharedMemoryPool

SHAPE = (40, 84, 84)  # 282,240 bytes


def lent(lender, value):
    """Returns a batch whose observations lie in a lender's memory."""
    obs = lender.empty(SHAPE, np.uint8)
    obs[:] = value
    return SampleBatch({"rewards": np.arange(40.0), "obs": obs, "actions": np.arange(40)})


def sent(lender, batch):
    """Returns what goes to another process, as bytes."""
    return pickle.dumps(lender.export(batch))


def looked_at(messages, answers):
    """A process that takes batches, and answers with what it found in them."""
    while (message := messages.recv()) is not None:
        batch = pickle.loads(message)
        obs = batch["obs"]
        answers.send((list(batch), obs.shape, obs.dtype.str, int(obs.min()), int(obs.max()), obs.flags.writeable))
        del batch, obs


def ended(messages):
    """A process that sends a batch and ends."""
    lender = SharedMemoryPool()
    messages.send(sent(lender, lent(lender, 1)))
