"""From a name, class or function to an environment."""

from __future__ import annotations

import functools
import importlib
import re
import subprocess
import sys

import cloudpickle
import gymnasium
import pytest
from gymnasium.envs import registration
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from rlframe.env import EnvContext, register_env, registry
from rlframe.env.registry import resolve_env
from rlframe.utils import names, shared_names
from rlframe.utils.errors import CheckpointError, EnvError


class Plain:
    """Takes a config, as RLlib's environments do."""

    def __init__(self, config=None):
        self.config = config

    def reset(self):
        raise NotImplementedError

    def step(self, action):
        raise NotImplementedError


class KeywordOnly:
    """Takes the keys of env_config by name."""

    def __init__(self, *, size=1):
        self.size = size


class Bare(gymnasium.Env):
    """Has no constructor."""


@pytest.fixture(autouse=True)
def _clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_creators", {})
    # Tune's registry keeps what it is told, for all tests of this process.
    importlib.import_module("rlframe.evaluation.rollout_worker")  # connects the two when it is first imported
    monkeypatch.setattr(shared_names, "_publish", None)
    monkeypatch.setattr(shared_names, "_look_up", None)
    monkeypatch.setattr(shared_names, "_told", {})


def build(env, config=None, **place):
    return resolve_env(env)[1](EnvContext(config, **place))


def test_gymnasium_id_gives_env_with_config_as_keywords_and_no_checker():
    name, creator = resolve_env("CartPole-v1")
    env = creator(EnvContext({"sutton_barto_reward": True, "max_episode_steps": 7}))
    assert name == "CartPole-v1"
    assert env.unwrapped._sutton_barto_reward is True
    assert env.spec.max_episode_steps == 7
    assert "PassiveEnvChecker" not in str(env)


def test_gymnasium_id_without_version_gives_latest():
    assert build("CartPole").spec.id == "CartPole-v1"


def test_gymnasium_id_registered_here_works_where_it_is_not_registered():
    gymnasium.register("OnlyHere-v0", CartPoleEnv)
    try:
        _, creator = resolve_env("OnlyHere-v0")
        shipped = cloudpickle.dumps(creator)
    finally:
        del registration.registry["OnlyHere-v0"]
    assert isinstance(cloudpickle.loads(shipped)(EnvContext()).unwrapped, CartPoleEnv)


def test_gymnasium_id_with_module_imports_it():
    assert isinstance(build("gymnasium.envs:CartPole-v1").unwrapped, CartPoleEnv)


def test_registered_name_overrules_gymnasium():
    register_env("CartPole-v1", lambda config: Plain(config))
    env = build("CartPole-v1", {"a": 1}, worker_index=3)
    assert env.config == {"a": 1}
    assert isinstance(env.config, EnvContext)
    assert env.config.worker_index == 3


def test_lookup_finds_names_registered_elsewhere():
    asked = []
    name, creator = resolve_env("tuned", lambda n: asked.append(n) or Plain)
    assert (name, asked) == ("tuned", ["tuned"])
    assert creator(EnvContext({"a": 1})).config == {"a": 1}
    assert isinstance(resolve_env("CartPole-v1", lambda _: None)[1](EnvContext()).unwrapped, CartPoleEnv)


@pytest.mark.parametrize("separator", [".", ":"])
def test_class_path_is_imported(separator):
    path = f"{Plain.__module__}{separator}Plain"
    assert resolve_env(path)[0] == path
    assert build(path, {"a": 1}).config == {"a": 1}


def test_a_name_that_a_module_of_rllibs_registered_needs_no_import(monkeypatch):
    monkeypatch.setattr(registry, "_creators", {})
    name, creator = resolve_env("RecSim-v1")
    assert (name, creator(EnvContext({"num_candidates": 3})).config["num_candidates"]) == ("RecSim-v1", 3)


def test_class_path_with_an_argument_for_each_key_gets_them_by_name():
    assert build(f"{__name__}.Plain", {"config": {"a": 1}}).config == {"a": 1}
    assert build(Plain, {"config": {"a": 1}}).config == {"config": {"a": 1}}


MY_FILE = """
from dataclasses import dataclass

from beside import LENGTH


@dataclass
class Env:
    config: "dict[str, int]"

    def reset(self):
        return LENGTH

    def step(self, action):
        raise NotImplementedError
"""


