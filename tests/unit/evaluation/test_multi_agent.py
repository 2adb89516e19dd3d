"""Sampling with several agents: when a transition is closed, and with what."""

from typing import ClassVar

import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.data.sample_batch import MultiAgentBatch
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.utils.errors import EnvError
from tests.helpers.frameworks import TORCH_FIRST
from tests.helpers.multi_agent_envs import COME_AND_GO, ON, OVER, TURNS
from tests.helpers.scripted import SMALL, rows, sample, trainer


def test_who_loses_by_anothers_move_sees_it():
    batch, worker = sample(TURNS)
    assert isinstance(batch, MultiAgentBatch)
    assert batch.env_steps() == 4
    found = rows(batch.policy_batches["default_policy"], "obs", "rewards", "terminateds", "t")
    # a: acts on 1 (0.5 at once, 0.25 with b's move), on 3 (nothing at once, -1 with b's move, the last)
    assert found[0] == [(1.0, 0.75, False, 0), (3.0, -1.0, True, 2)]
    assert found[1] == [(2.0, 1.0, False, 1), (4.0, 1.0, True, 3)]
    (metrics,) = worker.get_metrics()
    assert metrics.episode_reward == pytest.approx(1.75)
    assert metrics.agent_rewards == {("a", "default_policy"): -0.25, ("b", "default_policy"): 2.0}
    assert metrics.episode_length == 4


def test_rows_say_at_which_step_of_the_environment_their_agent_acted():
    steps = [
        {"a": 1},
        ({"a": 2}, {}, ON, ON, {}),
        ({"a": 3, "b": 4}, {}, ON, ON, {}),
        ({"a": 5, "b": 6}, {}, OVER, ON, {}),
    ]
    batch, _ = sample(steps, rollout_fragment_length=3)
    found = batch.policy_batches["default_policy"] if isinstance(batch, MultiAgentBatch) else batch
    assert rows(found, "obs", "t") == {0: [(1.0, 0), (2.0, 1), (3.0, 2)], 1: [(4.0, 2)]}


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_nobody_need_be_there_when_an_episode_begins(mode):
    steps = [{}, ({}, {}, ON, ON, {}), ({"a": 1}, {}, ON, ON, {}), ({"a": 2}, {"a": 1.0}, OVER, ON, {})]
    batch, worker = sample(steps, rollout_fragment_length=3, batch_mode=mode)
    found = batch.policy_batches["default_policy"] if isinstance(batch, MultiAgentBatch) else batch
    assert rows(found, "obs", "rewards", "t") == {0: [(1.0, 1.0, 2)]}
    assert [set(actions) for actions in worker.env.seen] == [set(), set(), {"a"}]
    assert [metrics.episode_length for metrics in worker.get_metrics()] == [3]


@pytest.mark.parametrize("apart", [1, 2])
def test_agents_that_take_turns_have_trajectories(apart):
    names = ("a", "b")[:apart]
    steps = [{names[0]: 0.1}]
    for number in range(1, 8):
        over = OVER if number == 7 else ON
        steps.append(({names[number % apart]: 0.1}, dict.fromkeys(names, 1.0), over, ON, {}))
    config = {"gamma": 1.0, "rollout_fragment_length": 7, "batch_mode": "complete_episodes"}
    batch, _ = sample(steps, cls=DQNTrainer, n_step=3, **config)
    found = batch.policy_batches["default_policy"] if isinstance(batch, MultiAgentBatch) else batch
    turns = rows(found, "n_steps", "turn")[0]
    assert turns == ([(3, 0), (3, 1), (2, 2), (1, 3)] if apart == 2 else [(3, t) for t in range(5)] + [(2, 5), (1, 6)])
    batch, _ = sample(steps, cls=PPOTrainer, **{**config, "lambda": 1.0, "sgd_minibatch_size": 4})
    found = batch.policy_batches["default_policy"] if isinstance(batch, MultiAgentBatch) else batch
    returns = [target for (target,) in rows(found, "value_targets")[0]]
    np.testing.assert_allclose(returns, [7.0, 5.0, 3.0, 1.0] if apart == 2 else [7, 6, 5, 4, 3, 2, 1], atol=1e-5)


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
    ("step", "message"),
    [
        (({"a": 1}, {}, {}, {}, {}), r'without "__all__"'),
        (({"a": 1}, {"a": "much"}, ON, ON, {}), r"agent 'a' returned the reward"),
        (({"a": 1}, {}, ON), "tuple of length 3"),
        (({"a": 1}, 3.0, ON, {}), "returned rewards as"),
    ],
)
def test_a_step_that_breaks_the_contract_is_named(step, message):
    with pytest.raises(EnvError, match=message):
        sample([{"a": 1}, step, ({"a": 1}, {}, OVER, ON, {})])


