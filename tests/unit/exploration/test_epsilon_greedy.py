"""EpsilonGreedy and its per-worker sibling."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Tuple

from rlframe.agents.pg.pg_policy import PGTorchPolicy
from rlframe.exploration import EpsilonGreedy, PerWorkerEpsilonGreedy, StochasticSampling, per_worker_constant
from rlframe.models.compound_distributions import MultiCategorical
from rlframe.utils.errors import ConfigError
from rlframe.utils.schedules import ConstantSchedule
from rlframe.utils.torch_utils import FLOAT_MIN
from tests.unit.exploration.helpers import THREE, choose, rng, values


def test_epsilon_without_explore_gives_the_best_action_and_draws_nothing():
    exploration = EpsilonGreedy(THREE, rng=rng())
    before = exploration.get_state()["rng"]
    actions, logp = choose(exploration, values([0, 2, 1], [3, 0, 0]), explore=False)
    assert actions.tolist() == [1, 0]
    assert logp.tolist() == [0.0, 0.0]
    assert logp.dtype == np.float32
    assert exploration.get_state()["rng"] == before


@pytest.mark.parametrize("rows", [1, 5])
def test_epsilon_zero_is_greedy(rows):
    exploration = EpsilonGreedy(THREE, epsilon_schedule=ConstantSchedule(0.0), rng=rng())
    for step in range(50):
        assert choose(exploration, values(*[[0, 2, 1]] * rows), step)[0].tolist() == [1] * rows


@pytest.mark.parametrize("rows", [1, 4])
def test_epsilon_one_is_uniform_over_all_actions(rows):
    exploration = EpsilonGreedy(THREE, epsilon_schedule=1.0, rng=rng())
    drawn = np.concatenate([choose(exploration, values(*[[0, 2, 1]] * rows))[0] for _ in range(3000 // rows)])
    counts = np.bincount(drawn, minlength=3) / len(drawn)
    assert np.allclose(counts, 1 / 3, atol=0.05)
    assert drawn.dtype.kind == "i"


def test_epsilon_above_one_is_one_until_it_falls_below():
    exploration = EpsilonGreedy(THREE, initial_epsilon=1.5, final_epsilon=0.5, epsilon_timesteps=10, rng=rng())
    exploration.wants_logp = True
    actions, logp = choose(exploration, values(*[[0, 2, 1]] * 30), 2)
    assert set(actions.tolist()) == {0, 1, 2}
    assert np.allclose(logp, np.log(1 / 3))
    assert exploration.action_probabilities(values([0, 2, 1]), 2) == pytest.approx(1 / 3)
    assert exploration.action_probabilities(values([0, 2, 1]), 10)[0] == pytest.approx([1 / 6, 2 / 3, 1 / 6])


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("mask", [FLOAT_MIN, -np.inf, FLOAT_MIN * 0.75])
def test_invalid_actions_are_never_drawn(rows, mask):
    exploration = EpsilonGreedy(Discrete(4), epsilon_schedule=1.0, rng=rng())
    batch = [[mask, 1.0, mask, -5.0]] * rows
    drawn = np.concatenate([choose(exploration, values(*batch))[0] for _ in range(200)])
    assert set(drawn.tolist()) == {1, 3}


def test_choices_for_the_parts_of_a_tuple_one_by_one_are_drawn_by_their_values():
    exploration = EpsilonGreedy(Tuple([Discrete(2), THREE]), epsilon_schedule=1.0, rng=rng())
    batch = values([0, 2, -np.inf], [3, 0, -np.inf], [FLOAT_MIN, 0, 1], [0, 1, 2])
    drawn = np.stack([choose(exploration, batch)[0] for _ in range(100)])
    assert [set(column.tolist()) for column in drawn.T] == [{0, 1}, {0, 1}, {1, 2}, {0, 1, 2}]


def test_rows_with_different_masks_each_get_a_valid_action():
    exploration = EpsilonGreedy(THREE, epsilon_schedule=1.0, rng=rng())
    batch = [[FLOAT_MIN, 0, 0], [0, FLOAT_MIN, FLOAT_MIN], [1, 2, 3]]
    for _ in range(100):
        first, second, _third = choose(exploration, values(*batch))[0].tolist()
        assert first in (1, 2)
        assert second == 0


def test_a_row_without_valid_actions_keeps_the_greedy_one():
    exploration = EpsilonGreedy(THREE, epsilon_schedule=1.0, rng=rng())
    assert choose(exploration, values([FLOAT_MIN] * 3))[0].tolist() == [0]


def test_epsilon_follows_the_time_step():
    exploration = EpsilonGreedy(THREE, initial_epsilon=1.0, final_epsilon=0.2, epsilon_timesteps=100, rng=rng())
    for step, wanted in ((0, 1.0), (50, 0.6), (100, 0.2), (10_000, 0.2)):
        choose(exploration, values([0, 1, 2]), step)
        assert exploration.get_state()["cur_epsilon"] == pytest.approx(wanted)


def test_the_share_of_other_actions_is_epsilon():
    exploration = EpsilonGreedy(THREE, epsilon_schedule=0.3, rng=rng())
    actions = choose(exploration, values(*[[0.0, 1.0, 0.0]] * 20_000))[0]
    # A random action is the best one in a third of the cases.
    assert np.mean(actions != 1) == pytest.approx(0.3 * 2 / 3, abs=0.01)


@pytest.mark.parametrize(
    "spec",
    [
        [[0, 1.0], [10, 0.0]],
        {"type": "LinearSchedule", "schedule_timesteps": 10, "final_p": 0.0},
        lambda t: 1.0 - t / 10,
    ],
)
def test_epsilon_schedule_takes_lists_dicts_and_functions(spec):
    exploration = EpsilonGreedy(THREE, epsilon_schedule=spec, rng=rng())
    choose(exploration, values([0, 1, 2]), 5)
    assert exploration.epsilon == pytest.approx(0.5)


def test_epsilon_timesteps_zero_begins_with_the_final_epsilon():
    exploration = EpsilonGreedy(THREE, final_epsilon=0.1, epsilon_timesteps=0, rng=rng())
    assert exploration.epsilon == 0.1


def test_state_restored_gives_the_same_actions():
    first = EpsilonGreedy(THREE, epsilon_schedule=0.5, rng=rng(1))
    other = EpsilonGreedy(THREE, epsilon_schedule=0.5, rng=rng(2))
    for step in range(7):
        choose(first, values([0, 1, 2]), step)
    other.set_state(first.get_state())
    for step in range(7, 60):
        batch = values([0, 1, 2], [2, 1, 0])
        assert choose(first, batch, step)[0].tolist() == choose(other, batch, step)[0].tolist()


def test_other_discrete_spaces_get_random_actions_of_the_space():
    space = MultiDiscrete([2, 5])
    exploration = EpsilonGreedy(space, epsilon_schedule=1.0, rng=rng())
    distribution = MultiCategorical(np.zeros((6, 7), np.float32), rng(), input_lens=(2, 5))
    seen = np.concatenate([choose(exploration, distribution)[0] for _ in range(50)])
    assert seen.shape == (300, 2)
    assert seen.max(axis=0).tolist() == [1, 4]


def test_torch_distributions_are_taken_as_they_are():
    torch = pytest.importorskip("torch")

    class Dist:
        inputs = torch.tensor([[0.0, 1.0, FLOAT_MIN]])

        def deterministic_sample(self):
            return self.inputs.argmax(1)

    exploration = EpsilonGreedy(THREE, epsilon_schedule=1.0, rng=rng())
    drawn = {int(choose(exploration, Dist())[0][0]) for _ in range(50)}
    assert drawn == {0, 1}
    actions, logp = choose(exploration, Dist(), explore=False)
    assert isinstance(actions, np.ndarray)
    assert isinstance(logp, np.ndarray)


def test_greedy_actions_have_log_likelihoods_of_the_shape_that_a_users_distribution_gives():
    torch = pytest.importorskip("torch")

    class PerAgent:
        inputs = torch.zeros(4, 6)

        def deterministic_sample(self):
            return torch.zeros(4, 3)

        def sampled_action_logp(self):
            return torch.ones(4, 3)

    _, logp = choose(StochasticSampling(THREE, rng=rng()), PerAgent(), explore=False)
    np.testing.assert_array_equal(logp, np.zeros((4, 3), np.float32))


def test_a_schedule_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="schedule"):
        EpsilonGreedy(THREE, epsilon_schedule=object(), rng=rng())


def test_box_actions_are_replaced_row_by_row():
    space = Box(-1, 1, (2,), np.float32)
    exploration = EpsilonGreedy(space, epsilon_schedule=0.5, rng=rng())

    class Dist:
        inputs = np.zeros((100, 2), np.float32)

        def deterministic_sample(self):
            return np.full((100, 2), 9.0, np.float32)

    actions, _ = choose(exploration, Dist())
    greedy = (actions == 9.0).all(axis=1)
    assert 20 < greedy.sum() < 80
    assert (np.abs(actions[~greedy]) <= 1).all()


@pytest.mark.parametrize(
    ("num_workers", "index", "wanted"),
    [(8, 1, 0.4), (8, 8, 0.4**8), (2, 2, 0.4**8), (1, 1, 0.4), (8, 0, 0.0), (3, 2, 0.4**4.5), (2, 5, 0.4**8)],
)
def test_per_worker_epsilon_is_that_of_the_paper(num_workers, index, wanted):
    exploration = PerWorkerEpsilonGreedy(THREE, num_workers=num_workers, worker_index=index, rng=rng())
    for step in (0, 1_000_000):
        choose(exploration, values([0, 1, 2]), step)
        assert exploration.get_state()["cur_epsilon"] == pytest.approx(wanted)
    assert per_worker_constant(num_workers, index) == pytest.approx(wanted)


def test_per_worker_epsilon_without_remote_workers_follows_the_schedule():
    exploration = PerWorkerEpsilonGreedy(THREE, final_epsilon=0.5, epsilon_timesteps=10, num_workers=0, rng=rng())
    choose(exploration, values([0, 1, 2]), 5)
    assert exploration.epsilon == pytest.approx(0.75)


@pytest.mark.parametrize("rows", [1, 400])
def test_likelihoods_are_those_of_the_mixture(rows):
    """Behaviour that is taken for certain misleads whoever weights data by it."""
    exploration = EpsilonGreedy(THREE, epsilon_schedule=ConstantSchedule(0.3), rng=rng())
    for _ in range(400 // rows):
        actions, logp = choose(exploration, values(*[[0, 2, 1]] * rows))
        np.testing.assert_allclose(np.exp(logp), np.where(actions == 1, 0.8, 0.1), rtol=1e-5)
    actions, logp = choose(exploration, values(*[[FLOAT_MIN, 2, 1]] * rows))
    np.testing.assert_allclose(np.exp(logp), np.where(actions == 1, 0.85, 0.15), rtol=1e-5)


@pytest.mark.parametrize("wanted", [(), ("action_logp",), ("action_prob",), None])
def test_likelihoods_are_made_where_they_are_wanted(wanted, monkeypatch):
    made = []
    monkeypatch.setattr(
        EpsilonGreedy, "_mixture_logp", lambda _, is_greedy, *__: made.append(1) or np.zeros(len(is_greedy))
    )
    space = Box(-1, 1, (2,), np.float32)
    policy = PGTorchPolicy(space, THREE, {"exploration_config": {"type": "EpsilonGreedy"}, "seed": 0})
    policy.inference.act({"obs": np.zeros((2, 2), np.float32)}, True, 0, wanted)
    assert bool(made) == (wanted != ())
    assert policy.exploration.wants_logp


def test_what_is_reported_of_the_exploration_is_numbers_that_loggers_take():
    info = EpsilonGreedy(THREE, epsilon_schedule=0.5, rng=rng()).get_info()
    assert info == {"last_timestep": 0, "cur_epsilon": 0.5}