@pytest.fixture
def my_file(tmp_path, monkeypatch):
    (tmp_path / "case.py").write_text(MY_FILE)
    (tmp_path / "beside.py").write_text("LENGTH = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.mark.parametrize("path", ["case.py:Env", "./case.py:Env", "../{folder}/case.py:Env", "{absolute}/case.py:Env"])
def test_class_in_a_file_is_found(my_file, path):
    path = path.format(folder=my_file.name, absolute=my_file)
    assert resolve_env(path)[0] == path
    assert build(path, {"a": 1}).config == {"a": 1}
    assert build(path).reset() == 3


def test_class_in_a_file_travels_to_processes_without_it(my_file):
    shipped = cloudpickle.dumps(resolve_env("case.py:Env")[1])
    (my_file / "case.py").unlink()
    code = (
        "import sys, cloudpickle\nfrom rlframe.env import EnvContext\n"
        "assert cloudpickle.load(sys.stdin.buffer)(EnvContext({'a': 2})).config == {'a': 2}"
    )
    subprocess.run([sys.executable, "-c", code], input=shipped, check=True)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("none.py:Env", "there is no file 'none.py'"),
        ("case.py:Envy", "case.py has no 'Envy'"),
        ("case.py:LENGTH", "of type int; wanted the name of a class with"),
        ("broken.py:Env", "importing 'broken.py' failed: ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(my_file, path, says):
    (my_file / "broken.py").write_text("1 / 0\n")
    with pytest.raises(EnvError, match=says):
        resolve_env(path)


@pytest.mark.parametrize(
    ("env", "name"),
    [(Plain, "Plain"), (lambda config: Plain(config), "lambda"), (functools.partial(Plain), "partial")],
)
def test_class_or_function_gets_context(env, name):
    assert resolve_env(env)[0] == name
    context = build(env, {"a": 1}, vector_index=2).config
    assert (context, context.vector_index) == ({"a": 1}, 2)


def test_function_with_any_arguments_gets_context():
    assert build(lambda *args: Plain(*args), {"a": 1}).config == {"a": 1}


def test_class_without_positional_argument_gets_keywords():
    assert build(KeywordOnly, {"size": 4}).size == 4
    assert build(KeywordOnly).size == 1
    assert build(lambda **kwargs: kwargs, {"b": 2}) == {"b": 2}


def test_gymnasium_style_class_gets_keywords_not_a_context():
    env = build(CartPoleEnv)  # its first argument is a bool, its second render_mode
    assert env._sutton_barto_reward is False
    assert build(CartPoleEnv, {"sutton_barto_reward": True})._sutton_barto_reward is True

    def grid(render_mode=None, size=5):
        return render_mode, size

    assert build(grid, {"size": 6}) == (None, 6)


def test_class_or_function_without_arguments_is_called_without():
    assert isinstance(build(Bare), Bare)
    assert isinstance(build(lambda: Plain()), Plain)


def test_config_that_nobody_takes_raises():
    with pytest.raises(EnvError, match=r"'size'.*unexpected keyword argument"):
        build(Bare, {"size": 4})
    with pytest.raises(EnvError, match=r"KeywordOnly\(\*, size=1\).*'sise'"):
        build(KeywordOnly, {"sise": 4})
    with pytest.raises(EnvError, match=r"CartPole-v1.*'foo'"):
        build("CartPole-v1", {"foo": 4})


def test_error_inside_creator_is_the_users_own():
    def broken(config):
        return config["missing"]

    with pytest.raises(KeyError, match="missing"):
        build(broken)


def test_unknown_name_raises_with_nearest_and_what_was_tried():
    register_env("my_maze", Plain)
    with pytest.raises(EnvError, match=r"Unknown environment 'my_mase'.\nNearest known: my_maze.*(.|\n)*register_env"):
        resolve_env("my_mase")
    with pytest.raises(EnvError, match=r"Nearest known: CartPole-v1(.|\n)*versioned environments"):
        resolve_env("CartPole-v9")
    with pytest.raises(EnvError, match=r"Nearest known: CartPole-v1"):
        resolve_env("cartpole-v1")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_package.module.Env", "no module 'no_such_package'"),
        ("gymnasium.NoSuchEnv", "has no 'NoSuchEnv'"),
        ("gymnasium.logger.min_level", r"of type int; wanted the name of a class with reset\(\) and step\(\)"),
        ("no_such_package:Env-v0", "module 'no_such_package' cannot be imported"),
        ("two words", "Malformed"),
        ("Nonsense/Thing-v0", "Namespace Nonsense not found"),
    ],
)
def test_unknown_name_says_why_each_way_failed(name, says):
    with pytest.raises(EnvError, match=says):
        resolve_env(name)


