"""Runs whose returns no longer rise."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlframe.agents.registry import get_trainer_class
from rlframe.cli.main import app
from rlframe.cli.patience import Patience, Watch, reduce_learning_rate
from rlframe.cli.run_directory import BEST, RunSpec, checkpoints
from rlframe.report.history import read_history
from rlframe.trainer.loggers import read_results
from rlframe.utils.errors import ConfigError
from tests.helpers.frameworks import TORCH_FIRST

PLATEAU = "tests.unit.cli.fakes:PlateauTrainer"


def rows(*means: float | None) -> list[dict[str, float | None]]:
    return [{"episode_reward_mean": mean, "timesteps_total": 100 * n} for n, mean in enumerate(means, start=1)]


def test_watch_reduces_again_and_again_and_then_ends() -> None:
    watch = Watch(Patience(early_stop=5, reduce_after=2, reduce_factor=0.5))
    verdicts = [watch.update(row) for row in rows(None, 1, 2, 2, 1, 1, 1, 2)]
    assert [verdict.is_best for verdict in verdicts] == [False, True, True, False, False, False, False, False]
    assert [verdict.reduce for verdict in verdicts] == [False, False, False, False, True, False, True, False]
    assert [verdict.reason is not None for verdict in verdicts] == [*[False] * 7, True]
    assert watch.reductions == 2


def test_watch_counts_only_after_the_steps_it_is_told() -> None:
    watch = Watch(Patience(early_stop=2, after_steps=400))
    verdicts = [watch.update(row) for row in rows(5, 1, 1, 1, 1, 1)]
    assert [verdict.reason is not None for verdict in verdicts] == [*[False] * 5, True]


@pytest.mark.parametrize(
    ("patience", "message"),
    [
        ({"reduce_after": 3}, "go together"),
        ({"reduce_after": 3, "reduce_factor": 2.0}, "between 0 and 1"),
        ({"after_steps": 3}, "give one of them"),
    ],
)
def test_patience_refuses_what_does_nothing(patience: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Patience(**patience)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_reduced_learning_rate_stays_reduced(framework: str) -> None:
    config = {
        "framework": framework, "num_workers": 0, "lr": 1e-2, "rollout_fragment_length": 20, "train_batch_size": 20,
        "sgd_minibatch_size": 20, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [4]}, "log_sys_usage": False,
    }  # fmt: skip
    trainer = get_trainer_class("PPO")(config, env="CartPole-v1")
    trainer.train()
    assert reduce_learning_rate(trainer, 0.1) == pytest.approx(1e-3)
    trainer.train()
    stats = trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]
    assert stats["cur_lr"] == pytest.approx(1e-3)
    trainer.stop()


@pytest.fixture
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def train(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["train", *words])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.usefixtures("_in_tmp_path")
def test_train_stops_early_keeps_the_best_and_writes_its_history() -> None:
    code, out, err = train(
        PLATEAU, "--env", "e", "--run-dir", "run", "--early-stop-patience", "4", "--checkpoint-freq", "2",
        "--history", "h.parquet", "--max-steps", "5000", "--monitor", "tensorboard",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "no better mean return than 30.00 for 4 iterations" in out
    assert [row["training_iteration"] for row in read_results("run")] == [1, 2, 3, 4, 5, 6, 7]
    assert [path.name for path in checkpoints(Path("run"), BEST)] == ["checkpoint_000003"]
    assert [path.name for path in checkpoints(Path("run"))] == ["checkpoint_000007", "checkpoint_000006"]
    assert read_history("h.parquet")["step"].tolist() == [100 * n for n in range(1, 8)]
    assert RunSpec.read(Path("run")).patience == Patience(early_stop=4)


@pytest.mark.usefixtures("_in_tmp_path")
def test_resume_goes_on_waiting_and_with_the_same_history() -> None:
    train(PLATEAU, "--env", "e", "--run-dir", "run", "--early-stop-patience", "6", "--history", "h.parquet",
          "--stop-iters", "5")  # fmt: skip
    code, out, _ = train("--trust", "--resume", "run", "--stop-iters", "50")
    assert code == 0
    assert "for 6 iterations" in out
    assert read_history("h.parquet")["step"].tolist() == [100 * n for n in range(1, 10)]


@pytest.mark.usefixtures("_in_tmp_path")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--plateau-reduce-patience", "3"], "go together"),
        (["--plateau-reduce-patience", "3", "--plateau-reduce-factor", ".5", "--lr-schedule", "[[0, 1]]"],
         "lr_schedule decides"),
        (["--history", "nowhere/h.parquet"], "cannot be written"),
        (["--monitor", "papyrus"], "wanted one of wandb, mlflow, tensorboard"),
        (["--preset"], "there is no preset for PPO on e; there are PPO on Acrobot-v1"),
    ],
)  # fmt: skip
def test_train_refuses_in_one_line_and_makes_nothing(words: list[str], message: str) -> None:
    code, out, err = train("ppo", "--env", "e", "--run-dir", "run", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not Path("run").exists()


@pytest.mark.usefixtures("_in_tmp_path")
def test_history_of_another_run_is_not_written_over() -> None:
    train(PLATEAU, "--env", "e", "--run-dir", "one", "--history", "h.parquet", "--stop-iters", "1")
    code, _, err = train(PLATEAU, "--env", "e", "--run-dir", "two", "--history", "h.parquet", "--stop-iters", "1")
    assert code == 2
    assert "holds the history of another run" in err
