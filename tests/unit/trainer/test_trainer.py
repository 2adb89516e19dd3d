"""Trainers: what a user does with one, in one process."""

import copy
import logging
import math

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents import dqn, ppo
from rlframe.agents.dqn import DEFAULT_CONFIG, SIMPLE_Q_DEFAULT_CONFIG, DQNTorchPolicy, DQNTrainer, SimpleQTrainer
from rlframe.agents.dqn.dqn import GenericOffPolicyTrainer, calculate_rr_weights
from rlframe.agents.pg import PGTorchPolicy, PGTrainer
from rlframe.agents.trainer import COMMON_CONFIG, Trainer, with_common_config
from rlframe.agents.trainer_template import build_trainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.env import register_env
from rlframe.env.multi_agent_env import make_multi_agent
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.policy import build_policy_class
from rlframe.utils.errors import CheckpointError, ConfigError, EnvError, UnsupportedSpaceException, WorkerError
from tests.helpers.envs import Bandit, Counting, Failing, Masked
from tests.helpers.frameworks import needs_tf

SMALL = {
    "seed": 5,
    "min_iter_time_s": 0,
    "timesteps_per_iteration": 60,
    "learning_starts": 40,
    "hiddens": [16],
    "model": {"fcnet_hiddens": [16]},
    "target_network_update_freq": 50,
    "log_sys_usage": False,
}


def make(env="CartPole-v1", **overrides):
    return DQNTrainer({**copy.deepcopy(SMALL), **overrides}, env=env)


def weights_of(trainer):
    return trainer.get_weights()["default_policy"]


def assert_same_weights(one, two):
    for name, array in weights_of(one).items():
        np.testing.assert_array_equal(array, weights_of(two)[name], err_msg=name)


# --- config -----------------------------------------------------------------------------------------------------


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


# --- environments -----------------------------------------------------------------------------------------------


class OldStyle:
    """gym 0.21's interface on a class of its own."""

    def __init__(self, config):
        self.inner = Counting(config)
        self.observation_space = self.inner.observation_space
        self.action_space = self.inner.action_space

    def reset(self):
        return self.inner.reset()[0]

    def step(self, action):
        obs, reward, terminated, _, info = self.inner.step(action)
        return obs, reward, terminated, info


@pytest.mark.parametrize(
    "env", [Counting, OldStyle, "registered", "tests.helpers.envs.Counting", lambda config: Counting(config)]
)
def test_every_way_to_name_an_environment_trains(env):
    register_env("registered", lambda config: Counting(config))
    result = make(env, env_config={"length": 7}).train()
    assert result["episode_len_mean"] == 7.0
    assert result["episode_reward_mean"] == 28.0


def test_what_a_trial_reserves_may_be_asked_of_a_config_with_keys_of_the_programs_own():
    asked = DQNTrainer.default_resource_request({"num_workers": 2, "train-iterations": 10})
    assert [bundle["CPU"] for bundle in asked.bundles] == [1, 1, 1]


def test_env_may_stand_in_the_config():
    trainer = DQNTrainer({**SMALL, "env": "CartPole-v1"})
    assert trainer.train()["timesteps_total"] >= 60


def test_unknown_env_names_near_ones():
    with pytest.raises(EnvError, match="CartPole-v1"):
        make("CartPole-v11")


def test_continuous_actions_are_refused():
    with pytest.raises(UnsupportedSpaceException, match="Discrete"):
        make("Pendulum-v1")


def test_env_whose_step_returns_the_wrong_tuple_is_named():
    class Wrong(Counting):
        def step(self, action):
            return super().step(action)[:3]

    with pytest.raises(EnvError, match="3"):
        make(Wrong).train()


def test_observation_outside_its_space_is_named_with_value_and_bound():
    class Outside(Counting):
        def _obs(self):
            return np.array([0, 7e6], np.float32)

    with pytest.raises(EnvError, match=r"7000000|7e\+06"):
        make(Outside)


def test_float64_observations_are_cast():
    class Doubles(Counting):
        def _obs(self):
            return np.array([0, self.steps], np.float64)

    make(Doubles).train()


def test_action_masks_through_a_dict_observation_are_respected():
    from rlframe.models.torch.action_mask import ActionMaskModel

    trainer = make(Masked, hiddens=[], dueling=False, model={"custom_model": ActionMaskModel, "fcnet_hiddens": [16]})
    for _ in range(3):
        result = trainer.train()
    assert result["episode_reward_mean"] == 10.0


