"""Adapting old environments and converting their spaces, without gym."""

from __future__ import annotations

import copy
import logging
import pickle
import sys
import types

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlframe.agents.pg import PGTrainer
from rlframe.env import BaseEnv, ExternalEnv, MultiAgentEnv, VectorEnv, adapt
from rlframe.env.adapt import OldGymAdapter, adapt_env, user_env
from rlframe.env.checks import check_env
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.examples.policy.random_policy import RandomPolicy
from rlframe.utils.errors import EnvError
from rlframe.utils.spaces.old_gym import convert_space


class Counter:
    """Counts to `limit`; the observation is the count, and what was called is remembered."""

    observation_space = spaces.Box(0.0, 100.0, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, limit=3, info=None):
        self.limit = limit
        self.info = info or {}
        self.calls = []
        self.secret = "mine"

    def seed(self, seed=None):
        self.calls.append(("seed", seed))

    def reset(self):
        self.calls.append("reset")
        self.count = 0
        return np.zeros(1, np.float32)

    def step(self, action):
        self.count += 1
        return np.array([self.count], np.float32), 1.0, self.count >= self.limit, dict(self.info)


def test_gymnasium_env_is_returned_itself():
    env = gymnasium.make("CartPole-v1")
    assert adapt_env(env) is env
    assert user_env(env) is env


def test_old_env_gets_gymnasium_contract():
    inner = Counter()
    env = adapt_env(inner)
    assert isinstance(env, OldGymAdapter)
    assert isinstance(env, gymnasium.Env)
    assert user_env(env) is inner
    obs, info = env.reset(seed=5)
    assert (obs.tolist(), info) == ([0.0], {})
    assert inner.calls == [("seed", 5), "reset"]
    steps = [env.step(0)[2:4] for _ in range(3)]
    assert steps == [(False, False), (False, False), (True, False)]
    env.reset()
    assert inner.calls[2:] == ["reset"]  # no seed, no seeding
    check_env(env)


@pytest.mark.parametrize(
    ("info", "want"), [({adapt.TIME_LIMIT_KEY: True}, (False, True)), ({adapt.TIME_LIMIT_KEY: False}, (True, False))]
)
def test_time_limit_in_info_tells_truncation_from_termination(info, want):
    env = adapt_env(Counter(limit=2, info=info))
    env.reset()
    assert env.step(0)[2:4] == (False, False)
    assert env.step(0)[2:4] == want


def test_five_items_from_old_env_keep_their_flags():
    class Five(Counter):
        def step(self, action):
            obs, reward, done, info = super().step(action)
            return obs, reward, np.bool_(False), np.bool_(done), info

    env = adapt_env(Five(limit=1))
    env.reset()
    assert env.step(0)[2:4] == (False, True)
    assert isinstance(env.step(0)[3], bool)


def test_wrong_number_of_items_names_class_and_contract():
    class Three(Counter):
        def step(self, action):
            return super().step(action)[:3]

    env = adapt_env(Three())
    env.reset()
    with pytest.raises(EnvError, match=r"step\(\) of Three returned a tuple of length 3"):
        env.step(0)

    class NoInfo(Counter):
        def step(self, action):
            return (*super().step(action)[:3], None)

    with pytest.raises(EnvError, match=r"tuple of length 4.*NoneType"):
        check_env(NoInfo())


class SeedByName(Counter):
    """The contract of gym 0.22 to 0.26."""

    seed = None

    def reset(self, seed=None, options=None):
        super().reset()
        self.calls[-1] = ("reset", seed, options)
        return np.zeros(1, np.float32), {"from": "reset"}


class SeedSwallowed(Counter):
    """Takes anything; `seed` is an attribute that is no method."""

    seed = 7

    def reset(self, **kwargs):
        super().reset()
        self.calls[-1] = ("reset", kwargs)
        return np.zeros(1, np.float32)


class OldWrapper:
    """A wrapper of the old gym: hands anything on."""

    def __init__(self, env):
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def __getattr__(self, name):
        return getattr(self.env, name)

    @property
    def unwrapped(self):
        return getattr(self.env, "unwrapped", self.env)

    def reset(self, **kwargs):
        return self.env.reset(**kwargs)

    def step(self, action):
        return self.env.step(action)


@pytest.mark.parametrize(
    ("make", "seeded", "plain"),
    [
        (Counter, [("seed", 5), "reset"], ["reset"]),
        (SeedByName, [("reset", 5, {"a": 1})], [("reset", None, None)]),
        (SeedSwallowed, [("reset", {"seed": 5, "options": {"a": 1}})], [("reset", {})]),
        (lambda: OldWrapper(Counter()), [("seed", 5), "reset"], ["reset"]),
        (lambda: OldWrapper(OldWrapper(SeedByName())), [("reset", 5, {"a": 1})], [("reset", None, None)]),
    ],
)
def test_seed_and_options_go_where_the_signature_says(make, seeded, plain):
    env = adapt_env(make())
    env.reset(seed=5, options={"a": 1})
    assert env.calls == seeded
    env.calls.clear()
    env.reset()
    assert env.calls == plain


