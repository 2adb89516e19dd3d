"""Trainers: what a user does with one, in one process."""

import inspect
import math

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents import dqn
from rlframe.agents.dqn import DEFAULT_CONFIG, SIMPLE_Q_DEFAULT_CONFIG, DQNTorchPolicy, DQNTrainer, SimpleQTrainer
from rlframe.agents.dqn.dqn import calculate_rr_weights
from rlframe.agents.pg import PGTrainer
from rlframe.agents.trainer import COMMON_CONFIG, with_common_config
from rlframe.agents.trainer_template import build_trainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.utils.errors import ConfigError
from tests.helpers.envs import Bandit, Counting
from tests.helpers.q_learners import SMALL, make


def test_default_config_can_be_copied_poked_and_passed_on():
    config = dqn.DEFAULT_CONFIG.copy()
    config["model"]["fcnet_hiddens"] = [8]
    config["lr"] = 1e-3
    trainer = DQNTrainer(config, env=Bandit)
    assert trainer.config["model"]["fcnet_hiddens"] == [8]
    assert trainer.config["lr"] == 1e-3
    dqn.DEFAULT_CONFIG["model"]["fcnet_hiddens"] = [256, 256]


def test_default_config_of_a_class_is_read_and_set_as_in_rllib():
    class Quick(DQNTrainer):
        _default_config = {"lr": 0.5}  # noqa: RUF012 - as users write it

    assert DQNTrainer._default_config == DQNTrainer.get_default_config()
    assert {**DQNTrainer.get_default_config(), "lr": 0.5} == Quick.get_default_config()


def test_all_faults_of_a_config_are_reported_at_once():
    with pytest.raises(ConfigError) as error:
        DQNTrainer({"lrr": 1, "gamma": 2.0, "model": {"fcnet_hidens": [3]}, "n_step": "three"}, env=Bandit)
    for word in ("lrr", "gamma", "fcnet_hiddens", "n_step", "three"):
        assert word in str(error.value)


def test_trainer_config_keeps_what_the_user_asked_for():
    trainer = make(Bandit, evaluation_config={"explore": False}, env_config={"a": 1})
    assert trainer.config["env_config"] == {"a": 1}
    assert trainer.config["evaluation_config"] == {"explore": False}


def test_defaults_match_rllibs():
    assert COMMON_CONFIG["num_workers"] == 2
    assert SIMPLE_Q_DEFAULT_CONFIG["num_workers"] == 0
    assert SIMPLE_Q_DEFAULT_CONFIG["target_network_update_freq"] == 500
    assert DEFAULT_CONFIG["prioritized_replay"] is True
    assert DEFAULT_CONFIG["hiddens"] == [256]
    assert DEFAULT_CONFIG["exploration_config"]["epsilon_timesteps"] == 10000


def test_with_common_config_allows_new_keys():
    assert with_common_config({"mine": 1, "lr": 2.0})["mine"] == 1


def test_training_intensity_works_without_workers():
    config = {**DEFAULT_CONFIG, "training_intensity": 16.0}
    assert calculate_rr_weights(config) == [1, 16.0 * 4 / 32]
    assert calculate_rr_weights(DEFAULT_CONFIG) == [1, 1]


def test_result_has_the_documented_keys_from_the_first_iteration_on():
    trainer = make(log_sys_usage=True)
    first, second = trainer.train(), trainer.train()
    wanted = {
        "episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean", "episode_media",
        "episodes_this_iter", "policy_reward_min", "policy_reward_max", "policy_reward_mean", "custom_metrics",
        "hist_stats", "sampler_perf", "off_policy_estimator", "num_healthy_workers", "timesteps_total",
        "timesteps_this_iter", "agent_timesteps_total", "timers", "info", "done", "episodes_total",
        "training_iteration", "trial_id", "experiment_id", "date", "timestamp", "time_this_iter_s", "time_total_s",
        "time_since_restore", "timesteps_since_restore", "iterations_since_restore", "pid", "hostname", "node_ip",
        "config", "perf",
    }  # fmt: skip
    assert wanted <= set(first)
    assert set(first) == set(second)
    assert second["training_iteration"] == 2
    assert second["timesteps_this_iter"] == second["timesteps_total"] - first["timesteps_total"]
    stats = second["info"]["learner"]["default_policy"]
    assert {"mean_q", "min_q", "max_q", "cur_lr", "grad_gnorm"} <= set(stats["learner_stats"])
    assert stats["td_error"].shape == (32,)
    assert second["info"]["num_steps_trained"] > 0
    assert second["info"]["num_target_updates"] >= 1


def test_return_is_nan_only_until_an_episode_ended():
    trainer = make(Counting, env_config={"length": 100})
    assert math.isnan(trainer.train()["episode_reward_mean"])
    assert trainer.train()["episode_reward_mean"] == 5050.0


