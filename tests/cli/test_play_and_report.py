"""A small run, watched: `play`, `evaluate`, `plot`, `compare`, `report`, and the page in a browser."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rlframe.cli.main import app
from rlframe.data.sample_batch import SampleBatch
from rlframe.offline.json_writer import JsonWriter
from rlframe.report.serving import LivePage
from rlframe.serving.served_policy import ServedPolicy
from rlframe.trainer.loggers import read_results

MY_ENV = """
import gymnasium
import numpy as np


class Walk(gymnasium.Env):
    '''Ten steps along a line that is drawn as a picture with odd sides.'''

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
    observation_space = gymnasium.spaces.Box(-20, 20, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config):
        self.render_mode = config.get("render_mode")
        self.broken = config.get("broken")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(-3, 4)), 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.place, self.steps = self.place + 2 * int(action) - 1, self.steps + 1
        return np.array([self.place], np.float32), float(action), self.steps == 10, False, {}

    def render(self):
        if self.broken:
            return None
        frame = np.zeros((33, 49, 3), np.uint8)
        frame[:, 24 + self.place] = 255
        return frame
"""
SMALL = (
    "--num-workers", "0", "--rollout-fragment-length", "20", "--model.fcnet-hiddens", "[4]",
    "--evaluation-interval", "2", "--evaluation-num-episodes", "2",
)  # fmt: skip


def invoke(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with two runs that differ in their seed; it is the working directory."""
    directory = tmp_path_factory.mktemp("runs")
    (directory / "walk_env.py").write_text(MY_ENV)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.syspath_prepend(directory)
        for seed in ("1", "2"):
            code, _, err = invoke(
                "train", "pg", "--env", "walk_env:Walk", "--run-dir", f"all/{seed}", "--seed", seed,
                "--stop-iters", "4", "--history", f"h{seed}.parquet", "--lr", "0.01", *SMALL,
            )  # fmt: skip
            assert code == 0, err
        yield directory


def test_run_keeps_plan_machine_and_canonical_name(runs: Path) -> None:
    run = runs / "all/1"
    assert json.loads((run / "run.json").read_text())["algorithm"] == "PG"
    assert json.loads((run / "plan.json").read_text())["operators"][0]["name"] == "ParallelRollouts"
    assert "torch" in json.loads((run / "machine.json").read_text())


def test_play_prints_returns_and_leaves_videos_and_frames(runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="needs the extra `video`")
    import imageio_ffmpeg

    words = ["play", "--trust", "all/1", "--episodes", "2", "--seed", "3", "--frame-dir", str(tmp_path / "f")]
    code, out, err = invoke(*words, "--frame-frequency", "5", "--video-dir", str(tmp_path / "v"))
    assert (code, err) == (0, "")
    assert re.findall(r"episode (\d)  return ([\d.]+)  length 10  terminated", out)
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == ["episode_000.mp4", "episode_001.mp4"]
    names = [f"episode_00{episode}_step_{step:06d}.png" for episode in (0, 1) for step in (0, 5, 10)]
    assert sorted(path.name for path in (tmp_path / "f").iterdir()) == names
    video = str(tmp_path / "v/episode_000.mp4")
    probe = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", video, "-f", "framemd5", "-"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert probe.stderr == ""
    frames = [line for line in probe.stdout.splitlines() if not line.startswith("#")]
    assert len(frames) == 11, "the first state, and one for each step"
    ffprobe = shutil.which("ffprobe")
    if ffprobe:
        subprocess.run([ffprobe, "-v", "error", video], check=True)


def test_play_cuts_explores_and_takes_the_best(runs: Path) -> None:
    greedy = invoke("play", "--trust", "all/1", "--seed", "3", "--max-steps", "4", "--best")[1]
    assert "length 4  horizon" in greedy
    assert "all/1/best/checkpoint_" in greedy
    assert "length 10  terminated" in invoke("play", "--trust", "all/1", "--explore")[1]


