from collections import UserDict, UserList
from typing import Any

import pytest

from rlframe.agents.dqn.dqn import DQNConfig
from rlframe.agents.dqn.simple_q import SimpleQConfig
from rlframe.agents.sac.sac import SACConfig
from rlframe.config.common import CommonConfig
from rlframe.config.merge import (
    merge_configs,
    parse_number,
    read_numbers,
    with_common_config,
)
from rlframe.config.renames import RenamedKeyWarning
from rlframe.utils.errors import ConfigError
from tests.unit.config.declarations import ToyConfig


def merged(overrides: Any, **keywords: Any) -> dict[str, Any]:
    return merge_configs(ToyConfig.defaults(), overrides, ToyConfig, **keywords)


def faults_of(overrides: Any, **keywords: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        merged(overrides, **keywords)
    return str(caught.value)


def test_merge_nothing_gives_the_defaults() -> None:
    assert merged({}) == merged(None) == ToyConfig.defaults()


def test_merge_default_section_that_only_an_old_key_made_is_of_the_declared_type() -> None:
    declared = SimpleQConfig.defaults()["replay_buffer_config"]
    with pytest.warns(RenamedKeyWarning):
        config = merge_configs(with_common_config({"buffer_size": 7}), {}, SimpleQConfig)
    assert config["replay_buffer_config"] == {**declared, "capacity": 7}


def test_merge_lays_dict_over_dict() -> None:
    config = merged({"model": {"fcnet_hiddens": [8]}, "env_config": {"a": {"b": 1}}})
    assert config["model"] == {**ToyConfig.defaults()["model"], "fcnet_hiddens": [8]}
    assert config["env_config"] == {"a": {"b": 1}}


def test_merge_no_framework_in_particular_keeps_the_default() -> None:
    assert merge_configs(CommonConfig.defaults(), {"framework": None}, CommonConfig)["framework"] == "torch"


def test_merge_changes_neither_argument_and_shares_no_container() -> None:
    defaults, overrides = ToyConfig.defaults(), {"env_config": {"list": [1]}, "hiddens": [8.0], "callbacks": None}
    config = merge_configs(defaults, overrides, ToyConfig)
    config["env_config"]["list"].append(2)
    config["model"]["fcnet_hiddens"].append(2)
    assert overrides == {"env_config": {"list": [1]}, "hiddens": [8.0], "callbacks": None}
    assert defaults == ToyConfig.defaults()


def test_merge_same_exploration_type_keeps_the_other_keys() -> None:
    assert merged({"exploration_config": {"epsilon_timesteps": 5}})["exploration_config"] == {
        "type": "EpsilonGreedy", "final_epsilon": 0.02, "epsilon_timesteps": 5,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["EpsilonGreedy", "rlframe.exploration.epsilon_greedy.EpsilonGreedy",
                                  "ray.rllib.utils.exploration.epsilon_greedy.EpsilonGreedy"])  # fmt: skip
def test_merge_same_exploration_spelled_otherwise_keeps_the_other_keys(kind: str) -> None:
    config = merged({"exploration_config": {"type": kind, "epsilon_timesteps": 5}})["exploration_config"]
    assert config == {"type": "EpsilonGreedy", "final_epsilon": 0.02, "epsilon_timesteps": 5}


def test_merge_other_exploration_type_drops_the_other_keys() -> None:
    assert merged({"exploration_config": {"type": "SoftQ", "temperature": 2}})["exploration_config"] == {
        "type": "SoftQ", "temperature": 2.0,
    }  # fmt: skip


def test_merge_exploration_key_of_another_type_names_the_keys_of_this_one() -> None:
    message = faults_of({"exploration_config": {"type": "SoftQ", "epsilon_timesteps": 5}})
    assert "exploration_config.epsilon_timesteps: unknown key for this type, which takes" in message
    assert "exploration_config.temperature" in message


def test_merge_exploration_class_of_the_user_makes_the_section_free_form() -> None:
    class Mine: ...

    for kind in (Mine, "my_package.Mine"):
        section = {"type": kind, "anything": object()}
        assert merged({"exploration_config": section})["exploration_config"] == section


def test_merge_unknown_exploration_names_the_nearest() -> None:
    message = faults_of({"exploration_config": {"type": "EpsilonGredy"}})
    assert "exploration_config.type: got 'EpsilonGredy' (str), wanted one of" in message
    assert message.endswith("did you mean 'EpsilonGreedy'?")


def test_merge_sub_exploration_is_checked_too() -> None:
    section = {"type": "ParameterNoise", "sub_exploration": {"type": "EpsilonGreedy", "final_epsilonn": 0.1}}
    message = faults_of({"exploration_config": section})
    assert "exploration_config.sub_exploration.final_epsilonn: unknown key; did you mean" in message
    assert "exploration_config.sub_exploration.final_epsilon" in message


def test_merge_replay_buffer_section_is_checked() -> None:
    message = faults_of({"replay_buffer_config": {"capacity": 0, "capacty": 3}})
    assert "replay_buffer_config.capacity: got 0 (int), wanted an integer >= 1 (env steps)" in message
    assert "replay_buffer_config.capacty: unknown key; did you mean replay_buffer_config.capacity?" in message
    assert merged({"replay_buffer_config": None})["replay_buffer_config"] is None


def test_merge_other_type_sections_can_be_chosen() -> None:
    defaults = {"replay_buffer_config": {"type": "A", "x": 1}, "other": {"type": "A", "x": 1}}
    over = {"replay_buffer_config": {"type": "B"}, "other": {"type": "B"}}
    result = merge_configs(defaults, over, override_all_if_type_changes=["other"])
    assert result == {"replay_buffer_config": {"type": "B", "x": 1}, "other": {"type": "B"}}


def test_merge_none_for_a_section_overrides_nothing() -> None:
    none = {"model": None, "multiagent": None, "evaluation_config": None, "exploration_config": None}
    assert merged(none) == ToyConfig.defaults()
    assert merge_configs({**ToyConfig.defaults(), **none}, {}, ToyConfig) == ToyConfig.defaults()


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ({"multiagent": {"polices": {}}}, "multiagent.polices: unknown key; did you mean multiagent.policies?"),
        ({"model": {"fcnet_hidens": []}}, "model.fcnet_hidens: unknown key; did you mean model.fcnet_hiddens?"),
        ({"Q_model": {"fcnet_hidens": []}}, "Q_model.fcnet_hidens: unknown key; did you mean Q_model.fcnet_hiddens"),
        ({"epsilon_timesteps": 1}, "epsilon_timesteps: unknown key; did you mean exploration_config.epsilon_timesteps"),
        ({"capacity": 1}, "capacity: unknown key; did you mean replay_buffer_config.capacity?"),
        ({"model": {"lr": 1}}, "model.lr: unknown key; did you mean lr?"),
        ({"fcnet_hiddens": []}, "fcnet_hiddens: unknown key; did you mean Q_model.fcnet_hiddens or model.fcnet"),
        ({"policies": {}}, "policies: unknown key; did you mean multiagent.policies?"),
        ({"model.fcnet_hiddens": []}, "model.fcnet_hiddens: unknown key; nest it: {'model': {'fcnet_hiddens': ...}}"),
        ({"xyzzy": 1}, "xyzzy: unknown key"),
        ({"workers_num": 1}, "workers_num: unknown key; did you mean num_workers?"),
        ({7: 1}, "7: unknown key"),
    ],
)  # fmt: skip
def test_merge_unknown_key_is_found_at_its_depth(overrides: dict[Any, Any], line: str) -> None:
    assert faults_of(overrides).splitlines()[1].strip().startswith(line)


