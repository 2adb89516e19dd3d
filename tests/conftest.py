"""One thread per process and quiet tests: what holds for all of them."""

import gc
import itertools
import logging
import os
import sys

# Hundreds of processes are started here: where no bytecode may be written, each compiles the whole package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Ray starts its workers with a niceness of 15: the tests that wait for them would wait for all other tests.
os.environ.setdefault("RAY_worker_niceness", "0")

import pytest

from tests.helpers.ray_runtime import runtime_of_tests

sys.dont_write_bytecode = False
_NUMBERS = itertools.count()
_RAY_OF_LEARNERS = ("apex", "ddppo", "impala", "on_policy", "qmix", "isolation")


def pytest_addoption(parser):
    parser.addoption("--gpu", action="store_true", help="torch policies that ask for no GPU are on one all the same")


def pytest_configure(config):
    """With `--gpu`, what the tests say of torch policies is tried on a GPU, where each has its networks then."""
    if not config.getoption("--gpu"):
        return
    import torch

    from rlframe.policy import torch_policy
    from rlframe.policy.torch import devices, export

    chosen, without = torch_policy.choose_devices, export.on_cpu

    def on_gpu(config):
        devices.quiet_cudnn()
        found = chosen(config)
        return found if len(found) > 1 or config.get("_fake_gpus") else [torch.device("cuda", 0)]

    def on_cpu(policy):
        torch_policy.choose_devices = chosen
        try:
            return without(policy)
        finally:
            torch_policy.choose_devices = on_gpu

    torch_policy.choose_devices, export.on_cpu = on_gpu, on_cpu


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keeps the tests that share a Ray runtime in one process when tests run in several.

    There are three runtimes, so that what waits for workers to start does so beside what waits for others: Tune's, that
    of the learners, and that of sampling and the rest.

    By path: pytest 9.2 takes no other names for tests, which is how xdist's own groups reach its scheduler.
    """
    from xdist.scheduler import LoadScopeScheduling

    class RuntimesInOneProcess(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            if not nodeid.startswith("tests/ray/"):
                return nodeid
            name = nodeid.removeprefix("tests/ray/test_")
            if name.startswith("tune"):
                return "tune"
            return "ray of learners" if name.startswith(_RAY_OF_LEARNERS) else "ray"

    return RuntimesInOneProcess(config, log)


def pytest_collection_finish(session):
    """Lets the collector pass over what the imports made: half a million objects that stay, a third of its time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _results_directory(tmp_path_factory, monkeypatch):
    """Keeps the logs of trainers out of the home directory; most tests make none, and no directory for them."""
    from rlframe.trainer import setup

    own = tmp_path_factory.getbasetemp() / f"results{next(_NUMBERS)}"
    monkeypatch.setattr(setup, "RESULTS_DIRECTORY", str(own))


@pytest.fixture(autouse=True)
def _log_level():
    """Puts the level of the log back, which every trainer sets to its own `log_level`."""
    logger = logging.getLogger("rlframe")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.fixture(autouse=True)
def _registered_models():
    """Forgets the models that a test registers: trainers send all there are to their remote workers."""
    from rlframe.models import catalog

    before = {kind: dict(entries) for kind, entries in catalog._REGISTRY.items()}
    yield
    for kind, entries in catalog._REGISTRY.items():
        entries.clear()
        entries.update(before[kind])


@pytest.fixture(scope="module")
def ray_runtime():
    """A Ray runtime that a file's tests share; those of `tests/ray` have one for all their files.

    It ends with them: its daemons keep a processor busy for seconds of each minute, whether it is used or not.
    """
    yield from runtime_of_tests()
