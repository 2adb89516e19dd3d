"""Schedules: values worked out by hand."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from rlframe.utils.annotations import override
from rlframe.utils.errors import ConfigError
from rlframe.utils.from_config import from_config
from rlframe.utils.schedules import (
    ConstantSchedule,
    ExponentialSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    PolynomialSchedule,
    Schedule,
    make_schedule,
)

ALL = [
    (ConstantSchedule(0.3, framework="torch"), {0: 0.3, 7: 0.3, 10**9: 0.3}),
    (LinearSchedule(10, 0.0, framework="torch"), {0: 1.0, 5: 0.5, 10: 0.0, 50: 0.0}),
    (LinearSchedule(schedule_timesteps=100, initial_p=2.0, final_p=4.0), {0: 2.0, 25: 2.5, 100: 4.0, 101: 4.0}),
    (PolynomialSchedule(10, 1.0, initial_p=5.0, power=2.0), {0: 5.0, 5: 2.0, 10: 1.0, 11: 1.0}),
    (PolynomialSchedule(10, 0.0), {5: 0.25}),
    (ExponentialSchedule(10, initial_p=2.0, decay_rate=0.5), {0: 2.0, 10: 1.0, 20: 0.5}),
    (ExponentialSchedule(10), {10: 0.1}),
    (
        PiecewiseSchedule([(0, 1.0), (10, 0.0), (20, 4.0)], outside_value=9.0),
        {0: 1, 5: 0.5, 10: 0, 15: 2, 20: 9, -1: 9},
    ),
    (PiecewiseSchedule([(5, 1.0), (10, 3.0)]), {5: 1.0, 7.5: 2.0, 10: 3.0}),
    (PiecewiseSchedule([(0, 1.0), (5, 1.0), (5, 0.0), (9, 0.0)]), {4: 1.0, 5: 0.0, 6: 0.0}),
    (PiecewiseSchedule([(0, 2.0), (4, 8.0)], interpolation=lambda left, right, share: left), {3: 2.0}),
]


@pytest.mark.parametrize(("schedule", "wanted"), ALL)
def test_schedule_at_a_number_is_the_value_worked_out_by_hand(schedule, wanted):
    for step, value in wanted.items():
        assert schedule(step) == pytest.approx(value)
        assert schedule.value(step) == pytest.approx(value)
        assert schedule(np.float64(step)) == pytest.approx(value)


@pytest.mark.parametrize(("schedule", "wanted"), ALL)
def test_schedule_at_arrays_and_tensors_is_the_value_at_each_step(schedule, wanted):
    torch = pytest.importorskip("torch")
    steps = list(wanted)
    values = schedule(np.array([steps]))
    assert values.shape == (1, len(steps))
    assert values.dtype == np.float32
    assert np.allclose(values[0], list(wanted.values()))
    tensor = schedule(torch.tensor(steps))
    assert tensor.dtype == torch.float32
    assert not tensor.requires_grad
    assert np.allclose(tensor.numpy(), list(wanted.values()))
    assert float(schedule(torch.tensor(steps[0]))) == pytest.approx(wanted[steps[0]])


def test_piecewise_outside_its_points_without_a_value_is_an_error():
    schedule = PiecewiseSchedule([(5, 1.0), (10, 3.0)])
    for step in (4, 11):
        with pytest.raises(ValueError, match="from 5 to 10"):
            schedule(step)


@pytest.mark.parametrize("points", [[], [(5, 1.0), (4, 1.0)]])
def test_piecewise_of_disordered_points_is_refused(points):
    with pytest.raises(ConfigError, match="growing"):
        PiecewiseSchedule(points)


@pytest.mark.parametrize("length", [0, -1, float("inf"), "10"])
def test_schedules_of_no_length_are_refused(length):
    with pytest.raises(ConfigError, match="schedule_timesteps"):
        LinearSchedule(length, 0.0)
    with pytest.raises(ConfigError, match="schedule_timesteps"):
        ExponentialSchedule(length)


def test_schedules_are_made_from_configs():
    made = from_config(Schedule, {"type": "PiecewiseSchedule", "endpoints": [[0, 1], [4, 0]]}, framework=None)
    assert made(1) == 0.75
    by_path = from_config(Schedule, "rlframe.utils.schedules.constant_schedule.ConstantSchedule", value=2)
    assert by_path(0) == 2


@pytest.mark.parametrize(
    ("spec", "at_5"),
    [
        (0.5, 0.5),
        (0, 0),
        ([[0, 1.0], [10, 0.0]], 0.5),
        ({"type": "ConstantSchedule", "value": 3.0}, 3.0),
        (ConstantSchedule(2.0), 2.0),
        (lambda t: t * 2, 10),
    ],
)
def test_make_schedule_takes_what_users_write(spec, at_5):
    made = make_schedule(spec)
    assert made is not None
    assert made(5) == pytest.approx(at_5)


def test_make_schedule_of_a_list_keeps_the_last_value():
    made = make_schedule([[0, 1.0], [10, 0.25]])
    assert made is not None
    assert made(10) == made(10**6) == 0.25


def test_make_schedule_of_none_is_none():
    assert make_schedule(None) is None


def test_schedules_survive_pickling():
    assert pickle.loads(pickle.dumps(PiecewiseSchedule([(0, 1.0), (2, 0.0)])))(1) == 0.5


def test_a_users_schedule_defines_one_method():
    class Steps(Schedule):
        def _value(self, t):
            return 1.0 if t < 3 else 0.1

    assert Steps(framework="torch")(2) == 1.0
    assert Steps()(np.array([2, 3])).tolist() == pytest.approx([1.0, 0.1])


def test_a_schedule_of_ones_own_takes_what_it_is_given():
    class ByEntropy(Schedule):
        @override(Schedule)
        def _value(self, t):
            entropy, step = t
            return entropy * step

        @override(Schedule)
        def _tf_value_op(self, t):
            return super()._tf_value_op(t)

    assert ByEntropy(framework=None).value((0.5, 4)) == ByEntropy()._tf_value_op((0.5, 4)) == 2.0
