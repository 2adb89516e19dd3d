"""Estimators of a policy's value: by hand, and by dynamic programming on small MDPs whose every trajectory is data."""

from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.agents.pg.pg_policy import PGTorchPolicy
from rlframe.data.sample_batch import SampleBatch
from rlframe.offline.evaluation import LoggedEpisodes, OffPolicySettings, TargetPolicy, evaluate_off_policy
from rlframe.offline.evaluation import importance as weigh
from rlframe.offline.evaluation.bootstrap import Draws, mean_of, student_quantile, studentised
from rlframe.offline.evaluation.fitted_q_policy import FittedQSettings
from rlframe.offline.evaluation.linear_q import Features
from rlframe.offline.evaluation.logged_episodes import read_episodes
from rlframe.utils.errors import ConfigError, DataError
from tests.helpers.frameworks import FRAMEWORKS

GAMMA = 0.9
STATES, CHOICES = 3, 2  # state 0 begins; an action leads to state 1 or 2, or ends the episode


class Table:
    """A policy as a table of probabilities, in place of a `TargetPolicy`; observations are states' unit vectors."""

    discrete, choices, explore = True, CHOICES, True

    def __init__(self, table: list[list[float]]) -> None:
        self.table = np.asarray(table, np.float64)

    def probabilities(self, obs: np.ndarray) -> np.ndarray:
        return self.table[obs.argmax(axis=1)]

    def logp(self, obs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(self.probabilities(obs)[np.arange(len(obs)), actions])


#: Of 10 times that action a is taken in state s: how often the next state is 1, is 2, and the episode ends.
MOVES = np.array([[[6, 2, 2], [1, 4, 5]], [[0, 5, 5], [0, 0, 10]], [[0, 0, 10], [0, 0, 10]]])
REWARDS = np.array([[1.0, 3.0], [2.0, -1.0], [4.0, 0.5]])


def true_value(table: np.ndarray) -> float:
    """Returns V(0) by dynamic programming, backwards from the states that end."""
    values = np.zeros(STATES)
    for state in (2, 1, 0):
        after = MOVES[state] / 10.0 @ np.array([values[1], values[2], 0.0])
        values[state] = table[state] @ (REWARDS[state] + GAMMA * after)
    return float(values[0])


def every_trajectory(behaviour: np.ndarray) -> list[tuple[list[tuple[int, int]], float]]:
    """Returns all trajectories, as states and actions, with their probabilities."""
    made, begun = [], [([], 0, 1.0)]
    while begun:
        before, state, chance = begun.pop()
        for action, after in itertools.product(range(CHOICES), range(3)):
            taken = [*before, (state, action)]
            share = chance * behaviour[state, action] * MOVES[state, action, after] / 10.0
            if share > 0:
                (made.append((taken, share)) if after == 2 else begun.append((taken, after + 1, share)))
    return made


def as_data(behaviour: np.ndarray, copies: int) -> LoggedEpisodes:
    """Returns each trajectory as often as it is expected among so many."""
    found = every_trajectory(behaviour)
    numbers = [round(share * copies) for _, share in found]
    np.testing.assert_allclose(numbers, [share * copies for _, share in found], atol=1e-6)
    steps = [step for (taken, _), number in zip(found, numbers, strict=True) for _ in range(number) for step in taken]
    lengths = [len(taken) for (taken, _), number in zip(found, numbers, strict=True) for _ in range(number)]
    states, actions = np.array(steps).T
    return LoggedEpisodes(
        np.eye(STATES, dtype=np.float32)[states],
        actions,
        REWARDS[states, actions],
        np.array(lengths),
        np.log(behaviour[states, actions]),
    )


EVEN = np.full((STATES, CHOICES), 0.5)
OTHER = np.array([[0.7, 0.3], [0.2, 0.8], [0.9, 0.1]])


@pytest.fixture(scope="module")
def data() -> LoggedEpisodes:
    return as_data(EVEN, 4000)


def test_the_oracle_by_hand():
    # V(2) = .9 · 4 + .1 · .5 = 3.65; V(1) = .2 (2 + .9 · .5 · 3.65) − .8; V(0) = .7 (1 + .9 (.6 V(1) + .2 V(2))) + ...
    second, first = 3.65, 0.2 * (2 + 0.45 * 3.65) - 0.8
    value = 0.7 * (1 + 0.9 * (0.6 * first + 0.2 * second)) + 0.3 * (3 + 0.9 * (0.1 * first + 0.4 * second))
    assert true_value(OTHER) == pytest.approx(value)


@pytest.mark.parametrize("name", ["tis", "is", "wis", "dm", "dr"])
def test_estimators_are_exact_where_all_trajectories_are_data(data, name):
    made = evaluate_off_policy(Table(OTHER), data, OffPolicySettings(GAMMA, (name,), resamples=100))
    estimate = made.estimates[name]
    assert estimate.value.value == pytest.approx(true_value(OTHER), abs=1e-4)  # dm: its ridge
    assert made.behaviour.value == pytest.approx(true_value(EVEN), abs=1e-9)
    assert estimate.gain.value == pytest.approx(true_value(OTHER) - true_value(EVEN), abs=1e-4)
    assert estimate.value.low < estimate.value.value < estimate.value.high


@given(st.lists(st.integers(0, 4), min_size=STATES, max_size=STATES))
@settings(max_examples=15, deadline=None)
def test_estimators_are_exact_for_every_policy(data, firsts):
    table = np.array([[first / 4, 1 - first / 4] for first in firsts])
    names = ("tis", "is", "wis", "dm", "dr")
    made = evaluate_off_policy(Table(table), data, OffPolicySettings(GAMMA, names, resamples=2, least_ess=0.0))
    got = {name: estimate.value.value for name, estimate in made.estimates.items()}
    assert got == pytest.approx(dict.fromkeys(names, true_value(table)), abs=1e-4)


def test_the_doubly_robust_mean_is_exact_whatever_q_is(data):
    ratios = np.exp(np.cumsum(data.padded(Table(OTHER).logp(data.obs, data.actions) - data.behaviour_logp), axis=1))
    wrong = np.random.default_rng(0).normal(size=(STATES, CHOICES))
    states = data.obs.argmax(axis=1)
    values, taken = (wrong * OTHER).sum(axis=1)[states], wrong[states, data.actions]
    made = weigh.doubly_robust(ratios, data.padded(data.rewards), (data.padded(values), data.padded(taken)), GAMMA)
    assert made.mean() == pytest.approx(true_value(OTHER), abs=1e-9)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_fitted_q_evaluation_agrees_with_dynamic_programming(data, framework):
    fitted = FittedQSettings(members=2, updates=3, batch_size=16, hiddens=(4,))
    made = evaluate_off_policy(Table(OTHER), data, OffPolicySettings(GAMMA, ("fqe",), fitted_q=fitted), framework)
    # The linear solution is exact here, so what is left for networks is next to nothing at any time.
    assert made.estimates["fqe"].value.value == pytest.approx(true_value(OTHER), abs=0.05)
    assert made.estimates["fqe"].effective_sample_size is None


def test_networks_learn_what_is_not_linear():
    # One state number x, rewards |x|³ in one step: no polynomial of second degree, but the mean over x is known.
    rng = np.random.default_rng(0)
    x, actions = rng.uniform(-2, 2, (400, 1)).astype(np.float32), rng.integers(2, size=400)
    rewards = np.where(actions == 1, np.sign(x[:, 0]) * 8.0, 0.0)
    data = LoggedEpisodes(x, actions, rewards, np.ones(400, np.int64), np.full(400, np.log(0.5)))

    class RightOfZero(Table):
        def probabilities(self, obs):
            return np.eye(2)[(obs[:, 0] > 0).astype(int)]

        def logp(self, obs, actions):
            with np.errstate(divide="ignore"):
                return np.log(self.probabilities(obs)[np.arange(len(obs)), actions])

    fitted = FittedQSettings(members=2, updates=300, batch_size=64, hiddens=(16,), lr=1e-2)
    target = RightOfZero(EVEN)
    made = evaluate_off_policy(target, data, OffPolicySettings(GAMMA, ("dm", "fqe"), fitted_q=fitted)).estimates
    wanted = 8.0 * (x > 0).mean()
    assert abs(made["fqe"].value.value - wanted) < 0.5 * abs(made["dm"].value.value - wanted)


def test_what_networks_have_not_learned_widens_the_interval():
    # A reward behind 20 steps: γ^(20 − t) is no polynomial of second degree in t, two updates teach nothing, and all
    # episodes are alike, so that members agree on what is wrong.
    steps, episodes = 20, 30
    obs = np.tile(np.arange(steps, dtype=np.float32)[:, None], (episodes, 1))
    rewards = np.tile(np.eye(steps)[-1], episodes)
    actions = np.random.default_rng(0).integers(2, size=len(obs))
    data = LoggedEpisodes(obs, actions, rewards, np.full(episodes, steps), np.full(len(obs), np.log(0.5)))

    class Even(Table):
        def probabilities(self, obs):
            return np.full((len(obs), 2), 0.5)

        def logp(self, obs, actions):
            return np.full(len(obs), np.log(0.5))

    fitted = FittedQSettings(members=5, updates=2, batch_size=16, hiddens=(4,))
    made = evaluate_off_policy(Even(EVEN), data, OffPolicySettings(0.8, ("fqe",), fitted_q=fitted)).estimates["fqe"]
    truth = 0.8 ** (steps - 1)
    assert abs(made.value.value - truth) > 0.01
    assert made.value.low <= truth <= made.value.high
    assert made.gain.low <= 0.0 <= made.gain.high


def test_weights_by_hand():
    # Two episodes: ratios 2, 2 and 1/2, held behind its end; rewards 1, 2 and 3.
    ratios, rewards = np.array([[2.0, 2.0], [0.5, 0.5]]), np.array([[1.0, 2.0], [3.0, 0.0]])
    assert weigh.trajectory_wise(ratios, rewards, 0.5).tolist() == [4.0, 1.5]
    assert weigh.per_decision(np.array([[2.0, 1.0], [0.5, 0.5]]), rewards, 0.5).tolist() == [3.0, 1.5]
    # Per step Σ p r / Σ p: 3.5 / 2.5, and half of 4 / 2.5.
    value, error = weigh.weighted_per_decision(ratios, rewards, 0.5)(np.ones((1, 2)))
    assert value[0] == pytest.approx(1.4 + 0.8)
    # Influences: (2 (1 − 1.4) + ½ · 2 (2 − 1.6)) / 1.25 and (½ (3 − 1.4) + ½ · ½ (0 − 1.6)) / 1.25, ± 0.32.
    assert error[0] == pytest.approx(0.32)
    assert weigh.effective_sample_size(np.array([2.0, 0.5])) == pytest.approx(6.25 / 4.25)
    assert weigh.effective_sample_size(np.zeros(3)) == 0.0


def test_studentised_intervals_by_hand():
    values, draws = np.array([0.0, 0.0, 3.0]), Draws(np.array([[0.0, 1.0, 2.0], [2.0, 0.0, 1.0], [3.0, 0.0, 0.0]]))
    # Of 1 ± 1 the draws make 2 ± 1 and 1 ± 1; the third has no spread and is left out. t* are 1 and 0, |t*| at most 1.
    assert studentised(mean_of(values), draws, level=1.0 - 1e-12) == pytest.approx((1.0, 0.0, 2.0), abs=1e-9)
    # At a level of 0 both quantiles of t* are the median, a half, and that of |t*| is the smallest, 0.
    assert studentised(mean_of(values), draws, level=1e-12) == pytest.approx((1.0, 0.5, 1.0), abs=1e-9)
    assert student_quantile(0.975, 9) == pytest.approx(2.262, rel=1e-3)
    assert student_quantile(0.975, 4) == pytest.approx(2.776, rel=1e-2)


# --- what the data cannot say -----------------------------------------------------------------------------------


def reasons(target, data, **changes):
    return evaluate_off_policy(target, data, OffPolicySettings(GAMMA, resamples=20, **changes)).refused


def test_refusals_name_their_reason(data):
    bare = LoggedEpisodes(data.obs, data.actions, data.rewards, data.lengths)
    refused = reasons(Table(OTHER), bare, estimators=("is", "wis", "dr", "dm"))
    assert refused.keys() == {"is", "wis", "dr"}
    assert "action_prob" in refused["is"]
    sure = LoggedEpisodes(data.obs, data.actions, data.rewards, data.lengths, np.zeros(len(data.rewards)))
    assert "1 in every row" in reasons(Table(OTHER), sure, estimators=("tis",))["tis"]
    twice = LoggedEpisodes(data.obs, data.actions, data.rewards, data.lengths, np.full(len(data.rewards), np.log(2)))
    assert "action_prob is above 1 in some rows" in reasons(Table(OTHER), twice, estimators=("is",))["is"]
    few = reasons(Table(OTHER), data, estimators=("pdis",), least_ess=1e6)
    assert "effective sample size" in few["is"]
    never = Table([[1.0, 0.0]] * STATES)
    second = data.actions == 1
    only_second = LoggedEpisodes(
        data.obs[second], data.actions[second], data.rewards[second], np.ones(second.sum(), np.int64)
    )
    assert "0.00% of the rows" in reasons(never, only_second, estimators=("dm",))["dm"]
    with pytest.raises(ConfigError, match="got 'doubly'"):
        OffPolicySettings(GAMMA, ("doubly",))


def test_a_better_policy_passes_and_another_does_not(data):
    best = Table([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    report = evaluate_off_policy(best, data, OffPolicySettings(GAMMA, ("dr", "dm"), resamples=200))
    assert report.deciding() == "dr"
    assert report.better()
    assert report.better("dm")
    same = evaluate_off_policy(Table(EVEN), data, OffPolicySettings(GAMMA, ("pdis",), resamples=200))
    assert not same.better("pdis")
    assert same.estimates["is"].gain == (0.0, 0.0, 0.0)
    with pytest.raises(DataError, match="dr: was not asked for"):
        same.better()


# --- episodes out of batches ------------------------------------------------------------------------------------


def batch(*parts: tuple[int, int, int, str]) -> SampleBatch:
    """Returns rows of (eps_id, first t, rows, how the last one ends: '', 'end' or 'cut')."""
    made = []
    for episode, first, count, end in parts:
        last = np.arange(count) == count - 1
        made.append(
            SampleBatch(
                {
                    "obs": np.full((count, 1), episode, np.float32),
                    "actions": np.zeros(count, np.int64),
                    "rewards": np.arange(first, first + count, dtype=np.float32),
                    "terminateds": last & (end == "end"),
                    "truncateds": last & (end == "cut"),
                    "eps_id": np.full(count, episode),
                    "t": np.arange(first, first + count),
                    "action_prob": np.full(count, 0.5, np.float32),
                }
            )
        )
    return SampleBatch.concat_samples(made)


def test_episodes_are_joined_over_batches():
    # 1 goes on in the next batch; of 2 the beginning is missing, of 3 the middle, of 4 the end.
    made = read_episodes([batch((1, 0, 2, ""), (2, 5, 1, "end")), batch((1, 2, 2, "end"), (3, 0, 1, "")),
                          batch((3, 2, 1, "end"), (5, 0, 1, "end"), (4, 0, 2, ""))])  # fmt: skip
    assert made.lengths.tolist() == [4, 1]
    assert made.rewards.tolist() == [0, 1, 2, 3, 0]
    assert made.left_out == 4
    assert made.time_limit is None
    assert made.behaviour_logp == pytest.approx(np.full(5, np.log(0.5)))
    assert made.returns(0.5).tolist() == [0.5 + 0.5 + 0.375, 0.0]
    assert made.padded(made.rewards + 1, hold=True).tolist() == [[1, 2, 3, 4], [1, 1, 1, 1]]


def test_a_limit_is_part_of_the_state():
    made = read_episodes([batch((1, 0, 3, "cut"), (2, 0, 1, "end"), (3, 0, 3, "cut"))])
    assert made.time_limit == 3
    assert made.left_out == 0
    assert Features(made).inputs(made)[:, -1] == pytest.approx([-1, -1 / 3, 1 / 3, -1, -1, -1 / 3, 1 / 3])
    uneven = read_episodes([batch((1, 0, 3, "cut"), (2, 0, 1, "end"), (3, 0, 2, "cut"))])
    assert uneven.time_limit is None
    assert uneven.lengths.tolist() == [1]
    assert uneven.left_out == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.pop("rewards"), "wanted rewards, too"),
        (lambda rows: rows.pop("terminateds"), r"wanted dones \(or terminateds\), too"),
        (lambda rows: rows.update(n_steps=np.full(2, 3)), "sums of several rewards"),
        (lambda rows: rows.update(terminateds=np.zeros(2, bool)), "no whole episode"),
        (lambda rows: rows.update(rewards=np.array([0, np.nan])), "'rewards' is nan in step 1 of eps_id 1; wanted num"),
        (lambda rows: rows.update(obs=np.array([[np.inf], [0]])), "'obs' is inf in step 0 of eps_id 1"),
    ],
)
def test_data_that_estimates_cannot_be_made_of_are_told(change, said):
    rows = batch((1, 0, 2, "end"))
    change(rows)
    with pytest.raises(DataError, match=said):
        read_episodes([rows])


