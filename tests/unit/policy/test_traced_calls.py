"""How batches get into traced functions and results out: threads, memory, errors."""

import gc
import threading
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from rlframe.policy.tf.adam import Adam  # isort: skip - after the check that TensorFlow is there
import tensorflow as tf

from rlframe.policy.tf import traced
from rlframe.policy.tf.optimizers import load_optimizer, optimizer_state, set_rate
from rlframe.policy.tf.traced import TracedCalls
from rlframe.policy.tf.weights import WeightMirror


def column(*numbers, dtype=np.float32):
    return {"x": np.array(numbers, dtype)}


def test_a_step_runs_in_the_thread_that_calls_it():
    threads = []
    calls = TracedCalls(
        lambda columns, _: {
            "y": tf.numpy_function(lambda x: [threads.append(threading.get_ident()), x][1], [columns["x"]], tf.float32)
        }
    )
    for _ in range(3):
        calls(column(1.0), {})
    assert threads == [threading.get_ident()] * 3


def test_results_are_those_of_each_batch_whatever_its_rows_and_dtype():
    calls = TracedCalls(
        lambda columns, scalars: {"twice": columns["x"] * 2, "of": {"sum": tf.reduce_sum(columns["x"])}}
    )
    kept = []
    for rows in (3, 3, 5, 0, 3):
        for dtype in (np.float32, np.int64, np.uint8, np.float16):
            given = np.arange(rows).astype(dtype) + dtype(len(kept))
            made = calls({"x": given}, {})
            np.testing.assert_array_equal(made["twice"], given * dtype(2))
            assert float(made["of"]["sum"]) == given.sum(dtype=np.float64)
            kept.append((given, made["twice"]))
    for given, twice in kept:  # and later batches did not change them
        np.testing.assert_array_equal(twice, given * given.dtype.type(2))
    assert calls.traces == 4


def test_a_result_that_is_a_column_is_not_changed_by_the_next_batch():
    calls = TracedCalls(lambda columns, _: {"same": tf.reshape(columns["x"], [-1])})
    first = calls(column(1.0, 2.0), {})["same"]
    calls(column(3.0, 4.0), {})
    assert first.tolist() == [1.0, 2.0]


def assigned(columns, kept, _):
    before = tf.identity(kept)
    with tf.control_dependencies([before]):
        kept.assign(tf.ensure_shape(columns["x"], [2]))
    return before


def assigned_in_a_branch(columns, kept, _):
    before, x = tf.identity(kept), tf.ensure_shape(columns["x"], [2])
    with tf.control_dependencies([before]):
        tf.cond(tf.reduce_sum(x) > 0, lambda: kept.assign(x).value(), lambda: x)
    return before


def handed_to_python(columns, _, noted):
    def before(x):
        noted.append(x)
        return noted[max(len(noted) - 2, 0)]

    return tf.py_function(before, [columns["x"]], tf.float32)


@pytest.mark.parametrize("keeper", [assigned, assigned_in_a_branch, handed_to_python])
def test_whoever_keeps_a_column_has_it_for_good(keeper):
    kept, noted = tf.Variable(np.zeros(2, np.float32)), []
    calls = TracedCalls(lambda columns, _: {"before": keeper(columns, kept, noted)})
    calls(column(1.0, 2.0), {})
    assert calls(column(7.0, 8.0), {})["before"].tolist() == [1.0, 2.0]
    assert calls(column(9.0, 9.0), {})["before"].tolist() == [7.0, 8.0]