@pytest.mark.parametrize("seed", [1, None])
def test_env_that_cannot_be_seeded_says_so_once_where_a_seed_was_given(caplog, monkeypatch, seed):
    class Unseedable(Counter):
        seed = None

    monkeypatch.setattr(adapt, "_unseedable_said", set())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            RolloutWorker(
                env_creator=lambda context: Unseedable(), policy_config={"seed": seed}, policy_spec=RandomPolicy
            )
        PGTrainer(
            {"env": lambda context: Unseedable(), "seed": seed, "num_workers": 0, "model": {"fcnet_hiddens": [4]}}
        )
    assert caplog.text.count("Unseedable cannot be seeded") == (seed is not None)


def test_type_error_inside_reset_is_not_swallowed():
    class Broken(Counter):
        def reset(self, **kwargs):
            return len(5)

    with pytest.raises(TypeError, match="has no len"):
        adapt_env(Broken()).reset(seed=1)


def test_reset_with_info_is_split():
    assert adapt_env(OldWrapper(SeedByName())).reset() == (np.zeros(1), {"from": "reset"})


def test_reset_that_changes_its_form_raises():
    class Fickle(Counter):
        def reset(self):
            self.calls.append("reset")
            return (np.zeros(1), {}) if len(self.calls) == 1 else np.zeros(1)

    env = adapt_env(Fickle())
    env.reset()
    with pytest.raises(EnvError, match=r"Fickle returned \(observation, info\) at first and now a float64 array"):
        env.reset()


@pytest.mark.parametrize("with_info", [True, False])
def test_reset_of_pair_space_tells_observation_from_info(with_info):
    class Pair(Counter):
        observation_space = spaces.Tuple([spaces.Discrete(2), spaces.Dict({"x": spaces.Discrete(3)})])

        def reset(self):
            obs = (1, {"x": 2})
            return (obs, {"note": 1}) if with_info else obs

    assert adapt_env(Pair()).reset() == ((1, {"x": 2}), {"note": 1} if with_info else {})


def test_gymnasium_env_with_old_contract_is_adapted():
    class Halfway(gymnasium.Env):
        observation_space, action_space = Counter.observation_space, Counter.action_space

        def reset(self):
            return np.zeros(1)

        def step(self, action):
            return np.zeros(1), 0.0, True, {}

    env = adapt_env(Halfway())
    assert isinstance(env, OldGymAdapter)
    check_env(env)


def test_attributes_and_unwrapped_reach_the_users_env():
    inner = Counter()
    env = adapt_env(OldWrapper(inner))
    assert env.unwrapped is inner
    assert env.secret == "mine"
    assert env.limit == 3
    with pytest.raises(AttributeError, match="nothing_like_that"):
        _ = env.nothing_like_that
    env.np_random = "generator"
    assert env.np_random == env.env.np_random == "generator"
    assert env.render_mode is None
    assert env.spec is None
    assert "Counter" in str(adapt_env(inner))
    env.close()  # Counter has none


@pytest.mark.parametrize("through", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_adapter_can_be_copied_and_pickled(through):
    env = adapt_env(Counter())
    env.reset()
    env.step(0)
    other = through(env)
    assert other.step(0)[0].tolist() == [2.0]
    assert env.env.count == 1


def test_render_and_close_reach_the_users_env():
    class Shown(Counter):
        def render(self, mode="human"):
            return mode

        def close(self):
            self.calls.append("close")

    env = adapt_env(Shown())
    assert (env.render(), env.render("rgb_array")) == ("human", "rgb_array")
    env.close()
    assert env.calls == ["close"]
    bare = adapt_env(type("Bare", (Counter,), {"render": lambda self: "drawn"})())
    assert bare.render("rgb_array") == "drawn"


def test_gymnasium_wrapper_goes_over_the_adapter():
    env = gymnasium.wrappers.TimeLimit(adapt_env(Counter(limit=9)), 2)
    env.reset(seed=1)
    env.step(0)
    assert env.step(0)[2:4] == (False, True)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (5, "lacks reset, step, observation_space, action_space"),
        (type("NoSpaces", (), {"reset": len, "step": len})(), "lacks observation_space, action_space"),
        (type("Unset", (gymnasium.Env,), {})(), "lacks observation_space"),
        (MultiAgentEnv(), "MultiAgentEnv is a MultiAgentEnv; the single-agent"),
        (VectorEnv(UNIT := spaces.Discrete(2), UNIT, 2), "num_envs_per_worker"),
        (ExternalEnv(UNIT, UNIT), "ExternalEnv"),
        (gymnasium.make_vec("CartPole-v1", 2), "Gymnasium vector environment"),
    ],
)
def test_what_cannot_be_adapted_is_refused_with_reason(env, message):
    with pytest.raises(EnvError, match=message):
        adapt_env(env)


