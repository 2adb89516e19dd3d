"""What of a traceback out of `train()` is shown: where it happened, not how a plan hands items on."""

import traceback
from pathlib import Path

import pytest

from rlframe.agents.pg import PGTrainer
from rlframe.utils.errors import EnvError
from tests.helpers.envs import Failing

MACHINERY = {"nodes.py", "trainable.py"}


def raised(**config):
    """Returns the file names and functions of the frames of an environment's fault, and of its cause."""
    trainer = PGTrainer({"num_workers": 0, "env_config": {"fail_at": 3}, **config}, env=Failing)
    with pytest.raises(EnvError) as caught:
        trainer.train()
    trainer.stop()
    chain = (caught.value, caught.value.__cause__)
    return [[(Path(f.filename).name, f.name) for f in traceback.extract_tb(error.__traceback__)] for error in chain]


def test_frames_of_the_plan_are_left_out_and_those_of_users_and_causes_are_not():
    frames, cause = raised()
    assert ("trainer.py", "train") in frames
    assert ("trainer.py", "step_attempt") not in frames
    assert ("rollout_worker.py", "sample") in frames
    assert not MACHINERY & {name for name, _ in frames}
    assert frames[-1] == ("rollout.py", "fail")
    assert cause[-1] == ("envs.py", "step")
    assert len(frames) < 15


def test_log_level_debug_keeps_them_all():
    frames, _ = raised(log_level="DEBUG")
    assert {name for name, _ in frames} >= MACHINERY


def test_an_error_of_the_plan_itself_keeps_its_last_frame():
    trainer = PGTrainer({"num_workers": 0, "train_batch_size": 20}, env="CartPole-v1")

    def stop(_):
        raise StopIteration

    trainer.train_exec_impl = trainer.train_exec_impl.for_each(stop)
    with pytest.raises(RuntimeError, match="raised StopIteration") as caught:
        trainer.train()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert Path(frames[-1].filename).name == "nodes.py"
    assert traceback.extract_tb(caught.value.__cause__.__traceback__)[-1].name == "stop"
