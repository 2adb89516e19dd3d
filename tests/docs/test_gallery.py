"""The gallery's notebooks run, and what their words say of the results is so."""

import re

import pytest

from tests.docs.test_pages import ROOT

#: What a page says of its results, in the names of its cells, once it has run as it stands.
CLAIMS = {
    "action_masks": "all(chosen(sticks) == sticks % 4 for sticks in (1, 2, 3, 5, 6, 7, 9, 10, 11))",
    "callbacks": "0 < results[-1]['custom_metrics']['farthest_mean'] < 2.5 and results[-1]['hist_stats']['places']",
    "deriving": "mean_q(runs[0.01]) < mean_q(runs[0.0])",
    "export_and_serve": "from_file == from_trainer == from_server and from_trainer[0] > 100",
    "first_training": "total > 400",
    "from_data": "results['BC'][-1]['evaluation']['episode_reward_mean'] > 90",
    "own_environment": "mean_return(lambda env, obs: trainer.compute_single_action(obs, explore=False)) > by_rule - 1",
    "several_agents": "min(results[-1]['policy_reward_mean'].values()) > 60",  # random moves: about 22
}
#: What takes long even in part.
LONG = ("action_masks", "deriving", "from_data")
PAGES = sorted(page for page in ROOT.glob("docs/gallery/*.md") if page.stem != "index")


def run(page, shortened):
    """Runs a page's cells as one program, two iterations of each loop if `shortened`; returns its names."""
    pytest.importorskip("matplotlib").use("Agg")
    pytest.importorskip("uvicorn")
    cells = re.findall(r"```\{code-cell\} python\n(.*?)```", page.read_text(), flags=re.S)
    program = "\n".join(cells)
    if shortened:
        program = re.sub(r"range\(\d+\)|(?<=iterations=)\d+", lambda m: "range(2)" if m[0][0] == "r" else "2", program)
        program = program.replace("episodes=50", "episodes=2").replace("number=100", "number=2")
    names = {"__name__": "page"}
    exec(compile(program, page.name, "exec"), names)
    names["plt"].close("all")
    return names


def mean_q(results):
    return results[-1]["info"]["learner"]["default_policy"]["learner_stats"]["mean_q"]


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in LONG)) for page in PAGES]
)
def test_notebook_runs(page):
    assert run(page, shortened=True)["plt"]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_notebook_says_of_its_results_is_so(page):
    names = run(page, shortened=False)
    assert eval(CLAIMS[page.stem], {**names, "mean_q": mean_q})


def test_every_notebook_is_a_row_of_the_gallery():
    index = (ROOT / "docs" / "gallery" / "index.md").read_text()
    assert [page.stem for page in PAGES] == sorted(re.findall(r"^\| \[.*?\]\((\w+)\.md\)", index, flags=re.M))
    assert [page.stem for page in PAGES] == sorted(index.split(":hidden:")[1].strip("`\n").split())
