"""Learner steps on a GPU: graphs of a loss with its gradients, and batches in one copy."""

import numpy as np
import pytest
import torch

from rlframe.agents.dqn.dqn import DQNTrainer
from rlframe.agents.impala import ImpalaTrainer
from rlframe.agents.sac import SACTrainer
from rlframe.policy.torch import captured
from rlframe.policy.torch.transfers import download, upload

CPU = torch.device("cpu")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"obs": np.arange(12, dtype=np.float32).reshape(3, 4), "dones": np.array([True, False, True])},
        {"t": np.arange(5), "pixels": np.full((1, 3, 3), 7, np.uint8), "none": np.zeros((0, 2), np.float32)},
        {"scalar": np.array(3.5, np.float32), "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T},
    ],
)
def test_arrays_arrive_as_they_were(arrays):
    made = upload(arrays, CPU)
    assert made.keys() == arrays.keys()
    for name, array in arrays.items():
        got = made[name].numpy()
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array)


def test_results_arrive_as_floats_and_arrays_and_what_is_no_tensor_stays():
    told = {"loss": torch.tensor(2.0), "td_error": torch.arange(3.0), "one": torch.ones(1), "count": torch.tensor(4)}
    made = download({**told, "latency": 0.5}, CPU)
    assert (made["loss"], type(made["loss"]), made["latency"]) == (2.0, float, 0.5)
    np.testing.assert_array_equal(made["td_error"], [0.0, 1.0, 2.0])
    assert made["one"].shape == (1,)
    assert made["count"] is told["count"]
    assert download({"latency": 0.5}, CPU) == {"latency": 0.5}


REPLAY = {"rollout_fragment_length": 1, "learning_starts": 64, "train_batch_size": 32, "timesteps_per_iteration": 200}
CASES = {
    "SAC": (SACTrainer, "Pendulum-v1", REPLAY),
    "DQN": (DQNTrainer, "CartPole-v1", REPLAY),
    "IMPALA": (ImpalaTrainer, "CartPole-v1", {"rollout_fragment_length": 20, "train_batch_size": 60}),
}


def trained(case, monkeypatch, calls):
    """Returns weights, statistics and number of graphs of some updates, of which graphs are made after `calls`."""
    monkeypatch.setattr(captured, "WARM_UP", calls)
    trainer_class, env, config = CASES[case]
    config = {
        **config,
        "num_workers": 0,
        "num_gpus": 1,
        "seed": 0,
        "min_iter_time_s": 0,
    }
    trainer = trainer_class(config, env=env)
    policy = trainer.get_policy()
    result = trainer.train()
    while policy.num_updates < 30:
        result = trainer.train()
    told = result["info"]["learner"]["default_policy"]["learner_stats"]
    made = policy.get_weights(), told, len(policy.without_autograd._graphs)
    trainer.stop()
    return made


@gpu
@pytest.mark.parametrize("case", CASES)
def test_graphs_compute_what_single_launches_do(case, monkeypatch):
    weights, told, graphs = trained(case, monkeypatch, 10)
    plain, plainly_told, none = trained(case, monkeypatch, 10**9)
    assert (graphs, none) == (1, 0)
    for name, array in weights.items():
        np.testing.assert_array_equal(array, plain[name], err_msg=name)
    assert told == plainly_told


class Scaled:
    """Stands for a loss that depends on a number of the host's."""

    _per_row, _loss_outputs = None, {}  # a policy's

    def __init__(self):
        self.factor, self.captured = 2.0, True

    def host_state(self):
        return (self.factor,) if self.captured else None

    def inputs(self):
        return {}

    def __call__(self, batch):
        return batch["x"].sum() * self.factor


@gpu
def test_numbers_of_the_host_and_shapes_have_graphs_of_their_own(monkeypatch):
    monkeypatch.setattr(captured, "WARM_UP", 1)
    scaled = Scaled()
    loss = captured.CapturedLoss(scaled, scaled)
    for factor, size, captures in [(2.0, 3, True), (2.0, 4, True), (5.0, 3, True), (3.0, 3, False), (2.0, 3, True)]:
        scaled.factor, scaled.captured = factor, captures
        for number in range(4):
            x = torch.full((size,), float(number), device="cuda")
            assert loss({"x": x}).item() == size * number * factor
    assert len(loss._graphs) == 3
