"""Players of one game: what resumed runs, filters, keys of players and spaces of seats come to."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.decentralized import DecentralizedTrainer, League, LearningPlayer, RandomPlayer, ScriptedPlayer
from rlframe.agents.decentralized.games import GamesRunner, Seat
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.utils.errors import CheckpointError, ConfigError, EnvError
from tests.unit.agents.test_decentralized import DQN, PPO, Duel, OtherSpaces, one, rows_of, trainer


def test_a_run_whose_league_has_grown_goes_on_with_everybody_in_the_right_place(tmp_path):
    def run(episodes, directory, *, grow=True, resume=False, joined=()):
        learner, league = LearningPlayer("PPO", PPO), League([RandomPlayer("past0"), *joined])

        def grows(at, steps):
            if grow and at == 8 and len(league.members) == 1:
                league.add(learner.frozen("past1"))

        made = trainer(episodes_per_train=episodes, train_fn=grows, checkpoint_dir=str(tmp_path / directory))
        made.train([league, learner], [0, 1], plot=False, resume=resume)
        return [player.policy.get_flat_weights() for player in (learner, league.members[-1])]

    whole = run(24, "whole")
    run(16, "parts")
    resumed = run(24, "parts", resume=True, joined=[LearningPlayer("PPO", PPO, name="past1")])
    assert not np.array_equal(*whole)
    np.testing.assert_array_equal(whole, resumed)
    with pytest.raises(CheckpointError, match=r"missing here: .*'past1' in seat 'first', place 1"):
        run(24, "parts", grow=False, resume=True, joined=[LearningPlayer("PPO", PPO, name="other")])


def test_what_a_hook_did_is_in_the_checkpoint_of_its_batch(tmp_path):
    def run(episodes, joined=(), resume=False):
        league = League([ScriptedPlayer(one), *joined])
        hook = lambda at, steps: at == 8 and league.add(RandomPlayer())  # noqa: E731
        made = trainer(episodes_per_train=episodes, train_fn=hook, checkpoint_dir=str(tmp_path))
        return made.train([LearningPlayer("PPO", PPO), league], [1, 0], plot=False, resume=resume)

    run(8)  # who joined at the eighth game, at which the run ends, and has not played, is saved
    assert run(12, [RandomPlayer()], resume=True)["num_collected_episodes"] >= 12


def test_filters_learn_in_seats_that_learn_alone_and_go_with_copies_and_checkpoints(tmp_path):
    learner = LearningPlayer("PPO", {**PPO, "observation_filter": "MeanStdFilter"})
    made = trainer()
    runner = GamesRunner(
        made.train_env, [Seat("first", learner, True), Seat("second", learner)], share="own", fragment=4, seed=0
    )
    runner.sample()
    statistics = learner.policy._obs_filter.get_state()["rs"]
    count = statistics["n"]
    assert count % 2 == 0
    assert (statistics["mean"][-1] * count) % 2 == 0  # times at which the first seat moves, and ends
    still = [learner.frozen(), LearningPlayer("PPO", learner._config, checkpoint=learner.save(str(tmp_path)))]
    for player in still:
        made.test([learner, player])
        assert player.policy._obs_filter.get_state()["rs"]["n"] == count
        np.testing.assert_array_equal(player.policy._obs_filter.rs.mean, statistics["mean"])
    assert learner.policy._obs_filter.rs.n == count > 0


def test_rewards_are_clipped_as_the_player_that_learns_says():
    player = LearningPlayer("DQN", {**DQN, "clip_rewards": 0.25, "gamma": 1.0})
    rows = rows_of(player, [("first", player, True, False), ("second", ScriptedPlayer(one))])
    assert rows["rewards"].tolist() == [-0.25, -0.25]


class Watches(DefaultCallbacks):
    def on_episode_end(self, **kwargs):
        """Would never be called."""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_workers", 2), ("evaluation_interval", 1), ("horizon", 3), ("batch_mode", "complete_episodes"),
        ("callbacks", Watches),
    ],
)  # fmt: skip
def test_keys_that_a_player_cannot_mind_are_refused_with_its_name(key, value):
    with pytest.raises(ConfigError, match=f"player 'me': {key}: got .*wanted"):
        trainer().test([LearningPlayer("PPO", {key: value}, name="me"), RandomPlayer()])


class AtOnce(MultiAgentEnv):
    """Both move at once, four times."""

    def __init__(self, config=None):
        self.possible_agents = ["first", "second"]
        self.observation_space, self.action_space = gym.spaces.Discrete(5), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return dict.fromkeys(self.possible_agents, 0), {}

    def step(self, action_dict):
        self.time += 1
        over = {"__all__": self.time == 4}
        both = self.possible_agents
        return dict.fromkeys(both, self.time), dict.fromkeys(both, 1.0), over, {"__all__": False}, {}


def test_steps_between_updates_are_those_of_all_agents():
    seats = [Seat("first", RandomPlayer()), Seat("second", RandomPlayer())]
    runner = GamesRunner(trainer(env=AtOnce).train_env, seats, share="own", fragment=8, seed=0)
    runner.sample()
    assert runner.agent_steps == 16  # eight for each of two games


@pytest.mark.parametrize("action", [None, "left", [0, 1]])
def test_what_is_no_action_is_told_with_seat_and_player(action):
    with pytest.raises(EnvError, match="seat 'second': player 'bad' raised TypeError: chose"):
        trainer().test([ScriptedPlayer(one), ScriptedPlayer(lambda obs: action, name="bad")])


def test_rows_are_shared_among_seats_of_the_same_spaces_alone():
    players = [LearningPlayer("DQN", DQN), RandomPlayer()]
    with pytest.raises(ConfigError, match=r"share_experience: got 'all', .*'first' .*'second'"):
        trainer(env=OtherSpaces, share_experience="all").train(players, [1, 0], plot=False)


class Stuck(Duel):
    """Nothing is allowed in the second round."""

    def see(self):
        return super().see() | {"action_mask": np.full(3, self.time < 2, np.int8)}


def test_moves_where_nothing_is_allowed_are_counted_and_must_be_actions_all_the_same():
    made = trainer(env=Stuck, episodes_per_test=4)
    assert made.test([ScriptedPlayer(one), RandomPlayer()], eval_metrics=True)["illegal_moves"] == 4 * 2
    with pytest.raises(EnvError, match=r"player 'bad' chose action 3, wanted one of .*: \[\]"):
        made.test([ScriptedPlayer(one), ScriptedPlayer(lambda obs: 1 if obs["observation"] < 2 else 3, name="bad")])


class Unpaid(Duel):
    """Ends with the first move; the other one neither moves nor gets anything."""

    def step(self, action_dict):
        return {"first": self.see()}, {"first": 1.0}, {"__all__": True}, {"__all__": False}, {}


def test_a_game_that_ends_without_a_result_for_a_seat_is_refused_with_seat_and_player():
    with pytest.raises(EnvError, match=r"seat 'second': .* ended without a turn and a reward for player 'idle'"):
        trainer(env=Unpaid).test([ScriptedPlayer(one), RandomPlayer("idle")])


def test_a_player_of_another_game_is_refused_with_what_it_sees_and_what_the_seat_has():
    player = LearningPlayer("PPO", PPO, name="guest")
    trainer(env=AtOnce).test([player, player])
    with pytest.raises(ConfigError, match=r"seat 'first': player 'guest' sees .*, but the seat has .*; seat another"):
        trainer().test([player, RandomPlayer()])


def test_a_run_goes_on_with_the_same_games_and_the_seed_it_began_with(tmp_path):
    def run(episodes, seed, resume=False, folder="parts", **options):
        learner = LearningPlayer("DQN", {**DQN, **options.pop("config", {})})
        league = League([RandomPlayer("one"), RandomPlayer("two")])
        made = trainer(episodes_per_train=episodes, seed=seed, checkpoint_dir=str(tmp_path / folder), **options)
        made.train([learner, league], [1, 0], plot=False, resume=resume)
        return learner.policy.get_flat_weights()

    whole = run(16, 5, folder="whole")
    run(8, 5)
    for options in ({"num_train_envs": 3}, {"wait_for_slowest": True}):
        with pytest.raises(CheckpointError, match="resume wants games as they were saved"):
            run(16, 5, resume=True, **options)
    with pytest.raises(CheckpointError, match="player 'DQN' in seat 'first', place 0 is not as it was saved: weights"):
        run(16, 5, resume=True, config={"model": {"fcnet_hiddens": [9]}})
    np.testing.assert_array_equal(whole, run(16, 7, resume=True))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"update_freq": 2.5}, "update_freq: got 2.5, wanted an integer of at least 1"),
        ({"batch_size": 0}, "batch_size: got 0, wanted"), ({"seed": "a"}, "seed: got 'a', wanted an integer"),
        ({"stop_fn": 3}, "stop_fn: got 3, wanted a function"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_are_refused_before_anything_is_made(options, said):
    with pytest.raises(ConfigError, match=said):
        trainer(**options)


def test_what_does_not_fit_a_player_is_said_with_its_name(tmp_path):
    made, guest = trainer(), LearningPlayer("PPO", PPO, name="guest")
    with pytest.raises(ConfigError, match="player 'guest' has no policy yet"):
        guest.save(str(tmp_path))
    made.test([guest, RandomPlayer()])
    saved = guest.save(str(tmp_path))
    wider = LearningPlayer("PPO", {**PPO, "model": {"fcnet_hiddens": [9]}}, checkpoint=saved, name="wider")
    with pytest.raises(ConfigError, match=r"player .wider.: its weights, .*, are of another network: .*9, 1"):
        made.test([wider, RandomPlayer()])
    with pytest.raises(CheckpointError, match="player 'none': no checkpoint at"):
        made.test([LearningPlayer("PPO", PPO, checkpoint=str(tmp_path / "no"), name="none"), RandomPlayer()])
    with pytest.raises(ConfigError, match="got the algorithm 3, wanted a name such as 'DQN'"):
        LearningPlayer(3)
    with pytest.raises(ConfigError, match=r"player .Needs.: making Needs\(\) raised TypeError"):
        ScriptedPlayer(Needs)
    with pytest.raises(EnvError, match=r"seat .second.: player .half. raised TypeError: chose 0\.5"):
        made.test([RandomPlayer(), ScriptedPlayer(lambda obs: 0.5, name="half")])
    with pytest.raises(ConfigError, match=r"learning_mask: got \[1\], wanted 0 or 1 for each of the 2 seats"):
        made.train([guest, RandomPlayer()], 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"plot: got .*curve.png', wanted a file in a folder that can be written"):
        made.train([guest, RandomPlayer()], [1, 0], plot=str(tmp_path / "file" / "curve.png"))
    with pytest.raises(ConfigError, match="reward_metric: got 'good' of the returns"):
        trainer(reward_metric=lambda returns: "good").test([guest, RandomPlayer()])


class Needs:
    def __init__(self, size):
        """Wants a size."""


def test_the_metric_of_a_seat_is_its_mean_return():
    players = [ScriptedPlayer(one), ScriptedPlayer(one, name="two")]
    assert trainer(reward_metric="first").test(players)["reward"] == -2.0
    assert trainer(reward_metric="second").test(players)["reward"] == 8.0
    with pytest.raises(ConfigError, match=r"reward_metric: got 'third', wanted a function of .*, one of the seats"):
        trainer(reward_metric="third")


def test_attributes_of_games_are_set_in_every_place_and_unknown_ones_are_refused():
    made = DecentralizedTrainer(
        {"num_players": 2, "required_mail": 1, "max_step": 9}, 1, 2, episodes_per_test=2, seed=0
    )
    made.test_env.set_env_attr("max_step", 5)
    assert made.test_env.get_env_attr("max_step") == [5, 5]
    assert made.train_env.get_env_attr("max_step") == [9]
    assert made.test([RandomPlayer(), RandomPlayer("other")])["mean_num_steps"] == 5
    with pytest.raises(ConfigError, match="MailSorting has no attribute 'most_steps'"):
        made.test_env.set_env_attr("most_steps", 5)


def test_a_curve_that_cannot_be_drawn_is_refused_before_training():
    with pytest.raises(ConfigError, match=r"plot: got 'curve.foo', wanted a file that ends with one of .png"):
        trainer(train_fn=lambda *_: pytest.fail("it trains")).train(
            [LearningPlayer("PPO", PPO), RandomPlayer()], [1, 0], plot="curve.foo"
        )
