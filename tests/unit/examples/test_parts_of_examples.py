"""Environments, models and policies that programs import from RLlib's examples, at RLlib's paths."""

from __future__ import annotations

import importlib

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.models.catalog import ModelCatalog
from rlframe.utils.errors import EnvError
from tests.helpers.frameworks import FRAMEWORKS, cases, needs_tf


def example(path, name):
    return getattr(importlib.import_module(f"rlframe.examples.{path}"), name)


SINGLE = {
    "random_env:RandomEnv": {"max_episode_len": 30},
    "random_env:RandomLargeObsSpaceEnvContActions": {"max_episode_len": 3},
    "action_mask_env:ActionMaskEnv": {},
    "simple_corridor:SimpleCorridor": {"corridor_length": 3},
    "repeat_initial_obs_env:RepeatInitialObsEnv": 20,
    "nested_space_repeat_after_me_env:NestedSpaceRepeatAfterMeEnv": {"episode_len": 20},
    "look_and_push:LookAndPush": {},
    "fast_image_env:FastImageEnv": {},
    "debug_counter_env:DebugCounterEnv": {},
    "mock_env:MockEnv": 5,
    "mock_env:MockEnv2": 5,
    "mock_env:MockEnv3": 5,
    "simple_rpg:SimpleRPG": {},
    "d4rl_env:halfcheetah_random": {},
    "halfcheetah_rand_direc:HalfCheetahRandDirecEnv": {},
    "ant_rand_goal:AntRandGoalEnv": {},
    "stateless_pendulum:StatelessPendulum": {},
    "cartpole_mass:CartPoleMassEnv": {},
    "pendulum_mass:PendulumMassEnv": {},
    "transformed_action_space_env:TransformedActionPendulum": {"low": -300.0, "high": 100.0},
    "curriculum_capable_env:CurriculumCapableEnv": {"start_level": 2},
    "parametric_actions_cartpole:ParametricActionsCartPole": 8,
    "parametric_actions_cartpole:ParametricActionsCartPoleNoEmbeddings": 8,
    "windy_maze_env:WindyMazeEnv": {},
}


OF_MUJOCO = {
    "d4rl_env:halfcheetah_random",
    "halfcheetah_rand_direc:HalfCheetahRandDirecEnv",
    "ant_rand_goal:AntRandGoalEnv",
}


def valid_action(env, obs, rng):
    mask = next((obs[key] for key in obs if key.endswith("mask")), None) if isinstance(obs, dict) else None
    return env.action_space.sample() if mask is None else int(rng.choice(np.flatnonzero(mask)))


def paid_and_steps(env, action):
    env.reset(seed=0)
    rewards, ended = [], False
    while not ended:
        _, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        ended = terminated or truncated
    return sum(rewards), len(rewards)


def test_toy_environments_pay_and_last_as_rllibs():
    corridor = example("env.simple_corridor", "SimpleCorridor")()
    assert paid_and_steps(corridor, 1) == (1.0, 10)
    assert corridor.observation_space.high == 999
    paid, steps = paid_and_steps(example("custom_env", "SimpleCorridor")({"corridor_length": 4}), 1)
    assert steps == 4
    assert -0.3 <= paid <= 1.7
    assert paid_and_steps(example("env.repeat_initial_obs_env", "RepeatInitialObsEnv")(20), 0)[1] == 20
    images = example("env.fast_image_env", "FastImageEnv")({})
    assert paid_and_steps(images, 0) == (1001, 1001)
    assert (images.observation_space.dtype, images.observation_space.high.max()) == (np.float32, 1)
    correlated = example("env.correlated_actions_env", "CorrelatedActionsEnv")({})
    assert paid_and_steps(correlated, (0, 0))[1] == 21
    assert correlated.observation_space == gym.spaces.Discrete(2)
    assert example("env.multi_agent", "BasicMultiAgent")(2).observation_space == gym.spaces.Discrete(2)
    carts = example("env.stateless_cartpole", "StatelessCartPole")()
    assert carts.observation_space.high == pytest.approx([4.8, np.radians(24)])


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_levels_of_the_curriculum_pay_tenfold_and_take_eighteen_steps_at_most(level):
    left, down, right, up = range(4)
    downs, lefts = {1: (3, 0), 2: (4, 0), 3: (5, 0), 4: (5, 1), 5: (5, 3)}[level]
    way = [right] * 6 + [down] * downs + [left] * lefts
    env = example("env.curriculum_capable_env", "CurriculumCapableEnv")({"start_level": 1})
    assert env.observation_space.n == 42
    env.reset()
    env.set_task(level)
    assert env.get_task() == level
    env.reset()
    *before, last = [env.step(action) for action in way]
    assert all(reward == 0 and not terminated for _, reward, terminated, _, _ in before)
    assert last[1:3] == (10.0 ** (level - 1), True)
    env.reset()
    assert [env.step(up)[3] for _ in range(18)] == [False] * 17 + [True]


