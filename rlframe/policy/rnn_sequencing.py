"""RLlib's path to the functions that cut batches into sequences."""

from rlframe.data.sequences import (
    add_time_dimension,
    chop_into_sequences,
    pad_batch_to_sequences_of_same_size,
    timeslice_along_seq_lens_with_overlap,
)

__all__ = [
    "add_time_dimension",
    "chop_into_sequences",
    "pad_batch_to_sequences_of_same_size",
    "timeslice_along_seq_lens_with_overlap",
]
