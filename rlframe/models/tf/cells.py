"""Recurrent layers in TensorFlow; what they compute, and their weights, are said in `rlframe.models.spec`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlframe.models.tf.misc import initial_rng
from rlframe.models.tf.variables import VariableOwner
from rlframe.utils.quiet_tf import tf


class GRU(VariableOwner):
    """One layer of gated recurrent units; see `rlframe.models.spec.GRU`."""

    states = 1

    def __init__(self, in_size: int, cell_size: int) -> None:
        rng, bound = initial_rng(), 1.0 / math.sqrt(cell_size)
        shapes = {"weight_ih": (in_size,), "weight_hh": (cell_size,), "bias_ih": (), "bias_hh": ()}
        for name, shape in shapes.items():
            self.add_weight(name, rng.uniform(-bound, bound, (3 * cell_size, *shape)).astype(np.float32))

    def __call__(self, x: Any, state: list[Any]) -> tuple[Any, list[Any]]:
        """Returns outputs [B, T, S] and the state [h] after the last step, [B, S], of `x` [B, T, in]."""
        # What the inputs add is computed for all steps at once: only the rest needs a loop.
        given = tf.tensordot(x, self.get_weight("weight_ih"), [[2], [1]]) + self.get_weight("bias_ih")
        recurrent, bias = self.get_weight("weight_hh"), self.get_weight("bias_hh")

        def step(h: Any, of_input: Any) -> Any:
            reset_x, update_x, new_x = tf.split(of_input, 3, axis=1)
            reset_h, update_h, new_h = tf.split(tf.matmul(h, recurrent, transpose_b=True) + bias, 3, axis=1)
            new = tf.tanh(new_x + tf.sigmoid(reset_x + reset_h) * new_h)
            return new + tf.sigmoid(update_x + update_h) * (h - new)

        steps = tf.transpose(given, [1, 0, 2])
        if steps.shape[0] == 1:  # acting: no loop
            h = step(state[0], steps[0])
            return h[:, None], [h]
        outputs = tf.scan(step, steps, state[0])
        return tf.transpose(outputs, [1, 0, 2]), [outputs[-1]]


class LSTM(VariableOwner):
    """One layer of LSTM cells; see `rlframe.models.spec.LSTM`."""

    states = 2

    def __init__(self, in_size: int, cell_size: int) -> None:
        rng, bound = initial_rng(), 1.0 / math.sqrt(cell_size)
        self.cell_size = cell_size
        for name, size in (("weight_ih", in_size), ("weight_hh", cell_size)):
            self.add_weight(name, rng.uniform(-bound, bound, (4 * cell_size, size)).astype(np.float32))
        bias = np.zeros(4 * cell_size, np.float32)
        bias[cell_size : 2 * cell_size] = 1.0
        self.add_weight("bias", bias)

    def __call__(self, x: Any, state: list[Any]) -> tuple[Any, list[Any]]:
        """Returns outputs [B, T, S] and the states [h, c] after the last step, [B, S] each, of `x` [B, T, in]."""
        # What the inputs add to the gates is computed for all steps at once: only the rest needs a loop.
        weight = self.get_weight("weight_ih")
        given = tf.tensordot(x, weight, [[2], [1]]) + self.get_weight("bias")
        given = tf.transpose(given, [1, 0, 2])
        recurrent = self.get_weight("weight_hh")

        def step(before: tuple[Any, Any], gates: Any) -> tuple[Any, Any]:
            h, c = before
            i, f, g, o = tf.split(gates + tf.matmul(h, recurrent, transpose_b=True), 4, axis=1)
            cell = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            return tf.sigmoid(o) * tf.tanh(cell), cell

        if given.shape[0] == 1:  # acting: no loop
            h, c = step((state[0], state[1]), given[0])
            return h[:, None], [h, c]
        outputs, cells = tf.scan(step, given, (state[0], state[1]))
        return tf.transpose(outputs, [1, 0, 2]), [outputs[-1], cells[-1]]