def test_a_first_observation_beyond_its_bounds_is_an_error_and_a_later_one_a_warning(caplog):
    over = ({"a": 1}, {}, OVER, ON, {})
    with pytest.raises(EnvError, match=r"agent 'a', policy 'default_policy': obs\[0\] is 500.0, above its bound"):
        sample([{"a": 500}, over])
    batch, _ = sample([{"a": 1}, ({"a": 500}, {}, ON, ON, {}), over], rollout_fragment_length=2)
    assert rows(batch.policy_batches["default_policy"], "obs")[0] == [(1.0,), (500.0,)]
    assert "agent 'a'" in caplog.text


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
        for agent in "ab":  # what each agent saw last, though no action follows
            np.testing.assert_array_equal(episode.last_observation_for(agent), episode.last_raw_obs_for(agent))
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
        1: [(2.0, 4.0, 1.0, False, False, 1), (4.0, 6.0, 1.0, True, False, 1)],
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


class LongerBySlot(MultiAgentCartPole):
    """Episodes of two steps in slot 0, of five in slot 1."""

    def __init__(self, config):
        super().__init__(config)
        self.length = 5 if config.vector_index else 2

    def reset(self, **kwargs):
        self.steps = 0
        return super().reset(**kwargs)

    def step(self, actions):
        self.steps += 1
        obs, rewards, terminateds, truncateds, infos = super().step(actions)
        return obs, rewards, terminateds, {**truncateds, "__all__": self.steps == self.length}, infos


def test_whole_episodes_are_counted_without_the_steps_of_those_that_run_on():
    made = trainer(None, env=LongerBySlot, env_config={"num_agents": 2}, num_envs_per_worker=2,
                   rollout_fragment_length=1, batch_mode="complete_episodes")  # fmt: skip
    batches = [made.workers.local_worker().sample() for _ in range(3)]
    assert [batch.env_steps() for batch in batches] == [2, 2, 5]  # slot 1 has made 2, then 4 steps, then ends
    assert [batch.agent_steps() for batch in batches] == [4, 4, 10]


@pytest.mark.parametrize(("by", "steps", "rows"), [("env_steps", 9, 18), ("agent_steps", 6, 12)])
def test_whole_episodes_of_several_slots_end_with_the_one_that_makes_enough_steps(by, steps, rows):
    # Two agents and 3 steps an episode, in two slots at a time: 8 steps are three of four episodes, 8 rows are two.
    def make():
        return trainer(
            None, env=MultiAgentCartPole, env_config={"num_agents": 2}, num_envs_per_worker=2, horizon=3,
            rollout_fragment_length=4, batch_mode="complete_episodes", multiagent={"count_steps_by": by},
        ).workers.local_worker()  # fmt: skip

    worker, other = make(), make()
    for _ in range(3):
        batch = worker.sample()
        assert (batch.env_steps(), batch.agent_steps()) == (steps, rows)
    other.set_state(worker.get_state())
    expected, again = (one.sample().policy_batches["default_policy"] for one in (worker, other))
    np.testing.assert_array_equal(again["eps_id"], expected["eps_id"])
    np.testing.assert_array_equal(again["obs"], expected["obs"])


def test_unroll_id_tells_apart_what_was_sampled_of_an_episode_at_different_times():
    made = trainer(None, env=MultiAgentCartPole, env_config={"num_agents": 2}, rollout_fragment_length=2)
    made.get_policy().train_columns = None
    worker = made.workers.local_worker()
    ids = [worker.sample().policy_batches["default_policy"]["unroll_id"].tolist() for _ in range(2)]
    assert ids == [[0, 0, 1, 1], [2, 2, 3, 3]]


