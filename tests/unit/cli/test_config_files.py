"""Config files in YAML and JSON."""

from pathlib import Path
from typing import Any

import pytest

from rlframe.cli.config_files import ConfigFile, read_config_file
from rlframe.utils.errors import ConfigError
from rlframe.utils.yaml_text import parse_yaml


def write(tmp_path: Path, text: str, name: str = "config.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1e-4", 1e-4), ("1E6", 1e6), ("-2.5e+3", -2500.0), ("1.", 1.0), (".5", 0.5), ("1_000", 1000),
        ("12", 12), ("-3", -3), ("'1e-4'", "1e-4"), ("1e", "1e"), ("v1", "v1"), ("1.2.3", "1.2.3"), ("true", True),
        ("[64, 1e2]", [64, 100.0]), ("", None), (".inf", float("inf")),
    ],
)  # fmt: skip
def test_parse_text_becomes_the_value_people_mean(text: str, wanted: Any) -> None:
    value = parse_yaml(text)
    assert value == wanted
    assert type(value) is type(wanted)


def test_read_yaml_of_keys_is_the_config(tmp_path: Path) -> None:
    path = write(tmp_path, "lr: 1e-4\nmodel:\n  fcnet_hiddens: [64, 64]\n")
    assert read_config_file(path) == ConfigFile(config={"lr": 1e-4, "model": {"fcnet_hiddens": [64, 64]}})


def test_read_json_of_keys_is_the_config(tmp_path: Path) -> None:
    assert read_config_file(write(tmp_path, '{"lr": 1e-4}', "a.json")).config == {"lr": 1e-4}


def test_read_empty_file_is_an_empty_config(tmp_path: Path) -> None:
    assert read_config_file(write(tmp_path, "# nothing\n")) == ConfigFile()


def test_read_rllib_experiment_says_algorithm_env_and_stop(tmp_path: Path) -> None:
    text = """
    cartpole-dqn:
        env: CartPole-v0
        run: DQN
        stop: {episode_reward_mean: 150, timesteps_total: 1e5}
        checkpoint_freq: 5
        config:
            framework: torch
            lr: 5e-4
    """
    assert read_config_file(write(tmp_path, text)) == ConfigFile(
        config={"framework": "torch", "lr": 5e-4, "env": "CartPole-v0"},
        algorithm="DQN",
        stop={"episode_reward_mean": 150, "timesteps_total": 1e5},
        checkpoint_freq=5,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "holds a list"),
        ("a: [1", "cannot be read"),
        ("a: {run: DQN}\nb: {run: DQN}", "2 experiments.*python -m rlframe.train -f"),
        ("a: {run: DQN, num_samples: 3}", "num_samples.*python -m rlframe.train -f"),
        ("a: {run: DQN, config: {lr: {grid_search: [1, 2]}}}", "grid_search.*python -m rlframe.train -f"),
        ("a: !!python/object:os.system {}", "cannot be read"),
    ],
)
def test_read_of_anything_else_raises_configerror(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config_file(write(tmp_path, text))


def test_read_missing_file_raises_configerror(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the config file"):
        read_config_file(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("k0: &k0 x\n" + "".join(f"k{n + 1}: &k{n + 1} [*k{n}, *k{n}]\n" for n in range(30)), "more than 100,000"),
        ("a: &a [*a]", "a part of"),
        ("[" * 3000, "nests deeper"),
    ],
)  # fmt: skip
def test_yaml_that_stands_for_more_than_memory_holds_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_yaml(text)
    assert parse_yaml("a: &a [1, 2]\nb: *a") == {"a": [1, 2], "b": [1, 2]}


def test_an_experiments_parts_have_their_types(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    for key, value in (("stop", "5"), ("config", "[1]"), ("run", "null"), ("checkpoint_freq", "x")):
        path.write_text(f"e: {{run: PG, {key}: {value}}}\n")
        with pytest.raises(ConfigError, match=f"c.yaml: {key}: got"):
            read_config_file(path)