@pytest.mark.parametrize("place", SINGLE)
def test_an_environment_gives_what_its_spaces_say(place):
    path, _, name = place.partition(":")
    if place in OF_MUJOCO:
        pytest.importorskip("mujoco")
    env, rng = example(f"env.{path}", name)(SINGLE[place]), np.random.default_rng(0)
    env.action_space.seed(0)
    for episode in range(3):
        obs, _ = env.reset(seed=episode)
        for _ in range(40):
            assert env.observation_space.contains(obs), obs
            obs, reward, terminated, truncated, _ = env.step(valid_action(env, obs, rng))
            assert isinstance(reward, float)
            if terminated or truncated:
                break


MULTI = {
    "multi_agent:BasicMultiAgent": 3,
    "multi_agent:RoundRobinMultiAgent": 3,
    "multi_agent:EarlyDoneMultiAgent": None,
    "multi_agent:FlexAgentsMultiAgent": None,
    "debug_counter_env:MultiAgentDebugCounterEnv": {"num_agents": 2, "base_episode_len": 3},
    "windy_maze_env:HierarchicalWindyMazeEnv": {},
    "matrix_sequential_social_dilemma:IteratedPrisonersDilemma": {"max_steps": 4},
    "matrix_sequential_social_dilemma:IteratedBoSAndPD": {},
    "rock_paper_scissors:RockPaperScissors": {},
    "coin_game_non_vectorized_env:CoinGame": {},
    "coin_game_non_vectorized_env:AsymCoinGame": {"max_steps": 5},
    "coin_game_vectorized_env:VectorizedCoinGame": {},
    "random_env:RandomMultiAgentEnv": {"num_agents": 2},
}
#: Their methods return what those of RLlib 1.x do: observations; observations, rewards, dones, infos.
AS_RLLIB_1 = ("multi_agent:", "debug_counter", "matrix", "rock", "coin")


@pytest.mark.parametrize("place", MULTI)
def test_agents_play_to_the_end(place):
    path, _, name = place.partition(":")
    made = example(f"env.{path}", name)
    env = made() if MULTI[place] is None else made(MULTI[place])
    assert isinstance(env, MultiAgentEnv)
    as_rllib_1 = place.startswith(AS_RLLIB_1) and name != "BasicMultiAgent"
    obs = env.reset() if as_rllib_1 else env.reset()[0]
    ended, paid = set(), {}
    for _ in range(3000):
        action = (0.5, 0.25) if "Debug" in name else 1
        actions = {agent: action for agent in obs if agent not in ended}
        obs, rewards, terminateds, *others, _ = env.step(actions)
        assert len(others) == (0 if as_rllib_1 else 1)
        truncateds = others[0] if others else {"__all__": False}
        ended |= {agent for agent, over in terminateds.items() if over}
        for agent, reward in rewards.items():
            paid[agent] = paid.get(agent, 0.0) + reward
        if terminateds["__all__"] or truncateds["__all__"]:
            break
    assert terminateds["__all__"] or truncateds["__all__"]
    if name in {"BasicMultiAgent", "RoundRobinMultiAgent"}:
        assert paid == dict.fromkeys(range(3), 25.0 if name == "BasicMultiAgent" else 5.0)
    if name == "IteratedPrisonersDilemma":
        assert paid == {"player_row": -8.0, "player_col": -8.0}