def test_iteration_lasts_at_least_timesteps_per_iteration():
    trainer = make(timesteps_per_iteration=100)
    totals = [trainer.train()["timesteps_total"] for _ in range(3)]
    assert all(b - a >= 100 for a, b in zip([0, *totals], totals, strict=False))


def test_plan_report_shows_every_operator_with_its_share():
    trainer = make()
    trainer.train()
    text = str(trainer.plan_report())
    for name in ("ParallelRollouts", "StoreToReplayBuffer", "Replay", "TrainOneStep", "UpdatePriorities"):
        assert name in text
    assert "%" in text


def test_logger_writes_results(tmp_path):
    trainer = make(logger_config={"logdir": str(tmp_path)})
    trainer.train()
    trainer.stop()
    names = {path.name for path in tmp_path.glob("*/*")}
    assert {"result.jsonl", "result.json", "progress.csv", "params.json"} <= names


def test_compute_action_takes_one_observation_in_its_old_and_new_forms():
    trainer = make()
    obs = np.zeros(4, np.float32)
    action = trainer.compute_action(obs, explore=False)
    assert action == trainer.compute_single_action(observation=obs, explore=False)
    assert action == trainer.get_policy().compute_single_action(obs, explore=False)[0]
    full = trainer.compute_action(obs, full_fetch=True, explore=False)
    assert full[0] == action
    assert full[1] == []
    assert trainer.compute_actions({"a": obs, "b": obs}, explore=False) == {"a": action, "b": action}


def test_compute_action_of_unknown_policy_names_the_known():
    with pytest.raises(KeyError, match="default_policy"):
        make().compute_action(np.zeros(4, np.float32), policy_id="other")


def test_bandit_is_learned():
    trainer = make(Bandit, timesteps_per_iteration=400, exploration_config={"epsilon_timesteps": 200})
    for _ in range(3):
        trainer.train()
    assert trainer.compute_single_action(np.zeros(1, np.float32), explore=False) == 1
    q, _ = trainer.get_policy().forward(np.zeros((1, 1), np.float32))
    np.testing.assert_allclose(q, [[0.0, 1.0]], atol=0.15)


def test_compute_actions_gives_states_where_they_are_asked_for():
    trainer = make(Counting)
    observations = {"a": [0.0, 0.0], "b": [1.0, 1.0], "c": [2.0, 0.0]}
    plain = trainer.compute_actions(observations, explore=False)
    for state in ({}, []):
        actions, states, extra = trainer.compute_actions(observations, state=state, explore=False)
        assert actions == plain
        assert states == {"a": [], "b": [], "c": []}
        assert set(extra) == {"a", "b", "c"}
        np.testing.assert_array_equal(extra["q_values"][1], extra["b"]["q_values"])  # by name, as in RLlib
    assert trainer.compute_actions(observations, explore=False, timestep=3, episodes=None) == plain
    assert trainer.compute_actions(observations, explore=False, episodes=[None] * 3) == plain


def test_attributes_of_a_class_can_be_listed_whose_policy_is_not_of_the_default_framework():
    class OfTensorFlow(DQNTorchPolicy):
        framework = "tf"

    made = build_trainer(name="Mine", default_policy=OfTensorFlow)
    assert "train" in dict(inspect.getmembers(made))  # as Ray does with classes of actors
    with pytest.raises(AttributeError, match="got 'torch', but the policy OfTensorFlow of Mine learns in 'tf'"):
        _ = made._policy_class


def test_no_default_policy_is_needed_where_each_has_a_class():
    made = build_trainer(name="Mine")
    assert made._policy_class is None  # Ray asks classes for all of their attributes, before there is a config
    table = {"a": (DQNTorchPolicy, None, None, {}), "b": (DQNTorchPolicy, None, None, {})}
    assert made.get_default_policy_class(None, {**COMMON_CONFIG, "multiagent": {"policies": table}}) is None
    multiagent = {"policies": table, "policy_mapping_fn": lambda agent_id, **kwargs: "a"}
    assert sorted(made({"num_workers": 0, "multiagent": multiagent}, env=Bandit).workers.local_worker().policy_map) == [
        "a",
        "b",
    ]
    table["b"] = (None, None, None, {})
    with pytest.raises(ConfigError, match="Mine has no policy"):
        made.get_default_policy_class(None, {**COMMON_CONFIG, "multiagent": {"policies": table}})


def test_default_policy_is_taken_where_get_policy_class_gives_none():
    class Mine(DQNTorchPolicy):
        pass

    made = DQNTrainer.with_updates(name="Mine", default_policy=Mine, get_policy_class=lambda config: None)
    assert made.get_default_policy_class(None, dict(DEFAULT_CONFIG)) is Mine


def test_classes_are_named_as_they_are_called():
    assert build_trainer(name="Mine", default_policy=DQNTorchPolicy).__name__ == "Mine"
    assert DQNTrainer.with_updates(name="Yours").__name__ == "Yours"


