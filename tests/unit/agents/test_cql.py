"""CQL: the penalty by hand, the phase of cloning, mistakes, and learning from files alone."""

from __future__ import annotations

import json
import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlframe.agents.sac import CQL_DEFAULT_CONFIG, CQLTorchPolicy, CQLTrainer, SACTorchPolicy
from rlframe.agents.sac.cql import CQLConfig
from rlframe.config.merge import merge_configs
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.losses.offline import conservative_penalty
from rlframe.offline import JsonWriter
from rlframe.utils.errors import ConfigError, DataError

SMALL = {"Q_model": {**CQL_DEFAULT_CONFIG["Q_model"], "fcnet_hiddens": [8]},
         "policy_model": {**CQL_DEFAULT_CONFIG["policy_model"], "fcnet_hiddens": [8]}}  # fmt: skip
OBS, BOX = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(-1, 1, (1,), np.float32)


def make_batch(rows: int = 8, seed: int = 0, discrete: bool = False) -> SampleBatch:
    rng = np.random.default_rng(seed)
    return SampleBatch(
        {
            "obs": rng.normal(size=(rows, 3)).astype(np.float32),
            "new_obs": rng.normal(size=(rows, 3)).astype(np.float32),
            "actions": rng.integers(2, size=rows) if discrete else rng.uniform(-1, 1, (rows, 1)).astype(np.float32),
            "rewards": rng.normal(size=rows).astype(np.float32),
            "discounts": rng.uniform(size=rows).astype(np.float32),
        }
    )


def test_the_penalty_by_hand():
    compared = torch.tensor([[0.0, 4.0], [2.0, 4.0]])
    taken = torch.tensor([1.0, 4.0])
    made = conservative_penalty(compared, taken, 2.0)
    expected = [2 * math.log(math.exp(0) + math.exp(1)) - 1, 2 * math.log(2 * math.exp(2)) - 4]
    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-6)


def test_values_that_are_all_alike_cost_the_number_of_actions():
    # Discrete: T log sum exp(0 / T) - 0 = T log 2, in the mean over two critics.
    policy = CQLTorchPolicy(OBS, gym.spaces.Discrete(2), {**SMALL, "temperature": 3.0, "min_q_weight": 0.5})
    policy.set_weights({name: np.zeros_like(array) for name, array in policy.get_weights().items()})
    stats = policy.learn_on_batch(make_batch(discrete=True))["learner_stats"]
    assert stats["cql_loss"] == pytest.approx(0.5 * 3.0 * math.log(2), rel=1e-6)


class SACOfRewardsAlone(SACTorchPolicy):
    """SAC as CQL has it: no entropy in targets, whole squares."""

    def entropy_bonus(self, alpha, log_probs):
        return 0.0 * log_probs

    def critic_loss(self, values, targets, weights, mean=torch.mean):
        loss, td_error = super().critic_loss(values, targets, weights, mean)
        return 2.0 * loss, td_error


@pytest.mark.parametrize("space", [BOX, gym.spaces.Discrete(2)], ids=["continuous", "discrete"])
def test_without_penalty_and_cloning_it_is_sac_of_rewards_alone(space):
    one = CQLTorchPolicy(OBS, space, {**SMALL, "min_q_weight": 0.0, "bc_iters": 0, "seed": 0})
    other = SACOfRewardsAlone(OBS, space, {**SMALL, "seed": 0, "_deterministic_loss": True, "use_huber": False})
    one.config["_deterministic_loss"] = True
    other.set_weights(one.get_weights())
    for step in range(3):
        batch = make_batch(seed=step, discrete=space is not BOX)
        for policy in (one, other):
            policy.learn_on_batch(batch.copy())
    theirs = other.get_weights()
    for name, array in one.get_weights().items():
        np.testing.assert_allclose(array, theirs[name], atol=1e-6, err_msg=name)


def test_the_actor_clones_first_and_that_is_remembered():
    policy = CQLTorchPolicy(OBS, BOX, {**SMALL, "bc_iters": 2, "seed": 0})
    assert policy.cloning == 1.0
    policy.learn_on_batch(make_batch())
    state = policy.get_state()
    policy.learn_on_batch(make_batch())
    assert policy.cloning == 0.0
    again = CQLTorchPolicy(OBS, BOX, {**SMALL, "bc_iters": 2, "seed": 1})
    again.set_state(state)
    assert again.cloning == 1.0
    again.learn_on_batch(make_batch())
    assert again.cloning == 0.0


def test_the_multiplier_grows_while_the_penalty_is_above_its_threshold():
    for threshold, grows in ((-100.0, True), (100.0, False)):
        config = {**SMALL, "lagrangian": True, "lagrangian_thresh": threshold, "seed": 0}
        policy = CQLTorchPolicy(OBS, BOX, config)
        for _ in range(3):
            stats = policy.learn_on_batch(make_batch())["learner_stats"]
        assert (stats["alpha_prime_value"] > 1.0) is grows