def test_image_observations_keep_their_dtype_and_train():
    class Images(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (42, 42, 3), np.uint8)
        action_space = gym.spaces.Discrete(2)

        def __init__(self, config):
            self.rng = np.random.default_rng(0)

        def reset(self, *, seed=None, options=None):
            self.steps = 0
            return self.rng.integers(0, 256, (42, 42, 3), np.uint8), {}

        def step(self, action):
            self.steps += 1
            return self.rng.integers(0, 256, (42, 42, 3), np.uint8), 1.0, self.steps == 5, False, {}

    trainer = make(Images, timesteps_per_iteration=8, learning_starts=8, train_batch_size=4)
    trainer.train()
    assert trainer.workers.local_worker().sample()["obs"].dtype == np.uint8


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(5),
        gym.spaces.MultiDiscrete([3, 4]),
        gym.spaces.Tuple((gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (2,)))),
        gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": gym.spaces.Box(-1, 1, (2,))}),
    ],
    ids=str,
)
def test_observation_spaces_train_and_act(space):
    class Any(gym.Env):
        observation_space, action_space = space, gym.spaces.Discrete(2)

        def __init__(self, config):
            space.seed(0)

        def reset(self, *, seed=None, options=None):
            self.steps = 0
            return space.sample(), {}

        def step(self, action):
            self.steps += 1
            return space.sample(), 0.0, self.steps == 5, False, {}

    trainer = make(Any)
    trainer.train()
    assert trainer.compute_single_action(space.sample()) in (0, 1)


# --- results ----------------------------------------------------------------------------------------------------


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


# --- acting -----------------------------------------------------------------------------------------------------


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


# --- derived trainers -------------------------------------------------------------------------------------------


class Mine(DQNTorchPolicy):
    pass


def test_with_updates_default_policy_wins():
    trainer = DQNTrainer.with_updates(default_policy=Mine)(copy.deepcopy(SMALL), env=Bandit)
    assert type(trainer.get_policy()) is Mine


def test_with_updates_old_workaround_works_too():
    derived = DQNTrainer.with_updates(default_policy=Mine, get_policy_class=None)
    assert type(derived(copy.deepcopy(SMALL), env=Bandit).get_policy()) is Mine


def test_with_updates_get_policy_class_falls_back_to_default_when_none():
    derived = DQNTrainer.with_updates(get_policy_class=lambda config: Mine if config["noisy"] else None)
    assert type(derived(copy.deepcopy(SMALL), env=Bandit).get_policy()) is DQNTorchPolicy
    assert type(derived({**copy.deepcopy(SMALL), "noisy": True}, env=Bandit).get_policy()) is Mine


def test_with_updates_own_config_keys_are_allowed():
    derived = DQNTrainer.with_updates(default_config={**DEFAULT_CONFIG, "mine": 1})
    assert derived({**copy.deepcopy(SMALL), "mine": 2}, env=Bandit).config["mine"] == 2
    with pytest.raises(ConfigError, match="mine"):
        make(Bandit, mine=2)


def test_hooks_of_build_trainer_are_called_in_order():
    order = []

    def note(name, result=None):
        def hook(*args):
            order.append(name)
            return result

        return hook

    def plan(workers, config, *, local_replay_buffer):
        order.append("execution_plan")
        return dqn.dqn.execution_plan(workers, config, local_replay_buffer=local_replay_buffer)

    derived = DQNTrainer.with_updates(
        validate_config=note("validate_config"),
        get_policy_class=note("get_policy_class"),
        before_init=note("before_init"),
        validate_env=note("validate_env"),
        execution_plan=plan,
        after_init=note("after_init"),
        before_evaluate_fn=note("before_evaluate"),
    )
    trainer = derived(copy.deepcopy(SMALL), env=Bandit)
    assert order == [
        "validate_config",
        "get_policy_class",
        "before_init",
        "validate_env",
        "execution_plan",
        "after_init",
    ]
    trainer.evaluate()
    assert order[6] == "before_evaluate"


def reinforce_loss(policy, model, dist_class, batch):
    logits, _ = model(batch)
    return -(dist_class(logits, model).logp(batch["actions"]) * batch["rewards"]).mean()


