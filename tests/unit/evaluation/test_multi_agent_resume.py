"""A run with several agents that is saved goes on exactly: in turns, at the same time, with memories."""

import copy
import warnings

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.env import register_env
from rlframe.env.multi_agent_env import MultiAgentEnv, make_multi_agent
from rlframe.evaluation.sampling.multi_agent_state import agent_key, pack_actions, unpack_actions
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.models.torch.action_mask import ActionMaskModel
from rlframe.policy.policy import Policy, PolicySpec
from tests.helpers.envs import lives_as_episodes
from tests.helpers.frameworks import cases
from tests.helpers.multi_agent_envs import ON

CONFIG = {
    "num_workers": 0,
    "seed": 3,
    "min_iter_time_s": 0,
    "log_sys_usage": False,
    "model": {"fcnet_hiddens": [8]},
    "num_envs_per_worker": 2,
}
DQN = {"rollout_fragment_length": 7, "train_batch_size": 16, "learning_starts": 30, "timesteps_per_iteration": 60,
       "target_network_update_freq": 40, "n_step": 3}  # fmt: skip
PPO = {"train_batch_size": 90, "rollout_fragment_length": 45, "sgd_minibatch_size": 30, "num_sgd_iter": 2}
LSTM = {"model": {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5,
                  "lstm_use_prev_action": True, "lstm_use_prev_reward": True}}  # fmt: skip
COPIES = {
    "env_config": {"num_agents": 3},
    "multiagent": {"policies": {"even", "odd"}, "policy_mapping_fn": lambda agent: "odd" if agent % 2 else "even"},
}


def tictactoe():
    pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install 'rlframe[multiagent]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PettingZoo says of its own future
        from pettingzoo.classic import tictactoe_v3
    players = {"policies": {"player_1", "player_2"}, "policy_mapping_fn": lambda agent_id: agent_id}
    return {"multiagent": players}, tictactoe_v3.env


def assert_goes_on(cls, env, config, tmp_path, before=2, after=2):
    """Trains, saves, restores in another trainer with another seed, and compares what both do then."""
    one = cls(copy.deepcopy({**CONFIG, **config}), env=env)
    for _ in range(before):
        one.train()
    two = cls(copy.deepcopy({**CONFIG, **config, "seed": 77}), env=env)
    two.restore(one.save(str(tmp_path)))
    for _ in range(after):
        a, b = one.train(), two.train()
        assert a["hist_stats"] == b["hist_stats"]
        assert a["timesteps_total"] == b["timesteps_total"]
        assert a["info"]["num_agent_steps_trained"] == b["info"]["num_agent_steps_trained"]
    for pid, weights in one.get_weights().items():
        for name, array in weights.items():
            np.testing.assert_array_equal(array, two.get_weights()[pid][name], err_msg=f"{pid} {name}")
    one.stop()
    two.stop()


@cases(
    ["cls", "config"],
    {
        "dqn": (DQNTrainer, DQN),
        "ppo": (PPOTrainer, PPO),
        "lstm": (PPOTrainer, {**PPO, **LSTM}),
        "whole episodes": (
            PPOTrainer, {**PPO, "batch_mode": "complete_episodes", "observation_filter": "MeanStdFilter"}
        ),
        "noise": (
            DQNTrainer,
            {**DQN, "exploration_config": {"type": "ParameterNoise"}, "batch_mode": "complete_episodes"},
        ),
    },
    in_tensorflow=["lstm"],
)  # fmt: skip
def test_agents_at_the_same_time_go_on_exactly(framework, cls, config, tmp_path):
    assert_goes_on(cls, MultiAgentCartPole, {**COPIES, **config, "framework": framework}, tmp_path)


@pytest.mark.parametrize(("cls", "config"), [(DQNTrainer, DQN), (PPOTrainer, PPO)], ids=["dqn", "ppo"])
def test_a_game_in_turns_goes_on_exactly(cls, config, tmp_path):
    players, env = tictactoe()
    masked = {"custom_model": ActionMaskModel, "fcnet_hiddens": [8]}
    plain = {"hiddens": [], "dueling": False} if cls is DQNTrainer else {}
    # Seven steps of two slots end in the middle of a game.
    assert_goes_on(cls, env, {**players, **config, **plain, "model": masked}, tmp_path)


