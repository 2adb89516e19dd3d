"""A policy that only acts: weights and NumPy, no framework; what remote workers run for built-in models."""

from __future__ import annotations

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
    """Acts with named weight arrays; `set_weights` brings new ones. It has no model and cannot learn."""

    framework = "numpy"

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

    def learn_on_batch(self, *_given: Any, **_named: Any) -> Any:
        """Refused: nothing is learned here; so are `compute_gradients` and `apply_gradients`.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            "this remote worker acts in NumPy and cannot learn: "
            'set config["sample_in_numpy"] = False to have the framework\'s policy on remote workers'
        )

    compute_gradients = apply_gradients = learn_on_batch

    def _built_in_inference(self) -> Inference:
        if not self.__dict__.get("weights"):  # the constructor, or the state of one that has not got any yet
            return Inference(self)
        rng = self._action_rng if self.recipe.noisy else None
        return NumpyInference(self, self.recipe.build_actor(self.recipe.spec, self.weights, rng))

    def __getattr__(self, name: str) -> Any:
        if name in ("model", "dist_class", "device"):
            raise AttributeError(
                f"this remote worker acts in NumPy and has no {name!r}: "
                'set config["sample_in_numpy"] = False to have the framework\'s policy on remote workers'
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
