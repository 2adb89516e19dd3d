"""RLlib's bars for several agents, games against random opponents, and cooperation."""

import functools
import warnings

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.impala import ImpalaTrainer
from rlframe.agents.maddpg import MADDPGTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import APPOTrainer, PPOTrainer
from rlframe.agents.qmix import QMixTrainer
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.examples.env.two_step_game import TwoStepGame
from rlframe.policy.policy import PolicySpec
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_dqn_cartpole import steps_to_bar

pytestmark = pytest.mark.learning

SHARED = {"fcnet_hiddens": [32], "fcnet_activation": "linear", "vf_share_layers": True}
FOUR = {"env_config": {"num_agents": 4}, "observation_filter": "MeanStdFilter", "model": SHARED}
PPO = {**FOUR, "num_workers": 0, "lr": 3e-4, "num_sgd_iter": 10, "vf_loss_coeff": 0.01}
ASYNC = {**FOUR, "num_workers": 2, "num_envs_per_worker": 5, "num_cpus_per_worker": 0.5, "vf_loss_coeff": 0.005}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_ppo_balances_four_poles(seed, framework):
    config = {**PPO, "framework": framework}
    assert steps_to_bar(PPOTrainer, config, seed, 100_000, bar=600, env=MultiAgentCartPole) <= 100_000


@pytest.mark.ray
@pytest.mark.parametrize("trainer_class", [ImpalaTrainer, APPOTrainer], ids=["IMPALA", "APPO"])
def test_asynchronous_learners_balance_four_poles(trainer_class, ray_runtime):
    assert steps_to_bar(trainer_class, ASYNC, 0, 200_000, bar=600, env=MultiAgentCartPole) <= 200_000


@pytest.mark.parametrize("seed", range(3))
def test_pg_finds_the_safe_outcome_of_the_two_step_game(seed):
    config = {"num_workers": 0, "train_batch_size": 200, "timesteps_per_iteration": 1000}
    assert steps_to_bar(PGTrainer, config, seed, 50_000, bar=7.0, env=TwoStepGame) <= 50_000


def team_of_two(_):
    return TwoStepGame().with_agent_groups({"team": [0, 1]})


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_qmix_finds_the_best_outcome_of_the_two_step_game(seed, framework):
    """The bar is met by 100 episodes in a row without exploration, which ends after 10,000 steps."""
    config = {"exploration_config": {"final_epsilon": 0.0}, "framework": framework}
    assert steps_to_bar(QMixTrainer, config, seed, 50_000, bar=7.99, env=team_of_two) <= 50_000


@pytest.mark.parametrize(("mixer", "outcome"), [("qmix", 8.0), ("vdn", 7.0)])
@pytest.mark.parametrize("seed", range(3))
def test_a_mixing_network_knows_outcomes_that_a_sum_cannot(seed, mixer, outcome):
    """As in the paper, all actions are random; a sum values the best outcome at 6.5 then, below the safe 7."""
    config = {
        "mixer": mixer, "seed": seed, "min_iter_time_s": 0, "log_sys_usage": False, "evaluation_num_episodes": 100,
        "exploration_config": {"initial_epsilon": 1.0, "final_epsilon": 1.0}, "evaluation_interval": 10,
    }  # fmt: skip
    trainer = QMixTrainer(config, env=team_of_two)
    for _ in range(10):
        result = trainer.train()
    trainer.stop()
    assert result["timesteps_total"] == 10_000
    assert result["evaluation"]["episode_reward_mean"] == outcome


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_maddpg_plays_the_two_step_game(seed, framework):
    multiagent = {
        "policies": {"pol1": PolicySpec(config={"agent_id": 0}), "pol2": PolicySpec(config={"agent_id": 1})},
        "policy_mapping_fn": lambda agent: "pol2" if agent else "pol1",
    }
    config = {"num_workers": 0, "framework": framework, "learning_starts": 100, "multiagent": multiagent}
    config["env_config"] = {"actions_are_logits": True}
    assert steps_to_bar(MADDPGTrainer, config, seed, 50_000, bar=7.0, env=TwoStepGame) <= 50_000


