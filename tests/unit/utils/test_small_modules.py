"""Annotations, deprecation, timers, window statistics, learner info, and RLlib's paths to errors and types."""

from __future__ import annotations

import logging
import time

import gymnasium as gym
import numpy as np
import pytest

from rlframe.utils import deprecation, error, errors, typing
from rlframe.utils.annotations import DeveloperAPI, PublicAPI, override
from rlframe.utils.deprecation import DEPRECATED_VALUE, Deprecated, deprecation_warning
from rlframe.utils.metrics import LEARNER_INFO, LEARNER_STATS_KEY, LearnerInfoBuilder
from rlframe.utils.timer import TimerStat
from rlframe.utils.window_stat import WindowStat


class Base:
    @property
    def size(self):
        return 1

    def run(self):
        return 1


def test_override_of_a_method_gives_it_back():
    class Child(Base):
        @override(Base)
        def run(self):
            return 2

        @override(Base)
        @property
        def size(self):
            return 2

    assert Child().run() == Child().size == 2


def test_environments_may_override_the_seed_of_old_gym():
    class Env(gym.Env):
        @override(gym.Env)
        def seed(self, seed=None):
            return [seed]

    assert Env().seed(3) == [3]


def test_override_of_nothing_is_a_name_error():
    with pytest.raises(NameError, match="Base, which has no walk"):

        class Child(Base):
            @override(Base)
            def walk(self):
                pass


def test_api_marks_leave_objects_as_they_are():
    @PublicAPI
    class Marked:
        @DeveloperAPI
        def method(self):
            return 3

    assert Marked().method() == 3
    assert PublicAPI(len) is len


@pytest.fixture
def nothing_said(monkeypatch):
    monkeypatch.setattr(deprecation, "_said", set())


@pytest.mark.usefixtures("nothing_said")
def test_deprecation_warning_speaks_once(caplog):
    with caplog.at_level(logging.WARNING, logger="rlframe"):
        deprecation_warning("old", "new")
        deprecation_warning("old", "new")
    assert [record.message for record in caplog.records] == ["`old` is deprecated; use `new` instead."]
    assert DEPRECATED_VALUE == -1


def test_deprecation_as_an_error_raises():
    with pytest.raises(ValueError, match="`old` is deprecated"):
        deprecation_warning("old", error=True)
    with pytest.raises(ValueError, match=r"`old` is deprecated\. Leave it out"):
        deprecation_warning("old", help="Leave it out", error=True)
    with pytest.raises(KeyError, match="new"):
        deprecation_warning("old", "new", error=KeyError)
    with pytest.raises(OSError, match="mine"):
        deprecation_warning("old", error=OSError("mine"))


@pytest.mark.usefixtures("nothing_said")
def test_deprecated_functions_and_classes_speak_and_work(caplog):
    @Deprecated(new="g")
    def f(x):
        return x + 1

    @Deprecated("OldClass")
    class C:
        def __init__(self, x):
            self.x = x

    with caplog.at_level(logging.WARNING, logger="rlframe"):
        assert f(1) == 2
        assert C(5).x == 5
    assert len(caplog.records) == 2


def test_timer_looks_back_over_its_window():
    timer = TimerStat(window_size=2)
    assert timer.mean == timer.mean_throughput == timer.mean_units_processed == 0.0
    for seconds, units in ((100.0, 1), (1.0, 10), (3.0, 30)):
        timer.push(seconds)
        timer.push_units_processed(units)
    assert timer.mean == 2.0
    assert timer.mean_units_processed == 20.0
    assert timer.mean_throughput == 10.0
    assert timer.count == 3
    assert timer.total == 104.0
    assert timer.has_units_processed()


def test_timer_as_a_context_times_the_block_even_if_it_raises():
    timer = TimerStat()
    with timer:
        time.sleep(0.01)
    assert 0.009 < timer.mean < 5.0
    with pytest.raises(KeyError), timer:
        raise KeyError
    assert timer.count == 2
    assert not timer.has_units_processed()


