"""Ape-X with remote workers and shards: priorities, pace, killed workers and shards, checkpoints, plans of RLlib's."""

import copy
import gc
import math
import os
import threading
import weakref

import numpy as np
import pytest

from rlframe.agents.dqn import ApexTrainer
from rlframe.agents.registry import get_trainer_class
from rlframe.data.sample_batch import SampleBatch
from rlframe.execution.replay_buffer import ReplayActor
from rlframe.execution.train_ops import Replay, StoreToReplayBuffer
from rlframe.utils.errors import WorkerError

pytestmark = pytest.mark.ray

FRAGMENT = 20
CONFIG = {
    "seed": 5,
    "num_workers": 2,
    "num_cpus_per_worker": 0.5,
    "learning_starts": 100,
    "min_iter_time_s": 0,
    "timesteps_per_iteration": 300,
    "model": {"fcnet_hiddens": [16]},
    "hiddens": [16],
    "train_batch_size": 32,
    "rollout_fragment_length": FRAGMENT,
    "target_network_update_freq": 100,
    "optimizer": {"num_replay_buffer_shards": 2, "max_weight_sync_delay": 40},
    "replay_buffer_config": {"capacity": 5000},
    "log_sys_usage": False,
}


@pytest.fixture(scope="module")
def build(ray_runtime):
    made = []

    def build(**overrides):
        made.append(ApexTrainer({**copy.deepcopy(CONFIG), **overrides}, env="CartPole-v1"))
        return made[-1]

    yield build
    for trainer in made:
        trainer.stop()


@pytest.fixture(scope="module")
def trainer(build):
    """One that goes on when workers and shards die."""
    return build(recreate_failed_workers=True)


def train_until_learned(trainer):
    for _ in range(50):
        result = trainer.train()
        if result["info"]["learner"]:
            return result
    raise AssertionError("nothing was learned in 50 iterations")


def stored(trainer):
    """Returns how many steps each shard was given."""
    return [state["num_added"] for state in trainer.local_replay_buffer.get_state()["shards"]]


@pytest.mark.slow
def test_iterations_end_while_the_shards_fill_up(build):
    trainer = build(learning_starts=10**9)
    first, second = trainer.train(), trainer.train()
    assert not first["info"]["learner"]
    assert not second["info"]["learner"]
    trainer.stop()
    assert second["timesteps_total"] >= first["timesteps_total"] + CONFIG["timesteps_per_iteration"]


@pytest.mark.slow
def test_iterations_end_with_what_was_learned_once_the_shards_are_full_enough(build):
    trainer = build(learning_starts=2 * FRAGMENT, timesteps_per_iteration=FRAGMENT)
    results = [trainer.train() for _ in range(3)]
    trainer.stop()
    learned = [result for result in results if result["timesteps_total"] >= 2 * FRAGMENT]
    assert learned
    assert all(result["info"]["learner"]["default_policy"]["learner_stats"] for result in learned)


@pytest.mark.parametrize("name", ["APEX", pytest.param("APPO", marks=pytest.mark.slow)])
def test_a_trainer_that_is_dropped_releases_its_workers_and_ends_its_learner_thread(name, ray_runtime):
    own = CONFIG if name == "APEX" else {"num_gpus": 0, "train_batch_size": 40, "rollout_fragment_length": 20}
    trainer = get_trainer_class(name)({**copy.deepcopy(own), "num_workers": 1, "min_iter_time_s": 0}, env="CartPole-v1")
    trainer.train()
    workers = weakref.ref(trainer.workers)
    (learner,) = [thread for thread in threading.enumerate() if thread.name == "rlframe-learner"]
    del trainer
    gc.collect()
    assert workers() is None
    learner.join(60)
    assert not learner.is_alive()


def test_workers_store_and_a_thread_learns(trainer):
    import ray

    train_until_learned(trainer)
    result = trainer.train()
    info = result["info"]
    assert all(math.isfinite(value) for value in info["learner"]["default_policy"]["learner_stats"].values())
    assert info["num_agent_steps_trained"] == info["num_steps_trained"] > 0
    assert info["num_target_updates"] > 0
    assert info["num_weight_syncs"] > 0
    assert {"learner_queue", "timing_breakdown", "replay_shard_0"} <= set(info)
    assert {"learner_dequeue_time_ms", "learner_grad_time_ms", "learner_overall_time_ms"} <= set(result["timers"])
    epsilons = [state["cur_epsilon"] for state in info["exploration_infos"]]
    assert epsilons == pytest.approx([0.0, 0.4, 0.4**8])  # the local worker's first
    # Every step that was counted is in a shard, once; at most one fragment waits in the plan for room.
    assert 0 <= result["timesteps_total"] - sum(stored(trainer)) <= FRAGMENT
    state = ray.get(trainer.local_replay_buffer.actors()[0].get_state.remote())
    assert len(np.unique(state["buffers"]["default_policy"]["powers"])) > 20


