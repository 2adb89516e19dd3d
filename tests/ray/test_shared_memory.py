"""Rows that come through memory that both processes map: the same rows, never overwritten while somebody has them."""

import gc
import multiprocessing
import os
import pickle

import gymnasium
import numpy as np
import pytest
import ray

from rlframe.agents.impala import ImpalaTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.fast import shared_memory
from rlframe.fast.shared_memory import MOST_SEGMENTS, SharedMemoryPool, StaleFragment, this_client
from rlframe.policy.policy import Policy
from rlframe.utils.errors import ConfigError
from tests.helpers.shared_memory import SHAPE, ended, lent, looked_at, sent

pytestmark = pytest.mark.ray


class Numbered(gymnasium.Env):
    """Images that are all one number: how often the environment was stepped, from 100,000 * worker on."""

    def __init__(self, config):
        self.observation_space = gymnasium.spaces.Box(0, 10**6, (64, 64), np.int32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.number = 100_000 * config.worker_index

    def reset(self, *, seed=None, options=None):
        return self._image(), {}

    def step(self, action):
        self.number += 1
        return self._image(), 0.0, self.number % 100_000 % 35 == 0, False, {}

    def _image(self):
        return np.full((64, 64), self.number, np.int32)


class Still(Policy):
    train_columns = ()

    def compute_actions(self, obs_batch, *rest, **options):
        return np.zeros(len(obs_batch), np.int64), [], {}

    def get_weights(self):
        return {}

    def set_weights(self, weights):
        del weights


StillTrainer = ImpalaTrainer.with_updates(name="Still", default_policy=Still, get_policy_class=lambda _config: Still)
CONFIG = {
    "num_workers": 2,
    "num_cpus_per_worker": 0.5,
    "rollout_fragment_length": 50,  # 819,200 bytes of observations
    "train_batch_size": 100,
    "min_iter_time_s": 0,
    "log_sys_usage": False,
    "model": {"conv_filters": [[1, [64, 64], 64]]},
}


def test_another_process_reads_what_was_written():
    context = multiprocessing.get_context("spawn")
    messages, sender = context.Pipe(duplex=False)
    receiver, answers = context.Pipe(duplex=False)
    process = context.Process(target=looked_at, args=(messages, answers))
    process.start()
    lender = SharedMemoryPool()
    for value in range(30):  # more than there are segments: they are free again when the other side is through
        message = sent(lender, lent(lender, value))
        assert len(message) < 3_000
        sender.send(message)
        assert receiver.recv() == (["rewards", "obs", "actions"], SHAPE, "|u1", value, value, False)
    assert len(lender._segments) <= 2
    sender.send(None)
    process.join(30)
    assert process.exitcode == 0


def test_memory_is_not_lent_again_while_a_view_of_it_is_held():
    lender = SharedMemoryPool()
    first = pickle.loads(sent(lender, lent(lender, 1)))
    row = first["obs"][3:5, 7]
    del first
    for value in range(2, 8):
        pickle.loads(sent(lender, lent(lender, value)))
    assert (row == 1).all()
    assert len(lender._segments) == 2
    del row
    gc.collect()
    assert all(segment.is_free() for segment in lender._segments)


def test_memory_is_not_lent_again_while_the_sampler_holds_it():
    lender = SharedMemoryPool()
    kept = lent(lender, 1)
    pickle.loads(sent(lender, kept))
    lent(lender, 2)
    assert (kept["obs"] == 1).all()


def test_where_many_are_held_the_others_are_sent_whole():
    lender = SharedMemoryPool()
    messages = [sent(lender, lent(lender, value)) for value in range(MOST_SEGMENTS + 4)]
    assert [len(message) > 282_240 for message in messages] == [False] * MOST_SEGMENTS + [True] * 4
    batches = [pickle.loads(message) for message in messages]
    assert [int(batch["obs"][0, 0, 0]) for batch in batches] == list(range(MOST_SEGMENTS + 4))


def test_what_was_sent_once_is_sent_whole_the_second_time():
    lender = SharedMemoryPool()
    batch = lent(lender, 5)
    assert len(sent(lender, batch)) < 3_000
    assert len(sent(lender, batch)) > 282_240


def test_what_nobody_will_take_is_not_kept():
    lender = SharedMemoryPool()
    client = this_client()
    assert lender.reaches(client)
    mapped, late = sent(lender, lent(lender, 1)), sent(lender, lent(lender, 2))
    held = pickle.loads(mapped)
    assert lender.reaches(this_client())  # the next plan of this process
    assert len(lender._segments) == 1
    for value in range(3, 6):
        pickle.loads(sent(lender, lent(lender, value)))
    assert (held["obs"] == 1).all()
    assert isinstance(pickle.loads(late), StaleFragment)


def test_segments_that_a_sampler_has_given_up_are_not_kept_mapped():
    """Episodes differ in length, and the memory of those before that fitted no more stayed in the driver."""
    lender, unmapped = SharedMemoryPool(), set(shared_memory._mapped)
    for rows in (40, 120) * 2:
        batches = []
        for value in range(MOST_SEGMENTS):
            obs = lender.empty((rows, *SHAPE[1:]), np.uint8)
            obs[:] = value
            batches.append(pickle.loads(sent(lender, SampleBatch({"obs": obs}))))
            del obs
        assert [int(batch["obs"].min()) for batch in batches] == list(range(MOST_SEGMENTS))
        assert len(set(shared_memory._mapped) - unmapped) == MOST_SEGMENTS
        del batches
    assert all(segment.is_free() for segment in lender._segments)


def test_a_forked_child_gives_nothing_back():
    lender = SharedMemoryPool()
    batch = pickle.loads(sent(lender, lent(lender, 1)))
    child = os.fork()
    if child == 0:
        del batch
        os._exit(0)
    os.waitpid(child, 0)
    assert not lender._segments[0].is_free()
    assert (batch["obs"] == 1).all()


def test_without_files_to_open_rows_are_sent_whole(monkeypatch):
    def refuse(name):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    lender = SharedMemoryPool()
    assert len(sent(lender, lent(lender, 1))) > 282_240


def test_a_message_is_read_once():
    lender = SharedMemoryPool()
    message = sent(lender, lent(lender, 5))
    pickle.loads(message)
    with pytest.raises(RuntimeError, match=r"were taken before.*fetch what sample_shared\(\) returns once"):
        pickle.loads(message)


@pytest.mark.parametrize(("shape", "dtype"), [((10, 84), np.float32), ((500, 84, 84), object)])
def test_small_arrays_and_objects_are_not_lent(shape, dtype):
    lender = SharedMemoryPool()
    made = lender.empty(shape, dtype)
    assert made.shape == shape
    assert made.dtype == dtype
    assert not lender._segments


def test_batches_without_lent_columns_go_as_they_are():
    batch = SampleBatch({"obs": np.zeros(SHAPE, np.uint8)})
    assert SharedMemoryPool().export(batch) is batch


def test_only_processes_that_are_found_are_reached():
    client = this_client()
    assert SharedMemoryPool().reaches(client)
    assert not SharedMemoryPool().reaches(client._replace(secret=b"another machine!"))
    assert not SharedMemoryPool().reaches(client._replace(fd=9_999))
    assert not SharedMemoryPool().reaches(client._replace(user=12_345))
    for fd in os.pipe():
        assert not SharedMemoryPool().reaches(client._replace(fd=fd))
        os.close(fd)
    assert not SharedMemoryPool().reaches(client._replace(pid=2**22 + 1))


def test_rows_of_a_process_that_has_ended_are_lost():
    context = multiprocessing.get_context("spawn")
    receiver, messages = context.Pipe(duplex=False)
    process = context.Process(target=ended, args=(messages,))
    process.start()
    message = receiver.recv()
    process.join(30)
    assert not os.path.exists(f"/proc/{process.pid}")
    assert isinstance(pickle.loads(message), StaleFragment)


# --- through Ray ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(ray_runtime):
    """A trainer whose two workers several tests sample from."""
    trainer = StillTrainer({**CONFIG, "recreate_failed_workers": True}, env=Numbered)
    yield trainer
    trainer.stop()


@pytest.fixture
def trainers(ray_runtime):
    made = []

    def make(**overrides):
        made.append(StillTrainer({**CONFIG, **overrides}, env=Numbered))
        return made[-1]

    yield make
    for trainer in made:
        trainer.stop()


def segments(worker):
    return len(worker._shared_memory._segments)


def lent_by(trainer):
    return [count > 0 for count in ray.get([w.apply.remote(segments) for w in trainer.workers.remote_workers()])]


def check_rows(rollouts, least):
    """Each worker's images are numbers of its own, in turn, but those that ended an episode.

    Batches are taken until each worker has given ``least``, which are held until the end: on a busy machine one worker
    can give many before the other has begun.
    """
    held = {1: [], 2: []}
    while min(map(len, held.values())) < least:
        images = next(rollouts).decompress_if_needed()["obs"]
        batches = held[images[0, 0, 0] // 100_000]
        if len(batches) < least:
            batches.append(images)
    for worker, batches in held.items():
        images = np.concatenate(batches)
        assert (images == images[:, :1, :1]).all()
        numbers = images[:, 0, 0]
        assert numbers.tolist() == list(range(numbers[0], numbers[0] + len(numbers)))
        assert numbers[0] // 100_000 == worker


def test_rows_that_lie_in_shared_memory_are_those_that_were_sampled(shared):
    rollouts = ParallelRollouts(shared.workers, mode="async", num_async=2)
    check_rows(rollouts, 12)
    assert lent_by(shared) == [True, True]
    rollouts.close()


@pytest.mark.parametrize(
    ("overrides", "shares"),
    [
        ({"share_memory": False}, False),
        # Rows lie there first, and are sent compressed.
        pytest.param({"compress_observations": True}, True, marks=pytest.mark.slow),
        pytest.param({"num_envs_per_worker": 1, "rollout_fragment_length": 5}, False, marks=pytest.mark.slow),  # small
    ],
)
def test_rows_are_the_same_whatever_way_they_come(trainers, overrides, shares):
    trainer = trainers(**overrides)
    rollouts = ParallelRollouts(trainer.workers, mode="async", num_async=2)
    check_rows(rollouts, 12)
    assert lent_by(trainer) == [shares, shares]
    rollouts.close()


def test_plans_that_end_with_fragments_under_way_take_no_memory(shared):
    for _ in range(12):  # plans that ask for 2 fragments ahead, as each restore begins one
        rollouts = ParallelRollouts(shared.workers, mode="async", num_async=2)
        assert len(rollouts.take(3)) == 3
        rollouts.close()
    for worker in shared.workers.remote_workers():
        assert ray.get(worker.apply.remote(segments)) <= 6


@pytest.mark.slow
def test_whole_episodes_come_too(trainers):
    trainer = trainers(batch_mode="complete_episodes")
    rollouts = ParallelRollouts(trainer.workers, mode="async")
    check_rows(rollouts, 3)
    rollouts.close()


def test_a_worker_that_dies_takes_only_its_own_rows_along(shared):
    rollouts = ParallelRollouts(shared.workers, mode="async", num_async=2)
    held = rollouts.take(4)
    copies = [batch["obs"].copy() for batch in held]
    ray.kill(shared.workers.remote_workers()[0])
    with pytest.raises(ray.exceptions.RayActorError):
        rollouts.take(50)
    for batch, copy in zip(held, copies, strict=True):
        np.testing.assert_array_equal(batch["obs"], copy)
    rollouts.close()


@pytest.mark.slow
def test_impala_learns_from_images_that_come_so(ray_runtime):
    config = {**CONFIG, "recreate_failed_workers": True, "timesteps_per_iteration": 200}
    trainer = ImpalaTrainer(config, env=Numbered)
    before = trainer.train()["info"]["num_steps_trained"]
    ray.kill(trainer.workers.remote_workers()[1])
    for _ in range(3):
        after = trainer.train()["info"]["num_steps_trained"]
    assert after > before
    assert len(trainer.workers.remote_workers()) == 2
    assert lent_by(trainer) == [True, True]
    trainer.stop()


def test_the_key_takes_a_bool():
    with pytest.raises(ConfigError, match="share_memory: got 'no'"):
        StillTrainer({**CONFIG, "share_memory": "no"}, env=Numbered)
