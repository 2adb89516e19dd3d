"""What a TensorFlow policy is built of: model, optimisers, target network, random streams."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlframe.config.common import ONLY_EVALUATES
from rlframe.models.tf import keras_two
from rlframe.models.tf.check_model import check_model
from rlframe.models.tf.misc import seeded_initial_weights
from rlframe.models.tf.networks import SomeNetworks
from rlframe.policy.learning_parts import LearningParts
from rlframe.policy.parts import WHOLE_MODEL, OptimizerSpec, RMSPropSpec
from rlframe.policy.tf.adam import Adam
from rlframe.policy.tf.optimizers import build_slots
from rlframe.policy.tf.rmsprop import RMSProp
from rlframe.policy.tf.target import TargetNetwork
from rlframe.policy.users_code import learns_own_way, makes_own_values, overridden_by_user
from rlframe.utils.quiet_tf import tf


class TFParts(LearningParts):
    """How a `TFPolicy` makes what its class says that it consists of."""

    @contextlib.contextmanager
    def seeded(self: Any, *path: int | str) -> Iterator[None]:
        """A context in which initial weights come from this policy's own stream named by `path`.

        Built-in models draw from a generator of their own; Keras draws from the global streams of `random`, NumPy and
        TensorFlow, of which the first two go on afterwards as if nothing had been drawn.
        """
        seed = self.stream_seed(*path)
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - Keras draws from the global stream
        try:
            tf.keras.utils.set_random_seed(seed % 2**32)
            with seeded_initial_weights(seed):
                yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002 - as above

    def check_model(self: Any, model: Any, num_outputs: int | None) -> None:
        """Raises a ValueError where the model gives something else than `num_outputs` numbers per row."""
        values = (self.wants_values or self.learns_values) and not makes_own_values(self)
        check_model(model, self.observation_space, num_outputs, values=values, several=learns_own_way(self))

    def _make_optimizers(self: Any) -> list[Any]:
        own = overridden_by_user(type(self), "optimizer")  # the loss may read what it leaves on the policy
        if self.config.get(ONLY_EVALUATES) and not own:
            return []
        if own or overridden_by_user(type(self), "apply_optimizer"):
            keras_two.accept()  # it may make Keras' with the arguments of Keras 2, or step some of its own
        optimizers = self._chosen_optimizers()
        replaced = self.exploration.get_exploration_optimizer(optimizers)
        optimizers = optimizers if replaced is None else list(replaced)
        for optimizer in optimizers:
            # Here, and not while the step is traced: a traced function must not make variables.
            build_slots(optimizer, list(self.model.trainable_variables()))
        return optimizers

    def optimizer(self: Any) -> Any:
        """Returns the optimiser(s): those of `optimizers`, or Adam with `config["lr"]`. Keras' are welcome."""
        if not self.optimizer_specs:
            return self.adam(lr=self.config["lr"])
        made = zip(self.optimizer_specs, self._weights_by_optimizer(), strict=True)
        return [self._made_of(label, spec, weights) for label, (spec, weights) in made]

    def _made_of(self: Any, label: str, spec: OptimizerSpec, weights: dict[str, Any]) -> Adam | RMSProp:
        """Returns the optimiser that a spec describes."""
        if not isinstance(spec, RMSPropSpec):
            return Adam(weights, spec.lr, spec.eps, label=label)
        eps = self.epsilon(spec)
        return RMSProp(weights, spec.lr, decay=spec.decay, eps=eps, momentum=spec.momentum, label=label)

    def _spec_of(self: Any, optimizer: Any) -> OptimizerSpec | None:
        """Returns the spec that an optimiser was made of; None for one of the user's own."""
        spec: OptimizerSpec | None = self.optimizer_specs.get(getattr(optimizer, "label", None) or "")
        return spec

    def adam(self: Any, *, lr: float, eps: float = 1e-8) -> Adam:
        """Returns Adam over the model's trainable variables."""
        return Adam(self.model.trainable_variables(as_dict=True), lr, eps)

    def _make_target_network(self: Any, names: tuple[str, ...]) -> None:
        second = self.target_model
        if second is None:
            with tf.device(self.device), self.seeded("target"):
                second, _ = self.make_model_and_dist()
        pair = [self.model, second]
        self.target_network = TargetNetwork(
            *(pair if names == WHOLE_MODEL else [SomeNetworks(model, names) for model in pair])
        )
        self.target_model = self.target_network.model
        self.target_models = {self.model: self.target_model}
        self.components["target_network"] = self.target_network

    def make_generator(self: Any, *path: int | str) -> Any:
        """Returns a random stream of the policy's own, named by `path`: a `tf.random.Generator`."""
        return tf.random.Generator.from_seed(self.stream_seed(*path) % 2**63)
