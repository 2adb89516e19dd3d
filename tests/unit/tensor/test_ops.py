"""Each primitive in each framework: values against NumPy, gradients against differences, errors that say what to do."""

import importlib
import inspect
import threading

import numpy as np
import pytest

from rlframe.losses import q_learning
from rlframe.models import special
from rlframe.tensor import ops
from tests.helpers.frameworks import both_frameworks, gradients_of, needs_tf, to_tensor

X = np.array([[0.3, -1.7, 2.2], [-0.4, 0.9, -2.6]])
Y = np.array([[0.1, -0.7, 2.9], [0.6, -0.8, -2.0]])
POSITIVE, ROW, OTHER_ROW = np.abs(X) + 0.1, np.array([0.5, -1.5, 2.5, 0.7]), np.array([0.9, 0.2, 0.0, 0.6])
MASK, INDEX, ROW_MASK = Y > 0, np.array([2, 0]), np.array([True, False])
ATOMS = np.arange(12.0).reshape(2, 3, 2) ** 1.3
PLACES = np.array([[0.0, 1.25, 3.0], [2.5, 2.5, 0.75]])


def softmax(x):
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def scattered(values, places, size=4):
    made = np.zeros((len(values), size))
    for row, column in np.ndindex(values.shape):
        low = int(places[row, column])
        share = places[row, column] - low
        made[row, low] += values[row, column] * (1 - share)
        if share:
            made[row, low + 1] += values[row, column] * share
    return made


def scanned(terms, decays):
    made = np.array(terms)
    for t in range(len(made) - 2, -1, -1):
        made[t] += decays[t] * made[t + 1]
    return made