def test_a_run_is_served_only_if_trusted(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    web = pytest.importorskip("rlframe.serving.web", reason="needs the extra `serve`")
    acted: list[Any] = []

    def ask(server: Any) -> None:
        run = threading.Thread(target=serving, args=(server,), daemon=True)
        run.start()
        try:
            acted.append(ServedPolicy(server.url).act(np.ones(1, np.float32)))
        finally:
            server.stop()
            run.join()

    serving = web.ServiceServer.run
    monkeypatch.setattr(web.ServiceServer, "run", ask)
    code, out, _ = invoke("serve", "--trust", "all/1", "--port", "0")
    assert (code, acted[0] in (0, 1)) == (0, True)
    assert re.search(r"checkpoint: all/1/checkpoints/.*\nserved at:  http://127\.0\.0\.1:\d+\n", out)
    code, out, err = invoke("serve", "all/1", "--port", "0")
    assert (code, out, len(acted)) == (2, "", 1)
    assert "would run code of its author's: env: walk_env:Walk" in err


def test_evaluate_as_json_is_reproducible(runs: Path) -> None:
    words = ["evaluate", "--trust", "all/1", "--episodes", "5", "--seed", "7", "--json"]
    got = json.loads(invoke(*words)[1])
    assert got == json.loads(invoke(*words)[1])
    assert (got["algorithm"], got["env"], got["episodes"], got["seed"]) == ("PG", "walk_env:Walk", 5, 7)
    assert got["mean"] == pytest.approx(sum(got["returns"]) / 5)
    assert got["low"] <= got["mean"] <= got["high"]
    assert got["lengths"] == [10] * 5


def test_judging_a_run_that_wrote_its_samples_writes_none(runs: Path) -> None:
    words = ("--env", "CartPole-v1", "--run-dir", "writes", "--stop-iters", "1", "--output", "written", *SMALL)
    assert invoke("train", "pg", *words)[0] == 0
    written = {path: path.read_bytes() for path in Path("written").iterdir()}
    code, _, err = invoke("evaluate", "writes", "--episodes", "1")
    assert code == 0, err
    assert {path: path.read_bytes() for path in Path("written").iterdir()} == written
    shutil.rmtree("writes")


def test_a_policy_that_remembers_its_actions_is_played(runs: Path) -> None:
    code, _, err = invoke(
        "train", "pg", "--env", "walk_env:Walk", "--run-dir", "all/lstm", "--seed", "1", "--stop-iters", "1", *SMALL,
        "--model.use-lstm", "true", "--model.lstm-use-prev-action", "true", "--model.lstm-use-prev-reward", "true",
    )  # fmt: skip
    assert code == 0, err
    got = json.loads(invoke("evaluate", "--trust", "all/lstm", "--episodes", "2", "--json")[1])
    assert got["lengths"] == [10] * 2
    shutil.rmtree("all/lstm")


def test_plot_of_runs_and_histories(runs: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    assert invoke("plot", "all", "--statistic", "iqm")[1] == "plot: plot.png\n"
    assert Path("plot.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = invoke("plot", "h1.parquet", "h2.parquet", "-o", "p.svg", "--benchmark", "time", "--label", "one")
    assert (code, err) == (0, "")
    assert "<svg" in Path("p.svg").read_text()


def test_compare_with_few_seeds_says_so(runs: Path) -> None:
    code, out, _ = invoke("compare", "all", "all/1")
    assert code == 0
    assert "not enough different seeds: 2 of all and 1 of all/1" in out
    assert json.loads(invoke("compare", "all", "all/1", "--json")[1])["runs"] == [2, 1]


@pytest.fixture(scope="module")
def walks(runs: Path) -> Path:
    """Data of who takes the action that is rewarded once in five steps, with probabilities; and some without."""
    rng, writer, bare = np.random.default_rng(0), JsonWriter("walks"), JsonWriter("bare")
    for episode in range(60):
        actions = (rng.random(10) < 0.2).astype(np.int64)
        place = np.cumsum([rng.integers(-3, 4), *(2 * actions[:-1] - 1)])
        rows = SampleBatch(
            {
                "obs": place[:, None].astype(np.float32),
                "actions": actions,
                "rewards": actions.astype(np.float32),
                "dones": np.arange(10) == 9,
                "eps_id": np.full(10, episode),
                "t": np.arange(10),
            }
        )
        bare.write(rows)
        writer.write(SampleBatch({**rows, "action_prob": np.where(actions, 0.2, 0.8).astype(np.float32)}))
    writer.close()
    bare.close()
    return runs


def test_data_say_what_a_policy_is_worth(walks: Path) -> None:
    judge = ["evaluate", "--trust", "all/1", "--off-policy", "walks", "--explore", "--gamma", "1"]
    words = [*judge, "--estimators", "is,dr,dm", "--least-ess", "1"]
    code, out, err = invoke(*words, "--json", "--deploy-if-better")
    got = json.loads(out)
    assert (code, err, got["deploy"]["better"], got["deploy"]["by"]) == (0, "", True, "dr")
    low, high = got["behaviour"]["interval"]
    assert got["episodes"] == 60
    assert low < 2.0 < high
    assert got["estimates"]["dr"]["value"] > 3.0 > got["behaviour"]["value"]
    assert 1 < got["estimates"]["is"]["effective_sample_size"] < 60
    code, out, _ = invoke(*judge, "--estimators", "dr,dm", "--least-ess", "59", "--deploy-if-better")
    assert code == 3
    assert "60 episodes, 600 rows, cut at 10 rows" in out
    assert "dr is refused: the policy does too seldom what the data do" in out
    assert "deploy: no, the data cannot say" in out
    assert invoke(*judge, "--estimators", "dr", "--least-ess", "59", "--deploy-if-better")[0] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--off-policy", "bare", "--estimators", "is,wis"], "do not say with which probability actions were chosen"),
        (["--off-policy", "walks", "--estimators", "best"], "got 'best', wanted some of tis, is, wis, dm, dr, fqe"),
        (["--off-policy", "no_data"], "found no file there"),
        (["--deploy-if-better"], "give --off-policy, too"),
        (["--gamma", "0.9"], "give --off-policy, too"),
        (["--off-policy", "walks", "--max-steps", "5"], "plays nothing"),
        (["--off-policy", "walks", "--estimators", "is", "--deploy-if-better"], "wanted dr among them"),
    ],
)
def test_what_data_cannot_say_is_one_line(walks: Path, words: list[str], message: str) -> None:
    code, out, err = invoke("evaluate", "--trust", "all/1", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["play", "nowhere"], "there is no directory 'nowhere'; wanted a run's, or a checkpoint's"),
        (["evaluate", "all"], "is neither a run directory nor a checkpoint"),
        (["play", "all/1", "--render", "--video-dir", "v"], "give one of them"),
        (["play", "--trust", "all/1", "--video-dir", "/proc/nothing"], "cannot be written"),
        (["plot", "nowhere"], "there is no run directory or history file"),
        (["plot", "other.parquet"], "wanted mean_reward, best_reward, episode_reward, step, time"),
        (["plot", "all", "-o", "p.gif"], "ends in .png, .svg or .pdf"),
        (["plot", "all", "-o", "/proc/p.png"], "cannot be written"),
        (["report", "nowhere"], "there is no run directory or history file"),
        (["report", "all", "-o", "/proc/r.html"], "cannot be written"),
        (["report", "all", "--video"], "give --episodes as well"),
        (["compare", "all", "h1.parquet"], "compared on the same environments"),
        (["train", "--resume", "all"], "no run directory"),
    ],
)
def test_mistakes_are_one_line_each(runs: Path, words: list[str], message: str) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"reward": [1.0]}), "other.parquet")
    code, out, err = invoke(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_checkpoint_of_another_algorithm_is_one_line(runs: Path) -> None:
    shutil.copytree("all/1", "changed")
    spec = json.loads(Path("changed/run.json").read_text())
    Path("changed/run.json").write_text(json.dumps({**spec, "algorithm": "A2C"}))
    code, _, err = invoke("evaluate", "--trust", "changed")
    assert code == 2
    assert "has algorithm 'PG', wanted 'A2C'" in err
    assert len(err.splitlines()) == 1


def test_environment_that_draws_nothing_is_one_line(runs: Path, tmp_path: Path) -> None:
    shutil.copytree("all/1", "blind")
    spec = json.loads(Path("blind/run.json").read_text())
    spec["config"]["env_config"] = {"broken": True}
    Path("blind/run.json").write_text(json.dumps(spec))
    code, _, err = invoke("play", "--trust", "blind", "--video-dir", str(tmp_path))
    assert code == 2
    assert "it must understand render_mode='rgb_array'" in err


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium of the machine's own."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on this machine; Debian's is `apt-get install chromium`")
    quiet = ("no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
             "disable-component-update", "disable-sync")  # fmt: skip
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=[f"--{flag}" for flag in quiet])
        yield opened
        opened.close()


