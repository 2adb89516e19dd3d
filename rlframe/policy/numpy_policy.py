"""A policy that only acts: weights and NumPy, no framework; what remote workers run for built-in models.

Asked for more by a program, it becomes the framework's policy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.data.sample_batch import SampleBatch
from rlframe.data.view_requirements import ViewRequirement
from rlframe.policy.inference import Inference, NumpyInference
from rlframe.policy.policy import Policy


@dataclass(frozen=True)
class ActingRecipe:
    """All that acting needs, sent from the driver to remote workers.

    Attributes:
        build_actor: `fn(spec, weights, rng) -> actor`, importable without a framework.
        spec: What `build_actor` takes: plain dicts, lists and numbers.
        wants_values: Whether state values are stored with the actions.
        noisy: Whether the network has noise of its own while exploring.
        train_columns: See `Policy.train_columns`.
        learned_columns: See `Policy.columns_learned_from`.
        postprocess: `fn(policy, batch, other_agent_batches, episode) -> batch`, free of frameworks, or None.
        initial_state: The state at the start of an episode, arrays without batch dimension.
        views: Columns of past steps that the model acts on, by name.
        learns_sequences: Whether sampled rows are cut into sequences.
        max_seq_len: Longest of these, in rows.
        dist_type: Kind of the action distribution; None is the action space's own.
        acts_for_group: See `Policy.acts_for_group`.
    """

    build_actor: Callable[[Any, Mapping[str, NDArray[Any]], Any], Any]
    spec: Any
    wants_values: bool = False
    noisy: bool = False
    train_columns: tuple[str, ...] | None = None
    learned_columns: tuple[str, ...] | None = None
    postprocess: Callable[..., SampleBatch] | None = None
    initial_state: tuple[NDArray[Any], ...] = ()
    views: Mapping[str, ViewRequirement] = field(default_factory=dict)
    learns_sequences: bool = False
    max_seq_len: int = 20
    dist_type: str | None = None
    acts_for_group: bool = False


class NumpyPolicy(Policy):
    """Acts with named weight arrays; `set_weights` brings new ones. It has no model and cannot learn.

    In a worker that has been told the framework's class, learning makes it a policy of that class, and so does code of
    a program that reads what is not here, such as `model`.
    """

    framework = "numpy"
    #: Makes this object the framework's policy; None where nobody knows of which class.
    load_framework: Callable[[], None] | None = None

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        config: dict[str, Any],
        *,
        recipe: ActingRecipe,
    ) -> None:
        super().__init__(observation_space, action_space, config)
        self.recipe, self.dist_type, self.acts_for_group = recipe, recipe.dist_type, recipe.acts_for_group
        self.wants_values = recipe.wants_values
        self.train_columns = recipe.train_columns
        self.max_seq_len = recipe.max_seq_len
        self.view_requirements.update(recipe.views)
        self.numpy_dist: Any = self._built_in_distribution()
        self.exploration = self._create_exploration()
        self.weights: dict[str, NDArray[Any]] = {}

    def columns_learned_from(self) -> tuple[str, ...] | None:
        """Returns the columns that sampling and learning need of this policy's rows; None where that is all of them."""
        return self.recipe.learned_columns

    def is_recurrent(self) -> bool:
        """Returns whether the policy carries state from step to step."""
        return bool(self.recipe.initial_state)

    def learns_sequences(self) -> bool:
        """Returns whether sampled rows are cut into sequences."""
        return self.recipe.learns_sequences

    def get_initial_state(self) -> list[NDArray[Any]]:
        """Returns the state arrays at the start of an episode, without batch dimension."""
        return list(self.recipe.initial_state)

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Runs the recipe's postprocessing."""
        if self.recipe.postprocess is None:
            return sample_batch
        return self.recipe.postprocess(self, sample_batch, other_agent_batches, episode)

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of the weights."""
        return {name: array.copy() for name, array in self.weights.items()}

    def set_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Takes weights; arrays from the object store are used as they are, without a copy."""
        self.weights = {name: np.asarray(array) for name, array in weights.items()}
        self.choose_inference()

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, Any]:
        """Becomes the framework's policy, which learns."""
        return self._of_framework("learn_on_batch")(samples)  # type: ignore[no-any-return]  # of another class now

    def compute_gradients(self, postprocessed_batch: SampleBatch) -> tuple[list[Any], dict[str, Any]]:
        """Becomes the framework's policy, which computes them."""
        return self._of_framework("compute_gradients")(postprocessed_batch)  # type: ignore[no-any-return]

    def apply_gradients(self, gradients: list[Any]) -> None:
        """Becomes the framework's policy, which applies them."""
        self._of_framework("apply_gradients")(gradients)

    def _of_framework(self, name: str) -> Any:
        """Returns what the framework's policy, which this becomes, has under a name.

        Raises:
            NotImplementedError: If nobody knows of which class that is.
        """
        load, self.load_framework = self.load_framework, None  # the constructor of the other may look for names here
        if load is None:
            raise NotImplementedError(_refusal(name))
        try:
            load()
        except BaseException:
            self.load_framework = load
            raise
        return getattr(self, name)

    def _built_in_inference(self) -> Inference:
        if not self.__dict__.get("weights"):  # the constructor, or the state of one that has not got any yet
            return Inference(self)
        rng = self._action_rng if self.recipe.noisy else None
        return NumpyInference(self, self.recipe.build_actor(self.recipe.spec, self.weights, rng))

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a copy has: all but the way to the worker that this one belongs to."""
        return {name: value for name, value in vars(self).items() if name != "load_framework"}

    def __getattr__(self, name: str) -> Any:
        # Sampling looks for what a policy may have, too, and goes without; a program's code means what it reads.
        asks = _who_reads(sys._getframe(1))
        if self.load_framework is not None and not name.startswith("__") and not asks.startswith("rlframe."):
            return self._of_framework(name)
        if name in ("model", "dist_class", "device"):
            raise AttributeError(_refusal(name))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _who_reads(frame: Any) -> str:
    """Returns the module that reads an attribute, also of a policy that was on disk until then (`_Waiting`)."""
    while frame.f_code.co_name == "__getattribute__" and frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


def _refusal(name: str) -> str:
    return (
        f"this policy acts in NumPy and has no {name!r}: "
        'set config["sample_in_numpy"] = False to have the framework\'s policy on remote workers'
    )
