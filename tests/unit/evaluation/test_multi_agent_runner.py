"""Sampling with several agents: when a transition is closed, and with what."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTorchPolicy, DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.data.sample_batch import MultiAgentBatch
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.evaluation import multi_agent_runner
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.policy.policy import Policy, PolicySpec
from rlframe.utils.errors import ConfigError, EnvError, NonFiniteError
from tests.helpers.frameworks import FRAMEWORKS
from tests.helpers.multi_agent_envs import COME_AND_GO, ON, OVER, TURNS, Script

SMALL = {"fcnet_hiddens": [4]}


def trainer(script, cls=PGTrainer, env=Script, **config):
    settings = {
        "num_workers": 0,
        "rollout_fragment_length": 4,
        "train_batch_size": 4,
        "model": SMALL,
        "seed": 1,
        "min_iter_time_s": 0,
        "log_sys_usage": False,
        "env_config": {"script": script} if script else {},
        **config,
    }
    return cls(settings, env=env)


def sample(script, **config):
    made = trainer(script, **config)
    worker = made.workers.local_worker()
    return worker.sample(), worker


def rows(batch, *names):
    """Rows as tuples, by agent."""
    columns = [np.asarray(batch[name]).reshape(len(batch)).tolist() for name in ("agent_index", *names)]
    found = {}
    for agent, *values in zip(*columns, strict=True):
        found.setdefault(agent, []).append(tuple(values))
    return found


def test_who_loses_by_anothers_move_sees_it():
    batch, worker = sample(TURNS)
    assert isinstance(batch, MultiAgentBatch)
    assert batch.env_steps() == 4
    found = rows(batch.policy_batches["default_policy"], "obs", "rewards", "terminateds", "t")
    # a: acts on 1 (0.5 at once, 0.25 with b's move), on 3 (nothing at once, -1 with b's move, the last)
    assert found[0] == [(1.0, 0.75, False, 0), (3.0, -1.0, True, 1)]
    assert found[1] == [(2.0, 1.0, False, 0), (4.0, 1.0, True, 1)]
    (metrics,) = worker.get_metrics()
    assert metrics.episode_reward == pytest.approx(1.75)
    assert metrics.agent_rewards == {("a", "default_policy"): -0.25, ("b", "default_policy"): 2.0}
    assert metrics.episode_length == 4


def test_only_agents_with_an_observation_act():
    _, worker = sample(TURNS)
    assert [set(actions) for actions in worker.env.seen] == [{"a"}, {"b"}, {"a"}, {"b"}]


def test_agents_come_go_and_are_cut_off():
    batch, _ = sample(COME_AND_GO, rollout_fragment_length=3, cls=DQNTrainer, n_step=1)
    found = rows(batch.policy_batches["default_policy"], "obs", "new_obs", "rewards", "terminateds", "discounts")
    assert found[0] == [
        (1.0, 3.0, 1.0, False, pytest.approx(0.99)),
        (3.0, 5.0, 1.0, False, pytest.approx(0.99)),
        (5.0, 7.0, 1.0, False, pytest.approx(0.99)),  # cut off: it bootstraps from 7
    ]
    assert found[1] == [(2.0, 4.0, 2.0, True, 0.0)]
    assert found[2] == [(6.0, 8.0, 3.0, False, pytest.approx(0.99))]


def test_an_open_transition_waits_for_the_next_batch():
    made = trainer(TURNS, rollout_fragment_length=2, cls=DQNTrainer)
    worker = made.workers.local_worker()
    first, second = worker.sample(), worker.sample()
    # After two steps a's first transition is closed by its observation 3; b's waits for its next turn.
    assert rows(first.policy_batches["default_policy"], "obs", "new_obs") == {0: [(1.0, 3.0)]}
    assert rows(second.policy_batches["default_policy"], "obs", "new_obs") == {
        0: [(3.0, 5.0)],
        1: [(2.0, 4.0), (4.0, 6.0)],
    }
    assert first.env_steps() == second.env_steps() == 2


def test_an_end_without_a_last_observation_keeps_the_one_acted_on():
    script = [{"a": 1, "b": 2}, ({"a": 3}, {"a": 1.0, "b": 5.0}, OVER, ON, {})]
    batch, _ = sample(script, rollout_fragment_length=1, cls=DQNTrainer)
    found = rows(batch.policy_batches["default_policy"], "obs", "new_obs", "rewards", "terminateds")
    assert found == {0: [(1.0, 3.0, 1.0, True)], 1: [(2.0, 2.0, 5.0, True)]}


def test_whole_episodes_only():
    batch, _ = sample(TURNS, rollout_fragment_length=5, batch_mode="complete_episodes")
    rows_ = batch.policy_batches["default_policy"]
    assert len(rows_) == 8  # two episodes
    assert rows_["terminateds"].sum() == 4


def test_sizes_may_count_agent_steps():
    counting = {"multiagent": {"count_steps_by": "agent_steps"}}
    batch, _ = sample(
        None, env=MultiAgentCartPole, env_config={"num_agents": 4}, rollout_fragment_length=40, **counting
    )
    assert 40 <= batch.agent_steps() < 48
    assert batch.env_steps() <= 12


def test_a_horizon_cuts_everybody_off():
    batch, worker = sample(COME_AND_GO, rollout_fragment_length=2, horizon=2, cls=DQNTrainer)
    found = rows(batch.policy_batches["default_policy"], "obs", "truncateds")
    assert found[0] == [(1.0, False), (3.0, True)]
    assert worker.get_metrics()[0].episode_length == 2


@pytest.mark.parametrize(
    "mapping",
    [
        lambda agent_id: f"p_{agent_id}",
        lambda agent_id, **kwargs: f"p_{agent_id}",
        lambda agent_id, episode, **kwargs: f"p_{agent_id}" if episode.episode_id >= 0 else "",
        lambda agent_id, episode, worker: f"p_{agent_id}" if worker.worker_index == 0 else "",
        lambda agent_id, e: f"p_{agent_id}" if e.env_id == 0 else "",
        lambda agent_id, e, worker: f"p_{agent_id}" if (e.env_id, worker.worker_index) == (0, 0) else "",
        lambda agent_id, e, **kwargs: f"p_{agent_id}" if (e.env_id, kwargs["worker"].worker_index) == (0, 0) else "",
        lambda agent_id, worker, **kwargs: f"p_{agent_id}" if worker.worker_index == kwargs["episode"].env_id else "",
        lambda agent_id, *args, **kwargs: f"p_{agent_id}" if args[0].env_id == 0 and kwargs["worker"] else "",
        lambda agent_id, *, episode, worker: f"p_{agent_id}" if worker.worker_index == episode.env_id else "",
    ],
)
def test_the_mapping_is_called_with_what_it_declares(mapping):
    batch, _ = sample(TURNS, multiagent={"policies": {"p_a", "p_b"}, "policy_mapping_fn": mapping})
    assert {pid: len(part) for pid, part in batch.policy_batches.items()} == {"p_a": 2, "p_b": 2}


def test_a_mapping_to_no_policy_names_agent_and_policies():
    multiagent = {"policies": {"one"}, "policy_mapping_fn": lambda agent_id: "two"}
    with pytest.raises(ConfigError, match=r"gave 'two' for agent 'a', wanted one of 'one'"):
        sample(TURNS, multiagent=multiagent)


def test_a_mapping_is_wanted_where_nothing_else_tells():
    with pytest.raises(ConfigError, match="policy_mapping_fn: got None"):
        trainer(TURNS, multiagent={"policies": ["one", "two"]})


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (({"a": 500}, {}, ON, ON, {}), r"agent 'a', policy 'default_policy'"),
        (({"a": 1}, {}, {}, {}, {}), r'without "__all__"'),
        (({"a": 1}, {"a": "much"}, ON, ON, {}), r"agent 'a' returned the reward"),
        (({"a": 1}, {}, ON), "tuple of length 3"),
        (({"a": 1}, 3.0, ON, {}), "returned rewards as"),
    ],
)
def test_a_step_that_breaks_the_contract_is_named(step, message):
    with pytest.raises(EnvError, match=message):
        sample([{"a": 1}, step, ({"a": 1}, {}, OVER, ON, {})])


def test_an_agent_that_is_through_must_not_come_back():
    script = [{"a": 1, "b": 2}, ({"a": 1, "b": 3}, {}, {"b": True, **ON}, ON, {}), ({"b": 4}, {}, ON, ON, {})]
    with pytest.raises(EnvError, match="agent 'b' was done, and got another observation"):
        sample(script)


def test_the_older_contract_has_four_parts():
    script = [{"a": 1}, ({"a": 2}, {"a": 1.0}, {"__all__": False}, {}), ({"a": 3}, {"a": 1.0}, {"__all__": True}, {})]
    batch, _ = sample(script, rollout_fragment_length=2)
    assert rows(batch.policy_batches["default_policy"], "obs", "terminateds")[0] == [(1.0, False), (2.0, True)]


def test_observations_can_be_changed_together():
    def add_up(agent_obs, worker, base_env, policies, episode, **kwargs):
        total = sum(obs for obs in agent_obs.values())
        return dict.fromkeys(agent_obs, total)

    batch, _ = sample(COME_AND_GO, rollout_fragment_length=3, multiagent={"observation_fn": add_up})
    assert rows(batch.policy_batches["default_policy"], "obs")[0] == [(3.0,), (7.0,), (11.0,)]


class Watching(DefaultCallbacks):
    """Notes what an episode says at its end, and what postprocessing is told."""

    def on_episode_end(self, *, episode, **kwargs):
        episode.custom_metrics["length"] = episode.length
        episode.hist_data["last"] = [float(episode.last_raw_obs_for("a")[0]), episode.last_reward_for("b")]
        episode.user_data["agents"] = episode.get_agents()
        assert episode.policy_for("a") == "pa"
        assert episode.last_action_for("a") in (0, 1)
        assert episode.last_done_for("a")
        assert episode.agent_rewards["a", "pa"] == pytest.approx(-0.25)

    def on_postprocess_trajectory(self, *, agent_id, policy_id, original_batches, postprocessed_batch, **kwargs):
        assert policy_id == f"p{agent_id}"
        assert set(original_batches) == {"a", "b"}
        postprocessed_batch["rewards"] = postprocessed_batch["rewards"] * 10


def test_callbacks_see_agents():
    multiagent = {"policies": {"pa", "pb"}, "policy_mapping_fn": lambda agent_id: f"p{agent_id}"}
    batch, worker = sample(TURNS, callbacks=Watching, multiagent=multiagent)
    (metrics,) = worker.get_metrics()
    assert metrics.custom_metrics == {"length": 4}
    assert metrics.hist_data == {"last": [5.0, 1.0]}
    np.testing.assert_allclose(batch.policy_batches["pa"]["rewards"], [7.5, -10.0])


class Heuristic(Policy):
    """Has no weights; always takes action 1."""

    def compute_actions(self, obs_batch, state_batches=None, prev_action_batch=None, prev_reward_batch=None, **kwargs):
        return [1] * len(obs_batch), [], {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("to_train", [["learner"], lambda policy_id, batch: policy_id == "learner"])
def test_a_policy_without_weights_plays_beside_one_that_learns(framework, to_train):
    multiagent = {
        "policies": {"learner": PolicySpec(), "still": PolicySpec(), "fixed": (Heuristic, None, None, {})},
        "policy_mapping_fn": lambda agent_id: {0: "learner", 1: "fixed"}.get(agent_id, "still"),
        "policies_to_train": to_train,
    }
    made = trainer(
        None, PPOTrainer, MultiAgentCartPole, framework=framework, env_config={"num_agents": 3}, multiagent=multiagent,
        train_batch_size=40, rollout_fragment_length=20, sgd_minibatch_size=20, num_sgd_iter=2,
    )  # fmt: skip
    before = made.get_weights()
    result = made.train()
    after = made.get_weights()
    moved = {pid for pid in after if any((after[pid][name] != before[pid][name]).any() for name in after[pid])}
    assert moved == {"learner"}
    assert set(result["info"]["learner"]) == {"learner"}
    assert result["info"]["num_agent_steps_sampled"] > result["timesteps_total"]


def test_policies_have_configs_and_spaces_of_their_own():
    multiagent = {
        "policies": {"a": PolicySpec(config={"gamma": 0.5, "model": {"fcnet_hiddens": [7]}}), "b": None},
        "policy_mapping_fn": lambda agent_id: agent_id,
    }
    made = trainer(TURNS, multiagent=multiagent)
    assert made.get_policy("a").config["gamma"] == 0.5
    assert made.get_policy("a").get_weights()["hidden_0.weight"].shape == (7, 1)
    assert made.get_policy("b").get_weights()["hidden_0.weight"].shape == (4, 1)
    assert made.get_policy("a").config["model"]["fcnet_activation"] == "tanh"


class TwoKinds(Script):
    """Agents with spaces of their own."""

    observation_space = None
    action_space = None

    def __init__(self, config):
        super().__init__(config)
        boxes = (gym.spaces.Box(-9, 9, (1,), np.float32), gym.spaces.Box(-9, 9, (2,), np.float32))
        self.observation_spaces = dict(zip("ab", boxes, strict=True))
        self.action_spaces = {"a": gym.spaces.Discrete(2), "b": gym.spaces.Discrete(5)}

    def _numbers(self, obs):
        return {agent: np.full(self.observation_spaces[agent].shape, value, np.float32) for agent, value in obs.items()}


def test_policies_of_other_algorithms_have_the_keys_of_theirs():
    spec = {"mine": PolicySpec(), "other": PolicySpec(
        DQNTorchPolicy, config={"exploration_config": {"type": "EpsilonGreedy", "epsilon_timesteps": 7}})}  # fmt: skip
    mapping = lambda agent_id: "mine" if agent_id == 0 else "other"  # noqa: E731
    made = trainer(
        None, PPOTrainer, MultiAgentCartPole, env_config={"num_agents": 2}, sgd_minibatch_size=4, lr=0.25,
        multiagent={"policies": spec, "policy_mapping_fn": mapping, "policies_to_train": ["mine"]},
    )  # fmt: skip
    config = made.get_policy("other").config
    assert config["double_q"] is True  # what only DQN knows
    assert config["lr"] == 0.25  # what both know is the trainer's
    assert config["exploration_config"] == {"type": "EpsilonGreedy", "epsilon_timesteps": 7}
    assert "double_q" not in made.get_policy("mine").config
    assert set(made.train()["info"]["learner"]) == {"mine"}


def test_spaces_of_agents_are_found_through_the_mapping():
    multiagent = {"policies": {"a", "b"}, "policy_mapping_fn": lambda agent_id: agent_id}
    made = trainer(TURNS, env=TwoKinds, multiagent=multiagent)
    assert made.get_policy("b").action_space.n == 5
    batch = made.workers.local_worker().sample()
    assert batch.policy_batches["b"]["obs"].shape == (2, 2)


def test_agents_of_one_policy_need_one_space():
    with pytest.raises(ConfigError, match="its agents have different ones"):
        trainer(TURNS, env=TwoKinds)


def test_a_table_of_policies_on_an_environment_with_one_agent():
    multiagent = {"policies": {"mine"}, "policy_mapping_fn": lambda agent_id: "mine"}
    made = trainer(None, env="CartPole-v1", multiagent=multiagent, rollout_fragment_length=20, train_batch_size=20)
    result = made.train()
    assert result["timesteps_total"] == 20
    assert set(result["info"]["learner"]) == {"mine"}


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_a_soft_horizon_reports_and_goes_on(mode):
    lengths = []

    class Lengths(DefaultCallbacks):
        def on_episode_end(self, *, episode, **kwargs):
            lengths.append(episode.length)

    batch, worker = sample(
        TURNS, cls=DQNTrainer, n_step=1, horizon=2, soft_horizon=True, rollout_fragment_length=4, batch_mode=mode,
        callbacks=Lengths,
    )  # fmt: skip
    found = batch.policy_batches["default_policy"]
    assert rows(found, "obs", "new_obs", "rewards", "terminateds", "truncateds", "t") == {
        0: [(1.0, 3.0, 0.75, False, False, 0), (3.0, 5.0, -1.0, True, False, 0)],
        # b's first transition is under way at the horizon: its next turn closes it.
        1: [(2.0, 4.0, 1.0, False, False, 0), (4.0, 6.0, 1.0, True, False, 0)],
    }
    assert len(np.unique(found["eps_id"])) == 2
    first, second = worker.get_metrics()
    assert lengths == [first.episode_length, second.episode_length] == [2, 2]
    assert first.agent_rewards == {("a", "default_policy"): 0.75, ("b", "default_policy"): 1.0}
    assert second.agent_rewards == {("a", "default_policy"): -1.0, ("b", "default_policy"): 1.0}
    assert len(worker.env.seen) == 4  # one episode of the environment


def test_a_soft_horizon_cuts_nobodys_memory():
    made = trainer(
        None, PPOTrainer, MultiAgentCartPole, env_config={"num_agents": 2}, horizon=4, soft_horizon=True,
        model={**SMALL, "use_lstm": True, "lstm_cell_size": 3, "max_seq_len": 50},
        rollout_fragment_length=9, train_batch_size=9, sgd_minibatch_size=9,
    )  # fmt: skip
    made.get_policy().train_columns = None
    batch = made.workers.local_worker().sample().policy_batches["default_policy"]
    mine = batch["agent_index"] == 0
    assert batch["t"][mine].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert batch["seq_lens"].tolist()[0] == 4
    assert np.any(batch["state_in_0"][np.cumsum(batch["seq_lens"]) - batch["seq_lens"] > 0] != 0)
    np.testing.assert_array_equal(batch["new_obs"][mine][3], batch["obs"][mine][4])
    assert not batch["terminateds"].any()
    made.train()


def test_whole_episodes_are_counted_in_what_the_config_says():
    together = [{"a": 1, "b": 2, "c": 3}, ({"a": 4, "b": 5, "c": 6}, {}, ON, ON, {}),
                ({"a": 7, "b": 8, "c": 9}, {}, OVER, ON, {})]  # fmt: skip
    by_env, by_agent = (
        sample(together, rollout_fragment_length=4, batch_mode="complete_episodes", multiagent={"count_steps_by": by})[
            0
        ]
        for by in ("env_steps", "agent_steps")
    )
    assert (by_env.env_steps(), by_env.agent_steps()) == (4, 12)
    assert (by_agent.env_steps(), by_agent.agent_steps()) == (2, 6)


def test_who_is_only_rewarded_leaves_no_place_in_the_memory():
    # c has rewards and never an observation; d comes at the end.
    script = [{"a": 1}, ({"a": 2}, {"c": 1.0}, ON, ON, {}), ({"a": 3, "d": 4}, {"c": 1.0}, OVER, ON, {})]
    batch, worker = sample(script, cls=PPOTrainer, rollout_fragment_length=40, train_batch_size=40,
                           sgd_minibatch_size=40, model={**SMALL, "use_lstm": True, "lstm_cell_size": 2})  # fmt: skip
    (side,) = worker.runner._sides.values()
    assert side.places <= 4
    assert worker.get_metrics()[0].agent_rewards["c", "default_policy"] == 2.0
    assert set(rows(batch.policy_batches["default_policy"], "obs")) == {0}


def test_an_episode_that_cannot_end_is_named(monkeypatch):
    monkeypatch.setattr(multi_agent_runner, "_MAX_IDLE_STEPS", 3)
    stuck = ({}, {}, ON, ON, {})
    script = [{"a": 1}, ({"a": 2}, {}, {"a": True, "__all__": False}, ON, {}), *[stuck] * 9]
    with pytest.raises(EnvError, match=r"no agent had an observation.*never True; agents that are through: .*a"):
        sample(script, rollout_fragment_length=8)
    # Others may be late.
    late = [{"a": 1}, stuck, stuck, stuck, ({"b": 2}, {}, ON, ON, {}), stuck, stuck, ({}, {}, OVER, ON, {})]
    batch, _ = sample(late, rollout_fragment_length=7)
    assert set(rows(batch.policy_batches["default_policy"], "obs")) == {0, 1}


class WrongAtTheHorizon(MultiAgentEnv):
    """Gives, once, a wrong observation at its second step."""

    observation_space = gym.spaces.Box(-1, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    failed = False

    def __init__(self, config):
        pass

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return {"a": np.zeros(1, np.float32)}, {}

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


class FailsLate(MultiAgentEnv):
    """Two agents; the first time it fails behind its third step."""

    observation_space = gym.spaces.Box(-1, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    failed = False

    def __init__(self, config):
        pass

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return {"a": np.zeros(1, np.float32)}, {}

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
    act, calls = policy.act, []

    def raising(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return act(*args)

    monkeypatch.setattr(policy, "act", raising)
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
    with pytest.raises(RuntimeError, match=r"^mine$"):
        worker.sample()
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
        with pytest.raises(RuntimeError, match=r"^mine$"):
            worker.sample()
    worker.sample()
    assert all(acting == {"a", "b"} for acting in worker.slots[0].env.env.seen)


def test_a_mapping_to_no_policy_is_not_blamed_on_the_environment():
    multiagent = {"policies": {"one"}, "policy_mapping_fn": lambda agent_id: "one" if agent_id != "c" else "two"}
    with pytest.raises(ConfigError, match=r"^multiagent.policy_mapping_fn: gave 'two' for agent 'c'"):
        sample(COME_AND_GO, multiagent=multiagent)


def test_another_mapping_is_for_episodes_that_begin():
    multiagent = {"policies": {"one", "two"}, "policy_mapping_fn": lambda agent_id: "one"}
    made = trainer(COME_AND_GO, DQNTrainer, n_step=1, multiagent=multiagent, rollout_fragment_length=1)
    worker = made.workers.local_worker()
    worker.sample()
    worker.set_policy_mapping_fn(lambda agent_id: "two")
    worker.sample()  # here c comes
    worker.sample()
    assert {
        agent: policy for metric in worker.get_metrics() for agent, policy in metric.agent_rewards
    } == dict.fromkeys("abc", "one")
    for _ in range(3):
        worker.sample()
    assert {
        agent: policy for metric in worker.get_metrics() for agent, policy in metric.agent_rewards
    } == dict.fromkeys("abc", "two")


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
    assert len(worker.runner._sides["a"].store) == 1


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


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_policies_come_and_go(framework, tmp_path):
    def build():
        return trainer(
            None, env=MultiAgentCartPole, framework=framework, env_config={"num_agents": 2}, train_batch_size=40,
            rollout_fragment_length=20, multiagent={"policies": {"main"}, "policy_mapping_fn": lambda agent_id: "main"},
        )  # fmt: skip

    made = build()
    made.train()
    added = made.add_policy(
        "second", policy_mapping_fn=lambda agent_id: "main" if agent_id == 0 else "second", policies_to_train=["second"]
    )
    added.set_weights(made.get_policy("main").get_weights())
    made.workers.local_worker().runner.restart()
    result = made.train()
    assert set(result["info"]["learner"]) == {"second"}
    path = made.save(str(tmp_path))
    other = build()
    other.restore(path)
    for pid in ("main", "second"):
        for name, array in made.get_weights()[pid].items():
            np.testing.assert_array_equal(other.get_weights()[pid][name], array)
    with pytest.raises(ValueError, match="there is one already"):
        made.add_policy("second")
    made.remove_policy("second", policy_mapping_fn=lambda agent_id: "main", policies_to_train=["main"])
    assert set(made.train()["info"]["learner"]) == {"main"}
    with pytest.raises(KeyError, match="wanted one of main"):
        made.remove_policy("second")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_agent_has_a_memory_of_its_own(framework):
    """An LSTM's inputs are what it gave out at the agent's step before, whoever else comes and goes."""
    made = trainer(
        None, PPOTrainer, MultiAgentCartPole, framework=framework, env_config={"num_agents": 3},
        model={**SMALL, "use_lstm": True, "lstm_cell_size": 5, "lstm_use_prev_reward": True, "max_seq_len": 100},
        rollout_fragment_length=60, train_batch_size=60, num_envs_per_worker=2, sgd_minibatch_size=60,
    )  # fmt: skip
    worker = made.workers.local_worker()
    made.get_policy().train_columns = None  # keeps what came out at each step
    batch = worker.sample().policy_batches["default_policy"]
    starts = np.cumsum(batch["seq_lens"]) - batch["seq_lens"]
    first = np.zeros(len(batch), bool)
    first[starts] = True
    np.testing.assert_array_equal(batch["state_in_0"][batch["t"][starts] == 0], 0.0)
    np.testing.assert_array_equal(batch["prev_rewards"], (batch["t"] > 0).astype(np.float32))
    policy = made.get_policy()
    state = [part[:1] for part in (batch["state_in_0"], batch["state_in_1"])]
    for row in range(int(batch["seq_lens"][0])):
        inputs = {"state_in_0": state[0], "state_in_1": state[1], "prev_rewards": batch["prev_rewards"][row : row + 1]}
        outputs, _, state = policy.forward_with_memory(batch["obs"][row : row + 1], inputs, False)
        np.testing.assert_allclose(outputs[0], batch["action_dist_inputs"][row], atol=1e-5)
    made.train()


def test_filters_are_of_each_policy():
    multiagent = {"policies": {"a", "b"}, "policy_mapping_fn": lambda agent_id: agent_id}
    made = trainer(TURNS, observation_filter="MeanStdFilter", multiagent=multiagent, rollout_fragment_length=4)
    worker = made.workers.local_worker()
    worker.sample()
    # Observations 1, 3 and the last, 5, and the first of the next episode; 2, 4 and 6.
    assert worker.filters["a"].rs.n == 4
    assert worker.filters["b"].rs.n == 3


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


def test_ppo_trains_a_policy_that_is_added_later():
    made = trainer(
        None, PPOTrainer, MultiAgentCartPole, env_config={"num_agents": 2}, train_batch_size=40, model=SMALL,
        rollout_fragment_length=20, sgd_minibatch_size=20, num_sgd_iter=1,
        multiagent={"policies": {"main"}, "policy_mapping_fn": lambda agent_id: "main"},
    )  # fmt: skip
    made.train()
    mapping = lambda agent_id: "main" if agent_id == 0 else "second"  # noqa: E731
    before = made.add_policy("second", policy_mapping_fn=mapping, policies_to_train=["main", "second"]).get_weights()
    made.workers.local_worker().runner.restart()
    assert set(made.train()["info"]["learner"]) == {"main", "second"}
    after = made.get_policy("second").get_weights()
    assert any(not np.array_equal(before[name], after[name]) for name in before)


def test_a_policy_may_be_kept_from_evaluation():
    made = trainer(
        None, env=MultiAgentCartPole, env_config={"num_agents": 2}, train_batch_size=40, rollout_fragment_length=20,
        evaluation_interval=1, evaluation_num_episodes=1,
        multiagent={"policies": {"main"}, "policy_mapping_fn": lambda agent_id: "main"},
    )  # fmt: skip
    made.add_policy("second", evaluation_workers=False)
    assert made.train()["evaluation"]["episodes_this_iter"] >= 1


def test_rows_of_a_removed_policy_are_not_learned_from():
    mapping = lambda agent_id: "main" if agent_id == 0 else "second"  # noqa: E731
    made = trainer(
        None, DQNTrainer, MultiAgentCartPole, env_config={"num_agents": 2}, train_batch_size=20, learning_starts=20,
        rollout_fragment_length=10, timesteps_per_iteration=20, model=SMALL,
        multiagent={"policies": {"main", "second"}, "policy_mapping_fn": mapping},
    )  # fmt: skip
    for _ in range(3):
        made.train()
    made.remove_policy("second", policy_mapping_fn=lambda agent_id: "main", policies_to_train=["main"])
    made.workers.local_worker().runner.restart()
    for _ in range(3):
        learned = made.train()["info"]["learner"]
    assert set(learned) == {"main"}


LOCKSTEP = {
    "cls": DQNTrainer,
    "prioritized_replay": False,
    "hiddens": [4],
    "learning_starts": 0,
    "multiagent": {
        "policies": {"a", "b"},
        "policy_mapping_fn": lambda agent: agent,
        "replay_mode": "lockstep",
    },
}
TOGETHER = [
    {"a": 1, "b": 2},
    ({"a": 3, "b": 4}, {"a": 1.0, "b": 2.0}, ON, ON, {}),
    ({"a": 5, "b": 6}, {"a": 1.0}, OVER, ON, {}),
]


def test_in_lockstep_rows_say_at_which_step_of_the_environment_they_are():
    batch, _ = sample(TURNS, **LOCKSTEP)
    assert batch.policy_batches["a"]["env_t"].tolist() == [0, 2]
    assert batch.policy_batches["b"]["env_t"].tolist() == [1, 3]
    assert "env_t" not in sample(TURNS)[0].policy_batches["default_policy"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_any_trainer_that_replays_can_do_so_in_lockstep(framework):
    made = trainer(TOGETHER, framework=framework, **LOCKSTEP)
    for _ in range(3):
        result = made.train()
    assert set(result["info"]["learner"]) == {"a", "b"}
    drawn = made.local_replay_buffer.replay().policy_batches
    np.testing.assert_array_equal(drawn["a"]["obs"] + 1.0, drawn["b"]["obs"])  # what b sees is 1 more, at each step


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (TURNS, "agent of policy 'a' acted and that of 'b' did not; wanted all agents to act at every step"),
        ([COME_AND_GO[0], ({"a": 3}, {}, {"b": True, "__all__": False}, ON, {}), ({"a": 4}, {}, OVER, ON, {})],
         "at step 1 of episode .* the agent of policy 'a' acted and that of 'b' did not"),
    ],
    ids=["turns", "gone"],
)  # fmt: skip
def test_lockstep_names_the_step_at_which_an_agent_did_not_act(script, message):
    with pytest.raises(ValueError, match=message):
        trainer(script, **LOCKSTEP).train()


def test_lockstep_names_a_policy_with_two_agents():
    shared = {**LOCKSTEP, "multiagent": {"policies": {"a"}, "replay_mode": "lockstep"}}
    with pytest.raises(
        ValueError, match=r"policy .a. has several rows of step 0 .* give every agent a policy of its own"
    ):
        trainer(TOGETHER, **shared).train()


def test_lockstep_is_refused_with_priorities_and_without_replay():
    with pytest.raises(ConfigError, match="it needs prioritized_replay=False"):
        trainer(TOGETHER, **{**LOCKSTEP, "prioritized_replay": True})
    with pytest.raises(ConfigError, match="is for algorithms that replay"):
        trainer(TOGETHER, multiagent={"replay_mode": "lockstep"})
