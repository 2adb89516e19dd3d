"""Spaces of the old gym wherever a program may hand them over; its models and policies ask for the old classes."""

from __future__ import annotations

import copy
import pickle
import sys

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from rlframe.agents.dqn.dqn_torch_policy import DQNTorchPolicy
from rlframe.agents.pg import PGTorchPolicy
from rlframe.env.adapt import adapt_env
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.examples.env.random_env import ActionMaskEnv
from rlframe.examples.env.toy_envs import NestedSpaceRepeatAfterMeEnv
from rlframe.examples.env.windy_maze_env import WindyMazeEnv
from rlframe.models import ModelCatalog
from rlframe.models.obs_layout import restore_original_dimensions
from rlframe.models.preprocessors import Preprocessor, get_preprocessor
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.policy import Policy, PolicySpec
from rlframe.utils.spaces import FlexDict, Repeated, Simplex
from rlframe.utils.spaces.old_gym import convert_space, known_to_both
from rlframe.utils.spaces.space_maps import unsquash_action
from rlframe.utils.spaces.space_utils import get_dummy_batch_for_space
from tests.helpers.workers import dqn_config

gym = pytest.importorskip("gym")


class Spread(gym.spaces.Box):
    """A user's own space."""

    def __init__(self, width: int) -> None:
        super().__init__(-1.0, 1.0, (width,))
        self.width = width

    def sample(self):
        return np.full(self.width, 0.5, np.float32)

    def contains(self, x):
        return super().contains(x) and bool((x == x[0]).all())


class Word(gym.Space):
    """A user's own space of no kind that gym has."""

    def sample(self):
        return "word"

    def contains(self, x):
        return isinstance(x, str)


NESTED = gym.spaces.Dict(
    b=gym.spaces.Box(-1.0, 1.0, (2,)), a=gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Dict(c=Spread(2))])
)
OLD = [
    gym.spaces.Box(-2.0, 1.0, (2, 2)),
    gym.spaces.Discrete(3),
    gym.spaces.MultiDiscrete([2, 3]),
    gym.spaces.MultiBinary(4),
    NESTED,
    Spread(3),
    Word((), np.dtype(object)),
]


@pytest.mark.parametrize("old", OLD, ids=lambda space: type(space).__name__)
def test_converted_space_is_of_both_libraries_and_equal_to_the_old_one(old):
    new = convert_space(old)
    kind = next((base.__name__ for base in type(old).__mro__ if hasattr(gymnasium.spaces, base.__name__)), "Space")
    assert isinstance(new, getattr(gymnasium.spaces, kind))
    assert isinstance(new, type(old))
    assert isinstance(new, gym.Space)
    for copied in (new, copy.copy(new), copy.deepcopy(new), pickle.loads(pickle.dumps(new))):
        assert type(copied) is type(new)
        assert new.contains(copied.sample())
        if not isinstance(old, Word):
            assert old == copied == new
            assert gymnasium.spaces.flatdim(copied) == gym.spaces.flatdim(old)


def test_spaces_of_views_are_known_to_both():
    policy = PGTorchPolicy(gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(2), {"model": {"use_lstm": True}})
    for name, view in policy.view_requirements.items():
        assert isinstance(view.space, gym.spaces.Space), name
    assert policy.view_requirements["state_out_0"].space.shape == (256,)


def test_users_own_space_keeps_attributes_and_methods():
    new = convert_space(Spread(3))
    assert new.width == 3
    np.testing.assert_array_equal(new.sample(), np.full(3, 0.5, np.float32))
    assert new.contains(np.zeros(3, np.float32))
    assert not new.contains(np.array([0.0, 0.5, 0.0], np.float32))


