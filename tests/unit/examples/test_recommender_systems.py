"""Recommenders with RecSim's dynamics: by hand, by frequencies of many draws, and at RLlib's paths."""

import importlib

import numpy as np
import pytest

from rlframe.agents.bandit import BanditLinUCBTrainer
from rlframe.agents.dqn import DQNTrainer
from rlframe.env.registry import resolve_env
from rlframe.examples.env.recommender_systems import (
    InterestEvolutionRecSimEnv,
    InterestExplorationRecSimEnv,
    LongTermSatisfactionRecSimEnv,
)
from rlframe.utils.errors import ConfigError

EVERY = [InterestEvolutionRecSimEnv, LongTermSatisfactionRecSimEnv, InterestExplorationRecSimEnv]
OLD = "rlframe.env.wrappers.recsim_wrapper"


def begun(env_class, seed=0, **config):
    env = env_class(config)
    env.reset(seed=seed)
    return env


def returns(env, episodes):
    """Returns what random slates are paid in each episode."""
    rng, found = np.random.default_rng(0), []
    for seed in range(episodes):
        env.reset(seed=seed)
        found.append(0.0)
        through = False
        while not through:
            _, reward, through, _, _ = env.step(rng.choice(10, 2, replace=False))
            found[-1] += reward
    return found


@pytest.mark.parametrize("env_class", EVERY)
def test_observations_are_of_their_space_and_follow_the_seed(env_class):
    seen = []
    for _ in range(2):
        env = env_class({"num_candidates": 4, "slate_size": 3})
        seen.append([env.reset(seed=5)[0]])
        assert [place["click"] for place in seen[-1][0]["response"]] == [0, 0, 0]
        seen[-1] += [env.step([3, 0, 1])[0] for _ in range(10)]
        assert all(env.observation_space.contains(obs) for obs in seen[-1])
        assert all(sum(place["click"] for place in obs["response"]) <= 1 for obs in seen[-1])
    np.testing.assert_equal(seen[0], seen[1])


def test_a_watched_video_costs_the_budget_and_moves_the_interest():
    env = begun(InterestEvolutionRecSimEnv)
    env._interests[:3] = [1.0, 0.0, -0.5]
    assert env._respond((0, 1.7)) == (4.0, {"watch_time": 4.0})
    assert env._budget == pytest.approx(200 - 4 + 0.9 / 3.4 * 4 * 1.7)  # 197.8
    assert env._interests[0] == 1.0
    env._respond((1, 0.0))
    assert abs(env._interests[1]) == pytest.approx(0.3)
    env._respond((2, 0.0))
    assert abs(env._interests[2] + 0.5) == pytest.approx(0.3 * 0.5 * 1.5)
    env._budget = 1.5
    assert env._respond((2, 0.0))[0] == 1.5
    assert env._is_through()
    env._budget, env._interests[:] = 10.0, -1.0
    assert env._choose([(0, 0.0), (1, 0.0)]) is None
    assert env._budget == 9.5


def test_videos_are_clicked_and_liked_in_proportion_to_the_interest():
    env, draws = begun(InterestEvolutionRecSimEnv), 4000
    env._interests[:2] = [1.0, 0.0]  # weights 2, 1, and 2 for none
    clicked = [env._choose([(0, 0.0), (1, 0.0)]) for _ in range(draws)]
    assert [clicked.count(place) / draws for place in (0, 1, None)] == pytest.approx([0.4, 0.2, 0.4], abs=0.03)
    ups = 0
    for _ in range(draws):
        env._interests[2] = 0.5
        env._respond((2, 0.0))
        ups += env._interests[2] > 0.5
    assert ups / draws == pytest.approx(0.75, abs=0.03)
    drawn = [env._document(env.np_random) for _ in range(draws)]
    for topic, quality in ((0, -3.0), (13, 0.0), (14, 0.0), (19, 3.0)):
        found = [made for which, made in drawn if which == topic]
        assert len(found) / draws == pytest.approx(1 / 20, abs=0.02)
        assert (np.mean(found), np.std(found)) == pytest.approx((quality, 0.1), abs=0.03)


def test_satisfaction_follows_kale_and_engagement_follows_both():
    env, draws = begun(LongTermSatisfactionRecSimEnv), 4000
    logs = []
    for _ in range(draws):
        env._exposure = 100 * np.log(3.0)  # satisfaction 3/4
        logs.append(np.log(env._respond(0.25)[0]))
    assert (np.mean(logs), np.std(logs)) == pytest.approx((0.75 * 4.25, 1.0), abs=0.06)
    env._exposure = 2.0
    env._respond(0.9)
    assert env._exposure == pytest.approx(0.7 * 2 - 2 * 0.4, abs=0.25)  # five deviations
    assert env._left == 60 - draws - 1
    assert env.step([0, 1])[2]