def test_a_table_of_policies_on_one_agent_goes_on_exactly(tmp_path):
    assert_goes_on(DQNTrainer, "CartPole-v1", {**DQN, "multiagent": {"policies": {"only"}}}, tmp_path)


def test_lives_of_a_game_go_on_exactly(tmp_path):
    register_env("lives_as_episodes", lives_as_episodes)
    assert_goes_on(DQNTrainer, "lives_as_episodes", {**DQN, "multiagent": {"policies": {"only"}}}, tmp_path)


class Waits(MultiAgentEnv):
    """Agent "b" acts in every third of ten steps, and is rewarded with the number of each step."""

    observation_space, action_space = gym.spaces.Box(0.0, 10.0, (1,), np.float32), gym.spaces.Discrete(2)

    def __init__(self, config):
        self.at = 0

    def _obs(self):
        seen = np.array([self.at], np.float32)
        return {"a": seen, "b": seen} if self.at % 3 == 0 else {"a": seen}

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return self._obs(), {}

    def step(self, actions):
        self.at += 1
        over = {"__all__": self.at == 10}
        return self._obs(), {"a": 1.0, "b": float(self.at)}, over, ON, {}


class RewardsOfTurns(DefaultCallbacks):
    """Keeps the reward that "b" is seen to have in each of its turns."""

    def on_episode_start(self, *, episode, **kwargs):
        episode.hist_data["seen"] = []

    def on_episode_step(self, *, episode, **kwargs):
        if episode.length % 3 == 0:
            episode.hist_data["seen"].append(episode.last_reward_for("b"))


@pytest.mark.parametrize("steps", [7, 8], ids=["a first reward waits", "two rewards wait"])
def test_callbacks_see_rewards_from_before_a_restore(steps, tmp_path):
    players = {"multiagent": {"policies": {"all"}, "policy_mapping_fn": lambda agent: "all"}, "num_envs_per_worker": 1}
    sizes = {"train_batch_size": steps, "rollout_fragment_length": steps, "sgd_minibatch_size": 0, "num_sgd_iter": 1}
    register_env("waits", Waits)
    config = {**CONFIG, **players, **sizes, "callbacks": RewardsOfTurns}
    one, two = (PPOTrainer(copy.deepcopy(config), env="waits") for _ in range(2))
    one.train()
    two.restore(one.save(str(tmp_path)))
    result = two.train()
    assert result["hist_stats"]["seen"][:3] == [1.0 + 2.0 + 3.0, 4.0 + 5.0 + 6.0, 7.0 + 8.0 + 9.0]
    one.stop()
    two.stop()


class Spaces(MultiAgentEnv):
    """Two agents with other spaces; which of them acts next, and what it sees, hangs on all actions before."""

    left, right = ("seat", 0), ("seat", 1)
    observation_space = gym.spaces.Dict({"a": gym.spaces.Box(-1e3, 1e3, (2,), np.float32), "b": gym.spaces.Discrete(3)})
    steps = 23

    def __init__(self, config):
        self.random = bool(config.get("random"))
        self.rng = np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        if not self.random:
            self.rng = np.random.default_rng(seed)
        self.sum, self.at = 0.0, 0
        return self.obs((self.left, self.right)), {}

    def obs(self, agents):
        return {
            agent: {"a": np.array([self.sum, self.rng.normal()], np.float32), "b": int(self.at % 3)} for agent in agents
        }

    def step(self, action_dict):
        self.at += 1
        self.sum += sum(float(np.sum(action["go"])) + action["pick"] for action in action_dict.values())
        agents = [(self.left, self.right), (self.left,), (self.right,)][int(self.rng.integers(3))]
        over = {"__all__": self.at >= self.steps}
        return self.obs(agents), {self.left: self.sum, self.right: -1.0}, over, ON, {}


ACTIONS = gym.spaces.Dict({"go": gym.spaces.Box(-2.0, 2.0, (2,), np.float32), "pick": gym.spaces.Discrete(3)})
SEATS = {
    "policies": {
        "left": PolicySpec(None, Spaces.observation_space, ACTIONS, {"gamma": 0.9}),
        "right": PolicySpec(None, Spaces.observation_space, ACTIONS, {}),
    },
    "policy_mapping_fn": lambda agent_id: ("left", "right")[agent_id[1]],
}


def test_behind_a_soft_horizon_it_goes_on_exactly(tmp_path):
    assert_goes_on(PPOTrainer, Spaces, {**PPO, "multiagent": SEATS, "horizon": 5, "soft_horizon": True}, tmp_path)


