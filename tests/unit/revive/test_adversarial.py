"""Adversarial learning of environments: rollouts, rewards, what learns when, and how a training goes on."""

import numpy as np
import pytest

from rlframe.data.columns import ADVANTAGES, OBS, VF_PREDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.policy_gradients import clipped_surrogate
from rlframe.revive.adversarial import (
    GraphGAILConfig,
    GraphGAILTrainer,
    MatchRollouts,
    adversarial_trainer_config,
    discriminator_of,
    sample_rollouts,
)
from rlframe.revive.adversarial_policies import LOGGED
from rlframe.revive.configuration import read_configuration
from rlframe.revive.metrics import scores
from rlframe.revive.supervised import learned_member
from rlframe.revive.venv_model import VirtualEnv
from rlframe.revive.venv_training import train_virtual_env
from rlframe.utils.errors import ConfigError
from tests.unit.revive.test_venv import linear_member, spring_data

SMALL = {
    "venv_algo": "revive_p", "bc_epoch": 1, "revive_epoch": 2, "venv_rollout_horizon": 6, "revive_batch_size": 8,
    "policy_hidden_features": 8, "transition_hidden_features": 8, "matcher_hidden_features": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return spring_data(noise=0.2)


def trainer(data, horizon=6, **changes):
    config = read_configuration(None, {**SMALL, **changes})
    return GraphGAILTrainer(adversarial_trainer_config(data, config.venv, horizon))


def test_rollouts_begin_as_logged_and_are_told_apart_by_what_follows_the_draws(data):
    venv = VirtualEnv(data.graph, [linear_member(data)])
    windows = data.windows(30)  # trajectories have 24 rows
    rollouts, counts = sample_rollouts(venv, data, windows, np.random.default_rng(0))
    assert counts.sum() == len(data)
    scaler = data.graph.scalers["x"]
    np.testing.assert_allclose(rollouts["force"].obs[0], scaler.scale(windows.arrays["x"][0]))
    first = rollouts["next_x"].told[0]
    np.testing.assert_allclose(first[:, -2:], rollouts["force"].obs[1], atol=1e-6)  # the next step's state
    drawn = venv.members[0]["force"].distribution(rollouts["force"].obs[3])
    np.testing.assert_allclose(rollouts["force"].logp[3], drawn.logp(rollouts["force"].actions[3]), atol=1e-5)
    assert (rollouts["force"].error >= 0).all()
    assert rollouts["force"].error.max() > 0.01


def test_generators_and_discriminators_wait_by_the_discriminators_loss(data):
    made = trainer(data, fintune=0, matcher_loss_high=0.0)
    before = {name: policy.get_weights() for name, policy in made.workers.local_worker().policy_map.items()}
    made.train()  # no loss is known yet at the first step of discriminators
    after = {name: policy.get_weights() for name, policy in made.workers.local_worker().policy_map.items()}
    moved = {name: any((before[name][key] != after[name][key]).any() for key in before[name]) for name in before}
    made.stop()
    assert moved == {"force": False, "next_x": False, **dict.fromkeys(map(discriminator_of, ("force", "next_x")), True)}
    made = trainer(data, fintune=0, matcher_loss_low=100.0, matcher_loss_high=200.0)
    made.train()
    policies = made.workers.local_worker().policy_map
    told = policies[discriminator_of("force")].get_weights()
    acted = policies["force"].get_weights()
    made.train()
    assert all((told[key] == weight).all() for key, weight in policies[discriminator_of("force")].get_weights().items())
    assert any((acted[key] != weight).any() for key, weight in policies["force"].get_weights().items())
    made.stop()


def test_ppo_of_rollouts_has_the_projects_surrogate_and_advantages_that_end_with_the_rollout(data):
    made = trainer(data, fintune=0)
    local = made.workers.local_worker()
    match = MatchRollouts(made.workers, GraphGAILConfig.view(made.config))
    rollouts, counts = sample_rollouts(
        VirtualEnv(data.graph, [learned_member(made)]), data, data.windows(7, 5, np.random.default_rng(0)),
        np.random.default_rng(0),
    )  # fmt: skip
    rows = match._rewarded("force", rollouts["force"], counts)
    assert rows.count == counts[:-1].sum()
    # One step before the end: r + gamma V(next) - V, no trace from behind it.
    count = counts.shape[1]
    values = local.policy_map["force"].values_of(rollouts["force"].obs.reshape(-1, 2)).reshape(7, count)
    last = slice(-count, None)
    expected = rows["rewards"][last] + 0.99 * values[6] - values[5]
    np.testing.assert_allclose(rows[ADVANTAGES][last], expected, atol=1e-5)
    np.testing.assert_allclose(rows[VF_PREDS][last], values[5], atol=1e-6)
    policy = local.policy_map["force"]
    info = policy.learn_on_batch(rows)["learner_stats"]
    assert info["kl"] == pytest.approx(0.0, abs=1e-6)  # of the first step: the policy is the one that acted
    advantages = policy.to_tensors(rows[ADVANTAGES])
    ones = policy.to_tensors(np.zeros(rows.count, np.float32))
    assert info["policy_loss"] == pytest.approx(-float(clipped_surrogate(ones, ones, advantages, 0.2).mean()), abs=1e-5)
    supervised = policy.learn_on_batch(local.input_reader.next().policy_batches["force"])["learner_stats"]
    assert set(supervised) >= {"fit", "mae"}
    made.stop()


def test_discriminator_learns_to_tell_and_says_so_in_logits(data):
    made = trainer(data, d_lr=0.01)
    policy, rng = made.workers.local_worker().policy_map[discriminator_of("force")], np.random.default_rng(0)
    rows = rng.normal(size=(200, policy.observation_space.shape[0])).astype(np.float32)
    rows[:100, 0] += 2.0
    batch = SampleBatch({OBS: rows, LOGGED: np.repeat([1.0, 0.0], 100).astype(np.float32)})
    first = policy.learn_on_batch(batch)["learner_stats"]["loss"]
    assert first == pytest.approx(2 * np.log(2), abs=0.3)
    for _ in range(100):
        last = policy.learn_on_batch(batch)["learner_stats"]["loss"]
    assert last < 0.7 * first
    logits = policy.logits(rows)
    assert logits[:100].mean() > 1.0 > -1.0 > logits[100:].mean()
    made.stop()


def test_training_goes_on_exactly_in_either_phase_and_the_best_is_there_throughout(data, tmp_path):
    config = read_configuration(None, SMALL)
    whole = train_virtual_env(data.graph, data, config, tmp_path / "whole")
    seen = []

    def stop_in_the_contest(progress):
        seen.append((progress["half"], progress["epoch"], progress["epochs"]))
        return len(seen) != 2

    stopped = train_virtual_env(data.graph, data, config, tmp_path / "parts", stop_in_the_contest)
    assert seen == [("train", 1, 3), ("train", 2, 3)]
    assert stopped.epochs == {"train": [2], "val": [0]}
    assert {half: len(VirtualEnv.load(tmp_path / "parts" / half).members) for half in ("train", "val")} == {
        "train": 1, "val": 1,
    }  # fmt: skip
    again = train_virtual_env(data.graph, data, config, tmp_path / "parts")
    assert again.epochs == whole.epochs == {"train": [3], "val": [3]}
    assert again.metrics == whole.metrics
    assert again.metric == whole.metrics["train"]["average_guided_rollout_mae"]


@pytest.mark.slow
def test_state_of_the_contest_is_whole(data, tmp_path):
    one, other = trainer(data), trainer(data)
    one.train()
    one.save_checkpoint(str(tmp_path / "checkpoint"))
    other.restore(str(tmp_path / "checkpoint"))
    one.train()
    other.train()
    for name, policy in one.workers.local_worker().policy_map.items():
        theirs = other.workers.local_worker().policy_map[name].get_weights()
        for key, weight in policy.get_weights().items():
            np.testing.assert_array_equal(weight, theirs[key])
    one.stop()
    other.stop()


def test_frozen_networks_do_not_learn_and_graphs_without_others_are_refused(data):
    made = trainer(data)
    assert set(made.workers.local_worker().policy_map) == {
        "force", "next_x", *map(discriminator_of, ("force", "next_x")),
    }  # fmt: skip
    made.stop()
    frozen = spring_data()
    frozen.graph.frozen = ("force", "next_x")
    with pytest.raises(ConfigError, match="force, next_x: all networks have freeze"):
        trainer(frozen)


@pytest.mark.slow
def test_contest_alone_brings_rollouts_nearer_to_the_log(data):
    made = trainer(
        data, horizon=5, fintune=0, g_lr=2e-3, d_lr=3e-3, ppo_runs=4, d_steps=4, mae_reward_weight=0.0,
        revive_batch_size=100, matcher_loss_high=3.0, matcher_loss_low=0.1, policy_hidden_features=64,
        transition_hidden_features=64, matcher_hidden_features=64,
    )  # fmt: skip

    def distance():
        return scores(VirtualEnv(data.graph, [learned_member(made)]), data, 5).average["wdist"]

    before = distance()
    for _ in range(56):
        made.train()
    assert distance() < 0.5 * before  # 0.10 to 0.32 of it with four seeds
    made.stop()
