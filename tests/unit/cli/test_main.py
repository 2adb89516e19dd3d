"""The commands that only look things up, and what starting the program costs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rlframe.cli import algorithms, show
from rlframe.cli.evaluating import PlayedEpisode
from rlframe.cli.main import app, main
from rlframe.cli.run_directory import RunSpec, make_run_directory
from rlframe.config.common import CommonConfig
from rlframe.version import __version__

ALGO = "tests.unit.cli.fakes:CountingTrainer"


def invoke(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def test_help_and_flags_load_no_framework_no_ray_and_nothing_that_draws() -> None:
    heavy = ["torch", "tensorflow", "ray", "gymnasium", "matplotlib", "optuna", "pyarrow", "pandas"]
    code = (
        "import json, sys, rlframe.cli.commands, rlframe.cli.flags\n"
        f"print(json.dumps([name for name in {heavy} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_list_of_presets_says_what_they_reached() -> None:
    code, out, _ = invoke("list", "--presets")
    assert code == 0
    assert "PPO\tCartPole-v1\tmean return 475 after" in out


def test_version_is_the_packages() -> None:
    assert invoke("--version")[:2] == (0, f"rlframe {__version__}\n")


def test_list_names_the_algorithms() -> None:
    code, out, _ = invoke("list")
    assert code == 0
    assert "DQN\trlframe.agents.dqn:DQNTrainer" in out.splitlines()


def test_config_lists_every_key_with_its_meaning() -> None:
    code, out, _ = invoke("config", ALGO)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split("\t") == ["key", "default", "type", "unit", "meaning"]
    keys = {line.split("\t")[0] for line in lines[1:]}
    assert keys >= set(CommonConfig.defaults())
    assert "model.fcnet_hiddens" in keys
    assert all(len(line.split("\t")) == 5 for line in lines)


def test_config_search_looks_in_keys_and_meanings() -> None:
    keys = [line.split("\t")[0] for line in invoke("config", ALGO, "--search", "Discount")[1].splitlines()[1:]]
    assert invoke("config", ALGO, "--filter", "Discount") == invoke("config", ALGO, "--search", "Discount")
    assert "gamma" in keys
    assert len(keys) < 20


@pytest.mark.parametrize("width", [80, 100, 200])
def test_keys_on_a_terminal_have_whole_names_in_groups(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "Console", lambda: Console(force_terminal=True, width=width))
    text = show.flags_text("PPO")
    for whole in ("--num-envs-per-worker, --n-envs  [1]", "--evaluation-parallel-to-training  [", "\nmodel:\n"):
        assert whole in text
    assert text.index("The algorithm's own:") < text.index("--kl-target") < text.index("Common to all algorithms:")
    assert max(map(len, text.splitlines())) <= min(width, 100)


def test_keys_on_a_terminal_are_those_that_do_something(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "Console", lambda: Console(force_terminal=True, width=80))
    show.show_config("PPO")
    text = capsys.readouterr().out
    assert "remote_worker_envs" not in text
    assert "monitor  [" not in text
    assert "keys are not shown" in text


def test_help_has_whole_names_of_options() -> None:
    out = invoke("train", "--help")[1]
    for whole in ("--stop-timesteps, --max-steps", "--divergence-monitoring-steps", "--history, --history-checkpoint"):
        assert whole in out


def test_config_search_without_a_match_says_so() -> None:
    assert "has 'zzzz'" in invoke("config", ALGO, "--search", "zzzz")[2]


def test_config_of_an_unknown_algorithm_is_a_user_mistake() -> None:
    code, _, err = invoke("config", "DQM")
    assert code == 2
    assert "Did you mean DQN?" in err


def test_tables_on_a_terminal_are_drawn_and_brackets_are_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "Console", lambda: Console(force_terminal=True, width=60, color_system=None))
    show.print_table(("key", "default"), [("hiddens", "[256]"), ("bold", "[bold]x")])
    assert capsys.readouterr().out.split() == ["key", "default", "hiddens", "[256]", "bold", "[bold]x"]


def test_episodes_are_shown_with_mean_and_spread(capsys: pytest.CaptureFixture[str]) -> None:
    played = [PlayedEpisode(10.0, 10, "terminated"), PlayedEpisode(20.0, 30, "truncated")]
    show.show_episodes(played, Path("c"))
    assert capsys.readouterr().out.splitlines()[-1] == (
        "return 15.00 ± 5.00 (min 10.00, max 20.00)  length 20.00 ± 10.00  2 episodes  c"
    )


@pytest.mark.parametrize("path", ["nowhere", "."])
def test_evaluate_of_nothing_is_a_user_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = invoke("evaluate", path)
    assert code == 2
    assert err.startswith("error: ")
    assert "Traceback" not in err


@pytest.mark.parametrize("own", [True, False])
def test_modules_beside_a_run_are_found_for_the_users_own_commands_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(algorithms, "OWN_PLACES", [])
    monkeypatch.setattr(sys, "path", ["/somewhere", *filter(None, sys.path)])
    words = ["train", "pg", "--env", "no_such_thing_here:Env"] if own else ["evaluate", "run"]
    monkeypatch.setattr(sys, "argv", ["rlframe", *words])
    RunSpec("PG", "NoSuchEnv-v7").write(make_run_directory("PG", "x", tmp_path / "run"))
    with pytest.raises(SystemExit):
        main()
    assert (str(tmp_path) in sys.path) is own


def test_rollout_takes_the_flags_of_rllibs_command() -> None:
    code, out, _ = invoke("rollout", "--help")
    assert code == 0
    assert out.startswith("usage: rlframe rollout")
    assert all(flag in out for flag in ("--run", "--steps", "--no-render", "--save-info", "--use-shelve"))
    code, _, told = invoke("rollout", "checkpoint-1", "--run", "PPO", "--stepps", "3")
    assert code == 2
    assert "unrecognized arguments: --stepps 3" in told
