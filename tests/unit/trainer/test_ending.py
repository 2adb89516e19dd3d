"""The end of a trainer, wherever it stands: all its parts end, whatever one of them raises."""

import concurrent.futures
import signal
import threading

import numpy as np
import pytest

from rlframe.agents.pg import PGTorchPolicy, PGTrainer
from rlframe.utils.errors import ConfigError
from tests.helpers.envs import Bandit

SMALL = {"num_workers": 0, "rollout_fragment_length": 8, "train_batch_size": 8, "min_iter_time_s": 0}


@pytest.fixture
def closed(monkeypatch):
    """Notes the environments that are closed."""
    noted = []
    monkeypatch.setattr(Bandit, "close", lambda env: noted.append(env), raising=False)
    return noted


def test_an_environment_that_cannot_be_closed_keeps_nothing_else_open():
    closes = []

    class Gone(Bandit):
        def close(self):
            closes.append(self)
            raise RuntimeError("the simulator is gone")

    class Logger:
        logdir = None

        def __init__(self):
            self.is_open = True

        def flush(self):
            pass

        def close(self):
            self.is_open = False

    logger = Logger()
    config = {**SMALL, "num_envs_per_worker": 2, "evaluation_interval": 1, "evaluation_num_episodes": 1}
    trainer = PGTrainer(config, env=Gone, logger_creator=lambda _: logger)
    with pytest.raises(RuntimeError, match="the simulator is gone"):
        trainer.stop()
    assert len(closes) == 4  # two to train, two to evaluate
    assert not logger.is_open


def test_what_a_trainer_began_ends_where_it_cannot_be_made(closed):
    """A notebook keeps the last exception, and with it workers that would hold the cluster's CPUs."""

    def plan(workers, config):
        raise KeyError("a mistake in the plan")

    with pytest.raises(KeyError, match="a mistake in the plan"):
        PGTrainer.with_updates(name="Mine", execution_plan=plan)(SMALL, env=Bandit)
    assert len(closed) == 1


def test_environments_of_policies_that_cannot_be_made_are_closed(closed):
    class Broken(PGTorchPolicy):
        def __init__(self, *args):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        PGTrainer.with_updates(name="Mine", default_policy=Broken)(SMALL, env=Bandit)
    assert len(closed) == 1


def test_what_fails_while_a_trainer_that_cannot_be_made_is_ended_hides_nothing(monkeypatch, caplog):
    def close(env):
        raise RuntimeError("no end")

    def after_init(trainer):
        raise np.linalg.LinAlgError("the cause")

    monkeypatch.setattr(Bandit, "close", close, raising=False)
    with pytest.raises(np.linalg.LinAlgError, match="the cause"):
        PGTrainer.with_updates(name="Mine", after_init=after_init)(SMALL, env=Bandit)
    assert "could not be ended: RuntimeError: no end" in caplog.text


def test_ctrl_c_ends_training_and_the_evaluation_beside_it(monkeypatch):
    """Both would go on in their threads, beside whatever the program does next, and keep it from ending."""
    waits, once = threading.Event(), threading.Lock()

    def wait(futures):
        waits.set()
        return concurrent.futures.wait(futures)

    class Interrupting(Bandit):
        def step(self, action):
            if waits.is_set() and once.acquire(blocking=False):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return super().step(action)

    many = 100_000
    beside = {"evaluation_interval": 1, "evaluation_num_episodes": many, "evaluation_parallel_to_training": True}
    trainer = PGTrainer({**SMALL, **beside, "train_batch_size": many}, env=Interrupting)
    monkeypatch.setattr("rlframe.trainer.trainer.wait", wait)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
    trainer.config["evaluation_num_episodes"] = 3
    assert trainer.evaluate()["evaluation"]["episodes_this_iter"] == 3
    trainer.stop()


def test_a_trainer_may_be_stopped_twice(closed):
    trainer = PGTrainer(SMALL, env=Bandit)
    trainer.train()
    trainer.stop()
    trainer.stop()
    assert len(set(map(id, closed))) == 1


def test_a_trainer_that_was_stopped_says_so_before_anything_is_sampled():
    trainer = PGTrainer(SMALL, env=Bandit)
    trainer.train()
    trainer.stop()
    steps = trainer.get_policy().global_timestep
    with pytest.raises(ConfigError, match="was stopped"):
        trainer.train()
    assert trainer.get_policy().global_timestep == steps
