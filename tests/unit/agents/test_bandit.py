"""Linear bandits and the agent that acts at random: posteriors, regret, resuming, agents, names."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.bandit import BanditLinTSTrainer, BanditLinUCBTrainer, BanditPolicy, OnlineLinearRegression
from rlframe.agents.es import ESTrainer
from rlframe.agents.random_agent import RandomAgentTrainer
from rlframe.agents.registry import get_trainer_class
from rlframe.data.sample_batch import SampleBatch
from rlframe.env.multi_agent_env import make_multi_agent
from rlframe.examples.env.bandit_envs import (
    LinearDiscreteEnv,
    ParametricItemRecoEnv,
    SimpleContextualBandit,
    WheelBanditEnv,
)
from rlframe.utils.errors import ConfigError, NonFiniteError, UnsupportedSpaceException

SMALL = {"seed": 3, "num_workers": 0, "min_iter_time_s": 0, "log_sys_usage": False, "timesteps_per_iteration": 40}
TWO = {"type": "UpperConfidenceBound"}, {"type": "ThompsonSampling"}
every_trainer = pytest.mark.parametrize("cls", [BanditLinUCBTrainer, BanditLinTSTrainer], ids=["LinUCB", "LinTS"])


def make(cls, env=LinearDiscreteEnv, **overrides):
    return cls({**SMALL, **overrides}, env=env)


def make_policy(exploration=TWO[0], space=None, actions=2, **model):
    config = {**BanditLinUCBTrainer._default_config, "seed": 1, "exploration_config": exploration}
    config["model"] = {**config["model"], **model}
    return BanditPolicy(space or gym.spaces.Box(-9, 9, (2,), np.float32), gym.spaces.Discrete(actions), config)


def rows(obs, actions, rewards, infos=None):
    made = {"obs": np.asarray(obs, np.float32), "actions": np.asarray(actions), "rewards": np.asarray(rewards)}
    return SampleBatch({**made, "infos": np.array(infos or [{}] * len(actions), object)})


def ridge(x, y, lambda_):
    """The oracle: one regression of all rows."""
    covariance = np.linalg.inv(lambda_ * np.eye(x.shape[1]) + x.T @ x)
    return covariance @ x.T @ y, covariance


def test_a_posterior_by_hand_is_what_bounds_and_regret_are_made_of():
    policy = make_policy(alpha=4.0, lambda_=1.0)
    stats = policy.learn_on_batch(rows([[1, 0], [1, 0], [0, 2]], [0, 0, 1], [3.0, 3.0, 1.0], [{"regret": 0.5}] * 3))
    # Arm 0: precision diag(3, 1), moment (6, 0). Arm 1: precision diag(1, 5), moment (0, 2).
    weights = policy.get_weights()
    np.testing.assert_allclose(weights["output.weight"], [[2.0, 0.0], [0.0, 0.4]], atol=1e-12)
    np.testing.assert_allclose(weights["covariance"], [np.diag([1 / 3, 1]), np.diag([1, 1 / 5])], atol=1e-12)
    first, second = policy.model.arms
    assert [first.theta.numpy().tolist(), second.theta.tolist()] == [
        pytest.approx([2.0, 0.0]),
        pytest.approx([0.0, 0.4]),
    ]
    np.testing.assert_allclose(first.covariance.numpy(), 4.0 * weights["covariance"][0])
    np.testing.assert_allclose(second.precision.numpy(), np.diag([1, 5]), atol=1e-12)
    np.testing.assert_allclose(first.f.numpy(), [6.0, 0.0], atol=1e-12)
    bounds, _ = policy.forward(np.array([[1.0, 0.0], [0.0, 1.0]], np.float32))
    width = 2 * np.sqrt([[1 / 3, 1.0], [1.0, 1 / 5]])
    np.testing.assert_allclose(bounds, np.array([[2.0, 0.0], [0.0, 0.4]]) + width, rtol=1e-6)
    assert policy.compute_single_action(np.array([0.0, 1.0]), explore=True)[0] == 0  # 2 against 0.4 + 0.89
    assert policy.compute_single_action(np.array([0.0, 1.0]), explore=False)[0] == 1
    assert stats["learner_stats"] == {
        "reward_mean": pytest.approx(7 / 3), "squared_error": pytest.approx(19 / 3), "cumulative_regret": 1.5
    }  # fmt: skip


def test_thousands_of_rank_one_updates_are_one_ridge_regression():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5000, 6)) * [1, 1, 1, 10, 0.1, 1], rng.normal(size=5000)
    x[:, 5] = x[:, 0] + 1e-3 * x[:, 5]  # nearly the same feature twice
    model = OnlineLinearRegression(6, lambda_=0.5)
    for row, reward in zip(x, y, strict=True):
        model.partial_fit(row, reward)
    theta, covariance = ridge(x, y, 0.5)
    np.testing.assert_allclose(model.theta[0], theta, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(model.covariance[0], covariance, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(model.covariance[0], model.covariance[0].T)


def test_drawn_weights_have_the_posterior_of_now():
    model = OnlineLinearRegression(2, alpha=2.0, arms=2)
    for x, y in (([1.0, 1.0], 1.0), ([1.0, -0.5], 2.0)):
        model.partial_fit(x, y, arm=1)
    drawn = model.sample_theta(np.random.default_rng(0), 40_000)[:, 1]
    np.testing.assert_allclose(drawn.mean(0), model.theta[1], atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T), 2 * model.covariance[1], atol=0.03)


def test_items_have_the_sizes_that_courses_read():
    env = ParametricItemRecoEnv({"num_candidates": 4, "feature_dim": 3})
    assert (env.num_users, env.num_items, env.feature_dim, env.num_candidates, env.slate_size) == (1, 100, 3, 4, 1)


def test_items_share_one_posterior_and_drawn_weights():
    env = ParametricItemRecoEnv({"num_candidates": 4, "feature_dim": 3, "num_users": 2})
    trainer = make(BanditLinUCBTrainer, env=ParametricItemRecoEnv, env_config=env.config | {"num_candidates": 4})
    policy, batch = trainer.get_policy(), trainer.workers.local_worker().sample()
    for _ in range(30):
        batch = SampleBatch.concat_samples([batch, trainer.workers.local_worker().sample()])
    policy.learn_on_batch(batch)
    # Flat observations begin with `item`, before `item_id`, `response` and `user`.
    items = batch["obs"][:, :12].reshape(-1, 4, 3).astype(np.float64)
    theta, covariance = ridge(items[np.arange(31), batch["actions"]], batch["rewards"], 0.1)
    np.testing.assert_allclose(policy.get_weights()["output.weight"][0], theta, rtol=1e-7)
    bounds = items @ theta + 0.3 * np.sqrt(np.einsum("bad,de,bae->ba", items, covariance, items))
    np.testing.assert_allclose(policy.forward(batch["obs"])[0], bounds, rtol=1e-5)
    np.testing.assert_allclose(policy.forward(batch["obs"], False)[0], items @ theta, rtol=1e-5)


@pytest.mark.parametrize("exploration", [*TWO, {"type": "Random"}], ids=lambda value: value["type"])
def test_regret_of_a_linear_bandit_flattens(exploration):
    env = LinearDiscreteEnv()
    policy = make_policy(exploration, env.observation_space, 4, alpha=0.1)
    obs, regrets = env.reset(seed=0)[0], []
    for _ in range(300):
        action = policy.compute_single_action(obs, explore=True)[0]
        seen, reward, _, _, info = env.step(action)
        policy.learn_on_batch(rows([obs], [action], [reward], [info]))
        regrets.append(info["regret"])
        obs = seen
    early, late = np.sum(regrets[:100]), np.sum(regrets[-100:])
    if exploration["type"] == "Random":
        assert late > 0.7 * early > 20
    else:
        assert late < 0.3 * early < 10


@every_trainer
def test_restored_trainer_goes_on_bit_for_bit(cls, tmp_path):
    one, two = make(cls), make(cls, seed=4)
    one.train()
    two.restore(one.save(str(tmp_path)))
    for _ in range(2):
        a, b = one.train(), two.train()
        assert a["info"]["learner"] == b["info"]["learner"]
    for name, weights in one.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(weights, two.get_weights()["default_policy"][name])
    assert a["info"]["learner"]["default_policy"]["learner_stats"]["cumulative_regret"] > 0


def test_agents_learn_for_themselves_and_without_regret_none_is_told():
    agents = {"policies": {"a", "b"}, "policy_mapping_fn": lambda agent, *args, **kwargs: "ab"[agent]}
    env = make_multi_agent(lambda config: SimpleContextualBandit(config))
    trainer = make(BanditLinUCBTrainer, env=env, env_config={"num_agents": 2}, multiagent=agents)
    trainer.train()
    one, other = trainer.get_policy("a").get_weights(), trainer.get_policy("b").get_weights()
    assert (one["output.weight"] != other["output.weight"]).any()
    seen = np.array([1.0, -1.0], np.float32)
    assert [trainer.compute_single_action(seen, policy_id=each, explore=False) for each in "ab"] == [0, 0]
    assert "cumulative_regret" not in make_policy().learn_on_batch(rows([[1, 0]], [0], [1.0]))["learner_stats"]


def test_the_wheel_pays_what_the_paper_says():
    env = WheelBanditEnv({"std": 0.0})
    for seed in range(20):
        (x, y), _ = env.reset(seed=seed)
        inside = np.hypot(x, y) < 0.5
        best = 0 if inside else {(True, True): 1, (False, True): 2, (False, False): 3, (True, False): 4}[x > 0, y > 0]
        _, reward, _, _, info = env.step(best)
        assert (reward, info) == (1.2 if inside else 50.0, {"regret": 0.0, "opt_action": best})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model": {"use_lstm": True}}, "rewards are linear in observations here"),
        ({"model": {"lambda_": 0}}, r"model.lambda_: got 0.0 \(float\), wanted a number > 0"),
        ({"exploration_config": {"type": "UpperConfidenceBound", "alpha": 2}}, "exploration_config.alpha: unknown key"),
    ],
)
def test_wrong_configs_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        make(BanditLinUCBTrainer, **overrides)


def test_wrong_spaces_rewards_and_users_are_refused():
    with pytest.raises(UnsupportedSpaceException, match="wanted a Discrete one"):
        make(BanditLinUCBTrainer, env="Pendulum-v1")
    with pytest.raises(UnsupportedSpaceException, match="want vectors of features"):
        make_policy(space=gym.spaces.Box(0, 1, (2, 2)))
    short = gym.spaces.Box(0, 1, (6,), np.float32)
    short.original_space = gym.spaces.Dict({"item": gym.spaces.Box(0, 1, (3, 2), np.float32)})
    with pytest.raises(UnsupportedSpaceException, match=r"a Box of shape \(2, features\), a row for each action"):
        make_policy(space=short)
    with pytest.raises(NonFiniteError, match="a reward is nan"):
        make_policy().learn_on_batch(rows([[1, 0]], [0], [np.nan]))
    with pytest.raises(ConfigError, match=r"got 'ThompsonSampling' for a ES.*take contrib/LinUCB"):
        make(ESTrainer, env="CartPole-v1", exploration_config={"type": "ThompsonSampling"})
    with pytest.raises(ConfigError, match=r"got the keys \['features'\], wanted some of"):
        LinearDiscreteEnv({"features": 3})
    with pytest.raises(ConfigError, match="wanted slate_size=1"):
        ParametricItemRecoEnv({"slate_size": 2})


def test_of_more_actions_than_items_the_first_ones_are_taken(caplog):
    space = gym.spaces.Box(0, 1, (6,), np.float32)
    space.original_space = gym.spaces.Dict({"item": gym.spaces.Box(0, 1, (3, 2), np.float32)})
    policy = make_policy(space=space, actions=9)
    assert "'item' has 3 rows for 9 actions; those from 3 on are never taken" in caplog.text
    policy.learn_on_batch(rows([[0, 1, 1, 0, 0, 0]], [1], [-5.0]))
    actions, _, info = policy.compute_actions(np.array([[0, 0, 1, 0, 0, 1]], np.float32), explore=False)
    assert actions.tolist() == [0]  # 0, against -5/1.1 and 0: the first of the largest
    assert policy.get_weights()["output.weight"] == pytest.approx(np.array([[-5 / 1.1, 0.0]]))
    assert np.isfinite(info["action_logp"]).all()


def test_items_are_not_written_into_files(tmp_path):
    trainer = make(BanditLinUCBTrainer, env=ParametricItemRecoEnv)
    with pytest.raises(ConfigError, match="ParametricLinearModelUCB"):
        trainer.export_policy("numpy", tmp_path / "file")


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_random_agent_is_as_its_seed_wherever_it_acts_and_counts_whole_episodes(env):
    overrides = {"rollouts_per_iteration": 2, "timesteps_per_iteration": 0, "env_config": {"max_episode_steps": 30}}
    one, two = (make(RandomAgentTrainer, env=env, **overrides) for _ in range(2))
    a, b = one.train(), two.train()
    assert a["hist_stats"] == b["hist_stats"]
    assert a["episodes_this_iter"] == 2
    assert a["timesteps_total"] == sum(a["hist_stats"]["episode_lengths"])
    obs = np.zeros((200, *one.get_policy().observation_space.shape), np.float32)
    actions = one.get_policy().compute_actions(obs, explore=False)[0]
    low, high = (0, 1) if env == "CartPole-v1" else (-1, 1)
    assert abs(actions.mean() - (low + high) / 2) < 0.2
    assert (actions.min() >= low) & (actions.max() <= high) & (np.std(actions) > 0.3)


def test_names_and_defaults_are_rllibs():
    from rlframe.agents.bandit.bandit_torch_policy import BanditTorchPolicy
    from rlframe.contrib.bandits.agents import LinTSTrainer, LinUCBTrainer
    from rlframe.contrib.bandits.agents.policy import DEFAULT_CONFIG
    from rlframe.contrib.bandits.envs.parametric import ParametricItemRecoEnv as Items
    from rlframe.contrib.bandits.exploration import UCB, ThompsonSampling
    from rlframe.contrib.bandits.models.linear_regression import DiscreteLinearModelUCB
    from rlframe.contrib.random_agent.random_agent import RandomAgent
    from rlframe.examples.env.bandit_envs_discrete import WheelBanditEnv as Wheel

    assert (LinUCBTrainer, LinTSTrainer, RandomAgent) == (BanditLinUCBTrainer, BanditLinTSTrainer, RandomAgentTrainer)
    names = {"LinUCB": LinUCBTrainer, "LinTS": LinTSTrainer, "RandomAgent": RandomAgent}
    assert all(get_trainer_class(f"contrib/{name}") is cls for name, cls in names.items())
    assert (BanditTorchPolicy, Items, Wheel) == (BanditPolicy, ParametricItemRecoEnv, WheelBanditEnv)
    wanted = {"num_workers": 0, "rollout_fragment_length": 1, "train_batch_size": 1, "timesteps_per_iteration": 100}
    assert {name: DEFAULT_CONFIG[name] for name in wanted} == wanted
    assert LinTSTrainer._default_config["exploration_config"] == {"type": ThompsonSampling.__name__}
    assert LinUCBTrainer._default_config["exploration_config"] == {"type": UCB.__name__}
    assert type(make_policy().model) is DiscreteLinearModelUCB
    assert RandomAgent._default_config["rollouts_per_iteration"] == 10
