"""Random actions, and those of StochasticSampling and SoftQ."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Tuple

from rlframe.exploration import Random, SoftQ, StochasticSampling
from rlframe.exploration.uniform import policy_bounds, uniform_logp, uniform_sampler
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from rlframe.utils.numpy import FLOAT_MIN
from rlframe.utils.spaces import Simplex
from rlframe.utils.spaces.space_maps import unsquash_action
from rlframe.utils.spaces.space_utils import get_base_struct_from_space
from tests.unit.exploration.helpers import THREE, choose, rng, values


def test_random_covers_the_space_and_not_the_distribution():
    exploration = Random(THREE, rng=rng())
    actions, logp = choose(exploration, values(*[[9, 0, 0]] * 300))
    assert set(actions.tolist()) == {0, 1, 2}
    assert logp.shape == (300,)
    assert logp.dtype == np.float32
    np.testing.assert_allclose(logp, -np.log(3), rtol=1e-6)
    assert choose(exploration, values([0, 9, 0]), explore=False)[0].tolist() == [1]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    "space",
    [
        Box(np.array([-2.0, 0.0, 1.0], np.float32), np.array([2.0, 0.0, 4.0], np.float32)),
        Box(-(3.4e38), 3.4e38, (2,), np.float32),
        Box(-np.inf, np.inf, (2,), np.float32),
        Box(np.array([0.0, -np.inf], np.float32), np.array([np.inf, 1.0], np.float32)),
        Box(3, 9, (2,), np.int32),
        Box(0, 255, (2, 2), np.uint8),
        Discrete(4),
        MultiDiscrete([3, 2]),
        MultiDiscrete(np.array([[3, 2], [4, 5]])),
        MultiBinary(3),
        Simplex((3,)),
        Tuple([Discrete(2), Dict({"a": Box(-5, 5, (1,), np.float32)})]),
    ],
)
def test_random_actions_arrive_in_the_space(space, normalize):
    sampler = uniform_sampler(space, normalized=normalize)
    batch = sampler(rng(), 50)
    if normalize:
        batch = unsquash_action(batch, get_base_struct_from_space(space))

    def row(part, i):
        if isinstance(part, tuple):
            return tuple(row(p, i) for p in part)
        if isinstance(part, dict):
            return {key: row(p, i) for key, p in part.items()}
        return part[i].astype(space.dtype) if isinstance(space, Box) else part[i]

    assert all(space.contains(row(batch, i)) for i in range(50))


def test_random_box_actions_reach_both_halves_of_the_range():
    space = Box(-2.0, 2.0, (1,), np.float32)
    drawn = unsquash_action(uniform_sampler(space, normalized=True)(rng(), 4000), space)
    # Un-squashed once: uniform over [-2, 2], with no heap at the bounds.
    assert np.mean(np.abs(drawn) > 1.9) == pytest.approx(0.05, abs=0.02)
    assert np.mean(np.abs(drawn) < 1.0) == pytest.approx(0.5, abs=0.05)


def test_policy_bounds_without_normalisation_are_the_spaces():
    low, high = policy_bounds(Box(-3, 5, (2,), np.float32), normalized=False)
    assert low.tolist() == [-3, -3]
    assert high.tolist() == [5, 5]


def test_random_of_a_strange_space_is_refused():
    with pytest.raises(UnsupportedSpaceException, match="Graph"):
        Random(Graph(Discrete(2), None), rng=rng())


def test_same_stream_gives_the_same_random_actions():
    one, two = Random(THREE, rng=rng(3)), Random(THREE, rng=rng(3))
    batch = values(*[[0, 0, 0]] * 40)
    assert choose(one, batch)[0].tolist() == choose(two, batch)[0].tolist()


def test_without_a_stream_the_seed_of_the_config_decides():
    batch = values(*[[0, 0, 0]] * 40)
    made = [Random(THREE, policy_config={"seed": 0}, worker_index=i) for i in (1, 1, 2)]
    one, two, other = (choose(exploration, batch)[0].tolist() for exploration in made)
    assert one == two != other


def test_stochastic_sampling_reports_the_likelihood_of_its_actions():
    exploration = StochasticSampling(THREE, rng=rng())
    distribution = values([0.0, 1.0, 2.0], [3.0, 0.0, 0.0])
    actions, logp = choose(exploration, distribution)
    assert np.allclose(logp, distribution.logp(actions))
    assert logp.dtype == np.float32


def test_stochastic_sampling_begins_with_random_steps():
    exploration = StochasticSampling(THREE, random_timesteps=10, rng=rng())
    certain = [[100.0, 0.0, 0.0]] * 100
    actions, logp = choose(exploration, values(*certain), 9)
    assert set(actions.tolist()) == {0, 1, 2}
    np.testing.assert_allclose(logp, -np.log(3), rtol=1e-6)
    assert choose(exploration, values(*certain), 10)[0].tolist() == [0] * 100


def test_soft_q_begins_with_random_steps():
    exploration = SoftQ(THREE, random_timesteps=10, rng=rng())
    actions, logp = choose(exploration, values(*[[100.0, 0.0, FLOAT_MIN]] * 100), 9)
    assert set(actions.tolist()) == {0, 1}
    np.testing.assert_allclose(logp, -np.log(2), rtol=1e-6)
    assert set(choose(exploration, values([100.0, 0.0, 0.0]), 10)[0].tolist()) == {0}


@pytest.mark.parametrize("mask", [FLOAT_MIN, FLOAT_MIN + 1e6, -np.inf])
@pytest.mark.parametrize("make", [Random, lambda *args, **more: StochasticSampling(*args, random_timesteps=10, **more)])
def test_random_actions_are_valid_ones(make, mask):
    exploration = make(THREE, rng=rng())
    actions, _ = choose(exploration, values(*[[mask, 5.0, -5.0]] * 1000, *[[0.0, 0.0, mask]] * 1000), 3)
    assert np.bincount(actions[:1000], minlength=3) == pytest.approx([0, 500, 500], abs=80)
    assert np.bincount(actions[1000:], minlength=3) == pytest.approx([500, 500, 0], abs=80)


@pytest.mark.parametrize("name", ["get_torch_exploration_action", "get_tf_exploration_action_op"])
def test_rllibs_names_of_the_frameworks_draw_the_same(name):
    drawn = [choose(Random(THREE, rng=rng()), values(*[[0.0, 1.0, 2.0]] * 20))[0]]
    drawn.append(getattr(Random(THREE, rng=rng()), name)(values(*[[0.0, 1.0, 2.0]] * 20), True)[0])
    assert drawn[0].tolist() == drawn[1].tolist()
    assert getattr(Random(THREE, rng=rng()), name)(values([0.0, 1.0, 2.0]), False)[0].tolist() == [2]


def test_inputs_that_are_no_values_of_actions_say_nothing_of_which_are_valid():
    exploration = Random(Discrete(5), rng=rng())
    actions, _ = choose(exploration, values(*[[FLOAT_MIN, 0.0, 0.0]] * 300))
    assert set(actions.tolist()) == {0, 1, 2, 3, 4}


def test_soft_q_draws_by_the_tempered_softmax():
    exploration = SoftQ(THREE, temperature=0.5, rng=rng())
    row = np.array([0.0, 0.5, 1.0])
    actions, logp = choose(exploration, values(*[row.tolist()] * 20_000))
    wanted = np.exp(row / 0.5) / np.exp(row / 0.5).sum()
    assert np.allclose(np.bincount(actions) / 20_000, wanted, atol=0.015)
    assert np.allclose(logp, np.log(wanted)[actions], atol=1e-6)


def test_soft_q_never_draws_masked_actions():
    exploration = SoftQ(THREE, temperature=0.01, rng=rng())
    for mask in (FLOAT_MIN, -np.inf):
        actions, logp = choose(exploration, values(*[[mask, 0.0, 0.0]] * 100))
        assert set(actions.tolist()) == {1, 2}
        assert np.allclose(logp, np.log(0.5))


def test_soft_q_refuses_boxes_and_temperatures_of_zero():
    with pytest.raises(UnsupportedSpaceException, match="Discrete"):
        SoftQ(Box(-1, 1, (1,)), rng=rng())
    with pytest.raises(ConfigError, match="temperature"):
        SoftQ(THREE, temperature=0.0, rng=rng())


@pytest.mark.parametrize(
    ("space", "wanted"),
    [
        (Discrete(4, start=2), -np.log(4)),
        (MultiDiscrete([2, 5]), -np.log(10)),
        (MultiBinary(3), -3 * np.log(2)),
        (Box(-2.0, 2.0, (2,)), -2 * np.log(2)),  # in the policy's space, where actions are in [-1, 1]
        (Box(-np.inf, np.inf, (2,)), 0.0),
        (Tuple((Discrete(3), Discrete(2))), -np.log(6)),
    ],
)
def test_uniform_draws_have_the_likelihood_of_their_space(space, wanted):
    np.testing.assert_allclose(uniform_logp(space, normalized=True), wanted, rtol=1e-6)


@pytest.mark.parametrize("space", [THREE, Box(-1.0, 1.0, (2,))])
def test_random_actions_within_a_traced_step_are_drawn_each_time_it_runs(space):
    tf = pytest.importorskip("tensorflow")
    from types import SimpleNamespace

    exploration = Random(space, rng=rng(), framework="tf")

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def step(inputs):
        rows = SimpleNamespace(inputs=inputs)
        return exploration.get_exploration_action(action_distribution=rows, timestep=0)

    drawn = [step(tf.zeros([50, 3])) for _ in range(3)]
    assert len({actions.numpy().tobytes() for actions, _ in drawn}) == 3
    assert all(space.contains(action) for actions, _ in drawn for action in actions.numpy())
    assert {(actions.shape[0], *logp.shape) for actions, logp in drawn} == {(50, 50)}
    assert step(tf.zeros([7, 3]))[0].shape[0] == 7


def test_random_actions_of_several_parts_within_a_traced_step_are_refused():
    tf = pytest.importorskip("tensorflow")
    from types import SimpleNamespace

    exploration = Random(Tuple([THREE, THREE]), rng=rng(), framework="tf")

    @tf.function(autograph=False)
    def step(inputs):
        return exploration.get_exploration_action(action_distribution=SimpleNamespace(inputs=inputs), timestep=0)

    with pytest.raises(UnsupportedSpaceException, match="an exploration for each part"):
        step(tf.zeros([5, 6]))
