"""The README's Python blocks and those of guides run, its commands exist, and links inside the repository resolve."""

import re
from pathlib import Path

import pytest

from tests.helpers.frameworks import needs_tf

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted(ROOT.glob("docs/*.md")) + sorted(ROOT.glob("rlframe/**/*.md")) + sorted(ROOT.glob("benchmarks/*.md"))


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), flags=re.S)


#: Pages whose blocks need nothing but rlframe.
GUIDES = [ROOT / name for name in ("README.md", "docs/offline_data.md")]


def python_blocks():
    """Returns the guides' Python blocks as parameters; those in TensorFlow are skipped where it is missing."""
    made = []
    for block in (block for page in GUIDES for block in blocks(page, "python")):
        in_tf = "import tensorflow" in block or '"framework": "tf"' in block
        made.append(pytest.param(block, marks=needs_tf if in_tf else (), id=block.splitlines()[0][:40]))
    return made


@pytest.mark.parametrize("block", python_blocks())
def test_readme_block_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # One iteration of each loop is enough to see that the block runs.
    shortened = re.sub(r"range\(\d+\)", "range(2)", block)
    exec(compile(shortened, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_repository_resolve(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
