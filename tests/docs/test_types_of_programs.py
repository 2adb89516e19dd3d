"""What an editor sees: the package resolves after `pip install -e .`, and pyright finds nothing in users' programs."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.docs.test_pages import DOCS, PARTS, README, ROOT, blocks

_PROGRAM = """
from rlframe import PPOTrainer
from rlframe.agents.dqn import DQNTrainer

trainer = DQNTrainer({"lr": 1e-3}, env="CartPole-v1")
reveal_type(trainer.get_policy())
reveal_type(trainer.save())
reveal_type(trainer.workers)
reveal_type(trainer.train())
reveal_type(trainer.compute_single_action(0, full_fetch=True))
reveal_type(PPOTrainer.from_checkpoint("runs/ppo"))
DQNTrainer(lr=3)
trainer.train_on()
"""
_KEYS = """
from rlframe.agents.config_dicts import DQNConfigDict, PPOConfigDict
from rlframe.agents.ppo import PPOTrainer

good: PPOConfigDict = {
    "lr": 1, "lambda": 0.95, "framework": "tf2", "model": {"fcnet_hiddens": (64,), "custom_model_config": {"any": 1}},
    "multiagent": {"policies": {"a", "b"}}, "evaluation_config": {"explore": False, "num_sgd_iter": 3},
}
PPOTrainer(good, env="CartPole-v1")
a: PPOConfigDict = {"learning_rate": 1e-3}
b: PPOConfigDict = {"model": {"fcnet_hidens": [64]}}
c: PPOConfigDict = {"evaluation_config": {"double_q": True}}
d: DQNConfigDict = {"framework": "jax"}
e: DQNConfigDict = {"lr": "fast"}
"""
_REVEALED = ["Policy", "str", "WorkerSet", "dict[str, Any]", "tuple[Any, list[Any], dict[str, Any]]", "Trainer"]


def diagnostics(folder):
    """Returns pyright's findings about the programs in a folder, which sees this checkout's package."""
    pytest.importorskip("pyright")
    if shutil.which("node") is None:
        pytest.skip("pyright runs in Node.js, which is not here")
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(folder)],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    return json.loads(done.stdout)["generalDiagnostics"]


@pytest.mark.slow
def test_pyright_finds_nothing_in_the_pages_programs_and_mistakes_in_wrong_ones(tmp_path):
    for page in [README, *(page for page in DOCS if page.name not in PARTS)]:
        for number, block in enumerate(blocks(page, "python")):
            (tmp_path / f"{page.stem}_{number}.py").write_text(block)
    (tmp_path / "wrong.py").write_text(_PROGRAM)
    (tmp_path / "wrong_keys.py").write_text(_KEYS)
    found = [(Path(each["file"]).name, each["severity"], each["message"]) for each in diagnostics(tmp_path)]
    assert [each for each in found if each[0] not in ("wrong.py", "wrong_keys.py")] == []
    keys = [message for file, _, message in found if file == "wrong_keys.py"]
    wrong = ("learning_rate", "fcnet_hidens", "double_q", "jax", "fast")
    assert len(keys) == 5
    assert all(name in message for name, message in zip(wrong, keys, strict=True))
    found = [each for each in found if each[0] == "wrong.py"]
    said = [message for _, severity, message in found if severity == "information"]
    assert [message.split('" is "')[1].rstrip('"') for message in said] == _REVEALED
    errors = [message for _, severity, message in found if severity == "error"]
    assert len(errors) == 2
    assert '"lr"' in errors[0]
    assert '"train_on"' in errors[1]


def test_an_editable_install_writes_a_path_that_editors_follow(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "rlframe").mkdir()
    for name in ("__init__.py", "version.py"):
        shutil.copy(ROOT / "rlframe" / name, tmp_path / "rlframe")
    build = "from setuptools import build_meta; print(build_meta.build_editable('.'))"
    subprocess.run([sys.executable, "-c", build], capture_output=True, check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if "finder" in name]
        assert archive.read("__editable__.rlframe-0.1.0.pth").decode().strip() == str(tmp_path)
