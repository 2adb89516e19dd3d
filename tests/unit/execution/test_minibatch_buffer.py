"""Batches given several times, in turn."""

import queue

import pytest

from rlframe.execution.learner.inline import MinibatchBuffer
from tests.helpers.fakes_execution import make_batch


def filled(items, **arguments):
    source = queue.Queue()
    for item in items:
        source.put(item)
    return MinibatchBuffer(source, **{"size": 1, "timeout": 0.0, "num_passes": 1, **arguments})


def take(buffer, n):
    return [buffer.get() for _ in range(n)]


def test_one_slot_gives_each_batch_all_its_passes_before_the_next():
    buffer = filled("ab", num_passes=3)
    assert take(buffer, 6) == [("a", False), ("a", False), ("a", True), ("b", False), ("b", False), ("b", True)]
    assert buffer.needs_new()


def test_slots_take_turns_and_do_not_run_out_at_once():
    buffer = filled("abcdef", size=2, num_passes=2)
    given = take(buffer, 8)
    # The first batch is given once only: its slot is filled anew while the other still has a pass to give.
    assert [item for item, _ in given] == list("abcbcded")
    assert sum(released for _, released in given) == 4


def test_an_empty_queue_is_said():
    with pytest.raises(queue.Empty):
        filled("").get()


@pytest.mark.parametrize("arguments", [{"size": 0}, {"num_passes": 0}])
def test_nothing_to_give_is_refused(arguments):
    with pytest.raises(ValueError, match="wanted 1 slot and 1 pass or more"):
        filled("", **arguments)


def test_state_goes_on_in_the_middle():
    def numbers(buffer, n):
        return [(float(batch["obs"][0, 0]), released) for batch, released in take(buffer, n)]

    batches = [make_batch(2, start) for start in range(8)]
    one, other = filled(batches, size=2, num_passes=3), filled(batches, size=2, num_passes=3)
    take(one, 3)
    for _ in range(len(batches) - one.inqueue.qsize()):
        other.inqueue.get()
    other.set_state(one.get_state())
    assert numbers(one, 9) == numbers(other, 9)
