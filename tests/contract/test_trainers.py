"""What every algorithm's trainer promises, whatever its plan: evaluation beside training, callbacks, schedules."""

import copy

import numpy as np
import pytest

from rlframe.agents.a3c import A2CTrainer
from rlframe.agents.acer import ACERTrainer
from rlframe.agents.bandit import BanditLinUCBTrainer
from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.ddpg import TD3Trainer
from rlframe.agents.dqn import ApexTrainer, DQNTrainer, PQNTrainer, R2D2Trainer, SimpleQTrainer
from rlframe.agents.dreamer import DREAMERTrainer
from rlframe.agents.es import ESTrainer
from rlframe.agents.impala import ImpalaTrainer
from rlframe.agents.marwil import MARWILTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import APPOTrainer, PPOTrainer
from rlframe.agents.sac import RNNSACTrainer, SACTrainer
from rlframe.agents.trpo import TRPOTrainer
from tests.helpers.frameworks import needs_tf

SMALL = {
    "seed": 5,
    "num_workers": 0,
    "min_iter_time_s": 0,
    "model": {"fcnet_hiddens": [16]},
    "train_batch_size": 80,
    "rollout_fragment_length": 20,
    "observation_filter": "MeanStdFilter",
    "log_sys_usage": False,
}
LSTM = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 7, "fcnet_hiddens": [16]}
MEMORY = {key: value for key, value in LSTM.items() if key != "max_seq_len"}
MINIBATCHES = {"sgd_minibatch_size": 40, "num_sgd_iter": 2}
SCHEDULE = {"lr_schedule": [[0, 1e-3], [1000, 1e-4]]}
REPLAY = {"learning_starts": 40, "timesteps_per_iteration": 80, "train_batch_size": 16}
APART = {"_separate_vf_optimizer": True, "model": {"vf_share_layers": False, "fcnet_hiddens": [16]}, **SCHEDULE}
DREAMS = {
    "model": {}, "train_batch_size": 200, "horizon": 40, "prefill_timesteps": 80, "dreamer_train_iters": 2,
    "batch_size": 3, "batch_length": 8, "imagine_horizon": 3,
    "dreamer_model": {"deter_size": 6, "stoch_size": 3, "hidden_size": 8},
}  # fmt: skip
CASES = {
    "PG": (PGTrainer, {}),
    "A2C": (A2CTrainer, SCHEDULE),
    "A2C, microbatches": (A2CTrainer, {"microbatch_size": 40}),
    "A2C, LSTM": (A2CTrainer, {"model": LSTM}),
    "PPO": (PPOTrainer, {**MINIBATCHES, **SCHEDULE}),
    "PPO, LSTM": (PPOTrainer, {**MINIBATCHES, "model": LSTM}),
    "PQN": (PQNTrainer, {**MINIBATCHES, **SCHEDULE, "num_envs_per_worker": 1}),
    "TRPO": (TRPOTrainer, {"vf_sgd_minibatch_size": 40, "vf_num_sgd_iter": 2, **SCHEDULE}),
    "TRPO, LSTM": (TRPOTrainer, {"vf_sgd_minibatch_size": 40, "vf_num_sgd_iter": 2, "model": LSTM}),
    "APPO": (APPOTrainer, SCHEDULE),
    "APPO without V-trace": (APPOTrainer, {"vtrace": False}),
    "IMPALA": (ImpalaTrainer, SCHEDULE),
    "IMPALA, LSTM": (ImpalaTrainer, {"model": LSTM}),
    "IMPALA, two optimisers": (ImpalaTrainer, APART),
    "SimpleQ": (SimpleQTrainer, REPLAY),
    "DQN": (DQNTrainer, REPLAY),
    "APEX": (ApexTrainer, {**REPLAY, "optimizer": {"num_replay_buffer_shards": 2}}),
    "ACER": (ACERTrainer, {"learning_starts": 40, "timesteps_per_iteration": 80, **SCHEDULE}),
    "MARWIL": (MARWILTrainer, {"learning_starts": 0, "replay_buffer_config": {"capacity": 100}}),
    "R2D2": (R2D2Trainer, {**REPLAY, "model": LSTM, "hiddens": [16], "burn_in": 3, "prioritized_replay": True}),
    "SAC": (SACTrainer, {**REPLAY, "model": {}}),
    "RNNSAC": (RNNSACTrainer, {**REPLAY, "model": {"max_seq_len": 7}, "Q_model": MEMORY, "policy_model": MEMORY}),
    "ES": (ESTrainer, {"episodes_per_batch": 4, "train_batch_size": 80, "batch_mode": "complete_episodes"}),
    "Dreamer": (DREAMERTrainer, DREAMS),
    "LinUCB": (BanditLinUCBTrainer, {"train_batch_size": 20}),
    "TD3": (TD3Trainer, {**REPLAY, "actor_hiddens": [16], "critic_hiddens": [16]}),
}
#: Environments of those that do not choose.
ENVS = {"TD3": "Pendulum-v1", "Dreamer": "Pendulum-v1"}


