"""A run killed at any instant goes on as if it had not been: the same weights, bit for bit."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.fault

PROGRAM = """
import sys, json
from pathlib import Path
import numpy as np
from rlframe.agents.dqn import DQNTrainer
from rlframe.utils.errors import CheckpointError

directory, goal = Path(sys.argv[1]), int(sys.argv[2])
config = {"seed": 4, "min_iter_time_s": 0, "timesteps_per_iteration": 100, "learning_starts": 100,
          "hiddens": [32], "model": {"fcnet_hiddens": [32]}, "n_step": 3, "noisy": True, "log_sys_usage": False,
          "logger_config": {"logdir": str(directory / "logs")}}
trainer = DQNTrainer(config, env="CartPole-v1")
checkpoints = sorted((directory / "checkpoints").glob("checkpoint_*"))
if checkpoints:
    trainer.restore(str(checkpoints[-1]))
print("ready", trainer.iteration, flush=True)
while trainer.iteration < goal:
    trainer.train()
    trainer.save(str(directory / "checkpoints"))
np.savez(directory / "weights.npz", **trainer.get_weights()["default_policy"])
"""


def start(directory: Path, goal: int) -> subprocess.Popen:
    directory.mkdir(exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory), str(goal)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_killed_and_resumed_run_has_the_weights_of_an_unbroken_one(tmp_path):
    goal = 15
    unbroken = start(tmp_path / "unbroken", goal)
    broken = tmp_path / "broken"
    process = start(broken, goal)
    process.stdout.readline()
    # Training and saving take turns from here on: a random moment falls into either.
    time.sleep(random.uniform(0.1, 0.4))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    last = start(broken, goal)
    resumed_from = int(last.stdout.readline().split()[1])
    assert resumed_from < goal, "the kill did not fall into the run"
    last.communicate(timeout=300)
    unbroken.communicate(timeout=300)
    assert last.returncode == unbroken.returncode == 0
    one, two = np.load(tmp_path / "unbroken" / "weights.npz"), np.load(broken / "weights.npz")
    assert set(one) == set(two)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=f"{name}; resumed from {resumed_from}")
