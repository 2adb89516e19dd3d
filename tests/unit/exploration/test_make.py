"""make_exploration, the base class, and RLlib's import paths."""

from __future__ import annotations

import importlib
import json
import pickle

import numpy as np
import pytest

import rlframe.exploration as package
from rlframe.exploration import EpsilonGreedy, Exploration, StochasticSampling, available_explorations, make_exploration
from rlframe.utils.errors import ConfigError
from tests.helpers.envs import Counting
from tests.unit.exploration.helpers import PENDULUM, THREE, choose, means, rng, values


class MyExploration(Exploration):
    """Written for RLlib 1.x: all arguments by name, no stream."""

    def __init__(self, action_space, *, framework, policy_config, model, num_workers, worker_index, bonus=1):
        super().__init__(
            action_space,
            framework=framework,
            policy_config=policy_config,
            model=model,
            num_workers=num_workers,
            worker_index=worker_index,
        )
        self.bonus = bonus

    def get_exploration_action(self, *, action_distribution, timestep, explore=True):
        return action_distribution.deterministic_sample(), np.zeros(1, np.float32)


BASE = {"framework": "torch", "policy_config": {}, "model": None, "num_workers": 0, "worker_index": 0}


def config_of(name):
    sub = {"sub_exploration": {"type": "EpsilonGreedy"}} if name in ("Curiosity", "RE3", "RND") else {}
    return {"type": name, **sub}


@pytest.mark.parametrize("name", available_explorations())
def test_every_name_is_made_acts_and_restores(name):
    space = PENDULUM if "Noise" in name and name != "ParameterNoise" else THREE
    batch = means([0.1], [0.2]) if space is PENDULUM else values([0, 1, 2], [2, 1, 0])
    one = make_exploration(config_of(name), space, **BASE, rng=rng(1))
    two = make_exploration(config_of(name), space, **BASE, rng=rng(2))
    choose(one, batch, 5)
    state = one.get_state()
    two.set_state(pickle.loads(pickle.dumps(state)))
    for step in (6, 7):
        first, second = choose(one, batch, step), choose(two, batch, step)
        if name != "StochasticSampling":  # draws from the distribution's own stream
            assert np.array_equal(first[0], second[0])
        assert first[1].shape == (2,)
        assert first[1].dtype == np.float32


@pytest.mark.parametrize("name", available_explorations())
def test_states_are_arrays_and_plain_values(name):
    space = PENDULUM if "Noise" in name and name != "ParameterNoise" else THREE
    exploration = make_exploration(config_of(name), space, **BASE, rng=rng())
    state = exploration.get_state()
    for arrays in ("ou_state", "returns", "last"):
        state.pop(arrays, None)
    json.dumps(state)


def test_no_type_means_stochastic_sampling():
    assert type(make_exploration(None, THREE, **BASE)) is StochasticSampling
    assert type(make_exploration({}, THREE, **BASE)) is StochasticSampling


@pytest.mark.parametrize(
    "kind", [EpsilonGreedy, "rlframe.utils.exploration.epsilon_greedy.EpsilonGreedy", "EpsilonGreedy"]
)
def test_types_are_names_paths_or_classes(kind):
    made = make_exploration({"type": kind, "final_epsilon": 0.5}, THREE, **BASE, rng=rng())
    assert type(made) is EpsilonGreedy
    assert made.epsilon_schedule.outside_value == 0.5


def test_a_users_class_gets_what_it_takes_and_the_stream():
    stream = rng(4)
    made = make_exploration({"type": MyExploration, "bonus": 3}, THREE, **BASE, rng=stream)
    assert made.bonus == 3
    assert made.rng is stream
    by_path = make_exploration({"type": f"{__name__}.MyExploration"}, THREE, **BASE, rng=stream)
    assert type(by_path) is MyExploration


def test_an_unknown_type_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean EpsilonGreedy"):
        make_exploration({"type": "EpsilonGredy"}, THREE, **BASE)


