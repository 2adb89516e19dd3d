"""Rollout workers as Ray actors: the same numbers, failures, and what the cluster can hold."""

import copy

import numpy as np
import pytest
import ray
import torch

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.registry import get_trainer_class
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.exploration.epsilon_greedy import EpsilonGreedy
from rlframe.offline import EpisodeReader
from rlframe.utils.errors import ConfigError, EnvError, WorkerError
from tests.helpers.envs import Counting, Failing
from tests.helpers.frameworks import needs_tf

pytestmark = pytest.mark.ray

CONFIG = {
    "seed": 5,
    "min_iter_time_s": 0,
    "timesteps_per_iteration": 80,
    "learning_starts": 40,
    "hiddens": [16],
    "model": {"fcnet_hiddens": [16]},
    "num_workers": 1,
    "num_cpus_per_worker": 0.5,
    "log_sys_usage": False,
}


def make(env="CartPole-v1", **overrides):
    return DQNTrainer({**copy.deepcopy(CONFIG), **overrides}, env=env)


@pytest.fixture(autouse=True)
def _runtime(ray_runtime):
    return ray_runtime


@pytest.fixture
def trainers():
    made = []

    def build(*args, **kwargs):
        made.append(make(*args, **kwargs))
        return made[-1]

    yield build
    for trainer in made:
        trainer.stop()