def test_shards_do_not_give_way_to_the_learner_that_waits_for_them(trainer):
    import ray

    shards, here = trainer.local_replay_buffer.actors(), os.getpriority(os.PRIO_PROCESS, 0)
    pids = ray.get([shard.__ray_call__.remote(lambda _: os.getpid()) for shard in shards])
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in pids] == [here, here]


def test_checkpoints_hold_what_is_in_the_shards_and_one_process_takes_it_too(trainer, build, tmp_path):
    result = train_until_learned(trainer)
    before = stored(trainer)
    path = trainer.save(str(tmp_path))
    trainer.train()
    trainer.restore(path)
    assert stored(trainer) == before
    assert trainer.train()["timesteps_total"] > result["timesteps_total"]
    alone = build(num_workers=0)
    alone.restore(path)
    assert stored(alone) == before
    assert alone.train()["timesteps_total"] > result["timesteps_total"]


@pytest.mark.fault
def test_a_killed_shard_is_replaced_by_an_empty_one_and_the_run_goes_on(trainer, caplog):
    import ray

    first = train_until_learned(trainer)
    kept, killed = trainer.local_replay_buffer.actors()
    ray.kill(killed)
    for _ in range(50):
        trainer.train()
        if "replay shard 2 of 2 died" in caplog.text:
            break
    assert "its transitions are lost; an empty one takes its place" in caplog.text
    actors = trainer.local_replay_buffer.actors()
    assert actors[0] == kept
    assert actors[1] != killed
    for _ in range(3):
        result = trainer.train()
    assert result["info"]["num_steps_trained"] > first["info"]["num_steps_trained"]
    assert stored(trainer)[1] > 0
    assert trainer.workers.restarts == 0


@pytest.mark.slow
@pytest.mark.fault
def test_a_killed_worker_is_replaced_and_what_the_shards_hold_stays(trainer):
    import ray

    first = train_until_learned(trainer)
    shards, held = trainer.local_replay_buffer.actors(), stored(trainer)
    ray.kill(trainer.workers.remote_workers()[0])
    for _ in range(50):
        result = trainer.train()
        if trainer.workers.restarts:
            break
    assert trainer.workers.restarts == 1
    assert trainer.local_replay_buffer.actors() == shards
    result = trainer.train()
    assert result["num_healthy_workers"] == 2
    assert result["info"]["num_steps_trained"] > first["info"]["num_steps_trained"]
    # Nothing is counted or stored twice: what is stored since is what was counted since.
    counted = result["timesteps_total"] - first["timesteps_total"]
    assert abs(counted - (sum(stored(trainer)) - sum(held))) <= 2 * FRAGMENT


@pytest.mark.fault
@pytest.mark.usefixtures("ray_runtime")
def test_killed_shards_say_what_to_do():
    import ray

    shard = ReplayActor.remote()
    store, replay = StoreToReplayBuffer(actors=[shard]), Replay(actors=[shard])
    ray.kill(shard)
    said = (
        r"a replay shard died, and its transitions are lost \(.*\); recreate_failed_workers=True puts an empty one in"
    )
    with pytest.raises(WorkerError, match=said):
        next(replay)
    with pytest.raises(WorkerError, match=said):
        store_until_answered(store, {"obs": np.zeros((2, 1), np.float32)})


@pytest.mark.usefixtures("ray_runtime")
def test_a_shard_stores_and_replays():
    import ray

    shard = ReplayActor.remote(learning_starts=0, replay_batch_size=3)
    rows = {"obs": np.zeros((4, 1), np.float32), "actions": np.zeros(4, np.int64)}
    ray.get(shard.add_batch.remote(SampleBatch(rows)))
    assert ray.get(shard.replay.remote()).count == 3
    assert ray.get(shard.stats.remote())["policy_default_policy"]["num_entries"] == 4
    ray.kill(shard)


@pytest.mark.usefixtures("ray_runtime")
def test_a_shard_that_refuses_a_batch_says_why():
    store = StoreToReplayBuffer(actors=[ReplayActor.remote()])
    rows = {"obs": np.zeros((2, 1), np.float32), "weights": np.array([1.0, np.nan], np.float32)}
    with pytest.raises(ValueError, match=r"a replay shard refused: Priorities must be finite and above 0; got \[nan\]"):
        store_until_answered(store, rows)


def store_until_answered(store, rows):
    for _ in range(20):  # what an actor says to a batch comes later than the call
        store(SampleBatch(rows))


@pytest.mark.slow
def test_training_intensity_holds_back_who_is_ahead(build):
    trainer = build(training_intensity=4.0)
    for _ in range(4):
        result = trainer.train()
    sampled, trained = result["timesteps_total"] - CONFIG["learning_starts"], result["info"]["num_steps_trained"]
    queued = 2 * 16 * CONFIG["train_batch_size"]
    assert 4 * (sampled - 5 * FRAGMENT) - queued <= trained <= 4 * sampled
