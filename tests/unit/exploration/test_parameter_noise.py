"""ParameterNoise: noisy weights while acting, clean ones at all other times."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import MultiDiscrete

from rlframe.exploration import EpsilonGreedy, OrnsteinUhlenbeckNoise, ParameterNoise
from rlframe.utils.errors import UnsupportedSpaceException
from tests.unit.exploration.helpers import PENDULUM, THREE, LinearPolicy, choose, means, rng, values


def noisy_policy(**options):
    exploration = ParameterNoise(options.pop("space", THREE), rng=rng(3), **options)
    return exploration, LinearPolicy(exploration, 1 if exploration.action_space is PENDULUM else 3)


def arrays(policy):
    return {name: array.copy() for name, array in policy.weights.items()}


def same(a, b):
    return all(np.array_equal(a[name], b[name]) for name in a)


def test_weights_are_noisy_while_exploring_and_exactly_clean_afterwards():
    exploration, policy = noisy_policy()
    clean = arrays(policy)
    exploration.before_compute_actions(timestep=0, explore=True)
    noisy = arrays(policy)
    assert exploration.weights_are_currently_noisy
    assert not np.array_equal(noisy["q.weight"], clean["q.weight"])
    assert np.array_equal(noisy["layer_norm.weight"], clean["layer_norm.weight"])
    assert noisy["steps"] == 3
    exploration.restore_weights()
    assert same(arrays(policy), clean)
    exploration.before_compute_actions(timestep=1, explore=True)
    assert same(arrays(policy), noisy), "the same episode has the same noise"
    exploration.before_compute_actions(timestep=2, explore=False)
    assert same(arrays(policy), clean)


def test_reading_and_setting_weights_sees_clean_ones():
    exploration, policy = noisy_policy()
    clean = arrays(policy)
    exploration.before_compute_actions(timestep=0, explore=True)
    assert same(policy.get_weights(), clean)
    exploration.before_compute_actions(timestep=0, explore=True)
    policy.set_weights({name: array + 1 for name, array in clean.items()})
    exploration.restore_weights()
    assert np.allclose(policy.weights["q.weight"], clean["q.weight"] + 1)


def test_each_episode_draws_new_noise_at_once_in_a_round_of_acting():
    exploration, policy = noisy_policy()
    exploration.before_compute_actions(timestep=0, explore=True)
    first = arrays(policy)
    exploration.on_episode_end(policy)
    exploration.on_episode_start(policy)
    second = arrays(policy)
    assert exploration.weights_are_currently_noisy
    assert not same(first, second)


def test_an_episode_outside_a_round_of_acting_leaves_the_weights_clean():
    exploration, policy = noisy_policy()
    clean = arrays(policy)
    exploration.on_episode_start(policy)
    assert same(arrays(policy), clean)
    exploration.before_compute_actions(timestep=0, explore=True)
    exploration.restore_weights()
    exploration.on_episode_start(policy)
    assert same(arrays(policy), clean)


def test_training_on_noisy_weights_is_an_error():
    exploration, policy = noisy_policy()
    exploration.before_compute_actions(timestep=0, explore=True)
    policy.weights["q.bias"] += 1.0  # an optimiser that asked nobody
    with pytest.raises(RuntimeError, match="restore_weights"):
        exploration.restore_weights()


def test_exploring_without_a_policy_is_an_error():
    exploration = ParameterNoise(THREE, rng=rng())
    exploration.before_compute_actions(timestep=0, explore=False)
    with pytest.raises(RuntimeError, match=r"exploration\.policy"):
        exploration.before_compute_actions(timestep=0, explore=True)


@pytest.mark.parametrize("keeps_inputs", [True, False])
def test_stddev_grows_when_actions_hardly_differ_and_shrinks_when_they_differ_much(keeps_inputs):
    for stddev, factor in ((1e-6, 1.01), (50.0, 1 / 1.01)):
        exploration, policy = noisy_policy(initial_stddev=stddev, random_timesteps=0)
        policy.keeps_inputs = keeps_inputs
        obs = rng(8).standard_normal((40, 2)).astype(np.float32)
        choose(exploration, values([0, 0, 0]), 10)  # epsilon is 1 % from step 2 on
        exploration.before_compute_actions(timestep=10, explore=True)
        batch = {"obs": obs}
        if keeps_inputs:
            batch["action_dist_inputs"] = policy.forward(obs)[0]
        exploration.restore_weights()
        clean, step = arrays(policy), policy.global_timestep
        assert exploration.postprocess_trajectory(policy, batch) is batch
        assert exploration.stddev == pytest.approx(stddev * factor)
        assert same(arrays(policy), clean)
        assert policy.global_timestep == step


def test_stddev_stays_where_nothing_was_noisy():
    exploration, policy = noisy_policy()
    exploration.before_compute_actions(timestep=0, explore=False)
    exploration.postprocess_trajectory(policy, {"obs": np.zeros((4, 2), np.float32)})
    assert exploration.stddev == 1.0


def test_stddev_of_boxes_follows_the_distance_of_the_actions():
    exploration, policy = noisy_policy(space=PENDULUM, initial_stddev=1e-6, random_timesteps=0)
    exploration.before_compute_actions(timestep=0, explore=True)
    exploration.postprocess_trajectory(policy, {"obs": np.ones((4, 2), np.float32)})
    assert exploration.stddev == pytest.approx(1e-6 * 1.01)


def test_sub_exploration_defaults_follow_the_action_space():
    discrete = ParameterNoise(THREE, random_timesteps=5, rng=rng())
    assert isinstance(discrete.sub_exploration, EpsilonGreedy)
    for step, wanted in ((0, 1.0), (6, 1.0), (7, 0.01), (1000, 0.01)):
        choose(discrete, values([0, 1, 2]), step)
        assert discrete.sub_exploration.epsilon == pytest.approx(wanted)
    box = ParameterNoise(PENDULUM, random_timesteps=5, rng=rng())
    assert isinstance(box.sub_exploration, OrnsteinUhlenbeckNoise)
    assert choose(box, means([0.5]), 10, explore=False)[0].tolist() == [[0.5]]
    given = ParameterNoise(THREE, sub_exploration={"type": "Random"}, rng=rng())
    assert type(given.sub_exploration).__name__ == "Random"
    with pytest.raises(UnsupportedSpaceException, match="ParameterNoise"):
        ParameterNoise(MultiDiscrete([2, 2]), rng=rng())


def test_state_restored_goes_on_exactly():
    one, policy = noisy_policy()
    one.before_compute_actions(timestep=0, explore=True)
    one.stddev = 0.3
    noisy = arrays(policy)
    one.restore_weights()
    state = one.get_state()
    two, other = noisy_policy()
    other.set_weights(policy.get_weights())
    two.set_state(state)
    two.before_compute_actions(timestep=1, explore=True)
    assert same(arrays(other), noisy)
    for exploration, actor in ((one, policy), (two, other)):
        exploration.before_compute_actions(timestep=1, explore=True)
        exploration.on_episode_start(actor)
    assert same(arrays(other), arrays(policy))


def test_torch_models_keep_norms_and_buffers():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2), torch.nn.BatchNorm1d(2))
    exploration = ParameterNoise(THREE, model=model, rng=rng())
    exploration.policy = policy = LinearPolicy(exploration)
    policy.weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    before = arrays(policy)
    exploration.before_compute_actions(timestep=0, explore=True)
    changed = {name for name in before if not np.array_equal(before[name], policy.weights[name])}
    assert changed == {"0.weight", "0.bias"}
