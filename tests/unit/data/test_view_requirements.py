"""What models see of a trajectory."""

import numpy as np
import pytest

from rlframe.data.sample_batch import SampleBatch
from rlframe.data.view_requirements import ViewRequirement


def trajectory() -> SampleBatch:
    return SampleBatch(
        {
            "obs": np.array([1.0, 2.0, 3.0], np.float32),
            "new_obs": np.array([2.0, 3.0, 4.0], np.float32),
            "actions": np.array([7, 8, 9]),
            "state_out_0": np.array([[10.0], [20.0], [30.0]], np.float32),
        }
    )


@pytest.mark.parametrize(
    ("shift", "seen"),
    [
        (0, [1, 2, 3]),
        (-1, [0, 1, 2]),
        (1, [2, 3, 0]),
        ("-1:0", [[0, 1], [1, 2], [2, 3]]),
        ([-2, 0], [[0, 1], [0, 2], [1, 3]]),
    ],
)
def test_view_shift_fills_with_zeros_outside(shift, seen):
    assert ViewRequirement(shift=shift).view(np.array([1, 2, 3])).tolist() == seen


def test_view_index_sees_one_row_everywhere():
    assert ViewRequirement(index=-1).view(np.array([1, 2, 3])).tolist() == [3, 3, 3]


def test_view_nested_data_is_shifted_leaf_by_leaf():
    seen = ViewRequirement(shift=-1).view({"a": np.array([1, 2]), "b": (np.array([[3], [4]]),)})
    assert seen["a"].tolist() == [0, 1]
    assert seen["b"][0].tolist() == [[0], [3]]


def test_range_attributes_are_inclusive():
    view = ViewRequirement(shift="-3:-1")
    assert (view.shift_from, view.shift_to, view.shift_arr.tolist()) == (-3, -1, [-3, -2, -1])
    plain = ViewRequirement(data_col="obs", shift=-1, used_for_training=False)
    assert (plain.shift_from, plain.shift_to, plain.shift_arr.tolist()) == (None, None, [-1])
    assert (plain.data_col, plain.used_for_training, plain.batch_repeat_value) == ("obs", False, 1)


def test_default_space_is_any_number():
    assert ViewRequirement().space.shape == ()


@pytest.mark.parametrize("shift", ["3", "a:b", "0:-1", "1:"])
def test_bad_shift_is_refused(shift):
    with pytest.raises(ValueError, match=f"shift='{shift}'"):
        ViewRequirement(shift=shift)


def test_single_step_last_sees_the_observation_after_the_last_row():
    views = {
        "obs": ViewRequirement(),
        "prev_actions": ViewRequirement("actions", shift=-1),
        "state_in_0": ViewRequirement("state_out_0", shift=-1),
        "history": ViewRequirement("obs", shift="-2:0"),
        "new_obs": ViewRequirement("obs", shift=1, used_for_compute_actions=False),
    }
    step = trajectory().get_single_step_input_dict(views, index="last")
    assert step["obs"].tolist() == [4.0]
    assert step["prev_actions"].tolist() == [9]
    assert step["state_in_0"].tolist() == [[30.0]]
    assert step["history"].tolist() == [[2.0, 3.0, 4.0]]
    assert "new_obs" not in step
    assert (step.count, step["seq_lens"].tolist()) == (1, [1])


def test_single_step_row_takes_stored_or_shifted_values():
    batch = trajectory()
    batch["history"] = np.arange(6).reshape(3, 2)
    views = {
        "obs": ViewRequirement(),
        "history": ViewRequirement("obs", shift="-1:0"),
        "prev_actions": ViewRequirement("actions", shift=-1),
    }
    step = batch.get_single_step_input_dict(views, index=1)
    assert (step["obs"].tolist(), step["history"].tolist(), step["prev_actions"].tolist()) == ([2.0], [[2, 3]], [7])
    assert batch.get_single_step_input_dict(views, index=-1)["obs"].tolist() == [3.0]


def test_single_step_last_history_reaches_before_the_fragment():
    batch = trajectory()
    # Rows before the fragment were 90, 91, 92; the stored views knew them.
    batch["history"] = np.array([[90, 91, 92, 1], [91, 92, 1, 2], [92, 1, 2, 3]], np.float32)
    batch["far"] = np.array([[80, 90], [81, 91], [82, 92]], np.float32)
    views = {"history": ViewRequirement("obs", shift="-3:0"), "far": ViewRequirement("obs", shift="-5:-4")}
    step = batch.get_single_step_input_dict(views)
    assert step["history"].tolist() == [[1.0, 2.0, 3.0, 4.0]]
    assert step["far"].tolist() == [[92.0, 0.0]]


def test_single_step_other_string_is_refused():
    with pytest.raises(ValueError, match="'first'"):
        trajectory().get_single_step_input_dict({}, index="first")


def test_single_step_has_the_state_that_its_trajectory_ended_in():
    batch = trajectory()
    batch["state_in_0"], batch["state_out_0"] = np.arange(6).reshape(3, 2), np.arange(2, 8).reshape(3, 2)
    views = {"obs": ViewRequirement()}  # those of the model alone
    last, first = (batch.get_single_step_input_dict(views, index) for index in ("last", 0))
    assert (last["state_in_0"].tolist(), first["state_in_0"].tolist()) == ([[6, 7]], [[0, 1]])