def test_who_is_only_rewarded_leaves_no_place_in_the_memory():
    # c has rewards and never an observation; d comes at the end.
    script = [{"a": 1}, ({"a": 2}, {"c": 1.0}, ON, ON, {}), ({"a": 3, "d": 4}, {"c": 1.0}, OVER, ON, {})]
    batch, worker = sample(script, cls=PPOTrainer, rollout_fragment_length=40, train_batch_size=40,
                           sgd_minibatch_size=40, model={**SMALL, "use_lstm": True, "lstm_cell_size": 2})  # fmt: skip
    (collector,) = worker.runner.rows.by_policy.values()
    assert collector.num_indices <= 4
    assert worker.get_metrics()[0].agent_rewards["c", "default_policy"] == 2.0
    assert set(rows(batch.policy_batches["default_policy"], "obs")) == {0}


@pytest.mark.parametrize("framework", TORCH_FIRST)
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


class Last(DefaultCallbacks):
    """Notes each agent's last observation at the end of an episode."""

    noted: ClassVar = []

    def on_episode_end(self, *, episode, **kwargs):
        agents = episode.get_agents()
        Last.noted.append({agent: float(episode.last_observation_for(agent)[0]) for agent in agents})


def test_the_last_observation_of_an_episode_is_that_behind_its_last_step():
    sample(COME_AND_GO, callbacks=Last)
    assert Last.noted == [{"a": 7.0, "b": 4.0, "c": 8.0}]


def test_agents_that_have_not_acted_may_have_no_reward():
    turns = [TURNS[0], (TURNS[1][0], {**TURNS[1][1], "b": None}, *TURNS[1][2:]), *TURNS[2:]]
    batch, _ = sample(turns)
    found = rows(batch.policy_batches["default_policy"], "obs", "rewards")
    assert found[1] == [(2.0, 1.0), (4.0, 1.0)]
    np.testing.assert_array_equal(batch["obs"], batch.policy_batches["default_policy"]["obs"])
    wrong = [TURNS[0], (TURNS[1][0], {"a": None}, *TURNS[1][2:]), *TURNS[2:]]
    with pytest.raises(EnvError, match="agent 'a' returned the reward None"):
        sample(wrong)


class NotesOfTurns(DefaultCallbacks):
    """Notes what an episode tells of agents while they wait for their turn."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.notes = []

    def on_episode_step(self, *, episode, **kwargs):
        b = episode.last_reward_for("b"), episode.prev_reward_for("b"), episode.last_info_for("b")
        self.notes.append((*b, episode.last_done_for("b"), episode.last_done_for("c"), episode.total_reward))

    def on_episode_end(self, *, episode, **kwargs):
        episode.hist_data["notes"] = self.notes


def test_rewards_between_two_turns_add_up_and_the_end_is_everybodys():
    script = [
        {"a": 0, "b": 0},
        ({"a": 1, "b": 1}, {"a": 0.0, "b": 0.5}, ON, ON, {"b": {"turn": 1}}),
        ({"a": 2}, {"a": 0.0, "b": 1.0}, ON, ON, {}),
        ({"b": 3, "c": 3}, {"b": 2.0}, {"b": True, **ON}, ON, {"b": {"turn": 3}}),
        ({"a": 4}, {"a": 0.0, "b": 4.0}, ON, ON, {}),
        ({"a": 5}, {"a": 1.0}, OVER, ON, {}),
    ]
    _, worker = sample(script, callbacks=NotesOfTurns, batch_mode="complete_episodes")
    (metrics,) = worker.get_metrics()
    assert metrics.hist_data["notes"] == [
        (0.5, 0.0, {"turn": 1}, False, False, 0.5),
        (0.5, 0.0, {"turn": 1}, False, False, 1.5),  # the reward of a turn that is not over
        (3.0, 0.5, {"turn": 3}, True, False, 3.5),
        (3.0, 0.5, {"turn": 3}, True, False, 7.5),  # through, whatever it is still given
        (4.0, 3.0, {"turn": 3}, True, True, 8.5),
    ]
    # c was never rewarded: there is no return of its own that its policy's mean could be taken over
    assert metrics.agent_rewards == {("a", "default_policy"): 1.0, ("b", "default_policy"): 7.5}