def make(case, framework, **overrides):
    cls, config = CASES[case]
    config = {**copy.deepcopy(SMALL), **copy.deepcopy(config), "framework": framework, **overrides}
    return cls(config, env=ENVS.get(case, "CartPole-v1"))


IN_TENSORFLOW = [
    pytest.param("DQN", "tf", marks=needs_tf), pytest.param("PPO, LSTM", "tf", marks=[needs_tf, pytest.mark.slow])
]  # fmt: skip
every_trainer = pytest.mark.parametrize(("case", "framework"), [*((case, "torch") for case in CASES), *IN_TENSORFLOW])


@every_trainer
def test_evaluation_changes_nothing_of_training(case, framework):
    one = make(case, framework)
    two = make(case, framework, evaluation_interval=1, evaluation_num_episodes=3, evaluation_config={"explore": False})
    for iteration in range(1, 3):
        alone, beside = one.train(), two.train()
        np.testing.assert_equal(beside["info"]["learner"], alone["info"]["learner"])
        assert beside["hist_stats"] == alone["hist_stats"]
        assert beside["evaluation"]["episodes_this_iter"] == 3
        assert beside["evaluation"]["training_iteration"] == iteration
    evaluated = two.evaluation_workers.local_worker().get_weights()["default_policy"]
    for name, weights in two.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(weights, one.get_weights()["default_policy"][name], err_msg=name)
        np.testing.assert_array_equal(weights, evaluated[name], err_msg=name)
    one.stop(), two.stop()


class Counts(DefaultCallbacks):
    """Counts, in the trainer's process."""

    seen: dict = {}  # noqa: RUF012

    def count(self, name, number=1):
        self.seen[name] = self.seen.get(name, 0) + number

    def on_episode_start(self, *, episode, **rest):
        episode.user_data["steps"] = 0
        self.count("started")

    def on_episode_step(self, *, episode, **rest):
        episode.user_data["steps"] += 1

    def on_episode_end(self, *, episode, **rest):
        assert episode.user_data["steps"] == episode.length
        episode.custom_metrics["steps"] = episode.length
        self.count("ended")

    def on_postprocess_trajectory(self, *, postprocessed_batch, **rest):
        self.count("postprocessed", postprocessed_batch.count)

    def on_sample_end(self, *, samples, **rest):
        self.count("sampled", samples.count)

    def on_learn_on_batch(self, *, policy, train_batch, result, **rest):
        assert set(policy.get_weights())
        result["rows"] = train_batch.count
        self.count("learned", train_batch.count)

    def on_train_result(self, *, result, **rest):
        result["seen"] = dict(self.seen)


@every_trainer
def test_callbacks_see_every_row_and_episode(case, framework):
    Counts.seen = {}
    trainer = make(case, framework, callbacks=Counts)
    results = [trainer.train() for _ in range(3)]
    seen = results[-1]["seen"]
    assert seen["sampled"] == seen["postprocessed"] == results[-1]["info"]["num_steps_sampled"]
    assert seen["ended"] == results[-1]["episodes_total"]
    assert seen["started"] - seen["ended"] in (0, 1)
    if case == "PPO, LSTM":  # a pass leaves out the sequences that fill no minibatch
        assert seen["sampled"] < seen["learned"] <= 2 * seen["sampled"]
    elif {"learning_starts", "dreamer_train_iters"} & set(CASES[case][1]):  # rows that were stored
        assert seen["learned"] > 0
    else:
        passes = trainer.config.get("num_sgd_iter", 1)
        assert seen["learned"] == passes * results[-1]["info"]["num_steps_trained"] == passes * seen["sampled"]
    assert "rows" in results[-1]["info"]["learner"]["default_policy"]["custom_metrics"]
    lengths = results[-1]["hist_stats"]["episode_lengths"]
    assert results[-1]["custom_metrics"]["steps_mean"] == pytest.approx(np.mean(lengths))
    trainer.stop()
