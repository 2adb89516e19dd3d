"""Ids of the old gym: what stands for them, and that it is said."""

import gymnasium
import pytest
from gymnasium.envs import registration

from rlframe.env import EnvContext
from rlframe.env.old_ids import is_stub, successor
from rlframe.env.registry import resolve_env
from rlframe.examples.env.random_env import RandomEnv
from rlframe.utils.errors import EnvError


@pytest.mark.parametrize(("old", "now"), [("Pendulum-v0", "Pendulum-v1"), ("FrozenLake-v0", "FrozenLake-v1")])
def test_the_next_version_is_made_and_a_warning_says_so(old, now, caplog):
    name, creator = resolve_env(old)
    env = creator(EnvContext({}, worker_index=0))
    assert (name, env.spec.id) == (old, now)
    assert f"{old} is not in Gymnasium any more; {now} is used" in caplog.text
    env.reset(seed=0)
    env.step(env.action_space.sample())


@pytest.mark.parametrize(
    ("old", "now"),
    [
        ("LunarLander-v2", "LunarLander-v3"),
        ("BipedalWalker-v2", "BipedalWalker-v3"),
        ("HalfCheetah-v2", "HalfCheetah-v4"),  # the fifth has other observations and rewards
        ("Hopper-v3", "Hopper-v4"),
    ],
)
def test_what_stands_for_an_id(old, now):
    assert not is_stub(registration.registry[now])
    spec, sentence = successor(old)
    assert spec.id == now
    assert old in sentence


@pytest.mark.parametrize("name", ["CartPole-v7", "HalfCheetah-v9", "NChain-v0", "no id", "PongDeterministic-v9"])
def test_what_never_was_is_unknown(name):
    assert successor(name) is None
    with pytest.raises(EnvError, match="Unknown environment"):
        resolve_env(name)


def test_a_games_deterministic_version_shows_every_fourth_frame(monkeypatch):
    every = registration.EnvSpec("FantasyNoFrameskip-v4", "a.module:Game", kwargs={"frameskip": 1, "game": "fantasy"})
    monkeypatch.setitem(registration.registry, every.id, every)
    spec, _ = successor("FantasyDeterministic-v4")
    assert (spec.id, spec.kwargs) == ("FantasyDeterministic-v4", {"frameskip": 4, "game": "fantasy"})
    assert every.kwargs["frameskip"] == 1


def test_a_name_of_the_programs_own_comes_first(monkeypatch):
    monkeypatch.setitem(registration.registry, "Pendulum-v0", gymnasium.spec("CartPole-v1"))
    assert resolve_env("Pendulum-v0")[1](EnvContext({}, worker_index=0)).spec.id == "CartPole-v1"


def test_paths_of_rllib_in_configs_are_ours(caplog):
    _, creator = resolve_env("ray.rllib.examples.env.random_env.RandomEnv")
    assert isinstance(creator(EnvContext({}, worker_index=0)), RandomEnv)
    assert "use `rlframe.examples.env.random_env.RandomEnv` instead" in caplog.text
