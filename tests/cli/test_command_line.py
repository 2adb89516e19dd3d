"""The `rlframe` command as a user runs it: processes, signals, a terminal, DQN on small things."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlframe.cli.main import app
from rlframe.trainer.loggers import read_results

COMMAND = [sys.executable, "-m", "rlframe"]
SMALL = [
    "--model.fcnet-hiddens",
    "[16]",
    "--hiddens",
    "[]",
    "--learning-starts",
    "50",
    "--timesteps-per-iteration",
    "200",
    "--min-iter-time-s",
    "0",
    "--replay-buffer-config.capacity",
    "1000",
    "--exploration-config.epsilon-timesteps",
    "500",
]

MY_ENV = """
class CountDown:
    '''Old-style, without any library: the observation counts down to the end, which pays 1.'''

    def __init__(self, config):
        from gymnasium import spaces
        self.start = config.get("start", 5)
        self.observation_space = spaces.Box(0.0, 100.0, (1,))
        self.action_space = spaces.Discrete(2)

    def reset(self):
        import numpy as np
        self.left = self.start
        return np.array([self.left], np.float32)

    def step(self, action):
        import numpy as np
        self.left -= 1
        return np.array([self.left], np.float32), float(self.left == 0), self.left == 0, {}


class Broken(CountDown):
    def step(self, action):
        raise RuntimeError("the valve is stuck")
"""


def environment() -> dict[str, str]:
    """Returns this process's environment, in which the package under test is found from every directory."""
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}


def rlframe(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], cwd=directory, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )


def interrupt(directory: Path, words: Sequence[str], when: str, signum: signal.Signals) -> tuple[int, str]:
    """Runs the command, sends a signal when a line with `when` appears, and returns exit code and output."""
    with subprocess.Popen(
        [*COMMAND, *words],
        cwd=directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if when in line:
                process.send_signal(signum)
        return process.wait(timeout=600), "".join(lines)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which commands run in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped by Ctrl-C."""
    directory = tmp_path_factory.mktemp("cli")
    words = ["train", "DQN", "--env", "CartPole-v1", "--run-dir", "run", "--seed", "1", "--stop-iters", "500", *SMALL]
    code, output = interrupt(directory, words, "iter 2 ", signal.SIGINT)
    assert code == 130, output
    assert output.splitlines()[-1] == "go on:      rlframe train --resume run"
    return directory


def test_run_stopped_by_ctrl_c_is_resumed_and_played_back(stopped_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_results(stopped_run / "run")
    last = before[-1]["training_iteration"]
    done = rlframe(stopped_run, "train", "--resume", "run", "--stop-iters", str(last + 2))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    rows = read_results(stopped_run / "run")
    assert rows[: len(before)] == before
    assert [row["training_iteration"] for row in rows] == list(range(1, last + 3))
    assert rows[-1]["timesteps_total"] == 200 * (last + 2)

    monkeypatch.chdir(stopped_run)
    played = CliRunner().invoke(app, ["evaluate", "run", "--episodes", "3", "--seed", "5"])
    assert played.exit_code == 0, played.stderr
    assert played.stderr == ""
    lines = played.stdout.splitlines()
    assert lines[0] == "episode\treturn\tlength\tended"
    assert re.fullmatch(
        r"return [\d.]+ ± [\d.]+ \(min .*, max .*\)  length [\d.]+ ± [\d.]+  3 episodes  run/checkpoints/\w+", lines[-1]
    )


@pytest.mark.slow
def test_resumed_run_is_the_run_that_was_not_stopped(tmp_path: Path) -> None:
    words = ["train", "DQN", "--env", "CartPole-v1", "--seed", "3", *SMALL]
    for run, limits in (("whole", ["4"]), ("parts", ["2", "4"])):
        assert rlframe(tmp_path, *words, "--run-dir", run, "--stop-iters", limits[0]).returncode == 0
        for limit in limits[1:]:
            assert rlframe(tmp_path, "train", "--resume", run, "--stop-iters", limit).returncode == 0
    whole, parts = (
        [(row["hist_stats"], row["info"]) for row in read_results(tmp_path / run)] for run in ("whole", "parts")
    )
    assert whole == parts


def test_own_environment_by_its_path_is_trained_in(here: Path) -> None:
    (here / "my_env.py").write_text(MY_ENV)
    words = ["train", "DQN", "--env", "my_env:CountDown", "--env-config.start", "7", "--stop-iters", "1", *SMALL]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    (run,) = (here / "runs").iterdir()
    assert read_results(run)[-1]["episode_len_mean"] == 7
    played = CliRunner().invoke(app, [*done.stdout.splitlines()[-1].split()[3:], "--episodes", "2"])
    assert played.stdout.splitlines()[-1].startswith("return 1.00 ± 0.00 (min 1.00, max 1.00)  length 7.00 ± 0.00")


def test_rllibs_command_line_is_taken(here: Path) -> None:
    config = {"env_config": {"start": 3}, "train_batch_size": 20, "rollout_fragment_length": 20}
    (here / "count_env.py").write_text(MY_ENV)
    words = ["train", "--run", "PG", "--env", "count_env:CountDown", "--stop", '{"training_iteration": 2}']
    done = CliRunner().invoke(app, [*words, "--config", json.dumps(config), "--run-dir", "run"])
    assert done.exit_code == 0, done.stderr
    rows = read_results(here / "run")
    assert ([row["timesteps_total"] for row in rows], rows[-1]["episode_len_mean"]) == ([20, 40], 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["PPO", "--run", "DQN"], "got two algorithms, PPO and --run DQN"),
        (["--run", "PPO", "--stop", "soon"], "--stop: got 'soon', wanted a dict of limits"),
        (["--run", "PPO", "--stop", '{"reward": 1}'], "stop: unknown key 'reward', wanted one of episode_reward_mean"),
        (["--run", "PPO", "--config", '{"lr: 3'], "--config: cannot be read"),
        (["--run", "PPO", "--config", '{"lrr": 3}'], "lrr: unknown key; did you mean lr"),
    ],
)
def test_wrong_words_of_rllibs_command_line_are_one_message(words: list[str], said: str, here: Path) -> None:
    done = CliRunner().invoke(app, ["train", *words, "--env", "CartPole-v1"])
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_environment_that_raises_is_one_message(here: Path) -> None:
    (here / "stuck_env.py").write_text(MY_ENV)
    done = CliRunner().invoke(app, ["train", "DQN", "--env", "stuck_env:Broken", "--stop-iters", "1", *SMALL])
    assert done.exit_code == 2
    assert "the valve is stuck" in done.stderr
    assert "Traceback" not in done.stderr


def test_continuous_actions_for_dqn_are_one_message_and_leave_nothing(here: Path) -> None:
    done = CliRunner().invoke(app, ["train", "DQN", "--env", "Pendulum-v1", "--run-dir", "run"])
    assert done.exit_code == 2
    assert "Discrete" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (here / "run").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["evaluate", "runs/x", "--episods", "3"], "--episods (Possible options: --episodes); see `rlframe evaluate -"),
        (["plot"], "Missing argument 'RUN…'; see `"),
        (["trane"], "No such command 'trane'"),
    ],
)
def test_wrong_command_line_is_one_message(words: list[str], said: str, tmp_path: Path) -> None:
    ended = rlframe(tmp_path, *words)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert said in ended.stderr.replace("python -m rlframe", "rlframe")


@pytest.mark.slow
def test_checkpoint_that_a_program_saved_is_played_back(tmp_path: Path) -> None:
    program = (
        "from rlframe.agents.dqn import DQNTrainer\n"
        "trainer = DQNTrainer({'num_workers': 0, 'seed': 1, 'hiddens': [8]}, env='CartPole-v1')\n"
        "print(trainer.save('saved')); trainer.stop()\n"
    )
    env = {**environment(), "RLFRAME_RESULTS_DIR": str(tmp_path / "results")}
    made = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    done = rlframe(tmp_path, "evaluate", made.stdout.strip(), "--episodes", "1")
    assert done.returncode == 0, done.stderr
    assert "1 episodes" in done.stdout


@pytest.mark.slow
def test_terminal_shows_the_live_table(tmp_path: Path) -> None:
    words = ["train", "DQN", "--env", "CartPole-v1", "--run-dir", "run", "--stop-timesteps", "600", *SMALL]
    terminal, inside = pty.openpty()
    env = {**environment(), "TERM": "xterm", "COLUMNS": "130", "LINES": "40"}
    with subprocess.Popen([*COMMAND, *words], cwd=tmp_path, env=env, stdout=inside, stderr=inside) as process:
        os.close(inside)
        output = b""
        with contextlib.suppress(OSError):  # the program has ended, and closed its end
            while piece := os.read(terminal, 65536):
                output += piece
    os.close(terminal)
    text = output.decode()
    assert process.returncode == 0, text
    for wanted in ("DQN on CartPole-v1", "updates/s", "100%", "env steps ≥ 600", "rlframe evaluate run"):
        assert wanted in text


@pytest.mark.slow
@pytest.mark.ray
def test_run_with_remote_workers_is_stopped_by_sigterm(tmp_path: Path) -> None:
    words = ["train", "DQN", "--env", "CartPole-v1", "--run-dir", "run", "--num-workers", "1", "--stop-iters", "500"]
    code, output = interrupt(tmp_path, [*words, *SMALL], "iter 1 ", signal.SIGTERM)
    assert code == 143, output
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["num_workers"] == 1
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    assert "rlframe train --resume run" in output
