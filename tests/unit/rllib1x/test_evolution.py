"""Pieces of RLlib's ES, in loops of programs."""

from __future__ import annotations

import numpy as np
import pytest

from rlframe.agents.es.es import SharedNoiseTable, create_shared_noise
from rlframe.agents.es.optimizers import SGD, Adam, Optimizer
from rlframe.agents.es.utils import batched_weighted_sum, compute_centered_ranks, compute_ranks, itergroups


class Weights:
    num_params = 3

    def __init__(self):
        self.theta = np.array([3.0, -2.0, 1.0], np.float32)

    def get_flat_weights(self):
        return self.theta


def test_ranks_begin_at_0():
    assert compute_ranks(np.array([0.5, -1.0, 7.0, 0.0])).tolist() == [2, 0, 3, 1]
    with pytest.raises(ValueError, match="one axis"):
        compute_ranks(np.zeros((2, 2)))


def test_groups_and_weighted_sums_take_all_that_there_is():
    assert list(itergroups(range(5), 2)) == [(0, 1), (2, 3), (4,)]
    with pytest.raises(ValueError, match="1 or more"):
        list(itergroups(range(5), 0))
    rng = np.random.default_rng(0)
    weights, vectors = rng.normal(size=7), rng.normal(size=(7, 4)).astype(np.float32)
    total, count = batched_weighted_sum(iter(weights), iter(vectors), batch_size=3)
    assert count == 7
    np.testing.assert_allclose(total, weights @ vectors, rtol=1e-5)
    with pytest.raises(ValueError, match="shorter"):
        batched_weighted_sum([1.0, 2.0], vectors[:1], batch_size=1)


def test_noise_is_the_same_for_all_and_taken_in_pieces():
    table = SharedNoiseTable(create_shared_noise(1000))
    assert np.array_equal(table.noise, create_shared_noise(1000))
    places = {table.sample_index(998) for _ in range(50)}
    assert places == {0, 1, 2}
    assert np.array_equal(table.get(2, 998), table.noise[2:])
    place, delta = table.get_delta(999)
    assert np.array_equal(delta, table.get(place, 999))
    assert callable(create_shared_noise.remote)  # as a task of Ray's, whose runtime this test does not start
    with pytest.raises(TypeError, match="float32"):
        SharedNoiseTable(np.zeros(3))


def test_first_steps_by_hand():
    gradient = np.array([1.0, -4.0, 0.5], np.float32)
    policy = Weights()
    moved, ratio = SGD(policy, 0.1, momentum=0.5).update(gradient)
    np.testing.assert_allclose(moved, [2.95, -1.8, 0.975], rtol=1e-6)
    assert ratio == pytest.approx(0.05 * np.sqrt(1 + 16 + 0.25) / np.sqrt(14), rel=1e-6)
    moved, _ = Adam(policy, 0.1).update(gradient)
    np.testing.assert_allclose(moved, [2.9, -1.9, 0.9], rtol=1e-5)  # its first step is its rate
    with pytest.raises(NotImplementedError, match="_compute_step"):
        Optimizer(policy).update(gradient)


def test_a_search_of_a_programs_own_finds_the_least():
    policy, noise = Weights(), SharedNoiseTable(create_shared_noise(100_000))
    optimizer = Adam(policy, 0.1)
    np.random.seed(0)  # noqa: NPY002 - the stream that places are drawn from
    for _ in range(200):
        places = [noise.sample_index(3) for _ in range(20)]
        returns = np.array(
            [
                [-np.square(policy.theta + sign * 0.1 * noise.get(place, 3)).sum() for sign in (1, -1)]
                for place in places
            ]
        )
        ranks = compute_centered_ranks(returns)
        summed, count = batched_weighted_sum(ranks[:, 0] - ranks[:, 1], (noise.get(at, 3) for at in places), 8)
        policy.theta, _ = optimizer.update(-summed / count + 0.005 * policy.theta)
    assert np.abs(policy.theta).max() < 0.2
