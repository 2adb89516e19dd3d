"""RLlib's bars with an LSTM and with attention, where only a policy that remembers gets a return."""

from collections import deque

import pytest

from rlframe.agents.dqn import R2D2Trainer
from rlframe.agents.impala import ImpalaTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.sac import RNNSACTrainer
from rlframe.examples.env.repeat_after_me_env import RepeatAfterMeEnv
from rlframe.examples.env.stateless_cartpole import StatelessCartPole
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts
from rlframe.execution.train_ops import TrainOneStep
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


#: RLlib's settings, but for these: stored states, four times as many target updates, two learner steps per sample.
R2D2 = {
    "num_workers": 0,
    "lr": 5e-4,
    "burn_in": 20,
    "zero_init_states": False,
    "target_network_update_freq": 500,
    "training_intensity": 640,
    "exploration_config": {"epsilon_timesteps": 20_000},
    "model": {
        "fcnet_hiddens": [64],
        "fcnet_activation": "linear",
        "use_lstm": True,
        "lstm_cell_size": 64,
        "max_seq_len": 20,
    },
}
MEMORY = {"fcnet_hiddens": [64], "use_lstm": True, "lstm_cell_size": 64, "lstm_use_prev_action": True}
RNNSAC = {
    "num_workers": 0,
    "gamma": 0.97,
    "tau": 0.02,
    "burn_in": 4,
    "zero_init_states": False,
    "train_batch_size": 960,
    "rollout_fragment_length": 20,
    "training_intensity": 192,
    "learning_starts": 1000,
    "timesteps_per_iteration": 500,
    "target_entropy": 0.2,
    "optimization": {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "entropy_learning_rate": 3e-4},
    "model": {"max_seq_len": 20},
    "Q_model": MEMORY,
    "policy_model": MEMORY,
}


@pytest.mark.learning
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("cls", "config", "bar", "budget"),
    [(R2D2Trainer, R2D2, 100, 50_000), (RNNSACTrainer, RNNSAC, 150, 300_000)],
    ids=["R2D2", "RNNSAC"],
)
def test_replayed_sequences_reach_the_bar(cls, config, bar, budget, seed, framework):
    assert steps_to_bar(cls, {**config, "framework": framework}, seed, budget, bar, StatelessCartPole) <= budget


IMPALA = {"num_workers": 2, "num_cpus_per_worker": 0.5, "timesteps_per_iteration": 2000, "vf_loss_coeff": 0.01}
IMPALA_LSTM = {**IMPALA, "model": {"use_lstm": True, "lstm_cell_size": 256}}


@pytest.mark.ray
@pytest.mark.learning
@pytest.mark.usefixtures("ray_runtime")
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_impala_with_an_lstm_reaches_the_bar(seed, framework):
    config = {**IMPALA_LSTM, "framework": framework}
    assert steps_to_bar(ImpalaTrainer, config, seed, 100_000, 150, StatelessCartPole) <= 100_000


def lagging_plan(workers, config):
    """IMPALA in one process, where each train batch is learned from two learner steps after its turn."""
    waiting = deque()

    def two_steps_old(batch):
        waiting.append(batch)
        return waiting.popleft() if len(waiting) > 2 else waiting[0]

    batches = ParallelRollouts(workers).combine(ConcatBatches(config["train_batch_size"]))
    train = batches.for_each(two_steps_old).for_each(TrainOneStep(workers))
    return StandardMetricsReporting(train, workers, config)


@pytest.mark.learning
@pytest.mark.parametrize("seed", range(3))
def test_impala_learns_from_rows_that_lag(seed):
    """Deterministic. With `behaviour_kl_coeff: 0` none of seeds 0 to 4 came to 150: returns fell by 91 to 134."""
    lagging = ImpalaTrainer.with_updates(name="LaggingIMPALA", execution_plan=lagging_plan)
    config = {**IMPALA_LSTM, "num_workers": 0}
    assert steps_to_bar(lagging, config, seed, 60_000, 150, StatelessCartPole) <= 60_000
