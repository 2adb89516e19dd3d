"""`rlframe data make`: datasets by D4RL's recipe, the same for the same seed, also where they were interrupted."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from rlframe.cli.commands import app
from rlframe.cli.data_commands import make as make_command
from rlframe.cli.data_making import LOG, TRAINING, Judged, cut_log, medium_of
from rlframe.offline import EpisodeReader
from rlframe.offline.datasets import describe_dataset, read_dataset
from rlframe.trainer.loggers import read_results
from rlframe.utils.errors import DataError

ENV = f"{__name__}:Choose"
FLAGS = (
    "--algorithm", "DQN", "--model.fcnet-hiddens", "[8]", "--hiddens", "[]", "--timesteps-per-iteration", "50",
    "--learning-starts", "20", "--lr", "0.05", "--min-iter-time-s", "0", "--replay-buffer-config.capacity", "500",
    "--exploration-config.epsilon-timesteps", "200", "--target-network-update-freq", "20", "--train-batch-size", "16",
    "--quiet",
)  # fmt: skip


class Choose(gym.Env):
    """Ten steps, each of which pays the number of the action: a policy learns which is larger within some hundred."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.step_number = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.step_number += 1
        return np.full(1, self.step_number / 10, np.float32), float(action), False, self.step_number == 10, {}


def said(*words) -> str:
    result = CliRunner().invoke(app, ["data", "make", *map(str, words)])
    return f"{result.exit_code}: {result.output}"


def made(directory, level, *more) -> str:
    return said(ENV, "--level", level, "--rows", 60, "--train-steps", 400, "--out", directory, *more, *FLAGS)