def test_matrix_games_tell_what_was_done_and_pay_for_greed_and_fear():
    dilemmas = importlib.import_module("rlframe.examples.env.matrix_sequential_social_dilemma")
    game = dilemmas.IteratedPrisonersDilemma({"max_steps": 4, "players_ids": ["a", "b"]})
    game.reset()
    *before, (_, _, ends, infos) = [game.step({"a": a, "b": b}) for a, b in [(0, 0), (0, 1), (0, 1), (1, 1)]]
    assert not any(step[3] for step in before)
    assert ends == {"a": True, "b": True, "__all__": True}
    assert infos == {player: {"CC": 0.25, "DD": 0.25, "CD": 0.5, "DC": 0.0} for player in "ab"}
    three = dilemmas.IteratedBoSAndPD({"max_steps": 1})
    three.reset()
    assert three.step({"player_row": 0, "player_col": 2})[3]["player_row"] == {"0_2": 1.0}
    quiet = dilemmas.IteratedChicken({"max_steps": 1, "output_additional_info": False})
    quiet.reset()
    assert quiet.step({"player_row": 0, "player_col": 0})[3] == {}
    greedy = dilemmas.define_greed_fear_matrix_game(greed=2, fear=3)
    assert greedy.PAYOUT_MATRIX.tolist() == [[[3, 3], [-2, 5]], [[5, -2], [1, 1]]]


class OwnObs(gym.Env):
    """CartPole with its observation in a Dict."""

    def __init__(self, config):
        self.inner = gym.make("CartPole-v1")
        own = self.inner.observation_space
        self.observation_space = gym.spaces.Dict({"own_obs": own, "opponent_obs": own})
        self.action_space = self.inner.action_space

    def reset(self, *, seed=None, options=None):
        obs, info = self.inner.reset(seed=seed)
        return {"own_obs": obs, "opponent_obs": obs}, info

    def step(self, action):
        obs, *rest = self.inner.step(action)
        return ({"own_obs": obs, "opponent_obs": obs}, *rest)


class Masked(gym.Wrapper):
    """CartPole with a mask that forbids nothing."""

    def __init__(self, config):
        super().__init__(gym.make("CartPole-v1"))
        mask = gym.spaces.Box(0.0, 1.0, (2,))
        self.observation_space = gym.spaces.Dict({"action_mask": mask, "observations": self.env.observation_space})

    def masked(self, obs):
        return {"action_mask": np.ones(2, np.float32), "observations": obs}

    def reset(self, **kwargs):
        obs, info = self.env.reset(**kwargs)
        return self.masked(obs), info

    def step(self, action):
        obs, *rest = self.env.step(action)
        return (self.masked(obs), *rest)


def parametric(config):
    return example("env.parametric_actions_cartpole", "ParametricActionsCartPole")(8)


def correlated(config):
    return example("env.correlated_actions_env", "CorrelatedActionsEnv")(config)


#: By place: the environment it is for.
MODELS = {
    "rnn_model:RNNModel": "CartPole-v1",
    "action_mask_model:ActionMaskModel": Masked,
    "parametric_actions_model:ParametricActionsModel": parametric,
    "centralized_critic_models:CentralizedCriticModel": "CartPole-v1",
    "centralized_critic_models:YetAnotherCentralizedCriticModel": OwnObs,
    "autoregressive_action_model:AutoregressiveActionModel": correlated,
    "trajectory_view_utilizing_models:FrameStackingCartPoleModel": "CartPole-v1",
    "batch_norm_model:BatchNormModel": "CartPole-v1",
    "fast_model:FastModel": "CartPole-v1",
}
CONFIG = {
    "num_workers": 0, "rollout_fragment_length": 20, "train_batch_size": 40, "sgd_minibatch_size": 20,
    "num_sgd_iter": 1, "min_iter_time_s": 0, "seed": 1, "log_sys_usage": False,
}  # fmt: skip


def model_class(place, framework):
    path, _, name = place.partition(":")
    of_torch = f"YetAnotherTorch{name[10:]}" if name.startswith("YetAnother") else f"Torch{name}"
    return example(f"models.{path}", of_torch if framework == "torch" else name)


