"""IMPALA and APPO with remote workers: threads, counters, killed workers, aggregation, and what is left behind."""

import copy
import math
import threading
import time

import numpy as np
import pytest

from rlframe.agents.impala import ImpalaTrainer
from rlframe.agents.ppo import APPOTrainer
from rlframe.execution.plan.nodes import walk
from rlframe.utils.errors import NonFiniteError
from tests.helpers.frameworks import needs_tf

pytestmark = pytest.mark.ray

CONFIG = {
    "seed": 5,
    "min_iter_time_s": 0,
    "timesteps_per_iteration": 400,
    "model": {"fcnet_hiddens": [16]},
    "train_batch_size": 80,
    "rollout_fragment_length": 20,
    "num_workers": 2,
    "num_cpus_per_worker": 0.5,
    "log_sys_usage": False,
}
DEADLINE_S = 60


@pytest.fixture(autouse=True)
def _runtime(ray_runtime):
    return ray_runtime


@pytest.fixture
def trainers():
    made = []

    def build(cls=ImpalaTrainer, **overrides):
        made.append(cls({**copy.deepcopy(CONFIG), **overrides}, env="CartPole-v1"))
        return made[-1]

    yield build
    for trainer in made:
        trainer.stop()
    assert learner_threads() == []


def learner_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rlframe-")]


def aggregators(trainer):
    """Returns the actors that join fragments in the trainer's plan."""
    sources = [getattr(node, "_iterator", None) for node in walk(trainer.train_exec_impl.build())]
    return [actor for source in sources for actor in getattr(source, "_actors", [])]


@pytest.mark.parametrize(
    ("cls", "framework"),
    [(ImpalaTrainer, "torch"), pytest.param(APPOTrainer, "tf", marks=[needs_tf, pytest.mark.slow])],
    ids=["IMPALA", "APPO-tf"],
)
def test_a_thread_learns_what_workers_sample(trainers, cls, framework):
    trainer = trainers(cls, framework=framework)
    before = trainer.get_weights()["default_policy"]
    result = trainer.train()
    result = trainer.train()
    info = result["info"]
    assert info["num_steps_sampled"] >= info["num_steps_trained"] >= 160
    assert info["num_steps_trained"] % 80 == 0
    assert info["num_agent_steps_trained"] == info["num_steps_trained"]
    assert info["learner_queue"]["size_count"] >= 2
    assert info["timing_breakdown"]["learner_grad_time_ms"] > 0
    stats = info["learner"]["default_policy"]["learner_stats"]
    assert all(math.isfinite(value) for value in stats.values())
    assert ("num_target_updates" in info) is (cls is APPOTrainer)
    after = trainer.get_weights()["default_policy"]
    assert any(not np.array_equal(before[name], array) for name, array in after.items() if "popart" not in name)
    assert learner_threads() == ["rlframe-learner"]
    trainer.stop()
    assert learner_threads() == []


def test_between_iterations_nothing_moves_and_workers_have_weights_that_the_learner_had(trainers):
    trainer = trainers()
    trainer.train()
    weights = trainer.get_weights()["default_policy"]
    time.sleep(0.3)
    for name, array in trainer.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(array, weights[name])
    sent = [ws["default_policy"] for ws in trainer.workers.foreach_worker(lambda worker: worker.get_weights())[1:]]
    for name, array in sent[0].items():
        np.testing.assert_array_equal(array, sent[1][name])


def test_what_the_learner_raises_is_raised_by_train(trainers):
    trainer = trainers()
    trainer.train()
    policy = trainer.get_policy()
    broken = {name: np.full_like(array, np.nan) for name, array in policy.get_weights().items()}
    policy.set_weights(broken)

    def run():
        for _ in range(20):
            trainer.train()

    with pytest.raises(NonFiniteError):
        run()


def test_a_worker_that_is_killed_is_replaced_and_the_run_goes_on(trainers):
    import ray

    trainer = trainers(recreate_failed_workers=True)
    first = trainer.train()
    ray.kill(trainer.workers.remote_workers()[0])
    until = time.monotonic() + DEADLINE_S
    while trainer.workers.restarts == 0 and time.monotonic() < until:
        result = trainer.train()
    assert trainer.workers.restarts == 1
    result = trainer.train()
    assert result["num_healthy_workers"] == 2
    assert result["info"]["num_steps_trained"] > first["info"]["num_steps_trained"]
    assert learner_threads() == ["rlframe-learner"]


