"""What an import brings with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rlframe

HEAVY = ("torch", "tensorflow", "ray", "numpy", "gymnasium", "gym", "pydantic", "pandas", "scipy")
NO_FRAMEWORK = ("torch", "tensorflow", "ray", "gym")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def loaded(code: str, names: tuple[str, ...]) -> str:
    return run(f"{code}\nimport sys\nsys.stdout.write(' '.join(n for n in {names!r} if n in sys.modules))")


def test_import_rlframe_loads_nothing_heavy():
    assert loaded("import rlframe", HEAVY) == ""


def test_import_rlframe_loads_few_modules():
    count = run(
        "import importlib, sys, typing\nbefore = set(sys.modules)\nimport rlframe\n"
        "sys.stdout.write(' '.join(sorted(set(sys.modules) - before)))"
    )
    assert len(count.split()) < 20, count


@pytest.mark.parametrize(
    "code",
    [
        "import rlframe.exploration",
        "import rlframe.utils.exploration",
        "import rlframe.utils.schedules, rlframe.utils.numpy, rlframe.utils.framework, rlframe.utils.test_utils",
        "from rlframe.utils import merge_dicts, override, PublicAPI, check",
        "from rlframe.utils.framework import try_import_tf; try_import_tf()",
        "from rlframe.exploration import make_exploration; import gymnasium\n"
        "make_exploration({'type': 'ParameterNoise'}, gymnasium.spaces.Discrete(2))",
    ],
)
def test_what_acts_without_a_framework_loads_none(code):
    assert loaded(code, NO_FRAMEWORK) == ""


@pytest.mark.slow
def test_first_learner_steps_import_nothing_of_torch_compile():
    small = {
        "model": {"fcnet_hiddens": [8]},
        "rollout_fragment_length": 20,
        "log_sys_usage": False,
        "min_iter_time_s": 0,
    }
    dqn = {**small, "learning_starts": 20, "timesteps_per_iteration": 40}
    ppo = {**small, "num_workers": 0, "train_batch_size": 40, "sgd_minibatch_size": 20}
    code = (
        "from rlframe import DQNTrainer, PPOTrainer\n"
        f"DQNTrainer({dqn!r}, env='CartPole-v1').train(), PPOTrainer({ppo!r}, env='CartPole-v1').train()"
    )
    assert loaded(code, ("torch._dynamo", "torch._inductor", "sympy")) == ""


def test_version_is_a_string():
    assert rlframe.__version__ == "0.1.0"


def test_top_level_names_are_those_that_can_be_had():
    assert set(rlframe.__all__) <= set(dir(rlframe))
    assert rlframe.MultiAgentEnv.__name__ == "MultiAgentEnv"
    assert rlframe.BaseEnv is sys.modules["rlframe.env.base_env"].BaseEnv
    with pytest.raises(AttributeError, match="no_such_name"):
        rlframe.no_such_name  # noqa: B018
