"""Environments that hold something outside: an actor of their own, a process."""

from __future__ import annotations

import pytest
import ray

from rlframe.env.env_context import EnvContext
from rlframe.examples.env.with_processes import CartPoleWithRemoteParamServer, EnvWithSubprocess, ParameterStorage

pytestmark = pytest.mark.ray


@pytest.mark.usefixtures("ray_runtime")
def test_masses_are_the_actors_and_follow_the_environments_seed():
    storage = ParameterStorage.options(name="masses").remote()
    drawn = []
    for seed in (3, 3, 4):
        env = CartPoleWithRemoteParamServer(EnvContext({"param_server": "masses"}, worker_index=1))
        env.reset(seed=seed)
        first = env.masscart
        assert env.total_mass == first + env.masspole
        env.reset()
        drawn.append((first, env.masscart))
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] != drawn[0][1]
    assert all(0.5 <= mass <= 2.0 for masses in drawn for mass in masses)
    ray.kill(storage)


def test_a_process_and_files_go_with_their_environment(tmp_path):
    paths = {f"tmp_file{index}": tmp_path / str(index) for index in range(1, 5)}
    for path in paths.values():
        path.touch()
    env = EnvWithSubprocess(EnvContext(paths, worker_index=1))
    assert env.subproc.poll() is None
    env.close()
    assert [path.exists() for path in paths.values()] == [True, True, True, False]
    env.subproc.kill()
    env.subproc.wait()
