"""Config keys on the command line."""

from collections.abc import Sequence
from typing import Any

import pytest

from rlframe.cli.flags import Flag, config_from_flags, read_value, split_flags
from rlframe.config.common import CommonConfig

OWN = {"--env": True, "-f": True, "--debug": False}


def make_config(*flags: Flag, base: dict[str, Any] | None = None, **own: Any) -> tuple[dict[str, Any], list[str]]:
    defaults = {**CommonConfig.defaults(), **own}
    return config_from_flags(flags, CommonConfig, defaults, base or {})


def test_split_flags_keeps_own_options_and_arguments() -> None:
    words = [
        "DQN",
        "--lr",
        "1e-3",
        "--env",
        "--odd",
        "--model.fcnet_hiddens=[64]",
        "--debug",
        "--explore",
        "--gamma",
        "-1",
    ]
    kept, flags = split_flags(words, OWN)
    assert kept == ["DQN", "--env", "--odd", "--debug"]
    assert flags == [
        Flag("lr", "1e-3"), Flag("model.fcnet_hiddens", "[64]"), Flag("explore", None), Flag("gamma", "-1")
    ]  # fmt: skip


def test_split_flags_own_option_with_equals_takes_no_second_word() -> None:
    assert split_flags(["--env=CartPole-v1", "DQN"], OWN) == (["--env=CartPole-v1", "DQN"], [])


def test_split_flags_after_double_dash_leaves_all() -> None:
    assert split_flags(["--", "--lr", "1"], OWN) == (["--", "--lr", "1"], [])


def test_flags_with_dashes_and_dots_make_a_nested_config() -> None:
    config, faults = make_config(
        Flag("lr", "1e-3"),
        Flag("model.fcnet-hiddens", "[64, 64]"),
        Flag("num-envs-per-worker", "4"),
        Flag("seed", "none"),
    )
    assert faults == []
    assert config == {"lr": 0.001, "model": {"fcnet_hiddens": [64, 64]}, "num_envs_per_worker": 4, "seed": None}


def test_flags_without_value_are_true_and_with_no_are_false() -> None:
    config, faults = make_config(Flag("compress-observations", None), Flag("no-explore", None))
    assert (config, faults) == ({"compress_observations": True, "explore": False}, [])


def test_flag_without_value_for_a_number_is_a_fault() -> None:
    assert make_config(Flag("lr", None)) == ({}, ["--lr: got no value, wanted one: --lr=VALUE"])


def test_unknown_flags_are_all_reported_with_the_nearest_names() -> None:
    _, faults = make_config(Flag("gama", "1"), Flag("model.fcnet-hidens", "[1]"), Flag("no-zzzzzz", None))
    assert faults == [
        "--gama: no such option or config key; did you mean --gamma?",
        "--model.fcnet-hidens: no such option or config key; did you mean --model.fcnet-hiddens?",
        "--no-zzzzzz: no such option or config key",
    ]
    assert make_config(Flag("learning-rate", "1"))[1] == [
        "--learning-rate: no such option or config key; did you mean --lr?"
    ]


def test_flag_below_a_key_that_holds_no_keys_is_unknown() -> None:
    assert len(make_config(Flag("lr.x", "1"))[1]) == 1


@pytest.mark.parametrize("text", ["3", "1e-4", "[1, 1e-4]", "{a: 1}", "true", "null", "word"])
def test_flags_in_free_form_sections_are_read_as_yaml(text: str) -> None:
    wanted = {"3": 3, "1e-4": 1e-4, "[1, 1e-4]": [1, 1e-4], "{a: 1}": {"a": 1}, "true": True, "null": None}
    config, faults = make_config(Flag("env-config.some.key", text))
    assert faults == []
    assert config == {"env_config": {"some": {"key": wanted.get(text, text)}}}


def test_flags_of_a_typed_section_go_by_its_type_whatever_the_order() -> None:
    config, faults = make_config(
        Flag("exploration-config.epsilon-timesteps", "5e3"), Flag("exploration-config.type", "EpsilonGreedy")
    )
    assert faults == []
    assert config == {"exploration_config": {"type": "EpsilonGreedy", "epsilon_timesteps": 5000.0}}
    assert make_config(Flag("exploration-config.epsilon-timesteps", "5"))[1]  # StochasticSampling has none
    base = {"exploration_config": {"type": "EpsilonGreedy"}}
    assert make_config(Flag("exploration-config.epsilon-timesteps", "5"), base=base)[1] == []


def test_flags_of_the_users_own_keys_are_known_by_the_defaults() -> None:
    assert make_config(Flag("my-key", "0.5"), my_key=1.0) == ({"my_key": 0.5}, [])


def test_flags_with_a_name_of_another_rllib_are_left_to_the_trainer() -> None:
    assert make_config(Flag("num-rollout-workers", "2")) == ({"num_rollout_workers": 2}, [])


def test_flags_in_overrides_are_keys_of_the_whole_config() -> None:
    config, faults = make_config(Flag("evaluation-config.explore", "false"), Flag("evaluation-config.exploore", "1"))
    assert config == {"evaluation_config": {"explore": False}}
    assert len(faults) == 1


@pytest.mark.parametrize(
    ("text", "annotation", "wanted"),
    [
        ("1e4", int, 10000.0),  # the config makes it 10000
        ("7", float | None, 7),
        ("None", float | None, None),
        ("no", bool, False),
        ("On", bool | None, True),
        ("1", bool | int, 1),
        ("1", bool, True),
        ("12", str, "12"),
        ("null", str, "null"),
        ("abc", int, "abc"),
        ("[64, 32]", Sequence[int], [64, 32]),
        ("[1e-3]", list[float] | None, [0.001]),
        ("{x: 1e-3}", dict[str, Any], {"x": 0.001}),
    ],
)
def test_read_value_goes_by_the_declared_type(text: str, annotation: Any, wanted: Any) -> None:
    value = read_value(text, annotation)
    assert value == wanted
    assert type(value) is type(wanted)
