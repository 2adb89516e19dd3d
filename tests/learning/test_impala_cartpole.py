"""RLlib's bars for IMPALA and APPO on CartPole, in both frameworks."""

import pytest

from rlframe.agents.registry import get_trainer_class
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_dqn_cartpole import steps_to_bar

COMMON = {"timesteps_per_iteration": 2000, "num_cpus_per_worker": 0.5}
APPO = {
    "num_workers": 1,
    "num_envs_per_worker": 5,
    "rollout_fragment_length": 10,
    "train_batch_size": 10,
    "vtrace": False,
    "observation_filter": "MeanStdFilter",
}
APPO_VTRACE = {
    "num_workers": 4,
    "num_envs_per_worker": 5,
    "num_sgd_iter": 1,
    "vf_loss_coeff": 0.01,
    "observation_filter": "MeanStdFilter",
    "vtrace_drop_last_ts": False,
    "model": {"fcnet_hiddens": [32], "fcnet_activation": "linear", "vf_share_layers": True},
}
CASES = [("IMPALA", {}, 150, 500_000), ("APPO", APPO, 150, 200_000), ("APPO", APPO_VTRACE, 180, 200_000)]


@pytest.mark.ray
@pytest.mark.learning
@pytest.mark.usefixtures("ray_runtime")
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "config", "bar", "budget"), CASES, ids=["IMPALA", "APPO", "APPO with V-trace"])
def test_off_policy_actor_critic_reaches_the_bar(name, config, bar, budget, seed, framework):
    trainer_class = get_trainer_class(name)
    assert steps_to_bar(trainer_class, {**COMMON, **config, "framework": framework}, seed, budget, bar) <= budget