def test_threads_that_act_at_once_get_the_results_of_their_own_batches():
    rows, wrong = 64, []
    calls = TracedCalls(lambda columns, _: {"y": columns["x"] @ tf.ones((rows, rows))})

    def act(number):
        given = np.full((rows, rows), number, np.float32)
        for _ in range(100):
            made = calls({"x": given}, {})["y"]
            if not (made == number * rows).all():
                wrong.append(number)

    act(1)
    threads = [threading.Thread(target=act, args=(number,)) for number in (2, 3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_operation_that_fails_is_named_with_its_line():
    def faulty(columns, _):
        return {"y": tf.reshape(columns["x"], [2, 2])}

    calls = TracedCalls(faulty)
    calls(column(1, 2, 3, 4), {})
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)test_traced_calls.py.*in faulty.*3 values"):
        calls(column(1, 2, 3), {})
    assert calls(column(1, 2, 3, 4), {})["y"].shape == (2, 2)


def test_loops_take_any_number_of_steps():
    weight = tf.Variable(np.full((2, 2), 0.5, np.float32))

    def method(columns, _):
        with tf.GradientTape() as tape:
            x = tf.while_loop(
                lambda i, x: i < 3000, lambda i, x: (i + 1, tf.tanh(x @ weight)), (0, columns["x"])
            )[1]  # fmt: skip
            loss = tf.reduce_sum(x)
        return {"loss": loss, "gradient": tape.gradient(loss, weight)}

    made = TracedCalls(method)({"x": np.ones((1, 2), np.float32)}, {})
    assert np.isfinite(made["loss"])
    assert made["gradient"].shape == (2, 2)


def test_functions_that_are_gone_leave_nothing_in_tensorflow(monkeypatch):
    cleared = []
    context = traced._kernels()
    drop = context.clear_kernel_cache
    monkeypatch.setattr(traced, "_kernels", lambda: SimpleNamespace(clear_kernel_cache=lambda: cleared.append(drop())))
    staying = TracedCalls(lambda columns, _: {"y": columns["x"] * 2})
    gc.collect()
    gc.freeze()  # what other tests left need not be gone through 40 times
    for number in range(40):
        made = TracedCalls(lambda columns, _, number=number: {"y": columns["x"] + number})
        assert made(column(1.0), {})["y"].tolist() == [1.0 + number]
        assert staying(column(1.0), {})["y"].tolist() == [2.0]
        del made
        gc.collect()
    assert len(cleared) >= 2


def test_nested_results_keep_their_form():
    def method(columns, _):
        x = columns["x"]
        return {"b": [x, (tf.reduce_sum(x), 3)], "a": {"z": "text", "y": tf.reduce_max(x)}, "none": None}

    made = TracedCalls(method)(column(1, 2), {})
    assert list(made) == ["b", "a", "none"]
    assert made["b"][0].tolist() == [1, 2]
    assert made["b"][1] == (3.0, 3)
    assert made["a"] == {"z": "text", "y": 2.0}
    assert made["none"] is None


def test_a_mirror_follows_variables_also_through_assignments():
    variables = {"w": tf.Variable(np.ones((2, 3), np.float32)), "n": tf.Variable(np.arange(2, dtype=np.int64))}
    mirror = WeightMirror(variables)
    arrays = dict(mirror.arrays)
    for step in range(3):
        variables["w"].assign_add(tf.ones((2, 3)))
        variables["n"].assign([step, step])
        mirror.refresh()
    assert arrays["w"] is mirror.arrays["w"]
    np.testing.assert_array_equal(arrays["w"], np.full((2, 3), 4.0))
    np.testing.assert_array_equal(arrays["n"], [2, 2])
    held = arrays["w"].copy()
    variables["w"].assign_add(tf.ones((2, 3)))
    np.testing.assert_array_equal(arrays["w"], held)  # nothing before the next refresh


def rate_of(optimizer):
    return float(optimizer.learning_rate.numpy())


def test_a_rate_is_set_once_and_again_after_a_state_was_loaded():
    variables = {"w": tf.Variable(1.0)}
    optimizer, other = Adam(variables, 0.1), Adam(variables, 0.3)
    set_rate(optimizer, 0.2)
    assert rate_of(optimizer) == pytest.approx(0.2)
    load_optimizer(optimizer, optimizer_state(other))
    assert rate_of(optimizer) == pytest.approx(0.3)
    set_rate(optimizer, 0.2)
    assert rate_of(optimizer) == pytest.approx(0.2)
    set_rate(optimizer, 0.05)
    assert rate_of(optimizer) == pytest.approx(0.05)


def test_an_optimiser_with_a_schedule_of_its_own_follows_that() -> None:
    rates = tf.keras.optimizers.schedules.PiecewiseConstantDecay([1], [1.0, 0.5])
    optimizer, variable = tf.keras.optimizers.SGD(rates), tf.Variable(3.0)
    set_rate(optimizer, 0.1)  # what the config says where nothing else is asked for
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert variable.numpy() == 3.0 - 1.0 - 1.0 - 0.5
    with pytest.raises(ValueError, match="follows a schedule of its own"):
        set_rate(optimizer, 0.2)