def rows_of(directory):
    return [{name: np.asarray(batch[name]).tolist() for name in batch} for batch in read_dataset(str(directory))]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Returns a directory with a dataset of both policies, and the run that trained them."""
    directory = tmp_path_factory.mktemp("both") / "data"
    assert made(directory, "medium-expert").startswith("0: medium: 30 rows, 3 episodes")
    return directory


def test_the_manifest_says_how_a_dataset_was_made(both):
    manifest = yaml.safe_load((both / "manifest.yaml").read_text())
    returns = manifest["expert"]["mean_return"], manifest["random"]["mean_return"]
    third = returns[1] + (returns[0] - returns[1]) / 3
    nearest = min(manifest["checkpoints"][:-1], key=lambda one: abs(one["mean_return"] - third))
    assert manifest["medium"] == nearest
    assert manifest["checkpoints"][-1]["steps"] == 400
    assert returns[0] > returns[1] + 2
    described = describe_dataset(str(both))
    assert (described["rows"], described["episodes"], described["probabilities"]) == (60, 6, "action_prob")
    assert [file["name"] for file in manifest["files"]] == ["medium-0.parquet", "expert-0.parquet"]
    means = [part["mean_return"] for part in manifest["parts"].values()]
    np.testing.assert_allclose(described["returns"]["mean"], np.mean(means), rtol=1e-6)
    rows = next(EpisodeReader(str(both / "expert-0.parquet")).read_all_files())
    probs = np.exp(rows["action_logp"])
    assert (probs > 0).all()
    assert (probs[np.asarray(rows["actions"]) == 1] > 0.5).all()  # epsilon-greedy tells what it does


def test_the_same_request_makes_the_same_rows_and_another_is_told(both, tmp_path):
    assert made(both, "medium-expert").startswith("0: medium: 30 rows")  # it is there already
    assert made(tmp_path / "again", "medium-expert").startswith("0:")
    assert rows_of(tmp_path / "again") == rows_of(both)
    files = [yaml.safe_load((place / "manifest.yaml").read_text())["files"] for place in (both, tmp_path / "again")]
    assert files[0] == files[1]
    assert "of another request: seed is 0 there, and 1 here" in made(both, "medium-expert", "--seed", 1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").touch()
    assert "is not empty, and no dataset is being made there" in made(tmp_path / "mine", "medium")


def test_policies_of_a_run_or_a_checkpoint_record_without_training(both, tmp_path):
    run = both / TRAINING
    assert said("--from", run, "--level", "medium-expert", "--rows", 60, "--out", tmp_path / "a", "--trust").startswith(
        "0:"
    )
    assert rows_of(tmp_path / "a") == rows_of(both)
    assert not (tmp_path / "a" / TRAINING).exists()
    checkpoint = max((run / "checkpoints").iterdir())
    flags = ("--from", checkpoint, "--level", "expert", "--trust", "--rows", 25)
    assert said(*flags, "--out", tmp_path / "b", "--format", "json").startswith("0: expert: 30 rows, 3 episodes")
    file = max(checkpoint.glob("checkpoint-*"))
    assert said("--from", file, *flags[2:], "--out", tmp_path / "c", "--format", "json").startswith(
        "0: expert: 30 rows"
    )
    assert rows_of(tmp_path / "c") == rows_of(tmp_path / "b")
    assert "takes a run as it is, without --algorithm, --lr" in said(
        *flags, *FLAGS[:2], "--lr", 1, "--out", tmp_path / "d"
    )
    assert "wanted a run with several for medium-expert" in said(
        "--from", checkpoint, "--level", "medium-expert", "--trust", "--out", tmp_path / "e"
    )


@pytest.mark.slow
def test_what_a_training_sampled_until_it_was_medium_and_random_actions(tmp_path):
    assert made(tmp_path / "replay", "medium-replay", "--n-step", 1).startswith("0: medium-replay")
    manifest = yaml.safe_load((tmp_path / "replay" / "manifest.yaml").read_text())
    log = list(read_dataset(str(tmp_path / "replay" / LOG)))
    steps = manifest["medium"]["steps"]
    rewards = np.concatenate([batch["rewards"] for batch in log])[:steps]
    kept = np.concatenate([batch["rewards"] for batch in read_dataset(str(tmp_path / "replay"))])
    assert manifest["rows"] == len(kept) == min(60, steps)
    np.testing.assert_array_equal(kept, rewards[-len(kept) :])
    assert said(ENV, "--level", "random", "--rows", 15, "--out", tmp_path / "random", *FLAGS).startswith(
        "0: random: 20"
    )
    said(ENV, "--level", "random", "--rows", 20, "--out", tmp_path / "other", "--seed", 1, *FLAGS)
    (rows,), (other,) = (read_dataset(str(tmp_path / name)) for name in ("random", "other"))
    assert rows["actions"].tolist() != other["actions"].tolist()
    np.testing.assert_allclose(rows["action_logp"], np.log(0.5), rtol=1e-6)
    assert not (tmp_path / "random" / TRAINING).exists()


@pytest.mark.slow
def test_a_training_that_was_stopped_goes_on_with_the_rows_it_had(tmp_path):
    """As after a kill: the run has a checkpoint some iterations back, the log rows behind it, one of them cut short."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    made(whole, "medium-replay", "--n-step", 1)
    made(stopped, "medium-replay", "--n-step", 1)
    manifest = yaml.safe_load((stopped / "manifest.yaml").read_text())
    (stopped / "manifest.yaml").write_text(yaml.safe_dump({"request": manifest["request"], "finished": False}))
    places = sorted((stopped / TRAINING / "checkpoints").iterdir())
    for place in places[4:]:
        for path in sorted(place.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        place.rmdir()
    results = stopped / TRAINING / "result.jsonl"
    results.write_text("".join(results.read_text().splitlines(keepends=True)[:6]))
    (log,) = (stopped / LOG).glob("*.json")
    text = log.read_text()
    log.write_text(text[: len(text) * 3 // 4])
    assert made(stopped, "medium-replay", "--n-step", 1).startswith("0: medium-replay")
    assert rows_of(stopped) == rows_of(whole)
    assert [row["timesteps_total"] for row in read_results(stopped / TRAINING)][-1] == 400
    first = results.read_text().splitlines(keepends=True)[:2]
    results.write_text("".join(first))
    cut_log(stopped)
    kept = [len(json.loads(line)["rewards"]) for path in (stopped / LOG).glob("*.json") for line in path.open()]
    assert sum(kept) == json.loads(first[-1])["timesteps_total"]


def judged(*returns):
    return [Judged(None, 100 * number, mean) for number, mean in enumerate(returns)]


def test_medium_is_a_third_of_the_way_from_random_to_the_last():
    assert medium_of(judged(-1200, -850, -500, -150), -1200).mean_return == -850
    assert medium_of(judged(0, 40, 20, 100), 0).mean_return == 40
    with pytest.raises(DataError, match="is -3, and that of random actions -2: it has learned nothing"):
        medium_of(judged(-1, -3), -2)
    with pytest.raises(DataError, match=r"no checkpoint is medium: wanted a mean return near 33\.33"):
        medium_of(judged(0, 99, 100), 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--level", "good", "--out", "x"), "--level: got 'good', wanted one of random, medium"),
        (("--out", "x"), "--train-steps: DQN has no tuned config"),
        ((), "where to"),
        (("--level", "random", "--format", "csv", "--out", "x"), "--format: got 'csv'"),
        (("--from", "nowhere", "--out", "x"), "--from takes a run as it is"),
        (
            ("--level", "medium-replay", "--n-step", "3", "--train-steps", "9", "--out", "x"),
            "got n_step=3, wanted rows of",
        ),
    ],
)
def test_requests_that_cannot_be_met_are_told(words, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = said(ENV, *words, *FLAGS)
    assert answer.startswith("2:")
    assert says in answer
    assert not (tmp_path / "x").exists()
    assert make_command.__doc__


def test_an_environment_that_is_not_named_first_is_asked_for(tmp_path):
    answer = said("--env", "CartPole-v1", "--level", "random", "--out", str(tmp_path / "x"))
    assert "which environment? Name it first, as in `rlframe data make CartPole-v1`" in answer
    assert not (tmp_path / "x").exists()
