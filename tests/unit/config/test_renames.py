import warnings
from typing import Any

import pytest

from rlframe.agents.dqn import ApexTrainer, DQNTrainer
from rlframe.agents.ppo.ppo import PPOConfig
from rlframe.agents.sac import SACTrainer
from rlframe.config.common import CommonConfig
from rlframe.config.merge import merge_configs, with_common_config
from rlframe.config.nested_dict import assign, lookup
from rlframe.config.renames import (
    RENAMES,
    RenamedKeyWarning,
    other_names_in,
    translate_renames,
    with_other_names,
)
from rlframe.models import MODEL_DEFAULTS
from rlframe.utils.errors import ConfigError
from tests.unit.config.declarations import ToyConfig


@pytest.mark.parametrize(
    ("old", "value", "new", "kept"),
    [
        ("sample_batch_size", 50, "rollout_fragment_length", 50),
        ("num_env_runners", 3, "num_workers", 3),
        ("num_rollout_workers", 3, "num_workers", 3),
        ("num_envs_per_env_runner", 3, "num_envs_per_worker", 3),
        ("use_pytorch", True, "framework", "torch"),
        ("use_pytorch", False, "framework", "tf"),
        ("eager", True, "framework", "tfe"),
        ("buffer_size", 1e6, "replay_buffer_config.capacity", 1_000_000),
        ("evaluation_duration", 7, "evaluation_num_episodes", 7),
        ("evaluation_num_env_runners", 0, "evaluation_num_workers", 0),
        ("lambda_", 0.9, "lambda", 0.9),
        ("minibatch_size", 32, "sgd_minibatch_size", 32),
        ("restart_failed_env_runners", True, "recreate_failed_workers", True),
        ("min_time_s_per_iteration", 2, "min_iter_time_s", 2),
        ("model.custom_options", {"a": 1}, "model.custom_model_config", {"a": 1}),
        ("multiagent.policies_to_learn", ["a"], "multiagent.policies_to_train", ["a"]),
        ("model.lstm_use_prev_action_reward", True, "model.lstm_use_prev_action", True),
        ("model.lstm_use_prev_action_reward", True, "model.lstm_use_prev_reward", True),
        ("metrics_num_episodes_for_smoothing", 5, "metrics_smoothing_episodes", 5),
        ("per_worker_exploration", True, "exploration_config.type", "PerWorkerEpsilonGreedy"),
        ("exploration_enabled", False, "explore", False),
        ("replay_buffer_config.type", "MultiAgentReplayBuffer", "replay_buffer_config.type", "LocalReplayBuffer"),
    ],
)
def test_other_name_is_honoured_and_answered_with_the_new_one(old: str, value: Any, new: str, kept: Any) -> None:
    overrides: dict[str, Any] = {}
    assign(overrides, old, value)
    with pytest.warns(RenamedKeyWarning) as caught:
        config = merge_configs(ToyConfig.defaults(), overrides, ToyConfig)
    assert len(caught) == 1
    assert old in str(caught[0].message)
    assert new in str(caught[0].message) or "framework" in str(caught[0].message)
    assert lookup(config, new) == kept
    assert set(config) == set(ToyConfig.defaults())


def test_networks_of_sac_under_their_old_keys() -> None:
    given = {"Q_model": {"hidden_layer_sizes": [64]}, "policy_model": {"hidden_activation": "tanh"}}
    with pytest.warns(RenamedKeyWarning, match="hidden_"):
        config = SACTrainer.merge_trainer_configs(SACTrainer.get_default_config(), given)
    assert (config["Q_model"]["fcnet_hiddens"], config["policy_model"]["fcnet_activation"]) == ([64], "tanh")


def test_warning_is_shown_to_users_by_default() -> None:
    assert issubclass(RenamedKeyWarning, FutureWarning)


