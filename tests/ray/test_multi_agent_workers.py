"""Several agents and policies with remote workers."""

import copy

import numpy as np
import pytest

from rlframe.agents.a3c import A2CTrainer
from rlframe.agents.dqn import DQNTorchPolicy, DQNTrainer
from rlframe.agents.impala import ImpalaTrainer
from rlframe.agents.maddpg import MADDPGTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import EnvError
from tests.helpers.external_envs import ExternalCartPole
from tests.helpers.frameworks import TORCH_FIRST

pytestmark = pytest.mark.ray

CONFIG = {
    "seed": 5,
    "min_iter_time_s": 0,
    "model": {"fcnet_hiddens": [8]},
    "train_batch_size": 80,
    "rollout_fragment_length": 20,
    "num_workers": 1,
    "num_cpus_per_worker": 0.5,
    "log_sys_usage": False,
    "env_config": {"num_agents": 3},
    "multiagent": {"policies": {"even", "odd"}, "policy_mapping_fn": lambda agent: "odd" if agent % 2 else "even"},
}


@pytest.fixture(autouse=True)
def _runtime(ray_runtime):
    return ray_runtime


@pytest.fixture
def trainers():
    made = []

    def build(cls, **overrides):
        made.append(cls({**copy.deepcopy(CONFIG), **overrides}, env=MultiAgentCartPole))
        return made[-1]

    yield build
    for trainer in made:
        trainer.stop()


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_one_remote_worker_gives_the_numbers_of_none(trainers, framework):
    ppo = {"sgd_minibatch_size": 40, "num_sgd_iter": 2, "framework": framework}
    local, remote = trainers(PPOTrainer, num_workers=0, **ppo), trainers(PPOTrainer, **ppo)
    for _ in range(2):
        a, b = local.train(), remote.train()
        assert a["hist_stats"] == b["hist_stats"]
        assert set(a["policy_reward_mean"]) <= {"even", "odd"}
    for pid, weights in local.get_weights().items():
        for name, array in weights.items():
            np.testing.assert_allclose(array, remote.get_weights()[pid][name], atol=1e-6, err_msg=name)


def test_a_policy_added_later_is_on_all_workers(trainers):
    import ray

    trainer = trainers(A2CTrainer, num_workers=2)
    trainer.add_policy("third", policy_mapping_fn=lambda agent: "third", policies_to_train=["third"])
    trainer.train()
    result = trainer.train()
    assert set(result["info"]["learner"]) == {"third"}
    mine = trainer.get_weights()["third"]
    for weights in ray.get([worker.get_weights.remote() for worker in trainer.workers.remote_workers()]):
        assert set(weights) == {"even", "odd", "third"}
        for name, array in mine.items():
            np.testing.assert_allclose(weights["third"][name], array, err_msg=name)
    trainer.remove_policy("odd")
    ids = ray.get([worker.apply.remote(lambda w: list(w.policy_map)) for worker in trainer.workers.remote_workers()])
    assert ids == [["even", "third"]] * 2


@pytest.mark.slow
def test_policies_wait_on_disk_in_all_workers(trainers):
    import ray

    ppo = {"sgd_minibatch_size": 40, "num_sgd_iter": 1}
    small = {**CONFIG["multiagent"], "policy_map_capacity": 1}
    one, two = trainers(PPOTrainer, **ppo, multiagent=small), trainers(PPOTrainer, **ppo)
    for _ in range(2):
        assert one.train()["hist_stats"] == two.train()["hist_stats"]
    (present,) = ray.get([w.apply.remote(lambda w: w.policy_map.in_memory) for w in one.workers.remote_workers()])
    assert len(present) == 1
    mine = one.get_weights()
    for pid, weights in two.get_weights().items():
        for name, array in weights.items():
            np.testing.assert_array_equal(array, mine[pid][name], err_msg=name)


