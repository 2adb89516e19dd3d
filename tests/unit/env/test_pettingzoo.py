"""PettingZoo's environments under a trainer."""

import importlib
import warnings
from typing import ClassVar

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.env.multi_agent_adapt import MultiAgentAdapter, is_multi_agent
from rlframe.env.wrappers.pettingzoo_env import ParallelPettingZooEnv, PettingZooEnv
from tests.helpers.frameworks import TORCH_FIRST

pettingzoo = pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install 'rlframe[multiagent]'")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what it says of its own future, and its drawing library of its
    from pettingzoo.classic import connect_four_v3, rps_v2, tictactoe_v3

CONFIG = {
    "num_workers": 0,
    "seed": 0,
    "min_iter_time_s": 0,
    "log_sys_usage": False,
    "model": {"fcnet_hiddens": [8]},
}


def test_a_game_in_turns_rewards_both_players_at_its_end():
    env = MultiAgentAdapter(tictactoe_v3.env())
    obs, _ = env.reset(seed=0)
    # Player 1 takes the first column (0, 1, 2), player 2 the cells 3 and 4.
    for action in (0, 3, 1, 4):
        (player,) = obs
        obs, rewards, terminateds, truncateds, _ = env.step({player: action})
        assert set(rewards.values()) <= {0.0}
        assert not terminateds["__all__"]
    obs, rewards, terminateds, truncateds, _ = env.step({"player_1": 2})
    assert rewards == {"player_1": 1.0, "player_2": -1.0}
    assert terminateds == {"player_1": True, "player_2": True, "__all__": True}
    assert not truncateds["__all__"]
    assert set(obs) == {"player_1", "player_2"}


def test_wrappers_say_who_may_play_by_rllibs_names():
    in_turns, game = PettingZooEnv(rps_v2.env()), rps_v2.parallel_env()
    assert in_turns.agents == in_turns.possible_agents == ["player_0", "player_1"]
    together = ParallelPettingZooEnv(game)
    assert (together.agents, together.par_env) == (["player_0", "player_1"], game)


def masked(framework):
    if framework == "torch":
        from rlframe.models.torch.action_mask import ActionMaskModel
    else:
        from rlframe.models.tf.action_mask import ActionMaskModel
    return {"custom_model": ActionMaskModel, "fcnet_hiddens": [8]}


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("env", [tictactoe_v3.env, connect_four_v3.env], ids=["tictactoe", "connect four"])
def test_games_with_masks_are_played_by_the_rules(env, framework):
    config = {"train_batch_size": 500, "sgd_minibatch_size": 100, "num_sgd_iter": 2}
    trainer = PPOTrainer({**CONFIG, "framework": framework, **config}, env=env)
    result = [trainer.train() for _ in range(2)][-1]
    assert result["timesteps_total"] == 1000
    # A move against the rules ends a game with -1 for who makes it, and 0 for the other: here all are zero-sum.
    assert all(value == 0 for value in result["hist_stats"]["episode_reward"])


def test_dqn_learns_games_with_masks():
    config = {"hiddens": [], "dueling": False, "learning_starts": 100, "timesteps_per_iteration": 1000}
    trainer = DQNTrainer({**CONFIG, "model": masked("torch"), **config}, env=tictactoe_v3.env)
    result = trainer.train()
    assert all(value == 0 for value in result["hist_stats"]["episode_reward"])
    assert result["info"]["num_steps_trained"] > 0


def test_hidden_choices_at_the_same_time_are_scored_after_both():
    trainer = PGTrainer({**CONFIG, "rollout_fragment_length": 60, "train_batch_size": 60}, env=rps_v2.env)
    batch = trainer.workers.local_worker().sample().policy_batches["default_policy"]
    by_agent = [batch["rewards"][batch["agent_index"] == index] for index in (0, 1)]
    rounds = min(map(len, by_agent))
    np.testing.assert_array_equal(by_agent[0][:rounds], -by_agent[1][:rounds])
    trainer.train()


def test_both_kinds_are_told_without_importing_the_library():
    assert is_multi_agent(tictactoe_v3.env())
    assert not is_multi_agent(object())


ENVS = [
    "pettingzoo.classic.tictactoe_v3:env", "pettingzoo.classic.connect_four_v3:env",
    "pettingzoo.classic.rps_v2:env", "pettingzoo.classic.rps_v2:parallel_env",
    "mpe2.simple_spread_v3:env", "mpe2.simple_spread_v3:parallel_env",
    "pettingzoo.sisl.multiwalker_v9:env", "pettingzoo.sisl.multiwalker_v9:parallel_env",
]  # fmt: skip
NEEDS = {"mpe2": "mpe2", "pettingzoo.sisl": "'pettingzoo[sisl]'"}