def test_ids_of_any_kind_and_nested_actions_go_on_exactly(tmp_path):
    assert_goes_on(PPOTrainer, Spaces, {**PPO, "multiagent": SEATS}, tmp_path)


def test_an_environment_that_is_not_deterministic_begins_anew_and_says_so(tmp_path):
    config = {**CONFIG, **PPO, "multiagent": SEATS, "env_config": {"random": True}, "rollout_fragment_length": 15}
    one = PPOTrainer(copy.deepcopy(config), env=Spaces)
    one.train()
    two = PPOTrainer(copy.deepcopy(config), env=Spaces)
    with pytest.warns(UserWarning, match=r"slot \d .*did not come back to where it was saved"):
        two.restore(one.save(str(tmp_path)))
    batch = two.workers.local_worker().sample()
    for rows in batch.policy_batches.values():
        assert set(rows["t"][np.unique(rows["eps_id"], return_index=True)[1]]) == {0}  # from their beginnings
    two.train()


def test_agents_that_are_random_in_their_mapping_stay_with_their_policies(tmp_path):
    rng = np.random.default_rng(0)
    multiagent = {"policies": {"x", "y"}, "policy_mapping_fn": lambda agent_id: "xy"[rng.integers(2)]}
    config = {**CONFIG, **PPO, "env_config": {"num_agents": 4}, "multiagent": multiagent}
    one, two = (PPOTrainer(dict(config), env=MultiAgentCartPole) for _ in range(2))
    one.workers.local_worker().sample()
    two.restore(one.save(str(tmp_path)))
    tables = [
        [[(agent.id, agent.collector.policy_id, agent.row, agent.total, agent.done) for agent in agents.values()]
         for agents in trainer.workers.local_worker().runner.rows.agents]
        for trainer in (one, two)
    ]  # fmt: skip
    assert tables[0] == tables[1]


class Passes(Policy):
    """Has nothing to learn."""

    def compute_actions(self, obs_batch, state_batches=None, **kwargs):
        return np.zeros(len(obs_batch), np.int64), [], {}


def test_policies_without_weights_are_saved_too(tmp_path):
    config = copy.deepcopy(COPIES)
    config["multiagent"]["policies"] = {"even": PolicySpec(), "odd": PolicySpec(Passes)}
    config["multiagent"]["policies_to_train"] = ["even"]
    assert_goes_on(PPOTrainer, MultiAgentCartPole, {**PPO, **config}, tmp_path)


def test_actions_are_packed_in_the_order_of_acting():
    steps = [{"a": np.int64(1)}, {}, {2: np.int64(0), "a": np.int64(3)}]
    packed = pack_actions(steps)
    assert packed["agents"] == ["s:a", "i:2"]
    assert unpack_actions(packed, lambda key: 0) == [[("s:a", 1)], [], [("i:2", 0), ("s:a", 3)]]
    assert agent_key(np.int64(2)) == agent_key(2)
    assert agent_key(True) != agent_key(1)


@pytest.mark.parametrize("added", [False, True])
def test_which_policies_learn_is_taken_back_where_it_was_set_meanwhile(added, tmp_path):
    config = {
        "seed": 1, "num_workers": 0, "rollout_fragment_length": 20, "train_batch_size": 20, "min_iter_time_s": 0,
        "env_config": {"num_agents": 2},
        "multiagent": {"policies": {"p0", "p1"}, "policy_mapping_fn": lambda agent, *_, **__: f"p{agent}"},
    }  # fmt: skip
    env = make_multi_agent("CartPole-v1")
    trainer, again = PGTrainer(config, env=env), PGTrainer(config, env=env)
    if added:
        mapping = lambda agent, *_, **__: f"p{agent + 1}"  # noqa: E731
        spec = type(trainer.get_policy("p0"))
        trainer.add_policy("p2", spec, policy_mapping_fn=mapping, policies_to_train=["p2"])
    else:
        trainer.workers.foreach_worker(lambda worker: worker.set_policies_to_train(["p1"]))
    again.restore(trainer.save(str(tmp_path)))
    assert again.workers.local_worker().policies_to_train == trainer.workers.local_worker().policies_to_train
    if not added:
        assert set(again.train()["info"]["learner"]) == {"p1"}
    for each in (trainer, again):
        each.stop()
