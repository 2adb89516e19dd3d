"""Players by many algorithms, alone and mixed, with choices and numbers, and batches of games that end together."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.decentralized import League, LearningPlayer, RandomPlayer, ScriptedPlayer
from rlframe.agents.decentralized.games import GamesRunner, Seat
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.utils.errors import ConfigError
from tests.helpers.frameworks import needs_tf
from tests.unit.agents.test_decentralized import DQN, PPO, Duel, one, rows_of, trainer


class Centre(MultiAgentEnv):
    """Two act at once with a number each, six times; the nearer to 0.5, the better."""

    def __init__(self, config=None):
        self.possible_agents = ["first", "second"]
        self.observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.rng, self.time = np.random.default_rng(seed), 0
        return self.see(), {}

    def see(self):
        return {agent: self.rng.uniform(-1, 1, 2).astype(np.float32) for agent in self.possible_agents}

    def step(self, action_dict):
        self.time += 1
        rewards = {agent: -float(abs(action[0] - 0.5)) for agent, action in action_dict.items()}
        return self.see(), rewards, {"__all__": self.time == 6}, {"__all__": False}, {}


SMALL = {"model": {"fcnet_hiddens": [8]}}
OFF = {**SMALL, "learning_starts": 8, "train_batch_size": 8, "rollout_fragment_length": 4}
SAC = {**OFF, "Q_model": SMALL["model"], "policy_model": SMALL["model"], "model": {}}
ON = {**SMALL, "train_batch_size": 32, "rollout_fragment_length": 16}
LSTM = {"model": {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 4}}


def learns(player, env, **options):
    """Lets a player learn beside a random one; returns whether its weights have moved, and are finite."""
    made = trainer(env=env, episodes_per_test=2, **options)
    made.test([player, RandomPlayer()])
    before, steps = np.array(player.policy.get_flat_weights()), player.gradient_steps
    result = made.train([player, RandomPlayer()], [1, 0], plot=False)
    after = player.policy.get_flat_weights()
    assert result["num_gradient_steps"] == player.gradient_steps - steps > 0
    return np.isfinite(after).all() and not np.array_equal(before, after)


@pytest.mark.parametrize(
    ("algorithm", "config"), [("SAC", SAC), ("TD3", OFF), ("DDPG", OFF), ("PPO", PPO), ("A2C", ON)]
)
def test_players_act_with_numbers(algorithm, config):
    assert learns(LearningPlayer(algorithm, config), Centre)


@pytest.mark.parametrize(("algorithm", "config"), [("A2C", ON), ("IMPALA", ON), ("APEX", OFF), ("SimpleQ", OFF)])
def test_players_choose_by_other_algorithms(algorithm, config):
    assert learns(LearningPlayer(algorithm, config), Duel)


@needs_tf
@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "config", "env"), [("PPO", PPO, Duel), ("DQN", OFF, Duel), ("SAC", SAC, Centre), ("TD3", OFF, Centre)]
)
def test_players_learn_in_tensorflow(algorithm, config, env):
    assert learns(LearningPlayer(algorithm, {**config, "framework": "tf"}), env)


def test_players_of_four_kinds_and_a_memory_meet_in_one_league_of_players():
    lstm = LearningPlayer("PPO", {**PPO, **LSTM}, name="lstm")
    made = trainer(env=Centre, episodes_per_test=2)
    others = [LearningPlayer("SAC", SAC), LearningPlayer("TD3", OFF), RandomPlayer(), ScriptedPlayer(half)]
    assert made.train([lstm, League(others)], [1, 1], plot=False)["num_gradient_steps"] > 0
    assert min(player.gradient_steps for player in (lstm, *others[:2])) > 0


def half(obs):
    return [0.5]


@pytest.mark.parametrize(("algorithm", "config"), [("PPO", PPO), ("DQN", OFF), ("R2D2", OFF)])
def test_players_with_a_memory_mind_the_mask(algorithm, config):
    player = LearningPlayer(algorithm, {**config, **LSTM})
    assert learns(player, Duel)  # a forbidden action would be an EnvError
    assert learns(player, Duel, share_experience="all")


def test_what_others_did_begins_a_memory_at_its_start():
    player = LearningPlayer("DQN", {**OFF, **LSTM})
    rows = rows_of(player, [("first", player, True, True), ("second", ScriptedPlayer(one))], share="all")
    assert len(rows["obs"]) == 4
    assert rows["seq_lens"].tolist() == [2, 2]
    assert not rows["state_in_0"].any()
    prev = {**LSTM, "model": {**LSTM["model"], "lstm_use_prev_action": True}}
    with pytest.raises(
        ConfigError, match=r"share_experience: got 'all', but player 'DQN' in seat 'first' acts on prev_"
    ):
        rows_of(player := LearningPlayer("DQN", {**OFF, **prev}), [("first", player, True), ("second", one_())], "all")


def one_():
    return ScriptedPlayer(one)


def test_players_say_themselves_what_they_learn_from():
    sharing, own = LearningPlayer("DQN", DQN, share_experience="all"), LearningPlayer("DQN", DQN)
    seats = [("first", sharing, True, False), ("second", own, True, False)]
    assert len(rows_of(sharing, seats)["obs"]) == 4
    assert own.feed.ready == 0  # two rows wait for more
    assert len(own.feed.get_state()["columns"]["obs"]) == 2
    with pytest.raises(ConfigError, match="player 'DQN': share_experience: got 'some', wanted 'own', 'all' or None"):
        LearningPlayer("DQN", share_experience="some")


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ("QMIX", "player 'me': got QMIX, which acts for groups"), ("MADDPG", "what all agents"), ("CQL", "from files"),
        ("DDPPO", "in workers"), ("A3C", "A2C"), ("SAC", "player 'me': SAC got observations with an action_mask"),
    ],
)  # fmt: skip
def test_algorithms_that_cannot_play_are_refused_with_the_players_name(algorithm, said):
    with pytest.raises(ConfigError, match=said):
        trainer().test([LearningPlayer(algorithm, name="me"), RandomPlayer()])


class Uneven(Duel):
    """Takes 4 moves in every second game, and 10 in the others."""

    def reset(self, *, seed=None, options=None):
        self.game = getattr(self, "game", -1) + 1
        self.extra = 6 if self.game % 2 else 0
        return super().reset()

    def step(self, action_dict):
        if self.time == 3 and self.extra:
            self.time, self.extra = 1, self.extra - 2
        return super().step(action_dict)


def test_games_that_wait_for_the_slowest_make_exact_batches():
    at, episodes = [], []
    player = LearningPlayer("PPO", {**PPO, "rollout_fragment_length": 4})
    made = trainer(
        env=Uneven, wait_for_slowest=True, num_train_envs=4, update_freq=4, test_freq=4, episodes_per_train=14,
        train_fn=lambda count, steps: (at.append((count, steps)), episodes.append([s.episode for s in made.train_env])),
    )  # fmt: skip
    result = made.train([player, RandomPlayer()], [1, 0], plot=False)
    assert result["num_collected_episodes"] == 16
    assert at == [(4, 4 * 4), (8, 4 * 14), (12, 4 * 18), (16, 4 * 28)]
    assert episodes == [[0] * 4, [1] * 4, [2] * 4, [3] * 4]
    assert result["test_episodes"] == [4, 8, 12, 16]
    assert result["num_gradient_steps"] == player.gradient_steps > 0


def test_a_game_that_is_over_rests_while_others_go_on():
    made = trainer(env=Uneven, num_train_envs=2)
    made.train_env[1].env.env.game = 0  # the second place has a long game first
    seats = [Seat("first", RandomPlayer()), Seat("second", RandomPlayer())]
    runner = GamesRunner(made.train_env, seats, share="own", fragment=6, seed=0, wait=True)
    runner.sample()
    assert (runner.agent_steps, runner.waits_for_games) == (12, True)  # 4 of one, 8 of the other, which is not over
    runner.sample()
    assert (runner.agent_steps, runner.waits_for_games) == (14, False)
    assert [game.length for game in runner.take_games()] == [4, 10]


def test_a_run_of_exact_batches_goes_on_exactly(tmp_path):
    def run(count, folder, resume=False):
        player = LearningPlayer("DQN", {**DQN, "replay_buffer_config": {"capacity": 200}})
        made = trainer(episodes_per_train=count, wait_for_slowest=True, checkpoint_dir=str(tmp_path / folder))
        result = made.train([player, RandomPlayer()], [1, 0], plot=False, resume=resume)
        return [result[key] for key in ("reward_metric_stats", "num_collected_steps")], player.policy.get_flat_weights()

    whole, weights = run(24, "whole")
    run(16, "parts")
    resumed, resumed_weights = run(24, "parts", resume=True)
    assert resumed == whole
    np.testing.assert_array_equal(weights, resumed_weights)