@cases(["place"], {place: place for place in MODELS}, list(MODELS))
def test_a_model_learns(place, framework):
    model = {"custom_model": model_class(place, framework), "fcnet_hiddens": [8], "max_seq_len": 10}
    if "autoregressive" in place:
        bits = "autoregressive_action_dist:BinaryAutoregressiveDistribution"
        model["custom_action_dist"] = model_class(bits, framework)
    trainer = PPOTrainer({**CONFIG, "framework": framework, "model": model}, env=MODELS[place])
    before = trainer.get_weights()["default_policy"]
    stats = trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]
    assert np.isfinite(stats["total_loss"])
    after = trainer.get_weights()["default_policy"]
    assert any(np.abs(after[key] - before[key]).max() > 0 for key in before)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_scores_of_parametric_actions_are_q_values(framework):
    model = {"custom_model": model_class("parametric_actions_model:ParametricActionsModel", framework)}
    config = {"hiddens": [], "dueling": False, "learning_starts": 10, "timesteps_per_iteration": 20,
              "num_workers": 0, "train_batch_size": 8, "min_iter_time_s": 0, "seed": 1,
              "model": model, "framework": framework}  # fmt: skip
    trainer = DQNTrainer(config, env=parametric)
    trainer.train()
    obs, _ = parametric({}).reset(seed=1)
    action, _, extra = trainer.compute_single_action(obs, explore=False, full_fetch=True)
    assert obs["action_mask"][action] == 1
    assert (extra["q_values"][obs["action_mask"] == 0] < -1e30).all()


@pytest.mark.parametrize(
    ("names", "framework"),
    [
        (("TorchSharedWeightsModel", "TorchSharedWeightsModel"), "torch"),
        pytest.param(("SharedWeightsModel1", "SharedWeightsModel2"), "tf", marks=needs_tf),
    ],
)
def test_models_share_a_layer(names, framework):
    seen, choices = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)
    models = [
        ModelCatalog.get_model_v2(
            seen, choices, 2, {"custom_model": example("models.shared_weights_model", name)}, framework
        )
        for name in names
    ]
    outputs = [
        model({"obs": np.ones((4, 3), np.float32)} if framework == "tf" else {"obs": ones()})[0] for model in models
    ]
    assert outputs[0].shape == (4, 2)
    assert models[1].value_function().shape == (4,)
    shared = {id(variable) for variable in models[0].variables()} & {id(variable) for variable in models[1].variables()}
    assert (len(shared), len(models[0].variables())) == (2, 8)


def ones():
    import torch

    return torch.ones(4, 3)


def test_a_central_critic_knows_the_opponent():
    torch = pytest.importorskip("torch")
    space = gym.spaces.Box(-1.0, 1.0, (6,))
    model = example("models.centralized_critic_models", "TorchCentralizedCriticModel")(
        space, gym.spaces.Discrete(2), 2, {"fcnet_hiddens": [8], "fcnet_activation": "tanh"}, "critic"
    )
    obs, other = torch.zeros(3, 6), torch.rand(3, 6)
    one, two = (model.central_value_function(obs, other, torch.full((3,), action)) for action in (0, 1))
    assert one.shape == (3,)
    assert (one != two).all()


@pytest.mark.parametrize("options", [{}, {"one_hot_state_encoding": True}, {"separate_state_space": True}])
def test_two_step_game_has_rllibs_observations(options):
    if "separate_state_space" in options:
        options = {**options, "one_hot_state_encoding": True}
    env = example("env.two_step_game", "TwoStepGame")(options)
    first = env.reset()
    second = env.step({0: 1, 1: 0})[0]
    seen = {0: [first[0], second[0]], 1: [first[1], second[1]]}
    assert all(env.observation_space.contains(obs) for views in seen.values() for obs in views)
    if not options:
        assert seen == {0: [0, 2], 1: [3, 5]}
        return
    flat = [obs["obs"] if "state" in obs else obs for obs in seen[1]]
    assert [view.tolist() for view in flat] == [[1, 0, 0, 2], [0, 0, 1, 2]]
    assert (env.agent_1_obs().tolist(), env.agent_2_obs().tolist()) == ([0, 0, 1, 1], [0, 0, 1, 2])


def test_rock_paper_scissors_pays_who_wins():
    game = example("env.rock_paper_scissors", "RockPaperScissors")
    env = game({})
    assert env.reset() == {"player1": 0, "player2": 0}
    obs, paid, over, _ = env.step({"player1": game.PAPER, "player2": game.ROCK})
    assert (obs, paid, over["__all__"]) == ({"player1": 0, "player2": 1}, {"player1": 1, "player2": -1}, False)
    with pytest.raises(EnvError, match="got the actions 3 and 0"):
        env.step({"player1": game.LIZARD, "player2": game.ROCK})
    assert [env.step({"player1": 1, "player2": 1})[2]["__all__"] for _ in range(9)] == [False] * 8 + [True]
    assert (env.player1_score, env.player2_score) == (1, -1)
    five = game({"sheldon_cooper": True})
    five.reset()
    won = [[five.step({"player1": a, "player2": b})[1]["player1"] for b in range(5)] for a in range(5)]
    assert won[game.SPOCK] == [1, -1, 1, -1, 0]
    assert (np.array(won) == -np.array(won).T).all()
    assert [row.count(1) for row in won] == [2] * 5