#: What is called with tensors, what NumPy says, arrays of the call; gradients are compared by those of them that float.
CASES = {
    "abs": (ops.abs, np.abs, [X]),
    "atanh": (ops.atanh, np.arctanh, [X / 4]),
    "argmax": (lambda x: ops.argmax(x, 1), lambda x: x.argmax(1), [X]),
    "batched_index": (ops.batched_index, lambda x, i: x[np.arange(2), i], [X, INDEX]),
    "batched_index of atoms": (ops.batched_index, lambda x, i: x[np.arange(2), i], [ATOMS, INDEX]),
    "batched_index of two axes": (
        ops.batched_index,
        lambda x, i: np.take_along_axis(x, i[..., None], -1)[..., 0],
        [ATOMS, np.array([[0, 1, 0], [1, 1, 0]])],
    ),
    "boolean_mask": (ops.boolean_mask, lambda x, m: x[m], [X, ROW_MASK]),
    "cast_like": (ops.cast_like, lambda x, like: x.astype(like.dtype), [MASK, X]),
    "clip": (lambda x: ops.clip(x, -1.0, 0.5), lambda x: x.clip(-1.0, 0.5), [X]),
    "concat": (lambda *x: ops.concat(x, 1), lambda *x: np.concatenate(x, 1), [X, Y]),
    "elu": (ops.elu, lambda x: np.where(x > 0, x, np.expm1(x)), [X]),
    "digamma": (ops.digamma, special.digamma, [POSITIVE]),
    "exp": (ops.exp, np.exp, [X]),
    "expand_like": (ops.expand_like, lambda m, like: m[:, None, None], [ROW_MASK, ATOMS]),
    "expand_like of rows": (ops.expand_like, lambda m, like: m, [ROW_MASK, np.zeros(2)]),
    "huber": (lambda x: ops.huber(x, 1.5), lambda x: np.where(abs(x) <= 1.5, x * x / 2, 1.5 * (abs(x) - 0.75)), [X]),
    "lgamma": (ops.lgamma, special.log_gamma, [POSITIVE]),
    "log": (ops.log, np.log, [POSITIVE]),
    "linear_scatter": (lambda v, p: ops.linear_scatter(v, p, 4), scattered, [X, PLACES]),
    "log_softmax": (ops.log_softmax, lambda x: np.log(softmax(x)), [X]),
    "flat_rows of numbers": (ops.flat_rows, lambda x: np.float32(x[:, None]), [INDEX]),
    "flat_rows": (ops.flat_rows, lambda x: np.float32(x.reshape(2, -1)), [ATOMS.astype(int)]),
    "max": (ops.max, np.max, [X]),
    "max of rows": (lambda x: ops.max(x, 1), lambda x: x.max(1), [X]),
    "maximum": (ops.maximum, np.maximum, [X, Y]),
    "maximum of a number": (lambda x: ops.maximum(x, 0.5), lambda x: np.maximum(x, 0.5), [X]),
    "mean": (ops.mean, np.mean, [X]),
    "mean of rows": (lambda x: ops.mean(x, 1, keepdims=True), lambda x: x.mean(1, keepdims=True), [X]),
    "min": (ops.min, np.min, [X]),
    "min of rows": (lambda x: ops.min(x, 1), lambda x: x.min(1), [X]),
    "minimum": (ops.minimum, np.minimum, [X, Y]),
    "minimum of a number": (lambda x: ops.minimum(x, 0.5), lambda x: np.minimum(x, 0.5), [X]),
    "one_hot": (lambda i: ops.one_hot(i, 4), lambda i: np.eye(4, dtype=np.float32)[i], [INDEX]),
    "ones_like": (ops.ones_like, np.ones_like, [X]),
    "reshape": (lambda x: ops.reshape(x, (-1, 2)), lambda x: x.reshape(3, 2), [X]),
    "reverse_scan": (ops.reverse_scan, scanned, [ROW, OTHER_ROW]),
    "reverse_scan of columns": (ops.reverse_scan, scanned, [POSITIVE, POSITIVE / 9]),
    "roll": (lambda x: ops.roll(x, -1), lambda x: np.roll(x, -1, 0), [X]),
    "row_count": (lambda x: x * ops.cast_like(ops.tensor_like(ops.row_count(x), x), x), lambda x: x * len(x), [X]),
    "softplus": (ops.softplus, lambda x: np.log1p(np.exp(x)), [X]),
    "sort": (ops.sort, lambda x: np.sort(x, -1), [X]),
    "softmax": (ops.softmax, softmax, [X]),
    "split": (lambda x: ops.split(x, [1, 2])[1], lambda x: x[:, 1:], [X]),
    "sqrt": (ops.sqrt, np.sqrt, [POSITIVE]),
    "square": (ops.square, np.square, [X]),
    "stop_gradient": (ops.stop_gradient, lambda x: x, [X]),
    "sum": (ops.sum, np.sum, [X]),
    "sum of columns": (lambda x: ops.sum(x, 0), lambda x: x.sum(0), [X]),
    "split_last": (lambda x: ops.split_last(x, 3), lambda x: x.reshape(2, 3, 1), [X]),
    "merge_last": (ops.merge_last, lambda x: x.reshape(2, 6), [ATOMS]),
    "swap_axes": (lambda x: ops.swap_axes(x, 1, 2), lambda x: x.swapaxes(1, 2), [ATOMS]),
    "tanh": (ops.tanh, np.tanh, [X]),
    "tensor_like": (lambda like: ops.tensor_like(Y, like), lambda like: Y, [X]),
    "to_int": (ops.to_int, lambda x: x.astype(np.int64), [X]),
    "to_int of 32 bits": (lambda x: ops.to_int(x, 32), lambda x: x.astype(np.int32), [X]),
    "to_float": (ops.to_float, lambda x: x.astype(np.float32), [INDEX]),
    "variance": (ops.variance, np.var, [X]),
    "split_sequences": (ops.split_sequences, lambda x, n: x.reshape(2, 2), [ROW, INDEX]),
    "split_sequences of rows": (ops.split_sequences, lambda x, n: x.reshape(1, 2, 3), [X, np.array([2])]),
    "flatten_sequences": (ops.flatten_sequences, lambda x: x.reshape(6, 2), [ATOMS]),
    "where a number": (lambda m, x: ops.where(m, x, -2.5), lambda m, x: np.where(m, x, -2.5), [MASK, X]),
    "where": (ops.where, np.where, [MASK, X, Y]),
    "without_gradient": (lambda x: ops.without_gradient(ops.square, x), np.square, [X]),
    "zeros_like": (ops.zeros_like, np.zeros_like, [X]),
}
#: Arguments by number through which no gradient flows, or which the result does not depend on.
CONSTANT = {
    "cast_like": [1], "expand_like": [1], "expand_like of rows": [1], "linear_scatter": [1],
    "ones_like": [0], "stop_gradient": [0], "tensor_like": [0], "without_gradient": [0], "zeros_like": [0],
}  # fmt: skip
#: `row_size` gives a number, `gradients` takes no tensors: they are tested by themselves.
PRIMITIVES = {
    name
    for name, function in inspect.getmembers(ops, inspect.isfunction)
    if not name.startswith("_") and function.__module__ == ops.__name__
}


