"""Games and environments of several agents at RLlib's paths: what they pay, and that trainers play them."""

from __future__ import annotations

import pickle

import cloudpickle
import numpy as np
import pytest

from rlframe.agents.ppo import PPOTrainer
from rlframe.env.base_env import BaseEnv
from rlframe.examples.env.coin_game import AsymCoinGame, CoinGame, VectorizedCoinGame
from rlframe.examples.env.episode_infos import TwoPlayersTwoActionsInfoMixin
from rlframe.examples.env.multi_agent import EarlyDoneMultiAgent, FlexAgentsMultiAgent, MultiAgentDebugCounterEnv
from rlframe.examples.env.social_dilemmas import MatrixSequentialSocialDilemma, define_greed_fear_matrix_game
from rlframe.examples.env.toy_envs import MockVectorEnv
from rlframe.utils.errors import EnvError

RIGHT, LEFT, DOWN, UP = range(4)
QUICK = {
    "num_workers": 0, "rollout_fragment_length": 40, "train_batch_size": 80, "sgd_minibatch_size": 40,
    "num_sgd_iter": 1, "min_iter_time_s": 0, "seed": 0, "log_sys_usage": False, "model": {"fcnet_hiddens": [4]},
}  # fmt: skip


def laid_out(game, red, blue, coin, red_coin):
    """Puts players and the coin on their fields of a game that has begun."""
    game.reset(seed=0)
    game.red_pos, game.blue_pos, game.coin_pos = np.array(red), np.array(blue), np.array(coin)
    game.red_coin = np.array(red_coin)
    return game


@pytest.mark.parametrize(
    ("cls", "red_coin", "moves", "paid"),
    [
        (CoinGame, 1, (RIGHT, RIGHT), (1.0, 0.0)),
        (CoinGame, 0, (RIGHT, RIGHT), (1.0, -2.0)),
        (CoinGame, 1, (LEFT, UP), (-2.0, 1.0)),
        (CoinGame, 0, (LEFT, UP), (0.0, 1.0)),
        (CoinGame, 1, (RIGHT, UP), (-1.0, 1.0)),
        (CoinGame, 1, (LEFT, RIGHT), (0.0, 0.0)),
        (AsymCoinGame, 1, (RIGHT, RIGHT), (4.0, 0.0)),
        (AsymCoinGame, 0, (RIGHT, RIGHT), (4.0, -2.0)),
    ],
)
def test_a_coin_pays_who_steps_on_it_and_costs_whose_colour_it_has(cls, red_coin, moves, paid):
    game = laid_out(cls({}), [0, 0], [1, 1], [0, 1], red_coin)
    obs, rewards, dones, infos = game.step({"player_red": moves[0], "player_blue": moves[1]})
    assert tuple(rewards.values()) == paid
    assert (dones["__all__"], infos) == (False, {})
    picked = any(paid)
    assert int(game.red_coin) == (1 - red_coin if picked else red_coin)
    fields = {tuple(place) for place in (game.red_pos, game.blue_pos, game.coin_pos)}
    assert len(fields) == 3 or (game.red_pos == game.blue_pos).all()
    assert all(game.OBSERVATION_SPACE.contains(seen) for seen in obs.values())
    # What one sees as its own, the other sees as the other's.
    assert (obs["player_red"][..., [1, 0, 3, 2]] == obs["player_blue"]).all()


def test_one_of_two_that_come_at_the_same_time_is_drawn_where_both_may_not():
    won = set()
    for seed in range(20):
        game = laid_out(CoinGame({"both_players_can_pick_the_same_coin": False}), [0, 0], [0, 2], [0, 1], 1)
        game.seed(seed)
        won.add(tuple(game.step({"player_red": RIGHT, "player_blue": LEFT})[1].values()))
    assert won == {(1.0, 0.0), (-2.0, 1.0)}


def test_coin_games_tell_how_fast_and_what_was_picked():
    game = laid_out(CoinGame({"max_steps": 2, "players_ids": ["a", "b"]}), [0, 0], [1, 1], [0, 1], 1)
    game.step({"a": RIGHT, "b": RIGHT})
    game.coin_pos, game.red_coin = (game.red_pos + np.array([1, 0])) % 3, np.array(0)
    infos = game.step({"a": DOWN, "b": UP})[3]
    assert infos["a"] == {"pick_speed": 1.0, "pick_own_color": 0.5}


