"""Batches on a device: numeric columns become tensors, others stay."""

import numpy as np
import torch

from rlframe.data.sample_batch import SampleBatch


def test_to_device_numbers_become_tensors_and_objects_stay():
    batch = SampleBatch(
        {"obs": {"a": np.zeros((2, 3))}, "infos": [{}, {}], "n": np.array(["x", "y"]), "seq_lens": [1, 1]}
    )
    assert batch.to_device("cpu") is batch
    assert batch["obs"]["a"].dtype == torch.float32
    assert batch["infos"].dtype == object
    assert batch["n"].tolist() == ["x", "y"]
    assert batch.count == 2
    assert batch[0:1]["obs"]["a"].shape == (1, 3)


def test_dones_of_tensors_are_derived_and_copies_are_clones():
    batch = SampleBatch.from_columns(
        {"terminateds": torch.tensor([True, False]), "truncateds": torch.tensor([False] * 2)}
    )
    assert batch["dones"].tolist() == [True, False]
    clone = batch.copy()
    batch["terminateds"][1] = True
    assert clone["terminateds"].tolist() == [True, False]
    assert batch.size_bytes() == 4
