"""`rlframe train` around a trainer that only counts."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlframe.cli.app import sigterm_interrupts
from rlframe.cli.main import app
from rlframe.cli.run_directory import checkpoints
from rlframe.trainer.loggers import read_results
from tests.unit.cli.fakes import CountingTrainer, send

ALGO = "tests.unit.cli.fakes:CountingTrainer"


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, Any]]:
    """What happens during an iteration, by iteration."""
    happening: dict[int, Any] = {}
    monkeypatch.setattr(CountingTrainer, "on_iteration", happening)
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield happening
    assert before == {signum: signal.getsignal(signum) for signum in before}, "a run gives signals back"


def invoke(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def train(*words: str) -> tuple[int, str, str]:
    return invoke("train", ALGO, "--env", "some-env", "--run-dir", "run", *words)


def names(directory: str = "run") -> list[str]:
    return [path.name for path in checkpoints(Path(directory))]


def iterations(directory: str = "run") -> list[int]:
    return [row["training_iteration"] for row in read_results(directory)]


def test_train_to_a_return_leaves_everything_and_says_where(tmp_path: Path) -> None:
    code, out, err = train("--stop-reward", "30")
    assert (code, err) == (0, "")
    assert out.splitlines()[-3:] == [
        "mean return 30, limit 30",
        "checkpoint: run/checkpoints/checkpoint_000003",
        "play back:  rlframe evaluate run --trust",
    ]
    assert "iter 1  steps 100  return – (min –, max –)  length –  200 steps/s  40 updates/s  0 s" in out
    assert iterations() == [1, 2, 3]
    assert {path.name for path in Path("run").iterdir()} >= {
        "run.json", "params.json", "result.jsonl", "progress.csv", "checkpoints"
    }  # fmt: skip
    assert list(Path("run").glob("events.out.tfevents.*"))


def test_train_to_a_number_of_steps_has_iterations_end_there(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []
    monkeypatch.setattr(CountingTrainer, "stop", lambda self: limits.append(self.env_steps_limit))
    assert train("--stop-timesteps", "150")[0] == 0
    assert train("--stop-iters", "1", "--run-dir", "other")[0] == 0
    assert limits == [150, None]


def test_train_flags_over_file_over_defaults() -> None:
    Path("c.yaml").write_text("lr: 1e-3\ngamma: 0.9\nmodel: {fcnet_hiddens: [8]}\nmy_own_key: 5\n")
    code, _, err = train(
        "--config", "c.yaml", "--gamma", ".5", "--stop-iters", "1", "--model.fcnet-activation", "relu", "--seed", "7",
        "--num-workers", "0", "--my-own-key", "6",
    )  # fmt: skip
    assert (code, err) == (0, "")
    wanted = {
        "lr": 1e-3, "gamma": 0.5, "model": {"fcnet_hiddens": [8], "fcnet_activation": "relu"}, "seed": 7,
        "num_workers": 0, "my_own_key": 6,
    }  # fmt: skip
    assert json.loads(Path("run/run.json").read_text())["config"] == wanted
    assert json.loads(Path("run/params.json").read_text())["lr"] == 1e-3


@pytest.mark.parametrize(
    ("words", "level"),
    [(["-v"], "INFO"), (["-vv"], "DEBUG"), (["--no-keep-best", "-v"], "INFO"), (["-vv", "--log-level=ERROR"], "ERROR")],
)
def test_train_v_and_vv_are_log_levels_as_in_rllib(words: list[str], level: str) -> None:
    code, _, err = train("--stop-iters", "1", *words, "--lr", "0.5")
    assert (code, err) == (0, "")
    config = json.loads(Path("run/params.json").read_text())
    assert (config["log_level"], config["lr"]) == (level, 0.5)


def test_train_by_an_rllib_experiment_file_alone() -> None:
    text = f"e: {{run: '{ALGO}', env: some-env, stop: {{training_iteration: 2}}, config: {{lr: 1e-2}}}}"
    Path("e.yaml").write_text(text)
    assert invoke("train", "-f", "e.yaml", "--run-dir", "run")[0] == 0
    assert iterations() == [1, 2]


def test_train_wrong_config_reports_all_faults_at_once_and_makes_nothing() -> None:
    code, out, err = train("--gama", "1", "--lr", "fast", "--model.fcnet-hidens", "[1]", "--num-workers", "-1")
    assert (code, out) == (2, "")
    for wanted in ("--gamma", "lr: got 'fast'", "--model.fcnet-hiddens", "num_workers: got -1"):
        assert wanted in err
    assert "Traceback" not in err
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "which algorithm?"),
        (["train", ALGO], "which environment?"),
        (["train", "DQM", "--env", "x"], "Did you mean DQN?"),
        (["train", "no_such_module:Thing", "--env", "x"], "cannot be imported"),
        (["train", "json:dumps", "--env", "x"], "wanted the name of a Trainer class"),
        (["train", ALGO, "--env", "x", "--config", "none.yaml"], "cannot read the config file"),
        (["train", "--resume", "nowhere"], "no run directory"),
        (["train", ALGO, "--env", "x", "--run-dir", "/proc/nothing"], "cannot be written"),
        (["train", ALGO, "--env", "x", "--history", "/proc/h.parquet"], "--history: '/proc/h.parquet' cannot be"),
        (["train", "alphastar", "--env", "x"], "AlphaStar exists in RLlib 1.x, but is not in rlframe yet; use"),
    ],
)
def test_train_user_mistakes_are_one_message_and_code_2(words: list[str], message: str) -> None:
    code, _, err = invoke(*words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_train_with_debug_raises_the_error() -> None:
    result = CliRunner().invoke(app, ["train", ALGO, "--env", "x", "--lr", "fast", "--debug"])
    assert type(result.exception).__name__ == "ConfigError"


def test_train_keeps_the_newest_checkpoints() -> None:
    train("--stop-iters", "7", "--checkpoint-freq", "2", "--keep-checkpoints", "3")
    assert names() == ["checkpoint_000007", "checkpoint_000006", "checkpoint_000004"]


def test_train_with_a_failing_checkpoint_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    save = CountingTrainer.save

    def save_on_a_full_disk(self: CountingTrainer, directory: str) -> str:
        if self.iteration == 2:
            raise OSError(28, "No space left on device")
        return save(self, directory)

    monkeypatch.setattr(CountingTrainer, "save", save_on_a_full_disk)
    code, out, _ = train("--stop-iters", "3", "--checkpoint-freq", "1")
    assert code == 0
    assert "no checkpoint at iteration 2" in out
    assert names() == ["checkpoint_000003", "checkpoint_000001"]


@pytest.mark.parametrize(("signum", "wanted"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_train_stopped_by_hand_saves_and_says_how_to_go_on(
    events: dict[int, Any], signum: signal.Signals, wanted: int
) -> None:
    events[4] = send(signum)
    code, out, _ = train("--stop-iters", "10")
    assert code == wanted
    assert out.splitlines()[-1] == "go on:      rlframe train --resume run --trust"
    assert names() == ["checkpoint_000004"]
    assert iterations() == [1, 2, 3, 4]


@pytest.mark.parametrize("stop", [send(signal.SIGTERM), send(signal.SIGINT), lambda: sys.exit(signal.SIGTERM)])
def test_train_stopped_while_it_starts_leaves_nothing(monkeypatch: pytest.MonkeyPatch, stop: Any) -> None:
    make = CountingTrainer.__init__

    def interrupted(self: CountingTrainer, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        stop()  # the last is what Ray does about SIGTERM once it has started

    monkeypatch.setattr(CountingTrainer, "__init__", interrupted)
    # Processes that a shell started in the background ignore it from the start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, _, err = train("--stop-iters", "1")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, err) == (130, "aborted\n")
    assert not Path("run").exists()


def test_train_aborted_after_a_checkpoint_says_how_to_go_on(events: dict[int, Any]) -> None:
    def twice() -> None:
        send(signal.SIGINT)()
        send(signal.SIGINT)()

    events[3] = twice
    code, out, err = train("--stop-iters", "10", "--checkpoint-freq", "2")
    assert (code, err.splitlines()[-1]) == (130, "aborted")
    assert out.splitlines()[-1] == "go on:      rlframe train --resume run --trust"


def test_train_stopped_twice_aborts_at_once_without_a_checkpoint(events: dict[int, Any]) -> None:
    def twice() -> None:
        send(signal.SIGINT)()
        send(signal.SIGINT)()

    events[2] = twice
    code, _, err = train("--stop-iters", "10")
    assert (code, err.splitlines()[-1]) == (130, "aborted")
    assert names() == []
    assert iterations() == [1]


def test_resume_goes_on_with_the_old_criterion_and_the_same_files(events: dict[int, Any]) -> None:
    events[2] = send(signal.SIGINT)
    train("--stop-iters", "4")
    events.clear()
    code, out, err = invoke("train", "--trust", "--resume", "run")
    assert (code, err) == (0, "")
    assert iterations() == [1, 2, 3, 4]
    assert "200 steps/s  40 updates/s" in out  # the steps before the stop are not counted again
    assert names() == ["checkpoint_000004", "checkpoint_000002"]


def test_resume_with_a_new_criterion_replaces_the_old_one() -> None:
    train("--stop-iters", "2")
    assert invoke("train", "--trust", "--resume", "run", "--stop-timesteps", "500")[0] == 0
    assert iterations() == [1, 2, 3, 4, 5]
    assert json.loads(Path("run/run.json").read_text())["stop"] == {"timesteps_total": 500}


def test_resume_of_a_finished_run_has_nothing_to_do() -> None:
    train("--stop-iters", "2")
    written = Path("run/checkpoints/checkpoint_000002/state.json").stat().st_mtime_ns
    code, out, _ = invoke("train", "--trust", "--resume", "run")
    assert code == 0
    assert "iteration 2, limit 2" in out
    assert Path("run/checkpoints/checkpoint_000002/state.json").stat().st_mtime_ns == written
    assert iterations() == [1, 2]


def test_resume_drops_results_after_the_checkpoint(events: dict[int, Any]) -> None:
    def die() -> None:
        raise RuntimeError("killed")

    events[6] = die
    result = CliRunner().invoke(
        app, ["train", ALGO, "--env", "e", "--run-dir", "run", "--stop-iters", "7", "--checkpoint-freq", "3"]
    )
    assert isinstance(result.exception, RuntimeError)
    assert iterations() == [1, 2, 3, 4, 5]
    events.clear()
    assert invoke("train", "--trust", "--resume", "run")[0] == 0
    assert iterations() == [1, 2, 3, 4, 5, 6, 7]


def test_resume_with_a_damaged_checkpoint_takes_the_one_before() -> None:
    train("--stop-iters", "4", "--checkpoint-freq", "2")
    Path("run/checkpoints/checkpoint_000004/state.json").write_text("{")
    code, _, err = invoke("train", "--trust", "--resume", "run", "--stop-iters", "5")
    assert code == 0
    assert "checkpoint_000004 is passed over" in err
    assert iterations() == [1, 2, 3, 4, 5]


def test_resume_with_only_damaged_checkpoints_is_an_error_and_loses_nothing() -> None:
    train("--stop-iters", "2")
    Path("run/checkpoints/checkpoint_000002/state.json").write_text("{")
    code, _, err = invoke("train", "--trust", "--resume", "run", "--stop-iters", "5")
    assert code == 2
    assert "is damaged" in err
    assert iterations() == [1, 2]


def test_resume_without_any_checkpoint_starts_from_the_beginning(events: dict[int, Any]) -> None:
    events[2] = lambda: [send(signal.SIGINT)(), send(signal.SIGINT)()]
    train("--stop-iters", "3")
    events.clear()
    code, _, err = invoke("train", "--trust", "--resume", "run")
    assert code == 0
    assert "no checkpoint yet" in err
    assert iterations() == [1, 2, 3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lr", "1"], "--lr"),
        (["--seed", "1"], "--seed"),
        (["--config", "x.yaml"], "--config"),
        (["SAC"], "not of SAC"),
    ],
)
def test_resume_with_another_config_is_refused(words: list[str], message: str) -> None:
    train("--stop-iters", "1")
    code, _, err = invoke("train", "--trust", "--resume", "run", *words)
    assert code == 2
    assert message in err


def test_train_into_a_directory_with_a_run_is_refused() -> None:
    train("--stop-iters", "1")
    code, _, err = train("--stop-iters", "1")
    assert code == 2
    assert "--resume run" in err


def test_sigterm_takes_back_the_alarm_by_which_ray_has_the_process_aborted() -> None:
    with sigterm_interrupts():
        signal.alarm(60)  # what Ray's own handler does before this one
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.alarm(0) == 0