@pytest.mark.parametrize(
    ("in_numpy", "framework"),
    [
        (True, "torch"),
        pytest.param(False, "torch", marks=pytest.mark.slow),
        pytest.param(True, "tf", marks=[needs_tf, pytest.mark.slow]),
    ],
)
def test_one_remote_worker_gives_the_numbers_of_none(trainers, in_numpy, framework):
    local = trainers(num_workers=0, framework=framework)
    remote = trainers(sample_in_numpy=in_numpy, framework=framework)
    for _ in range(3):
        a, b = local.train(), remote.train()
        assert a["timesteps_total"] == b["timesteps_total"]
        assert a["hist_stats"] == b["hist_stats"]
    for name, array in local.get_weights()["default_policy"].items():
        np.testing.assert_allclose(array, remote.get_weights()["default_policy"][name], atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", ["SAC", pytest.param("TD3", marks=pytest.mark.slow)])
def test_actors_of_policies_with_several_networks_act_in_numpy_on_remote_workers(name):
    config = {**copy.deepcopy(CONFIG), "train_batch_size": 16, "timesteps_per_iteration": 60, "seed": 3}
    for key in ("hiddens", "model"):
        del config[key]
    local, remote = (get_trainer_class(name)({**config, "num_workers": n}, env="Pendulum-v1") for n in (0, 1))
    for _ in range(2):
        a, b = local.train(), remote.train()
        assert a["info"]["num_steps_trained"] == b["info"]["num_steps_trained"] > 0
    kinds = remote.workers.foreach_worker(lambda worker: type(worker.policy_map["default_policy"]).__name__)
    assert kinds[1] == "NumpyPolicy"
    for key, array in local.get_weights()["default_policy"].items():
        np.testing.assert_allclose(array, remote.get_weights()["default_policy"][key], atol=1e-5, err_msg=key)
    policy = remote.workers.local_worker().get_policy()
    batch = policy.complete_columns(ray.get(remote.workers.remote_workers()[0].sample.remote()))
    here, there = remote.workers.foreach_worker(lambda worker: worker.compute_gradients(batch.copy())[0])
    assert len(here) == len(there) > 0
    remote.stop()


FRAMEWORKS_OF_WORKERS = ["torch", pytest.param("tf", marks=[needs_tf, pytest.mark.slow])]


def kinds_of(trainer):
    return [kind.removesuffix("TorchPolicy").removesuffix("TFPolicy") for kind in trainer.workers.foreach_worker(_kind)]


def _kind(worker):
    return type(worker.get_policy()).__name__


@pytest.mark.parametrize("framework", FRAMEWORKS_OF_WORKERS)
def test_a_function_that_reads_the_model_finds_it_on_remote_workers_and_nothing_else_changes(
    trainers, framework, tmp_path
):
    plain, asked = trainers(framework=framework), trainers(framework=framework)
    for trainer in (plain, asked):
        trainer.train()
    assert kinds_of(asked) == ["DQN", "NumpyPolicy"]
    shapes = asked.workers.foreach_policy(lambda policy, _: [tuple(v.shape) for v in policy.model.variables()])
    assert shapes[1] == shapes[0] != []
    assert kinds_of(asked) == ["DQN", "DQN"]
    for trainer in (plain, asked):
        trainer.train()
    path = asked.save(str(tmp_path))
    asked.restore(path)
    assert plain.train()["hist_stats"] == asked.train()["hist_stats"]
    for name, array in plain.get_weights()["default_policy"].items():
        np.testing.assert_allclose(array, asked.get_weights()["default_policy"][name], atol=1e-6, err_msg=name)


class Sideways(EpsilonGreedy):
    pass


@pytest.mark.slow
def test_what_a_program_set_on_a_policy_stays_when_the_framework_is_loaded(trainers):
    trainer = trainers()

    def mark(policy, _):
        policy.visits, policy.config["own"] = 3, "kept"
        policy.exploration.__class__ = Sideways

    trainer.workers.foreach_policy(mark)
    assert kinds_of(trainer) == ["DQN", "NumpyPolicy"]
    trainer.workers.foreach_policy(lambda policy, _: policy.dist_class)
    assert kinds_of(trainer) == ["DQN", "DQN"]
    found = trainer.workers.foreach_policy(
        lambda policy, _: (policy.visits, policy.config["own"], type(policy.exploration).__name__)
    )
    assert found == [(3, "kept", "Sideways")] * 2


def test_sampling_by_a_function_loads_no_framework(trainers):
    trainer = trainers()
    counts = trainer.workers.foreach_worker(lambda worker: worker.worker_index and worker.sample().count)
    sent = ray.get(trainer.workers.remote_workers()[0].get_policy.remote())
    assert [type(sent).__name__, type(copy.deepcopy(sent)).__name__] == ["NumpyPolicy"] * 2
    assert counts == [0, trainer.config["rollout_fragment_length"]]
    assert kinds_of(trainer) == ["DQN", "NumpyPolicy"]


@pytest.mark.parametrize("framework", FRAMEWORKS_OF_WORKERS)
def test_remote_workers_compute_the_gradients_that_the_local_one_does(trainers, framework):
    trainer = trainers(framework=framework, prioritized_replay=False)
    batch = (
        trainer.workers.local_worker()
        .policy_map["default_policy"]
        .complete_columns(ray.get(trainer.workers.remote_workers()[0].sample.remote()))
    )
    local, remote = trainer.workers.foreach_worker(lambda worker: worker.compute_gradients(batch.copy())[0])
    assert len(local) == len(remote) > 0
    for one, other in zip(local, remote, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_model_that_a_program_changes_on_a_remote_worker_acts_there(trainers):
    trainer = trainers(hiddens=[], dueling=False, explore=False)

    def prefers(worker, action):
        if worker.worker_index:
            layer = next(m for m in worker.get_policy().model.modules() if getattr(m, "out_features", None) == 2)
            layer.weight.data.zero_()
            layer.bias.data.copy_(torch.nn.functional.one_hot(torch.tensor(action), 2))
            return set(worker.sample()["actions"].tolist())
        return None

    for action in (0, 1):
        assert trainer.workers.foreach_worker(lambda worker, wanted=action: prefers(worker, wanted))[1] == {action}


def test_two_workers_report_healthy_and_sample_twice_as_much_per_round(trainers):
    trainer = trainers(num_workers=2)
    result = trainer.train()
    assert result["num_healthy_workers"] == 2
    assert trainer.workers.foreach_worker(lambda worker: worker.worker_index) == [0, 1, 2]
    assert trainer.workers.local_worker().env is None
    assert trainer.workers.foreach_env(lambda env: env.observation_space.shape)[1:] == [[(4,)], [(4,)]]


def test_checkpoint_with_remote_workers_goes_on_bit_for_bit(trainers, tmp_path):
    one = trainers(num_workers=2)
    one.train()
    path = one.save(str(tmp_path))
    two = trainers(num_workers=2, seed=8)
    two.restore(path)
    for _ in range(2):
        a, b = one.train(), two.train()
        assert a["hist_stats"] == b["hist_stats"]
    for name, array in one.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(array, two.get_weights()["default_policy"][name])


def test_filters_are_merged_and_sent_back(trainers):
    trainer = trainers(num_workers=2, observation_filter="MeanStdFilter")
    trainer.train()
    counts = trainer.workers.foreach_worker(lambda w: int(w.filters["default_policy"].rs.n))
    assert counts[0] == counts[1] == counts[2] >= 80


def test_filters_are_merged_where_workers_keep_their_own(trainers):
    trainer = trainers(num_workers=2, observation_filter="MeanStdFilter", synchronize_filters=False)
    trainer.train()
    local, *workers = trainer.workers.foreach_worker(lambda w: int(w.filters["default_policy"].rs.n))
    assert local == sum(workers) > max(workers)  # what the driver acts, evaluates and writes checkpoints by


def test_env_that_raises_on_a_remote_worker_says_where(trainers):
    trainer = trainers(Failing, num_workers=2, env_config={"fail_in": 2, "length": 10})
    with pytest.raises(EnvError, match=r"step\(\) of the environment of worker [12], slot 0 \(episode 1, seed \d+"):
        trainer.train()


def test_env_that_raises_in_its_constructor_on_a_remote_worker_says_where(trainers):
    class Broken(Counting):
        def __init__(self, config):
            raise RuntimeError("no licence")

    with pytest.raises(EnvError, match=r"worker 1, slot 0.*no licence"):
        trainers(Broken)


def test_killed_worker_is_replaced_and_counters_stay_true(trainers):
    trainer = trainers(num_workers=2, recreate_failed_workers=True)
    before = trainer.train()
    trainer.workers.remote_workers()[0].apply.remote(lambda worker: __import__("os")._exit(1))
    after = trainer.train()
    assert after["num_healthy_workers"] == 2
    assert after["num_worker_restarts"] == 1
    assert after["timesteps_total"] >= before["timesteps_total"] + 80
    assert trainer.workers.foreach_worker(lambda worker: worker.worker_index) == [0, 1, 2]


@pytest.mark.slow
def test_killed_worker_is_dropped_when_failures_are_ignored(trainers):
    trainer = trainers(num_workers=2, ignore_worker_failures=True)
    trainer.train()
    trainer.workers.remote_workers()[0].apply.remote(lambda worker: __import__("os")._exit(1))
    assert trainer.train()["num_healthy_workers"] == 1


def test_killed_worker_is_an_error_otherwise(trainers):
    import ray

    trainer = trainers(num_workers=2)
    trainer.train()
    trainer.workers.remote_workers()[0].apply.remote(lambda worker: __import__("os")._exit(1))
    with pytest.raises((ray.exceptions.RayError, WorkerError)):
        _train_thrice(trainer)


def _train_thrice(trainer):
    for _ in range(3):
        trainer.train()


def test_more_workers_than_the_cluster_holds_is_said_at_once():
    with pytest.raises(WorkerError, match="num_workers=64 needs 32 CPU"):
        make(num_workers=64)


def test_remote_evaluation_workers(trainers):
    trainer = trainers(
        Counting,
        num_workers=0,
        env_config={"length": 6},
        evaluation_interval=1,
        evaluation_num_workers=2,
        evaluation_num_episodes=5,
        evaluation_config={"explore": False},
    )
    evaluation = trainer.train()["evaluation"]
    assert evaluation["hist_stats"]["episode_reward"] == [21.0] * 5


@pytest.mark.slow
def test_remote_evaluation_workers_go_on_behind_a_restore(trainers, tmp_path):
    evaluation = {"evaluation_interval": 1, "evaluation_num_workers": 2, "evaluation_num_episodes": 3}
    one, two = (trainers(num_workers=0, **evaluation) for _ in range(2))
    one.train()
    two.restore(one.save(str(tmp_path)))
    first, again = (trainer.evaluate()["evaluation"]["hist_stats"] for trainer in (one, two))
    assert again == first


def test_custom_model_registered_on_the_driver_reaches_the_workers(trainers):
    import torch
    from torch import nn

    from rlframe.models import ModelCatalog
    from rlframe.models.torch.torch_modelv2 import TorchModelV2

    class Tiny(TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            nn.Module.__init__(self)
            self.layer = nn.Linear(4, num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return torch.relu(self.layer(input_dict["obs"])), state

    ModelCatalog.register_custom_model("tiny_for_workers", Tiny)
    assert trainers(model={"custom_model": "tiny_for_workers"}).train()["timesteps_total"] >= 80


def test_workers_sample_with_the_newest_weights_and_have_them_after_train(trainers):
    trainer = trainers(num_workers=2, training_intensity=64.0)
    for _ in range(2):
        trainer.train()
        newest = trainer.get_weights()["default_policy"]
        for weights in trainer.workers.foreach_worker(lambda worker: worker.get_weights()["default_policy"])[1:]:
            for name, array in newest.items():
                np.testing.assert_array_equal(weights[name], array, err_msg=name)


def test_workers_that_sample_ahead_give_every_row_once(trainers):
    trainer = trainers(num_workers=2, sample_async=True, rollout_fragment_length=10)
    for _ in range(3):
        result = trainer.train()
    assert result["timesteps_total"] == trainer.local_replay_buffer.stats()["policy_default_policy"]["num_entries"]
    assert result["timesteps_total"] % 20 == 0
    assert "one round ahead" in str(trainer.plan_report())


def test_sampling_ahead_in_one_process_is_refused():
    with pytest.raises(ConfigError, match="sample_async=True needs num_workers >= 1"):
        make(num_workers=0, sample_async=True)


@pytest.mark.slow
def test_workers_know_the_steps_of_all_and_take_weights_that_are_set(trainers):
    import ray

    trainer = trainers(num_workers=2, rollout_fragment_length=20)
    zeros = {name: np.zeros_like(array) for name, array in trainer.get_weights()["default_policy"].items()}
    trainer.set_weights({"default_policy": zeros})
    rollouts = ParallelRollouts(trainer.workers, mode="bulk_sync")
    for _ in range(4):  # as before learning starts, when no update brings weights and counts along
        next(rollouts)

    def look(worker):
        policy = worker.get_policy()
        return policy.global_timestep, [float(np.abs(array).max()) for array in policy.get_weights().values()]

    for steps, largest in ray.get([worker.apply.remote(look) for worker in trainer.workers.remote_workers()]):
        assert steps == 120 + 20  # 40 a round; its own count would be 80
        assert not any(largest)


@pytest.mark.slow  # it starts two workers
def test_stop_waits_for_the_files_that_workers_write(tmp_path):
    output = {"output": str(tmp_path), "output_config": {"format": "parquet"}, "num_workers": 2}
    trainer = make(**output)
    trainer.train()
    trainer.stop()
    assert not list(tmp_path.glob("*.part"))
    rows = [batch.count for batch in EpisodeReader(str(tmp_path)).read_all_files()]
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    assert sum(rows) >= 80


class ReadsModels(DefaultCallbacks):
    def on_episode_end(self, *, policies, episode, **kwargs):
        episode.custom_metrics["outputs"] = policies["default_policy"].model.num_outputs


@pytest.mark.slow
def test_callbacks_that_read_the_model_find_one_on_remote_workers(trainers):
    assert trainers(callbacks=ReadsModels).train()["custom_metrics"]["outputs_mean"] > 0
