"""A policy's weights and state, as arrays and numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.policy.users_code import overridden_by_user

State = dict[str, Any]


class PolicyState:
    """What a `Policy` goes on from: weights, also as one vector, and the state of a checkpoint."""

    components: dict[str, Any]  # `Component`s by name
    exploration: Any
    global_timestep: int
    #: Where schedules are; acting in between counts on in `global_timestep`.
    schedule_timestep: int = 0
    _action_rng: np.random.Generator

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of the weights, `{parameter name: array}`."""
        return {}

    def set_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Takes weights as `get_weights` returns them."""

    def get_flat_weights(self) -> NDArray[np.float32]:
        """Returns all weights in one vector, float32 `[P]`, in the order of `get_weights`."""
        arrays = [np.asarray(array, np.float32).reshape(-1) for array in self.get_weights().values()]
        return np.concatenate([np.zeros(0, np.float32), *arrays])

    def set_flat_weights(self, flat: Any) -> None:
        """Takes all weights as `get_flat_weights` returns them.

        Raises:
            ValueError: If there are more or fewer numbers.
        """
        self.set_weights(self.unflattened(flat))

    def unflattened(self, flat: Any) -> dict[str, NDArray[Any]]:
        """Returns a vector as `get_flat_weights` gives it as named weights, float32.

        Raises:
            ValueError: If there are more or fewer numbers.
        """
        shapes = {name: np.shape(array) for name, array in self.get_weights().items()}
        sizes = [math.prod(shape) for shape in shapes.values()]
        vector = np.asarray(flat, np.float32).reshape(-1)
        if len(vector) != sum(sizes):
            raise ValueError(f"got {len(vector)} numbers as the weights of {type(self).__name__}, wanted {sum(sizes)}")
        parts = np.split(vector, np.cumsum(sizes)[:-1])
        return {name: part.reshape(shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}

    def get_exploration_state(self) -> State:
        """Returns the state of the exploration, e.g. `cur_epsilon` and its random stream."""
        return dict(self.exploration.get_state()) if self.exploration is not None else {}

    def get_state(self) -> State:
        """Returns everything that acting and learning go on from exactly, as nested dicts of arrays and numbers."""
        return {
            "weights": self.get_weights(),
            "global_timestep": self.global_timestep,
            "_exploration_state": self.get_exploration_state(),
            "_action_rng": self._action_rng.bit_generator.state,
            "schedule_timestep": self.schedule_timestep,
            "_rates": _rates_by_config(self),
            **self._states_of_components(),
        }

    def optimizer_states(self, state: State) -> list[Any]:
        """Returns the optimisers' parts of a state, with the rates that the config has changed since it was taken."""
        saved = list(state.get("_optimizer_variables", []))
        rates = zip(_rates_by_config(self), state.get("_rates", []), strict=False)
        for place, (rate, before) in enumerate(itertools.islice(rates, len(saved))):
            if rate != before:
                saved[place] = _with_rate(saved[place], rate)
        return saved

    def restore_schedules(self, state: State) -> None:
        """Brings schedules to where they were when a state was taken."""
        acted = self.global_timestep
        self.on_global_var_update({"timestep": state.get("schedule_timestep", acted)})
        self.global_timestep = acted

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Takes the global step count; schedules follow it."""
        raise NotImplementedError

    def _states_of_components(self) -> State:
        states = {name: part.get_state() for name, part in self.components.items()}
        return {"_components": {name: part for name, part in states.items() if part}} if any(states.values()) else {}

    def set_state(self, state: State) -> None:
        """Takes what `get_state` returned."""
        saved = state.get("_components", {})
        for name, part in self.components.items() if "weights" in state else ():
            part.check_state(saved.get(name))
        self.set_weights(state["weights"])
        self.global_timestep = int(state.get("global_timestep", 0))
        if self.exploration is not None and state.get("_exploration_state"):
            self.exploration.set_state(state["_exploration_state"])
        if "_action_rng" in state:
            self._action_rng.bit_generator.state = state["_action_rng"]
        for name, part in self.components.items():
            if name in saved:
                part.set_state(saved[name])


def _rates_by_config(policy: Any) -> list[float]:
    """Returns the learning rates that the config gives the optimisers, in their order; none where users make these."""
    specs = getattr(policy, "optimizer_specs", None)
    if specs is None or overridden_by_user(type(policy), "optimizer"):
        return []
    rates = [spec.lr for spec in specs.values()] or [policy.config.get("lr")]
    return [float(rate) for rate in rates if isinstance(rate, (int, float))]


def _with_rate(saved: Mapping[str, Any], rate: float) -> dict[str, Any]:
    """Returns an optimiser's state with another learning rate."""
    made = dict(saved)
    if "lr" in made:
        made["lr"] = rate
    if "param_groups" in made:
        made["param_groups"] = [{**group, "lr": rate} for group in made["param_groups"]]
    return made
