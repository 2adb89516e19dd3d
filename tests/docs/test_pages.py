"""The README's and the pages' Python blocks run, and links inside the repository lead to files and headings."""

import re
from pathlib import Path

import pytest

from rlframe.agents.registry import ALGORITHMS
from rlframe.config.unsupported import UNSUPPORTED
from rlframe.evaluation.callbacks import HOOKS
from tests.helpers.frameworks import needs_tf

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = [page for part in ("", "gallery/", "reference/") for page in sorted(ROOT.glob(f"docs/{part}*.md"))]
PAGES = [README, *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md")), *DOCS]
PAGES += sorted(ROOT.glob("rlframe/**/*.md")) + sorted(ROOT.glob("benchmarks/*.md"))
#: Pages with blocks that are parts of programs, or need what is not in a checkout.
PARTS = {
    "weights_of_rllib.md": "its blocks need RLlib 1.x, and a checkpoint of its own",
}


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), flags=re.S)


#: Programs that train for long, or start many processes, by page and first line: with `make slow`.
SLOW = {"cluster: from rlframe.agents.impala import Impala", "revive: import gymnasium as gym"}


def python_blocks():
    """Returns the pages' Python blocks as parameters; those in TensorFlow are skipped where it is missing."""
    made = []
    for page in [README, *(page for page in DOCS if page.name not in PARTS)]:
        for block in blocks(page, "python"):
            in_tf = "import tensorflow" in block or '"framework": "tf"' in block
            name = f"{page.stem}: {block.splitlines()[0][:40]}"
            marks = ([needs_tf] if in_tf else []) + ([pytest.mark.slow] if name in SLOW else [])
            made.append(pytest.param(block, marks=marks, id=name))
    return made


