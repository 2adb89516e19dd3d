"""Players of one game who each learn for themselves, on a game small enough to know every row."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.decentralized import (
    DecentralizedTrainer,
    HumanPlayer,
    League,
    LearningPlayer,
    RandomPlayer,
    ScriptedPlayer,
    elo_ratings,
    round_robin,
)
from rlframe.agents.decentralized.games import GamesRunner, Seat
from rlframe.agents.decentralized.statistics import wilson_interval
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.utils.errors import ConfigError, EnvError

SPACE = gym.spaces.Dict(
    {"action_mask": gym.spaces.Box(0, 1, (3,), np.int8), "observation": gym.spaces.Box(0, 9, (1,), np.float32)}
)


class Duel(MultiAgentEnv):
    """Two move in turns, four times in all. A move `a` costs its mover nothing and the other one `a`; the last wins."""

    def __init__(self, config=None):
        self.possible_agents = ["first", "second"]
        self.observation_space, self.action_space = SPACE, gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return {"first": self.see()}, {}

    def see(self):
        mask = np.ones(3, np.int8)
        mask[2] = self.time < 2  # the third action is forbidden in the second round
        return {"action_mask": mask, "observation": np.array([self.time], np.float32)}

    def step(self, action_dict):
        ((mover, action),) = action_dict.items()
        other = self.possible_agents[1 - self.possible_agents.index(mover)]
        self.time += 1
        over = self.time == 4
        rewards = {other: -float(action)} | ({mover: 10.0} if over else {})
        obs = {other: self.see()} | ({mover: self.see()} if over else {})
        return obs, rewards, {"__all__": over}, {"__all__": False}, {}


DQN = {"model": {"fcnet_hiddens": [8]}, "learning_starts": 8, "train_batch_size": 8, "rollout_fragment_length": 4}
PPO = {"model": {"fcnet_hiddens": [8]}, "train_batch_size": 32, "sgd_minibatch_size": 16, "num_sgd_iter": 2,
       "rollout_fragment_length": 16}  # fmt: skip


def one(obs):
    return 1


def trainer(**options):
    given = {"num_train_envs": 2, "num_test_envs": 2, "update_freq": 16, "test_freq": 8, "episodes_per_train": 16,
             "episodes_per_test": 2, "seed": 3, "env": Duel}  # fmt: skip
    return DecentralizedTrainer(**(given | options))


def rows_of(player, seats, share="own", games=1):
    """Returns the rows that a player is given of whole games, by column."""
    made = trainer(num_train_envs=games)
    runner = GamesRunner(made.train_env, [Seat(*seat) for seat in seats], share=share, fragment=4, seed=0)
    runner.sample()
    state = player.feed.get_state()
    player.feed.set_state({"columns": {}})
    return state["columns"]


def test_a_transition_ends_at_the_seats_next_turn_with_what_came_meanwhile():
    player = LearningPlayer("DQN", {**DQN, "gamma": 1.0})
    rows = rows_of(player, [("first", player, True, False), ("second", ScriptedPlayer(one))])
    assert rows["rewards"].tolist() == [-1.0, -1.0]  # the last of them by the other's last move, which ends the game
    assert rows["obs"][:, 3].tolist() == [0.0, 2.0]
    assert rows["new_obs"][:, 3].tolist() == [2.0, 4.0]
    assert rows["new_obs"][:, :3].tolist() == [[1, 1, 0], [1, 1, 0]]  # the next mask is part of the row
    assert rows["dones"].tolist() == [False, True]


@pytest.mark.parametrize(("share", "mask", "rows"), [("own", (1, 0), 2), ("own", (1, 1), 4), ("all", (1, 0), 4)])
def test_each_row_is_stored_once_however_often_a_player_sits(share, mask, rows):
    player = LearningPlayer("DQN", DQN)
    seats = [("first", player, bool(mask[0]), True), ("second", player, bool(mask[1]), True)]
    columns = rows_of(player, seats, share, games=3)
    assert len(columns["obs"]) == 3 * rows
    keys = list(zip(columns["eps_id"].tolist(), columns["agent_index"].tolist(), columns["t"].tolist(), strict=True))
    assert len(set(keys)) == 3 * rows


def test_windows_of_several_rewards_never_mix_seats():
    player = LearningPlayer("DQN", {**DQN, "n_step": 2, "gamma": 1.0})
    rows = rows_of(player, [("first", player, True, False), ("second", ScriptedPlayer(one))], share="all")
    by_seat = {int(index): rows["rewards"][rows["agent_index"] == index].tolist() for index in (0, 1)}
    assert by_seat[0] == [-2.0, -1.0]
    assert by_seat[1][1] == 10.0  # its last move: the game ends there
    assert by_seat[1][0] <= 10.0


def test_who_learns_on_policy_takes_its_own_rows_alone():
    player, other = LearningPlayer("PPO", PPO), LearningPlayer("PPO", PPO)
    seats = [("first", player, True, True), ("second", other, True, True)]
    assert len(rows_of(player, seats, share="all")["obs"]) == 2
    assert other.feed.ready == 0  # fewer than it samples at once: they wait


def test_exploration_is_per_seat_for_on_policy_players():
    player, chosen = LearningPlayer("PPO", PPO), {}
    made = trainer(num_train_envs=8)
    seats = [Seat("first", player, True, True), Seat("second", player, True, False)]
    runner = GamesRunner(made.train_env, seats, share="own", fragment=16, seed=0)
    runner.sample()
    columns = player.feed.get_state()["columns"]
    for seat in (0, 1):
        first_move = (columns["agent_index"] == seat) & (columns["turn"] == 0)
        chosen[seat] = set(columns["actions"][first_move].tolist())
    assert len(chosen[0]) > 1
    assert len(chosen[1]) == 1


def test_a_seat_that_does_not_learn_keeps_its_weights_bit_for_bit():
    learner, still = LearningPlayer("PPO", PPO), LearningPlayer("PPO", PPO, name="still")
    made = trainer()
    made.test([learner, still])
    before = [{name: np.array(value) for name, value in p.policy.get_weights().items()} for p in (learner, still)]
    result = made.train([learner, still], [1, 0], plot=False)
    assert result["num_gradient_steps"] == learner.gradient_steps > 0
    assert still.gradient_steps == 0
    same = [all(np.array_equal(p.policy.get_weights()[k], v) for k, v in b.items())
            for p, b in zip((learner, still), before, strict=True)]  # fmt: skip
    assert same == [False, True]


def test_hooks_are_called_when_the_documentation_says_and_best_is_the_best_ever(tmp_path):
    metrics, said = iter([1.0, 3.0, 2.0, 2.5, 4.0]), []
    made = trainer(
        test_freq=4, episodes_per_train=20, update_freq=8, reward_metric=lambda returns: next(metrics),
        train_fn=lambda episodes, steps: said.append(("train", episodes)),
        test_fn=lambda episodes, steps: said.append(("test", episodes, steps)),
        save_best_fn=lambda episodes: said.append(("best", episodes)), save_last_fn=lambda: said.append(("last",)),
    )  # fmt: skip
    pytest.importorskip("matplotlib")
    result = made.train([LearningPlayer("PPO", PPO), RandomPlayer()], [1, 0], plot=str(tmp_path / "curve.png"))
    assert result["reward_metric_stats"] == [1.0, 3.0, 2.0, 2.5, 4.0]
    assert [episodes for kind, *(episodes,) in (s for s in said if s[0] == "best")] == [4, 8, 20]
    assert [s[1] for s in said if s[0] == "train"] == list(range(2, 21, 2))
    assert said.count(("test", 2, 8)) == 5
    assert said[-1] == ("last",)
    assert (tmp_path / "curve.png").stat().st_size > 1000
    keys = {"num_collected_steps", "num_collected_episodes", "num_gradient_steps", "training_time"}
    assert keys <= set(result)
    assert result["num_collected_steps"] == 4 * result["num_collected_episodes"] == 80


def test_training_stops_when_stop_fn_says_so():
    asked = []
    made = trainer(episodes_per_train=1000, stop_fn=lambda metric, episodes: asked.append(episodes) or len(asked) == 2)
    assert made.train([LearningPlayer("PPO", PPO), RandomPlayer()], [1, 0], plot=False)["num_collected_episodes"] < 20


def test_the_same_seed_gives_the_same_run_and_a_resumed_one_goes_on_exactly(tmp_path):
    def run(episodes, directory, resume=False):
        player = LearningPlayer("DQN", {**DQN, "replay_buffer_config": {"capacity": 200}})
        made = trainer(episodes_per_train=episodes, checkpoint_dir=str(tmp_path / directory))
        result = made.train([player, RandomPlayer()], [1, 0], plot=False, resume=resume)
        return result, player.policy.get_flat_weights()

    whole, weights = run(24, "whole")
    run(16, "parts")
    resumed, resumed_weights = run(24, "parts", resume=True)
    for key in ("reward_metric_stats", "test_episodes", "num_collected_steps", "num_gradient_steps"):
        assert resumed[key] == whole[key]
    np.testing.assert_array_equal(weights, resumed_weights)
    assert whole["num_gradient_steps"] > 0


def test_a_test_says_who_won_from_which_seat():
    made = trainer(episodes_per_test=4)
    result = made.test([ScriptedPlayer(one), ScriptedPlayer(one, name="two")], eval_metrics=True)
    assert result["reward"] == pytest.approx((-2 - 2 + 10) / 2)
    assert (result["mean_num_steps"], result["num_collected_steps"], result["num_collected_episodes"]) == (4, 16, 4)
    assert (result["time_spans"], result["count_wins"], result["illegal_moves"]) == (4, {"second": 4}, 0)
    assert result["seats"]["first"]["loss"]["rate"] == 1.0


def test_a_frozen_self_and_a_league_play_as_they_were():
    learner = LearningPlayer("PPO", PPO)
    made = trainer(episodes_per_train=8)
    made.train([learner, RandomPlayer()], [1, 0], plot=False)
    past = learner.frozen("past")
    league = League([past, RandomPlayer()])
    made.train([learner, league], [1, 0], plot=False)
    assert not np.array_equal(past.policy.get_flat_weights(), learner.policy.get_flat_weights())
    assert {league.member_for(0, episode).name for episode in range(20)} == {"past", "RandomPlayer"}


def test_a_player_comes_back_from_its_checkpoint(tmp_path):
    learner = LearningPlayer("PPO", PPO)
    made = trainer()
    made.test([learner, RandomPlayer()])
    again = LearningPlayer("PPO", PPO, checkpoint=learner.save(str(tmp_path)), name="again")
    made.test([RandomPlayer(), again])
    np.testing.assert_array_equal(again.policy.get_flat_weights(), learner.policy.get_flat_weights())


def test_a_person_is_asked_until_the_move_is_allowed():
    answers, told = iter(["x", "7", "1", "2", "0"]), []
    person = HumanPlayer(ask=lambda question: next(answers), tell=told.append)
    made = trainer(num_test_envs=1, episodes_per_test=1)
    result = made.test([person, ScriptedPlayer(one)], eval_metrics=True)
    assert result["seats"]["second"]["mean_return"] == 10.0 - 1.0 - 0.0
    assert "got 'x', wanted one of [0, 1, 2]" in told
    assert "got '2', wanted one of [0, 1]" in told


def test_rates_and_ratings_are_those_worked_out_by_hand():
    low, high = wilson_interval(9, 10)
    assert (low, high) == (pytest.approx(0.5958, abs=1e-4), pytest.approx(0.9821, abs=1e-4))
    ratings = elo_ratings({("a", "b"): (90.5, 109)})  # with one draw added: 91 of 110
    assert ratings["a"] - ratings["b"] == pytest.approx(400 * np.log10(91 / 19), abs=1e-3)
    table = round_robin(trainer(), [ScriptedPlayer(one), ScriptedPlayer(lambda obs: 0, name="zero")])
    assert set(table["ratings"]) == {"one", "zero"}
    told = table["games"]["zero vs one"]
    assert told["seats"]["second"]["win"]["rate"] == 1.0
    assert (told["time_spans"], told["illegal_moves"], told["num_games"]) == (4, 0, 2)


class OtherSpaces(Duel):
    def __init__(self, config=None):
        super().__init__()
        other = gym.spaces.Dict({**SPACE.spaces, "observation": gym.spaces.Box(0, 9, (2,), np.float32)})
        self.observation_spaces = {"first": SPACE, "second": other}
        self.action_spaces = dict.fromkeys(self.possible_agents, self.action_space)


def broken(*_):
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("mask", "exploring", "said"),
    [
        ((1,), None, r"learning_mask: got \[1\], wanted 0 or 1 for each of the 2 seats"),
        ((1, 2), None, r"learning_mask: got \[1, 2\]"),
        ((0, 0), None, "learning_mask: got no 1"),
        ((0, 1), None, "seat 'second' shall learn, but player 'one' cannot"),
        ((1, 0), (1,), r"exploration_mask: got \[1\]"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask, exploring, said):
    with pytest.raises(ConfigError, match=said):
        trainer().train([LearningPlayer("PPO", PPO), ScriptedPlayer(one)], mask, exploring, plot=False)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (lambda obs: 5, "seat 'second': player 'bad' chose action 5, wanted one of"),
        (lambda obs: 2, r"seat 'second': player 'bad' chose action 2, .* \[0, 1\]"),
        (broken, "seat 'second': player 'bad' raised RuntimeError: no"),
    ],
)
def test_a_player_that_moves_illegally_is_named_with_its_seat(script, said):
    with pytest.raises(EnvError, match=said):
        trainer().test([ScriptedPlayer(one), ScriptedPlayer(script, name="bad")])


def test_other_bad_input_is_answered_in_one_sentence():
    player = RandomPlayer()
    with pytest.raises(ConfigError, match="seat 'second': player 'RandomPlayer' sits in seat 'first', too"):
        trainer(env=OtherSpaces).test([player, player])
    with pytest.raises(ConfigError, match=r"save_best_fn\(8\) raised RuntimeError: no"):
        trainer(save_best_fn=broken).train([LearningPlayer("PPO", PPO), player], [1, 0], plot=False)
    with pytest.raises(ConfigError, match="reward_metric: got nan"):
        trainer(reward_metric=lambda returns: np.nan).test([player, player])
    with pytest.raises(ConfigError, match="wanted a Player for each of the 2 seats"):
        trainer().test([player])
    with pytest.raises(ConfigError, match="num_train_envs: got 0"):
        trainer(num_train_envs=0)
    with pytest.raises(EnvError, match="wanted a game of several agents"):
        trainer(env="CartPole-v1")
    with pytest.raises(ConfigError, match="wanted a function of an observation"):
        ScriptedPlayer(3)
    with pytest.raises(ConfigError, match="wanted two or more players of different names"):
        round_robin(trainer(), [player, player])