class Apart(MultiAgentEnv):
    """Two agents see a number x, and are paid for standing 2x apart and around 0: best at x and −x, which pays 0."""

    def __init__(self, config=None):
        self.possible_agents = [0, 1]
        self.observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gym.spaces.Box(-3, 3, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.rng, self.time = np.random.default_rng(seed), 0
        return self.see(), {}

    def see(self):
        self.x = self.rng.uniform(-1, 1)
        return {agent: np.array([self.x, agent], np.float32) for agent in (0, 1)}

    def step(self, action_dict):
        first, second = (float(action_dict[agent][0]) for agent in (0, 1))
        paid = -((first - second - 2 * self.x) ** 2) - 0.1 * (first + second) ** 2
        self.time += 1
        return self.see(), {0: paid / 2, 1: paid / 2}, {"__all__": self.time == 5}, {"__all__": False}, {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_maddpg_moves_two_agents_apart(seed, framework):
    multiagent = {
        "policies": {"pol1": PolicySpec(config={"agent_id": 0}), "pol2": PolicySpec(config={"agent_id": 1})},
        "policy_mapping_fn": lambda agent: "pol2" if agent else "pol1",
    }
    config = {
        "num_workers": 0, "framework": framework, "learning_starts": 1000, "rollout_fragment_length": 20,
        "train_batch_size": 256, "actor_lr": 3e-3, "timesteps_per_iteration": 1000, "multiagent": multiagent,
    }  # fmt: skip
    # Uniformly random actions get -41 on average, 500 episodes.
    assert steps_to_bar(MADDPGTrainer, config, seed, 10_000, bar=-0.5, env=Apart) <= 10_000


def games(name):
    pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install 'rlframe[multiagent]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pettingzoo.classic import connect_four_v3, tictactoe_v3
    return {"tictactoe": tictactoe_v3, "connect four": connect_four_v3}[name]


def not_lost(trainer, make_env, count=100):
    """Plays games against random moves, sides in turns; returns how many were not lost."""
    rng, env, good = np.random.default_rng(123), make_env(), 0
    for game in range(count):
        env.reset(seed=game)
        me, outcome = env.possible_agents[game % 2], 0.0
        while env.agents:
            player = env.agent_selection
            obs, reward, terminated, truncated, _ = env.last()
            if terminated or truncated:
                outcome = reward if player == me else outcome
                env.step(None)
            elif player == me:
                env.step(int(trainer.compute_single_action(obs, explore=False)))
            else:
                env.step(int(rng.choice(np.flatnonzero(obs["action_mask"]))))
        good += outcome >= 0
    return good


@pytest.mark.parametrize(("name", "wanted", "budget"), [("tictactoe", 95, 60_000), ("connect four", 90, 200_000)])
@pytest.mark.parametrize("seed", range(3))
def test_dqn_learns_games_by_playing_itself(name, wanted, budget, seed):
    from rlframe.models.torch.action_mask import ActionMaskModel

    make_env = functools.partial(games(name).env)
    config = {
        "num_workers": 0, "num_envs_per_worker": 4, "seed": seed, "train_batch_size": 64, "hiddens": [],
        "dueling": False, "gamma": 0.95, "target_network_update_freq": 2000, "learning_starts": 2000,
        "exploration_config": {"epsilon_timesteps": 40_000, "final_epsilon": 0.1}, "min_iter_time_s": 0,
        "model": {"custom_model": ActionMaskModel, "fcnet_hiddens": [256, 256], "fcnet_activation": "relu"},
        "timesteps_per_iteration": 5000, "log_sys_usage": False,
    }  # fmt: skip
    trainer, best, steps = DQNTrainer(config, env=lambda _: make_env()), 0, 0
    while best < wanted and steps < budget:
        steps = trainer.train()["timesteps_total"]
        best = max(best, not_lost(trainer, make_env))
    trainer.stop()
    assert best >= wanted, f"{best} of 100 after {steps} steps"


def test_ppo_spreads_over_landmarks():
    simple_spread = pytest.importorskip("mpe2.simple_spread_v3", reason="mpe2 is not installed: pip install mpe2")
    config = {
        "num_workers": 0, "num_envs_per_worker": 16, "train_batch_size": 4000, "rollout_fragment_length": 250,
        "sgd_minibatch_size": 1000, "num_sgd_iter": 10, "lr": 1e-3, "gamma": 0.95, "lambda": 0.95, "kl_coeff": 0.0,
        "entropy_coeff": 0.003, "vf_clip_param": 1e6, "clip_param": 0.2, "observation_filter": "MeanStdFilter",
        "model": {"fcnet_hiddens": [64, 64]},
    }  # fmt: skip
    # Three agents share the return: -19 each.
    steps = steps_to_bar(PPOTrainer, config, 0, 400_000, bar=-57, env=simple_spread.parallel_env)
    assert steps <= 400_000
