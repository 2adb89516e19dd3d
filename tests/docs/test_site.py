"""What the site says out of the code: every key, command and public name is there, and says what it is."""

import importlib
import re
import shutil
import subprocess
import sys

import pytest

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.registry import ALGORITHMS
from rlframe.cli.commands import app
from tests.docs.test_pages import DOCS, ROOT
from tests.helpers.frameworks import needs_tf


@pytest.fixture(scope="module")
def tools():
    """Makes modules importable that belong to the site, not to the package."""
    sys.path.insert(0, str(ROOT / "docs" / "_tools"))
    yield
    sys.path.remove(str(ROOT / "docs" / "_tools"))


@pytest.fixture(scope="module")
def site_text(tools):
    """The module that makes those texts."""
    import site_text

    return site_text


def test_the_config_dicts_are_those_of_the_declarations(tools):
    import config_dicts

    assert config_dicts.TARGET.read_text() == config_dicts.text(), "run python docs/_tools/config_dicts.py"


@needs_tf  # some names are of TensorFlow
def test_every_public_name_says_what_it_is(site_text):
    """Those of every package that has an `__all__`."""
    sections = re.split(r"^## (?=rlframe\.)", site_text.public_names(), flags=re.M)
    rows = {"rlframe": sections[0], **{part.partition("\n")[0]: part for part in sections[1:]}}
    declaring = {path.parent for path in ROOT.glob("rlframe/**/__init__.py") if "\n__all__" in path.read_text()}
    assert set(rows) == {".".join(folder.relative_to(ROOT).parts) for folder in declaring}
    for package, text in rows.items():
        said = dict(re.findall(r"^\| `([^`(]+)` \| (.*) \|$", text, flags=re.M))
        for name in vars(importlib.import_module(package))["__all__"]:
            assert name.startswith("__") or said[name].strip(), f"{package}.{name} has no docstring"
    assert "`compute_single_action(" in rows["rlframe"]


def test_every_key_is_in_the_config_reference(site_text):
    text = site_text.config_keys()
    refused = {row.key for row in site_text.reference(DQNTrainer._config_class) if row.note or row.default == "{...}"}
    missing = {key for key in DQNTrainer._config_class.known_keys() - refused if f"| `{key}` |" not in text}
    assert not {key for key in missing if not key.startswith("exploration_config.")}


def test_each_algorithms_page_has_its_keys(site_text):
    folders = [page.parent.name for page in sorted(ROOT.glob("rlframe/agents/*/README.md"))]
    named = [name for folder in folders for name in site_text.algorithms_of(folder)]
    assert sorted(named) == site_text.algorithm_names()
    assert {ALGORITHMS[name].trainer for name in named} == {entry.trainer for entry in ALGORITHMS.values()}
    sac = site_text.keys_of_page("sac").split("### Keys of ")[1:]
    own, memory, data = {part.split("\n")[0]: part for part in sac}.values()
    assert "Added to the common keys:" in own
    assert "| `initial_alpha` | `1.0` | Weight of the entropy at the beginning; 0 stays 0. *A number >= 0.* |" in own
    assert "| `num_workers` | `0` | `2` |" in own.split("Other defaults than the common keys:")[1]
    assert "`Q_model.fcnet_activation`" in own  # relu, where model has tanh
    assert not {"`gamma`", "`Q_model.conv_filters`", "`buffer_size`"} & set(re.findall(r"`[\w.]+`", own))
    assert "| `batch_mode` | `'complete_episodes'` | `'truncate_episodes'` |" in memory
    assert "`initial_alpha`" not in data
    assert "| `use_huber` | `False` | `True` |" in data


def test_every_command_is_in_the_command_line_reference(site_text):
    some = ("train", "list", "revive init")  # the helps of all take half a minute
    text = site_text.commands(some)
    for name in some:
        assert f"## rlframe {name}\n" in text
    assert text.count("Usage: rlframe ") == len(some)
    assert {*some} < {*site_text.command_names()}
    assert len(site_text.command_names()) > len(app.registered_commands)
    assert "--stop-reward" in text


def test_renamed_keys_stand_beside_those_of_here(site_text):
    assert "| `num_env_runners` | `num_workers` |" in site_text.renamed_keys()
    assert "| `learning_rate` | `lr` |" in site_text.keys_of_others()
    assert "| `--buffer-batch-size` | `--train-batch-size` |" in site_text.flags_of_xagents()
    assert "| `--beta1` |" in site_text.answers_to_xagents()


def test_pages_ask_for_texts_that_exist(site_text):
    asked = [line.split("} ")[1] for page in DOCS for line in page.read_text().splitlines() if "```{generated}" in line]
    assert sorted([*asked, "keys_of_page"]) == sorted(site_text.GENERATED)  # on the algorithms' pages


@needs_tf
@pytest.mark.slow
def test_the_site_builds_and_a_dead_link_stops_it(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_nb")
    for name in ("docs", "benchmarks", "examples", "rlframe"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("_build", "__pycache__"))
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    command_of_site = [sys.executable, "-m", "sphinx", "-W", "-n", "-q", "-b", "html"]

    def build(*options):
        command = [*command_of_site, *options, "docs", "built"]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    done = build()
    assert done.returncode == 0, done.stderr
    assert "- [Why does it not learn?](why_does_it_not_learn.html)" in (tmp_path / "built" / "llms.txt").read_text()
    assert "algorithms/dqn.html#apex" in (tmp_path / "built" / "cluster.html").read_text()
    assert (tmp_path / "built" / "gallery" / "first_training.html").read_text().count("<img ") >= 1
    page = tmp_path / "docs" / "tuning.md"
    page.write_text(page.read_text() + "\n[nowhere](no_such_page.md)\n")
    done = build("-D", "nb_execution_mode=off")
    assert done.returncode != 0
    assert "no_such_page" in done.stderr
