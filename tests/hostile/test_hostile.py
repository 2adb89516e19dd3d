"""A few of each class of attacks; `make hostile` makes all of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlframe.utils import names
from rlframe.utils.schedules import make_schedule
from tests.hostile import checkpoints, runs
from tests.hostile.watch import Tally, attack, watching


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("campaign", "stride"),
    [
        (checkpoints.attack_by_names, 83),
        (checkpoints.attack_by_files, 73),
        (checkpoints.attack_by_pickles, 127),
        (runs.attack_by_runs, 127),
        (runs.attack_by_texts, 37),
        (runs.attack_by_configs, 37),
    ],
)
def test_nothing_runs_hangs_or_changes_and_each_answer_is_a_sentence(
    campaign: Callable[[Path, Tally, int], Any], stride: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a hostile text may be a fine name of a folder to write samples into
    tally = Tally()
    place = tmp_path / "place"
    place.mkdir()
    with watching(tmp_path):
        campaign(place, tally, stride)
    assert tally.bad == []
    assert sum(counts["refused"] for counts in tally.counts.values()) > 3 or campaign is runs.attack_by_texts


@pytest.mark.parametrize("how", ["subprocess.Popen", "os.system", "hostile_bait.boom", "import"])
def test_the_watch_sees_what_runs(how: str, tmp_path: Path) -> None:
    acts: dict[str, Callable[[], Any]] = {
        "subprocess.Popen": lambda: __import__("subprocess").run(["true"], check=True),
        "os.system": lambda: __import__("os").system("true"),
        "hostile_bait.boom": lambda: __import__("hostile_bait").boom(),
        "import": lambda: make_schedule({"type": "hostile_bait:Schedule", "value": 1.0}),
    }
    with watching(tmp_path):
        assert attack(acts[how])[0] == "executed"
        with names.from_file("file", "no"):
            assert attack(lambda: make_schedule("hostile_bait:Schedule"))[0] == "refused"
