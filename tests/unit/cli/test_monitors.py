"""Where else results go."""

import glob
import importlib.util
import math
import os

import numpy as np
import pytest

from rlframe.cli.monitors import check_monitors, make_monitors, numbers_of
from rlframe.utils.errors import CheckpointError, ConfigError


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_monitor_that_is_not_installed_says_how_to_install_it(name: str) -> None:
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed")
    with pytest.raises(ConfigError, match=f"--monitor {name}: not installed; `pip install {name}`"):
        check_monitors([name])


def test_tensorboard_needs_nothing_of_its_own(tmp_path) -> None:
    assert make_monitors(["tensorboard", "tensorboard"], tmp_path, {}) == []


def test_numbers_of_a_result_are_finite_and_named_by_their_place() -> None:
    result = {
        "mean": np.float32(1.5),
        "nan": math.nan,
        "done": False,
        "text": "x",
        "info": {"learner": {"default_policy": {"kl": 0.25, "td_error": np.zeros(3)}}},
        "hist_stats": {"episode_reward": [1.0, 2.0]},
        "config": {"lr": 1.0},
    }
    assert numbers_of(result) == {"mean": 1.5, "info/learner/default_policy/kl": 0.25}


def log(directory, monitor, rows):
    (made,) = make_monitors([monitor], directory, {"lr": 1e-3, "model": {"fcnet_hiddens": [64]}})
    for step, value in rows:
        made.log({"episode_reward_mean": value}, step)
    made.close()
    return made.run_id


def test_a_resumed_run_is_the_same_one_of_mlflow(tmp_path, monkeypatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    run = tmp_path / "ppo"
    run.mkdir()
    first = log(run, "mlflow", [(100, 1.0), (200, 2.0)])
    assert log(run, "mlflow", [(300, 3.0)]) == first
    client = mlflow.MlflowClient()
    assert [(each.step, each.value) for each in client.get_metric_history(first, "episode_reward_mean")] == [
        (100, 1.0), (200, 2.0), (300, 3.0),
    ]  # fmt: skip
    assert client.get_run(first).data.params["lr"] == "0.001"
    assert client.get_run(first).info.run_name == "ppo"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/other")
    with pytest.raises(ConfigError, match=r"--monitor mlflow: run .* cannot go on at .*MLFLOW_TRACKING_URI"):
        make_monitors(["mlflow"], run, {})


def test_a_resumed_run_is_the_same_one_of_wandb(tmp_path, monkeypatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    run = tmp_path / "ppo"
    run.mkdir()
    first = log(run, "wandb", [(100, 1.0), (200, 2.0)])
    assert log(run, "wandb", [(300, 3.0)]) == first
    written = glob.glob(f"{tmp_path}/wandb/offline-run-*/run-{first}.wandb")
    assert len(written) == 2  # `wandb sync` joins them by the id
    assert all(os.path.getsize(path) > 0 for path in written)


@pytest.mark.parametrize("content", ["[]", '{"mlflow": 3}', '{"mlflow": "../../x"}', "{"])
def test_a_damaged_file_of_run_ids_says_so(tmp_path, content) -> None:
    (tmp_path / "monitors.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"monitors.json' is damaged .*remove it to begin new runs"):
        make_monitors(["tensorboard"], tmp_path, {})