def test_an_environment_can_require_a_gpu():
    required = example("env.gpu_requiring_env", "GPURequiringEnv")
    with pytest.raises(EnvError, match="num_gpus_per_worker"):
        required({"corridor_length": 3})


def test_environments_take_rllibs_calls():
    game = example("env.two_step_game", "TwoStepGame")(env_config={})
    game.seed(seed=1)
    wheel = example("env.bandit_envs_discrete", "WheelBanditEnv")
    assert (wheel.feature_dim, wheel.num_actions) == (2, 5)
    assert example("env.matrix_sequential_social_dilemma", "IteratedChicken")({}).seed(seed=3) == [3]
    mock = example("env.mock_env", "MockEnv2")(5)
    mock.seed(rng_seed=7)
    assert (mock.rng_seed, mock.observation_space.n) == (7, 6)
    cart = example("env.parametric_actions_cartpole", "ParametricActionsCartPole")(8)
    cart.reset(seed=1)
    for _ in range(5):
        cart.update_avail_actions()
        assert (cart.action_assignments[cart.left_idx] == cart.left_action_embed).all()
        assert np.flatnonzero(cart.action_mask).tolist() == sorted({cart.left_idx, cart.right_idx})


def test_a_model_that_shares_a_layer_takes_rllibs_names():
    spaces = {"observation_space": gym.spaces.Box(-1, 1, (3,)), "action_space": gym.spaces.Discrete(2)}
    model = example("models.shared_weights_model", "TorchSharedWeightsModel")
    assert model(**spaces, num_outputs=2, model_config={}, name="shared").name == "shared"


def test_agents_in_turn_may_see_how_many_steps_they_had():
    env = example("env.multi_agent", "RoundRobinMultiAgent")(num=2, increment_obs=True)
    seen = [env.reset(), *(env.step({agent: 0})[:2] for agent in (0, 1, 0))]
    assert seen == [{0: 0}, ({1: 0}, {1: 0.0}), ({0: 1}, {0: 100.0}), ({1: 1}, {1: 100.0})]


def test_policies_play_rock_paper_scissors():
    dummies = importlib.import_module("rlframe.examples.policy.rock_paper_scissors_dummies")
    seen, moves = gym.spaces.Discrete(4), gym.spaces.Discrete(3)
    beats = dummies.BeatLastHeuristic(seen, moves, {"seed": 1})
    rows = np.eye(4, dtype=np.float32)[[dummies.ROCK, dummies.PAPER, dummies.SCISSORS]]
    assert beats.compute_actions(rows)[0].tolist() == [dummies.PAPER, dummies.SCISSORS, dummies.ROCK]
    same = dummies.AlwaysSameHeuristic(seen, moves, {"seed": 1})
    state = [np.stack([same.get_initial_state()[0] for _ in range(20)])]
    actions, after, _ = same.compute_actions(np.zeros((20, 4)), state)
    assert set(actions) == {0, 1, 2}
    assert (same.compute_actions(np.zeros((20, 4)), after)[0] == actions).all()
    random = example("policy.random_policy", "RandomPolicy")(seen, gym.spaces.Box(-1, 1, (2,)), {"seed": 1})
    assert random.compute_actions(np.zeros((5, 4)))[0].shape == (5, 2)
    assert random.act_on_rows(np.zeros((5, 4)))[0].shape == (5, 2)
    assert beats.act_on_rows(rows)[0].tolist() == [dummies.PAPER, dummies.SCISSORS, dummies.ROCK]


def test_the_several_carts_are_those_of_rllib():
    env = example("env.multi_agent", "MultiAgentCartPole")({"num_agents": 1})
    obs, steps, truncated = env.reset(seed=0)[0], 0, False
    while not truncated:  # a controller that keeps the pole up
        action = int(np.dot(obs[0], [0.05, 0.1, 1.0, 0.3]) > 0)
        obs, _, terminateds, truncateds, _ = env.step({0: action})
        steps, truncated = steps + 1, truncateds["__all__"]
        assert not terminateds["__all__"]
    assert steps == 200  # CartPole-v0
    assert example("env.multi_agent", "MultiAgentMountainCar")({"num_agents": 2}).action_space.shape == (1,)
