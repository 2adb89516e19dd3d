"""What learns from data alone: all rows come in, several agents, exact resume, mistakes and keys without effect."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.families.offline import with_next_actions
from rlframe.agents.registry import get_trainer_class
from rlframe.agents.sac import CQL_DEFAULT_CONFIG, CQLTrainer
from rlframe.agents.sac.cql import CQLConfig
from rlframe.config.merge import merge_configs
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline import JsonReader, JsonWriter, ShuffledInput
from rlframe.utils.errors import ConfigError, DataError

OBS, BOX = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(-1, 1, (1,), np.float32)
SECTIONS = {key: {**CQL_DEFAULT_CONFIG[key], "fcnet_hiddens": [8]} for key in ("Q_model", "policy_model")}
SMALL = {
    "CQL": SECTIONS,
    "IQL": SECTIONS,
    "TD3BC": {"actor_hiddens": [8], "critic_hiddens": [8], "critic_bc_weight": 0.1},
}


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


def trainer_of(files, algorithm="CQL", **config):
    given = {**SMALL[algorithm], "input": files, "train_batch_size": 32, "timesteps_per_iteration": 64, "seed": 0}
    env = config.pop("env", "Pendulum-v1")
    return get_trainer_class(algorithm)({**given, "min_iter_time_s": 0, **config}, env=env)


@pytest.mark.parametrize("algorithm", SMALL)
def test_it_learns_from_all_rows_moves_its_targets_and_counts(algorithm, files, tmp_path):
    trainer = trainer_of(files, algorithm, evaluation_interval=2, evaluation_num_episodes=1)
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
    again = trainer_of(files, algorithm, evaluation_interval=2, evaluation_num_episodes=1)
    again.restore(path)
    assert again.train()["evaluation"]["episodes_this_iter"] == 1
    weights = again.get_policy().get_weights()
    for name, array in trainer.get_policy().get_weights().items():
        np.testing.assert_array_equal(array, weights[name], err_msg=name)


def test_a_reader_behind_shuffled_input_is_read_as_a_whole(files):
    assert len(trainer_of(lambda ioctx: ShuffledInput(JsonReader(files, ioctx), 4)).local_replay_buffer) == 300


def test_values_come_as_fast_as_their_targets_let_them(files):
    # Rewards of −1 without end are worth −1 / (1 − γ). Targets take the share τ of what is learned, r + γ V, with each
    # update: of the way to there n updates make 1 − (1 − τ (1 − γ))ⁿ, however fast networks learn.
    gamma, tau, updates = 0.9, 0.03, 300
    fast = {"actor_lr": 1e-2, "critic_lr": 1e-2, "tau": tau, "gamma": gamma, "timesteps_per_iteration": 32 * updates}
    stats = trainer_of(files, "IQL", **fast).train()["info"]["learner"]["default_policy"]["learner_stats"]
    wanted = -(1.0 - (1.0 - tau * (1.0 - gamma)) ** updates) / (1.0 - gamma)
    assert stats["mean_q"] == pytest.approx(wanted, rel=0.1)
    assert stats["mean_value"] == pytest.approx(wanted, rel=0.1)


def test_mistakes_are_told(files, tmp_path):
    with pytest.raises(ConfigError, match="learns from data that it holds"):
        CQLTrainer({}, env="Pendulum-v1")
    with pytest.raises(ConfigError, match="capacity: got 100"):
        trainer_of(files, replay_buffer_config={"capacity": 100})
    with pytest.raises(ConfigError, match="single rows of data"):
        trainer_of(files, model={"use_lstm": True})
    with pytest.warns(UserWarning, match="optimizer=.* has no effect"):
        trainer_of(files, optimizer={"num_replay_buffer_shards": 2})
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
    rng = np.random.default_rng(0)
    batches = {
        pid: SampleBatch(
            {
                "obs": rng.uniform(-1, 1, (20, 3)).astype(np.float32),
                "new_obs": rng.uniform(-1, 1, (20, 3)).astype(np.float32),
                "actions": rng.uniform(-1, 1, (20, 1)).astype(np.float32),
                "rewards": np.full(20, float(index), np.float32),
                "dones": np.zeros(20, bool),
            }
        )
        for index, pid in enumerate(policies)
    }
    JsonWriter(str(tmp_path)).write(MultiAgentBatch(batches, 20))
    trainer = trainer_of(
        str(tmp_path),
        env=None,
        multiagent={"policies": policies, "policy_mapping_fn": lambda agent_id, *args, **kwargs: agent_id},
        actions_in_input_normalized=True,
    )
    drawn = trainer.local_replay_buffer.replay().policy_batches
    for pid, batch in batches.items():
        assert (drawn[pid]["rewards"] == batch["rewards"][0]).all()
    before = {pid: trainer.get_policy(pid).get_weights() for pid in policies}
    result = trainer.train()
    assert set(result["info"]["learner"]) == set(policies)
    assert result["timesteps_total"] == 64
    for pid, weights in before.items():
        assert any(
            not np.array_equal(array, weights[name]) for name, array in trainer.get_policy(pid).get_weights().items()
        )


def test_next_actions_are_those_of_rows_that_go_on_where_one_ended():
    obs = np.arange(5, dtype=np.float32).reshape(5, 1)
    reached = np.array([[1.0], [9.0], [3.0], [4.0], [5.0]], np.float32)  # the second row's episode was cut off
    actions = np.array([[0.1], [0.2], [0.3], [0.4], [0.5]], np.float32)
    made = with_next_actions(SampleBatch({"obs": obs, "new_obs": reached, "actions": actions}))
    np.testing.assert_array_equal(made["next_actions_known"], [1, 0, 1, 1, 0])
    np.testing.assert_array_equal(made["next_actions"][[0, 2, 3]], actions[[1, 3, 4]])