def gym_like(name, **attributes):
    """Returns an object that looks like a space of the old gym."""
    return type(name, (), attributes)()


OLD_BOX = gym_like(
    "Box", low=np.zeros(2, np.float32), high=np.ones(2, np.float32), shape=(2,), dtype=np.dtype("float32")
)
OLD_DISCRETE = gym_like("Discrete", n=3)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (OLD_BOX, spaces.Box(0.0, 1.0, (2,))),
        (
            gym_like("Box", low=np.zeros(2), high=np.full(2, 255.0), shape=(2,), dtype=np.uint8),
            spaces.Box(0, 255, (2,), np.uint8),
        ),
        (
            gym_like("Box", low=np.full(1, -np.inf), high=np.full(1, np.inf), shape=(1,), dtype=np.float32),
            spaces.Box(-np.inf, np.inf, (1,)),
        ),
        (OLD_DISCRETE, spaces.Discrete(3)),
        (gym_like("Discrete", n=np.int64(3), start=2), spaces.Discrete(3, start=2)),
        (gym_like("MultiDiscrete", nvec=np.array([2, 3]), dtype=np.int64), spaces.MultiDiscrete([2, 3])),
        (gym_like("MultiBinary", n=4), spaces.MultiBinary(4)),
        (gym_like("MultiBinary", n=(2, 3)), spaces.MultiBinary((2, 3))),
        (
            gym_like("Tuple", spaces=[OLD_BOX, OLD_DISCRETE]),
            spaces.Tuple([spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(3)]),
        ),
        (
            gym_like("Dict", spaces={"b": OLD_BOX, "a": gym_like("Dict", spaces={"d": OLD_DISCRETE})}),
            spaces.Dict({"b": spaces.Box(0.0, 1.0, (2,)), "a": spaces.Dict({"d": spaces.Discrete(3)})}),
        ),
        (
            gym_like("Text", max_length=4, min_length=1, characters=["a", "b"]),
            spaces.Text(4, min_length=1, charset="ab"),
        ),
        (gym_like("Sequence", feature_space=OLD_DISCRETE), spaces.Sequence(spaces.Discrete(3))),
        (type("MyBox", (type(OLD_BOX),), {})(), spaces.Box(0.0, 1.0, (2,))),
    ],
)
def test_convert_space_old_space_gives_equal_gymnasium_space(old, new):
    assert convert_space(old) == new


def test_convert_space_gymnasium_space_is_returned_itself():
    space = spaces.Discrete(2)
    assert convert_space(space) is space


@pytest.mark.parametrize(
    "space", ["Box", gym_like("Wheel", n=3), gym_like("Box", low=1), gym_like("Tuple", spaces=[3])]
)
def test_convert_space_unknown_raises_naming_it(space):
    with pytest.raises(EnvError, match=r"cannot be converted|no space that can be converted"):
        convert_space(space)


def test_base_env_shows_users_envs_and_follows_replacement():
    first, second = Counter(), gymnasium.make("CartPole-v1")
    slots = [adapt_env(first), second]
    view = BaseEnv(slots)
    assert view.num_envs == 2
    assert view.envs == view.get_unwrapped() == view.get_sub_environments() == [first, second]
    assert view.get_sub_environments(as_dict=True) == {0: first, 1: second}
    assert view.action_space == spaces.Discrete(2)
    assert view.observation_space == Counter.observation_space
    replacement = Counter()
    slots[0] = adapt_env(replacement)
    assert view.envs[0] is replacement
    view.stop()
    assert BaseEnv([]).observation_space is BaseEnv([]).action_space is None


def test_base_env_try_render_draws_one_slot():
    shown = [type("Shown", (Counter,), {"render": lambda self, i=i: i})() for i in range(2)]
    view = BaseEnv([adapt_env(env) for env in shown])
    assert (view.try_render(), view.try_render(1)) == (0, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: MultiAgentEnv().reset(),
        lambda: MultiAgentEnv().step({}),
        lambda: VectorEnv(None, None, 1).vector_reset(),
        lambda: VectorEnv(None, None, 1).reset_at(0),
        lambda: VectorEnv(None, None, 1).vector_step([]),
        lambda: ExternalEnv(None, None).run(),
    ],
)
def test_base_class_method_not_defined_names_class_and_method(call):
    with pytest.raises(NotImplementedError, match=r"Env must define \w+\(\)"):
        call()


def test_the_old_gyms_checker_is_ended_wherever_an_environment_holds_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", types.ModuleType("gym"))  # without it there is none to look for
    checker = type("PassiveEnvChecker", (Counter,), {"__module__": "gym.wrappers.env_checker", "checked_step": False})
    one, several, by_name = checker(), [checker(), checker()], {"a": checker()}
    outer = Counter()
    outer.wrapped, outer.copies, outer.by_name, outer.itself = one, several, by_name, outer
    adapt_env(outer)
    assert all(each.checked_step for each in (one, *several, *by_name.values()))
