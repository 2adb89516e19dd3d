"""Sampling with several agents: what a failure costs, and whom it names."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.evaluation.sampling import multi_agent
from rlframe.utils.errors import ConfigError, EnvError, NonFiniteError
from tests.helpers.multi_agent_envs import COME_AND_GO, ON, OVER
from tests.helpers.scripted import rows, sample, trainer


def test_an_episode_that_cannot_end_is_named(monkeypatch):
    monkeypatch.setattr(multi_agent, "_MAX_IDLE_STEPS", 3)
    stuck = ({}, {}, ON, ON, {})
    script = [{"a": 1}, ({"a": 2}, {}, {"a": True, "__all__": False}, ON, {}), *[stuck] * 9]
    with pytest.raises(EnvError, match=r"no agent had an observation.*never True; agents that are through: .*a"):
        sample(script, rollout_fragment_length=8)
    # Others may be late.
    late = [{"a": 1}, stuck, stuck, stuck, ({"b": 2}, {}, ON, ON, {}), stuck, stuck, ({}, {}, OVER, ON, {})]
    batch, _ = sample(late, rollout_fragment_length=7)
    assert set(rows(batch.policy_batches["default_policy"], "obs")) == {0, 1}


class Counting(MultiAgentEnv):
    """One agent that sees the number of the step."""

    observation_space = gym.spaces.Box(-1, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    failed = False

    def __init__(self, config):
        pass

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return {"a": np.zeros(1, np.float32)}, {}


class WrongAtTheHorizon(Counting):
    """Gives, once, a wrong observation at its second step."""

    def step(self, action_dict):
        self.steps += 1
        if self.steps == 2 and not WrongAtTheHorizon.failed:
            WrongAtTheHorizon.failed = True
            return {"a": np.zeros(3, np.float32)}, {"a": 1.0}, ON, ON, {}
        return {"a": np.full(1, self.steps, np.float32)}, {"a": 1.0}, {"__all__": self.steps == 3}, ON, {}


def test_a_failure_at_a_soft_horizon_is_over_with_its_episode():
    WrongAtTheHorizon.failed = False
    made = trainer(None, PGTrainer, WrongAtTheHorizon, horizon=2, soft_horizon=True, rollout_fragment_length=6)
    worker = made.workers.local_worker()
    with pytest.raises(EnvError, match="agent 'a'"):
        worker.sample()
    worker.sample()
    assert [metric.episode_length for metric in worker.get_metrics()] == [2, 1, 2, 1]


class FailsLate(Counting):
    """Fails, once, behind its third step."""

    def step(self, action_dict):
        self.steps += 1
        if self.steps == 4 and not FailsLate.failed:
            FailsLate.failed = True
            raise RuntimeError("broken")
        return {"a": np.full(1, self.steps, np.float32)}, {"a": 1.0}, ON, ON, {}


def test_what_lies_before_a_soft_horizon_outlives_a_failure():
    FailsLate.failed = False
    made = trainer(None, DQNTrainer, FailsLate, n_step=1, horizon=2, soft_horizon=True, rollout_fragment_length=5)
    worker = made.workers.local_worker()
    with pytest.raises(EnvError, match="broken"):
        worker.sample()
    batch = worker.sample().policy_batches["default_policy"]
    found = sorted(zip(batch["obs"][:, 0].tolist(), batch["new_obs"][:, 0].tolist(), strict=True))
    # The two rows of the first part, which ended, and the five of the new episode.
    assert found == [(0.0, 1.0), (0.0, 1.0), (1.0, 2.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0), (4.0, 5.0)]


class Faulty(MultiAgentEnv):
    """Agents a and b, episodes of 5 steps; at one step of all, `fault` makes what b gets of what it should get."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.at, self.fault = config.get("at"), config.get("fault")
        self.taken = 0
        self.seen = []

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self._for_both(0), {}

    def step(self, action_dict):
        self.steps += 1
        self.taken += 1
        self.seen.append(set(action_dict))
        obs = self._for_both(self.steps)
        if self.taken == self.at:
            obs["b"] = self.fault(obs["b"])
        return obs, {"a": 1.0, "b": 1.0}, {"__all__": self.steps == 5}, ON, {}

    def _for_both(self, step):
        return {agent: np.full(1, step, np.float32) for agent in "ab"}