class Visit:
    """A page that is open in the browser, and what went wrong on it.

    Args:
        browser: The browser.
        url: Where to go.
    """

    def __init__(self, browser: Any, url: str) -> None:
        self.page = browser.new_page(viewport={"width": 1100, "height": 900})
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.set_default_timeout(120_000)  # ms; a page waits for its turn where all tests run at once
        self.page.goto(url)

    def cell(self, table: str, run: str, name: str) -> float:
        text = self.page.locator(f"#{table} tr[data-run='{run}'] td[data-name='{name}']").inner_text()
        return float(text.replace(",", ""))

    def hover(self, fraction: float) -> str:
        """Points at a place of the chart, from 0 (left) to 1, and returns what is shown."""
        box = self.page.locator("#chart svg").bounding_box()
        left, right = box["x"] + box["width"] * 0.07, box["x"] + box["width"] * 0.985
        self.page.mouse.move(left + fraction * (right - left), box["y"] + box["height"] / 2)
        return str(self.page.locator("#tip").inner_text())


def test_page_shows_the_numbers_of_the_runs(runs: Path, browser: Any) -> None:
    code, _, err = invoke("report", "--trust", "all", "--episodes", "3", "--video", "--seed", "5")
    assert (code, err) == (0, "")
    visit = Visit(browser, (runs / "report.html").as_uri())
    for seed in ("1", "2"):
        last = read_results(runs / "all" / seed)[-1]
        assert visit.cell("runs", seed, "env_steps") == last["timesteps_total"]
        assert visit.cell("runs", seed, "mean_return") == pytest.approx(last["episode_reward_mean"], abs=1e-3)
        assert visit.cell("runs", seed, "iterations") == last["training_iteration"] == 4
        assert visit.cell("runs", seed, "episodes") == last["episodes_total"]
        played = json.loads(invoke("evaluate", "--trust", f"all/{seed}", "--episodes", "3", "--seed", "5", "--json")[1])
        assert visit.cell("evaluations", seed, "mean") == pytest.approx(played["mean"], abs=1e-3)
        assert f"seed {seed}: {round(last['episode_reward_mean'], 3):g} at {last['timesteps_total']}" in visit.hover(
            0.999
        )
    assert "ParallelRollouts" in visit.page.locator("#plans").inner_text()
    assert "CPUs" in visit.page.locator("#machines").inner_text()
    assert visit.page.locator("video").count() == 2
    visit.page.wait_for_function("[...document.querySelectorAll('video')].every((v) => v.src.startsWith('data:video'))")
    visit.page.select_option("#metric", "highest return")
    assert visit.page.locator("polyline").count() == 2
    assert visit.problems == []
    assert [url for url in visit.requests if not url.startswith(("file:", "data:"))] == []
    visit.page.close()


