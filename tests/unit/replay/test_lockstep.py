"""Replay in lockstep: rows of all policies that belong to the same steps, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.replay.lockstep import alive_in_all, joint_steps
from rlframe.replay.per_policy import LocalReplayBuffer
from rlframe.utils.errors import CheckpointError
from tests.helpers.transitions import fragment


def rows(episode: int, start: int, count: int, *, agent: int = 0, env_start: int | None = None) -> SampleBatch:
    batch = fragment(episode, start, count)
    batch["t"] = np.arange(count) + (start if env_start is None else env_start)
    batch["agent_index"] = np.full(count, agent)
    return batch


def both(episode: int, start: int, count: int) -> MultiAgentBatch:
    return MultiAgentBatch({"red": rows(episode, start, count), "blue": rows(episode, start, count, agent=1)}, count)


def make(**arguments: Any) -> LocalReplayBuffer:
    given = {"learning_starts": 0, "replay_batch_size": 64, "replay_mode": "lockstep", "seed": 3, **arguments}
    return LocalReplayBuffer(**given)


def steps_of(batch: SampleBatch) -> list[tuple[int, int]]:
    return list(zip(batch["eps_id"].tolist(), batch["t"].tolist(), strict=True))


def test_a_draw_has_the_same_steps_of_all_policies() -> None:
    buffer = make(replay_batch_size=500)
    for episode in range(3):
        buffer.add_batch(both(episode, 0, 7))
    drawn = buffer.replay()
    assert isinstance(drawn, MultiAgentBatch)
    assert drawn.count == 500
    assert steps_of(drawn.policy_batches["red"]) == steps_of(drawn.policy_batches["blue"])
    assert set(steps_of(drawn.policy_batches["red"])) == {(episode, t) for episode in range(3) for t in range(7)}
    assert (drawn.policy_batches["red"]["agent_index"] == 0).all()
    assert (drawn.policy_batches["blue"]["agent_index"] == 1).all()
    buffer.check_invariants()


def test_rows_in_another_order_are_put_side_by_side() -> None:
    red = SampleBatch.concat_samples([rows(0, 0, 3), rows(1, 0, 2)])
    blue = SampleBatch.concat_samples([rows(1, 0, 2), rows(0, 0, 3)])
    made = joint_steps({"red": red, "blue": blue})
    assert made["red"] is red
    assert steps_of(made["blue"]) == steps_of(red) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_without_steps_of_the_environment_the_agents_own_count() -> None:
    made = joint_steps({"red": fragment(0, 0, 3), "blue": fragment(0, 0, 3)})
    assert made["blue"]["t"].tolist() == [0, 1, 2]


def test_policy_with_two_agents_is_named_with_step_and_agents() -> None:
    two = SampleBatch.concat_samples([rows(4, 0, 3), rows(4, 0, 3, agent=2)])
    with pytest.raises(
        ValueError, match=r"policy 'red' has several rows of step 0 of episode 4, .* number 0 and 2; want"
    ):
        make().add_batch(MultiAgentBatch({"red": two, "blue": rows(4, 0, 3, agent=1)}, 3))


def test_agents_in_turns_are_named_with_their_step() -> None:
    turns = {"red": rows(0, 0, 2, env_start=0), "blue": rows(0, 0, 2, env_start=2)}
    with pytest.raises(
        ValueError, match=r"at step 0 of episode 0 the agent of policy 'red' acted and that of 'blue' did"
    ):
        make().add_batch(MultiAgentBatch(turns, 4))


def test_agent_that_goes_early_is_named() -> None:
    parts = {"red": rows(0, 0, 2), "blue": rows(0, 0, 3, agent=1)}
    with pytest.raises(ValueError, match=r"at step 2 of episode 0 the agent of policy 'blue' acted and that of 'red'"):
        make().add_batch(MultiAgentBatch(parts, 3))


def test_policy_without_rows_is_missed() -> None:
    buffer = make()
    buffer.add_batch(both(0, 0, 3))
    with pytest.raises(ValueError, match=r"got rows of the policies \['red'\], wanted rows of \['blue', 'red'\]"):
        buffer.add_batch(MultiAgentBatch({"red": rows(0, 3, 2)}, 2))
    with pytest.raises(ValueError, match=r"wanted rows of \['blue', 'red'\]"):
        make().add_batch(MultiAgentBatch({"red": rows(0, 3, 2), "blue": rows(0, 3, 2)[:0]}, 2))
    assert alive_in_all(buffer.replay_buffers) == (0, 3)


def test_rows_that_do_not_say_their_step_are_refused() -> None:
    bare = SampleBatch(obs=np.zeros((2, 1)), new_obs=np.zeros((2, 1)))
    with pytest.raises(ValueError, match="policy 'red' have no 'eps_id' and 't'"):
        make().add_batch(MultiAgentBatch({"red": bare, "blue": bare}, 2))


def test_a_batch_stored_halfway_is_told_at_the_next_draw() -> None:
    buffer = make()
    buffer.add_batch(both(0, 0, 3))
    odd = both(0, 3, 2)
    odd.policy_batches["blue"]["surplus"] = np.zeros(2)
    with pytest.raises(ValueError, match="'surplus' is new"):
        buffer.add_batch(odd)
    with pytest.raises(ValueError, match=r"different numbers of rows \('red': 5, 'blue': 3\)"):
        buffer.replay()


def test_one_policy_replays_in_lockstep_with_itself() -> None:
    buffer = make()
    buffer.add_batch(fragment(0, 0, 4))
    assert isinstance(buffer.replay(), SampleBatch)


def test_state_goes_on_with_the_same_draws_and_asks_for_the_same_mode() -> None:
    buffer, again = make(), make(seed=99)
    buffer.add_batch(both(0, 0, 9))
    buffer.replay()
    again.set_state(buffer.get_state())
    for _ in range(3):
        one, other = buffer.replay(), again.replay()
        for pid in ("red", "blue"):
            np.testing.assert_array_equal(one.policy_batches[pid]["obs"], other.policy_batches[pid]["obs"])
    with pytest.raises(CheckpointError, match="replay_mode='lockstep'"):
        make(replay_mode="independent").set_state(buffer.get_state())
    with pytest.raises(CheckpointError, match="replay_mode='independent'"):
        make().set_state(make(replay_mode="independent").get_state())


def test_lockstep_draws_uniformly_whatever_is_said_of_priorities() -> None:
    buffer = make(prioritized=True)
    buffer.add_batch(both(0, 0, 3))
    assert not buffer.prioritized
    assert "weights" not in buffer.replay().policy_batches["red"]
