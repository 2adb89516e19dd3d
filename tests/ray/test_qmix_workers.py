"""QMIX with a remote worker."""

import copy

import pytest

from rlframe.agents.qmix import QMixTrainer
from rlframe.examples.env.two_step_game import TwoStepGame

pytestmark = pytest.mark.ray

CONFIG = {
    "seed": 5, "min_iter_time_s": 0, "log_sys_usage": False, "learning_starts": 20, "timesteps_per_iteration": 60,
    "model": {"lstm_cell_size": 8}, "exploration_config": {"epsilon_timesteps": 100}, "num_cpus_per_worker": 0.5,
}  # fmt: skip


def team_of_two(_):
    return TwoStepGame().with_agent_groups({"team": [0, 1]})


@pytest.mark.slow
@pytest.mark.usefixtures("ray_runtime")
def test_one_remote_worker_gives_the_numbers_of_none():
    local = QMixTrainer({**copy.deepcopy(CONFIG), "num_workers": 0}, env=team_of_two)
    remote = QMixTrainer({**copy.deepcopy(CONFIG), "num_workers": 1}, env=team_of_two)
    try:
        for _ in range(3):
            a, b = local.train(), remote.train()
            assert a["hist_stats"] == b["hist_stats"]
        losses = [r["info"]["learner"]["default_policy"]["learner_stats"]["loss"] for r in (a, b)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        assert remote.evaluate()["evaluation"]["episodes_this_iter"] == 10
    finally:
        local.stop()
        remote.stop()
