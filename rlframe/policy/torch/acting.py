"""Acting through PyTorch, where NumPy cannot."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlframe.data.columns import OBS, SEQ_LENS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.modelv2 import states_of
from rlframe.policy.framework_acting import FrameworkActing
from rlframe.policy.inference import Acted
from rlframe.policy.own_inference import sampled
from rlframe.policy.torch.flat import take_all_back
from rlframe.policy.torch.flat_optimizers import FlatOptimizer
from rlframe.policy.torch.host_copy import HostCopy, fits
from rlframe.policy.users_code import method


class TorchActing(FrameworkActing):
    """How a `TorchPolicy` acts by its model, and by hooks of the user's own."""

    def live_weights(self: Any) -> dict[str, NDArray[Any]] | None:
        """Returns the model's tensors as arrays: their own memory, or a GPU's copied, see `refresh_live_weights`.

        None where the GPU acts better itself.
        """
        tensors = self.model.state_dict()
        if self.device.type == "cpu":
            arrays = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
            self.refresh_live_weights = self._renewing(arrays)
            return arrays
        if not fits(tensors):
            return None
        copy = HostCopy(tensors)
        self.refresh_live_weights = self._renewing(copy.arrays, copy.refresh)
        return copy.arrays

    def _renewing(
        self: Any, arrays: Mapping[str, NDArray[Any]], copy: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Returns what renews `live_weights`.

        It finds values that a program has put in the place of a parameter's, too: `parameter.data = ...`.

        Args:
            arrays: By the names of the model's parameters.
            copy: What copies a GPU's weights into them; None where they are the parameters' own memory.
        """
        flats = [made.flat for made in getattr(self, "_optimizers", ()) if isinstance(made, FlatOptimizer)]
        members = {id(member) for flat in flats for member in flat.members()}
        others = [(p, p.data_ptr(), arrays[name]) for name, p in self.model.named_parameters() if id(p) not in members]
        if not others and copy is None:
            return flats[0].take_back if len(flats) == 1 else functools.partial(take_all_back, flats)

        def renew() -> None:
            take_all_back(flats)
            if copy is not None:
                copy()
            for parameter, place, array in others:
                if parameter.data_ptr() != place:
                    np.copyto(array, parameter.detach().cpu().numpy())

        return renew

    def forward_in_framework(
        self: Any, columns: Mapping[str, NDArray[Any]], explore: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, list[NDArray[Any]]]:
        """Returns what `forward_with_memory` does, by way of torch."""
        with torch.no_grad():
            inputs, _, states = self._dist_inputs(self._acting_batch(columns), explore, self.global_timestep)
            values = self.model.value_function().cpu().numpy() if self.wants_values else None
            return inputs.cpu().numpy(), values, [state.cpu().numpy() for state in states]

    def values_in_framework(self: Any, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns the model's state values [B] for `obs` [B, ...], by way of torch."""
        with torch.no_grad():
            self.model(self._acting_batch({OBS: obs}), [], None)
            return np.asarray(self.model.value_function().cpu().numpy())

    def _acting_batch(self: Any, input_dict: Mapping[str, Any]) -> SampleBatch:
        """Returns columns as tensors, and puts the model into the mode for acting."""
        self._threads.use(len(input_dict[OBS]))
        columns = SampleBatch.from_columns(dict(input_dict))
        if self.is_recurrent():  # sequences of one step
            columns[SEQ_LENS] = np.ones(len(input_dict[OBS]), np.int32)
        batch: SampleBatch = self._lazy_tensor_dict(columns)
        batch.set_training(False)
        if self.model.training:  # asking costs nothing; setting visits every layer
            self.model.eval()
        return batch

    def act_in_framework(self: Any, input_dict: Mapping[str, Any], explore: bool, timestep: int | None) -> Acted:
        """Returns actions [B, ...] and extra columns, computed without autograd."""
        step = self.global_timestep if timestep is None else timestep
        count = len(np.asarray(input_dict[OBS]))
        with torch.no_grad():
            batch = self._acting_batch(input_dict)
            if self._action_sampler_fn is not None:
                made = self._action_sampler_fn(
                    self, self.model, batch, states_of(batch), explore=explore, timestep=step
                )
                actions, logp, inputs, states = sampled(made)
                done: Acted = self._finish(count, actions, logp, inputs, self._extra_columns(batch, None), states)
                return done
            inputs, dist_class, states = self._dist_inputs(batch, explore, step)
            distribution = dist_class(inputs, self.model)
            in_numpy = self.numpy_dist is not None and not self._explores_with_tensors()
            twin = method(self, "distribution")(inputs.cpu().numpy()) if in_numpy else distribution
            actions, logp = self.exploration.get_exploration_action(
                action_distribution=twin, timestep=step, explore=explore
            )
            if in_numpy and self.has_custom_action_out():
                distribution.last_sample = self.to_tensors(actions)  # `sampled_action_logp()` of RLlib's functions
            extra = self._extra_columns(batch, distribution)
        finished: Acted = self._finish(count, actions, logp, inputs, extra, states)
        return finished
