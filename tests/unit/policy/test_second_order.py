"""Second derivatives and flat weights, in each framework, against matrices."""

import importlib

import numpy as np

from tests.helpers.frameworks import both_frameworks, to_tensor

X = np.array([[0.3, -1.7, 2.2], [-0.4, 0.9, -2.6]])
Y = np.array([[0.1, -0.7, 2.9], [0.6, -0.8, -2.0]])
ROW, OTHER_ROW = np.array([0.5, -1.5, 2.5, 0.7]), np.array([0.9, 0.2, 0.0, 0.6])


def parts_of(framework):
    return importlib.import_module(f"rlframe.policy.{framework}.second_order")


def weights_of(framework, *arrays):
    """Returns arrays as what gradients are taken by: parameters, or variables."""
    tensors = [to_tensor(framework, array) for array in arrays]
    if framework == "torch":
        return [tensor.requires_grad_() for tensor in tensors]
    import tensorflow as tf

    return [tf.Variable(tensor) for tensor in tensors]


@both_frameworks
def test_hessian_products_are_those_of_the_whole_matrix(framework):
    from rlframe.tensor import ops

    # f = Σ x² y + Σ y has ∂²f/∂x² = 2y, ∂²f/∂x∂y = 2x, ∂²f/∂y² = 0; it does not depend on the third, and is straight in
    # the fourth, whose gradient is a constant.
    x, y, other, straight = weights_of(framework, X, Y, ROW, OTHER_ROW)
    make = parts_of(framework).hessian_product
    product = make(lambda: ops.sum(ops.square(x) * y) + ops.sum(y) + ops.sum(straight), [x, y, other, straight])
    for seed in range(2):  # of the same function
        v = np.random.default_rng(seed).normal(size=20)
        vx, vy = v[:6].reshape(2, 3), v[6:12].reshape(2, 3)
        wanted = [(2 * Y * vx + 2 * X * vy).ravel(), (2 * X * vx).ravel(), np.zeros(8)]
        np.testing.assert_allclose(product(to_tensor(framework, v)), np.concatenate(wanted), rtol=1e-6)
    nothing = make(lambda: ops.sum(straight), [straight])
    np.testing.assert_array_equal(nothing(to_tensor(framework, ROW)), np.zeros(4))


@both_frameworks
def test_a_vector_is_split_into_the_shapes_that_it_was_made_of(framework):
    home, arrays = parts_of(framework), (X, ROW, X[0].reshape(3, 1, 1))
    tensors = [to_tensor(framework, array) for array in arrays]
    flat = home.flat_vector(tensors)
    np.testing.assert_array_equal(flat, np.concatenate([array.ravel() for array in arrays]))
    for part, array in zip(home.split_vector(flat, tensors), arrays, strict=True):
        np.testing.assert_array_equal(part, array)