@pytest.mark.slow
def test_policies_on_disk_show_their_models_in_remote_workers(trainers):
    policies = {f"p{number}" for number in range(3)}
    multiagent = {"policies": policies, "policy_mapping_fn": lambda agent: f"p{agent}", "policy_map_capacity": 1}
    trainer = trainers(PPOTrainer, sgd_minibatch_size=40, num_sgd_iter=1, multiagent=multiagent)
    trainer.train()
    counts = trainer.workers.foreach_policy(
        lambda policy, policy_id: (policy_id, sum(weights.numel() for weights in policy.model.parameters()))
    )
    assert counts[:3] == counts[3:]
    assert set(trainer.train()["info"]["learner"]) == policies
    weights = trainer.workers.foreach_worker(lambda worker: worker.get_weights())
    for policy_id in policies:
        for name, array in weights[0][policy_id].items():
            np.testing.assert_array_equal(array, weights[1][policy_id][name])


@pytest.mark.slow
def test_policies_of_other_algorithms_sample_in_remote_workers(trainers):
    greedy = {"exploration_config": {"type": "EpsilonGreedy", "epsilon_timesteps": 7}, "n_step": 2}
    policies = {"even": PolicySpec(), "odd": PolicySpec(DQNTorchPolicy, config=greedy)}
    multiagent = {**CONFIG["multiagent"], "policies": policies, "policies_to_train": ["even"]}
    trainer = trainers(PPOTrainer, sgd_minibatch_size=40, num_sgd_iter=1, multiagent=multiagent)
    assert set(trainer.train()["info"]["learner"]) == {"even"}


def test_asynchronous_learners_take_several_policies(trainers):
    trainer = trainers(ImpalaTrainer, num_workers=2, timesteps_per_iteration=400)
    result = trainer.train()
    assert set(result["info"]["learner"]) == {"even", "odd"}
    assert result["info"]["num_agent_steps_trained"] > result["info"]["num_steps_trained"]


@pytest.mark.slow
def test_maddpg_learns_alike_from_a_remote_worker_that_acts_in_numpy():
    made = []
    for workers in (0, 1):
        config = {key: value for key, value in CONFIG.items() if key != "model"}
        config |= {
            "num_workers": workers,
            "learning_starts": 20,
            "env_config": {"num_agents": 2},
        }
        config["multiagent"] = {
            "policies": {f"p{agent}": PolicySpec(config={"agent_id": agent}) for agent in range(2)},
            "policy_mapping_fn": lambda agent: f"p{agent}",
        }
        made.append(MADDPGTrainer(config, env=Together))
    local, remote = made
    kinds = remote.workers.foreach_worker(lambda worker: type(worker.policy_map["p0"]).__name__)
    assert kinds[1:] == ["NumpyPolicy"]
    for _ in range(3):
        a, b = local.train(), remote.train()
        assert a["hist_stats"] == b["hist_stats"]
    for pid in ("p0", "p1"):
        for name, array in local.get_policy(pid).get_weights().items():
            np.testing.assert_allclose(array, remote.get_policy(pid).get_weights()[name], atol=1e-5, err_msg=name)
    remote.stop()


class Together(MultiAgentCartPole):
    """Poles that end together: where one falls, all are done."""

    def step(self, action_dict):
        obs, rewards, ended, cut, infos = super().step(action_dict)
        over = any(ended.values())
        return obs, rewards, {"__all__": over}, {"__all__": any(cut.values()) and not over}, infos


@pytest.mark.slow
def test_simulators_of_their_own_run_in_remote_workers(trainers):
    config = {"num_workers": 2, "env_config": {}, "multiagent": {}, "learning_starts": 40, "train_batch_size": 8}
    trainer = DQNTrainer({**copy.deepcopy(CONFIG), **config, "rollout_fragment_length": 4}, env=ExternalCartPole)
    result = trainer.train()
    assert result["info"]["num_steps_trained"] > 0
    assert result["episodes_total"] > 0
    trainer.stop()


def test_what_a_remote_simulator_raises_train_raises(trainers):
    trainer = DQNTrainer({**copy.deepcopy(CONFIG), "env_config": {}, "multiagent": {}}, env=Breaks)
    with pytest.raises(EnvError, match=r"(?s)its run\(\) raised RuntimeError: out of order.*in run\n"):
        trainer.train()
    trainer.stop()


class Breaks(ExternalCartPole):
    """Breaks at once."""

    def run(self):
        raise RuntimeError("out of order")
