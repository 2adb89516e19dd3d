"""What a run shows."""

import io
import math
from typing import Any

import pytest
from rich.console import Console

from rlframe.cli import live
from rlframe.cli.live import LiveView, PlainView, Rates, Watched, duration, make_view, sparkline, starting
from rlframe.cli.stop import StopCriterion


def make_result(iteration: int, mean: float) -> dict[str, Any]:
    return {
        "training_iteration": iteration,
        "timesteps_total": 1000 * iteration,
        "time_this_iter_s": 2.0,
        "time_total_s": 2.0 * iteration,
        "episode_reward_mean": mean,
        "episode_reward_min": mean - 1,
        "episode_reward_max": mean + 1,
        "episode_len_mean": mean,
        "info": {"num_steps_trained": 3200 * iteration},
    }


def test_rates_are_differences_to_the_result_before() -> None:
    rates = Rates(train_batch_size=32)
    assert rates.row(make_result(1, 5.0)).steps_per_s == 500.0
    row = rates.row(make_result(2, 5.0))
    assert (row.steps_per_s, row.updates_per_s) == (500.0, 50.0)


def test_rates_of_a_resumed_run_do_not_count_what_was_before() -> None:
    row = Rates(32, env_steps=4000, trained=3200 * 4).row(make_result(5, 5.0))
    assert (row.steps_per_s, row.updates_per_s) == (500.0, 50.0)


def test_plain_view_writes_one_line_for_each_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    rates = Rates(32)
    with PlainView("DQN on CartPole-v1", StopCriterion(timesteps_total=5000)) as view:
        for iteration, mean in ((1, math.nan), (2, 21.25)):
            result = make_result(iteration, mean)
            view.update(rates.row(result), result)
    assert capsys.readouterr().out.splitlines() == [
        "DQN on CartPole-v1; stops at env steps ≥ 5,000",
        "iter 1  steps 1,000  return – (min –, max –)  length –  500 steps/s  50 updates/s  2 s",
        "iter 2  steps 2,000  return 21.2 (min 20.2, max 22.2)  length 21.2  500 steps/s  50 updates/s  4 s",
    ]


def test_live_view_shows_table_bar_curve_and_notice() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=30, color_system=None)
    view = LiveView("DQN on CartPole-v1", StopCriterion(100.0, timesteps_total=4000), console)
    rates = Rates(32)
    with view:
        view.say("a line [above]")
        for iteration, mean in ((1, math.nan), (2, 20.0), (3, 60.0)):
            result = make_result(iteration, mean)
            view.update(rates.row(result), result)
        view.notice("stopping")
        picture = Console(file=io.StringIO(), width=120, color_system=None)
        picture.print(view.render())
    text = picture.file.getvalue()  # type: ignore[attr-defined]
    for wanted in ("iteration", "3,000", "60.0", "updates/s", "eta", "75%", "▁█", "20.0 to 60.0", "stopping", "2 s"):
        assert wanted in text
    assert "a line [above]" in console.file.getvalue()  # type: ignore[attr-defined]


def drawn(view: LiveView) -> str:
    picture = Console(file=io.StringIO(), width=120, color_system=None)
    picture.print(view.render())
    return picture.file.getvalue()  # type: ignore[attr-defined]


def test_live_view_moves_within_an_iteration() -> None:
    now, rates = [0], Rates(32)
    watched = Watched(env_steps=lambda: now[0])
    view = LiveView("t", StopCriterion(timesteps_total=4000), Console(file=io.StringIO()), watched)
    assert "iteration 1" in drawn(view)
    assert "0%" in drawn(view)
    now[0] = 400
    assert "400 env steps" in drawn(view)
    assert "10%" in drawn(view)
    result = make_result(1, 5.0)
    view.update(rates.row(result), result)
    now[0] = 1600
    assert "iteration 2" in drawn(view)
    assert "600 env steps" in drawn(view)
    assert "40%" in drawn(view)
    now[0] = 4000
    assert "99%" in drawn(view)  # until there is a result
    with view:
        assert "iteration 2" in drawn(view)
    assert "iteration 2" not in drawn(view)