EACH = {"policies": {"a", "b"}, "policy_mapping_fn": lambda agent_id: agent_id}


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("obs_filter", ["NoFilter", "MeanStdFilter"])
@pytest.mark.parametrize(
    ("at", "message"),
    [
        (7, r"slot 0 gave nan as observation\[0\] of agent 'b', policy 'b', in episode 1 at the agent's step 2"),
        (10, "NaN or infinity in the last observation of agent 'b', .* at the agent's step 4"),
    ],
)
def test_what_is_not_finite_is_named_once_and_costs_one_episode(at, message, obs_filter, mode):
    made = trainer(
        None, DQNTrainer, Faulty, env_config={"at": at, "fault": lambda obs: obs * np.nan}, multiagent=EACH,
        rollout_fragment_length=10, observation_filter=obs_filter, batch_mode=mode, n_step=1,
    )  # fmt: skip
    worker = made.workers.local_worker()
    with pytest.raises(NonFiniteError, match=message):
        worker.sample()
    for number in range(2):
        batch = worker.sample()
        # Those of the episode before are still there, of both agents.
        steps = [0, 1, 2, 3, 4] * (3 if number == 0 and mode == "truncate_episodes" else 2)
        for part in batch.policy_batches.values():
            assert part["t"].tolist() == steps
            assert np.isfinite(part["obs"]).all()
            assert np.isfinite(part["new_obs"]).all()


def test_an_observation_of_another_shape_is_named_in_later_episodes_too():
    made = trainer(None, env=Faulty, env_config={"at": 7, "fault": lambda obs: np.zeros(3)}, rollout_fragment_length=9)
    with pytest.raises(EnvError, match=r"slot 0 \(episode 1, .*agent 'b'.*shape \(3,\)"):
        made.workers.local_worker().sample()