REINFORCE = build_policy_class("Reinforce", framework="torch", loss_fn=reinforce_loss)
ON_POLICY = {"num_workers": 0, "train_batch_size": 40, "rollout_fragment_length": 20, "seed": 0, "lr": 1e-2}


def test_default_plan_is_synchronous_on_policy():
    trainer = build_trainer(name="Reinforce", default_policy=REINFORCE)(ON_POLICY, env=Bandit)
    result = trainer.train()
    assert result["timesteps_total"] == 40
    assert result["info"]["num_steps_trained"] == 40
    for _ in range(60):
        result = trainer.train()
    assert result["episode_reward_mean"] > 0.9


def test_plans_of_two_arguments_and_of_keywords_are_both_called():
    def short(workers, config):
        return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    def long(workers, config, **kwargs):
        assert "local_replay_buffer" in kwargs
        return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    def of_a_trainer(trainer, workers, config, **kwargs):  # RLlib 1.6 to 1.8
        assert trainer.workers is workers
        return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    def with_buffer(workers, config, local_replay_buffer):
        assert local_replay_buffer.num_added == 0
        return short(workers, config)

    for plan in (short, long, of_a_trainer, with_buffer):
        assert (
            DQNTrainer.with_updates(execution_plan=plan)(copy.deepcopy(SMALL), env=Bandit).train()["timesteps_total"]
            >= 60
        )


def test_keys_of_a_plan_of_ones_own_are_those_of_the_algorithm_whose_defaults_it_takes():
    from rlframe.agents.qmix.qmix import DEFAULT_CONFIG

    def plan(workers, config):
        assert (config["optimizer"], config["mixer"], config["mine"]) == ("rmsprop", None, 3)
        return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    defaults = {**DEFAULT_CONFIG, "optimizer": "rmsprop", "mixer": None, "mine": 3}
    made = GenericOffPolicyTrainer.with_updates(
        name="Own", default_config=defaults, default_policy=REINFORCE, execution_plan=plan
    )
    made({"num_workers": 0, "seed": 0}, env=Bandit).stop()
    with pytest.raises(ConfigError, match="mixer: got 'sum'"):
        made({"num_workers": 0, "mixer": "sum"}, env=Bandit)


def test_optimizer_is_said_to_have_no_effect_where_all_code_is_built_in():
    from rlframe.agents.pg import PGTorchPolicy, PGTrainer

    class Own(PGTorchPolicy):
        pass

    table = {"multiagent": {"policies": {"one": (Own, None, None, {}), "other": (None, None, None, {})}}}
    for trainer in (PGTrainer, PGTrainer.with_updates(name="Mine", default_policy=PGTorchPolicy)):
        with pytest.warns(UserWarning, match="optimizer='rmsprop' has no effect: only Ape-X and code of your own read"):
            trainer.merge_trainer_configs(trainer.get_default_config(), {"optimizer": "rmsprop"})
    own = [
        (PGTrainer.with_updates(name="Mine", default_policy=Own), {}),
        (PGTrainer.with_updates(name="Mine", get_policy_class=lambda config: Own), {}),
        (PGTrainer, table),
        (type("Mine", (PGTrainer,), {"get_default_policy_class": lambda self, config: Own}), {}),
    ]
    for trainer, more in own:  # warnings are errors here
        trainer.merge_trainer_configs(trainer.get_default_config(), {"optimizer": "rmsprop", **more})


@pytest.mark.filterwarnings("ignore::rlframe.config.renames.RenamedKeyWarning")
def test_hooks_read_and_change_a_config_by_the_names_that_it_was_written_with():
    def validate(config):
        assert config["model"]["custom_options"] == {"cell_size": 8}
        config["model"]["custom_options"]["checked"] = True

    written = {**DEFAULT_CONFIG, "model": {**DEFAULT_CONFIG["model"], "custom_options": {"cell_size": 8}}}
    made = build_trainer(name="Own", default_config=written, default_policy=REINFORCE, validate_config=validate)
    trainer = made({**written, "num_workers": 0}, env=Bandit)
    assert trainer.config["model"]["custom_model_config"] == {"cell_size": 8, "checked": True}
    assert "custom_options" not in trainer.config["model"]
    trainer.stop()


