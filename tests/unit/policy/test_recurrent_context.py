"""What acting needs beside the observation."""

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.pg import PGTorchPolicy
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.view_requirements import ViewRequirement
from rlframe.policy.recurrent_context import RecurrentContext, add_later_steps, views_after
from rlframe.utils.errors import ConfigError

VIEWS = {
    "obs_stack": ViewRequirement("obs", shift="-2:0"),
    "prev_actions": ViewRequirement("actions", shift=-1),
    "two_rewards": ViewRequirement("rewards", shift="-2:-1"),
}


def policy(views=VIEWS, state=()):
    return SimpleNamespace(
        get_initial_state=lambda: [np.asarray(part, np.float32) for part in state],
        acting_views=lambda: views,
        view_requirements=views,
        observation_space=gym.spaces.Box(-9, 9, (1,), np.float32),
        action_space=gym.spaces.Discrete(5),
        _obs_filter=None,
    )


def step(memory, obs, actions, rewards, **columns):
    row = np.asarray(obs, np.float32)[:, None]
    inputs = {name: column.copy() for name, column in memory.inputs(row).items()}
    memory.acted(row, np.asarray(actions), columns)
    memory.rewarded(np.asarray(rewards, np.float32))
    return inputs


def test_views_show_the_steps_they_name_and_zeros_before_the_episode():
    memory = RecurrentContext(policy(), 2)
    step(memory, [1, 10], [3, 4], [0.5, 5.0])
    second = step(memory, [2, 20], [2, 1], [0.25, 2.5])
    third = step(memory, [3, 30], [0, 0], [0.0, 0.0])
    assert second["obs_stack"][..., 0].tolist() == [[0, 1, 2], [0, 10, 20]]
    assert third["obs_stack"][..., 0].tolist() == [[1, 2, 3], [10, 20, 30]]
    assert third["prev_actions"].tolist() == [2, 1]
    assert third["two_rewards"].tolist() == [[0.5, 0.25], [5.0, 2.5]]


def test_a_new_episode_in_one_place_leaves_the_other_alone():
    memory = RecurrentContext(policy(state=[[7.0, 8.0]]), 2)
    step(memory, [1, 10], [3, 4], [0.5, 5.0], state_out_0=np.array([[1.0, 1.0], [2.0, 2.0]]))
    memory.begin(0)
    after = step(memory, [2, 20], [2, 1], [0.25, 2.5], state_out_0=np.zeros((2, 2)))
    assert after["state_in_0"].tolist() == [[7.0, 8.0], [2.0, 2.0]]
    assert after["prev_actions"].tolist() == [0, 4]
    assert after["obs_stack"][..., 0].tolist() == [[0, 0, 2], [0, 10, 20]]


def test_the_first_step_acts_on_the_initial_state():
    assert RecurrentContext(policy(state=[[7.0]]), 3).inputs(np.zeros((3, 1)))["state_in_0"].tolist() == [[7.0]] * 3


def test_a_state_comes_back():
    memory, other = RecurrentContext(policy(state=[[0.0]]), 1), RecurrentContext(policy(state=[[0.0]]), 1)
    for number in range(3):
        step(memory, [number], [number], [number], state_out_0=np.full((1, 1), float(number)))
    other.set_state(memory.get_state())
    expected, given = memory.inputs(np.ones((1, 1))), other.inputs(np.ones((1, 1)))
    for name, column in expected.items():
        np.testing.assert_array_equal(given[name], column, err_msg=name)


def test_views_one_step_later_are_what_the_memory_would_show():
    memory = RecurrentContext(policy(), 1)
    rows = [step(memory, [number + 1], [number], [number * 0.5]) for number in range(4)]
    batch = {name: np.concatenate([row[name] for row in rows]) for name in VIEWS}
    batch.update(
        obs=np.array([[1.0], [2.0], [3.0], [4.0]]), actions=np.arange(4), rewards=np.arange(4) * np.float32(0.5)
    )
    next_obs = np.array([[9.0]], np.float32)
    expected = memory.inputs(next_obs)
    made = views_after(VIEWS, batch, np.array([3]), next_obs)
    for name in VIEWS:
        np.testing.assert_array_equal(made[name], expected[name], err_msg=name)


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("next", ViewRequirement("obs", shift=1)),
        ("actions_now", ViewRequirement("actions", shift=0)),
        ("seen_infos", ViewRequirement("infos", shift=-1)),
    ],
)
def test_views_of_what_cannot_be_known_are_refused_by_name(name, view):
    with pytest.raises(ConfigError, match=name):
        RecurrentContext(policy({name: view}), 1)


def test_later_steps_end_with_the_trajectory_and_begin_with_the_next_observation():
    batch = SampleBatch(
        obs=np.array([1, 2, 3, 7]), new_obs=np.array([2, 3, 4, 8]), actions=np.array([10, 20, 30, 70]),
        eps_id=np.array([1, 1, 1, 2]), agent_index=np.zeros(4, int),
    )  # fmt: skip
    add_later_steps(
        {
            "next_actions": ViewRequirement("actions", shift=1),
            "two_obs": ViewRequirement("obs", shift="1:2"),
            "last_actions": ViewRequirement("actions", shift=-1),
            "next_infos": ViewRequirement("infos", shift=1),
        },
        batch,
    )
    assert batch["next_actions"].tolist() == [20, 30, 0, 0]
    assert batch["two_obs"].tolist() == [[2, 3], [3, 4], [4, 0], [8, 0]]
    assert not batch.keys() & {"last_actions", "next_infos"}


@pytest.fixture(scope="module")
def remembering():
    model = {"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": 3}
    return PGTorchPolicy(gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2), {"model": model})


def test_views_of_a_policy_name_its_states_and_what_tells_trajectories_apart(remembering):
    views = remembering.view_requirements
    assert [(views[f"state_in_{i}"].data_col, views[f"state_in_{i}"].shift) for i in (0, 1)] == [
        ("state_out_0", -1),
        ("state_out_1", -1),
    ]
    assert views["state_out_0"].space.shape == (3,)
    assert {"eps_id", "unroll_id", "agent_index", "t"} <= views.keys()
    assert list(remembering.acting_views()) == []


def test_states_in_double_precision_are_taken_in_single(remembering):
    _, states, _ = remembering.compute_actions(np.zeros((2, 2), np.float32), [np.zeros((2, 3)), np.zeros((2, 3))])
    assert [state.dtype for state in states] == [np.float32, np.float32]
