"""Learned environments as vectorised ones."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

from rlframe.revive.functions import RewardFunction
from rlframe.revive.vector_env import ENV_ID, VirtualVectorEnv
from rlframe.revive.venv_model import VirtualEnv
from rlframe.utils.errors import ConfigError
from tests.unit.revive.test_venv import linear_member, spring_data

REWARD = "def get_reward(data):\n    return -abs(data['next_x'][..., :1])\n"


def reward():
    return RewardFunction("reward.py", "get_reward", "", lambda data: -np.abs(data["next_x"][..., :1]))


@pytest.fixture(scope="module")
def data():
    return spring_data()


def make(data, members=1, **options):
    venv = VirtualEnv(data.graph, [linear_member(data, bias=0.1 * place) for place in range(members)])
    return VirtualVectorEnv(venv, data, reward(), **{"num_envs": 4, "seed": 0, **options})


def logged_actions(data, rows):
    return data.graph.scalers["force"].scale(data.arrays["force"][rows])


def test_logged_actions_lead_along_the_log_to_its_end(data):
    env, rows = make(data), np.array([0, 24, 72, 170])
    obs, _ = env.reset(options={"rows": rows})
    assert np.allclose(obs, data.graph.scalers["x"].scale(data.arrays["x"][rows]), atol=1e-6)
    lengths = 24 - rows % 24  # 24 transitions in each trajectory
    for step in range(3):
        obs, rewards, terminated, truncated, infos = env.step(logged_actions(data, np.minimum(rows + step, 191)))
        going_on = step < lengths
        wanted = -np.abs(data.arrays["next_x"][np.minimum(rows + step, 191), 0])
        assert np.allclose(rewards[going_on], wanted[going_on], atol=1e-3)
        assert not terminated.any()
        assert not infos
        assert np.array_equal(truncated, lengths == step + 1)


def test_the_end_of_a_log_is_the_end_where_it_says_done_and_else_is_broken_off(data):
    done = np.zeros((len(data), 1), np.float32)
    done[23] = 1
    env = make(dataclasses.replace(data, done=done))
    env.reset(options={"rows": np.array([22, 46, 0, 0])})
    env.step(np.zeros((4, 1)))
    _, _, terminated, truncated, _ = env.step(np.zeros((4, 1)))
    assert terminated.tolist() == [True, False, False, False]
    assert truncated.tolist() == [False, True, False, False]


def test_a_slot_begins_anew_in_the_step_behind_its_end_and_others_go_on(data):
    env = make(data, horizon=3)
    env.reset(options={"rows": np.array([0, 1, 22, 5])})
    ends = [env.step(np.zeros((4, 1)))[3].tolist() for _ in range(5)]
    assert ends[1] == [False, False, True, False]  # the log of its trajectory ends
    assert ends[2] == [True, True, False, True]
    assert ends[3] == [False] * 4
    rows_before = env._rows.copy()
    obs, rewards, *_ = env.step(np.ones((4, 1)))
    assert rewards.shape == (4,)
    assert obs.dtype == np.float32
    assert np.array_equal(env._rows[[0, 1, 3]], rows_before[[0, 1, 3]] + 1)


def test_the_reward_of_a_reset_is_zero_and_episodes_repeat_with_their_seed(data):
    runs = []
    for _ in range(2):
        env = make(data, horizon=2)
        found = [env.reset(seed=7)[0]]
        rewards = []
        for step in range(4):
            obs, reward_, *_ = env.step(np.full((4, 1), 0.1 * step))
            found.append(obs)
            rewards.append(reward_)
        assert (rewards[2] == 0).all()
        assert (rewards[3] != 0).all()
        runs.append(np.concatenate(found))
    assert np.array_equal(*runs)


def test_the_step_that_nodes_see_is_that_of_the_trajectory(data):
    env = make(data)
    env.reset(options={"rows": np.array([0, 5, 24, 30])})
    env.step(np.zeros((4, 1)))
    assert (data.steps[env._first_rows] + env._steps).tolist() == [1, 6, 1, 7]


def test_disagreement_is_told_and_penalised(data):
    plain, wary = make(data, members=2), make(data, members=2, penalty=2.0)
    for env in (plain, wary):
        env.reset(options={"rows": np.arange(4)})
    _, before, _, _, infos = plain.step(np.zeros((4, 1)))
    _, after, *_ = wary.step(np.zeros((4, 1)))
    assert infos["uncertainty"] == pytest.approx(0.05, abs=1e-3)
    assert np.allclose(before - after, 2.0 * infos["uncertainty"], atol=1e-5)


def test_a_wrong_member_is_named(data):
    with pytest.raises(ConfigError, match="member is 1; the environment has 1, counted from 0"):
        make(data, member=1)


def test_the_registered_environment_is_that_of_the_files_and_ppo_trains_in_it(data, tmp_path):
    from rlframe.agents.ppo import PPOTrainer

    for half in ("train", "val"):
        VirtualEnv(data.graph, [linear_member(data)]).save(tmp_path / "venv" / half)
    arrays = {name: data.arrays[name] for name in ("x", "force", "push", "next_x")}
    np.savez(tmp_path / "data.npz", **arrays, index=data.ends)
    (tmp_path / "reward.py").write_text(REWARD)
    options = {
        "path": str(tmp_path / "venv"),
        "data": str(tmp_path / "data.npz"),
        "reward": str(tmp_path / "reward.py"),
    }
    env = gym.make(ENV_ID, **options, half="val", horizon=5)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    assert env.unwrapped.vector_env.half == "val"
    trainer = PPOTrainer(
        config={
            "env": ENV_ID, "env_config": {**options, "horizon": 10}, "vectorized_env": True, "num_workers": 0,
            "num_envs_per_worker": 16, "rollout_fragment_length": 11, "train_batch_size": 160, "num_sgd_iter": 1,
            "model": {"fcnet_hiddens": [8]},
        }
    )  # fmt: skip
    result = trainer.train()
    trainer.stop()
    assert result["episodes_total"] >= 16  # more where the log of a trajectory ends
    assert result["episode_len_mean"] <= 10