@pytest.mark.filterwarnings("ignore::rlframe.config.renames.RenamedKeyWarning")
def test_a_config_that_is_its_trainers_own_defaults_once_more_is_no_conflict():
    from rlframe.agents.ppo import DEFAULT_CONFIG as PPO_CONFIG

    written = {**PPO_CONFIG, "vf_share_layers": True, "num_workers": 0}  # model.vf_share_layers is False there
    trainer = build_trainer(name="Own", default_config=written, default_policy=REINFORCE)(written, env=Bandit)
    assert trainer.config["model"]["vf_share_layers"] is True
    trainer.stop()


def test_subclass_may_override_everything():
    class Own(Trainer):
        @classmethod
        def get_default_config(cls):
            return with_common_config({"mine": 3, **ON_POLICY})

        def get_default_policy_class(self, config):
            assert config["mine"] == 3
            return REINFORCE

        @staticmethod
        def execution_plan(workers, config):
            return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    assert Own(env=Bandit).train()["timesteps_total"] == 20


def test_subclass_of_a_built_trainer_may_override_its_plan():
    called = []

    class Own(DQNTrainer):
        @staticmethod
        def execution_plan(workers, config, **kwargs):
            called.append(1)
            return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    Own(copy.deepcopy(SMALL), env=Bandit).train()
    assert called == [1]


def test_plan_may_end_in_a_generator():
    def plan(workers, config):
        for result in StandardMetricsReporting(ParallelRollouts(workers), workers, config):
            yield {**result, "mine": 1}

    trainer = DQNTrainer.with_updates(execution_plan=plan)(copy.deepcopy(SMALL), env=Bandit)
    assert [trainer.train()["mine"] for _ in range(2)] == [1, 1]
    assert trainer.train()["timesteps_total"] > 0
    trainer.restore(trainer.save())


def test_plan_that_returns_something_else_is_named():
    with pytest.raises(ConfigError, match="wanted an iterator"):
        DQNTrainer.with_updates(execution_plan=lambda workers, config: [1])(copy.deepcopy(SMALL), env=Bandit)


def test_unknown_argument_of_build_trainer_is_named():
    with pytest.raises(TypeError, match="default_polcy"):
        build_trainer(name="X", default_polcy=None)


# --- seeds and checkpoints --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"noisy": True, "num_atoms": 5, "n_step": 3}, {"prioritized_replay": False}], ids=str
)
def test_same_seed_gives_the_same_run(options):
    one, two = make(**options), make(**options)
    for _ in range(3):
        a, b = one.train(), two.train()
        assert a["hist_stats"] == b["hist_stats"]
    assert_same_weights(one, two)


def test_seed_zero_is_a_seed_and_another_seed_differs():
    zero, again, other = make(seed=0), make(seed=0), make(seed=1)
    for trainer in (zero, again, other):
        trainer.train()
    assert_same_weights(zero, again)
    assert any(not np.array_equal(a, weights_of(other)[n]) for n, a in weights_of(zero).items())


RAINBOW = {
    "noisy": True,
    "num_atoms": 7,
    "n_step": 3,
    "v_min": 0.0,
    "v_max": 50.0,
    "final_prioritized_replay_beta": 1.0,
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        RAINBOW,
        {"prioritized_replay": False, "num_envs_per_worker": 3},
        {"observation_filter": "MeanStdFilter"},
        {"training_intensity": 24.0},
        {"exploration_config": {"type": "ParameterNoise"}},
        {"batch_mode": "complete_episodes"},
        pytest.param({"framework": "tf"}, marks=[needs_tf, pytest.mark.slow]),
        pytest.param({"framework": "tf2", **RAINBOW}, marks=[needs_tf, pytest.mark.slow]),
    ],
    ids=str,
)
def test_restored_trainer_goes_on_bit_for_bit(options, tmp_path):
    one = make(**options)
    for _ in range(2):
        one.train()
    path = one.save(str(tmp_path))
    assert path.endswith("checkpoint_000002")
    two = make(**{**options, "seed": 99})
    two.restore(path)
    assert two.iteration == 2
    for _ in range(3):
        a, b = one.train(), two.train()
        assert a["timesteps_total"] == b["timesteps_total"]
        assert a["hist_stats"] == b["hist_stats"]
        assert a["episodes_total"] == b["episodes_total"]
        assert a["info"]["num_target_updates"] == b["info"]["num_target_updates"]
    assert_same_weights(one, two)