def test_spaces_beyond_gym_stand_in_an_old_dict():
    old = gym.spaces.Dict(
        items=Repeated(gym.spaces.Discrete(3), 4), shares=Simplex((2,)), flexible=FlexDict(x=gym.spaces.Discrete(2))
    )
    preprocessor = get_preprocessor(old)(old)
    assert preprocessor.shape == (2 + (1 + 4 * 3) + 2,)
    copied = pickle.loads(pickle.dumps(preprocessor.observation_space))
    assert copied.original_space == old
    assert isinstance(copied.original_space["items"], Repeated)


def test_gymnasium_spaces_stay_unless_the_program_knows_the_old_gym(monkeypatch):
    new = gymnasium.spaces.Dict(a=gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)]))
    for module in (gym.spaces, gymnasium.spaces, None):  # None: not imported; some put Gymnasium into gym's place
        monkeypatch.setitem(sys.modules, "gym.spaces", module)
        known = known_to_both(new)
        assert known == new
        assert isinstance(known["a"][0], gym.spaces.Discrete) == (module is gym.spaces)
        assert (known is new) == (module is not gym.spaces)


def test_sizes_are_plain_integers_as_keras_wants_them():
    for space in (gym.spaces.Discrete(3), gymnasium.spaces.Discrete(3)):
        assert type(known_to_both(space).n) is int


def test_functions_on_spaces_take_old_ones():
    batch = get_dummy_batch_for_space(NESTED, batch_size=2)
    assert batch["a"][1]["c"].shape == (2, 2)
    action = unsquash_action((np.float32(0.0),), gym.spaces.Tuple([gym.spaces.Box(0.0, 4.0, ())]))
    assert action[0] == 2.0
    assert ModelCatalog.get_action_dist(gym.spaces.Tuple([gym.spaces.Discrete(2), Spread(1)]), {})[1] == 4
    assert ModelCatalog.get_action_shape(NESTED)[1] == (None, 5)
    flat = gym.spaces.Box(-np.inf, np.inf, (7,), np.float32)
    flat.original_space = NESTED
    restored = restore_original_dimensions(torch.arange(7.0)[None], flat)
    assert restored["b"].tolist() == [[5.0, 6.0]]


class AsksForOldSpaces(TorchModelV2, nn.Module):
    """Looks at its spaces as programs of RLlib 1.x do."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        assert isinstance(obs_space, gym.spaces.Box)
        assert isinstance(action_space, gym.spaces.Discrete)
        original = obs_space.original_space
        assert isinstance(original, gym.spaces.Dict)
        assert isinstance(original.spaces["a"], gym.spaces.Tuple)
        self.layer = nn.Linear(obs_space.shape[0], num_outputs)

    def forward(self, input_dict, state, seq_lens):
        assert set(input_dict["obs"]) == {"a", "b"}
        return self.layer(input_dict["obs_flat"]), state


NEW = gymnasium.spaces.Dict(
    b=gymnasium.spaces.Box(-1.0, 1.0, (2,)), a=gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(3)])
)


def model_config(**options):
    return {"model": {**dqn_config()["model"], **options}}


@pytest.mark.parametrize(
    "spaces", [(NESTED, gym.spaces.Discrete(2)), (NEW, gymnasium.spaces.Discrete(2))], ids=["old", "new"]
)
def test_specs_take_old_spaces_and_models_see_them(spaces):
    config = dqn_config(**model_config(custom_model=AsksForOldSpaces), hiddens=[])
    worker = RolloutWorker(policy_config=config, policy_spec={"p": PolicySpec(DQNTorchPolicy, *spaces, {})})
    policy = worker.get_policy("p")
    assert worker.preprocessors["p"].observation_space.original_space == spaces[0]
    assert policy.compute_single_action(spaces[0].sample())[0] in spaces[1]


def test_config_keys_and_constructors_take_old_spaces():
    box, choice = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
    config = dqn_config(observation_space=box, action_space=choice)
    worker = RolloutWorker(policy_config=config, policy_spec=DQNTorchPolicy)
    by_hand = DQNTorchPolicy(box, choice, dqn_config())
    for policy in (worker.get_policy(), by_hand):
        assert isinstance(policy.action_space, gym.spaces.Discrete)
        assert policy.observation_space == box
        assert policy.compute_single_action(np.zeros(3, np.float32))[0] in choice


class Halves(Preprocessor):
    """The user's own, whose results have the shape of observations."""

    def _init_shape(self, obs_space, options):
        assert isinstance(obs_space, gym.spaces.Box)
        assert options["custom_preprocessor"]
        return obs_space.shape

    def transform(self, observation):
        return np.asarray(observation, np.float32) / 2


