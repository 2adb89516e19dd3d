"""`rlframe tune` as a user runs it: processes, a kill, the same command again."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

pytest.importorskip("optuna", reason="needs the extra `tune`")

import optuna

from rlframe.trainer.loggers import read_results
from tests.cli.test_command_line import COMMAND, environment

ALGO = "tests.unit.cli.fakes:SlowTrainer"
WORDS = [
    *COMMAND, "tune", ALGO, "--env", "e", "--lr", "1e-5", "1e-2", "--gamma", ".9", ".99", "--n-steps", "16", "32", "64",
    "--max-steps", "1000", "--study-dir", "study", "--storage", "sqlite:///study.sqlite", "--study-name", "mine",
    "--n-jobs", "2", "--no-prune",
]  # fmt: skip


def states(directory: Path) -> list[str]:
    study = optuna.load_study(study_name="mine", storage=f"sqlite:///{directory}/study.sqlite")
    return [trial.state.name for trial in study.get_trials(deepcopy=False)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_killed_search_goes_on_and_carries_out_what_is_left(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*WORDS, "--n-trials", "4"], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("trial "):
                break
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
    study = optuna.load_study(study_name="mine", storage=f"sqlite:///{tmp_path}/study.sqlite")
    owners = [int(trial.user_attrs.get("owner", ":0").partition(":")[2]) for trial in study.get_trials()]
    deadline = time.monotonic() + 30
    while any(is_alive(pid) for pid in owners if pid) and time.monotonic() < deadline:
        time.sleep(0.2)
    before = states(tmp_path)
    assert 1 <= before.count("COMPLETE") < 4

    done = subprocess.run(
        [*WORDS, "--n-trials", "4"], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    after = states(tmp_path)
    assert after.count("COMPLETE") == 4
    assert after.count("RUNNING") == 0
    assert done.stdout.count("\ntrial ") == 4 - before.count("COMPLETE")
    best = yaml.safe_load((tmp_path / "study/best.yaml").read_text())["mine"]
    assert (best["run"], best["env"]) == (ALGO, "e")
    assert 1e-5 <= best["config"]["lr"] <= 1e-2
    assert best["config"]["rollout_fragment_length"] in (16, 32, 64)
    # Each of two default workers gives one fragment.
    assert best["config"]["train_batch_size"] == 2 * best["config"]["rollout_fragment_length"]
    assert "rlframe train --config study/best.yaml" in done.stdout
    run = next(iter((tmp_path / "study").glob("trial_*/result.jsonl"))).parent
    assert read_results(run)

    other = [word if word != "1e-2" else "1e-1" for word in WORDS]
    refused = subprocess.run(other, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "searches something else (lr from 1e-05 to 0.01, log; gamma" in refused.stderr


@pytest.mark.slow
def test_trials_that_fail_end_the_search_with_their_reason(tmp_path: Path) -> None:
    failing = "tests.unit.cli.fakes:FailingTrainer"
    words = [*COMMAND, "tune", failing, "--env", "e", "--lr", "1e-5", "1e-2", "--n-trials", "9", "--n-jobs", "2"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "trials failed one after the other: the valve is stuck" in done.stderr
    assert "Traceback" not in done.stderr


def test_hopeless_trial_is_pruned() -> None:
    from rlframe.cli.live import Row
    from rlframe.cli.tune_trial import TrialView
    from rlframe.cli.tuning import PARTS, StudySpec, make_pruner

    spec = StudySpec("PPO", "e", {}, (), 1000)
    study = optuna.create_study(direction="maximize", pruner=make_pruner(spec))

    def run(returns: float) -> float:
        trial = study.ask()
        view = TrialView(trial, spec.max_steps)
        for step in range(0, 1001, 25):
            row = Row(step, step, (returns, returns, returns), 1.0, 1.0, 1.0, 1.0)
            try:
                view.update(row, {})
            except optuna.TrialPruned:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                return step
        study.tell(trial, view.last)
        return 1000

    assert [run(value) for value in (10, 11, 12, 13)] == [1000] * 4
    assert run(1) == 1000 * (PARTS // 4) // PARTS, "at a quarter of the budget"
    assert run(20) == 1000
