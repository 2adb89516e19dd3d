"""The model contract: what a network must offer to be a policy's model, in whatever framework."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from rlframe.data.columns import OBS, SEQ_LENS
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.view_requirements import ViewRequirement
from rlframe.models.obs_layout import obs_layout, reshape_for, unpack
from rlframe.models.past_views import OBS_WINDOW, obs_window
from rlframe.models.state_windows import moved_on
from rlframe.utils.spaces.old_gym import convert_spaces

OBS_FLAT = "obs_flat"
IS_TRAINING = "is_training"
#: Attribute of a model whose policy has acted in NumPy since the last forward pass: the thread, and observations.
_ACTED = "_acted_in_numpy"


class ModelV2:
    """Base of all models.

    One of your own derives from `TorchModelV2` or `TFModelV2`, and defines `forward` and `value_function`.

    Args:
        obs_space: Preprocessed observation space; its `original_space`, where there is one, is the environment's.
        action_space: Action space of the environment.
        num_outputs: Width of the outputs the policy wants; None lets the model choose (and set `self.num_outputs`).
        model_config: The `model` section of the config; a model's own options are in `["custom_model_config"]`.
        name: Name of the model, for messages and scopes.
        framework: "torch" or "tf".
    """

    #: An algorithm's model interface sets this to False where nobody asks for values: no value head is built then.
    uses_value_function: bool = True
    #: Steps of each state that is a window over past ones; see `rlframe.models.state_windows`.
    state_windows: tuple[int, ...] = ()

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: dict[str, Any],
        name: str | None,
        framework: str | None = None,
    ) -> None:
        self.obs_space = convert_spaces(obs_space)
        self.action_space = convert_spaces(action_space)
        self.num_outputs = num_outputs
        self.model_config = model_config
        self.name = name or "default_model"
        self.framework = framework
        self.time_major = bool(model_config.get("_time_major", False))
        self.view_requirements: dict[str, ViewRequirement] = {OBS: ViewRequirement(shift=0, space=self.obs_space)}
        self._last_output: Any = None
        self._obs_layout: Any = None

    @property
    def inference_view_requirements(self) -> dict[str, ViewRequirement]:
        """The model's `view_requirements`, by their name in RLlib 1.0 and 1.1."""
        return self.view_requirements

    @inference_view_requirements.setter
    def inference_view_requirements(self, views: dict[str, ViewRequirement]) -> None:
        self.view_requirements = views

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Computes the outputs for a batch of observations.

        Args:
            input_dict: `obs` in the structure of the original space (leaves `[B, ...]`), `obs_flat` float `[B, D]`,
                `is_training`, and the further columns that `view_requirements` asks for.
            state: Recurrent state tensors `[num_seqs, S]`; empty for models without memory.
            seq_lens: Lengths of the sequences in the batch, integer `[num_seqs]`; None for models without memory.

        Returns:
            Outputs `[B, num_outputs]`, and the list of new states.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define forward(self, input_dict, state, seq_lens) and return "
            f"(outputs[B, num_outputs], list of states)."
        )

    def value_function(self) -> Any:
        """Returns the value of every row of the last forward pass. Float `[B]`."""
        raise NotImplementedError(
            f"{type(self).__name__} defines no value_function(), but its algorithm asks for values. Define "
            f"value_function(self) to return one value per row of the last forward pass, shape [B]."
        )

    def get_initial_state(self) -> list[Any]:
        """Returns the state a sequence begins with: a list of arrays `[S]`; not empty makes the model recurrent."""
        return []

    def custom_loss(self, policy_loss: Any, loss_inputs: Mapping[str, Any]) -> Any:  # noqa: ARG002 - a hook
        """Returns the losses to minimise instead of `policy_loss`: a list, or one that is alone as a scalar.

        Args:
            policy_loss: The algorithm's losses: a list, one for each optimiser. One that is alone adds and multiplies
                like the loss itself.
            loss_inputs: Columns of the train batch; observations are flat, see `restore_original_dimensions`.
        """
        return policy_loss

    def metrics(self) -> dict[str, Any]:
        """Returns numbers to report under `info/learner/<policy>/model`."""
        return {}

    def __call__(self, input_dict: Any, state: list[Any] | None = None, seq_lens: Any = None) -> tuple[Any, list[Any]]:
        """Restores the structure of the observations, runs `forward`, checks and remembers what it returned.

        Args:
            input_dict: A SampleBatch, or a dict with at least `obs`.
            state: Recurrent states; None takes the batch's `state_in_i` columns.
            seq_lens: Sequence lengths; None takes the batch's.

        Returns:
            Outputs `[B, num_outputs]`, and the list of new states.

        Raises:
            ValueError: If `forward` returned something else.
        """
        self.__dict__.pop(_ACTED, None)
        restored = self._restored(input_dict)
        if seq_lens is None:
            seq_lens = restored.get(SEQ_LENS)
        # A list of its own: what `forward` puts into it must not change what the caller has.
        state = list(state) if state else states_of(restored)
        with self.context():
            result = self.forward(restored, state, seq_lens)
        outputs, new_state = self._checked(result)
        if self.state_windows:
            new_state = moved_on(state, new_state, seq_lens)
        self._last_output = outputs
        return outputs, new_state

    def acted_on(self, obs: Any) -> None:
        """Is told preprocessed observations [B, ...] that a program asked actions for, where NumPy made these.

        `value_function()` and `last_output()` speak of them until the next forward pass, in the thread that acted.
        """
        self.__dict__[_ACTED] = (threading.get_ident(), obs)

    def _catch_up(self) -> None:
        """Does the forward pass that acting in NumPy left out."""
        thread, obs = self.__dict__.get(_ACTED, (None, None))
        if thread == threading.get_ident():
            self._do_again(obs)

    def _do_again(self, obs: Any) -> None:
        self({OBS: obs})

    def from_batch(self, train_batch: Any, is_training: bool = True) -> tuple[Any, list[Any]]:
        """Runs the model on a batch of tensors, with the states and the lengths of sequences that it has.

        Args:
            train_batch: A SampleBatch, or a dict with at least `obs`.
            is_training: What the model is told.

        Returns:
            Outputs `[B, num_outputs]`, and the list of new states.
        """
        if isinstance(train_batch, SampleBatch):
            batch: Any = train_batch.copy(shallow=True)
            batch.set_training(is_training)
        else:
            batch = {**train_batch, IS_TRAINING: is_training}
        return self(batch, states_of(batch), batch.get(SEQ_LENS))

    def get_input_dict(self, sample_batch: SampleBatch, index: int | str = "last") -> SampleBatch:
        """Returns the model's input for one step, by its name in RLlib 1.1 to 1.3; `seq_lens` is an attribute of it.

        Args:
            sample_batch: A trajectory.
            index: A row; "last", or -1, for the step after the last row.
        """
        step = "last" if index == -1 else index
        inputs = sample_batch.get_single_step_input_dict(self.view_requirements, index=step)
        inputs.seq_lens = inputs.pop(SEQ_LENS)  # type: ignore[attr-defined]  # where those versions had it
        return inputs

    def _restored(self, input_dict: Any) -> Any:
        """Returns a shallow copy of the inputs with nested `obs`, `obs_flat` and `is_training`."""
        if isinstance(input_dict, SampleBatch):
            restored: Any = input_dict.copy(shallow=True)
        else:
            restored = dict(input_dict)
            restored.setdefault(IS_TRAINING, False)
        obs = restored[OBS] = self._as_arrays(self._observed(restored))
        reshape = reshape_for(obs)
        if reshape is None:
            return restored  # nested already: preprocessing is off, or an outer model restored it
        if len(obs.shape) == 2:
            restored[OBS_FLAT] = obs  # TensorFlow may not know its width
        else:
            restored[OBS_FLAT] = reshape(obs, (obs.shape[0], math.prod(obs.shape[1:])))
        raw = getattr(self.obs_space, "raw_leaves", False)
        if raw or not self.model_config.get("_disable_preprocessor_api", False):
            if self._obs_layout is None:
                self._obs_layout = obs_layout(self.obs_space)
            restored[OBS] = unpack(obs, self._obs_layout, reshape)
        return restored

    def _observed(self, inputs: Any) -> Any:
        """Returns what the model sees under `obs`: the steps that it declared a view of, else the current one."""
        return obs_window(self, inputs) if OBS_WINDOW in self.view_requirements else inputs[OBS]

    def _as_arrays(self, obs: Any) -> Any:
        """Returns the observations as what `forward` computes with; a hook for frameworks' bases."""
        return obs

    def _checked(self, result: Any) -> tuple[Any, list[Any]]:
        who = f"{type(self).__name__}.forward()"
        if not isinstance(result, tuple | list) or len(result) != 2:
            got = f"{type(result).__name__}" + (f" of length {len(result)}" if isinstance(result, tuple | list) else "")
            raise ValueError(f"{who} must return the tuple (outputs, list of states); got a {got}.")
        outputs, new_state = result
        if not isinstance(new_state, list):
            raise ValueError(
                f"{who} must return its states as a list ([] for a model without memory); got a "
                f"{type(new_state).__name__}."
            )
        return outputs, new_state

    def variables(self, as_dict: bool = False) -> list[Any] | dict[str, Any]:
        """Returns the model's variables, as a list or by name."""
        raise NotImplementedError

    def trainable_variables(self, as_dict: bool = False) -> list[Any] | dict[str, Any]:
        """Returns the variables that gradients change, as a list or by name."""
        raise NotImplementedError

    def popart_variables(self) -> list[tuple[Any, ...]]:
        """Returns weights and biases of the values and of PopArt's layer behind them, by network inside that has it."""
        found = (network.own_popart_variables() for network in self.networks() if isinstance(network, ModelV2))
        return [variables for variables in found if variables is not None]

    def own_popart_variables(self) -> tuple[Any, ...] | None:
        """Returns what `popart_variables` does for this network alone; None where it has no such layer."""
        return None

    def networks(self) -> Iterator[Any]:
        """Yields the model and the models inside it."""
        yield self

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns the spec by which `rlframe.models.actor.ChainActor` acts like this model; None where it cannot."""
        return None

    def is_time_major(self) -> bool:
        """Whether the data of sequences comes as [T, B, ...] instead of [B, T, ...]."""
        return self.time_major

    def last_output(self) -> Any:
        """Returns the outputs of the last call. Float `[B, num_outputs]`."""
        self._catch_up()
        return self._last_output

    def context(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context in which `forward` runs; a hook for subclasses."""
        return contextlib.nullcontext()

    def import_from_h5(self, h5_file: str) -> None:
        """Loads weights from an h5 file; a hook for models that can."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define import_from_h5(), so {h5_file!r} cannot be loaded; define it, or "
            f"set the weights with policy.set_weights()."
        )


def states_of(batch: Mapping[str, Any]) -> list[Any]:
    """Returns the batch's columns state_in_0, state_in_1, … in order."""
    states: list[Any] = []
    while f"state_in_{len(states)}" in batch:
        states.append(batch[f"state_in_{len(states)}"])
    return states