def test_exception_in_a_callback_reaches_the_user():
    from rlframe.agents.callbacks import DefaultCallbacks

    class Broken(DefaultCallbacks):
        def on_train_result(self, *, trainer, result, **kwargs):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        make(Bandit, callbacks=Broken).train()


def test_curriculum_gets_a_full_result():
    class Levels(Counting):
        task = 1

        def get_task(self):
            return self.task

        def set_task(self, task):
            self.task = task

    trainer = make(Levels, env_task_fn=lambda result, env, context: result["training_iteration"] + 1)
    trainer.train()
    assert trainer.workers.local_worker().env.task == 2


def test_tasks_may_be_arrays_of_an_environment_within_a_wrapper():
    class Levels(Counting):
        task, sets = np.zeros(2), 0

        def get_task(self):
            return self.task

        def set_task(self, task):
            self.task, self.sets = task, self.sets + 1

    trainer = make(
        lambda config: gym.Wrapper(Levels(config)), env_task_fn=lambda result, env, context: np.array([1, 2])
    )
    trainer.train()
    trainer.train()
    env = trainer.workers.local_worker().env.unwrapped
    assert (env.task.tolist(), env.sets) == ([1, 2], 1)  # what is so already is not set again


def test_a_horizon_of_0_is_none():
    trainer = make("CartPole-v1", horizon=0, rollout_fragment_length=60)
    assert trainer.workers.local_worker().sample().count == 60
    assert trainer.workers.local_worker().runner.settings.horizon is None


def test_fake_sampler_repeats_the_first_batch():
    worker = make(Bandit, fake_sampler=True).workers.local_worker()
    assert worker.sample() is worker.sample()


def test_num_workers_zero_starts_no_ray():
    import ray

    if ray.is_initialized():
        pytest.skip("another test started Ray")
    make(Bandit).train()
    assert not ray.is_initialized()


def test_sample_batches_are_what_users_know():
    assert isinstance(make(Bandit).workers.local_worker().sample(), SampleBatch)


@pytest.mark.filterwarnings("ignore:.*torch.jit.load.*:DeprecationWarning")
@pytest.mark.parametrize("cls", [DQNTrainer, SimpleQTrainer])
def test_policy_model_can_be_exported(cls, tmp_path):
    import torch

    config = {key: value for key, value in SMALL.items() if cls is DQNTrainer or key != "hiddens"}
    trainer = cls(config, env="CartPole-v1")
    trainer.export_policy_model(str(tmp_path))
    module = torch.jit.load(str(tmp_path / "model.pt"))
    obs = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(
        module.dist_inputs(torch.from_numpy(obs)).detach().numpy(),
        trainer.get_policy().forward(obs, False)[0],
        atol=1e-5,
    )
    outputs, _ = module({"obs": torch.from_numpy(obs)}, [torch.zeros(1)], torch.ones(1))  # as RLlib's was called
    assert torch.equal(outputs, module.dist_inputs(torch.from_numpy(obs)))
    onnxruntime = pytest.importorskip("onnxruntime")
    trainer.export_policy_model(str(tmp_path), onnx=13)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (by_onnx,) = session.run(["output"], {"obs": obs, "state_ins": np.zeros(1, np.float32)})
    np.testing.assert_allclose(by_onnx, outputs.detach().numpy(), atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*torch.jit.load.*:DeprecationWarning")
def test_policy_model_with_memory_can_be_exported(tmp_path):
    import torch

    model = {"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": 3, "lstm_use_prev_action": True}
    trainer = PGTrainer({"num_workers": 0, "model": model}, env="CartPole-v1")
    trainer.export_policy_model(str(tmp_path))
    module = torch.jit.load(str(tmp_path / "model.pt"))
    obs = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    states, past = [np.full((2, 3), value, np.float32) for value in (0.1, -0.4)], np.ones(2, np.int64)
    given = {"obs": torch.from_numpy(obs), "prev_actions": torch.from_numpy(past)}
    outputs, after = module(given, [torch.from_numpy(state) for state in states], torch.ones(2, dtype=torch.int32))
    _, wanted, extra = trainer.get_policy().compute_actions(obs, states, prev_action_batch=past, explore=False)
    np.testing.assert_allclose(outputs.detach().numpy(), extra["action_dist_inputs"], atol=1e-5)
    for state, next_state in zip(after, wanted, strict=True):
        np.testing.assert_allclose(state.detach().numpy(), next_state, atol=1e-5)
    with pytest.raises(ValueError, match="which has memory"):
        trainer.export_policy_model(str(tmp_path), onnx=13)


def test_a_config_that_is_no_dict_is_told_what_stands_where():
    with pytest.raises(ConfigError, match=r"PG: got 'MlpPolicy' \(str\) as the config, wanted a dict"):
        PGTrainer("MlpPolicy", "CartPole-v1")