def test_restore_takes_old_spellings_of_a_checkpoint(tmp_path):
    one = make(Bandit)
    one.train()
    path = one.save(str(tmp_path))
    two = make(Bandit)
    two.restore(path + "/checkpoint-1")
    assert_same_weights(one, two)


def test_save_to_object_and_back():
    one, two = make(Bandit), make(Bandit, seed=9)
    one.train()
    two.restore_from_object(one.save_to_object())
    assert_same_weights(one, two)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        two.restore_from_object(b"something else")


def test_loading_a_checkpoint_needs_no_pickle(tmp_path, monkeypatch):
    import pickle

    one, two = make(Bandit), make(Bandit)
    one.train()
    path = one.save(str(tmp_path))

    def refuse(*args, **kwargs):
        raise AssertionError("a checkpoint was unpickled")

    monkeypatch.setattr(pickle, "load", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "Unpickler", refuse)
    two.restore(path)
    assert_same_weights(one, two)


def test_checkpoint_of_another_algorithm_is_refused_and_changes_nothing(tmp_path):
    other = SimpleQTrainer(
        {"seed": 1, "min_iter_time_s": 0, "timesteps_per_iteration": 50, "learning_starts": 30}, env=Bandit
    )
    other.train()
    path = other.save(str(tmp_path))
    trainer = make(Bandit)
    before = weights_of(trainer)
    with pytest.raises(CheckpointError, match=r"SimpleQ.*DQN"):
        trainer.restore(path)
    assert all(np.array_equal(array, weights_of(trainer)[name]) for name, array in before.items())
    trainer.train()


def test_checkpoint_of_another_space_is_refused(tmp_path):
    one = make(Bandit)
    one.train()
    with pytest.raises(CheckpointError, match="observation_space"):
        make("CartPole-v1").restore(one.save(str(tmp_path)))


def test_checkpoint_of_another_network_is_refused_and_changes_nothing(tmp_path):
    one = make(Bandit)
    one.train()
    path = one.save(str(tmp_path))
    trainer = make(Bandit, hiddens=[8])
    trainer.train()
    before, iteration = weights_of(trainer), trainer.iteration
    with pytest.raises(CheckpointError, match=r"do not fit.* configs differ in hiddens \(\[16\] there, \[8\] here\)$"):
        trainer.restore(path)
    assert trainer.iteration == iteration
    assert all(np.array_equal(array, weights_of(trainer)[name]) for name, array in before.items())
    trainer.train()


@pytest.mark.parametrize(
    "options", [{"replay_buffer_config": {"capacity": 99}}, {"prioritized_replay": False}], ids=lambda o: next(iter(o))
)
def test_checkpoint_of_another_replay_buffer_is_restored_without_it(options, tmp_path, caplog):
    one = make(Bandit)
    one.train()
    path = one.save(str(tmp_path))
    keeping, taking = make(Bandit, **options), make(Bandit, store_buffer_in_checkpoints=False, **options)
    keeping.train()
    held = keeping.local_replay_buffer.get_state()
    for trainer in (keeping, taking):
        trainer.restore(path)
        assert_same_weights(one, trainer)
    assert repr(keeping.local_replay_buffer.get_state()) == repr(held)
    assert len(taking.local_replay_buffer) == 0
    with caplog.at_level(logging.WARNING, logger="rlframe"):
        keeping.compute_single_action(keeping.get_policy().observation_space.sample())
        taking.train()
        assert "replay buffer" not in caplog.text
        keeping.train()
        assert "the saved replay buffer is not taken over. The saved replay buffer" in caplog.text
    assert taking.iteration == keeping.iteration == 2


def test_restored_run_with_infos_and_whole_episodes_trains_on(tmp_path, caplog):
    class SeesInfos(PGTorchPolicy):
        train_columns = None

    config = {"num_workers": 0, "seed": 0, "batch_mode": "complete_episodes", "rollout_fragment_length": 15,
              "num_envs_per_worker": 2, "train_batch_size": 60, "log_sys_usage": False}  # fmt: skip
    trainer = PGTrainer.with_updates(name="SeesInfos", default_policy=SeesInfos)
    one, two = trainer(config, env="CartPole-v1"), trainer({**config, "seed": 3}, env="CartPole-v1")
    one.train()
    two.restore(one.save(str(tmp_path)))
    with caplog.at_level(logging.WARNING, logger="rlframe"):
        two.train()
    assert "the infos of rows in unfinished episodes are empty" in caplog.text
    one.train()
    assert_same_weights(one, two)


