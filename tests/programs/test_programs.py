"""Programs of RLlib's users, re-expressed: each is run as its users ran it, in a process and a folder of its own.

A program's docstring names where it comes from and what of RLlib it uses; environments are stand-ins. All run by
`make programs`; those of QUICK run in every test run.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
QUICK = {"program_clustered_replay_dqn", "program_level_generator"}
TIMEOUT_S = 300


def cases() -> list:
    names = sorted(path.stem for path in HERE.glob("program_*.py"))
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.programs) for name in names]


def test_the_quick_ones_are_there():
    assert {path.stem for path in HERE.glob("program_*.py")} >= QUICK


@pytest.mark.parametrize("name", cases())
def test_program_runs(name, tmp_path):
    path = HERE / f"{name}.py"
    if "tensorflow" in path.read_text():
        pytest.importorskip("tensorflow")
    environ = {
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(path)],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"ok {name}" in done.stdout.splitlines(), done.stdout[-2000:]
