"""LocalIterator: operators, laziness, not-ready markers, errors, state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlframe.data.sample_batch import SampleBatch
from rlframe.execution.plan.context import SharedMetrics, _get_global_vars, _get_shared_metrics, _NextValueNotReady
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.utils.errors import CheckpointError
from tests.helpers.fakes_execution import iterate, make_batch

NOT_READY = _NextValueNotReady()


def ready(items: list[Any]) -> list[Any]:
    return [item for item in items if not isinstance(item, _NextValueNotReady)]


class TestOperators:
    def test_for_each_items_are_mapped_in_order(self) -> None:
        assert list(iterate([1, 2, 3]).for_each(lambda x: x * 2)) == [2, 4, 6]

    def test_filter_items_that_fail_are_dropped(self) -> None:
        assert list(iterate(range(6)).filter(lambda x: x % 2)) == [1, 3, 5]

    def test_batch_last_list_is_shorter(self) -> None:
        assert list(iterate(range(5)).batch(2)) == [[0, 1], [2, 3], [4]]

    def test_flatten_elements_come_one_by_one(self) -> None:
        assert list(iterate([[1, 2], [], [3]]).flatten()) == [1, 2, 3]

    def test_combine_lists_are_flattened(self) -> None:
        assert list(iterate([1, 2]).combine(lambda x: [x] * x)) == [1, 2, 2]

    def test_transform_generator_function_is_applied(self) -> None:
        def running_sum(items: Any) -> Any:
            total = 0
            for item in items:
                total += item
                yield total

        assert list(iterate([1, 2, 3]).transform(running_sum)) == [1, 3, 6]

    def test_shuffle_same_seed_gives_same_permutation(self) -> None:
        first, second = (list(iterate(range(20)).shuffle(5, seed=3)) for _ in range(2))
        assert first == second
        assert sorted(first) == list(range(20))
        assert first != list(range(20))

    def test_take_fewer_items_than_asked_gives_all(self) -> None:
        assert iterate([1, 2]).take(5) == [1, 2]
        assert iterate([1, 2]).take(0) == []

    def test_take_twice_goes_on(self) -> None:
        it = iterate(range(5))
        assert (it.take(2), it.take(2)) == ([0, 1], [2, 3])

    def test_show_writes_items(self, capsys: pytest.CaptureFixture[str]) -> None:
        iterate(["a", "b", "c"]).show(2)
        assert capsys.readouterr().out == "a\nb\n"

    def test_duplicate_all_copies_see_every_item(self) -> None:
        first, second = iterate([1, 2, 3]).duplicate(2)
        assert next(first) == 1
        assert list(second) == [1, 2, 3]
        assert list(first) == [2, 3]

    def test_zip_with_source_actor_actor_comes_from_context(self) -> None:
        def source(_: float | None) -> Any:
            for name in ("a", "b"):
                _get_shared_metrics().current_actor = name
                yield name.upper()

        it: LocalIterator[Any] = LocalIterator(source, SharedMetrics())
        assert list(it.zip_with_source_actor()) == [("a", "A"), ("b", "B")]

    def test_zip_with_source_actor_local_items_raise(self) -> None:
        with pytest.raises(ValueError, match="no remote actor"):
            next(iterate([1]).zip_with_source_actor())

    def test_local_transforms_given_to_constructor_are_applied(self) -> None:
        it: LocalIterator[int] = LocalIterator(
            lambda: [1, 2], SharedMetrics(), local_transforms=[lambda items: (i + 1 for i in items)]
        )
        assert list(it) == [2, 3]

    @pytest.mark.parametrize("call", [
        lambda it: it.batch(0), lambda it: it.shuffle(0), lambda it: it.duplicate(1), lambda it: it.for_each(abs, 0),
    ])  # fmt: skip
    def test_operator_size_too_small_raises(self, call: Any) -> None:
        with pytest.raises(ValueError, match="wanted"):
            call(iterate([1]))


class TestLaziness:
    def test_source_not_called_before_first_item(self) -> None:
        calls = []

        def source() -> Any:
            calls.append(1)
            return [1]

        it: LocalIterator[int] = LocalIterator(source, SharedMetrics())
        derived = it.for_each(lambda x: x)
        assert calls == []
        assert (next(derived), len(calls)) == (1, 1)

    def test_derived_iterator_leaves_the_first_untouched(self) -> None:
        it = iterate([1, 2])
        assert list(it.for_each(lambda x: -x)) == [-1, -2]
        assert list(it) == [1, 2]

    @pytest.mark.parametrize(
        "source", [lambda: [7], lambda _: [7], lambda timeout=None: [7], lambda *a: [7], lambda n=7: [n]]
    )
    def test_source_of_any_arity_is_called(self, source: Any) -> None:
        it: LocalIterator[int] = LocalIterator(source, SharedMetrics())
        assert list(it) == [7]

    def test_fetch_start_hook_is_called_before_each_pull(self) -> None:
        events: list[str] = []

        class Op:
            def _on_fetch_start(self) -> None:
                events.append("fetch")

            def __call__(self, item: int) -> int:
                events.append(f"item {item}")
                return item

        list(iterate([1, 2]).for_each(Op()))
        assert events == ["fetch", "item 1", "fetch", "item 2", "fetch"]


class TestNotReady:
    def test_marker_from_source_passes_every_operator(self) -> None:
        it = iterate([1, NOT_READY, 2]).for_each(lambda x: [x]).filter(bool).flatten().batch(1)
        assert ready(list(it)) == [[1], [2]]

    def test_marker_from_function_is_handed_on_and_item_retried(self) -> None:
        answers = iter([NOT_READY, NOT_READY, "done"])
        seen = []

        def op(item: int) -> Any:
            seen.append(item)
            return next(answers, "more")

        got = list(iterate([1, 2]).for_each(op))
        assert [isinstance(item, _NextValueNotReady) for item in got] == [True, True, False, False]
        assert seen == [1, 1, 1, 2]

    def test_partial_batch_survives_a_marker(self) -> None:
        assert ready(list(iterate([1, NOT_READY, 2]).batch(2))) == [[1, 2]]

    def test_skip_not_ready_gives_items_only(self) -> None:
        assert list(iterate([NOT_READY, 1, NOT_READY, 2]).skip_not_ready()) == [1, 2]


class TestErrors:
    def test_error_in_operator_leaves_the_iterator_usable(self) -> None:
        def op(item: int) -> int:
            if item == 2:
                raise ValueError("two")
            return item

        it = iterate([1, 2, 3]).for_each(op)
        assert next(it) == 1
        with pytest.raises(ValueError, match="two"):
            next(it)
        assert next(it) == 3

    def test_error_in_branch_leaves_the_union_in_place(self) -> None:
        def op(item: int) -> int:
            if item == 2:
                raise ValueError("two")
            return item

        it = iterate([1, 2, 3]).for_each(op).union(iterate([10, 20, 30]), deterministic=True)
        assert [next(it), next(it)] == [1, 10]
        with pytest.raises(ValueError, match="two"):
            next(it)
        assert list(it) == [3, 20, 30]

    @pytest.mark.parametrize("add", [
        lambda it, fn: it.for_each(fn), lambda it, fn: it.filter(fn), lambda it, fn: it.combine(fn),
    ])  # fmt: skip
    def test_stop_iteration_in_function_is_not_the_end(self, add: Any) -> None:
        def broken(_: int) -> int:
            raise StopIteration

        with pytest.raises(RuntimeError, match="broken raised StopIteration"):
            next(add(iterate([1]), broken))

    def test_metrics_outside_of_a_plan_raise(self) -> None:
        with pytest.raises(ValueError, match="No metrics context"):
            LocalIterator.get_metrics()

    def test_shared_metrics_of_wrong_type_raise(self) -> None:
        with pytest.raises(ValueError, match="wanted SharedMetrics"):
            LocalIterator(list, {})  # type: ignore[arg-type]


class TestMetricsContext:
    def test_counters_inside_functions_are_those_of_the_iterator(self) -> None:
        def count(item: int) -> int:
            LocalIterator.get_metrics().counters["num_steps_sampled"] += item
            return _get_global_vars()["timestep"]

        it = iterate([1, 2, 3]).for_each(count)
        assert list(it) == [1, 3, 6]
        assert it.shared_metrics.get().counters["num_steps_sampled"] == 6

    def test_union_shares_one_context_and_keeps_counts(self) -> None:
        def count(item: int) -> int:
            LocalIterator.get_metrics().counters["n"] += 1
            return item

        first, second = iterate([1, 2]).for_each(count), iterate([3, 4]).for_each(count)
        first.shared_metrics.get().counters["n"] = 10
        joined = first.union(second, deterministic=True)
        assert sorted(joined) == [1, 2, 3, 4]
        assert joined.shared_metrics.get().counters["n"] == 14
        assert first.shared_metrics.get() is second.shared_metrics.get() is joined.shared_metrics.get()

    def test_nested_iterator_in_function_gives_the_outer_context_back(self) -> None:
        inner = iterate([1, 2])

        def op(item: int) -> Any:
            next(inner)
            return LocalIterator.get_metrics()

        outer = iterate([1]).for_each(op)
        assert next(outer) is outer.shared_metrics.get()


class TestState:
    def test_state_of_another_plan_raises_naming_both(self) -> None:
        state = iterate([1]).for_each(abs).get_state()

        def filter_me(_: int) -> bool:
            return True

        other = iterate([1]).filter(filter_me)
        with pytest.raises(CheckpointError, match=r"ListSource > abs; wanted .*ListSource > filter_me"):
            other.set_state(state)

    def test_counters_and_info_are_part_of_the_state(self) -> None:
        def note(item: int) -> int:
            metrics = LocalIterator.get_metrics()
            metrics.counters["n"] += item
            metrics.info["learner"] = {"p": {"loss": np.float32(0.5), "td_error": np.arange(2), "odd": object()}}
            return item

        def make() -> LocalIterator[int]:
            return iterate([1, 2, 3]).for_each(note)

        first, second = make(), make()
        first.take(2)
        second.set_state(first.get_state())
        metrics = second.shared_metrics.get()
        assert metrics.counters["n"] == 3
        assert metrics.info["learner"]["p"]["loss"] == 0.5
        assert metrics.info["learner"]["p"]["td_error"].tolist() == [0, 1]
        assert "odd" not in metrics.info["learner"]["p"]
        assert list(second) == [3]

    def test_held_batches_survive(self) -> None:
        def make() -> LocalIterator[Any]:
            return iterate([make_batch(2), make_batch(2, 2), make_batch(2, 4)]).batch(2).flatten()

        first, second = make(), make()
        next(first)
        second.set_state(first.get_state())
        held = next(second)
        assert isinstance(held, SampleBatch)
        assert held["obs"][:, 0].tolist() == [2, 3]
        assert next(second)["obs"][:, 0].tolist() == [4, 5]

    def test_held_item_of_unknown_type_raises(self) -> None:
        it = iterate([[object(), object()]]).flatten()
        next(it)
        with pytest.raises(CheckpointError, match="item of type object"):
            it.get_state()


class TestUnion:
    def test_weights_are_items_per_turn(self) -> None:
        joined = iterate("aaaa").union(iterate("bb"), deterministic=True, round_robin_weights=[2, 1])
        assert "".join(joined) == "aabaab"

    def test_fractional_weight_is_exact_over_turns(self) -> None:
        joined = iterate("a" * 40).union(iterate("b" * 10), deterministic=True, round_robin_weights=[1, 0.25])
        assert "".join(joined.take(10)) == "aaaabaaaab"

    def test_tenths_do_not_drift(self) -> None:
        joined = iterate("a" * 1000).union(iterate("b" * 100), deterministic=True, round_robin_weights=[1, 0.1])
        assert "".join(joined) == ("a" * 10 + "b") * 100

    def test_star_drains_until_not_ready(self) -> None:
        drained = iterate(["b", "b", NOT_READY, "b", NOT_READY])
        joined = iterate("aaa").union(drained, deterministic=True, round_robin_weights=[1, "*"])
        assert "".join(joined) == "abbaba"

    def test_exhausted_branches_leave_the_round(self) -> None:
        joined = iterate("a").union(iterate("bbb"), iterate("cc"), deterministic=True)
        assert "".join(joined) == "abcbcb"

    def test_output_indexes_other_branches_run_but_are_dropped(self) -> None:
        seen: list[str] = []

        def see(item: str) -> str:
            seen.append(item)
            return item

        joined = iterate("aaa").for_each(see).union(iterate("bbb"), deterministic=True, output_indexes=[1])
        assert "".join(joined) == "bbb"
        assert seen == ["a", "a", "a"]

    def test_branch_that_is_not_ready_is_passed_over(self) -> None:
        joined = iterate([NOT_READY] * 3 + ["a"]).union(iterate("bbbb"), deterministic=True)
        assert "".join(joined) == "bbbab"

    def test_nested_asynchronous_union_gives_markers_instead_of_waiting(self) -> None:
        inner = iterate([NOT_READY] * 4).union(iterate([NOT_READY] * 4))
        outer = inner.union(iterate(["x"]))
        assert next(outer) == "x"

    @pytest.mark.parametrize(
        ("weights", "outputs", "message"),
        [([1], None, "1 round_robin_weights for 2"), ([1, 0], None, "above 0"), ([1, "x"], None, "'x'"),
         (None, [2], "output_indexes"), (None, [], "output_indexes")],
    )  # fmt: skip
    def test_wrong_arguments_raise(self, weights: Any, outputs: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            iterate("a").union(iterate("b"), deterministic=True, round_robin_weights=weights, output_indexes=outputs)

    def test_something_else_to_join_raises(self) -> None:
        with pytest.raises(ValueError, match="wanted a LocalIterator"):
            iterate("a").union([1])  # type: ignore[arg-type]