class Seen(Policy):
    """Remembers what it acted on."""

    def forward(self, obs, explore=True):
        self.seen = obs
        return np.zeros((len(obs), 2), np.float32), None


class Ones(gym.Env):
    """Observations are ones."""

    observation_space = gym.spaces.Box(0.0, 1.0, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self):
        return np.ones(2, np.float32)

    def step(self, action):
        return np.ones(2, np.float32), 0.0, True, {}


def test_custom_preprocessor_makes_what_policies_see(monkeypatch):
    monkeypatch.setattr(Seen, "numpy_dist", ModelCatalog.get_action_dist(Ones.action_space, {}, framework="numpy")[0])
    config = {
        **dqn_config(**model_config(custom_preprocessor=Halves), exploration_config={"type": "StochasticSampling"}),
        "rollout_fragment_length": 3,
    }
    worker = RolloutWorker(env_creator=lambda context: Ones(), policy_config=config, policy_spec=Seen)
    np.testing.assert_array_equal(worker.sample()["obs"], np.full((3, 2), 0.5))
    worker.get_policy().compute_single_action(np.ones(2, np.float32))
    np.testing.assert_array_equal(worker.get_policy().seen, [[0.5, 0.5]])


@pytest.mark.parametrize("with_info", [False, True])
def test_preprocessed_env_of_old_gym_keeps_its_contract(with_info):
    class Nested(Ones):
        observation_space = gym.spaces.Dict(a=gym.spaces.Discrete(2), b=gym.spaces.Discrete(2))
        label = "mine"

        def reset(self):
            obs = {"a": 1, "b": 0}
            return (obs, {"k": 1}) if with_info else obs

        def step(self, action):
            return {"a": 0, "b": 1}, 1.0, True, {}

    env = ModelCatalog.get_preprocessor_as_wrapper(Nested())
    begun = env.reset()
    np.testing.assert_array_equal(begun[0] if with_info else begun, [0, 1, 1, 0])
    obs, *rest = env.step(0)
    assert (obs.tolist(), rest, env.label) == ([1, 0, 0, 1], [1.0, True, {}], "mine")
    assert isinstance(env.observation_space, gym.spaces.Box)


def test_spaces_of_the_old_gym_are_flattened():
    from rlframe.utils.spaces.space_utils import flatten_space

    space = gym.spaces.Dict({"a": gym.spaces.Tuple([gym.spaces.Discrete(3)]), "b": gym.spaces.MultiBinary(2)})
    assert flatten_space(space) == [gymnasium.spaces.Discrete(3), gymnasium.spaces.MultiBinary(2)]


def test_example_environments_take_spaces_of_the_old_gym():
    box, discrete = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(4)
    masked = ActionMaskEnv({"observation_space": box, "action_space": discrete})
    obs, _ = masked.reset(seed=0)
    assert masked.observation_space.contains(obs)
    gym.spaces.Tuple([WindyMazeEnv().observation_space, discrete])  # takes the old gym's alone
    repeats = NestedSpaceRepeatAfterMeEnv({"space": gym.spaces.Tuple([discrete, box])})
    obs, _ = repeats.reset(seed=0)
    assert repeats.step(obs)[1] == 1.0


@pytest.mark.filterwarnings("ignore")
def test_environments_that_the_old_gym_makes_take_their_first_step():
    env = adapt_env(gym.make("CartPole-v1"))
    env.reset(seed=0)
    assert env.observation_space.contains(env.step(1)[0])