@pytest.mark.parametrize("old", ["sample_batch_size", "buffer_size", "monitor", "model.lstm_use_prev_action_reward"])
def test_sentinel_of_other_name_says_nothing(old: str) -> None:
    overrides: dict[str, Any] = {}
    assign(overrides, old, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert merge_configs(ToyConfig.defaults(), overrides, ToyConfig) == ToyConfig.defaults()


def test_two_names_with_different_values_are_a_fault() -> None:
    with pytest.raises(ConfigError, match="sample_batch_size: got 5, but rollout_fragment_length"), pytest.warns():
        merge_configs(ToyConfig.defaults(), {"sample_batch_size": 5, "rollout_fragment_length": 6}, ToyConfig)


def test_two_names_with_the_same_value_are_accepted() -> None:
    with pytest.warns(RenamedKeyWarning):
        config = merge_configs(ToyConfig.defaults(), {"sample_batch_size": 5, "rollout_fragment_length": 5}, ToyConfig)
    assert config["rollout_fragment_length"] == 5


def test_other_name_in_evaluation_config_is_translated() -> None:
    with pytest.warns(RenamedKeyWarning, match="in evaluation_config: config key num_envs_per_env_runner"):
        config = merge_configs(ToyConfig.defaults(), {"evaluation_config": {"num_envs_per_env_runner": 2}}, ToyConfig)
    assert config["evaluation_config"] == {"explore": False, "num_envs_per_worker": 2}


def test_other_name_of_a_key_the_algorithm_lacks_is_unknown() -> None:
    with pytest.raises(ConfigError, match="buffer_size: unknown key"):
        merge_configs(CommonConfig.defaults(), {"buffer_size": 5}, CommonConfig)


def test_key_that_is_the_users_own_is_not_translated() -> None:
    config, sentences = translate_renames({"num_epochs": 5}, {"num_epochs", "num_sgd_iter"})
    assert (config, sentences) == ({"num_epochs": 5}, [])


def test_other_name_in_user_defaults_is_honoured() -> None:
    defaults = with_common_config({**ToyConfig.defaults(), "buffer_size": 9})
    with pytest.warns(RenamedKeyWarning, match="buffer_size"):
        config = merge_configs(defaults, {}, ToyConfig)
    assert config["replay_buffer_config"]["capacity"] == 9
    assert "buffer_size" not in config


def test_config_that_is_both_the_defaults_and_what_overrides_them_may_be_a_copy_of_the_algorithms() -> None:
    config = {**ToyConfig.defaults(), "buffer_size": 9}
    with pytest.warns(RenamedKeyWarning, match="buffer_size"):
        merged = merge_configs(with_common_config(config), config, ToyConfig)
    assert merged["replay_buffer_config"]["capacity"] == 9


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("num_learners", 2, "use num_gpus"),
        ("exploration_fraction", 0.1, "use exploration_config.epsilon_timesteps"),
    ],
)
def test_name_without_meaning_here_is_answered(key: str, value: Any, advice: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: got .*not known here; {advice}"):
        merge_configs(ToyConfig.defaults(), {key: value}, ToyConfig)


@pytest.mark.parametrize(("key", "value"), [("num_learners", 0)])
def test_name_without_meaning_here_is_dropped_where_it_says_nothing(key: str, value: Any) -> None:
    assert merge_configs(ToyConfig.defaults(), {key: value}, ToyConfig) == ToyConfig.defaults()


def test_translate_renames_changes_no_argument() -> None:
    config = {"sample_batch_size": 5, "model": {"custom_options": {}}}
    translated, sentences = translate_renames(config, CommonConfig.known_keys())
    assert config == {"sample_batch_size": 5, "model": {"custom_options": {}}}
    assert translated == {"rollout_fragment_length": 5, "model": {"custom_model_config": {}}}
    assert len(sentences) == 2


def test_no_other_name_is_a_common_key_unless_deprecated() -> None:
    assert set(RENAMES) & CommonConfig.known_keys() == CommonConfig.deprecated_keys()


def test_plans_read_values_under_other_names_too():
    config = {"buffer_size": -1, "replay_buffer_config": {"capacity": 7}, "model": {"max_seq_len": 4}, "monitor": "x"}
    read = with_other_names(config, {"buffer_size", "monitor", "grad_norm_clipping"})
    assert read == {**config, "buffer_size": 7}
    assert config["buffer_size"] == -1


def test_hooks_read_and_write_values_under_other_names_too():
    config = {"buffer_size": -1, "replay_buffer_config": {"capacity": 7}, "model": {"custom_model_config": {"a": 1}}}
    with other_names_in(config) as shown:
        assert shown["buffer_size"] == 7
        assert shown["model"]["custom_options"] == {"a": 1}
        shown["buffer_size"] = 9
    assert config == {
        "buffer_size": -1,
        "replay_buffer_config": {"capacity": 9},
        "model": {"custom_model_config": {"a": 1}},
    }
    with other_names_in(config):
        config["replay_buffer_config"]["capacity"] = 8
    assert config["replay_buffer_config"] == {"capacity": 8}
    with other_names_in(config):
        config["buffer_size"] = -1  # as RLlib's own validation leaves it
    assert config["replay_buffer_config"] == {"capacity": 8}


def test_copies_of_dqns_and_sacs_validation_find_old_keys_as_unset():
    exploration = {"type": "EpsilonGreedy", "initial_epsilon": 1.0}
    old = {"soft_q": -1, "per_worker_exploration": -1, "parameter_noise": -1, "exploration_noise_type": -1}
    networks = {"fcnet_activation": "relu", "hidden_activation": -1, "hidden_layer_sizes": -1}
    config = {**old, "exploration_config": exploration, "Q_model": networks, "policy_model": dict(networks)}
    with other_names_in(config) as shown:  # set, soft_q means SoftQ, and hidden_activation is an error
        assert old.items() <= shown.items()
        assert shown["Q_model"] == shown["policy_model"] == networks
    assert with_other_names(config)["soft_q"] == -1
    assert with_other_names(config)["Q_model"] == networks


def test_copies_of_qmix_read_their_limit_of_gradients_by_rllibs_name():
    assert with_other_names({"grad_clip": 10.0})["grad_norm_clipping"] == 10.0
    assert with_other_names({"model": {"vf_share_layers": True}})["vf_share_layers"] is True  # copies of PPO's of 0.8
    assert with_other_names({"grad_clip": None, "grad_norm_clipping": 0.5})["grad_norm_clipping"] == 0.5  # MADDPG's own


@pytest.mark.parametrize("other", [False, True])
def test_other_name_beside_a_copy_of_the_defaults_is_what_the_user_wrote(other):
    given = {**ToyConfig.defaults(), "buffer_size": 5}
    if other:  # a value under both names, none of which is the default
        given["replay_buffer_config"] = {**given["replay_buffer_config"], "capacity": 7}
        with pytest.warns(RenamedKeyWarning), pytest.raises(ConfigError, match="buffer_size: got 5, but"):
            merge_configs(ToyConfig.defaults(), given, ToyConfig)
        return
    with pytest.warns(RenamedKeyWarning, match="buffer_size"):
        assert merge_configs(ToyConfig.defaults(), given, ToyConfig)["replay_buffer_config"]["capacity"] == 5


def test_other_name_beside_a_copy_of_the_default_model_is_what_the_user_wrote():
    config = {"vf_share_layers": False, "model": {**MODEL_DEFAULTS, "fcnet_hiddens": [8]}}
    with pytest.warns(RenamedKeyWarning, match="vf_share_layers"):
        merged = merge_configs(PPOConfig.defaults(), config, PPOConfig)
    assert merged["model"]["vf_share_layers"] is False


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"monitor": 3}, "monitor (here record_env): got 3 (int), wanted"),
        ({"num_rollout_workers": "two"}, "num_rollout_workers (here num_workers): got 'two' (str), wanted an integer"),
        ({"num_workers": "two"}, "  num_workers: got 'two'"),
        (
            {"evaluation_config": {"num_envs_per_env_runner": 0}},
            "evaluation_config.num_envs_per_env_runner (here evaluation_config.num_envs_per_worker): got 0",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:config key|in evaluation_config")
def test_fault_of_another_name_begins_with_the_name_that_was_written(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as said:
        merge_configs(CommonConfig.defaults(), config, CommonConfig)
    assert message in str(said.value)


@pytest.mark.parametrize(
    "key", ["_use_trajectory_view_api", "disable_env_checking", "memory_per_worker", "exploration_config.framework"]
)
def test_key_that_changes_nothing_here_is_dropped_with_a_warning(key: str) -> None:
    overrides: dict[str, Any] = {}
    assign(overrides, key, 7)
    with pytest.warns(RenamedKeyWarning, match=f"{key} changes nothing here: .*leave it out"):
        config = merge_configs(CommonConfig.defaults(), overrides, CommonConfig)
    assert config == CommonConfig.defaults()


@pytest.mark.parametrize(
    ("key", "nothing", "asked"),
    [
        ("restart_failed_sub_environments", False, True),
        ("model.num_framestacks", "auto", 4),
        ("min_train_timesteps_per_reporting", None, 100),
    ],
)
def test_key_of_which_one_value_says_nothing_is_a_fault_with_any_other(key: str, nothing: Any, asked: Any) -> None:
    overrides: dict[str, Any] = {}
    assign(overrides, key, nothing)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert merge_configs(CommonConfig.defaults(), overrides, CommonConfig) == CommonConfig.defaults()
    assign(overrides, key, asked)
    with pytest.raises(ConfigError, match=f"{key}.*not known here; use "):
        merge_configs(CommonConfig.defaults(), overrides, CommonConfig)


def test_buffer_by_its_newer_name_samples_by_priority_where_the_name_says_so() -> None:
    from rlframe.agents.dqn.dqn import DQNConfig

    section = {"type": "MultiAgentPrioritizedReplayBuffer", "capacity": 70, "learning_starts": 3}
    with pytest.warns(RenamedKeyWarning):
        config = merge_configs(
            DQNConfig.defaults(), {"prioritized_replay": False, "replay_buffer_config": section}, DQNConfig
        )
    assert config["replay_buffer_config"] == {"type": "LocalReplayBuffer", "capacity": 70}
    assert (config["learning_starts"], config["prioritized_replay"]) == (3, True)


def test_a_programs_own_keys_stay_though_rllib_had_such_names() -> None:
    own = {"memory": "long", "worker_cls": "mine", "replay_sequence_length": 4}
    trainer = DQNTrainer.with_updates(name="Own", default_config={**DQNTrainer._default_config, **own})
    assert {key: trainer({"num_workers": 0}, env="CartPole-v1").config[key] for key in own} == own

    class Tolerant(DQNTrainer):
        _allow_unknown_configs = True

    assert {key: Tolerant({"num_workers": 0, **own}, env="CartPole-v1").config[key] for key in own} == own
    with pytest.raises(ConfigError, match="worker_cls"):
        DQNTrainer({"num_workers": 0, "worker_cls": "mine"}, env="CartPole-v1")


@pytest.mark.parametrize(
    ("given", "exploration", "annealing"),
    [
        (
            {"schedule_max_timesteps": 5000, "exploration_fraction": 0.1, "beta_annealing_fraction": 0.2},
            {"epsilon_timesteps": 500}, 1000,
        ),
        ({"schedule_max_timesteps": 5000, "beta_annealing_fraction": 0.2, "exploration_fraction": -1}, {}, 1000),
        (
            {"soft_q": True, "softmax_temp": 0.5, "exploration_final_eps": 0.1, "exploration_fraction": 0.1},
            {"type": "SoftQ", "temperature": 0.5}, None,
        ),
        ({"soft_q": False, "softmax_temp": 0.5, "exploration_final_eps": 0.1}, {"final_epsilon": 0.1}, None),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::rlframe.config.renames.RenamedKeyWarning")
def test_keys_of_exploration_that_mean_something_together_are_joined(given, exploration, annealing) -> None:
    from rlframe.agents.dqn import DQNTrainer

    defaults = DQNTrainer.get_default_config()
    config = DQNTrainer.merge_trainer_configs(defaults, given)
    assert config["exploration_config"].items() >= exploration.items()
    assert config["prioritized_replay_beta_annealing_timesteps"] == (
        annealing or defaults["prioritized_replay_beta_annealing_timesteps"]
    )


def test_a_fraction_of_no_schedule_and_a_schedule_of_no_fraction_are_faults() -> None:
    for key in ("exploration_fraction", "schedule_max_timesteps"):
        with pytest.raises(ConfigError, match=f"{key}: got .*use exploration_config.epsilon_timesteps"):
            merge_configs(ToyConfig.defaults(), {key: 0.5}, ToyConfig)


def test_no_videos_may_be_said_by_none() -> None:
    assert merge_configs(ToyConfig.defaults(), {"record_env": None}, ToyConfig)["record_env"] is None


def test_copies_of_losses_read_keys_of_no_meaning_as_unset() -> None:
    assert with_other_names({"moving_average_sqd_adv_norm_start": 100.0})["bc_logstd_coeff"] == 0.0
    assert "bc_logstd_coeff" not in with_other_names({"gamma": 0.9})


def test_copies_of_ape_xs_plan_of_111_ask_where_shards_are() -> None:
    config = {"worker_side_prioritization": True}
    assert with_other_names(config, ())["replay_buffer_shards_colocated_with_driver"] is True
    assert "replay_buffer_shards_colocated_with_driver" not in with_other_names({"gamma": 0.9}, ())


def test_buffer_sections_of_rllib_113_are_understood() -> None:
    r2d2 = {"_enable_replay_buffer_api": False, "type": "MultiAgentReplayBuffer", "prioritized_replay": False}
    with pytest.warns(RenamedKeyWarning):
        merged = DQNTrainer.merge_trainer_configs(DQNTrainer.get_default_config(), {"replay_buffer_config": r2d2})
    assert merged["prioritized_replay"] is False
    apex = {"no_local_replay_buffer": True, "type": "MultiAgentReplayBuffer", "replay_batch_size": 64}
    given = {"replay_buffer_config": apex, "replay_buffer_shards_colocated_with_driver": True}
    with pytest.warns(RenamedKeyWarning):
        merged = ApexTrainer.merge_trainer_configs(ApexTrainer.get_default_config(), given)
    assert (merged["train_batch_size"], merged["prioritized_replay"]) == (64, True)
    assert "no_local_replay_buffer" not in merged["replay_buffer_config"]
