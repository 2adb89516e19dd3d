"""`rlframe.train`, RLlib's module that trains from flags and YAML files: the experiments that they make."""

from __future__ import annotations

import runpy
import sys

import pytest

from rlframe.train import create_parser, load_experiments_from_file
from rlframe.tune import train_script
from rlframe.utils.errors import ConfigError


@pytest.fixture
def told(monkeypatch):
    """What Tune is told to run, instead of running it: trials are tests of Tune."""
    calls = []
    monkeypatch.setattr(train_script, "run_experiments", lambda experiments, **more: calls.append((experiments, more)))
    monkeypatch.setattr(train_script, "_start_ray", lambda args: None)
    return calls


def test_flags_make_one_experiment(told):
    parser = create_parser()
    parser.add_argument("--own", type=int)
    flags = ["--run", "PPO", "--env", "CartPole-v1", "--stop", '{"training_iteration": 3}', "--own", "1", "--torch"]
    train_script.run(parser.parse_args([*flags, "--config", '{"lr": 0.01}', "-vv", "--checkpoint-freq", "2"]), parser)
    [(experiments, more)] = told
    assert experiments["default"]["config"] == {
        "lr": 0.01, "env": "CartPole-v1", "framework": "torch", "log_level": "DEBUG",
    }  # fmt: skip
    assert experiments["default"]["run"] == "PPO"
    assert experiments["default"]["stop"] == {"training_iteration": 3}
    assert experiments["default"]["checkpoint_freq"] == 2
    assert (more["verbose"], more["resume"]) == (2, False)


def test_file_holds_several_experiments_and_python_m_runs_it(told, tmp_path, monkeypatch):
    path = tmp_path / "experiments.yaml"
    path.write_text("a: {run: PG, env: CartPole-v1, config: {lr: 1e-3}}\nb: {run: PPO, config: {env: Pendulum-v1}}\n")
    monkeypatch.setattr(sys, "argv", ["train", "-f", str(path)])
    monkeypatch.delitem(sys.modules, "rlframe.train.__main__", raising=False)  # as in a process of its own
    runpy.run_module("rlframe.train", run_name="__main__")
    [(experiments, _)] = told
    assert experiments["a"]["config"] == {"lr": 1e-3, "env": "CartPole-v1"}
    assert experiments["b"]["config"] == {"env": "Pendulum-v1"}


@pytest.mark.parametrize("flags", [["--env", "CartPole-v1"], ["--run", "PPO"]])
def test_algorithm_and_environment_must_be_given(flags, told):
    parser = create_parser()
    with pytest.raises(SystemExit):
        train_script.run(parser.parse_args(flags), parser)


def test_what_holds_no_experiments_is_an_error(tmp_path):
    (tmp_path / "lr.yaml").write_text("lr: 0.1\n")
    with pytest.raises(ConfigError, match="holds no experiments"):
        load_experiments_from_file(tmp_path / "lr.yaml")
    with pytest.raises(ConfigError, match="cannot read"):
        load_experiments_from_file(tmp_path / "none.yaml")


@pytest.mark.parametrize("flag", ["--local-mode", "--ray-num-nodes=2"])
def test_flags_of_old_ray_are_refused_with_what_to_do(flag):
    parser = create_parser()
    with pytest.raises(ConfigError, match=flag.partition("=")[0]):
        train_script.run(parser.parse_args(["--run", "PG", "--env", "CartPole-v1", flag]), parser)
