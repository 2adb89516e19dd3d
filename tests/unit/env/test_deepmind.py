"""Environments of DeepMind's libraries under RLlib's names: `dm_env`, the Control Suite, OpenSpiel's games."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.ppo import PPOTrainer
from rlframe.env.checks import check_env
from rlframe.env.registry import resolve_env
from rlframe.env.wrappers.dm_control_wrapper import DMCEnv
from rlframe.env.wrappers.dm_env_wrapper import DMEnv
from rlframe.env.wrappers.open_spiel import PENALTY, OpenSpielEnv
from rlframe.utils.errors import EnvError

dm_env = pytest.importorskip("dm_env")


class Counting(dm_env.Environment):
    """Counts to three; the last step's discount is 1 where action 1 was taken: time was over."""

    def __init__(self, dtype=np.float64):
        self.count, self.dtype = 0, dtype

    def reset(self):
        self.count = 0
        return dm_env.restart(self.seen())

    def step(self, action):
        self.count += 1
        if self.count < 3:
            return dm_env.transition(reward=0.5, observation=self.seen())
        end = dm_env.truncation if action == 1 else dm_env.termination
        return end(reward=2.0, observation=self.seen())

    def seen(self):
        return {"count": np.full((2,), self.count, self.dtype), "at_end": np.asarray(self.count == 3, np.int64)}

    def observation_spec(self):
        return {
            "count": dm_env.specs.BoundedArray((2,), self.dtype, minimum=0, maximum=[3, 4]),
            "at_end": dm_env.specs.DiscreteArray(2),
        }

    def action_spec(self):
        return dm_env.specs.DiscreteArray(2)


def test_episodes_of_dm_env_end_by_their_discount():
    env = DMEnv(Counting())
    check_env(env)
    assert env.observation_space["count"] == gym.spaces.Box(np.float32([0, 0]), np.float32([3, 4]))
    for action, ends in ((0, (True, False)), (1, (False, True))):
        obs, _ = env.reset()
        assert obs["count"].dtype == np.float32
        steps = [env.step(action) for _ in range(3)]
        assert [step[1] for step in steps] == [0.5, 0.5, 2.0]
        assert [step[2:4] for step in steps] == [(False, False), (False, False), ends]
        assert steps[-1][0]["at_end"] == 1
    assert env.render(mode="rgb_array")["at_end"] == 1


def test_what_is_no_array_of_numbers_is_refused():
    with pytest.raises(EnvError, match="wanted an array of numbers"):
        DMEnv(Counting(dtype=np.dtype("U4")))


def test_tasks_of_the_control_suite():
    pytest.importorskip("dm_control", reason="dm_control is not installed: pip install 'rlframe[dm-control]'")
    env = DMCEnv("cartpole", "balance", frame_skip=2)
    check_env(env)
    first, again = (env.reset(seed=3)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert env.observation_space.contains(first)
    steps = [env.step(np.array([0.1], np.float32)) for _ in range(500)]
    assert steps[-1][2:4] == (False, True)
    assert not any(step[3] for step in steps[:-1])
    assert 1.0 < steps[0][1] <= 2.0  # of two steps


def test_without_the_control_suite_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dm_control", None)
    with pytest.raises(EnvError, match="pip install dm-control"):
        DMCEnv("cartpole", "balance")


def test_tasks_are_found_by_their_paths(monkeypatch):
    """They take the keys of `env_config`; what is missing here is what they are made of."""
    monkeypatch.setitem(__import__("sys").modules, "dm_control", None)
    _, creator = resolve_env("rlframe.examples.env.dm_control_suite.walker_walk")
    with pytest.raises(EnvError, match="pip install dm-control"):
        creator({"frame_skip": 2, "height": 84})


# --- games --------------------------------------------------------------------------------------------------------


def game(name):
    pyspiel = pytest.importorskip("pyspiel", reason="OpenSpiel is not installed: pip install 'rlframe[open-spiel]'")
    return OpenSpielEnv(pyspiel.load_game(name))


def test_players_take_turns_and_a_forbidden_move_costs():
    env = game("tic_tac_toe")
    obs, _ = env.reset(seed=0)
    assert set(obs) == {0}
    obs, rewards, ends, _, _ = env.step(action={0: 4})
    assert set(obs) == {1}
    assert rewards == {0: 0.0, 1: 0.0}
    assert not ends["__all__"]
    _, rewards, _, _, _ = env.step({1: 4})  # taken
    assert rewards == {0: 0.0, 1: pytest.approx(PENALTY)}
    assert str(env.state).count("o") == 1


def test_a_missing_move_is_named():
    env = game("tic_tac_toe")
    env.reset()
    with pytest.raises(EnvError, match="wanted one of player 0, whose turn it is"):
        env.step({1: 4})


@pytest.mark.parametrize("name", ["tic_tac_toe", "kuhn_poker", "goofspiel"])
def test_rewards_of_a_game_are_its_returns(name):
    env = game(name)
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        total, over = np.zeros(env.num_agents), False
        while not over:
            moves = {player: env.state.legal_actions(player)[0] for player in obs}
            obs, rewards, ends, _, _ = env.step(moves)
            total += [rewards[player] for player in range(env.num_agents)]
            over = ends["__all__"]
        np.testing.assert_allclose(total, env.state.returns())


def test_chance_follows_the_seed():
    env = game("kuhn_poker")

    def cards(seed):
        env.reset(seed=seed)
        return str(env.state)

    assert cards(1) == cards(1)
    assert len({cards(seed) for seed in range(20)}) > 1


def test_ppo_learns_to_play_both_sides():
    env = game("tic_tac_toe")
    config = {
        "num_workers": 0, "seed": 0, "train_batch_size": 400, "rollout_fragment_length": 100,
        "sgd_minibatch_size": 100, "num_sgd_iter": 2, "min_iter_time_s": 0, "model": {"fcnet_hiddens": [16]},
        "multiagent": {"policies": {"x", "o"}, "policy_mapping_fn": lambda agent, *_, **__: "xo"[agent]},
    }  # fmt: skip
    trainer = PPOTrainer(config, env=lambda _: OpenSpielEnv(env.env))
    result = trainer.train()
    rewards = result["policy_reward_mean"]
    assert set(rewards) == {"x", "o"}
    # Zero-sum, but for what forbidden moves cost.
    assert -1.0 <= rewards["x"] + rewards["o"] <= 0.0
