"""MARWIL and BC: numbers by hand, mistakes, and learning from files."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.marwil import BCTrainer, MARWILTorchPolicy, MARWILTrainer
from rlframe.config.renames import RenamedKeyWarning
from rlframe.data.sample_batch import SampleBatch
from rlframe.execution.concurrency_ops import Concurrently
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.replay_buffer import LocalReplayBuffer
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import Replay, StoreToReplayBuffer, TrainOneStep
from rlframe.utils.errors import ConfigError
from tests.helpers.workers import SMALL

SPACES = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2)
SPLIT = {"model": {"fcnet_hiddens": [4], "vf_share_layers": False}}


def uniform(**config) -> MARWILTorchPolicy:
    """Returns a policy that takes both actions alike, and values everything at 0."""
    policy = MARWILTorchPolicy(*SPACES, {**SPLIT, **config})
    policy.set_weights({name: np.zeros_like(array) for name, array in policy.get_weights().items()})
    return policy


def trajectory(rewards, last: str) -> SampleBatch:
    rows = len(rewards)
    return SampleBatch(
        {
            "obs": np.zeros((rows, 2), np.float32),
            "new_obs": np.ones((rows, 2), np.float32),
            "actions": np.arange(rows) % 2,
            "rewards": np.array(rewards, np.float32),
            "dones": np.arange(rows) == (rows - 1 if last == "done" else rows),
        }
    )


def test_losses_by_hand():
    # V = 0, so A is the return; c = sqrt(4) = 2, log pi = log 1/2 for all.
    policy = uniform(beta=2.0, vf_coeff=0.5, moving_average_sqd_adv_norm_start=4.0, lr=0.0)
    batch = trajectory([0.0, 0.0], "done")
    batch["advantages"] = np.array([1.0, 3.0], np.float32)
    stats = policy.learn_on_batch(batch)["learner_stats"]
    policy_loss = np.log(2) * (np.exp(1.0) + np.exp(3.0)) / 2
    assert stats["policy_loss"] == pytest.approx(policy_loss, rel=1e-5)
    assert stats["vf_loss"] == pytest.approx((1 + 9) / 4)
    assert stats["total_loss"] == pytest.approx(policy_loss + 0.5 * 2.5, rel=1e-5)


def test_the_scale_follows_the_squares_of_advantages():
    policy = uniform(moving_average_sqd_adv_norm_start=100.0, moving_average_sqd_adv_norm_update_rate=0.1, lr=0.0)
    batch = trajectory([0.0, 0.0], "done")
    batch["advantages"] = np.array([1.0, 3.0], np.float32)
    for expected in (100 + 0.1 * (5 - 100), 90.5 + 0.1 * (5 - 90.5)):
        policy.learn_on_batch(batch)
        assert policy.squared_advantage == pytest.approx(expected)


def test_cloning_is_the_likelihood_of_the_actions_and_needs_no_rewards():
    policy = uniform(beta=0.0)
    batch = SampleBatch({"obs": np.zeros((4, 2), np.float32), "actions": np.array([0, 1, 1, 1])})
    assert policy.learn_on_batch(batch)["learner_stats"]["policy_loss"] == pytest.approx(np.log(2))
    for _ in range(300):
        policy.learn_on_batch(batch)
    dist_inputs, _ = policy.forward(np.zeros((1, 2), np.float32))
    assert np.argmax(dist_inputs) == 1


@pytest.mark.parametrize(("last", "use_gae", "returns"), [("done", True, [2.0, 2.0]), ("cut", True, [2.75, 3.5]),
                                                         ("cut", False, [2.0, 2.0])])  # fmt: skip
def test_what_follows_a_cut_is_the_value(last, use_gae, returns):
    policy = uniform(gamma=0.5, use_gae=use_gae)
    bias = [name for name in policy.get_weights() if "value" in name and "bias" in name][-1]
    policy.set_weights({**policy.get_weights(), bias: np.array([3.0], np.float32)})
    made = policy.postprocess_trajectory(trajectory([1.0, 2.0], last))
    np.testing.assert_allclose(made["advantages"], returns)


@pytest.mark.parametrize(
    ("cls", "config", "says"),
    [(BCTrainer, {"beta": 1.0}, "which is beta=0"),
     (MARWILTrainer, {"input": "data", "postprocess_inputs": False}, "needs postprocess_inputs=True"),
     (MARWILTrainer, {"model": {"use_lstm": True, "max_seq_len": 1}}, "learns from sequences of steps"),
     (MARWILTrainer, {"beta": -1.0}, "beta")],
)  # fmt: skip
def test_mistakes_are_told(cls, config, says):
    with pytest.raises(ConfigError, match=says):
        cls(config, env="CartPole-v1")


@pytest.mark.parametrize("cls", [MARWILTrainer, BCTrainer])
def test_both_learn_from_files_what_paid(cls, tmp_path):
    # Action 1 pays, and is what the data mostly has.
    rng = np.random.default_rng(0)
    actions = (rng.random(400) < 0.7).astype(int)
    line = {
        "type": "SampleBatch", "obs": rng.normal(size=(400, 4)).round(3).tolist(), "actions": actions.tolist(),
        "rewards": actions.astype(float).tolist(), "dones": [True] * 400,
    }  # fmt: skip
    (tmp_path / "data.json").write_text(json.dumps(line) + "\n")
    config = {"input": str(tmp_path), "input_evaluation": [], "model": SMALL, "train_batch_size": 200, "lr": 0.01}
    config |= {"seed": 0, "min_iter_time_s": 0, "replay_buffer_size": 300, "moving_average_sqd_adv_norm_start": 1.0}
    with pytest.warns(RenamedKeyWarning, match="replay_buffer_config.capacity"):
        trainer = cls(config, env="CartPole-v1")
    assert trainer.config["replay_buffer_config"]["capacity"] == 300
    for _ in range(60):
        trainer.train()
    policy = trainer.get_policy()
    likely = policy.compute_log_likelihoods(np.ones(50, int), rng.normal(size=(50, 4)).astype(np.float32)).exp()
    imitated = 0.7 if cls is BCTrainer else 0.85
    assert likely.mean() == pytest.approx(imitated, abs=0.12)


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_models_with_memory_learn_from_what_they_sample(beta):
    config = {"model": {**SMALL, "use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5}, "train_batch_size": 20}
    config |= {"beta": beta, "rollout_fragment_length": 30, "seed": 0, "min_iter_time_s": 0}
    trainer = MARWILTrainer(config, env="CartPole-v1")
    stats = trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]
    assert np.isfinite(stats["total_loss"])
    assert trainer.local_replay_buffer.replay()["seq_lens"].max() == 5
    trainer.stop()


def test_copies_of_rllibs_loss_move_their_average_themselves_and_resume(tmp_path):
    def loss(policy, model, dist_class, train_batch):
        logits, _ = model(train_batch)
        squared = (train_batch["advantages"] - model.value_function()).pow(2).mean()
        average = policy._moving_average_sqd_adv_norm
        average.add_(0.5 * (squared.detach() - average))
        policy._moving_average_sqd_adv_norm = average.detach()
        return squared - dist_class(logits, model).logp(train_batch["actions"]).mean()

    own = MARWILTorchPolicy.with_updates(name="Own", loss_fn=loss)
    trainer_class = MARWILTrainer.with_updates(name="OwnMARWIL", get_policy_class=lambda config: own)
    config = {"model": SMALL, "train_batch_size": 20, "rollout_fragment_length": 30, "seed": 0, "min_iter_time_s": 0}
    trainer = trainer_class({**config, "moving_average_sqd_adv_norm_start": 64.0}, env="CartPole-v1")
    trainer.train()
    moved = trainer.get_policy()._moving_average_sqd_adv_norm
    assert (moved.shape, float(moved) != 64.0) == ((1,), True)
    resumed = trainer_class(config, env="CartPole-v1")
    resumed.restore(trainer.save(str(tmp_path)))
    assert resumed.get_policy()._moving_average_sqd_adv_norm == moved


def test_copies_of_rllibs_plan_make_their_buffer_and_are_given_none():
    def plan(workers, config, **kwargs):
        assert not kwargs
        buffer = LocalReplayBuffer(learning_starts=20, capacity=100, replay_batch_size=config["train_batch_size"])
        store = ParallelRollouts(workers, mode="bulk_sync").for_each(StoreToReplayBuffer(local_buffer=buffer))
        learn = Replay(local_buffer=buffer).for_each(TrainOneStep(workers))
        train = Concurrently([store, learn], mode="round_robin", output_indexes=[1])
        return StandardMetricsReporting(train, workers, config)

    config = {"model": SMALL, "train_batch_size": 20, "rollout_fragment_length": 30, "min_iter_time_s": 0}
    trainer = MARWILTrainer.with_updates(name="Copy", execution_plan=plan)(config, env="CartPole-v1")
    assert trainer.train()["info"]["num_steps_trained"] >= 20