def test_an_unknown_option_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="'epsilon_timesteps'"):
        make_exploration({"type": "EpsilonGreedy", "epsilon_timestep": 5}, THREE, **BASE)
    with pytest.raises(ConfigError, match="has no option"):
        make_exploration({"type": "PerWorkerGaussianNoise", "sigma": 5}, PENDULUM, **BASE)


def test_hooks_have_rllibs_signatures():
    exploration = Exploration(THREE, rng=rng())
    exploration.before_compute_actions(timestep=1, explore=True, tf_sess=None)
    exploration.on_episode_start(None, environment=None, episode=None, tf_sess=None)
    exploration.on_episode_end(None, environment=None, episode=None, tf_sess=None)
    batch = {"obs": 1}
    assert exploration.postprocess_trajectory(None, batch, tf_sess=None) is batch
    optimizers = [object()]
    assert exploration.get_exploration_optimizer(optimizers) is optimizers
    exploration.set_state(exploration.get_state(sess=None), sess=None)
    exploration.set_state({})


def test_overridden_hooks_are_announced():
    class Postprocesses(Exploration):
        def postprocess_trajectory(self, policy, sample_batch, tf_sess=None):
            return sample_batch

        def on_episode_end(self, policy, **kwargs):
            pass

    assert Postprocesses.has_postprocessing
    assert Postprocesses.has_episode_hooks
    assert not Exploration.has_postprocessing
    assert not Exploration.has_episode_hooks


def test_a_time_step_of_none_is_the_last_one_again():
    exploration = EpsilonGreedy(THREE, epsilon_timesteps=10, final_epsilon=0.0, rng=rng())
    choose(exploration, values([0, 1, 2]), 5)
    choose(exploration, values([0, 1, 2]), None)
    assert exploration.last_timestep == 5


def test_device_is_that_of_the_torch_model():
    torch = pytest.importorskip("torch")
    assert Exploration(THREE, model=torch.nn.Linear(1, 1)).device == torch.device("cpu")
    assert Exploration(THREE).device is None


@pytest.mark.parametrize("name", [*sorted({*available_explorations()} - {"RND"}), "Exploration"])  # RLlib had no RND
def test_rllibs_paths_lead_to_the_same_classes(name):
    assert getattr(importlib.import_module("rlframe.utils.exploration"), name) is getattr(package, name)
    module = getattr(package, name).__module__.rpartition(".")[2]
    assert getattr(importlib.import_module(f"rlframe.utils.exploration.{module}"), name) is getattr(package, name)


class Novelty(StochasticSampling):
    """Notes when it is told of episodes, and when it postprocesses."""

    def on_episode_start(self, policy, *, environment=None, episode=None, tf_sess=None):
        self.told = [*getattr(self, "told", []), "start"]

    def on_episode_end(self, policy, *, environment=None, episode=None, tf_sess=None):
        self.told.append("end")

    def postprocess_trajectory(self, policy, sample_batch, tf_sess=None):
        self.told = [*getattr(self, "told", []), sample_batch.count]
        return sample_batch


@pytest.mark.parametrize("agents", [1, 2])
def test_a_users_exploration_postprocesses_an_episode_before_it_is_told_of_its_end(agents):
    from rlframe.agents.pg import PGTrainer
    from rlframe.env.multi_agent_env import make_multi_agent

    env = Counting if agents == 1 else make_multi_agent(Counting)
    config = {
        "num_workers": 0, "rollout_fragment_length": 10, "exploration_config": {"type": Novelty},
        "env_config": {"length": 4, "num_agents": agents},
    }  # fmt: skip
    trainer = PGTrainer(config, env)
    exploration = trainer.get_policy().exploration
    exploration.told = []
    trainer.workers.local_worker().sample()
    whole = ["start", *[4] * agents, "end"]
    assert exploration.told == [*whole, *whole, "start", *[2] * agents]
