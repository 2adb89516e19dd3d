"""Which frameworks are installed here, and tensors and gradients in each."""

import importlib.util

import numpy as np
import pytest

HAS_TF = importlib.util.find_spec("tensorflow") is not None
needs_tf = pytest.mark.skipif(not HAS_TF, reason="TensorFlow is not installed: pip install 'rlframe[tf]'")
#: For `pytest.mark.parametrize("framework", FRAMEWORKS)`.
FRAMEWORKS = ["torch", pytest.param("tf", marks=needs_tf)]
#: The same, TensorFlow with `make slow` alone: what is tested is written once, golden tests hold TensorFlow's steps to
#: PyTorch's, and each trace takes seconds.
TORCH_FIRST = ["torch", pytest.param("tf", marks=[needs_tf, pytest.mark.slow])]


def cases(names, given, in_tensorflow=()):
    """Returns `parametrize(("framework", *names), ...)`: every case in PyTorch, some in TensorFlow, too.

    A learner step is traced for each policy in TensorFlow, which takes seconds: those wait for
    `make slow`.

    Args:
        names: Names of the values of a case.
        given: Values, or a tuple of values, of each case by its id.
        in_tensorflow: Ids of cases.
    """
    assert set(in_tensorflow) <= set(given), "an id without a case"
    made = []
    for framework, ids, marks in (("torch", list(given), ()), ("tf", in_tensorflow, [needs_tf, pytest.mark.slow])):
        for case in ids:
            values = given[case] if isinstance(given[case], tuple) else (given[case],)
            made.append(pytest.param(framework, *values, id=f"{case}-{framework}", marks=marks))
    return pytest.mark.parametrize(("framework", *names), made)


both_frameworks = pytest.mark.parametrize("framework", FRAMEWORKS)


def to_tensor(framework, array):
    """Returns an array as a tensor of the framework, in the array's dtype."""
    if framework == "torch":
        import torch

        return torch.as_tensor(np.asarray(array))
    import tensorflow as tf

    return tf.constant(array)


def gradients_of(framework, function, arrays):
    """Returns d sum(function(*tensors)) / d array of each array, as NumPy; None where nothing flows."""
    tensors = [to_tensor(framework, array) for array in arrays]
    if framework == "torch":
        import torch

        total = function(*[tensor.requires_grad_() for tensor in tensors]).sum()
        if not total.requires_grad:
            return [None] * len(tensors)
        found = torch.autograd.grad(total, tensors, allow_unused=True)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(tensors)
            total = tf.reduce_sum(function(*tensors))
        found = tape.gradient(total, tensors)
    return [None if gradient is None else gradient.numpy() for gradient in found]