@pytest.fixture
def files(tmp_path):
    """Returns a directory with 300 rows of Pendulum, made up, in the environment's units."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (301, 3)).round(3)
    line = {
        "type": "SampleBatch", "obs": obs[:300].tolist(), "new_obs": obs[1:].tolist(),
        "actions": rng.uniform(-2, 2, (300, 1)).round(3).tolist(), "rewards": [-1.0] * 300, "dones": [False] * 300,
    }  # fmt: skip
    (tmp_path / "data.json").write_text(json.dumps(line) + "\n")
    return str(tmp_path)


def trainer_of(files, **config):
    given = {**SMALL, "input": files, "train_batch_size": 32, "timesteps_per_iteration": 64, "seed": 0}
    env = config.pop("env", "Pendulum-v1")
    return CQLTrainer({**given, "min_iter_time_s": 0, **config}, env=env)


def test_it_learns_from_all_rows_moves_its_targets_and_counts(files, tmp_path):
    trainer = trainer_of(files, evaluation_interval=2, evaluation_num_episodes=1)
    target = trainer.get_policy().target_network.get_weights()
    assert len(trainer.local_replay_buffer) == 300
    actions = trainer.local_replay_buffer.replay()["actions"]
    assert np.abs(actions).max() <= 1.0
    result = trainer.train()
    assert result["timesteps_total"] == result["info"]["num_steps_trained"] == 64
    assert result["info"]["num_target_updates"] == 2
    moved = trainer.get_policy().target_network.get_weights()
    assert any(not np.array_equal(moved[name], target[name]) for name in target)
    assert result["agent_timesteps_total"] == 64
    path = trainer.save(str(tmp_path / "saved"))
    trainer.train()
    again = trainer_of(files, evaluation_interval=2, evaluation_num_episodes=1)
    again.restore(path)
    assert again.train()["evaluation"]["episodes_this_iter"] == 1
    weights = again.get_policy().get_weights()
    for name, array in trainer.get_policy().get_weights().items():
        np.testing.assert_array_equal(array, weights[name], err_msg=name)


def test_mistakes_are_told(files, tmp_path):
    with pytest.raises(ConfigError, match="learns from data that it holds"):
        CQLTrainer({}, env="Pendulum-v1")
    with pytest.raises(ConfigError, match="capacity: got 100"):
        trainer_of(files, replay_buffer_config={"capacity": 100})
    with pytest.raises(ConfigError, match=r"single rows of data(.|\n)*optimizer: got"):
        trainer_of(files, model={"use_lstm": True}, optimizer={"num_replay_buffer_shards": 1})
    assert trainer_of(files, learning_starts=1500).train()["timesteps_total"] == 64  # all there is, is there
    (tmp_path / "data.json").write_text('{"type": "SampleBatch", "obs": [[0, 0, 0]], "actions": [[0]]}\n')
    with pytest.raises(DataError, match=r"wanted \['rewards', 'new_obs'\]"):
        trainer_of(files)


def test_keys_without_effect_are_told():
    with pytest.warns(UserWarning, match="has no effect") as told:
        merge_configs(CQL_DEFAULT_CONFIG, {"training_intensity": 2.0, "shuffle_buffer_size": 4}, CQLConfig)
    assert sorted(str(each.message).partition("=")[0] for each in told) == ["shuffle_buffer_size", "training_intensity"]


def test_each_of_several_agents_learns_from_its_own_rows(tmp_path):
    policies = {"low": (None, OBS, BOX, {}), "high": (None, OBS, BOX, {"min_q_weight": 1.0})}
    batches = {pid: make_batch(20, seed) for seed, pid in enumerate(policies)}
    for batch in batches.values():
        batch["dones"] = np.zeros(20, bool)
        del batch["discounts"]
    JsonWriter(str(tmp_path)).write(MultiAgentBatch(batches, 20))
    trainer = trainer_of(
        str(tmp_path),
        env=None,
        multiagent={"policies": policies, "policy_mapping_fn": lambda agent_id, *args, **kwargs: agent_id},
        actions_in_input_normalized=True,
    )
    drawn = trainer.local_replay_buffer.replay().policy_batches
    for pid, batch in batches.items():
        assert np.isin(drawn[pid]["rewards"], batch["rewards"]).all()
    before = {pid: trainer.get_policy(pid).get_weights() for pid in policies}
    result = trainer.train()
    assert set(result["info"]["learner"]) == set(policies)
    assert result["timesteps_total"] == 64
    for pid, weights in before.items():
        assert any(
            not np.array_equal(array, weights[name]) for name, array in trainer.get_policy(pid).get_weights().items()
        )
