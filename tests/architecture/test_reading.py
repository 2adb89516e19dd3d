"""What a reader walks: how the benchmark counts it, and that no way grows longer unnoticed."""

import sys

import pytest

from benchmarks.reading import SourceFile, StepRecorder, record_step

SOURCE = '''"""A module."""

import math  # 1


class Box:
    """A box.

    With a shape.
    """

    @property
    def area(self):
        """Returns the area."""
        # A comment.
        return math.prod(
            [2, 3],
        )

    def name(self): return "box"


def double(x):
    return [2 * each for each in x]
'''


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "boxes.py"
    path.write_text(SOURCE)
    return SourceFile(str(path))


def test_code_has_no_docstrings_comments_and_blank_lines(source):
    assert source.lines == 24
    # import, class, decorator, def, three of return, name, double, return.
    assert sorted(source.code) == [3, 6, 12, 13, 16, 17, 18, 20, 23, 24]


def test_lines_are_those_of_the_outermost_function(source):
    assert [source.name_at(line) for line in (13, 17, 20, 23, 3)] == ["Box.area", "Box.area", "Box.name", "double", ""]
    assert source.code_of({12}) == 5  # a function begins with its decorator
    assert source.code_of({23, 24}) == 2  # a comprehension is no function of its own
    assert source.code_of({3}) == 1


def test_calls_of_the_package_are_counted_and_the_profile_is_gone_afterwards():
    from rlframe.utils.schedules import ConstantSchedule

    schedule = ConstantSchedule(2.0)
    with StepRecorder() as recorder:
        schedule.value(1)
        schedule.value(2)
    schedule.value(3)
    named = {recorder.source(file).name_at(line): times for (file, line), times in recorder.calls.items()}
    assert named == {"Schedule.value": 2, "ConstantSchedule._value": 2}
    assert sys.getprofile() is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DQN", "PPO", "SAC", "IMPALA"])
def test_a_step_goes_through_no_more_files_than_it_did(name):
    recorder, classes = record_step(name)
    files = {file for file, _ in recorder.calls}
    assert len(files) <= 25
    assert sum(recorder.source(file).lines for file in files) <= 7_000
    assert len(classes) - 1 <= 3  # between the policy and `Policy`
