"""What a command line of `train` and `tune` makes of the declaration of the keys."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlframe.agents.presets import get_preset, presets
from rlframe.agents.registry import get_trainer_class
from rlframe.cli.flags import Flag, domains_from_flags
from rlframe.cli.main import app
from rlframe.cli.run_directory import RunSpec
from rlframe.cli.stop import StopCriterion
from rlframe.cli.train_command import Request, _tell_of_preset, make_spec
from rlframe.config.common import CommonConfig
from rlframe.config.search import Domain, tunable_keys
from rlframe.utils.errors import ConfigError


def spec(algo: str, *flags: tuple[str, str], preset: bool = False) -> dict[str, Any]:
    request = Request(algo, "CartPole-v1", None, [Flag(*flag) for flag in flags], StopCriterion(), preset)
    return make_spec(request).config


def test_short_names_of_flags_come_from_the_declaration() -> None:
    config = spec("dqn", ("n-envs", "4"), ("n-steps", "8"))
    assert config == {"num_envs_per_worker": 4, "rollout_fragment_length": 8}, "a replayed batch stays what it is"


def test_fragments_that_are_typed_make_the_train_batch() -> None:
    config = spec("ppo", ("n-envs", "16"), ("n-steps", "1024"), ("num-workers", "0"))
    assert config["train_batch_size"] == 16_384
    assert "sgd_minibatch_size" not in config
    assert spec("ppo", ("n-steps", "10"), ("num-workers", "3"))["train_batch_size"] == 30
    assert spec("ppo", ("n-steps", "10"), ("num-workers", "3"))["sgd_minibatch_size"] == 30
    assert spec("ppo", ("n-steps", "10"), ("train-batch-size", "500"))["train_batch_size"] == 500
    assert "train_batch_size" not in spec("ppo", ("n-envs", "4"))


def test_algorithms_are_found_in_any_case() -> None:
    request = Request("simpleq", "CartPole-v1", None, (), StopCriterion())
    assert make_spec(request).algorithm == "SimpleQ"


def test_flags_stand_over_the_preset() -> None:
    config = spec("PPO", ("lr", "0.5"), ("model.fcnet-hiddens", "[8]"), preset=True)
    tuned = get_preset("PPO", "CartPole-v1")
    assert config["lr"] == 0.5
    assert config["num_sgd_iter"] == tuned["num_sgd_iter"]
    assert config["model"] == {**tuned["model"], "fcnet_hiddens": [8]}


def test_a_preset_that_was_not_asked_for_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    for algorithm, env, asked in (("DQN", "CartPole-v1", False), ("DQN", "CartPole-v1", True), ("DQN", "mine", False)):
        _tell_of_preset(Request(algorithm, env, None, (), StopCriterion(), asked), RunSpec(algorithm, env))
    assert capsys.readouterr().out.startswith("a tuned config exists, add --preset: mean return 195 after ")


def test_presets_that_there_are_begin_with_the_algorithms_own() -> None:
    with pytest.raises(ConfigError) as said:
        get_preset("PPO", "Taxi-v3")
    listed = str(said.value).partition("; there are ")[2].split(", ")
    assert listed[0] == "PPO on Acrobot-v1"
    others = [name for name in listed if not name.startswith("PPO on")]
    assert listed[-len(others) :] == others == sorted(others)


@pytest.mark.parametrize("preset", presets(), ids=lambda preset: f"{preset.algorithm}-{preset.env}")
def test_presets_are_whole_configs_with_what_they_reached(preset: Any) -> None:
    trainer_class = get_trainer_class(preset.algorithm)
    trainer_class.merge_trainer_configs(trainer_class.get_default_config(), preset.config)
    assert len(preset.env_steps) >= 3
    assert len(preset.returns) in (0, len(preset.env_steps))
    assert not preset.returns or sum(preset.returns) / len(preset.returns) >= preset.target
    assert not preset.returns or len(set(preset.env_steps)) == 1
    assert f"{preset.target:g}" in preset.describe()


def test_help_of_an_algorithm_lists_every_key_once() -> None:
    out = CliRunner().invoke(app, ["train", "ppo", "--help"]).stdout
    lines = [line.split("\t") for line in out.splitlines() if "\t" in line]
    assert lines[0] == ["flag", "default", "type", "unit", "meaning"]
    flags = [line[0] for line in lines[1:]]
    assert len(flags) == len(set(flags))
    assert ["--lr", "5e-05", "a number >= 0", "", "Learning rate of the default optimizer."] in lines
    assert "--num-envs-per-worker, --n-envs" in flags
    assert "--model.fcnet-hiddens" in flags


def test_help_of_an_unknown_algorithm_is_one_line() -> None:
    result = CliRunner().invoke(app, ["train", "ppoo", "--help"])
    assert result.exit_code == 2
    assert "Did you mean PPO" in result.stderr


def domains(*flags: Flag, algo: str = "PPO") -> tuple[list[Domain], list[str]]:
    trainer_class = get_trainer_class(algo)
    return domains_from_flags(flags, trainer_class._config_class, trainer_class.get_default_config(), {})


def test_domains_follow_the_declaration() -> None:
    found, faults = domains(
        Flag("lr", "1e-5", ("1e-2",)),
        Flag("gamma", ".9", (".999",)),
        Flag("n-steps", "16", ("32", "64")),
        Flag("train-batch-size", "100", ("200",)),
        Flag("lambda", ".9", (".95", "1")),
        Flag("model.fcnet-hiddens", "[8]", ("[8, 8]",)),
        Flag("model.fcnet-activation", "relu", ("tanh",)),
        Flag("use-critic", "true", ("false",)),
        Flag("num-workers", "0"),
    )
    assert faults == []
    assert found == [
        Domain("lr", "log range", (1e-5, 1e-2)),
        Domain("gamma", "range", (0.9, 0.999)),
        Domain("rollout_fragment_length", "choice", (16, 32, 64)),
        Domain("train_batch_size", "choice", (100, 200)),
        Domain("lambda", "choice", (0.9, 0.95, 1)),
        Domain("model.fcnet_hiddens", "choice", ([8], [8, 8])),
        Domain("model.fcnet_activation", "choice", ("relu", "tanh")),
        Domain("use_critic", "choice", (True, False)),
        Domain("num_workers", "fixed", (0,)),
    ]


def test_redeclared_learning_rate_is_still_searched_by_orders_of_magnitude() -> None:
    assert domains(Flag("lr", "1e-5", ("1e-2",)), algo="DQN")[0][0].kind == "log range"


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        (Flag("seed", "1", ("2",)), "--seed: cannot be tuned: it says how a run is carried out"),
        (Flag("env-config", "{a: 1}", ("{a: 2}",)), "--env-config: cannot be tuned: it takes no number"),
        (Flag("callbacks", "a", ("b",)), "cannot be tuned"),
        (Flag("lr", "1e-2", ("1e-5",)), "--lr: got 0.01 1e-05, wanted a smaller number above 0, then a larger one"),
        (Flag("lr", "0", ("1e-5",)), "above 0"),
        (Flag("gamma", ".9", ("1.5",)), "gamma: got 1.5, wanted a number in [0, 1]"),
        (Flag("gama", ".9", (".95",)), "did you mean --gamma?"),
    ],
)
def test_domains_that_are_none_are_refused(flag: Flag, message: str) -> None:
    found, (fault,) = domains(flag)
    assert found == []
    assert message in fault


def test_what_can_be_tuned_is_what_changes_learning() -> None:
    keys = tunable_keys(CommonConfig)
    assert {"lr", "gamma", "train_batch_size", "observation_filter", "clip_rewards"} <= set(keys)
    assert not {"seed", "env", "num_workers", "model", "callbacks", "log_level", "env_config"} & set(keys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", "1", "2"], "cannot be tuned"),
        (["--lr", "1e-3"], "nothing to search"),
        (["--lr", "1e-5", "1e-3", "--study-dir", "/proc/nothing"], "cannot be written"),
        (["--lr", "1e-5", "1e-3", "--storage", "papyrus://x"], "cannot be used"),
    ],
)
def test_tune_refuses_in_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna", reason="needs the extra `tune`")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["tune", "ppo", "--env", "CartPole-v1", *words])
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_unknown_trait_of_a_key_is_none() -> None:
    assert CommonConfig.trait("gamma", "alias") is None
    with pytest.raises(ConfigError, match="there are PPO on Acrobot-v1"):
        get_preset("PPO", "Nothing-v0")
