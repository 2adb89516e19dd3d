"""Checks of observations, steps and whole environments: what passes, and what the errors name."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlframe.env.checks import check_env, check_observation, check_reset_result, check_step_result
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.utils.errors import EnvError, NonFiniteError
from rlframe.utils.spaces import Repeated, Simplex, fits_space

UNIT = spaces.Box(-1.0, 1.0, (3,))
NESTED = spaces.Dict({"position": UNIT, "inner": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])})
NESTED_OBS = {"position": np.zeros(3, np.float32), "inner": (1, np.array([0, 1], np.int8))}


def test_observation_that_fits_is_returned_itself():
    obs = np.array([0.5, -1.0, 1.0], np.float32)
    assert check_observation(obs, UNIT) is obs


@pytest.mark.parametrize(
    ("obs", "space", "want"),
    [
        (np.array([0.1, 0.2, 0.3]), UNIT, np.float32([0.1, 0.2, 0.3])),
        ([0.1, 0, 1], UNIT, np.float32([0.1, 0, 1])),
        ((True, False, True), UNIT, np.float32([1, 0, 1])),
        (np.array([0, 255], np.int64), spaces.Box(0, 255, (2,), np.uint8), np.uint8([0, 255])),
        ([0, 255], spaces.Box(0, 255, (2,), np.uint8), np.uint8([0, 255])),
        (np.array([1, 2], np.uint8), spaces.Box(-9, 9, (2,), np.int64), np.int64([1, 2])),
        (0.5, spaces.Box(0.0, 1.0, ()), np.float32(0.5)),
        (np.array([1, 2], np.int32), spaces.MultiDiscrete([2, 3]), np.int64([1, 2])),
        (np.array([True, False]), spaces.MultiBinary(2), np.int8([1, 0])),
        (np.array(2, np.uint8), spaces.Discrete(3), np.int64(2)),
        (5, spaces.Discrete(3, start=4), np.int64(5)),
    ],
)
def test_observation_of_other_type_is_cast_safely(obs, space, want):
    result = check_observation(obs, space)
    assert result.dtype == want.dtype == space.dtype
    np.testing.assert_array_equal(result, want)
    assert space.contains(result)


def test_observation_one_ulp_outside_is_put_on_the_bound():
    high = np.float32(1.0)
    result = check_observation(np.array([np.nextafter(high, np.float32(2)), -1.0, 0.0], np.float32), UNIT)
    assert result[0] == 1.0
    # A float64 above the bound that rounds to the float32 bound is rounding too.
    assert check_observation(np.array([1.0 + 1e-12, 0.0, 0.0]), UNIT)[0] == 1.0
    wide = spaces.Box(-1.0, 1.0, (1,), np.float64)
    assert check_observation(np.array([np.nextafter(1.0, 2.0)]), wide)[0] == 1.0


def test_observation_infinite_bounds_accept_any_finite_value():
    space = spaces.Box(-np.inf, np.inf, (2,))
    check_observation(np.array([-3e38, 3e38]), space)
    limit = float(np.finfo(np.float32).max)
    check_observation(np.array([limit, -limit]), spaces.Box(-limit, limit, (2,)))


@pytest.mark.parametrize(
    ("obs", "space"),
    [
        (np.array([0.0, 255.0]), spaces.Box(0, 255, (2,), np.uint8)),
        (np.ones(2), spaces.MultiBinary(2)),
        ([1.0, 2.0], spaces.MultiDiscrete([2, 3])),
    ],
)
def test_floats_that_are_whole_numbers_are_members_of_integer_spaces(obs, space):
    taken = check_observation(obs, space, "here")
    assert taken.dtype == space.dtype
    assert taken.tolist() == list(obs)


def test_arrays_of_objects_that_are_numbers_are_numbers():
    taken = check_observation(np.array([1, -0.5, np.float64(0)], object), UNIT, "here")
    assert (taken.dtype, taken.tolist()) == (np.float32, [1.0, -0.5, 0.0])
    with pytest.raises(EnvError, match="dtype object"):
        check_observation(np.array([1, None, 0], object), UNIT, "here")


@pytest.mark.parametrize(
    ("obs", "space", "message"),
    [
        ([0.0, 0.0, 1.5], UNIT, r"here: obs\[2\] is 1.5, above its bound 1.0 \(dtype float32\)"),
        ([0.0, -2.0, -2.0], UNIT, r"obs\[1\] is -2.0, below its bound -1.0.*\(and 1 more like it\)"),
        ([0.0, 0.0], UNIT, r"obs has shape \(2,\); wanted a float32 array of shape \(3,\)"),
        ([[1.0], [1.0, 2.0]], UNIT, "list of length 2 that is no array"),
        ((np.zeros(3), {}), UNIT, "here: obs is a tuple of two, the second a dict: that is what reset"),
        ((1, {}), spaces.Discrete(2), "that is what reset"),
        (None, UNIT, r"obs is None \(NoneType\); wanted a float32 array"),
        ("abc", UNIT, r"obs is 'abc' \(str\)"),
        (np.array([1j, 0, 0]), UNIT, "dtype complex128"),
        (np.array([object()] * 3), UNIT, "dtype object"),
        (
            np.float64([1e300, 0, 0]),
            spaces.Box(-np.inf, np.inf, (3,)),
            r"obs\[0\] is 1e\+300 .*which float32",
        ),
        (
            np.array([1.0, 0.5]),
            spaces.Box(0, 255, (2,), np.uint8),
            r"obs\[1\] is 0.5 \(float64\); the space declares uint8",
        ),
        (np.array([0, 256]), spaces.Box(0, 255, (2,), np.uint8), r"obs\[1\] is 256 \(int64\), which uint8 cannot hold"),
        (np.array([-1, 0]), spaces.Box(0, 255, (2,), np.uint8), r"obs\[0\] is -1 .*uint8 cannot hold"),
        (np.array([[0, 9]]), spaces.Box(0, 5, (1, 2), np.int64), r"obs\[0, 1\] is 9, above its bound 5"),
        (3, spaces.Discrete(3), r"obs is 3, above its bound 2 \(Discrete\(3\)\)"),
        (3, spaces.Discrete(3, start=4), r"obs is 3, below its bound 4"),
        (1.5, spaces.Discrete(3), r"obs is 1.5 \(float64\); the space declares int64, and floats are not rounded"),
        (np.array([1]), spaces.Discrete(3), r"shape \(1,\); wanted one int64 number"),
        ([0, 3], spaces.MultiDiscrete([2, 3]), r"obs\[1\] is 3, above its bound 2"),
        ([0, 2], spaces.MultiBinary(2), r"obs\[1\] is 2, above its bound 1"),
        ((0.0,), spaces.Tuple([UNIT, UNIT]), "tuple of length 1; wanted a tuple of length 2"),
        (5, spaces.Tuple([UNIT]), "obs is a int; wanted a tuple"),
        ([0.0], NESTED, r"obs is a list of length 1; wanted a dict with the keys \['inner', 'position'\]"),
        ({"position": 0, "other": 0}, NESTED, r"lacks \['inner'\] and has the undeclared \['other'\]"),
        ({**NESTED_OBS, "position": [0, 0, 7.0]}, NESTED, r'obs\["position"\]\[2\] is 7.0, above its bound 1.0'),
        ({**NESTED_OBS, "inner": (1, [0, 5])}, NESTED, r'obs\["inner"\]\[1\]\[1\] is 5'),
        ([[0, 0, 0], [0, 0, 9]], Repeated(UNIT, 3), r"obs\[1\]\[2\] is 9"),
        ([[0, 0, 0]] * 4, Repeated(UNIT, 3), "list of length 4; wanted a list of at most 3 items"),
        ([0.5, 0.9], Simplex((2,)), "outside of Simplex"),
        ("ABC", spaces.Text(2), "outside of Text"),
        (0, "no space", r"the space of obs is 'no space' \(str\)"),
    ],
)
def test_observation_that_does_not_fit_names_leaf_value_and_bound(obs, space, message):
    with pytest.raises(EnvError, match=message):
        check_observation(obs, space, "here")
    assert not fits_space(obs, space)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_observation_not_finite_names_leaf(bad):
    obs = {**NESTED_OBS, "position": np.array([0.0, bad, 0.0])}
    with pytest.raises(NonFiniteError, match=rf'step 3: obs\["position"\]\[1\] is {bad}'):
        check_observation(obs, NESTED, "step 3")
    with pytest.raises(NonFiniteError, match=r"obs\[0\]"):
        check_observation(np.float32([bad]), spaces.Box(-np.inf, np.inf, (1,)))


def test_observation_nested_comes_back_in_the_form_of_its_space():
    result = check_observation({"position": [0, 0, 1], "inner": [2, [1, 0]]}, NESTED)
    assert list(result) == ["inner", "position"]
    assert isinstance(result["inner"], tuple)
    assert NESTED.contains(result)


def test_step_result_of_five_is_returned_in_plain_types():
    result = check_step_result((1, np.float32(0.5), np.bool_(True), 0, {}))
    assert result == (1, 0.5, True, False, {})
    assert [type(item) for item in result[1:4]] == [float, bool, bool]
    assert check_step_result((1, np.array(2), False, np.array(True), {}))[1:4] == (2.0, False, True)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ((np.zeros(4), 1.0, False, {}), r"tuple of length 4: \(float64 array of shape \(4,\), float, bool, dict"),
        ((np.zeros(4), 1.0, False, {}), r"Wanted \(observation, reward: float, terminated.*\(observation, .*done"),
        (None, "returned one NoneType"),
        ([1, 1.0, False, False, {}], "a list of length 5"),
        ((1, 1.0, False, False, None), "Its info is a NoneType, not a dict"),
        ((1, 1.0, None, False, {}), "Its terminated is None, not a bool"),
        ((1, 1.0, False, 0.5, {}), "Its truncated is 0.5, not a bool"),
        ((1, 1.0, False, 2, {}), "Its truncated is 2, not a bool"),
        ((1, None, False, False, {}), "reward None"),
        ((1, "1", False, False, {}), "reward '1'"),
        ((1, np.ones(1), False, False, {}), r"array of shape \(1,\).*float\(reward\[0\]\)"),
        ((1, [1.0], False, False, {}), "list of length 1"),
    ],
)
def test_step_result_wrong_names_what_was_returned_and_wanted(result, message):
    with pytest.raises(EnvError, match=f"step 1.*{message}"):
        check_step_result(result, "step 1")


@pytest.mark.parametrize("reward", [np.nan, float("inf"), np.float32("-inf")])
def test_step_result_reward_not_finite_raises(reward):
    with pytest.raises(NonFiniteError, match="reward"):
        check_step_result((1, reward, False, False, {}))


def test_reset_result_bare_observation_raises():
    assert check_reset_result((1, {"a": 2})) == (1, {"a": 2})
    with pytest.raises(EnvError, match=r"returned one float64 array of shape \(2,\). Wanted \(observation, info"):
        check_reset_result(np.zeros(2))


class Faulty(gymnasium.Env):
    """Right, but for what is overridden by `faults`, a dict from method to what it returns."""

    observation_space = UNIT
    action_space = spaces.Discrete(2)

    def __init__(self, **faults):
        self.faults = faults
        self.actions = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._result("reset", (np.zeros(3), {}))

    def step(self, action):
        self.actions.append(int(action))
        return self._result("step", (np.zeros(3), 1.0, len(self.actions) % 5 == 0, False, {}))

    def _result(self, name, right):
        result = self.faults.get(name, right)
        if isinstance(result, Exception):
            raise result
        return result


def test_check_env_right_environment_passes_reproducibly():
    first, second = Faulty(), Faulty()
    check_env(first, num_steps=12)
    check_env(second, num_steps=12)
    assert first.actions == second.actions
    assert len(first.actions) == 12


@pytest.mark.parametrize(
    ("faults", "error", "message"),
    [
        ({"reset": np.zeros(3)}, EnvError, r"my env: reset\(\) returned one float64"),
        ({"reset": (np.ones(3) * 2, {})}, EnvError, r"my env: reset\(\): obs\[0\] is 2.0"),
        ({"reset": RuntimeError("boom")}, EnvError, r"my env: reset\(\) raised RuntimeError: boom"),
        ({"step": RuntimeError("boom")}, EnvError, r"my env: step 1 with action .* raised RuntimeError: boom"),
        ({"step": (np.zeros(3), 1.0, False, {})}, EnvError, "step 1 .*tuple of length 4"),
        ({"step": (np.zeros(2), 1.0, False, False, {})}, EnvError, r"step 1 .*obs has shape \(2,\)"),
        ({"step": (np.zeros(3), np.nan, False, False, {})}, NonFiniteError, "step 1 .*reward nan"),
        ({"step": NonFiniteError("mine")}, NonFiniteError, "^mine"),
        ({"reset": EnvError("mine")}, EnvError, "^mine"),
    ],
)
def test_check_env_faulty_environment_names_the_call(faults, error, message):
    with pytest.raises(error, match=message):
        check_env(Faulty(**faults), where="my env")


def test_check_env_without_spaces_names_them():
    env = Faulty()
    env.action_space = None
    with pytest.raises(EnvError, match="lacks action_space"):
        check_env(env)
    env.action_space = "left or right"
    with pytest.raises(EnvError, match="'left or right'"):
        check_env(env)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_check_env_gymnasium_environments_pass(name):
    check_env(gymnasium.make(name), num_steps=100)


class Pair(MultiAgentEnv):
    """Two agents; b is through after a step, and a turn later the episode is over."""

    def __init__(self, **faults):
        super().__init__()
        self.observation_space = {agent: spaces.Box(-1, 1, (1,), np.float32) for agent in "ab"}
        self.action_space = {agent: spaces.Discrete(2) for agent in "ab"}
        self.faults, self.actions, self.at = faults, [], 0

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return self.faults.get("reset", {agent: np.zeros(1, np.float32) for agent in "ab"}), {}

    def step(self, action_dict):
        self.actions.append(dict(action_dict))
        self.at += 1
        obs = self.faults.get("obs", {agent: np.ones(1, np.float32) for agent in "ab"})
        return obs, self.faults.get("rewards", {"a": 1.0}), {"b": True, "__all__": self.at == 2}, {"__all__": False}, {}


def test_check_env_steps_several_agents_reproducibly():
    first, second = Pair(), Pair()
    for env in (first, second):
        check_env(env, num_steps=6)
    assert first.actions == second.actions
    assert [set(actions) for actions in first.actions] == [{"a", "b"}, {"a"}] * 3


def test_check_env_goes_on_where_nobody_is_there_at_the_beginning():
    env = Pair(reset={})
    check_env(env, num_steps=4)
    assert [set(actions) for actions in env.actions] == [set(), {"a"}] * 2


@pytest.mark.parametrize(
    ("faults", "error", "message"),
    [
        ({"reset": {"a": np.full(1, 2.0)}}, EnvError, r"my env: reset\(\), agent 'a': obs\[0\] is 2.0"),
        ({"reset": {"c": 0}}, EnvError, "my env: observation_space of agent 'c' is None"),
        ({"obs": {"a": np.zeros(2)}}, EnvError, r"step 1, agent 'a': obs has shape \(2,\)"),
        ({"rewards": {"a": np.nan}}, NonFiniteError, "step 1: step.*agent 'a' returned the reward nan"),
        ({"rewards": 1.0}, EnvError, "step 1: step.. returned rewards as"),
    ],
)
def test_check_env_names_the_agent_and_the_call(faults, error, message):
    with pytest.raises(error, match=message):
        check_env(Pair(**faults), where="my env")
