"""Dotted names: of the right kind before anything calls them, and not imported where a file gives them."""

import sys

import pytest

from rlframe.utils import names
from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.from_config import resolve_type
from rlframe.utils.schedules import ConstantSchedule, Schedule

KIND = names.subclasses_of(Schedule)
CONSTANT = "rlframe.utils.schedules.constant_schedule.ConstantSchedule"


class Own(Schedule):
    """A schedule of the program's."""


OWN = f"{__name__}:Own"


@pytest.fixture
def bait(tmp_path, monkeypatch):
    """A module that leaves a file when it is imported."""
    mark = tmp_path / "ran"
    (tmp_path / "bait_module.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Bait: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield mark
    sys.modules.pop("bait_module", None)


@pytest.mark.parametrize("path", [OWN, OWN.replace(":", ".")])
def test_a_name_of_the_programs_own_is_found(path):
    assert names.find(path, KIND) is Own


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("os.system", "of type builtin_function_or_method; wanted the name of a subclass of Schedule"),
        ("subprocess.Popen", "the class Popen; wanted"),
        ("no_such_module.Thing", "there is no module 'no_such_module'"),
        (f"{__name__}.Nothing", "has no 'Nothing'"),
        ("a b.c", "no dotted name"),
        ("..", "no dotted name"),
    ],
)
def test_a_name_of_something_else_is_refused_and_not_called(path, says):
    with pytest.raises(ConfigError, match=says):
        names.find(path, KIND)


def test_a_module_that_fails_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "ends_module.py").write_text("raise SystemExit('so long')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="importing 'ends_module' failed: SystemExit: so long"):
        names.find("ends_module.Thing", KIND)


def test_names_from_a_file_are_rlframes_own_or_given_by_the_program(bait):
    with names.from_file("the file", "Do this", frozenset([OWN])):
        assert names.find(CONSTANT, KIND) is ConstantSchedule
        assert resolve_type(Schedule, "ConstantSchedule") is ConstantSchedule
        assert names.find(OWN, KIND) is Own
        with pytest.raises(CheckpointError, match=r"the file names the Schedule 'bait_module.Bait'.*Do this"):
            names.find("bait_module.Bait", KIND)
        # Within our own modules there are others, and functions.
        for path in ("rlframe.utils.names.re.Pattern", "rlframe.utils.names:Mapping", "rlframe.utils.names.gates"):
            with pytest.raises((CheckpointError, ConfigError)):
                names.find(path, names.Kind("thing", "anything", lambda _: True))
        with names.trusting(), pytest.raises(ConfigError, match="the class Bait; wanted"):
            names.find("bait_module.Bait", KIND)
        assert bait.exists(), "the control: imported once it was trusted"
    assert names.gates() == ()


def test_names_are_refused_in_every_thread_and_by_every_gate(bait):
    from concurrent.futures import ThreadPoolExecutor

    with names.process_from_file("run", "no"), names.from_file("checkpoint", "no", frozenset(["bait_module.Bait"])):
        with ThreadPoolExecutor(1) as pool:
            refused = pool.submit(names.find, "bait_module.Bait", KIND).exception()
        assert "run names the Schedule" in str(refused)
        with pytest.raises(CheckpointError, match="run names"):  # what the inner one knows came from the outer's file
            names.find("bait_module.Bait", KIND)
    assert not bait.exists()


def test_what_of_a_config_is_foreign_is_listed():
    config = {
        "env": "mine:Env-v0", "model": {"custom_model": "a.B", "custom_model_config": {"type": "x.y"}}, "lr": 1.0,
        "exploration_config": {"type": "SoftQ", "epsilon_schedule": {"type": "os.system"}},
        "evaluation_config": {"env": "ALE/Pong-v5"}, "extra_python_environs_for_worker": {"LD_PRELOAD": "x"},
    }  # fmt: skip
    assert list(names.foreign(config)) == [
        "env: mine:Env-v0", "model.custom_model: a.B", "exploration_config.epsilon_schedule.type: os.system",
        "extra_python_environs_for_worker: LD_PRELOAD",
    ]  # fmt: skip


def test_a_file_that_a_file_names_is_not_loaded(tmp_path):
    made = tmp_path / "made"
    (tmp_path / "case.py").write_text(f"open({str(made)!r}, 'w')\nclass Bait: pass\n")
    path = f"{tmp_path / 'case.py'}:Bait"
    assert list(names.foreign({"env": path, "algorithm": "rlframe.py:X"})) == [
        f"env: {path}", "algorithm: rlframe.py:X",
    ]  # fmt: skip
    with names.from_file("run", "no"), pytest.raises(CheckpointError, match="run names the Schedule"):
        names.find(path, KIND)
    assert not made.exists()