def test_live_view_of_a_resumed_run_goes_on_with_progress_and_curve() -> None:
    past = [make_result(iteration, 10.0 * iteration) for iteration in (1, 2, 3)]
    watched = Watched(past, lambda: 3000)
    text = drawn(LiveView("t", StopCriterion(50.0), Console(file=io.StringIO()), watched))
    for wanted in ("50%", "10.0 to 30.0", "iteration 4", "0 env steps"):
        assert wanted in text


def test_views_show_each_policys_return_where_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    result = {**make_result(1, 0.0), "policy_reward_mean": {"main": 0.5, "past": -0.5}}
    row = Rates(32).row(result)
    PlainView("t", StopCriterion()).update(row, result)
    assert capsys.readouterr().out.endswith("main 0.5, past -0.5\n")
    view = LiveView("t", StopCriterion(), Console(file=io.StringIO()))
    view.update(row, result)
    assert "main 0.5, past -0.5" in drawn(view)
    view.update(row, {**result, "policy_reward_mean": {"main": 0.5}})
    assert "main" not in drawn(view)


@pytest.mark.parametrize(("workers", "wanted"), [(0, ""), (1, "starting 1 worker\n"), (2, "starting 2 workers\n")])
def test_starting_says_how_many_workers(workers: int, wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    with starting(workers):
        assert capsys.readouterr().out == wanted


def test_make_view_without_a_terminal_is_plain() -> None:
    assert isinstance(make_view("t", StopCriterion()), PlainView)


def test_make_view_on_a_terminal_is_live_unless_it_cannot_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "Console", lambda: Console(force_terminal=True, file=io.StringIO()))
    assert isinstance(make_view("t", StopCriterion()), LiveView)
    monkeypatch.setattr(live, "_can_encode", lambda encoding: False)
    assert isinstance(make_view("t", StopCriterion()), PlainView)


@pytest.mark.parametrize(
    ("values", "width", "wanted"),
    [
        ([], 10, ""),
        ([1.0], 10, "▁"),
        ([3.0, 3.0], 10, "▁▁"),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 8, "▁▂▃▄▅▆▇█"),
        ([0.0, 2.0, 10.0, 8.0], 2, "▁█"),
        ([-5.0, 5.0, -5.0], 10, "▁█▁"),
    ],
)
def test_sparkline_values_become_blocks(values: list[float], width: int, wanted: str) -> None:
    assert sparkline(values, width) == wanted


@pytest.mark.parametrize(
    ("seconds", "wanted"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00 min"), (185, "3:05 min"), (7400, "2:03:20 h")]
)
def test_duration_seconds_are_written_as_people_do(seconds: float, wanted: str) -> None:
    assert duration(seconds) == wanted


def test_live_view_tells_the_best_return_and_what_the_learner_says() -> None:
    view = LiveView("DQN", StopCriterion(), Console(file=io.StringIO()), Watched([make_result(1, 30.0)]))
    rates = Rates(32)
    stats = {
        "cur_lr": 1e-3,
        "mean_q": 2.5,
        "policy_loss": 0.5,
        "vf_loss": 0.25,
        "kl": None,
        "entropy": 0.6,
        "alpha_value": 1,
    }
    result = make_result(2, 20.0)
    result["info"] |= {
        "learner": {"default_policy": {"learner_stats": stats}},
        "exploration": {"default_policy": {"cur_epsilon": 0.02}},
    }
    view.update(rates.row(result), result)
    picture = Console(file=io.StringIO(), width=120, color_system=None)
    picture.print(view.render())
    text = picture.file.getvalue()  # type: ignore[attr-defined]
    assert (
        "best return 30.0 in iteration 1  policy_loss 0.5  vf_loss 0.25  entropy 0.6  mean_q 2.5  epsilon 0.02" in text
    )
    result["info"]["learner"]["other"] = {"learner_stats": {}}
    view.update(rates.row(result), result)
    picture.print(view.render())
    assert "vf_loss" not in picture.file.getvalue()[len(text) :]  # type: ignore[attr-defined]