# --- the policy that is judged ----------------------------------------------------------------------------------


def pg(exploration: dict | None = None, space: gym.Space | None = None, **config) -> PGTorchPolicy:
    spaces = gym.spaces.Box(-1, 1, (2,), np.float32), space or gym.spaces.Discrete(3)
    made = {"seed": 0, "model": {"fcnet_hiddens": [4]}, **config}
    return PGTorchPolicy(*spaces, {**made, "exploration_config": exploration} if exploration else made)


OBS = np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype(np.float32)


@pytest.mark.parametrize(
    "exploration",
    [
        {"type": "StochasticSampling"},
        {"type": "SoftQ", "temperature": 0.5},
        {"type": "EpsilonGreedy", "initial_epsilon": 0.3, "final_epsilon": 0.3},
    ],
)
def test_probabilities_are_those_of_acting(exploration):
    policy = pg(exploration)
    target = TargetPolicy(policy, explore=True)
    probabilities = target.probabilities(OBS)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(5))
    drawn = np.stack([policy.act_on_rows(OBS, explore=True)[0] for _ in range(3000)])
    shares = (drawn[..., None] == np.arange(3)).mean(axis=0)
    assert np.abs(shares - probabilities).max() < 5 * np.sqrt(0.25 / 3000)
    assert np.exp(target.logp(OBS, np.ones(5, int))) == pytest.approx(probabilities[:, 1])


