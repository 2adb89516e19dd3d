"""How weights travel to remote workers; no runtime is started."""

from types import SimpleNamespace

import numpy as np
import pytest
import ray

from rlframe.agents.dqn import DQNTrainer
from rlframe.evaluation.cluster import as_argument
from rlframe.evaluation.worker_set import WorkerSet
from rlframe.fast.shared_memory import this_client


@pytest.fixture
def stored(monkeypatch):
    put = []
    monkeypatch.setattr(ray, "put", lambda value: put.append(value) or f"reference {len(put)}")
    return put


def test_small_weights_travel_within_the_call(stored):
    weights = {"one": {"w": np.zeros((64, 64), np.float32)}, "other": {"w": np.zeros((96, 128), np.float32)}}
    assert as_argument(weights, 16) is weights  # 16 KiB and 48 KiB
    assert not stored


@pytest.mark.parametrize(
    ("weights", "receivers"),
    [
        ({"one": {"w": np.zeros((64, 64), np.float32)}}, 17),
        ({"one": {"w": np.zeros((128, 128), np.float32)}, "other": {"b": np.zeros(1, np.float32)}}, 1),
        ({"one": {"of a user's own": [0.0]}}, 1),
        ({"one": [0.0]}, 1),
    ],
    ids=["many receivers", "large", "no arrays", "no names"],
)
def test_others_are_put_into_the_object_store_once(stored, weights, receivers):
    assert as_argument(weights, receivers) == "reference 1"
    assert len(stored) == 1
    assert stored[0] is weights


class Receiver:
    """A remote worker that notes its calls."""

    def __init__(self):
        self.calls = []
        for name in ("set_weights", "set_global_vars"):
            setattr(self, name, SimpleNamespace(remote=lambda *args, name=name: self.calls.append((name, *args))))


@pytest.fixture
def worker_set():
    workers = WorkerSet(env_creator=None, _setup=False)
    one = {"one": {"w": np.ones(1)}}
    workers._local_worker = SimpleNamespace(policy_map=one, get_weights=lambda policies: one)
    workers.sync_before_sampling()
    return workers


def test_a_worker_gets_what_it_lacks_and_once(worker_set):
    one, other = Receiver(), Receiver()
    assert worker_set.news_for(one) == (None, None)
    worker_set.weights_changed(global_vars={"timestep": 8})
    weights, told = worker_set.news_for(one, {"timestep": 9})
    assert (list(weights), told) == (["one"], {"timestep": 9})
    assert worker_set.news_for(one, {"timestep": 9}) == (None, None)
    assert worker_set.news_for(one, {"timestep": 10}) == (None, {"timestep": 10})
    for _ in range(2):
        worker_set.update_worker(one, {"timestep": 11})
        worker_set.update_worker(other)
    assert one.calls == [("set_global_vars", {"timestep": 11})]
    assert other.calls == [("set_weights", weights, {"timestep": 8})]


@pytest.mark.parametrize("policies", [["opponent"], None])
def test_weights_that_a_program_set_are_not_missed_beside_a_learners_copy(worker_set, policies):
    """A learner thread's copies are of the policies that learn; an opponent's are set between two updates."""
    set_by_hand = {"opponent": {"w": np.zeros(1)}, "learner": {"w": np.zeros(1)}}
    asked = []
    worker_set._local_worker = SimpleNamespace(
        policy_map=set_by_hand,
        get_weights=lambda names: asked.append(names) or {pid: set_by_hand[pid] for pid in names},
    )
    worker = Receiver()
    worker_set.weights_changed(policies)
    copied = {"learner": {"w": np.ones(1)}}
    worker_set.weights_changed(["learner"], weights=copied)
    weights, _ = worker_set.news_for(worker)
    assert weights == {"opponent": set_by_hand["opponent"], "learner": copied["learner"]}
    assert asked == [["opponent"]]  # the others are in the copy


def test_a_worker_takes_weights_with_the_call_before_it_samples():
    trainer = DQNTrainer({"seed": 0, "log_sys_usage": False, "model": {"fcnet_hiddens": [4]}}, env="CartPole-v1")
    worker = trainer.workers.local_worker()
    weights = {pid: {name: w + 1 for name, w in ws.items()} for pid, ws in worker.get_weights().items()}
    assert worker.sample_shared(this_client(), weights, {"timestep": 77}) is not None
    for name, array in worker.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(array, weights["default_policy"][name])
    assert worker.get_global_vars() == {"timestep": 77}