def creator(path):
    """Returns an environment's function; skips where what it needs is missing."""
    module, _, name = path.partition(":")
    needed = next((package for start, package in NEEDS.items() if module.startswith(start)), "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the libraries say of their own future
        try:
            return getattr(importlib.import_module(module), name)
        except ImportError as error:
            pytest.skip(f"{path} needs more: pip install {needed} ({error})")


@pytest.mark.parametrize("path", ENVS, ids=lambda path: path.rpartition(".")[2])
def test_a_thousand_steps_without_a_warning(path):
    made = creator(path)
    config = {"train_batch_size": 500, "sgd_minibatch_size": 250, "num_sgd_iter": 1, "num_envs_per_worker": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # what earlier tests left open may be collected now
        trainer = PPOTrainer({**CONFIG, **config}, env=made)
        results = [trainer.train() for _ in range(2)]
        trainer.stop()
    assert results[-1]["timesteps_total"] >= 1000
    assert np.isfinite(results[-1]["info"]["learner"]["default_policy"]["learner_stats"]["total_loss"])


def test_agents_that_act_at_the_same_time():
    simple_spread = pytest.importorskip("mpe2.simple_spread_v3", reason="mpe2 is not installed: pip install mpe2")
    trainer = PPOTrainer({**CONFIG, "train_batch_size": 200, "num_sgd_iter": 1}, env=simple_spread.parallel_env)
    result = trainer.train()
    assert result["info"]["num_agent_steps_sampled"] == 3 * result["timesteps_total"]
    assert result["episode_len_mean"] == 25


def test_the_space_that_all_agents_share_is_an_attribute():
    from rlframe.env import PettingZooEnv

    env = PettingZooEnv(rps_v2.env())
    agent = env.possible_agents[0]
    assert env.observation_space == env.observation_spaces[agent]
    assert env.action_space == env.action_spaces[agent]


def test_spaces_are_known_to_programs_that_import_the_old_gym():
    gym = pytest.importorskip("gym", reason="the old gym is not installed")
    env = ParallelPettingZooEnv(rps_v2.parallel_env())
    assert isinstance(env.action_space, gym.spaces.Discrete)
    assert isinstance(env.action_spaces["player_0"], spaces.Discrete)


class Matching(pettingzoo.ParallelEnv):
    """In PettingZoo's contract up to 1.21: a seed of its own, observations alone from `reset()`, and `dones`."""

    possible_agents: ClassVar = ["a", "b"]

    def observation_space(self, agent):
        return spaces.Discrete(2)

    action_space = observation_space

    def seed(self, seed=None):
        self.seeded = seed

    def reset(self):
        self.agents, self.steps = list(self.possible_agents), 0
        return dict.fromkeys(self.agents, 0)

    def step(self, actions):
        self.steps += 1
        obs, rewards = (
            dict.fromkeys(actions, self.steps % 2),
            dict.fromkeys(actions, float(len({*actions.values()}) == 1)),
        )
        done = self.steps == 3
        self.agents = [] if done else self.agents
        return obs, rewards, dict.fromkeys(actions, done), {agent: {} for agent in actions}


def test_agents_that_act_at_the_same_time_by_the_older_contract():
    env = MultiAgentAdapter(Matching())
    env.reset(seed=7)
    assert env.env.seeded == 7
    for last in (False, False, True):
        _, rewards, terminateds, truncateds, _ = env.step({"a": 1, "b": 1})
        assert (rewards["a"], terminateds["__all__"], truncateds.get("__all__", False)) == (1.0, last, False)


class Countdown:
    """Two agents in turns, by the contract up to PettingZoo 1.10: dicts of spaces, and `dones` alone."""

    possible_agents: ClassVar[list[str]] = ["a", "b"]
    observation_spaces: ClassVar = dict.fromkeys("ab", spaces.Box(0.0, 9.0, (1,)))
    action_spaces: ClassVar = dict.fromkeys("ab", spaces.Discrete(2))

    def reset(self):
        self.agents, self.agent_selection, self.left = ["a", "b"], "a", 3
        self.rewards, self.dones, self.infos = (dict.fromkeys("ab", value) for value in (0.0, False, {}))

    def observe(self, agent):
        return np.full(1, self.left, np.float32)

    def step(self, action):
        agent = self.agent_selection
        self.rewards = {"a": 0.0, "b": 0.0}
        if self.dones[agent]:
            self.agents.remove(agent)
        else:
            self.left -= 1
            self.rewards[agent] = 1.0
            self.dones = dict.fromkeys("ab", self.left == 0)
        self.agent_selection = "b" if agent == "a" else "a"


def test_agents_in_turns_by_the_oldest_contract():
    env = PettingZooEnv(Countdown())
    assert (env.observation_space, env.action_space) == (spaces.Box(0.0, 9.0, (1,)), spaces.Discrete(2))
    assert env.reset() == {"a": np.float32(3)}
    assert env.step({"a": 0})[1:3] == ({"a": 1.0, "b": 0.0}, {"b": False, "__all__": False})
    env.step({"b": 0})
    obs, rewards, dones, infos = env.step({"a": 0})
    assert (set(obs), rewards, set(infos)) == ({"a", "b"}, {"a": 1.0, "b": 0.0}, {"a", "b"})
    assert dones == {"a": True, "b": True, "__all__": True}


def test_wrappers_stepped_by_hand_answer_in_the_contract_of_what_they_wrap():
    old, new = ParallelPettingZooEnv(Matching()), ParallelPettingZooEnv(rps_v2.parallel_env())
    assert old.reset() == {"a": 0, "b": 0}
    for last in (False, False, True):
        _, rewards, dones, _ = old.step({"a": 1, "b": 1})
        assert (rewards, dones) == ({"a": 1.0, "b": 1.0}, {"a": last, "b": last, "__all__": last})
    obs, infos = new.reset()
    assert set(obs) == set(infos) == {"player_0", "player_1"}
    assert len(new.step(dict.fromkeys(obs, 0))) == 5
    trainer = PGTrainer({**CONFIG, "train_batch_size": 20}, env=lambda config: ParallelPettingZooEnv(Matching()))
    assert trainer.train()["episode_len_mean"] == 3
    trainer.stop()


def test_an_older_environment_that_keeps_its_agents_is_over_when_all_are_done():
    class Kept(Matching):
        def step(self, actions):
            made = super().step(actions)
            self.agents = list(self.possible_agents)
            return made

    env = ParallelPettingZooEnv(Kept())
    env.reset()
    assert [env.step({"a": 1, "b": 0})[2]["__all__"] for _ in range(3)] == [False, False, True]