@pytest.mark.parametrize("kind", ["EpsilonGreedy", "StochasticSampling", "SoftQ"])
def test_probabilities_follow_the_policys_clock_where_nobody_has_acted(kind):
    options = {"EpsilonGreedy": {"initial_epsilon": 1.0, "final_epsilon": 0.2, "epsilon_timesteps": 100}}
    policy = pg({"type": kind, **options.get(kind, {"random_timesteps": 100})})
    target = TargetPolicy(policy, explore=True)
    if kind != "EpsilonGreedy":
        with pytest.raises(DataError, match="tells no probabilities"):
            target.probabilities(OBS)
    policy.global_timestep = 100  # as a driver's, whose workers sampled
    largest = target.probabilities(OBS).max(axis=1)
    assert (largest < 1).all()
    if kind == "EpsilonGreedy":
        assert largest == pytest.approx(np.full(5, 0.8 + 0.2 / 3))


def test_a_greedy_policy_has_probabilities_of_0_and_1():
    policy = pg()
    target = TargetPolicy(policy, explore=False)
    best = policy.act_on_rows(OBS, explore=False)[0]
    assert target.probabilities(OBS).tolist() == np.eye(3)[best].tolist()
    assert target.logp(OBS, best).tolist() == [0.0] * 5


def test_continuous_actions():
    box = gym.spaces.Box(-1, 1, (2,), np.float32)
    policy = pg(space=box)
    exploring = TargetPolicy(policy, explore=True)
    drawn, _, columns = policy.compute_actions(OBS, explore=True)
    assert exploring.logp(OBS, drawn) == pytest.approx(columns["action_logp"], rel=1e-4)
    assert exploring.actions(OBS, 3).shape == (5, 3, 2)
    greedy = TargetPolicy(policy, explore=False)
    assert greedy.actions(OBS, 3).shape == (5, 1, 2)
    with pytest.raises(DataError, match="acts deterministically"):
        greedy.logp(OBS, drawn)
    with pytest.raises(DataError, match="explores by GaussianNoise"):
        TargetPolicy(pg({"type": "GaussianNoise"}, box), explore=True).logp(OBS, drawn)


