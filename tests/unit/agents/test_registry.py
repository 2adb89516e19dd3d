"""Algorithms by name, in this package and in Ray Tune."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from types import ModuleType

import pytest

from rlframe.agents import registry
from rlframe.agents.registry import (
    ALGORITHMS,
    RLLIB_ALGORITHMS,
    AlgorithmEntry,
    get_agent_class,
    get_trainer_class,
)
from rlframe.trainer.tune_registry import TrainableName
from rlframe.utils import deprecation
from rlframe.utils.errors import ConfigError


class FakeTrainer:
    """Stands for an algorithm's trainer."""


@pytest.fixture
def fake(monkeypatch):
    module = ModuleType("fake_algorithm")
    module.FakeTrainer = FakeTrainer
    module.CONFIG = {"lr": 1.0}
    monkeypatch.setitem(sys.modules, "fake_algorithm", module)
    entry = AlgorithmEntry("fake_algorithm:FakeTrainer", "fake_algorithm:CONFIG")
    monkeypatch.setitem(registry.ALGORITHMS, "FAKE", entry)


@pytest.mark.usefixtures("fake")
def test_get_trainer_class_gives_the_class_and_on_request_the_config():
    assert get_trainer_class("FAKE") is FakeTrainer
    assert get_trainer_class("FAKE", return_config=True) == (FakeTrainer, {"lr": 1.0})
    assert ALGORITHMS["FAKE"]() == (FakeTrainer, {"lr": 1.0})


@pytest.mark.usefixtures("fake")
def test_get_agent_class_works_and_says_it_is_old(caplog, monkeypatch):
    monkeypatch.setattr(deprecation, "_said", set())
    with caplog.at_level(logging.WARNING, logger="rlframe"):
        assert get_agent_class("FAKE") is FakeTrainer
    assert "get_trainer_class" in caplog.text


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_no_clock_ends_the_iterations_of_algorithms_that_sample_synchronously(name):
    chosen = name in ("A2C", "A3C", "APEX", "APEX_DDPG", "APPO", "IMPALA")  # see StandardMetricsReporting
    assert ALGORITHMS[name]()[1]["min_iter_time_s"] == (None if chosen else 0)


@pytest.mark.parametrize("name", sorted(RLLIB_ALGORITHMS - set(ALGORITHMS)))
def test_names_of_rllib_that_are_missing_say_so_and_what_there_is(name):
    available = ", ".join(sorted(ALGORITHMS))
    with pytest.raises(ConfigError, match=f"^{name} exists in RLlib 1.x, but is not in rlframe yet; use .*{available}"):
        get_trainer_class(name)


@pytest.mark.parametrize("name", ["LinUCB", "linucb"])
def test_contributed_names_are_told_their_prefix(name):
    with pytest.raises(ValueError, match="contrib/LinUCB"):
        get_trainer_class(name)


@pytest.mark.parametrize(("typed", "name"), [("alphastar", "AlphaStar"), ("crr", "CRR")])
def test_names_that_are_missing_are_answered_in_any_spelling(typed, name):
    with pytest.raises(ConfigError, match=f"^{name} exists in RLlib 1.x, but is not in rlframe yet; use "):
        get_trainer_class(typed)


def test_names_near_one_that_is_missing_are_not_sent_there_and_back():
    with pytest.raises(ConfigError, match=r"^Unknown algorithm alphastat\. AlphaStar exists in RLlib 1"):
        get_trainer_class("alphastat")


def test_names_of_other_libraries_are_answered_with_what_serves_the_purpose():
    with pytest.raises(ConfigError, match=r"^ACKTR is in neither RLlib 1.x nor rlframe; use A2C"):
        get_trainer_class("acktr")


@pytest.mark.parametrize(
    ("typo", "wanted"),
    [("DNQ", "DQN"), ("dqn", "DQN"), ("Apex-DDPG", "APEX_DDPG"), ("Simpleq", "SimpleQ"), ("ppo", "PPO")],
)
def test_unknown_names_are_answered_with_the_nearest(typo, wanted):
    with pytest.raises(ValueError, match=rf"Unknown algorithm {typo}\. Did you mean .*{wanted}"):
        get_trainer_class(typo)


def test_a_name_like_no_other_lists_what_there_is():
    available = ", ".join(sorted(ALGORITHMS))
    with pytest.raises(ValueError, match=rf"Unknown algorithm zzzzzz\. Available are {available}"):
        get_trainer_class("zzzzzz")


