"""Noise on continuous actions."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rlframe.exploration import (
    GaussianNoise,
    OrnsteinUhlenbeckNoise,
    PerWorkerGaussianNoise,
    PerWorkerOrnsteinUhlenbeckNoise,
)
from rlframe.utils.errors import UnsupportedSpaceException
from tests.unit.exploration.helpers import PENDULUM, choose, means, rng

WIDE = Box(-100.0, 100.0, (2,), np.float32)
RAW = {"normalize_actions": False}


def test_gaussian_noise_has_the_scheduled_size():
    noise = GaussianNoise(
        WIDE, random_timesteps=0, stddev=2.0, final_scale=0.5, scale_timesteps=100, policy_config=RAW, rng=rng()
    )
    batch = means(*[[10.0, -10.0]] * 5000)
    for step, scale in ((0, 1.0), (50, 0.75), (200, 0.5)):
        actions, logp = choose(noise, batch, step)
        assert np.allclose(actions.mean(axis=0), [10.0, -10.0], atol=0.15)
        assert np.allclose(actions.std(axis=0), 2.0 * scale, rtol=0.05)
        assert noise.get_state()["cur_scale"] == pytest.approx(scale)
    assert actions.dtype == np.float32
    assert not logp.any()


def test_gaussian_noise_is_clipped_to_the_policys_bounds():
    batch = means(*[[0.95]] * 500)
    normal = GaussianNoise(PENDULUM, random_timesteps=0, stddev=1.0, rng=rng())
    raw = GaussianNoise(PENDULUM, random_timesteps=0, stddev=3.0, policy_config=RAW, rng=rng())
    assert choose(normal, batch)[0].max() == 1.0
    assert choose(normal, batch)[0].min() == -1.0
    assert choose(raw, batch)[0].max() == 2.0
    assert choose(raw, batch)[0].min() == -2.0


def test_gaussian_noise_begins_with_random_steps():
    noise = GaussianNoise(PENDULUM, random_timesteps=10, stddev=0.0, rng=rng())
    batch = means(*[[0.5]] * 100)
    assert choose(noise, batch, 9)[0].std() > 0.3
    assert np.all(choose(noise, batch, 10)[0] == 0.5)


@pytest.mark.parametrize("kind", [GaussianNoise, OrnsteinUhlenbeckNoise])
def test_scale_changes_behind_the_random_steps(kind):
    noise = kind(PENDULUM, random_timesteps=10, initial_scale=3.0, final_scale=1.0, scale_timesteps=100, rng=rng())
    # a straight line from 3 at step 10 to 1 at step 110, as in RLlib
    for step, scale in ((0, 3.0), (10, 3.0), (60, 2.0), (100, 1.2), (110, 1.0), (500, 1.0)):
        choose(noise, means([0.5]), step)
        assert noise.get_state()["cur_scale"] == pytest.approx(scale)


@pytest.mark.parametrize("kind", [GaussianNoise, OrnsteinUhlenbeckNoise])
def test_noise_without_explore_is_none(kind):
    noise = kind(PENDULUM, rng=rng())
    assert choose(noise, means([0.25]), explore=False)[0].tolist() == [[0.25]]


@pytest.mark.parametrize("kind", [GaussianNoise, OrnsteinUhlenbeckNoise])
@pytest.mark.parametrize("space", [Discrete(2), Box(0, 5, (1,), np.int32)])
def test_noise_on_anything_but_floats_is_refused(kind, space):
    with pytest.raises(UnsupportedSpaceException, match=f"{kind.__name__} got the action space"):
        kind(space, rng=rng())


def ou(**options):
    given = {"random_timesteps": 0, "policy_config": RAW, "rng": rng(5), "scale_schedule": 1.0} | options
    return OrnsteinUhlenbeckNoise(WIDE, **given)


def test_ou_noise_is_the_process_of_the_paper_scaled_once():
    noise = ou(scale_schedule=0.5, ou_base_scale=0.1)
    draws, x = rng(5), np.zeros((3, 2))
    for _ in range(5):
        x = x - 0.15 * x + 0.2 * draws.standard_normal((3, 2), np.float32)
        actions, _ = choose(noise, means(*[[0.0, 0.0]] * 3))
        assert np.allclose(actions, 0.5 * 0.1 * 200.0 * x, atol=1e-4)


def test_ou_noise_in_different_slots_is_independent():
    noise = ou()
    series = np.array([choose(noise, means([0.0, 0.0], [0.0, 0.0]))[0] for _ in range(400)])
    slots = series[:, :, 0].T
    assert abs(np.corrcoef(slots)[0, 1]) < 0.5
    # Correlated in time: x keeps 85 % of itself in a step.
    assert np.corrcoef(slots[0, :-1], slots[0, 1:])[0, 1] > 0.6


def test_ou_noise_begins_anew_with_an_episode_in_its_slot_only():
    noise = ou()
    for _ in range(20):
        choose(noise, means(*[[0.0, 0.0]] * 3))
    before = noise.ou_state.copy()
    noise.on_episode_start(None, episode=SimpleNamespace(env_id=1))
    assert not noise.ou_state[1].any()
    assert np.array_equal(noise.ou_state[[0, 2]], before[[0, 2]])
    noise.on_episode_start(None)
    assert not noise.ou_state.any()


def test_ou_noise_with_changing_numbers_of_rows_keeps_each_slots_process():
    noise = ou(ou_sigma=0.0, ou_theta=0.0)
    choose(noise, means([0.0, 0.0]))
    noise.ou_state[0] = 1.0
    choose(noise, means(*[[0.0, 0.0]] * 3))
    assert noise.ou_state.tolist() == [[1, 1], [0, 0], [0, 0]]
    choose(noise, means([0.0, 0.0]))
    assert noise.ou_state.shape == (3, 2)


def test_ou_noise_state_restored_goes_on_exactly():
    one, two = ou(), ou(rng=rng(9))
    for _ in range(5):
        choose(one, means([0.0, 0.0]))
    two.set_state(one.get_state())
    for _ in range(5):
        assert np.array_equal(choose(one, means([0.0, 0.0]))[0], choose(two, means([0.0, 0.0]))[0])


def test_ou_noise_in_unbounded_dimensions_has_a_span_of_one():
    noise = OrnsteinUhlenbeckNoise(Box(-np.inf, np.inf, (1,)), random_timesteps=0, scale_schedule=1.0, rng=rng(5))
    actions, _ = choose(noise, means([3.0]))
    assert np.allclose(actions, 3.0 + 0.1 * 0.2 * rng(5).standard_normal((1, 1), np.float32))


@pytest.mark.parametrize("kind", [PerWorkerGaussianNoise, PerWorkerOrnsteinUhlenbeckNoise])
def test_per_worker_noise_spreads_constant_scales(kind):
    scales = [kind(PENDULUM, num_workers=3, worker_index=i, rng=rng()).get_state()["cur_scale"] for i in range(4)]
    assert scales == pytest.approx([0.0, 0.4, 0.4**4.5, 0.4**8])
    assert kind(PENDULUM, num_workers=1, worker_index=1).scale == pytest.approx(0.4)
    assert kind(PENDULUM, num_workers=0, initial_scale=0.7).scale == pytest.approx(0.7)


def test_noise_hooks_are_only_announced_where_they_do_something():
    assert OrnsteinUhlenbeckNoise.has_episode_hooks
    assert not GaussianNoise.has_episode_hooks
    assert not GaussianNoise.has_postprocessing