def test_merge_keys_of_user_defaults_are_allowed_and_their_typos_found() -> None:
    defaults = {**ToyConfig.defaults(), "my_weight": 0.5, "my_section": {"a": 1}}
    config = merge_configs(defaults, {"my_weight": 1, "my_section": {"b": 2}}, ToyConfig)
    assert config["my_weight"] == 1
    assert config["my_section"] == {"a": 1, "b": 2}
    with pytest.raises(ConfigError, match="my_wieght: unknown key"):
        merge_configs(defaults, {"my_wieght": 1}, ToyConfig)


def test_merge_fault_in_user_defaults_is_reported() -> None:
    with pytest.raises(ConfigError, match="n_step: got 0"):
        merge_configs({**ToyConfig.defaults(), "n_step": 0}, {}, ToyConfig)


def test_merge_unknown_keys_allowed_are_kept() -> None:
    assert merged({"mine": {"a": 1}}, allow_unknown=True)["mine"] == {"a": 1}
    assert merged({"model": {"mine": 1}}, allow_unknown_subkeys=["model"])["model"]["mine"] == 1
    assert "model.mine" in faults_of({"model": {"mine": 1}}, allow_unknown=True)


def test_merge_allowances_of_one_call_do_not_reach_the_next() -> None:
    merged({"model": {"mine": 1}}, allow_unknown_subkeys=["model"])
    assert "model.mine" in faults_of({"model": {"mine": 1}})