def test_who_acted_before_a_policy_raised_begins_anew(monkeypatch):
    made = trainer(None, DQNTrainer, Faulty, multiagent=EACH, num_envs_per_worker=2, rollout_fragment_length=3)
    worker = made.workers.local_worker()
    policy = made.get_policy("b")
    act, calls = policy.act_on_rows, []

    def raising(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return act(*args)

    monkeypatch.setattr(policy, "act_on_rows", raising)
    with pytest.raises(KeyboardInterrupt):
        worker.sample()
    for part in worker.sample().policy_batches.values():
        assert part["t"].tolist() == [0, 1, 2] * 2
    for slot in worker.slots:
        assert all(acting == {"a", "b"} for acting in slot.env.env.seen)


class RaisingOnce(DefaultCallbacks):
    """Raises at the end of one episode, or of one step."""

    at_end, at_step = 0, 0

    def on_episode_end(self, **kwargs):
        RaisingOnce.at_end -= 1
        if RaisingOnce.at_end == 0:
            raise RuntimeError("mine")

    def on_episode_step(self, **kwargs):
        RaisingOnce.at_step -= 1
        if RaisingOnce.at_step == 0:
            raise RuntimeError("mine")


@pytest.mark.parametrize("horizons", [{}, {"horizon": 3, "soft_horizon": True}], ids=["end", "soft"])
@pytest.mark.parametrize(("at_end", "at_step"), [(2, 0), (0, 10)])
def test_a_callback_that_raises_is_not_blamed_on_the_environment(at_end, at_step, horizons):
    made = trainer(
        None, DQNTrainer, Faulty, callbacks=RaisingOnce, num_envs_per_worker=2, rollout_fragment_length=10, **horizons
    )
    worker = made.workers.local_worker()
    RaisingOnce.at_end, RaisingOnce.at_step = at_end, at_step
    with pytest.raises(RuntimeError, match=r"^mine") as raised:
        worker.sample()
    assert str(raised.value) == "mine"
    assert [slot.failed for slot in worker.slots] == [False, True]
    worker.sample()
    for slot in worker.slots:
        assert slot.env.env.steps <= 5  # nobody goes on behind an end


class RaisingAtStarts(DefaultCallbacks):
    """Raises at the start of the second and third episode."""

    started = 0

    def on_episode_start(self, **kwargs):
        RaisingAtStarts.started += 1
        if RaisingAtStarts.started in (2, 3):
            raise RuntimeError("mine")


def test_a_callback_that_raises_at_starts_leaves_no_episode_without_agents():
    made = trainer(None, env=Faulty, callbacks=RaisingAtStarts, rollout_fragment_length=6)
    worker = made.workers.local_worker()
    RaisingAtStarts.started = 0
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^mine"):
            worker.sample()
    worker.sample()
    assert all(acting == {"a", "b"} for acting in worker.slots[0].env.env.seen)


def test_a_mapping_to_no_policy_is_not_blamed_on_the_environment():
    multiagent = {"policies": {"one"}, "policy_mapping_fn": lambda agent_id: "one" if agent_id != "c" else "two"}
    with pytest.raises(ConfigError, match=r"^multiagent.policy_mapping_fn: gave 'two' for agent 'c'"):
        sample(COME_AND_GO, multiagent=multiagent)


def test_a_failure_at_a_soft_horizon_leaves_the_part_before_it_in_whole_episodes():
    made = trainer(
        None, DQNTrainer, Faulty, env_config={"at": 4, "fault": lambda obs: np.zeros(3)}, multiagent=EACH, n_step=1,
        horizon=2, soft_horizon=True, batch_mode="complete_episodes", rollout_fragment_length=5,
    )  # fmt: skip
    worker = made.workers.local_worker()
    with pytest.raises(EnvError, match="agent 'b'"):
        worker.sample()
    batches = worker.sample().policy_batches
    assert sorted(batches["a"]["obs"][:, 0].tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sorted(batches["b"]["obs"][:, 0].tolist()) == [0, 0, 1, 1, 2, 2, 3]  # what it did at 3 had no outcome
    assert len(worker.runner.rows.by_policy["a"].store) == 1


def test_a_state_taken_back_after_a_failure_at_a_soft_horizon_knows_nothing_of_it():
    made = trainer(
        None, env=Faulty, env_config={"at": 3, "fault": lambda obs: np.zeros(3)}, horizon=3, soft_horizon=True,
        rollout_fragment_length=2,
    )  # fmt: skip
    worker = made.workers.local_worker()
    worker.sample()
    state = worker.runner.get_state()
    with pytest.raises(EnvError, match="agent 'b'"):
        worker.sample()
    worker.runner.set_state(state)
    for _ in range(4):
        worker.sample()
    assert [metric.episode_length for metric in worker.get_metrics()] == [3, 2, 3, 2]


class Raising(MultiAgentEnv):
    """Raises at its third step."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    made = 0

    def __init__(self, config):
        type(self).made += 1

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return {0: np.zeros(1, np.float32)}, {}

    def step(self, action_dict):
        self.steps += 1
        if self.steps == 3:
            raise RuntimeError("broken")
        return {0: np.zeros(1, np.float32)}, {0: 1.0}, ON, ON, {}


def test_an_environment_that_raises_says_where_and_starts_anew():
    made = trainer(None, env=Raising, rollout_fragment_length=3, recreate_failed_workers=True)
    worker, before = made.workers.local_worker(), Raising.made
    with pytest.raises(EnvError, match=r"slot 0 .*RuntimeError: broken"):
        worker.sample()
    with pytest.raises(EnvError, match="broken"):
        worker.sample()
    assert Raising.made == before + 1


class RaisingInOneSlot(Raising):
    """Raises at its third step, once, in slot 0; counts steps of the episode."""

    raised = False

    def __init__(self, config):
        super().__init__(config)
        self.raises = config.vector_index == 0

    def step(self, action_dict):
        self.steps += 1
        if self.raises and self.steps == 3 and not RaisingInOneSlot.raised:
            RaisingInOneSlot.raised = True
            raise RuntimeError("broken")
        return {0: np.full(1, self.steps / 100, np.float32)}, {0: 1.0}, ON, ON, {}


def test_an_environment_that_raises_leaves_others_in_their_episodes():
    made = trainer(None, env=RaisingInOneSlot, rollout_fragment_length=4, num_envs_per_worker=2)
    worker = made.workers.local_worker()
    RaisingInOneSlot.raised = False
    with pytest.raises(EnvError, match=r"slot 0 .*RuntimeError: broken"):
        worker.sample()
    batch = worker.sample().policy_batches["default_policy"]
    of_slots = [batch["obs"][batch["eps_id"] == eps, 0] for eps in np.unique(batch["eps_id"])]
    starts = sorted(round(float(column[0]) * 100) for column in of_slots)
    assert starts[0] == 0  # slot 0 began anew
    for column in of_slots:  # and no step of the other is lost or stored twice
        np.testing.assert_allclose(np.diff(column), 0.01, atol=1e-6)
