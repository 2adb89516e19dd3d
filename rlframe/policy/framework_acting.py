"""Acting where a policy has a framework: through it, in NumPy on the live weights, or on workers without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTION_PROB,
    OBS,
    SEQ_LENS,
    STATE_OUT_PREFIX,
    VF_PREDS,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.modelv2 import states_of
from rlframe.models.networks import acting_in_loss
from rlframe.models.recurrent_actor import make_actor
from rlframe.policy.acting_parts import acting_recipe, numpy_distribution
from rlframe.policy.inference import PartsInUse
from rlframe.policy.numpy_policy import ActingRecipe
from rlframe.policy.own_parts import forward_is_watched
from rlframe.policy.users_code import makes_own_values
from rlframe.tensor.ops import Tensor


class FrameworkActing:
    """What `LearningPolicy.inference` acts by, and what is sent to workers."""

    #: `fn(spec, weights, rng) -> actor`; importable without a framework, since remote workers call it.
    build_actor: Callable[[Any, Mapping[str, NDArray[Any]], Any], Any] = staticmethod(make_actor)
    _action_sampler_fn: Callable[..., Any] | None = None
    _action_distribution_fn: Callable[..., Any] | None = None
    #: What fills the gradients by hand, see `TorchPolicy`; None goes by autograd.
    without_autograd: Any = None
    #: Whether a program has put something into the model that NumPy does not know of.
    model_altered = False
    #: The model and the distribution that the constructor gave; None before.
    built_with: tuple[Any, Any] | None = None
    #: What `notice_own_parts` compares with; None until the constructor is through.
    parts_in_use: PartsInUse | None = None
    #: The framework's own class, whose `extra_action_out` does nothing.
    _plain: ClassVar[Any]

    def _numpy_distribution(self: Any) -> Any:
        """Returns the NumPy twin of the distribution class, None for a custom class."""
        self.built_with = (self.model, self.dist_class)
        return numpy_distribution(self)

    def forget_traces(self) -> None:
        """Called when parts that are traced functions' have been replaced; a hook."""

    def actor_spec(self: Any) -> dict[str, Any] | None:
        """Returns the description that a NumPy actor is built from, None where the model cannot be one."""
        describe = getattr(self.model, "actor_spec", None)
        return None if describe is None or self.model_altered or forward_is_watched(self.model) else describe()

    def numpy_spec(self: Any) -> dict[str, Any] | None:
        """Returns what NumPy acts by; None where acting needs more than weights: custom model, distribution, hooks."""
        return None if self.numpy_dist is None or self._has_acting_hooks() else self.actor_spec()

    def live_weights(self: Any) -> Mapping[str, NDArray[Any]] | None:
        """Returns the model's arrays for a NumPy actor, which follow learning; None where there are none."""
        raise NotImplementedError

    #: Brings `live_weights` up to date; None where they share the model's memory.
    refresh_live_weights: Callable[[], None] | None = None

    def _has_acting_hooks(self: Any) -> bool:
        return bool(self._action_sampler_fn or self._action_distribution_fn or self.has_custom_action_out())

    def _explores_with_tensors(self: Any) -> bool:
        return getattr(self.exploration, "takes_tensors", False)

    def has_custom_action_out(self: Any) -> bool:
        """Returns whether `extra_action_out` is user code that needs the framework's tensors."""
        method = type(self).extra_action_out
        return method is not self._plain.extra_action_out and not getattr(method, "only_values", False)

    def numpy_postprocessing(self: Any) -> Any:
        """Returns what postprocesses on workers without the framework: a function, True for the method itself, or None.

        First priorities need critics, which are not there.
        """
        marked = getattr(type(self).postprocess_trajectory, "framework_free", None)
        return None if self.config.get("worker_side_prioritization") else marked

    def acting_recipe(self: Any) -> ActingRecipe | None:
        """Returns what a remote worker needs to act without the framework, None where it needs it."""
        return acting_recipe(self)

    def forward_in_framework(
        self: Any, columns: Mapping[str, NDArray[Any]], explore: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, list[NDArray[Any]]]:
        """Returns what `forward_with_memory` does, by way of the framework, for `obs` and further columns [B, ...]."""
        raise NotImplementedError

    def values_in_framework(self: Any, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns the model's state values [B] for `obs` [B, ...], by way of the framework."""
        raise NotImplementedError

    def act_in_framework(
        self: Any, input_dict: Mapping[str, Any], explore: bool, timestep: int | None
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Returns what `act_on_rows` does, by way of the framework and of the hooks that replace parts of acting."""
        raise NotImplementedError

    def dist_inputs(self: Any, obs: Tensor) -> Tensor:
        """Returns distribution inputs [B, K] for a tensor of preprocessed observations [B, ...]."""
        return self.model({OBS: obs, "is_training": False}, [], None)[0]

    def _network_outputs(self: Any, batch: SampleBatch, explore: bool) -> tuple[Tensor, list[Tensor]]:
        """Returns the built-in networks' distribution inputs [B, K] and new states, where no hook makes others."""
        return self.model(batch, [], None)  # type: ignore[no-any-return]

    def _dist_inputs(self: Any, batch: SampleBatch, explore: bool, step: int) -> tuple[Tensor, Any, list[Tensor]]:
        if self._action_distribution_fn is None:
            with acting_in_loss(self.model) if getattr(self.model, "gives_features", False) else nullcontext():
                outputs, states = self._network_outputs(batch, explore)
            return outputs, self.dist_class, states
        inputs, dist_class, states = self._action_distribution_fn(
            self,
            self.model,
            input_dict=batch,
            state_batches=states_of(batch),
            seq_lens=batch.get(SEQ_LENS),
            explore=explore,
            timestep=step,
            is_training=False,
        )
        return inputs, dist_class, states or []

    @property
    def action_sampler_fn(self) -> Callable[..., Any] | None:
        """What samples in place of the distribution, under the name by which copies of RLlib's acting know it."""
        return self._action_sampler_fn

    @action_sampler_fn.setter
    def action_sampler_fn(self, function: Callable[..., Any] | None) -> None:
        self._action_sampler_fn = function

    @property
    def action_distribution_fn(self) -> Callable[..., Any] | None:
        """What makes distribution inputs for copies of RLlib's acting; None where the model's outputs are these.

        It takes `input_dict`, as since RLlib 1.3, or observations.
        """
        own = type(self)._network_outputs is not FrameworkActing._network_outputs
        return self._inputs_of if own or self._action_distribution_fn is not None else None

    @action_distribution_fn.setter
    def action_distribution_fn(self, function: Callable[..., Any] | None) -> None:
        self._action_distribution_fn = function

    def _inputs_of(
        self: Any, policy: Any, model: Any, obs_batch: Any = None, *, input_dict: Any = None, explore: bool = True,
        timestep: int | None = None, **kwargs: Any,
    ) -> tuple[Tensor, Any, list[Tensor]]:  # fmt: skip
        inputs = obs_batch if input_dict is None else input_dict
        batch = inputs if isinstance(inputs, Mapping) else SampleBatch({OBS: inputs})
        given = self._action_distribution_fn
        if given is None:
            return self._dist_inputs(batch, explore, timestep)  # type: ignore[no-any-return]
        kwargs = {"state_batches": [], "seq_lens": None, "is_training": False, **kwargs}
        return given(policy, model, input_dict=batch, explore=explore, timestep=timestep, **kwargs)  # type: ignore[no-any-return]

    def extra_action_out(
        self: Any, input_dict: Any, state_batches: Any, model: Any, action_dist: Any
    ) -> dict[str, Any]:
        """Returns further columns [B, ...] to store with the actions; an `action_sampler_fn` has no `action_dist`."""
        return {VF_PREDS: self.model.value_function()} if self.wants_values else {}

    def _extra_columns(self: Any, batch: Any, distribution: Any) -> dict[str, Any]:
        """Returns `extra_action_out` after a forward pass, and values, unless a program's own code alone reads them."""
        extra = self.extra_action_out(batch, states_of(batch), self.model, distribution)
        if not self.wants_values or VF_PREDS in extra or makes_own_values(self):
            return dict(extra)
        return {VF_PREDS: self.model.value_function(), **extra}

    def _finish(
        self: Any, count: int, actions: Any, logp: Any, inputs: Any, extra: Mapping[str, Any], states: Any = ()
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Returns an action pass's results as arrays, and counts the steps."""
        columns = {key: self.to_numpy(value) for key, value in extra.items()}
        columns.update({f"{STATE_OUT_PREFIX}{index}": self.to_numpy(state) for index, state in enumerate(states or ())})
        if inputs is not None:
            columns[ACTION_DIST_INPUTS] = self.to_numpy(inputs)
        if logp is not None:
            columns[ACTION_LOGP] = np.asarray(self.to_numpy(logp), np.float32)
            columns[ACTION_PROB] = np.exp(columns[ACTION_LOGP])
        self.global_timestep += count
        return self.to_numpy(actions), columns
