"""`tune.Analysis` of folders, and the parser of experiments, without Ray's runtime."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlframe import tune
from rlframe.trainer.checkpoint_paths import leave_pointer
from rlframe.tune.config_parser import make_parser
from rlframe.tune.resources import json_to_resources, resources_to_json
from rlframe.tune.tune import _make_scheduler
from rlframe.utils.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, rewards in (("a", (1, 9, 2)), ("b", (3, 4, 5)), ("c", (None, None, None))):
        trial = tmp_path / name
        for iteration in (2, 3):
            (trial / f"checkpoint_{iteration:06}").mkdir(parents=True)
            state = {"meta": {"iteration": iteration}}
            (trial / f"checkpoint_{iteration:06}" / "state.json").write_text(json.dumps(state))
            leave_pointer(str(trial / f"checkpoint_{iteration:06}"), iteration)
        rows = [f"{i},{'' if reward is None else reward}" for i, reward in enumerate(rewards, 1)]
        (trial / "progress.csv").write_text("\n".join(["training_iteration,episode_reward_mean", *rows, ""]))
        (trial / "params.json").write_text(json.dumps({"lr": name}))
    return tmp_path


def test_the_best_trial_is_the_one_with_the_best_row(folder):
    analysis = tune.Analysis(folder, default_metric="episode_reward_mean", default_mode="max")
    assert analysis.get_best_logdir() == str(folder / "a")
    assert analysis.get_best_config(mode="min") == {"lr": "a"}
    assert analysis.dataframe()[["episode_reward_mean", "config/lr"]].to_numpy().tolist()[:2] == [[2, "a"], [5, "b"]]
    assert analysis.dataframe("episode_reward_mean", "max")["episode_reward_mean"].tolist() == [9, 5]
    assert sorted(analysis.trial_dataframes) == [str(folder / name) for name in "abc"]


def test_checkpoints_have_the_metrics_of_their_iterations(folder):
    analysis = tune.Analysis(str(folder))
    paths = [str(folder / "a" / f"checkpoint_00000{iteration}" / f"checkpoint-{iteration}") for iteration in (2, 3)]
    (folder / "a" / "checkpoint_best").mkdir()  # a program's own
    (folder / "a" / "checkpoint_000003" / "checkpoint_000002").mkdir()
    checkpoints = analysis.get_trial_checkpoints_paths(folder / "a", "episode_reward_mean")
    assert checkpoints == [(paths[0], 9), (paths[1], 2)]
    trial = SimpleNamespace(logdir=str(folder / "a"))
    assert analysis.get_best_checkpoint(trial, "episode_reward_mean", "max") == paths[0]
    assert analysis.get_last_checkpoint(trial) == paths[1]
    assert analysis.get_last_checkpoint(metric="episode_reward_mean", mode="max") == paths[1]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda analysis: analysis.get_best_logdir("reward", "max"), "no trial has it; they have episode_reward_mean"),
        (lambda analysis: analysis.get_best_logdir(), "got metric=None, mode=None; wanted both"),
        (lambda analysis: analysis.dataframe(mode="max"), "wanted a metric as well"),
        (lambda analysis: analysis.dataframe("episode_reward_mean", "most"), "mode='most': wanted 'max', 'min'"),
        (lambda analysis: analysis.get_best_checkpoint("elsewhere", mode="max"), "no results there; wanted one of"),
    ],
)
def test_what_is_not_there_is_said(folder, ask, message):
    with pytest.raises(ConfigError, match=message):
        ask(tune.Analysis(folder))


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"wanted a folder with a progress\.csv"):
        tune.Analysis(tmp_path)


def test_the_parser_of_experiments_reads_what_runs_take():
    parser = make_parser(description="trains")
    parser.add_argument("--env")
    flags = ["--run", "PG", "--env", "E", "--stop", '{"a": 1}', "--resources-per-trial", '{"cpu": 2, "extra_cpu": 3}']
    args = parser.parse_args([*flags, "--scheduler", "MedianStopping", "--scheduler-config", '{"metric": "m"}'])
    assert (args.run, args.stop, args.config, args.num_samples, args.restore) == ("PG", {"a": 1}, {}, 1, None)
    assert resources_to_json(args.resources_per_trial) == {"cpu": 2, "gpu": 0, "extra_cpu": 3}
    assert type(_make_scheduler(args)).__name__ == "MedianStoppingRule"
    assert resources_to_json(json_to_resources("null")) is None
    with pytest.raises(ConfigError, match=r"got \{'cpus': 1\}, wanted a dict with keys of"):
        json_to_resources({"cpus": 1})


def test_statistics_are_when_an_experiment_began_and_when_its_newest_result_came():
    analysis = object.__new__(tune.ExperimentAnalysis)
    began = [SimpleNamespace(start_time=time) for time in (7.0, 5.0, None)]
    results = [{"timestamp": 9}, {"timestamp": 11}, None]
    analysis.trials = [SimpleNamespace(run_metadata=run, last_result=r) for run, r in zip(began, results, strict=True)]
    assert analysis.stats() == {"start_time": 5.0, "timestamp": 11.0}
    analysis.trials = [SimpleNamespace(run_metadata=SimpleNamespace(start_time=5.75), last_result={"timestamp": 5})]
    assert analysis.stats() == {"start_time": 5.75, "timestamp": 5.75}, "results are noted in whole seconds"
    analysis.trials = [SimpleNamespace(run_metadata=run, last_result=r) for run, r in zip(began, results, strict=True)]
    analysis.trials = analysis.trials[2:]
    assert analysis.stats() == {}