def weighed(function):
    """Returns a function whose sum has another slope by each value."""

    def weigh(*arguments):
        made = function(*arguments)
        return made * made + 0.5 * made

    return weigh


def differences(function, arrays, number):
    """Returns d sum(function) / d arrays[number] by central differences."""
    made, step = np.zeros_like(arrays[number]), 1e-6
    for place in np.ndindex(made.shape):
        moved = [array.copy() for array in arrays]
        moved[number][place] += step
        up = function(*moved).sum()
        moved[number][place] -= 2 * step
        made[place] = (up - function(*moved).sum()) / (2 * step)
    return made


@both_frameworks
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_numpy(framework, name):
    function, numpy_function, arrays = CASES[name]
    made, wanted = function(*(to_tensor(framework, array) for array in arrays)).numpy(), numpy_function(*arrays)
    np.testing.assert_allclose(made, wanted, rtol=1e-12, atol=1e-12)
    assert made.dtype == np.asarray(wanted).dtype


@both_frameworks
@pytest.mark.parametrize("name", [name for name in CASES if np.asarray(CASES[name][1](*CASES[name][2])).dtype == float])
def test_gradients_are_those_of_differences(framework, name):
    function, numpy_function, arrays = CASES[name]
    floats = [number for number, array in enumerate(arrays) if array.dtype == float]

    def of_floats(*given):
        every = [to_tensor(framework, array) for array in arrays]
        for number, tensor in zip(floats, given, strict=True):
            every[number] = tensor
        return weighed(function)(*every)

    made = gradients_of(framework, of_floats, [arrays[number] for number in floats])
    for number, gradient in zip(floats, made, strict=True):
        if number in CONSTANT.get(name, []):
            assert gradient is None or not gradient.any()
        else:
            np.testing.assert_allclose(gradient, differences(weighed(numpy_function), arrays, number), atol=1e-6)


@both_frameworks
def test_rows_have_a_size(framework):
    assert [int(ops.row_size(to_tensor(framework, array))) for array in (ROW, X, ATOMS)] == [1, 3, 6]


@needs_tf
def test_lengths_that_only_the_graph_knows():
    import tensorflow as tf

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None]), tf.TensorSpec([None], tf.bool)])
    def run(x, mask):
        return ops.row_size(x), ops.where(ops.expand_like(mask, x), x, ops.zeros_like(x))

    size, made = run(tf.ones((2, 5)), tf.constant(ROW_MASK))
    assert float(size) == 5.0
    assert made.numpy().sum(1).tolist() == [5.0, 0.0]


@both_frameworks
@pytest.mark.parametrize("rows", [0, 1, 2, 31, 32, 33, 200])
def test_reverse_scan_of_any_length(framework, rows):
    rng = np.random.default_rng(rows)
    terms, decays = rng.normal(size=rows), rng.random(rows) * (rng.random(rows) > 0.1)
    made = ops.reverse_scan(to_tensor(framework, terms), to_tensor(framework, decays)).numpy()
    np.testing.assert_allclose(made, scanned(terms, decays), atol=1e-12)


@both_frameworks
def test_what_where_leaves_out_may_be_nan(framework):
    x = to_tensor(framework, np.array([1.0, np.nan]))
    assert ops.where(to_tensor(framework, ROW_MASK), x, ops.zeros_like(x)).numpy().tolist() == [1.0, 0.0]