def test_restore_with_another_number_of_slots_says_that_episodes_begin_anew(tmp_path, caplog):
    one, two = make(Counting), make(Counting, num_envs_per_worker=3)
    one.train()
    with caplog.at_level(logging.WARNING, logger="rlframe"):
        two.restore(one.save(str(tmp_path)))
        assert not caplog.records  # acting needs no episodes
        two.train()
    assert (
        "environments of 1 workers were saved, with 1 slots each; these are 1 with 3, and new episodes" in caplog.text
    )


def test_restore_that_fails_at_its_end_leaves_the_replay_buffer_as_it_was(tmp_path, monkeypatch):
    one, two = make(Bandit), make(Bandit, seed=9)
    for trainer in (one, two):
        trainer.train()
    path = one.save(str(tmp_path))
    held = two.local_replay_buffer.get_state()
    set_state = type(two.train_exec_impl).set_state
    left = [None]

    def fail_once(plan, *args, **kwargs):
        set_state(plan, *args, **kwargs)
        if left:
            left.pop()
            raise ValueError("no such operator")

    monkeypatch.setattr(type(two.train_exec_impl), "set_state", fail_once)
    with pytest.raises(CheckpointError, match="no such operator"):
        two.restore(path)
    assert repr(two.local_replay_buffer.get_state()) == repr(held)
    two.train()


