"""Policies from files of mixed quality: better than what is in them."""

from __future__ import annotations

import numpy as np
import pytest

from rlframe.agents.marwil import BCTrainer, MARWILTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.presets import get_preset
from rlframe.agents.registry import get_trainer_class
from rlframe.offline import JsonReader
from tests.helpers.frameworks import FRAMEWORKS

pytestmark = pytest.mark.learning


@pytest.fixture(scope="module")
def mixed_quality(tmp_path_factory):
    """Returns a directory with what a beginner at CartPole did on its way, and its mean return."""
    directory = str(tmp_path_factory.mktemp("cartpole"))
    config = {"num_workers": 0, "seed": 0, "output": directory, "train_batch_size": 1000, "sgd_minibatch_size": 100}
    trainer = PPOTrainer({**config, "num_sgd_iter": 10, "lr": 1e-3}, env="CartPole-v1")
    for _ in range(15):
        trainer.train()
    trainer.stop()
    episodes = [int(np.sum(batch["dones"])) for batch in JsonReader(directory).read_all_files()]
    return directory, 15_000 / sum(episodes)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cls", [MARWILTrainer, BCTrainer])
def test_cartpole_above_70_and_above_the_data(cls, seed, framework, mixed_quality):
    directory, behaviour = mixed_quality
    config = {"input": directory, "framework": framework, "seed": seed, "lr": 1e-3, "min_iter_time_s": 0}
    trainer = cls({**config, "evaluation_config": {"explore": False}}, env="CartPole-v1")
    for _ in range(100):
        trainer.train()
    returns = [trainer.evaluate()["evaluation"]["episode_reward_mean"] for _ in range(4)]
    assert np.mean(returns) > max(70.0, behaviour)


@pytest.fixture(scope="module")
def one_controller(tmp_path_factory):
    """Returns a directory with what one policy did at CartPole, and the mean return of its last iteration."""
    directory = str(tmp_path_factory.mktemp("controller"))
    config = {
        "seed": 0, "num_workers": 0, "num_envs_per_worker": 8, "train_batch_size": 1024, "sgd_minibatch_size": 256,
        "num_sgd_iter": 4, "lr": 1e-3, "lambda": 0.95, "model": {"fcnet_hiddens": [64, 64]},
    }  # fmt: skip
    teacher = PPOTrainer(config, env="CartPole-v1")
    for _ in range(15):
        teacher.train()
    recorder = PPOTrainer({**config, "output": directory, "lr": 0.0}, env="CartPole-v1")  # acts, learns nothing
    recorder.get_policy().set_weights(teacher.get_policy().get_weights())
    results = [recorder.train() for _ in range(6)]
    recorder.stop()
    return directory, results[-1]["episode_reward_mean"]


@pytest.mark.parametrize("seed", range(3))
def test_marwil_whose_values_have_layers_of_their_own_keeps_what_it_imitates(seed, one_controller):
    # In shared layers the values' errors saturate the units, and in 300 updates the policy forgets to look.
    directory, behaviour = one_controller
    model = {"fcnet_hiddens": [64, 64], "vf_share_layers": False}
    config = {"input": directory, "input_evaluation": [], "seed": seed, "lr": 2e-3, "train_batch_size": 512}
    evaluation = {"evaluation_num_episodes": 20, "evaluation_config": {"explore": False}}
    trainer = MARWILTrainer({**config, **evaluation, "model": model}, env="CartPole-v1")
    for _ in range(300):
        trainer.train()
    assert trainer.evaluate()["evaluation"]["episode_reward_mean"] > 0.9 * behaviour


CRITICS = {
    "CQL": {"bc_iters": 0, "min_q_weight": 1.0},
    "IQL": {"actor_lr": 1e-3, "critic_lr": 1e-3},
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CRITICS)
def test_critics_of_choices_take_cartpole_above_the_data(name, seed, framework, mixed_quality):
    directory, behaviour = mixed_quality
    config = {"input": directory, "framework": framework, "seed": seed, "timesteps_per_iteration": 256 * 3000}
    evaluation = {"evaluation_num_episodes": 40, "evaluation_config": {"explore": False}}
    trainer = get_trainer_class(name)({**config, **CRITICS[name], **evaluation}, env="CartPole-v1")
    trainer.train()
    assert trainer.evaluate()["evaluation"]["episode_reward_mean"] > max(200.0, behaviour)


@pytest.fixture(scope="module", params=range(2))
def first_steps_of_sac(request, tmp_path_factory):
    """Returns a directory with the first 10,000 steps of SAC on Pendulum, with one seed and with another."""
    directory = str(tmp_path_factory.mktemp("pendulum"))
    output = {"seed": request.param, "output": directory, "output_max_file_size": 10**9}
    trainer = get_trainer_class("SAC")({**get_preset("SAC", "Pendulum-v1"), **output}, env="Pendulum-v1")
    while trainer.train()["timesteps_total"] < 10_000:
        pass
    trainer.stop()
    return directory


@pytest.mark.parametrize("seed", range(2))
def test_cql_swings_a_pendulum_up_from_10k_rows_of_a_beginner(seed, first_steps_of_sac):
    # With γ = 0.99 values are still on their way after 8,000 updates, and returns rise and fall with them.
    layers = {"fcnet_hiddens": [64, 64], "fcnet_activation": "relu"}
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "entropy_learning_rate"), 1e-3)
    config = {
        "input": first_steps_of_sac, "seed": seed, "timesteps_per_iteration": 256 * 8000, "bc_iters": 0,
        "gamma": 0.95, "min_q_weight": 2.0, "mean_target_actions": True, "initial_weights": "fan_in",
        "optimization": rates, "Q_model": layers, "policy_model": layers, "evaluation_num_episodes": 100,
        "evaluation_config": {"explore": False},
    }  # fmt: skip
    trainer = get_trainer_class("CQL")(config, env="Pendulum-v1")
    trainer.train()
    assert trainer.evaluate()["evaluation"]["episode_reward_mean"] > -300.0  # RLlib's bar