def test_merge_of_something_else_than_a_dict_is_refused() -> None:
    assert "got 5 (int) as the config, wanted a dict" in faults_of(5)


def test_merge_without_declaration_checks_keys_against_the_defaults() -> None:
    defaults = {"lr": 0.1, "env_config": {}, "own": {"a": 1}}
    assert merge_configs(defaults, {"env_config": {"x": 1}, "lr": 1}) == {
        "lr": 1,
        "env_config": {"x": 1},
        "own": {"a": 1},
    }
    with pytest.raises(ConfigError, match="2 faults") as caught:
        merge_configs(defaults, {"lrr": 1, "own": {"b": 1}})
    assert "lrr: unknown key; did you mean lr?" in str(caught.value)
    assert "own.b: unknown key; did you mean own.a?" in str(caught.value)
    assert (
        merge_configs(defaults, {"lrr": 1, "own": {"b": 1}}, allow_unknown=True, allow_unknown_subkeys=["own"])["lrr"]
        == 1
    )


def test_merge_converts_inside_evaluation_config() -> None:
    evaluation = merged({"evaluation_config": {"n_step": 3.0, "exploration_config": {"type": "Random"}}})[
        "evaluation_config"
    ]
    assert evaluation == {"explore": False, "n_step": 3, "exploration_config": {"type": "Random"}}
    assert type(evaluation["n_step"]) is int


def test_merge_takes_infinity_for_no_limit_where_none_says_that() -> None:
    assert merged({"horizon": float("inf")})["horizon"] is None
    with pytest.raises(ConfigError, match="rollout_fragment_length: got inf"):
        merged({"rollout_fragment_length": float("inf")})
    assert merged({"compress_observations": "bulk"})["compress_observations"] == "bulk"


def test_with_common_config_takes_new_keys_and_other_names() -> None:
    with pytest.warns(RenamedKeyWarning, match="sample_batch_size is called rollout_fragment_length here"):
        config = with_common_config({"mine": 1, "sample_batch_size": 7, "model": {"fcnet_hiddens": [1]}})
    assert config == {
        **CommonConfig.defaults(), "mine": 1, "rollout_fragment_length": 7,
        "model": {**CommonConfig.defaults()["model"], "fcnet_hiddens": [1]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "number"), [("1e-4", 1e-4), (" 12 ", 12), ("1_000", 1000), ("-0.5", -0.5), ("5e6", 5e6)]
)
def test_parse_number_reads_what_python_writes(text: str, number: float) -> None:
    assert parse_number(text) == number
    assert type(parse_number(text)) is type(number)


@pytest.mark.parametrize("text", ["", "abc", "nan", "inf", "1,5"])
def test_parse_number_of_something_else_raises(text: str) -> None:
    with pytest.raises(ConfigError, match="wanted a finite number"):
        parse_number(text)


def test_read_numbers_reads_text_only_where_a_number_is_declared() -> None:
    config = {
        "lr": "1e-4", "env": "1e4", "env_config": {"x": "1e4"}, "mine": "1e4", "hiddens": ["3", 4],
        "model": {"dim": "42", "custom_model": "7"}, "evaluation_config": {"gamma": "1e0"},
        "exploration_config": {"type": "EpsilonGreedy", "final_epsilon": "1e-2"}, "gamma": "much",
    }  # fmt: skip
    assert read_numbers(config, ToyConfig) == {
        "lr": 1e-4, "env": "1e4", "env_config": {"x": "1e4"}, "mine": "1e4", "hiddens": [3, 4],
        "model": {"dim": 42, "custom_model": "7"}, "evaluation_config": {"gamma": 1.0},
        "exploration_config": {"type": "EpsilonGreedy", "final_epsilon": 0.01}, "gamma": "much",
    }  # fmt: skip