def test_games_at_once_are_games_beside_each_other():
    game = VectorizedCoinGame({"batch_size": 2, "max_steps": 1})
    game.reset(seed=0)
    game.red_pos, game.blue_pos = np.array([[0, 0], [0, 0]]), np.array([[1, 1], [1, 1]])
    game.coin_pos, game.red_coin = np.array([[0, 1], [0, 1]]), np.array([1, 0])
    before = game._save_env()
    obs, rewards, _, infos = game.step({"player_red": [RIGHT, RIGHT], "player_blue": [RIGHT, UP]})
    assert [reward.tolist() for reward in rewards.values()] == [[1.0, 1.0], [0.0, -1.0]]
    assert obs["player_red"].shape == (2, 3, 3, 4)
    assert infos["player_red"] == {"pick_speed": 1.0, "pick_own_color": 0.5}
    game._load_env(before)
    assert (game.red_pos == 0).all()
    assert game.red_pick == []


@pytest.mark.parametrize("options", [{"players_ids": ["a"]}, {"asymmetric": False}])
def test_coin_games_say_what_they_do_not_take(options):
    with pytest.raises(EnvError, match=r"two of them|use CoinGame"):
        AsymCoinGame(options)


def test_a_matrix_game_of_ones_own_tells_by_the_part_in_front_of_it():
    class Mine(TwoPlayersTwoActionsInfoMixin, MatrixSequentialSocialDilemma):
        PAYOUT_MATRIX = np.zeros((2, 2, 2))

    game = Mine({"max_steps": 2})
    game.reset()
    game.step({"player_row": 0, "player_col": 1})
    assert game.step({"player_row": 1, "player_col": 1})[3]["player_row"] == {
        "CC": 0.0,
        "DD": 0.5,
        "CD": 0.5,
        "DC": 0.0,
    }


@pytest.mark.parametrize(
    ("env", "config"),
    [
        (lambda config: EarlyDoneMultiAgent(), {}),
        (lambda config: FlexAgentsMultiAgent(), {}),
        (MultiAgentDebugCounterEnv, {"num_agents": 2, "base_episode_len": 5}),
        (CoinGame, {"max_steps": 5}),
        (lambda config: MockVectorEnv(10, 4), {}),
    ],
    ids=["early", "flex", "counter", "coins", "one_cartpole_for_four"],
)
def test_trainers_play_them(env, config):
    model = {"conv_filters": [[4, [3, 3], 1]]} if env is CoinGame else {}
    options = {**QUICK, "model": {**QUICK["model"], **model}, "env_config": config}
    result = PPOTrainer({**options, "framework": "torch", "horizon": 30}, env=env).train()
    assert np.isfinite(result["episode_reward_mean"])
    assert result["episodes_total"] > 1


def test_an_episode_ends_early_and_agents_come_and_go():
    early = EarlyDoneMultiAgent()
    assert early.reset() == {0: 0}
    steps = []
    while not steps or not steps[-1][2]["__all__"]:
        steps.append(early.step({len(steps) % 2: 0}))
    assert len(steps) == 6
    assert steps[-1][1] == {0: 0.0}
    assert sum(reward for step in steps for reward in step[1].values()) == 2.0 + 2.0 + 0.0
    flexible = FlexAgentsMultiAgent()
    flexible.reset(seed=0)
    for _ in range(20):
        obs, _, dones, _ = flexible.step(dict.fromkeys(flexible.agents, 0))
        assert set(flexible.agents) == {agent for agent in obs if not dones.get(agent)}
    assert flexible.agentID > 2


def test_one_environment_may_stand_for_several():
    env = MockVectorEnv(3, 4)
    assert isinstance(BaseEnv.to_base_env(env, None, 4), BaseEnv)
    assert len(env.vector_reset()) == 4
    obs, rewards, dones, _ = env.vector_step([0, 1, 0, 1])
    assert (len(obs), rewards, dones) == (4, [1.0] * 4, [False] * 4)
    env.vector_step([0, 1, 0, 1])
    assert env.vector_step([0, 1, 0, 1])[2] == [True] * 4


def test_a_game_that_a_function_made_goes_to_remote_workers():
    made = define_greed_fear_matrix_game(greed=2, fear=3)
    there = pickle.loads(cloudpickle.dumps(made))
    assert there.NAME == made.NAME
    assert there({}).reset() == {"player_row": 4, "player_col": 4}
