"""Laws of iterators: order, no loss, no duplication, weights honoured, and a state that goes on exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.execution.plan.context import _get_shared_metrics, _NextValueNotReady
from rlframe.execution.plan.local_iterator import LocalIterator
from tests.helpers.fakes_execution import iterate

law = settings(deadline=None)  # a busy machine is no failure
items = st.lists(st.integers(-100, 100), max_size=30)
with_markers = st.lists(st.one_of(st.integers(-100, 100), st.just(None)), max_size=30)
weights = st.one_of(st.integers(1, 4), st.sampled_from([0.25, 0.5, 1.5, 0.1]))


def _count(item: Any) -> Any:
    _get_shared_metrics().counters["n"] += 1
    return item


def _is_odd(item: int) -> bool:
    return item % 2 == 1


def _twice(item: Any) -> list[Any]:
    return [item, item]


class _Pairs:
    """Gives the sum of every two items; has a state, as an operator of a user may."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def __call__(self, item: int) -> list[int]:
        self.held.append(item)
        if len(self.held) < 2:
            return []
        total, self.held = sum(self.held), []
        return [total]

    def get_state(self) -> dict[str, Any]:
        return {"held": list(self.held)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.held = list(state["held"])


_STAGES: dict[str, Callable[[LocalIterator[Any]], LocalIterator[Any]]] = {
    "count": lambda it: it.for_each(_count),
    "odd": lambda it: it.filter(_is_odd),
    "twice": lambda it: it.combine(_twice),
    "batch": lambda it: it.batch(3).flatten(),
    "pairs": lambda it: it.combine(_Pairs()),
    "shuffle": lambda it: it.shuffle(4, seed=1),
}
stages = st.lists(st.sampled_from(sorted(_STAGES)), max_size=4)


def _chain(values: list[int], names: list[str]) -> LocalIterator[Any]:
    it = iterate(values)
    for name in names:
        it = _STAGES[name](it)
    return it


@law
@given(items, st.integers(1, 7))
def test_operators_that_regroup_keep_all_items_in_order(values: list[int], n: int) -> None:
    assert list(iterate(values).batch(n).flatten().for_each(_count).filter(lambda _: True)) == values


@law
@given(items, st.integers(1, 7), st.integers(0, 5))
def test_shuffle_gives_every_item_once(values: list[int], size: int, seed: int) -> None:
    assert sorted(iterate(values).shuffle(size, seed)) == sorted(values)


@law
@given(with_markers, st.integers(1, 4))
def test_markers_neither_lose_nor_repeat_items(values: list[int | None], n: int) -> None:
    marked = [_NextValueNotReady() if value is None else value for value in values]
    got = list(iterate(marked).batch(n).flatten().skip_not_ready())
    assert got == [value for value in values if value is not None]


@law
@given(items, st.lists(st.booleans(), max_size=40))
def test_items_refused_for_a_while_come_once_and_in_order(values: list[int], unsupported_values: list[bool]) -> None:
    answers = iter(unsupported_values)

    def sometimes(item: int) -> Any:
        return _NextValueNotReady() if next(answers, False) else item

    assert [i for i in iterate(values).for_each(sometimes) if not isinstance(i, _NextValueNotReady)] == values


@law
@given(items, st.lists(st.integers(0, 2), max_size=60))
def test_duplicates_each_see_every_item_in_order(values: list[int], turns: list[int]) -> None:
    copies = iterate(values).duplicate(3)
    got: list[list[int]] = [[], [], []]
    for turn in turns:
        got[turn] += copies[turn].take(1)
    for copy, seen in zip(copies, got, strict=True):
        assert seen + list(copy) == values


@law
@given(st.lists(items, min_size=2, max_size=4), st.data())
def test_union_keeps_each_branch_in_order_and_loses_nothing(branches: list[list[int]], data: st.DataObject) -> None:
    deterministic = data.draw(st.booleans())
    chosen = data.draw(st.lists(weights, min_size=len(branches), max_size=len(branches))) if deterministic else None
    tagged = [iterate([(number, value) for value in values]) for number, values in enumerate(branches)]
    joined = list(tagged[0].union(*tagged[1:], deterministic=deterministic, round_robin_weights=chosen))
    for number, values in enumerate(branches):
        assert [value for tag, value in joined if tag == number] == values


@law
@given(st.lists(weights, min_size=2, max_size=4), st.integers(1, 60))
def test_round_robin_weights_are_honoured_to_within_one_turn(chosen: list[float], rounds: int) -> None:
    endless = [iterate([number] * 1000) for number in range(len(chosen))]
    # Branch 0 counts the rounds: it gives its weight's worth in each.
    joined = endless[0].union(*endless[1:], deterministic=True, round_robin_weights=chosen)
    got = joined.take(int(sum(chosen) * rounds))
    for number, weight in enumerate(chosen):
        assert abs(got.count(number) - weight * rounds) <= max(1.0, weight) * len(chosen)


@settings(max_examples=200, deadline=None)
@given(items, items, stages, stages, st.tuples(weights, weights), st.integers(0, 40), st.data())
def test_state_taken_after_any_item_goes_on_identically(
    left: list[int], right: list[int], left_ops: list[str], right_ops: list[str], chosen: Any, n: int, data: Any
) -> None:
    outputs = data.draw(st.sampled_from([[0], [1], [0, 1]]))

    def make() -> LocalIterator[Any]:
        joined = _chain(left, left_ops).union(
            _chain(right, right_ops), deterministic=True, round_robin_weights=chosen, output_indexes=outputs
        )
        return joined.for_each(_count)

    running, resumed = make(), make()
    running.take(n)
    resumed.set_state(running.get_state())
    assert resumed.shared_metrics.get().counters == running.shared_metrics.get().counters
    assert list(resumed) == list(running)
    assert resumed.shared_metrics.get().counters == running.shared_metrics.get().counters


@law
@given(items, st.integers(0, 20), st.integers(0, 20))
def test_state_with_duplicates_goes_on_identically(values: list[int], n: int, lead: int) -> None:
    def make() -> LocalIterator[Any]:
        first, second = iterate(values).duplicate(2)
        return first.union(second.filter(_is_odd), deterministic=True, round_robin_weights=[1 + lead % 3, 1])

    running, resumed = make(), make()
    running.take(n)
    resumed.set_state(running.get_state())
    assert list(resumed) == list(running)
