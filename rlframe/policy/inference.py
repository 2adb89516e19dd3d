"""How a policy acts: in NumPy or through its framework; chosen when the policy is built. `own_inference` has the rest.

Sampling, evaluation, `compute_single_action` and workers without a framework all act through `Policy.inference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import ACTION_DIST_INPUTS, ACTION_LOGP, ACTION_PROB, OBS, STATE_OUT_PREFIX, VF_PREDS
from rlframe.policy.users_code import method

#: Preprocessed `obs [B, ...]`; for policies with memory `state_in_i [B, ...]` and past columns, too.
Columns: TypeAlias = Mapping[str, NDArray[Any]]
#: Names of columns beside values and states; None wants those of the distribution.
Wanted: TypeAlias = tuple[str, ...] | None
#: Distribution inputs `[B, K]`, state values `[B]` or None, and new recurrent states `[B, ...]`.
Outputs: TypeAlias = tuple[NDArray[np.float32], NDArray[np.float32] | None, list[NDArray[Any]]]
#: Actions `[B, ...]`, nested or not, and columns `[B, ...]` that are stored with them.
Acted: TypeAlias = tuple[Any, dict[str, NDArray[Any]]]
#: Actions, new recurrent states, and further columns: what RLlib's `compute_actions` return.
Computed: TypeAlias = tuple[Any, list[NDArray[Any]], dict[str, NDArray[Any]]]


class Inference:
    """Acts on rows: a forward pass, then the policy's distribution and exploration. Subclasses say how it passes.

    Args:
        policy: Whose distribution, exploration and clock are asked at each call: programs replace them.
    """

    #: Whether it asks for the episodes of the rows, see `act_for`.
    shows_episodes = False

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    @property
    def built_in(self) -> Inference:
        """What acts where a user's own method calls that of the base class."""
        return self

    def run(self, columns: Columns, explore: bool) -> Outputs:
        """Returns what a forward pass gives; `explore` matters to networks with noise of their own."""
        raise NotImplementedError(f"{type(self.policy).__name__} defines neither forward() nor compute_actions()")

    def values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns state values [B] of `obs` [B, ...], at the start of episodes; zeros where there are none."""
        _, values, _ = self.run(self.policy.acting_columns({OBS: obs}), False)
        return np.zeros(len(obs), np.float32) if values is None else values

    def act_for(self, rows: Sequence[tuple[Any, Any]]) -> None:
        """Takes the episode and the agent id of each row that comes next."""

    def act(self, columns: Columns, explore: bool, timestep: int | None, wanted: Wanted) -> Acted:
        """Returns actions and the wanted columns, and counts the steps.

        `timestep` is that of the exploration's schedules; None takes the policy's own.
        """
        policy = self.policy
        dist_inputs, values, states = self.run(columns, explore)
        distribution_of = policy.distribution
        if not callable(distribution_of):  # a user keeps something else under that name
            distribution_of = method(policy, "distribution")
        step = policy.global_timestep if timestep is None else timestep
        exploration = policy.exploration
        exploration.wants_logp = wanted is None or ACTION_LOGP in wanted or ACTION_PROB in wanted
        try:
            actions, logp = exploration.get_exploration_action(
                action_distribution=distribution_of(dist_inputs), timestep=step, explore=explore
            )
        finally:  # others ask it directly
            exploration.wants_logp = True
        policy.global_timestep += len(columns[OBS])
        made: dict[str, NDArray[Any]] = {}
        if wanted is None or ACTION_DIST_INPUTS in wanted:
            made[ACTION_DIST_INPUTS] = dist_inputs
        if wanted is None or ACTION_LOGP in wanted:
            made[ACTION_LOGP] = logp
        if wanted is None or ACTION_PROB in wanted:
            made[ACTION_PROB] = np.exp(logp)
        if values is not None:
            made[VF_PREDS] = values
        for index, state in enumerate(states):
            made[f"{STATE_OUT_PREFIX}{index}"] = state
        return actions, made

    def compute(
        self, input_dict: Mapping[str, Any], explore: bool, timestep: int | None, episodes: Any, **kwargs: Any
    ) -> Computed:
        """Returns what `Policy.compute_actions_from_input_dict` does; see there."""
        del episodes, kwargs
        policy = self.policy
        policy.exploration.before_compute_actions(timestep=timestep, explore=explore)
        actions, made = self.act(policy.acting_columns(input_dict), explore, timestep, None)
        policy.exploration.restore_weights()
        return actions, pop_states(made), made


class NumpyInference(Inference):
    """Acts with weight arrays; needs no framework.

    Args:
        policy: See `Inference`.
        actor: What `build_actor` of an algorithm gives; one with `step` has memory.
        refresh: Brings the actor's arrays up to date before each pass; None where they are always.
    """

    def __init__(self, policy: Any, actor: Any, refresh: Callable[[], None] | None = None) -> None:
        super().__init__(policy)
        self.actor, self._refresh = actor, refresh
        self._step = getattr(actor, "step", None)
        self._mean_step: Any = None if self._step is None else actor.mean.step

    def run(self, columns: Columns, explore: bool) -> Outputs:
        """Returns what a forward pass gives."""
        if self._refresh is not None:
            self._refresh()
        if self._step is not None:
            made: Outputs = (self._step if explore else self._mean_step)(columns[OBS], columns)
            return made
        actor = self.actor if explore else self.actor.mean
        if self.policy.wants_values:
            return (*actor.forward_with_values(columns[OBS]), [])
        return actor.forward(columns[OBS]), None, []

    def compute(
        self, input_dict: Mapping[str, Any], explore: bool, timestep: int | None, episodes: Any, **kwargs: Any
    ) -> Computed:
        """Does what `Inference` does, and tells the framework's model what was acted on."""
        computed = super().compute(input_dict, explore, timestep, episodes, **kwargs)
        tell = getattr(getattr(self.policy, "model", None), "acted_on", None)
        if tell is not None:
            tell(np.asarray(input_dict[OBS]))
        return computed

    def values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns state values [B]."""
        if self._step is not None:
            return super().values(obs)
        if self._refresh is not None:
            self._refresh()
        return np.asarray(self.actor.values(obs))


def pop_states(columns: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Takes the columns `state_out_0`, `state_out_1`, ... out of `columns`, and returns them in order."""
    states: list[NDArray[Any]] = []
    while f"{STATE_OUT_PREFIX}{len(states)}" in columns:
        states.append(columns.pop(f"{STATE_OUT_PREFIX}{len(states)}"))
    return states


class PartsInUse:
    """A policy's model and distribution as they were, and what the model was made of.

    Args:
        policy: A policy with a framework.
        parts: `(table, key)` of the parameters and layers.
        hooks: Tables of what is called around layers' forward passes; empty where nothing is.
        attributes: Those of each layer.
    """

    def __init__(
        self, policy: Any, parts: Sequence[tuple[Any, str]], hooks: Sequence[Any], attributes: Sequence[Any]
    ) -> None:
        self.model, self.dist_class = policy.model, policy.dist_class
        self._parts = [(table, key, table[key]) for table, key in parts]
        self._hooks, self._attributes = hooks, attributes

    def changed(self, policy: Any) -> bool:
        """Returns whether the policy has another model or distribution, or the model computes otherwise."""
        # While several devices compute, their threads put copies in the model's place.
        another = policy.model is not self.model and len(policy.model_gpu_towers) < 2
        return another or policy.dist_class is not self.dist_class or (not policy.model_altered and self.altered())

    def altered(self) -> bool:
        """Returns whether the model has other layers, parameters, hooks or another `forward` than it had."""
        return (
            any(self._hooks)
            or any("forward" in attributes for attributes in self._attributes)
            or any(table.get(key) is not part for table, key, part in self._parts)
        )
