"""What holds for the whole code: no unread key, frameworks where they belong, policies that resolve."""

import ast
import functools
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "rlframe"
FILES = sorted(path for path in ROOT.rglob("*.py"))


@functools.cache
def imported(path):
    """Returns the top-level names that a file imports, at any depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def below(path, *folders):
    return path.relative_to(ROOT).parts[0] in folders


def test_torch_is_imported_only_where_the_name_says_so():
    for path in FILES:
        if "torch" not in path.stem and "torch" not in path.relative_to(ROOT).parts:
            assert "torch" not in imported(path), path


def test_tensorflow_is_imported_only_where_the_name_says_so():
    for path in FILES:
        if not {"tf", "quiet_tf"} & {*path.relative_to(ROOT).parts, path.stem} and "_tf" not in path.stem:
            assert "tensorflow" not in imported(path), path


def test_ray_is_imported_only_in_upper_layers():
    for path in FILES:
        allowed = below(path, "execution", "evaluation", "trainer", "tune", "cli", "deploy")
        # GPURequiringEnv asks Ray for GPUs, CartPoleWithRemoteParamServer an actor; RNNSpyModel fills Ray's store.
        examples = ("toy_envs.py", "with_processes.py", "rnn_spy_tf.py")
        if not (allowed or path.name == "_tune_names.py" or path.name in examples):
            assert "ray" not in imported(path), path


def test_gym_is_never_imported():
    for path in FILES:
        assert "gym" not in imported(path), path


def test_no_pickle_on_any_path():
    for path in FILES:
        if path.name in ("rollout_script.py", "rnn_spy_tf.py"):  # write what programs of RLlib's read, and read none
            text = path.read_text()
            assert "pickle.load" not in text
            assert "Unpickler" not in text
            continue
        assert not {"pickle", "cloudpickle", "dill", "joblib"} & imported(path), path


#: Keys that no code reads by name, each with its reason.
EXPLAINED = {
    "exploration_config.": "arguments of the exploration classes, passed on as keywords",
    "eager_tracing": "the learner step is traced whatever it says",
    "_tf_policy_handles_more_than_one_loss": "TensorFlow's policies handle several whatever it says",
    "simple_optimizer": "both operators give the same result on one device, and several are refused",
}


@functools.cache
def words_read():
    """Returns the words in quotes, behind dots and behind parentheses, outside the config's declarations."""
    code = "\n".join(path.read_text() for path in FILES if not below(path, "config"))
    return {quoted or word for quoted, word in re.findall(r"[\"'](\w+)(?=[\"'])|[.(](\w+)", code)}


@pytest.mark.parametrize(
    "name",
    [
        "A2C",
        "A3C",
        "ACER",
        "APPO",
        "CQL",
        "DDPG",
        "DQN",
        "DREAMER",
        "IMPALA",
        "IQL",
        "MADDPG",
        "MAML",
        "MBMPO",
        "PG",
        "PPO",
        "QMIX",
        "R2D2",
        "RNNSAC",
        "SAC",
        "SlateQ",
        "TD3",
        "TD3BC",
        "TRPO",
    ],
)
def test_every_honoured_config_key_is_read_somewhere(name):
    from rlframe.agents.registry import get_trainer_class
    from rlframe.config.common import honoured_keys

    words = words_read()
    unread = [
        key for key in honoured_keys(get_trainer_class(name)._config_class) if key.rpartition(".")[2] not in words
    ]
    assert [key for key in unread if not key.startswith(tuple(EXPLAINED))] == []


def test_every_policy_path_resolves():
    from rlframe.agents.registry import ALGORITHMS, get_trainer_class
    from rlframe.trainer.setup import import_path

    for name in ALGORITHMS:
        for framework, path in get_trainer_class(name)._arguments["policies"].items():
            if framework == "tf" and importlib.util.find_spec("tensorflow") is None:
                continue
            assert import_path(path).__name__ in path


@pytest.mark.parametrize(
    "module", ["rlframe", "rlframe.config", "rlframe.data", "rlframe.env", "rlframe.evaluation.sampling.single_agent"]
)
def test_framework_free_modules_load_no_framework(module):
    code = f"import sys, {module}; print([m for m in ('torch', 'tensorflow', 'ray') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_import_rlframe_is_light():
    code = "import sys; before = set(sys.modules); import rlframe; print(len(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60


@pytest.mark.parametrize("path", sorted((ROOT / "agents").glob("*/*.py")), ids=lambda path: path.stem)
def test_execution_plans_are_short(path):
    tree = ast.parse(path.read_text())
    for plan in (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "execution_plan"):
        statements = [node for node in plan.body[1:] for node in ast.walk(node) if isinstance(node, ast.Call)]
        assert len(plan.body) - 1 <= 15
        assert len(statements) <= 25, "a plan is a handful of operators"


def test_every_primitive_of_losses_is_used():
    names = [node.name for node in ast.parse((ROOT / "tensor" / "ops.py").read_text()).body if hasattr(node, "name")]
    code = "\n".join(path.read_text() for path in FILES if not below(path, "tensor"))
    primitives = [name for name in names if not name.startswith("_")]
    assert [name for name in primitives if not re.search(rf"\bops\.{name}\b", code)] == []
    assert len(primitives) <= 52


def test_class_variables_say_what_they_are():
    """Pydantic cannot read a bare `ClassVar` of a config under Python 3.10, where no algorithm could be imported."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AnnAssign):
                assert ast.unparse(node.annotation) != "ClassVar", (path, node.lineno)