def test_truncated_and_tampered_checkpoints_are_refused_and_change_nothing(tmp_path):
    one = make(Bandit)
    one.train()
    path = one.save(str(tmp_path))
    files = sorted(p for p in __import__("pathlib").Path(path).rglob("*") if p.is_file())
    trainer = make(Bandit, seed=9)
    before = weights_of(trainer)
    for file in files:
        good = file.read_bytes()
        for bad in (good[: len(good) // 2], good[:-1] + bytes([good[-1] ^ 1])):
            file.write_bytes(bad)
            with pytest.raises(CheckpointError):
                trainer.restore(path)
        file.write_bytes(good)
    assert all(np.array_equal(array, weights_of(trainer)[name]) for name, array in before.items())
    trainer.restore(path)
    assert_same_weights(one, trainer)


def test_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        make(Bandit).restore(str(tmp_path / "nothing"))


def test_target_network_and_optimizer_are_restored(tmp_path):
    one = make(target_network_update_freq=10_000)
    one.train()
    two = make(seed=8)
    two.restore(one.save(str(tmp_path)))
    online, target = (p.model.state_dict() for p in (two.get_policy(), two.get_policy().target_network))
    assert any(not np.array_equal(online[name], target[name]) for name in online)


def test_compute_actions_gives_states_where_they_are_asked_for():
    trainer = make(Counting)
    observations = {"a": [0.0, 0.0], "b": [1.0, 1.0], "c": [2.0, 0.0]}
    plain = trainer.compute_actions(observations, explore=False)
    for state in ({}, []):
        actions, states, extra = trainer.compute_actions(observations, state=state, explore=False)
        assert actions == plain
        assert states == {"a": [], "b": [], "c": []}
        assert set(extra) == {"a", "b", "c"}


def test_no_default_policy_is_needed_where_each_has_a_class():
    made = build_trainer(name="Mine")
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


# --- evaluation -------------------------------------------------------------------------------------------------


def test_evaluate_runs_exactly_so_many_fresh_episodes():
    trainer = make(Counting, env_config={"length": 6}, evaluation_num_episodes=4)
    evaluation = trainer.evaluate()["evaluation"]
    assert evaluation["episodes_this_iter"] == 4
    assert evaluation["episode_reward_mean"] == 21.0
    assert evaluation["hist_stats"]["episode_lengths"] == [6] * 4


@pytest.mark.parametrize(("slots", "episodes"), [(1, 4), (2, 6)])  # what both slots began in time is run to its end
def test_evaluation_by_steps_runs_whole_episodes_until_there_are_enough(slots, episodes):
    trainer = make(Counting, env_config={"length": 6}, evaluation_num_episodes=20, evaluation_duration_unit="timesteps",
                   num_envs_per_worker=slots)  # fmt: skip
    lengths = trainer.evaluate()["evaluation"]["hist_stats"]["episode_lengths"]
    assert lengths == [6] * episodes


def slow_second_slot(context):
    """One step an episode in the first slot, five in the second."""
    return Counting({"length": 5 if context.vector_index else 1})


@pytest.mark.parametrize("multi_agent", [False, True])
def test_evaluation_counts_long_episodes_of_slots_beside_short_ones(multi_agent):
    def creator(context):
        return make_multi_agent(lambda _: slow_second_slot(context))() if multi_agent else slow_second_slot(context)

    register_env("slow_second_slot", creator)
    trainer = PGTrainer(
        {"num_workers": 0, "num_envs_per_worker": 2, "evaluation_num_episodes": 5}, env="slow_second_slot"
    )

    def lengths(*going):
        return sorted(trainer.evaluate(*going)["evaluation"]["hist_stats"]["episode_lengths"])

    assert lengths() == [1, 1, 1, 5, 5]
    counts = lengths(lambda so_far: so_far < 3)  # and what had begun by then
    assert counts.count(5) == 1
    assert counts.count(1) >= 3
    assert lengths(lambda so_far: so_far < 0) == []


@pytest.mark.parametrize("always", [False, True])
def test_evaluation_interval_stamps_the_weights_it_speaks_of(always):
    trainer = make(
        Counting,
        env_config={"length": 6},
        evaluation_interval=2,
        evaluation_num_episodes=2,
        always_attach_evaluation_results=always,
    )
    results = [trainer.train() for _ in range(3)]
    assert "evaluation" not in results[0]
    assert results[1]["evaluation"]["training_iteration"] == 2
    assert results[1]["evaluation"]["age_iterations"] == 0
    assert ("evaluation" in results[2]) == always
    assert not always or results[2]["evaluation"]["age_iterations"] == 1


def test_evaluation_does_not_change_training():
    one, two = make(), make(evaluation_interval=1, evaluation_num_episodes=2)
    for _ in range(2):
        one.train(), two.train()
    assert_same_weights(one, two)


@pytest.mark.parametrize("num_envs", [1, 2])
def test_evaluation_judges_by_the_filters_of_training(num_envs):
    config = {"evaluation_interval": 1, "evaluation_num_episodes": 3, "num_envs_per_worker": num_envs}
    trainer = make(observation_filter="MeanStdFilter", **config)
    trainer.train()
    learned = trainer.workers.local_worker().filters["default_policy"]
    judged = trainer.evaluation_workers.local_worker().filters["default_policy"]
    assert judged.rs.n == learned.rs.n > 0
    np.testing.assert_array_equal(judged.rs.mean, learned.rs.mean)


def test_evaluation_parallel_to_training_gives_both():
    trainer = make(evaluation_interval=1, evaluation_num_episodes="auto", evaluation_parallel_to_training=True)
    assert trainer.train()["evaluation"]["episodes_this_iter"] >= 1


def test_custom_eval_function_is_called_once_and_must_return_metrics():
    calls = []

    def custom(trainer, eval_workers):
        calls.append(eval_workers)
        assert len(eval_workers.local_worker().sample()["infos"]) > 0, "an evaluation of one's own sees all columns"
        return {"score": 3}

    trainer = make(Bandit, evaluation_interval=1, custom_eval_function=custom)
    assert trainer.train()["evaluation"]["score"] == 3
    assert len(calls) == 1
    with pytest.raises(ConfigError, match="custom_eval_function"):
        make(Bandit, evaluation_interval=1, custom_eval_function=lambda t, w: {}).train()


def test_users_functions_behind_the_plan_find_its_counters():
    from rlframe.agents.callbacks import DefaultCallbacks
    from rlframe.execution.common import _get_shared_metrics

    seen = {}

    class Noting(DefaultCallbacks):
        def on_train_result(self, *, trainer, result, **kwargs):
            seen["result"] = _get_shared_metrics().counters["num_steps_sampled"]

    def custom(trainer, eval_workers):
        seen["evaluation"] = _get_shared_metrics().counters["num_steps_sampled"]
        return {"score": 3}

    result = make(Bandit, evaluation_interval=1, custom_eval_function=custom, callbacks=Noting).train()
    assert seen == {"result": result["timesteps_total"], "evaluation": result["timesteps_total"]}
    with pytest.raises(ValueError, match="No metrics context"):
        _get_shared_metrics()


# --- failures ---------------------------------------------------------------------------------------------------


def test_failing_env_raises_unless_failures_are_ignored():
    with pytest.raises(EnvError, match="motor"):
        make(Failing, env_config={"fail_in": 2, "length": 10}).train()
    result = make(Failing, env_config={"fail_in": 2, "length": 10}, ignore_worker_failures=True).train()
    assert result["timesteps_total"] >= 60


def test_recreate_failed_workers_makes_a_new_environment():
    trainer = make(Failing, env_config={"fail_in": 2, "length": 10}, recreate_failed_workers=True)
    first = trainer.workers.local_worker().env
    trainer.train()
    assert trainer.workers.local_worker().env is not first


class Flaky(Counting):
    """Raises in every so many steps of all its episodes together."""

    def __init__(self, config=None):
        super().__init__(config)
        self.every, self.made = config["every"], 0

    def step(self, action):
        self.made += 1
        if self.made % self.every == 0:
            raise RuntimeError("the motor stutters")
        return super().step(action)


def test_rare_failures_end_nothing_however_many_there_are():
    trainer = make(
        Flaky, env_config={"every": 30, "length": 10}, ignore_worker_failures=True, timesteps_per_iteration=400
    )
    assert trainer.train()["timesteps_total"] >= 400


def test_evaluation_goes_on_behind_rare_failures():
    trainer = make(Flaky, env_config={"every": 10**9, "length": 10}, ignore_worker_failures=True,
                   evaluation_interval=1, evaluation_num_episodes=20,
                   evaluation_config={"env_config": {"every": 23, "length": 10}})  # fmt: skip
    assert trainer.train()["evaluation"]["hist_stats"]["episode_lengths"] == [10] * 20
    trainer.evaluation_workers.local_worker().env.every = 3
    with pytest.raises(WorkerError, match=r"gave up.*the motor stutters"):
        trainer.evaluate()


def test_failures_without_end_are_given_up():
    trainer = make(Flaky, env_config={"every": 1}, ignore_worker_failures=True)
    with pytest.raises(WorkerError, match="gave up iteration 1 after 4 attempts in a row in which nothing was sampled"):
        trainer.train()


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
        module(torch.from_numpy(obs)).detach().numpy(), trainer.get_policy().forward(obs, False)[0], atol=1e-5
    )


def test_a_plan_gets_a_view_with_derived_values_and_may_hand_on_a_dict():
    seen = []

    def mine(workers, config):
        seen.append(config)
        return ppo.ppo.execution_plan(workers, {**config, "train_batch_size": 20})

    small = {"num_workers": 0, "train_batch_size": 30, "sgd_minibatch_size": 10, "my_key": [1]}
    made = ppo.PPOTrainer.with_updates(
        execution_plan=mine, default_config={**ppo.PPOTrainer.get_default_config(), "my_key": 0}
    )
    trainer = made(small, env=Bandit)
    (view,) = seen
    assert (view.train_batch_size, view["my_key"], view.rollout_fragment_length) == (30, [1], 30)
    assert trainer.config["rollout_fragment_length"] == 200  # as it was asked for
    with pytest.raises(TypeError, match="read-only"):
        view["lr"] = 1.0
    trainer.config["lr"] = 1.0


class Counts(PGTrainer):
    """Keeps a number of its own in checkpoints, as RLlib's trainers did."""

    seen = 0

    def __getstate__(self):
        return {**super().__getstate__(), "mine": {"seen": self.seen}}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.seen = state["mine"]["seen"]


def test_a_trainers_own_state_is_in_its_checkpoints():
    config = {"num_workers": 0, "model": {"fcnet_hiddens": [4]}, "rollout_fragment_length": 8, "train_batch_size": 8}
    one, other, third = (Counts({**config, "seed": seed}, env="CartPole-v1") for seed in (1, 2, 3))
    one.seen = 5
    one.train()
    other.restore_from_object(one.save_to_object())
    third.__setstate__(one.__getstate__())
    for trainer in (other, third):
        assert (trainer.seen, trainer.iteration) == (5, 1)
        assert_same_weights(one, trainer)
    with pytest.raises(CheckpointError, match="a copy of a trainer"):
        copy.copy(one)


def test_a_config_that_is_no_dict_is_told_what_stands_where():
    with pytest.raises(ConfigError, match=r"PG: got 'MlpPolicy' \(str\) as the config, wanted a dict"):
        PGTrainer("MlpPolicy", "CartPole-v1")
