"""RLlib's bars for PPO with an LSTM and with attention, where only a policy that remembers gets a return."""

import pytest

from rlframe.agents.ppo import PPOTrainer
from rlframe.examples.env.repeat_after_me_env import RepeatAfterMeEnv
from rlframe.examples.env.stateless_cartpole import StatelessCartPole
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_dqn_cartpole import steps_to_bar

REPEAT = {"env_config": {"repeat_delay": 2}, "num_workers": 0, "num_envs_per_worker": 20}
LSTM = {
    **REPEAT,
    "gamma": 0.9,
    "lr": 3e-4,
    "num_sgd_iter": 5,
    "entropy_coeff": 1e-5,
    "model": {
        "fcnet_hiddens": [64],
        "use_lstm": True,
        "lstm_cell_size": 64,
        "max_seq_len": 20,
        "vf_share_layers": True,
    },
}
ATTENTION = {
    **REPEAT,
    "num_sgd_iter": 10,
    "entropy_coeff": 0.001,
    "vf_loss_coeff": 1e-5,
    "model": {
        "use_attention": True,
        "max_seq_len": 10,
        "attention_num_transformer_units": 1,
        "attention_dim": 32,
        "attention_memory_inference": 10,
        "attention_memory_training": 10,
        "attention_num_heads": 1,
        "attention_head_dim": 32,
        "attention_position_wise_mlp_dim": 32,
    },
}
BALANCE = {
    "num_workers": 0,
    "num_sgd_iter": 5,
    "vf_loss_coeff": 1e-4,
    "model": {"use_lstm": True, "lstm_cell_size": 256, "lstm_use_prev_action": True},
}
CASES = [
    (RepeatAfterMeEnv, LSTM, 50, 100_000),
    (RepeatAfterMeEnv, ATTENTION, 80, 500_000),
    (StatelessCartPole, BALANCE, 150, 100_000),
]
IDS = ["RepeatAfterMe, LSTM", "RepeatAfterMe, attention", "StatelessCartPole, LSTM"]


@pytest.mark.learning
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("env", "config", "bar", "budget"), CASES, ids=IDS)
def test_ppo_with_a_memory_reaches_the_bar(env, config, bar, budget, seed, framework):
    assert steps_to_bar(PPOTrainer, {**config, "framework": framework}, seed, budget, bar, env) <= budget
