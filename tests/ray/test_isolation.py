"""What processes load. Each runtime is fresh: Ray hands a process that once ran a task on to the next actor."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.helpers.frameworks import needs_tf

pytestmark = pytest.mark.ray
TENSORFLOW = pytest.param("tf", "tensorflow", marks=needs_tf)

PROGRAM = """
import json, sys
import ray
from rlframe.agents.dqn import DQNTrainer

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
config = json.loads(sys.argv[1])
trainer = DQNTrainer({
    "num_workers": 1, "num_cpus_per_worker": 0.5, "min_iter_time_s": 0, "timesteps_per_iteration": 40,
    "learning_starts": 20, "hiddens": [8], "model": {"fcnet_hiddens": [8]}, "log_sys_usage": False, **config,
}, env="CartPole-v1")
trainer.train()
NAMES = ["torch", "tensorflow", "ray.tune", "pandas"]
modules = lambda worker=None: [name for name in NAMES if name in __import__("sys").modules]
remote = ray.get(trainer.workers.remote_workers()[0].apply.remote(modules))
trainer.stop()
print(json.dumps({"driver": modules()[:-2], "worker": remote}))  # the driver's trainer is Tune's Trainable
"""


def loaded(**config: object) -> dict[str, list[str]]:
    """Returns what of the frameworks, and of Tune, driver and remote worker have loaded after an iteration of DQN."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(config)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("framework", "module"),
    [
        pytest.param("torch", "torch", marks=pytest.mark.slow),
        pytest.param("tf", "tensorflow", marks=[needs_tf, pytest.mark.slow], id="tf-tensorflow"),
    ],
)
def test_remote_workers_on_built_in_models_load_no_framework(framework, module):
    assert loaded(framework=framework) == {"driver": [module], "worker": []}


@pytest.mark.slow
@needs_tf
def test_sampling_through_the_framework_loads_it_alone():
    found = loaded(framework="tf", sample_in_numpy=False)
    assert found["driver"] == ["tensorflow"]
    assert "tensorflow" in found["worker"]
    assert "torch" not in found["worker"]