@pytest.mark.parametrize("block", python_blocks())
def test_block_runs(block, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    if re.search(r'"num_workers": [1-9]', block):
        request.getfixturevalue("ray_runtime")  # a program starts one that stays, with its dashboard
    # One iteration of each loop is enough to see that the block runs.
    shortened = re.sub(r"range\(\d+\)", "range(1)", block)
    exec(compile(shortened, "page.md", "exec"), {"__name__": "page"})


def anchors(path):
    """Returns what a page's headings are called in links: lower case, words joined by hyphens."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {called(heading) for heading in headings}


def called(heading):
    """Returns what links call a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_repository_resolve(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text()):
        if "://" in target or target.startswith("mailto:"):
            continue
        leads_to = (page.parent / target).resolve() if target else page
        assert leads_to.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(leads_to), f"{page.name} links to {target}#{anchor}, which no heading is called"


def test_the_readme_is_one_page_and_its_commands_are_those_that_ci_runs():
    text = README.read_text()
    assert len(text.splitlines()) <= 130
    assert "<!-- ci: test command" in text


#: What users ask first, and a part of its answer. docs/index.md asks them in these words.
QUESTIONS = {
    "How do I train on an environment of mine?": "class StockTradingEnv(gym.Env)",
    "Which algorithm do I begin with?": "| continuous actions, each step is expensive | SAC |",
    "Why does my return stay flat?": "| `entropy` never falls |",
    "Why is my reward NaN?": "`NonFiniteError`",
    "How do I change the network?": '`model: {"fcnet_hiddens"',
    "How do I forbid actions?": "`Dict(action_mask=..., observation=...)`",
    "How do I log a number of my own?": "episode.custom_metrics[",
    "How do I go on with a run that was killed?": "rlframe train --resume",
    "What replaced a key of RLlib?": "```{generated} renamed_keys",
    "How do I train on several machines?": "ray start --head",
}


def test_questions_are_answered_behind_their_links_within_two_clicks_of_both_starts():
    """From the site's first page a click leads to the answer's heading; from the README, two lead to its page."""
    index = ROOT / "docs" / "index.md"
    rows = re.findall(r"^\| (.*\?) \| \[.*?\]\(([^)#]+)#([^)]+)\) \|$", index.read_text(), flags=re.M)
    assert [question for question, *_ in rows] == list(QUESTIONS)
    one = _linked([README])
    two = one | _linked(page for page in one if page.suffix == ".md")
    for question, target, anchor in rows:
        page = (index.parent / target).resolve()
        assert QUESTIONS[question] in section(page, anchor), f"{target}#{anchor} does not answer: {question}"
        assert page in two


def section(page, anchor):
    """Returns the text below a page's heading, up to the next one of its rank or above."""
    text = page.read_text()
    code = [match.span() for match in re.finditer(r"```.*?```", text, flags=re.S)]
    found = re.finditer(r"^(#+) (.*)$", text, flags=re.M)
    headings = [each for each in found if not any(start <= each.start() < end for start, end in code)]
    asked = next(each for each in headings if called(each[2]) == anchor)
    after = (each.start() for each in headings if each.start() > asked.start() and len(each[1]) <= len(asked[1]))
    return text[asked.end() : next(after, len(text))]


def _linked(pages):
    """Returns the files that pages link to."""
    found = {(p.parent / link).resolve() for p in pages for link in re.findall(r"\]\(([^)#\s:]+)", p.read_text())}
    return {path for path in found if path.exists()}


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text()
    missing = [page.relative_to(ROOT / "docs").as_posix() for page in DOCS if page != ROOT / "docs" / "index.md"]
    missing = [name for name in missing if not name.startswith("gallery/") or name == "gallery/index.md"]
    missing = [name for name in missing if f"]({name})" not in index or f"\n{name.removesuffix('.md')}\n" not in index]
    assert not missing, f"docs/index.md has no link or no toctree entry for {', '.join(missing)}"


def test_every_callback_is_on_its_page():
    page = (ROOT / "docs" / "callbacks.md").read_text()
    assert not [hook for hook in HOOKS if f"`{hook}`" not in page]


def test_algorithms_that_evaluate_without_exploration_are_named():
    page = (ROOT / "docs" / "evaluation.md").read_text()
    named = re.search(r"\*\*Exploration\.\*\* (.*?) evaluate without it by default", page, flags=re.S)
    greedy = {name for name in ALGORITHMS if ALGORITHMS[name]()[1]["evaluation_config"].get("explore") is False}
    assert set(re.findall(r"[A-Z]\w+", named[1])) == greedy


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_keys_without_effect_are_on_no_page_but_that_of_differences(page):
    refused = {key for key, value in UNSUPPORTED.items() if not value.read_by_own_code}
    found = {key for key in re.findall(r"`([\w.]+)", page.read_text()) if key in refused}
    assert not found or page.name in ("rllib1.md", "CHANGELOG.md")


def functions_by_file(page):
    """Yields the function that each row of a page's tables of functions names first, and its files; same ones go on."""
    heading, files = [], []
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        heading = heading if heading and cells else cells
        if heading[-2:] == ["Function", "File"] and cells[-1].startswith(("`", "the same")):
            files = re.findall(r"`([\w./{},*]+)`", cells[-1]) or files
            yield from ((name.split(".")[-1], files) for name in re.findall(r"`([\w.]+)`", cells[-2])[:1])


@pytest.mark.parametrize("page", sorted(ROOT.glob("rlframe/agents/*/README.md")), ids=lambda page: page.parent.name)
def test_functions_are_in_the_files_that_tables_name(page):
    for name, files in functions_by_file(page):
        patterns = [file.replace("{torch,tf}", "*") + ("**/*.py" if file.endswith("/") else "") for file in files]
        found = [path for pattern in patterns for path in ROOT.glob(f"rlframe/**/{pattern}")]
        assert found, f"{page.parent.name} names {files}"
        assert any(re.search(rf"\b{name}\b", path.read_text()) for path in found), f"{name} is not in {files}"


@pytest.mark.parametrize("page", sorted(ROOT.glob("rlframe/agents/*/README.md")), ids=lambda page: page.parent.name)
def test_an_algorithms_page_has_its_parts(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    assert blocks(page, "python"), "a first program"
    learns = page.parent.name != "random_agent"
    assert not learns or re.search(r"^    \S.*[:=].*[αγθμπτQ]", text, flags=re.M), "its equations"
    assert not learns or re.search(r"\b[Kk]eys?\b", text), "the keys that matter"
    assert "RLlib" in text, "where it departs"
    assert "etrics" in text, "the meaning of each metric"