def test_live_page_updates_itself(runs: Path, browser: Any, tmp_path: Path) -> None:
    run = tmp_path / "growing"
    with LivePage([run]) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            visit = Visit(browser, server.url)
            assert visit.page.locator("#title").inner_text() == "waiting"
            shutil.copytree("all/1", run)
            visit.page.wait_for_selector("#runs tr[data-run='growing']", timeout=20_000)
            assert visit.cell("runs", "growing", "iterations") == 4
            row = {**read_results(run)[-1], "training_iteration": 5, "timesteps_total": 4321}
            with (run / "result.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            visit.page.wait_for_function(
                "document.querySelector(\"#runs td[data-name='env_steps']\").textContent === '4,321'", timeout=20_000
            )
            assert visit.problems == []
            visit.page.close()
        finally:
            server.shutdown()
            thread.join()


def test_page_survives_markup_in_names(runs: Path, browser: Any) -> None:
    shutil.copytree("all/1", "odd")
    spec = json.loads(Path("odd/run.json").read_text())
    spec["config"]["env_config"] = {"note": "</script><b>x</b>"}
    Path("odd/run.json").write_text(json.dumps(spec))
    assert invoke("report", "odd", "-o", "odd.html")[0] == 0
    visit = Visit(browser, (runs / "odd.html").as_uri())
    assert "</script><b>x</b>" in visit.page.locator("#configs").inner_text()
    assert visit.problems == []
    visit.page.close()
