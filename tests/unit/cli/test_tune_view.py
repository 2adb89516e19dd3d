"""What a search shows while it runs."""

import datetime
import io

import pytest
from rich.console import Console

optuna = pytest.importorskip("optuna", reason="needs the extra `tune`")

from rlframe.cli.tune_view import SearchView, seconds_left  # noqa: E402 (Optuna may be missing)

BEGUN = datetime.datetime(2024, 1, 1, 12, 0, 0)


@pytest.fixture
def study():
    made = optuna.create_study(direction="maximize")
    for value in (10.0, 30.0):
        asked = made.ask()
        made.tell(asked, value)
    under_way = made.ask()
    under_way.report(12.5, 5)
    made.ask()
    return made


def test_a_bar_says_how_many_trials_have_ended_which_run_and_the_best_return(study):
    view = SearchView(8, 2, Console(file=io.StringIO(), force_terminal=True))
    picture = Console(file=io.StringIO(), width=120, color_system=None)
    picture.print(view.render(study, datetime.datetime.now()))
    text = picture.file.getvalue()
    assert "2 of 8 trials" in text
    assert "best return 30.0" in text
    assert "trial 2  25% of its steps  return 12.5" in text
    assert "trial 3 has begun" in text
    assert "eta 0 s" in text


class Timed:
    def __init__(self, begun_s, seconds=None):
        self.datetime_start = BEGUN + datetime.timedelta(seconds=begun_s)
        self.duration = None if seconds is None else datetime.timedelta(seconds=seconds)


def test_time_left_is_that_of_trials_so_far_shared_among_the_jobs():
    done, running = [Timed(0, 100), Timed(0, 140)], [Timed(140)]
    now = BEGUN + datetime.timedelta(seconds=170)
    assert seconds_left(done, running, 6, 2, now) == (4 * 120 - 30) / 2
    assert seconds_left([], running, 6, 2, now) is None
    late = BEGUN + datetime.timedelta(seconds=10_000)  # a trial that takes longer than those before
    assert seconds_left(done, running, 3, 1, late) == 0


def test_without_a_terminal_there_are_lines_alone(study, capsys):
    with SearchView(8, 2) as view:
        view.watch(study)
        view.say("trial 1  return 30.0  (2 of 8)")
    assert capsys.readouterr().out == "trial 1  return 30.0  (2 of 8)\n"
