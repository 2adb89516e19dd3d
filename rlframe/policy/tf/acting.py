"""Acting through TensorFlow, where NumPy cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import OBS, SEQ_LENS, VF_PREDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.modelv2 import states_of
from rlframe.policy.framework_acting import FrameworkActing
from rlframe.policy.inference import Acted
from rlframe.policy.own_inference import sampled
from rlframe.policy.tf.draws import TracedDraws, draw
from rlframe.policy.tf.traced import tensor_columns
from rlframe.policy.tf.weights import WeightMirror
from rlframe.policy.users_code import makes_own_values, method
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


class TFActing(FrameworkActing):
    """How a `TFPolicy` acts by its model, and by hooks of the user's own."""

    #: The weights that NumPy acts by; None where it does not.
    _mirror: WeightMirror | None = None

    def live_weights(self: Any) -> dict[str, NDArray[Any]]:
        """Returns arrays that `refresh_live_weights` brings up to date with the model's variables."""
        self._mirror = WeightMirror(self.model.named_variables())
        arrays: dict[str, NDArray[Any]] = self._mirror.arrays
        return arrays

    def forget_traces(self: Any) -> None:
        """Has what is traced be traced anew."""
        for calls in (self._learn_calls, self._gradient_calls, self._loss_calls, self._act_calls):
            calls.forget()
        self._draws = TracedDraws(self)

    def refresh_live_weights(self: Any) -> None:
        """Brings the NumPy actor's weights up to date."""
        if self._mirror is not None and self._mirror.stale:
            self._mirror.refresh()

    def values_in_framework(self: Any, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns the model's state values [B] for `obs` [B, ...], by way of TensorFlow."""
        return np.asarray(self._act_calls({OBS: obs}, {}, explore=False, values=True, extra=False)["values"])

    def forward_in_framework(
        self: Any, columns: Mapping[str, NDArray[Any]], explore: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, list[NDArray[Any]]]:
        """Returns what `forward_with_memory` does, by way of TensorFlow."""
        made = self._act_calls(
            self._acting_columns(columns), {}, explore=explore, values=self.wants_values, extra=False
        )
        return made["inputs"], made.get("values"), made["states"]

    def _acting_columns(self: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the columns that can be tensors; for a recurrent model, as sequences of one step."""
        lens = {SEQ_LENS: np.ones(len(columns[OBS]), np.int32)} if self.is_recurrent() else {}
        return tensor_columns({**columns, **lens})

    def _traced_forward(
        self: Any,
        columns: Mapping[str, Tensor],
        scalars: Mapping[str, Tensor],
        *,
        explore: bool,
        values: bool,
        extra: bool,
        draws: bool = False,
    ) -> dict[str, Any]:
        """Computes distribution inputs and new states of a batch; values, extra columns and actions where asked for."""
        del scalars
        batch = SampleBatch.from_columns(dict(columns))
        batch.set_training(False)
        inputs, dist_class, states = self._dist_inputs(batch, explore, self.global_timestep)
        made = {"inputs": inputs, "dist_class": dist_class, "states": list(states)}
        if values:
            made["values"] = self.model.value_function()
        if extra:
            made["extra"] = self.extra_action_out(batch, states_of(batch), self.model, dist_class(inputs, self.model))
        if draws:
            made["drawn"] = draw(dist_class(inputs, self.model), explore)
        return made

    def act_in_framework(self: Any, input_dict: Mapping[str, Any], explore: bool, timestep: int | None) -> Acted:
        """Returns actions [B, ...] and extra columns; model and hooks run in a traced function."""
        step = self.global_timestep if timestep is None else timestep
        count = len(np.asarray(input_dict[OBS]))
        columns = self._acting_columns(input_dict)
        if self._action_sampler_fn is not None:
            batch = SampleBatch.from_columns({key: tf.convert_to_tensor(value) for key, value in columns.items()})
            batch.set_training(False)
            made = self._action_sampler_fn(self, self.model, batch, states_of(batch), explore=explore, timestep=step)
            actions, logp, inputs, states = sampled(made)
            done: Acted = self._finish(count, actions, logp, inputs, self._extra_columns(batch, None), states)
            return done
        tensors = self._action_distribution_fn is not None or self._explores_with_tensors()
        values_too = self.wants_values and not makes_own_values(self)
        in_numpy = self.numpy_dist is not None and not tensors
        passed = self._draws.call(
            self._act_calls,
            (columns, {}),
            {"explore": explore, "values": values_too, "extra": self.has_custom_action_out()},
            draws=not in_numpy and self._draws.may(step, explore=explore),
        )
        inputs = passed["inputs"]
        if "drawn" in passed:
            self.exploration.advance(step)
            actions, logp = passed["drawn"]
        else:
            dist_class = passed["dist_class"]
            actions, logp = self.exploration.get_exploration_action(
                action_distribution=method(self, "distribution")(inputs)
                if in_numpy
                else dist_class(tf.convert_to_tensor(inputs), self.model),
                timestep=step,
                explore=explore,
            )
        values = {VF_PREDS: passed["values"]} if values_too else {}
        extra = {**values, **passed.get("extra", {})}
        finished: Acted = self._finish(count, actions, logp, inputs, extra, passed["states"])
        return finished
