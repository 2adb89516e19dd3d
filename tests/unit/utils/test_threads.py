"""The CPUs that a process may use, and whose word on threads counts."""

import os
import subprocess
import sys

import numpy as np
import pytest

from rlframe.utils import cpus, spinning, threads
from rlframe.utils.cpus import capped, usable_cpus
from rlframe.utils.threads import blas_in_one_thread


def python(program: str, **environ: str) -> str:
    said = (*cpus.THREAD_VARIABLES, *spinning._WAIT_VARIABLES)
    env = {name: value for name, value in os.environ.items() if name not in said}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**env, **environ}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_cpus_are_those_of_the_affinity():
    program = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
    assert python(program + "from rlframe.utils.cpus import usable_cpus; print(usable_cpus())") == "1"


@pytest.mark.parametrize(
    ("membership", "files", "quotas"),
    [
        ("0::/box/inner\n", {"box/cpu.max": "150000 100000\n", "box/inner/cpu.max": "max 100000\n"}, [1.5]),
        ("0::/not/seen/from/here\n", {"cpu.max": "400000 100000\n"}, [4.0]),
        (
            "4:memory:/box\n3:cpu,cpuacct:/box\n",
            {"cpu,cpuacct/box/cpu.cfs_quota_us": "50000\n", "cpu,cpuacct/box/cpu.cfs_period_us": "100000\n"},
            [0.5],
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, []),
        ("0::/\n", {}, []),
    ],
)
def test_quotas_of_both_versions_of_cgroups(tmp_path, membership, files, quotas):
    (tmp_path / "membership").write_text(membership)
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    assert list(cpus._quotas(tmp_path / "membership", tmp_path / "root")) == quotas


def test_a_quota_below_the_affinity_counts_and_leaves_one(monkeypatch):
    monkeypatch.setattr(cpus, "_quotas", lambda: [0.5])
    assert usable_cpus() == 1


def test_threads_beyond_the_cpus_are_said_and_not_taken(monkeypatch, caplog):
    monkeypatch.setattr(cpus, "usable_cpus", lambda: 2)
    assert (capped(1), capped(2)) == (1, 2)
    assert not caplog.messages
    assert capped(64) == 2
    assert caplog.messages == ["learner_threads: got 64, but this process may use 2 CPU(s): takes 2"]


def test_products_have_one_thread_while_a_worker_samples_and_those_of_before_afterwards(monkeypatch):
    for name in threads._BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    libraries = threads._blas_libraries()
    assert libraries, "NumPy's BLAS is not found"
    before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        library.set_num_threads(2)
    try:
        with blas_in_one_thread():
            assert [library.get_num_threads() for library in libraries] == [1] * len(libraries)
        with pytest.raises(ZeroDivisionError), blas_in_one_thread():
            np.int64(1 // 0)
        assert [library.get_num_threads() for library in libraries] == [2] * len(libraries)
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
        with blas_in_one_thread():
            assert [library.get_num_threads() for library in libraries] == [2] * len(libraries)
    finally:
        for library, count in zip(libraries, before, strict=True):
            library.set_num_threads(count)


@pytest.mark.parametrize(
    ("first", "environ", "spin"),
    [
        ("import rlframe", {}, "1000"),
        ("import rlframe", {"GOMP_SPINCOUNT": "7"}, "7"),
        ("import rlframe", {"OMP_WAIT_POLICY": "active"}, "None"),
        ("import sys; sys.modules['torch'] = sys; import rlframe", {}, "None"),
    ],
)
def test_openmps_threads_spin_shortly_unless_somebody_said_how_they_wait(first, environ, spin):
    assert python(f"{first}; import os; print(os.environ.get('GOMP_SPINCOUNT'))", **environ) == spin


def test_products_have_one_thread_until_the_last_one_that_asked_is_through(monkeypatch):
    for name in threads._BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    libraries = threads._blas_libraries()
    before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        library.set_num_threads(2)
    first, second = blas_in_one_thread(), blas_in_one_thread()
    try:
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert [library.get_num_threads() for library in libraries] == [1] * len(libraries)
        second.__exit__(None, None, None)
        assert [library.get_num_threads() for library in libraries] == [2] * len(libraries)
    finally:
        for library, count in zip(libraries, before, strict=True):
            library.set_num_threads(count)
