"""What a run leaves in its directory, and that nothing of it is lost."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlframe.trainer.loggers import RunLogger, flatten, read_results, to_jsonable


class SomeCallbacks:
    """Stands for a user's class in a config."""


def make_result(iteration: int, **more: Any) -> dict[str, Any]:
    return {
        "training_iteration": iteration,
        "timesteps_total": 100 * iteration,
        "episode_reward_mean": 1.5 * iteration,
        "config": {"lr": 1e-3},
        **more,
    }


def read_csv(directory: Path) -> list[dict[str, str]]:
    with (directory / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def read_events(directory: Path) -> list[tuple[int, str, float]]:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    found = []
    for path in sorted(directory.glob("events.out.tfevents.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 8], "little")
            body = data[at + 12 : at + 12 + size]
            assert int.from_bytes(data[at + 12 + size : at + 16 + size], "little") == masked_crc32c(body)
            event = Event.FromString(body)
            values = [value for value in event.summary.value if not value.tag.startswith("_hparams_")]
            found += [(event.step, value.tag, value.simple_value) for value in values]
            at += 16 + size
    return found


@pytest.fixture
def logger(tmp_path: Path) -> Any:
    made = RunLogger(tmp_path, {"lr": 1e-3, "callbacks": SomeCallbacks, "shape": (1, 2)})
    yield made
    made.close()


def test_params_with_classes_and_tuples_are_strict_json(logger: RunLogger, tmp_path: Path) -> None:
    params = json.loads((tmp_path / "params.json").read_text())
    assert params == {"lr": 0.001, "callbacks": f"{__name__}:SomeCallbacks", "shape": [1, 2]}


def test_result_with_numpy_values_and_nan_is_one_strict_json_line(logger: RunLogger, tmp_path: Path) -> None:
    learner = {"td_error": np.array([0.5, np.nan], np.float32), "cur_lr": np.float32(0.25), "n": np.int64(3)}
    logger.on_result(make_result(1, episode_reward_min=float("nan"), up=float("inf"), info={"learner": learner}))
    (line,) = (tmp_path / "result.jsonl").read_text().splitlines()
    row = json.loads(line, parse_constant=pytest.fail)
    assert row["info"]["learner"] == {"td_error": [0.5, None], "cur_lr": 0.25, "n": 3}
    assert row["episode_reward_min"] is None
    assert row["up"] is None
    assert "config" not in row


def test_result_with_a_video_names_it_instead_of_writing_it(logger: RunLogger, tmp_path: Path) -> None:
    logger.on_result(make_result(1, episode_media={"video": np.zeros((2, 84, 84, 3), np.uint8)}))
    (row,) = read_results(tmp_path)
    assert row["episode_media"]["video"] == "array of shape [2, 84, 84, 3] and dtype uint8"


def test_progress_with_a_late_key_keeps_old_columns_and_old_rows(logger: RunLogger, tmp_path: Path) -> None:
    logger.on_result(make_result(1, episode_reward_mean=float("nan"), info={"a": 1}))
    logger.on_result(make_result(2, evaluation={"episode_reward_mean": np.float64(7.0)}))
    logger.on_result(make_result(3, info={"a": 3}))
    header = (tmp_path / "progress.csv").read_text().splitlines()[0]
    assert header == ("training_iteration,timesteps_total,episode_reward_mean,info/a,evaluation/episode_reward_mean")
    rows = read_csv(tmp_path)
    assert [row["info/a"] for row in rows] == ["1", "", "3"]
    assert [row["evaluation/episode_reward_mean"] for row in rows] == ["", "7.0", ""]
    assert [row["episode_reward_mean"] for row in rows] == ["", "3.0", "4.5"]


def test_progress_leaves_out_lists_and_arrays(logger: RunLogger, tmp_path: Path) -> None:
    logger.on_result(make_result(1, hist_stats={"episode_reward": [1.0, 2.0]}, info={"td_error": np.ones(32)}))
    assert list(read_csv(tmp_path)[0]) == ["training_iteration", "timesteps_total", "episode_reward_mean"]


def test_events_hold_finite_numbers_by_timesteps(logger: RunLogger, tmp_path: Path) -> None:
    logger.on_result(make_result(1, done=False, note="x", bad=float("nan"), info={"learner": {"q": np.float32(2.5)}}))
    logger.close()
    events = read_events(tmp_path)
    assert (100, "info/learner/q", 2.5) in events
    assert {tag for _, tag, _ in events} == {
        "training_iteration", "timesteps_total", "episode_reward_mean", "info/learner/q"
    }  # fmt: skip


def test_events_without_the_library_warn_once(
    logger: RunLogger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    logger.on_result(make_result(1))
    logger.on_result(make_result(2))
    assert sum("tensorboardX" in record.message for record in caplog.records) == 1


def test_every_result_is_on_disk_before_the_next(logger: RunLogger, tmp_path: Path) -> None:
    logger.on_result(make_result(1))
    assert len(read_results(tmp_path)) == 1
    assert len(read_csv(tmp_path)) == 1
    assert read_events(tmp_path)


def test_directory_of_an_earlier_run_is_continued(tmp_path: Path) -> None:
    for iteration in (1, 2):
        logger = RunLogger(tmp_path, {})
        logger.on_result(make_result(iteration))
        logger.close()
    assert [row["training_iteration"] for row in read_results(tmp_path)] == [1, 2]
    assert [row["training_iteration"] for row in read_csv(tmp_path)] == ["1", "2"]


def test_truncate_after_an_iteration_drops_later_results_and_goes_on(logger: RunLogger, tmp_path: Path) -> None:
    for iteration in range(1, 6):
        logger.on_result(make_result(iteration))
    logger.truncate_after(3)
    logger.on_result(make_result(4, episode_reward_mean=-1.0))
    assert [row["training_iteration"] for row in read_results(tmp_path)] == [1, 2, 3, 4]
    assert [row["episode_reward_mean"] for row in read_csv(tmp_path)] == ["1.5", "3.0", "4.5", "-1.0"]
    assert (400, "episode_reward_mean", -1.0) in read_events(tmp_path)


def test_truncate_after_a_kill_in_the_middle_of_a_row_drops_the_row(logger: RunLogger, tmp_path: Path) -> None:
    logger.on_result(make_result(1))
    logger.on_result(make_result(2))
    logger.close()
    for name in ("result.jsonl", "progress.csv"):
        path = tmp_path / name
        path.write_text(path.read_text()[:-6])
    later = RunLogger(tmp_path, {})
    later.truncate_after(1)
    later.on_result(make_result(2))
    later.close()
    assert [row["training_iteration"] for row in read_results(tmp_path)] == [1, 2]
    assert [row["episode_reward_mean"] for row in read_csv(tmp_path)] == ["1.5", "3.0"]


def test_directory_that_is_a_file_raises_oserror(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        RunLogger(tmp_path / "file" / "run", {})


def test_logger_after_close_can_be_flushed_and_closed_again(logger: RunLogger) -> None:
    logger.on_result(make_result(1))
    logger.flush()
    logger.close()
    logger.close()
    logger.flush()


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (np.bool_(True), True),
        (np.array(2.0), 2.0),
        ((1, {2}), [1, [2]]),
        ({1: None}, {"1": None}),
        (len, "builtins:len"),
        (Path("x"), "x"),
        (np.float32("nan"), None),
    ],
)
def test_to_jsonable_value_becomes_plain(value: Any, wanted: Any) -> None:
    assert to_jsonable(value) == wanted
    assert type(to_jsonable(value)) is type(wanted)


def test_flatten_nested_dict_joins_keys_with_slashes() -> None:
    assert dict(flatten({"a": {"b": {"c": 1}}, "d": 2, "e": {}})) == {"a/b/c": 1, "d": 2}


def test_tensorboard_shows_a_resumed_run_as_one_with_its_hyper_parameters(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    config = {"lr": 1e-3, "model": {"fcnet_hiddens": [64, 64]}, "seed": None}
    for iterations in ((1, 2, 3), (3, 4)):  # killed after a third iteration that no checkpoint has
        logger = RunLogger(tmp_path, config)
        if iterations[0] > 1:
            logger.truncate_after(2)
        for iteration in iterations:
            stats = {"info": {"learner": {"default_policy": {"learner_stats": {"vf_loss": 0.5}}}}}
            when = {"training_iteration": iteration, "timesteps_total": 100 * iteration}
            logger.on_result({**when, **stats, "pid": 7, "timestamp": 8})
        logger.close()
    seen = EventAccumulator(str(tmp_path))
    seen.Reload()
    loss = seen.Scalars("info/learner/default_policy/learner_stats/vf_loss")
    assert [event.step for event in loss] == [100, 200, 300, 400]
    assert not {"pid", "timestamp"} & set(seen.Tags()["scalars"])
    begun = HParamsPluginData.FromString(seen.PluginTagToContent("hparams")["_hparams_/session_start_info"])
    values = begun.session_start_info.hparams
    assert values["lr"].number_value == 1e-3
    assert values["model.fcnet_hiddens"].string_value == "[64, 64]"
