"""What is on the screen beside results."""

import logging

import pytest

from rlframe.agents.pg import PGTrainer
from rlframe.utils.logs import set_log_level, silence_tune

LOGGER = logging.getLogger("rlframe")


@pytest.fixture(autouse=True)
def _quiet_again():
    yield
    set_log_level("WARN")


def bare(monkeypatch):
    """Returns the logger as in a program that has set up no logs; within the test, for pytest adds its own before."""
    monkeypatch.setattr(LOGGER, "propagate", False)
    monkeypatch.setattr(LOGGER, "handlers", [])
    return LOGGER


@pytest.mark.parametrize(("level", "shown"), [("DEBUG", ["one", "two"]), ("INFO", ["two"]), ("WARN", [])])
def test_the_level_decides_what_is_shown(monkeypatch, level, shown, capsys):
    logger = bare(monkeypatch)
    set_log_level(level)
    set_log_level(level)  # as a second trainer does
    logger.debug("one")
    logger.info("two")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[-1] for line in lines] == shown
    assert all("rlframe" in line for line in lines)


def test_a_program_that_shows_logs_itself_gets_them_once(monkeypatch):
    logger, own = bare(monkeypatch), logging.NullHandler()
    logger.addHandler(own)
    set_log_level("INFO")
    assert logger.handlers == [own]


@pytest.mark.parametrize(
    ("name", "text", "passes"),
    [
        ("ray.tune.utils.util", "Install gputil for GPU system monitoring.", False),
        ("ray.tune.trainable.trainable", "Trainable.setup took 10.2 seconds. If your trainable is slow", False),
        ("ray.tune.trainable.trainable", "Restored on 10.0.0.1 from checkpoint", True),
    ],
)
def test_tunes_advice_to_its_own_users_is_not_shown(name, text, passes):
    silence_tune()
    record = logging.LogRecord(name, logging.WARNING, __file__, 1, text, None, None)
    assert bool(logging.getLogger(name).filter(record)) is passes


def test_what_is_not_by_default_is_said_of_a_whole_config_too(caplog):
    config = PGTrainer.get_default_config()
    config.update(num_workers=0, log_level="INFO", lr=0.25)
    config["model"]["fcnet_hiddens"] = [8]
    with caplog.at_level(logging.INFO, "rlframe"):
        PGTrainer(config, env="CartPole-v1")
    said = next(text for text in caplog.messages if text.startswith("not by default"))
    assert said == "not by default: {'lr': 0.25, 'model': {'fcnet_hiddens': [8]}, 'log_level': 'INFO'}"