def test_niche_users_click_what_is_made_worse():
    env, draws = begun(InterestExplorationRecSimEnv), 4000
    env._affinities = np.array([1.0, 3.0])  # exp(1 + 3), exp(3 + 2), and exp(5) for none
    clicked = [env._choose([(0, 3.0), (1, 2.0)]) for _ in range(draws)]
    whole = 2 + np.exp(-1)
    shares = [clicked.count(place) / draws for place in (0, 1, None)]
    assert shares == pytest.approx([np.exp(-1) / whole, 1 / whole, 1 / whole], abs=0.03)
    drawn = [env._document(env.np_random) for _ in range(draws)]
    assert np.mean([topic for topic, _ in drawn]) == pytest.approx(0.8, abs=0.03)
    assert np.mean([np.log(quality) for topic, quality in drawn if topic == 0]) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(
    ("env_class", "low", "high"), [(InterestEvolutionRecSimEnv, 150, 157), (LongTermSatisfactionRecSimEnv, 900, 1000)]
)
def test_random_slates_are_paid_as_in_recsim(env_class, low, high):
    """In RLlib's comments random slates had 946 to 951 of long-term satisfaction."""
    assert low < np.mean(returns(env_class(), 100)) < high


# --- config and paths -------------------------------------------------------------------------------------------


def test_slates_have_numbers_for_algorithms_with_discrete_actions():
    env = begun(InterestEvolutionRecSimEnv, convert_to_discrete_action_space=True)
    assert env.action_space.n == 100
    other = begun(InterestEvolutionRecSimEnv)
    np.testing.assert_equal(env.step(12), other.step([2, 1]))
    config = {"learning_starts": 20, "timesteps_per_iteration": 40, "hiddens": [8], "log_sys_usage": False}
    trainer = DQNTrainer(
        {**config, "env_config": {"convert_to_discrete_action_space": True}}, env=InterestEvolutionRecSimEnv
    )
    assert trainer.train()["info"]["num_steps_sampled"] >= 40
    trainer.stop()


def test_bandits_see_items():
    shown = {"convert_to_discrete_action_space": True, "wrap_for_bandits": True, "slate_size": 1}
    trainer = BanditLinUCBTrainer({"env_config": shown, "log_sys_usage": False}, env=InterestEvolutionRecSimEnv)
    assert trainer.train()["info"]["num_steps_sampled"] == 100
    trainer.stop()


def test_documents_stay_where_they_are_not_drawn_again():
    one, other = (InterestEvolutionRecSimEnv({"resample_documents": False, "seed": 3}) for _ in range(2))
    seen = [one.reset(seed=0)[0], one.step([0, 1])[0], other.reset(seed=1)[0]]
    for obs in seen[1:]:
        np.testing.assert_equal(obs["doc"], seen[0]["doc"])


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"slate_size": 3, "num_candidates": 2}, "got slate_size=3 with num_candidates=2; wanted 1 to 2 places"),
        ({"candidates": 3}, r"got the keys \['candidates'\], wanted some of .*'num_candidates'"),
        ({"wrap_for_bandits": True}, "got wrap_for_bandits=True with documents of Dict"),
    ],
)
def test_configs_that_cannot_be_are_refused(config, sentence):
    with pytest.raises(ConfigError, match=f"^InterestExplorationRecSimEnv: {sentence}"):
        InterestExplorationRecSimEnv(config)


def test_rllibs_paths_lead_here():
    old, examples = importlib.import_module(OLD), "rlframe.examples.env.recommender_system_envs_with_recsim"
    assert isinstance(resolve_env(old.env_name)[1]({"num_candidates": 3}), InterestEvolutionRecSimEnv)
    assert isinstance(old.make_recsim_env({"slate_size": 1}), InterestEvolutionRecSimEnv)
    for env_class in EVERY:
        assert getattr(importlib.import_module(examples), env_class.__name__) is env_class


def test_what_made_recsims_environments_says_what_to_use_instead():
    with pytest.raises(ImportError, match=r"RecSim does not install .* use .*rlframe.examples.env.recommender_systems"):
        exec("from rlframe.env.wrappers.recsim import make_recsim_env")