@both_frameworks
def test_nan_as_a_place_is_no_index_error(framework):
    made = ops.linear_scatter(*(to_tensor(framework, np.full((1, 2), value)) for value in (1.0, np.nan)), 3)
    assert np.isnan(made.numpy()).any()


@both_frameworks
def test_without_gradient_takes_tuples_with_none(framework):
    def grad(x):
        first, nothing = ops.without_gradient(lambda given: (ops.square(given), None), x)
        assert nothing is None
        return first * x

    np.testing.assert_allclose(gradients_of(framework, grad, [X])[0], X**2)


@both_frameworks
def test_gradients_by_weights_are_none_where_nothing_depends_on_one(framework):
    weights = [to_tensor(framework, X), to_tensor(framework, Y), to_tensor(framework, X)]
    if framework == "torch":
        weights = [weight.requires_grad_() for weight in weights]
    else:
        import tensorflow as tf

        weights = [tf.Variable(weight) for weight in weights]
    found = ops.gradients(lambda: ops.sum(ops.square(weights[0]) * weights[1]), weights)
    np.testing.assert_allclose(found[0], 2 * X * Y, rtol=1e-6)
    np.testing.assert_allclose(found[1], X**2, rtol=1e-6)
    assert found[2] is None


# --- the seam -------------------------------------------------------------------------------------------------------


def test_every_primitive_has_a_case():
    assert {name.partition(" ")[0] for name in CASES} | {"row_size", "gradients"} == PRIMITIVES


@needs_tf
def test_both_frameworks_have_every_primitive():
    from rlframe.tensor import tf_ops, torch_ops

    for module in (torch_ops, tf_ops):
        assert {name for name in PRIMITIVES if not callable(getattr(module, name, None))} == set()


@both_frameworks
def test_one_framework_does_not_load_the_other(framework, monkeypatch):
    loaded, load = [], importlib.import_module
    monkeypatch.setattr(ops, "_BACKENDS", ops._Backends())
    monkeypatch.setattr(ops.importlib, "import_module", lambda name: loaded.append(name) or load(name))
    ops.mean(q_learning.huber(to_tensor(framework, X)))
    ops.minimum(to_tensor(framework, X), 1.0)
    assert loaded == [f"rlframe.tensor.{framework}_ops"]


@needs_tf
@pytest.mark.parametrize(("first", "second"), [("torch", "tf"), ("tf", "torch")])
def test_tensors_of_two_frameworks_are_refused_with_what_to_do(first, second):
    x, y = to_tensor(first, X), to_tensor(second, Y)
    for call in (lambda: ops.minimum(x, y), lambda: ops.concat([x, y], 0), lambda: ops.tensor_like(y, x)):
        with pytest.raises(TypeError, match=r"one call; wanted tensors of one framework.*torch\.as_tensor\(x\) or tf"):
            call()


@pytest.mark.parametrize("value", [X, 1.5, None, [1.0]])
def test_what_is_no_tensor_is_refused_with_what_to_do(value):
    with pytest.raises(TypeError, match=r"where a tensor was wanted; convert it: torch\.as_tensor"):
        ops.mean(value)


@both_frameworks
def test_types_derived_from_a_tensor_are_tensors(framework):
    if framework == "torch":
        import torch

        derived = [torch.nn.Parameter(torch.ones(3)), torch.ones(3).as_subclass(type("Mine", (torch.Tensor,), {}))]
    else:
        import tensorflow as tf

        derived = [tf.Variable(tf.ones(3))]
    assert [float(ops.stop_gradient(ops.mean(x))) for x in derived] == [1.0] * len(derived)


@needs_tf
def test_threads_use_both_frameworks_at_a_time():
    made = {}

    def work(framework):
        made[framework] = [float(ops.sum(ops.square(to_tensor(framework, X * n)))) for n in range(200)]

    threads = [threading.Thread(target=work, args=(framework,)) for framework in ("torch", "tf")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(made["torch"], made["tf"], rtol=1e-12)
    assert len(made["torch"]) == 200
