"""The page of runs that somebody else may have made."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlframe.report.curves import find_curves
from rlframe.report.page import page_data, render_page
from rlframe.report.plotting import plot_runs
from rlframe.utils.errors import CheckpointError, ConfigError


def make_run(directory: Path, **spec: Any) -> Path:
    rows = [
        {"training_iteration": n, "timesteps_total": 10 * n, "time_total_s": 1.0 * n, "episode_reward_mean": 2.0 * n}
        for n in (1, 2)
    ]
    directory.mkdir()
    (directory / "result.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "run.json").write_text(json.dumps({"algorithm": "PG", "env": "CartPole-v1", "config": {}, **spec}))
    return directory


@pytest.mark.parametrize("text", ["<!--<script>", "</script>", "\u2028"])
def test_no_text_can_end_or_hide_the_data(tmp_path: Path, text: str) -> None:
    run = make_run(tmp_path / "run", algorithm=text, config={text: text, "clip": float("inf")})
    page = render_page(page_data([run]))
    block = page.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert "<" not in block
    (shown,) = json.loads(block)["runs"]
    assert (shown["algorithm"], shown["config"]) == (text, {text: text, "clip": None})


def test_links_below_videos_that_lead_outside_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "videos").mkdir()
    (run / "videos/mine.mp4").write_bytes(b"video")
    (tmp_path / "secret").write_bytes(b"secret")
    (run / "videos/theirs.mp4").symlink_to(tmp_path / "secret")
    with pytest.warns(UserWarning, match=r"theirs\.mp4' leads outside"):
        (shown,) = page_data([run])["runs"]
    assert shown["videos"] == ["data:video/mp4;base64,dmlkZW8="]
    assert shown["video_names"] == ["mine"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("result.jsonl", '{"timesteps_total": "x"}\n', r"result.jsonl', line 1, is damaged: timesteps_total is 'x'"),
        ("result.jsonl", "[1]\n", "got a JSON list"),
        ("result.jsonl", '{"info": 5}\n', "info is a JSON int"),
        ("run.json", "[" * 200_000, "run.json' is damaged: it nests deeper"),
        ("run.json", '{"config": [1]}', "config is a JSON list"),
        ("plan.json", '{"operators": [5]}', "it is no plan"),
        ("machine.json", "{", "machine.json' is damaged"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, text: str, says: str) -> None:
    run = make_run(tmp_path / "run")
    (run / name).write_text(text)
    with pytest.raises((ConfigError, CheckpointError), match=says):
        page_data([run])


def test_a_file_that_leads_outside_is_not_read(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (tmp_path / "secret.json").write_text('{"password": "x"}')
    (run / "machine.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(ConfigError, match=r"machine\.json' is a link that leads outside"):
        page_data([run])


@pytest.mark.parametrize("name", ["$\\frac{", "_hidden", "x" * 5000])
def test_names_in_plots_are_texts_and_shown(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    figure = plot_runs(find_curves([make_run(tmp_path / "run", algorithm=name, env=name)]))
    figure.canvas.draw()
    (text,) = figure.axes[0].get_legend().get_texts()
    assert text.get_text().strip().startswith(name[:40])