@pytest.mark.parametrize("name", ["subprocess.Popen", "os:system", "shutil.rmtree", "threading.Thread"])
def test_what_is_no_environment_is_never_called(name):
    with pytest.raises(EnvError, match=r"wanted the name of a class with reset\(\)"):
        resolve_env(name)


@pytest.mark.parametrize(
    "name", ["no_such:Env-v0", "tests.helpers.envs:Counting", "x/y.py:Env", "GymV26Environment-v0"]
)
def test_what_a_file_names_is_not_imported(name):
    with names.from_file("the run", "Do this"), pytest.raises(CheckpointError, match=r"the run names .*Do this"):
        resolve_env(name)
    with names.from_file("the run", "Do this"):
        resolve_env("CartPole-v1")
        resolve_env("rlframe.examples.env.repeat_after_me_env:RepeatAfterMeEnv")


def test_import_error_inside_users_module_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "half_broken_module.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EnvError, match=r"'half_broken_module' failed.*no_such_dependency"):
        resolve_env("half_broken_module.Env")


@pytest.mark.parametrize("name", ["ALE/Nothing-v5", "NothingNoFrameskip-v4"])
def test_atari_name_unknown_says_what_to_install(name):
    with pytest.raises(EnvError, match=r"pip install \"rlframe\[atari\]"):
        resolve_env(name)


@pytest.mark.parametrize(
    ("says", "extra"),
    [
        ("Box2D is not installed", "rlframe[box2d]"),
        ("MuJoCo is not installed", "rlframe[mujoco]"),
        ("pygame is not installed", "rlframe[video]"),
    ],
)
def test_missing_dependency_says_what_to_install(says, extra):
    def needs_more():
        raise gymnasium.error.DependencyNotInstalled(says)

    gymnasium.register("NeedsMore-v0", needs_more)
    try:
        with pytest.raises(EnvError, match=rf"NeedsMore-v0.*{says}.*{re.escape(extra)}"):
            build("NeedsMore-v0")
    finally:
        del registration.registry["NeedsMore-v0"]


def test_instance_none_and_numbers_are_refused():
    with pytest.raises(EnvError, match="Give the class"):
        resolve_env(CartPoleEnv())
    for wrong in (None, 5):
        with pytest.raises(EnvError, match="wanted a Gymnasium id"):
            resolve_env(wrong)


def test_register_env_wrong_arguments_raise():
    with pytest.raises(EnvError, match="wanted a class or a function"):
        register_env("x", "not callable")
    with pytest.raises(EnvError, match="wanted a string"):
        register_env(Plain, Plain)


def test_old_gym_is_not_imported_by_us():
    # Whether gym is there or not, its registry is only read if the program imported it.
    if "gym" not in sys.modules:
        assert registry._old_gym_specs() == {}
    with pytest.raises(EnvError, match="Unknown environment"):
        resolve_env("ThisIsNowhere-v0")
    resolve_env("CartPole-v1")


def test_old_gym_registry_imported_by_the_program_is_used(monkeypatch):
    class OldSpec:
        id = "OldOne-v0"
        entry_point = None

        def make(self, **kwargs):
            return Plain(kwargs)

    class OldRegistration:
        registry = type("Registry", (), {"env_specs": {"OldOne-v0": OldSpec()}})()

    monkeypatch.setitem(sys.modules, "gym.envs.registration", OldRegistration)
    assert build("OldOne-v0", {"a": 1}).config == {"a": 1}
    OldSpec.disable_env_checker = False
    OldRegistration.registry = OldRegistration.registry.env_specs  # gym 0.26: a plain dict
    assert build("OldOne-v0", {"a": 1}).config == {"a": 1, "disable_env_checker": True}


def test_import_of_package_brings_neither_gym_nor_frameworks():
    code = (
        "import sys, rlframe.env.registry, rlframe.models.preprocessors, rlframe.utils.filter; "
        "sys.exit(','.join(sorted({'gym', 'torch', 'tensorflow', 'ray'} & set(sys.modules))) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