@pytest.mark.parametrize(
    "cls", [pytest.param(ImpalaTrainer, id="IMPALA"), pytest.param(APPOTrainer, id="APPO", marks=pytest.mark.slow)]
)
def test_a_checkpoint_goes_on_with_its_counters(trainers, cls, tmp_path):
    trainer = trainers(cls)
    result = trainer.train()
    path = trainer.save(str(tmp_path))
    again = trainers(cls)
    again.train()
    again.restore(path)
    for name, array in trainer.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(array, again.get_weights()["default_policy"][name])
    after = again.train()
    assert after["info"]["num_steps_trained"] >= result["info"]["num_steps_trained"] + 80
    if cls is APPOTrainer:
        assert after["info"]["num_target_updates"] > result["info"]["num_target_updates"]
    assert len(learner_threads()) == 2


@pytest.mark.parametrize(
    ("cls", "before", "after"),
    [(ImpalaTrainer, 2, 0), pytest.param(APPOTrainer, 0, 2, marks=pytest.mark.slow)],
    ids=["IMPALA", "APPO"],
)
def test_a_checkpoint_goes_on_with_other_workers(trainers, cls, before, after, tmp_path, caplog):
    trainer = trainers(cls, num_workers=before, observation_filter="MeanStdFilter")
    result = trainer.train()
    path = trainer.save(str(tmp_path))
    again = trainers(cls, num_workers=after, observation_filter="MeanStdFilter")
    again.restore(path)
    for name, array in trainer.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(array, again.get_weights()["default_policy"][name])
    obs = np.array([0.1, 0.2, 0.3, 0.4])
    wanted = trainer.compute_single_action(obs, explore=False, full_fetch=True)[2]["action_dist_inputs"]
    np.testing.assert_array_equal(
        again.compute_single_action(obs, explore=False, full_fetch=True)[2]["action_dist_inputs"], wanted
    )
    assert again.evaluate()["evaluation"]["episodes_this_iter"] == 10
    assert not caplog.records  # who only acts loses nothing
    results = [again.train() for _ in range(2)]
    assert [record.message.split(":")[0] for record in caplog.records] == [
        f"{again._name} was restored from a checkpoint whose plan had other operators, as with other settings "
        "(num_workers=0 or more, num_aggregation_workers, microbatch_size) or another execution plan. Policies, "
        "filters and counters are those of the checkpoint; rows that its plan held, and the plan's random streams, "
        "are not"
    ]
    assert results[0]["timesteps_total"] >= result["timesteps_total"] + 80
    assert results[0]["info"]["num_steps_trained"] >= result["info"]["num_steps_trained"] + 80
    assert results[0]["training_iteration"] == 2


@pytest.mark.slow
def test_batches_are_unpacked_ahead_by_a_second_thread(trainers):
    trainer = trainers(num_multi_gpu_tower_stacks=2, compress_observations=True, num_sgd_iter=2)
    result = trainer.train()
    assert result["info"]["num_steps_trained"] >= 80
    assert sorted(learner_threads()) == ["rlframe-learner", "rlframe-loader"]


@pytest.mark.slow
def test_aggregation_workers_join_fragments_and_end_with_the_trainer(trainers):
    import ray

    trainer = trainers(num_aggregation_workers=2, replay_proportion=1.0, replay_buffer_num_slots=4)
    trainer.train()
    result = trainer.train()
    info = result["info"]
    # As many earlier fragments as new ones are learned from.
    assert info["num_steps_trained"] > info["num_steps_sampled"]
    assert info["num_steps_sampled"] % 20 == 0
    actors = aggregators(trainer)
    assert len(actors) == 2
    trainer.stop()
    for actor in actors:
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(actor.next_batch.remote(), timeout=DEADLINE_S)


@pytest.mark.slow
def test_aggregation_goes_on_with_a_new_worker(trainers):
    import ray

    trainer = trainers(num_aggregation_workers=1, recreate_failed_workers=True)
    trainer.train()
    ray.kill(trainer.workers.remote_workers()[1])
    until = time.monotonic() + DEADLINE_S
    while trainer.workers.restarts == 0 and time.monotonic() < until:
        trainer.train()
    assert trainer.train()["num_healthy_workers"] == 2
    assert trainer.workers.restarts == 1