def test_timer_entered_twice_is_an_error():
    timer = TimerStat()
    with timer, pytest.raises(RuntimeError, match="already timing"):
        timer.__enter__()


def test_window_stat_looks_back_over_its_window():
    stat = WindowStat("size", 3)
    assert np.isnan(stat.mean())
    assert stat.quantiles() == []
    for value in (100, 1, 2, 3):
        stat.push(value)
    assert stat.stats()["size_mean"] == 2.0
    assert stat.stats()["size_count"] == 4
    assert stat.quantiles()[0] == 1.0
    assert stat.quantiles()[-1] == 3.0
    assert stat.std() == pytest.approx(np.std([1, 2, 3]))


def report(loss, low, td):
    return {LEARNER_STATS_KEY: {"loss": loss, "min_q": low, "max_q": low, "vec": np.array([loss, 0.0])}, "td_error": td}


def test_learner_info_reduces_steps_by_the_kind_of_number():
    builder = LearnerInfoBuilder()
    builder.add_learn_on_batch_results(report(1.0, -3.0, np.array([1.0])))
    builder.add_learn_on_batch_results_multi_agent({"default_policy": report(3.0, 5.0, np.array([2.0])), "count": 7})
    info = builder.finalize()["default_policy"]
    assert info[LEARNER_STATS_KEY]["loss"] == 2.0
    assert info[LEARNER_STATS_KEY]["min_q"] == -3.0
    assert info[LEARNER_STATS_KEY]["max_q"] == 5.0
    assert info[LEARNER_STATS_KEY]["vec"].tolist() == [2.0, 0.0]
    assert info["td_error"].tolist() == [1.0, 2.0]
    assert LEARNER_INFO == "learner"
    with pytest.raises(RuntimeError, match="finalized"):
        builder.add_learn_on_batch_results({})


def test_learner_info_leaves_out_nan_and_takes_missing_keys():
    builder = LearnerInfoBuilder()
    for stats in ({"a": np.nan, "s": "x"}, {"a": 4, "b": 1.0, "s": "y"}, {"a": np.nan, "n": None}):
        builder.add_learn_on_batch_results({LEARNER_STATS_KEY: stats})
    stats = builder.finalize()["default_policy"][LEARNER_STATS_KEY]
    assert stats == {"a": 4.0, "b": 1.0, "s": "y", "n": None}
    empty = LearnerInfoBuilder()
    empty.add_learn_on_batch_results({"a": np.nan})
    assert np.isnan(empty.finalize()["default_policy"]["a"])


def test_learner_info_of_several_devices_reads_the_towers():
    builder = LearnerInfoBuilder(num_devices=2)
    builder.add_learn_on_batch_results({"tower_0": {"loss": 1.0}, "tower_1": {"loss": 3.0}, "shared": 5.0})
    assert builder.finalize() == {"default_policy": {"loss": 2.0, "shared": 5.0}}


def test_rllibs_paths_to_errors_and_types():
    assert error.UnsupportedSpaceException is errors.UnsupportedSpaceException
    assert error.EnvError is errors.EnvError
    assert typing.PolicyID is str
    for name in ("TensorType", "TrainerConfigDict", "ModelConfigDict", "AgentID", "ResultDict", "SampleBatchType"):
        assert hasattr(typing, name)


def failure(function):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what it is, is told below
        function()
    return caught.value


def unsaid():
    raise RuntimeError


def test_what_a_program_raised_is_told_with_its_text_or_its_place():
    assert errors.describe_error(ValueError("too cold")) == "ValueError: too cold"
    assert errors.describe_error(KeyError()) == "KeyError without a text"
    told = errors.describe_error(failure(unsaid))
    assert told.startswith("RuntimeError without a text, at ")
    assert told.endswith(": raise RuntimeError")


def test_names_of_numpys_older_streams_are_told_by_those_of_its_generators():
    told = errors.describe_error(failure(lambda: np.random.default_rng(0).randint(3)))
    assert told.endswith("as in Gymnasium: call np_random.integers(low, high)")
    assert "Gymnasium" not in errors.describe_error(failure(lambda: np.random.default_rng(0).lost))
