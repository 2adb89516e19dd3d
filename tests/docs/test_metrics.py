"""Each number that an algorithm reports of its learning is explained on its page."""

import importlib

import pytest

from tests.contract.test_trainers import CASES, make
from tests.docs.test_pages import ROOT


@pytest.mark.parametrize("case", CASES)
def test_learner_stats_are_explained_on_the_algorithms_page(case):
    trainer = make(case, "torch", observation_filter="NoFilter")
    stats = {}
    while not stats:
        stats = trainer.train()["info"]["learner"].get("default_policy", {}).get("learner_stats", {})
    trainer.stop()
    package = importlib.import_module(trainer._config_class.__module__.rpartition(".")[0])
    page = ROOT / package.__path__[0] / "README.md"
    text = page.read_text() + (ROOT / "docs" / "callbacks.md").read_text()
    missing = [name for name in stats if f"`{name}`" not in text]
    assert not missing, f"{page} does not say what {', '.join(missing)} mean"