@pytest.mark.usefixtures("fake")
def test_a_trainable_name_unpickles_to_the_class():
    assert pickle.loads(pickle.dumps(TrainableName("FAKE", get_trainer_class))) is FakeTrainer


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


SHOW = """
import sys
from ray.tune.registry import _global_registry, TRAINABLE_CLASS
sys.stdout.write(str(_global_registry.contains(TRAINABLE_CLASS, "DQN")))
"""


@pytest.mark.slow  # each in a process that starts Ray; the two programs below are two orders more
@pytest.mark.ray
@pytest.mark.parametrize(
    "imports",
    [
        "from ray import tune; import rlframe.utils",
        "import rlframe, ray; assert ray.tune.run and not hasattr(ray, 'nothing')",
        "import rlframe.utils; from ray import tune",
        "import rlframe; import ray; from ray.tune.registry import register_env",
        "import ray, rlframe; assert ray.tune.run and not hasattr(ray, 'nothing')",
        "from rlframe import tune; assert tune.run and tune.grid_search and tune.choice",
    ],
)
def test_names_are_in_tunes_registry_whatever_is_imported_first(imports):
    assert run(imports + SHOW) == "True"


@pytest.mark.ray
def test_with_tune_first_names_are_registered_and_one_the_program_registered_itself_is_left_alone():
    code = """
import sys
from ray import tune
class Mine(tune.Trainable):
    pass
tune.register_trainable("DQN", Mine)
import rlframe.utils
from ray.tune.registry import _global_registry, get_trainable_cls, TRAINABLE_CLASS
assert _global_registry.contains(TRAINABLE_CLASS, "PPO")
sys.stdout.write(get_trainable_cls("DQN").__name__)
"""
    assert run(code) == "Mine"


@pytest.mark.ray
def test_with_rlframe_first_names_resolve_without_a_runtime_and_the_watch_leaves_no_trace_where_it_waited():
    code = """
import sys, types
import rlframe
def watched():
    return {f.name for f in sys.meta_path if type(f).__name__ == "_Watch"}
assert watched() >= {"ray", "ray.tune.registry"}
import ray
assert ray.tune.run and not hasattr(ray, "nothing")
assert not watched() & {"ray", "ray.tune.registry"}
import inspect
import ray.tune.registry as registry_of_tune
assert "def register_trainable" in inspect.getsource(registry_of_tune)
assert "exec_module" not in vars(registry_of_tune.__spec__.loader)

from rlframe.agents import registry
from ray import tune
from ray._private import worker

class Toy(tune.Trainable):
    pass

module = types.ModuleType("toy_algorithm")
module.Toy, module.CONFIG = Toy, {}
sys.modules["toy_algorithm"] = module
registry.ALGORITHMS["DQN"] = registry.AlgorithmEntry("toy_algorithm:Toy", "toy_algorithm:CONFIG")
assert registry_of_tune.get_trainable_cls("DQN") is Toy
assert worker._post_init_hooks.count(registry.register_trainables) == 1
try:
    registry_of_tune.get_trainable_cls("AlphaStar")
except ValueError as error:
    sys.stdout.write(str(error))
"""
    assert run(code).startswith("AlphaStar exists in RLlib 1.x, but is not in rlframe yet; use PPO")


@pytest.mark.slow
@pytest.mark.ray
def test_tune_run_by_name_runs_this_packages_trainer_and_answers_for_missing_ones(tmp_path):
    code = f"""
import sys, types
from ray import tune
import rlframe
from rlframe.agents import registry
import ray

class Toy(tune.Trainable):
    def step(self):
        return {{"done": True, "score": 42}}

module = types.ModuleType("toy_algorithm")
module.Toy, module.CONFIG = Toy, {{}}
sys.modules["toy_algorithm"] = module
registry.ALGORITHMS["DQN"] = registry.AlgorithmEntry("toy_algorithm:Toy", "toy_algorithm:CONFIG")

for _ in range(2):  # a second runtime knows the names as well
    ray.init(num_cpus=1, include_dashboard=False)
    analysis = tune.run("DQN", storage_path={str(tmp_path)!r}, verbose=0, resources_per_trial={{"cpu": 1}})
    assert analysis.trials[0].last_result["score"] == 42
    try:
        tune.run("AlphaStar", storage_path={str(tmp_path)!r}, verbose=0)
    except ValueError as error:
        message = str(error)
    ray.shutdown()
sys.stdout.write("\\n" + message)
"""
    assert run(code).startswith("AlphaStar exists in RLlib 1.x, but is not in rlframe yet; use PPO")