def test_a_deterministic_continuous_policy_is_judged_by_q():
    # Rewards are 1 − (a − x)², linear in the features; the policy does what it does, whatever the data did.
    rng = np.random.default_rng(0)
    x, actions = rng.uniform(-1, 1, (300, 2)).astype(np.float32), rng.uniform(-1, 1, (300, 1)).astype(np.float32)
    data = LoggedEpisodes(x, actions, 1.0 - (actions[:, 0] - x[:, 0]) ** 2.0, np.ones(300, np.int64), np.zeros(300))
    policy = pg(space=gym.spaces.Box(-1, 1, (1,), np.float32))
    fitted = FittedQSettings(members=2, updates=2, batch_size=16, hiddens=(4,))
    settings_ = OffPolicySettings(GAMMA, ("is", "dm", "fqe"), fitted_q=fitted)
    made = evaluate_off_policy(TargetPolicy(policy, explore=False), data, settings_)
    own = policy.act_on_rows(x, explore=False)[0][:, 0]
    wanted = float((1.0 - (own - x[:, 0]) ** 2).mean())
    assert "acts deterministically" in made.refused["is"]
    assert made.estimates["dm"].value.value == pytest.approx(wanted, abs=1e-3)
    assert made.estimates["fqe"].value.value == pytest.approx(wanted, abs=0.05)
    with pytest.raises(DataError, match="dr: was not asked for"):
        made.deciding()  # by a model alone only where it is named
    assert made.deciding("fqe") == "fqe"
    exploring = evaluate_off_policy(TargetPolicy(policy, explore=True), data, OffPolicySettings(GAMMA, ("is",)))
    assert "1 in every row" in exploring.refused["is"]


def test_policies_whose_probabilities_nobody_knows_are_told():
    with pytest.raises(DataError, match="with memory"):
        TargetPolicy(pg(model={"use_lstm": True, "fcnet_hiddens": [4], "lstm_cell_size": 2}), explore=True)
