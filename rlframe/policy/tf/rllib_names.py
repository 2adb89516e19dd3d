"""Methods that RLlib's `TFPolicy` had: those that still mean something, and what there is instead of a graph's."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from rlframe.data.columns import SEQ_LENS
from rlframe.data.nested import map_nested
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.tf import placeholders
from rlframe.policy.tf.placeholders import Deferred, Placeholder
from rlframe.policy.variable_numbers import ShownAsVariable
from rlframe.utils.missing_tf import MissingTensorFlow
from rlframe.utils.quiet_tf import tf


class NoSession:
    """In place of a session of TensorFlow 1: false, and every attribute but `run` says what there is instead."""

    def __bool__(self) -> bool:
        return False

    def run(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Returns the numbers of tensors and variables, nested as they are given; None for what has run already.

        What was made of placeholders (`variable.assign(placeholder)`) runs now. Numbers are returned as they are:
        `cur_lr`, `entropy_coeff` and the like, which were variables of a graph.

        Raises:
            NotImplementedError: If something else than a placeholder is fed: tensors have their numbers.
            ValueError: If a placeholder that is needed is not fed, or is fed with another shape.
        """
        feed = feed_dict or {}
        others = [str(fed) for fed in feed if not isinstance(fed, Placeholder)]
        if others:
            raise NotImplementedError(
                f"Got session.run(feed_dict={{{', '.join(others)}}}), but only tf1.placeholders are fed: "
                "call the model or a function of tensors with the numbers instead"
            )
        made: dict[Deferred, Any] = {placeholder: placeholder.fed(value) for placeholder, value in feed.items()}
        ran = tf.nest.map_structure(lambda leaf: leaf.run(made) if isinstance(leaf, Deferred) else leaf, fetches)
        return tf.nest.map_structure(_numbers_of, ran)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"Got session.{name}, but there are no sessions: TensorFlow runs eagerly. Call the model or a function of "
            "tensors instead of session.run(), take numbers by tensor.numpy(), and weights by policy.get_weights()."
        )


_NO_SESSION = NoSession()
if not isinstance(tf, MissingTensorFlow):
    placeholders.accept()


def _numbers_of(leaf: Any) -> Any:
    if isinstance(leaf, (tf.Variable, tf.Tensor)):
        return leaf.numpy()
    return leaf if isinstance(leaf, (int, float, np.number, np.ndarray)) else None


#: Methods that RLlib called while it built a graph, and what does the same now.
_GRAPH_HOOKS = {
    "extra_compute_action_feed_dict": "read them in forward() of the model",
    "extra_compute_action_fetches": "return them from extra_action_out()",
    "extra_compute_grad_feed_dict": "keep numbers that change as attributes, named in learn_scalars",
    "build_apply_op": "pass apply_gradients_fn to build_tf_policy() or with_updates()",
}


def _as_tensor(leaf: Any) -> Any:
    array = leaf if tf.is_tensor(leaf) else np.asarray(leaf)
    if isinstance(array, np.ndarray) and array.dtype.kind not in "biuf":
        return leaf
    return tf.cast(array, tf.float32) if array.dtype == np.float64 else tf.convert_to_tensor(array)


class RLlibTFPolicyNames:
    """Methods of every `TFPolicy` for the sake of RLlib's names alone."""

    model: Any
    cur_lr: Any = ShownAsVariable()
    entropy_coeff: Any = ShownAsVariable()
    kl_coeff: Any = ShownAsVariable()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuses methods of a subclass that nothing would call.

        Raises:
            TypeError: If there is one.
        """
        super().__init_subclass__(**kwargs)
        for name, instead in _GRAPH_HOOKS.items():
            if name in cls.__dict__:
                raise TypeError(f"{cls.__name__}.{name} would never be called, as there is no graph: {instead} instead")

    def get_session(self) -> Any:
        """Returns an object that is false, and says what there is instead of a session."""
        return _NO_SESSION

    @property
    def _sess(self) -> Any:
        return _NO_SESSION

    def variables(self) -> list[Any]:
        """Returns all variables of the model."""
        return list(self.model.variables())

    def _lazy_tensor_dict(self, batch: SampleBatch) -> SampleBatch:
        """Returns the batch with its numeric columns as tensors, float64 as float32; others stay as they are."""
        made = SampleBatch.from_columns({key: map_nested(_as_tensor, value) for key, value in batch.items()})
        if SEQ_LENS in batch:
            made.max_seq_len = getattr(batch, "max_seq_len", None)
        return made

    def as_tensors(self, batch: Any) -> Any:
        """Returns a batch that a program calls a loss with by hand, of arrays alone, as tensors; others as they are."""
        columns = dict.values(batch)
        if not columns or any(tf.is_tensor(leaf) for column in columns for leaf in tf.nest.flatten(column)):
            return batch
        return self._lazy_tensor_dict(batch)

    def get_placeholder(self, name: str) -> NoReturn:
        """There are no placeholders.

        Raises:
            NotImplementedError: Always; says where the loss finds its columns.
        """
        raise NotImplementedError(
            f"Got get_placeholder({name!r}), but there are no placeholders: the loss gets its columns as tensors, "
            f"train_batch[{name!r}], and the model input_dict"
        )

    def copy(self, existing_inputs: Any) -> NoReturn:
        """Policies are not copied onto other placeholders.

        Raises:
            NotImplementedError: Always; says how policies use several GPUs.
        """
        raise NotImplementedError(
            "Policies are not copied onto other placeholders: num_gpus above 1 has each learner step shared out; for a "
            "second policy make one of the same class, and give its set_state() what get_state() returns"
        )

    def extra_compute_action_feed_dict(self) -> dict[str, Any]:
        """Returns `{}`: nothing is fed."""
        return {}

    def extra_compute_action_fetches(self) -> dict[str, Any]:
        """Returns `{}`; `extra_action_out` is what adds columns to actions."""
        return {}

    def extra_compute_grad_feed_dict(self) -> dict[str, Any]:
        """Returns `{}`: nothing is fed."""
        return {}

    def build_apply_op(self, optimizer: Any, grads_and_vars: Any) -> Any:
        """Applies (gradient, variable) pairs at once, those without a gradient left out; there are no operations.

        Args:
            optimizer: The optimiser.
            grads_and_vars: As `gradients()` returns them.
        """
        return optimizer.apply_gradients([(grad, variable) for grad, variable in grads_and_vars if grad is not None])