@pytest.mark.parametrize("value", [1e308, 10**40, 2**63, -(2**70)])
@pytest.mark.parametrize("key", ["num_workers", "horizon", "train_batch_size"])
def test_counts_that_no_array_holds_are_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: got .*wanted an integer"):
        merge_configs(CommonConfig.defaults(), {key: value}, CommonConfig)
    assert merge_configs(CommonConfig.defaults(), {key: 1e6}, CommonConfig)[key] == 1_000_000


def test_own_keys_of_a_model_are_kept_where_a_class_of_the_users_reads_them() -> None:
    given = {"model": {"custom_model": "mine", "nb_snakes": 4}}
    assert merge_configs(CommonConfig.defaults(), given, CommonConfig)["model"]["nb_snakes"] == 4


def test_what_networks_are_built_of_may_be_anything_beside_a_custom_model() -> None:
    given = {"fcnet_hiddens": 64, "fcnet_activation": "mish", "conv_filters": [[16, 4]], "post_fcnet_hiddens": None}
    config = merge_configs(CommonConfig.defaults(), {"model": {"custom_model": "mine", **given}}, CommonConfig)
    assert given.items() <= config["model"].items()
    with pytest.raises(ConfigError, match="4 faults"):
        merge_configs(CommonConfig.defaults(), {"model": given}, CommonConfig)
    with pytest.raises(ConfigError, match="1 fault") as said:  # what is read around the model is not the model's
        merge_configs(CommonConfig.defaults(), {"model": {"custom_model": "mine", "max_seq_len": None}}, CommonConfig)
    assert "model.max_seq_len: got None" in str(said.value)


def test_an_own_key_that_looks_like_a_slip_is_kept_with_a_warning() -> None:
    given = {"model": {"custom_model": "mine", "fcnet_hidens": [8]}}
    with pytest.warns(UserWarning, match=r"model\.fcnet_hidens: .* did you mean model\.fcnet_hiddens"):
        assert merge_configs(CommonConfig.defaults(), given, CommonConfig)["model"]["fcnet_hidens"] == [8]


def test_own_keys_of_a_built_in_model_are_faults() -> None:
    with pytest.raises(ConfigError, match=r"model\.nb_snakes: unknown key"):
        merge_configs(CommonConfig.defaults(), {"model": {"nb_snakes": 4}}, CommonConfig)


def test_mappings_and_sequences_of_config_libraries_are_dicts_and_lists() -> None:
    inner = UserDict({"b": 1})
    given = {"env_config": UserDict({"a": inner}), "logger_config": UserDict({"c": 2}), "hiddens": UserList([8, 4.0])}
    config = merge_configs(DQNConfig.defaults(), given, DQNConfig)
    assert (config["env_config"], config["logger_config"]) == ({"a": inner}, {"c": 2})
    assert type(config["env_config"]) is dict
    assert config["hiddens"] == [8, 4]
    with pytest.raises(ConfigError, match="hiddens: got '84'"):
        merge_configs(DQNConfig.defaults(), {"hiddens": "84"}, DQNConfig)


def test_merge_none_for_what_rllib_did_not_read_keeps_the_default() -> None:
    taken = ("env_config", "tf_session_args", "custom_resources_per_worker", "input_config", "output_compress_columns")
    taken += ("compress_observations", "num_gpus_per_worker", "optimizer", "log_level", "shuffle_buffer_size")
    assert merge_configs(CommonConfig.defaults(), dict.fromkeys(taken), CommonConfig) == CommonConfig.defaults()
    distributional = dict.fromkeys(("v_min", "v_max", "sigma0", "prioritized_replay_beta_annealing_timesteps"))
    assert merge_configs(DQNConfig.defaults(), distributional, DQNConfig) == DQNConfig.defaults()
    assert merge_configs(SACConfig.defaults(), {"lr": None}, SACConfig) == SACConfig.defaults()
    uniform = {"prioritized_replay": False, "prioritized_replay_alpha": None}
    assert merge_configs(DQNConfig.defaults(), uniform, DQNConfig)["prioritized_replay_alpha"] == 0.6
    for read in ({"num_atoms": 51, "v_min": None}, {"prioritized_replay_alpha": None}):
        with pytest.raises(ConfigError, match="got None, wanted a number"):
            merge_configs(DQNConfig.defaults(), read, DQNConfig)
    with pytest.raises(ConfigError, match="gamma: got None, wanted a number"):
        merge_configs(CommonConfig.defaults(), {"gamma": None}, CommonConfig)
