"""How a policy acts but in NumPy: through its framework, by a user's hooks, a `forward`, or `compute_actions`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import INFOS, OBS, PREV_ACTIONS, PREV_REWARDS, STATE_IN_PREFIX, STATE_OUT_PREFIX
from rlframe.policy.inference import Acted, Columns, Computed, Inference, Outputs, Wanted
from rlframe.policy.users_code import seen_last


class FrameworkInference(Inference):
    """Passes through the framework's model; distribution and exploration are those of NumPy."""

    def run(self, columns: Columns, explore: bool) -> Outputs:
        """Returns what a forward pass gives."""
        made: Outputs = self.policy.forward_in_framework(columns, explore)
        return made

    def values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns state values [B], also of a policy that stores none."""
        if self.policy.needs_memory():
            return super().values(obs)
        return np.asarray(self.policy.values_in_framework(obs))


class TensorInference(FrameworkInference):
    """Acts with the framework's tensors throughout: an exploration of the user's own is given them."""

    def act(self, columns: Columns, explore: bool, timestep: int | None, wanted: Wanted) -> Acted:
        """Returns actions and all columns."""
        del wanted
        made: Acted = self.policy.act_in_framework(columns, explore, timestep)
        return made


class HookedInference(TensorInference):
    """Acts with a distribution or functions of the user's own, which take and give the framework's tensors."""


class _Around(Inference):
    """Something of the class's own, and what acts behind `super()`.

    Args:
        policy: See `Inference`.
        inner: What acts where the class calls the base's method.
    """

    def __init__(self, policy: Any, inner: Inference) -> None:
        super().__init__(policy)
        self.inner = inner

    @property
    def built_in(self) -> Inference:
        """What acts where a user's own method calls that of the base class."""
        return self.inner.built_in


class OwnForward(_Around):
    """Passes through a `forward` of the class's own."""

    def run(self, columns: Columns, explore: bool) -> Outputs:
        """Returns what a forward pass gives."""
        policy, obs = self.policy, columns[OBS]
        if policy.needs_memory():
            inputs = {name: column for name, column in columns.items() if name != OBS}
            made: Outputs = policy.forward_with_memory(obs, inputs, explore)
            return made
        return (*policy.forward(obs, explore), [])


class OwnActing(_Around):
    """Acts by a user's `compute_actions_from_input_dict`, or `compute_actions` behind it, as a whole."""

    shows_episodes = True

    def __init__(self, policy: Any, inner: Inference, by_compute_actions: bool) -> None:
        super().__init__(policy, inner)
        self._by_compute_actions = by_compute_actions
        self._rows: Sequence[tuple[Any, Any]] = ()
        self._inside: set[int] = set()  # threads that are in the user's method

    def act_for(self, rows: Sequence[tuple[Any, Any]]) -> None:
        """Notes whose rows come next: the method is told of the episodes, and of what they saw last."""
        self._rows = rows

    def run(self, columns: Columns, explore: bool) -> Outputs:
        """Returns what a forward pass gives, for who asks beside acting."""
        return self.inner.run(columns, explore)

    def values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns state values [B]."""
        return self.inner.values(obs)

    def act(self, columns: Columns, explore: bool, timestep: int | None, wanted: Wanted) -> Acted:
        """Returns the method's actions, with all columns that it gives."""
        del wanted
        policy = self.policy
        before, count = policy.global_timestep, len(columns[OBS])
        rows, self._rows = self._rows, ()
        given = {**seen_last(policy, rows, count), **columns}
        episodes = [episode for episode, _ in rows] or None
        actions, states, extra = policy.compute_actions_from_input_dict(given, explore, timestep, episodes=episodes)
        if policy.global_timestep == before:  # the user's method may end in one that counts
            policy.global_timestep += count
        made = {key: np.asarray(column) for key, column in (extra or {}).items()}
        if rows and type(policy).framework is None:  # nothing tells what it learns from, so it has these columns, too
            made = {PREV_ACTIONS: given[PREV_ACTIONS], PREV_REWARDS: given[PREV_REWARDS], **made}
        made.update(
            {f"{STATE_OUT_PREFIX}{index}": np.asarray(state)[:count] for index, state in enumerate(_listed(states))}
        )
        return policy.batched(actions), made

    def compute(
        self, input_dict: Mapping[str, Any], explore: bool, timestep: int | None, episodes: Any, **kwargs: Any
    ) -> Computed:
        """Returns what the user's `compute_actions` gives, or, asked for by `super()`, what is built in."""
        thread = threading.get_ident()
        if not self._by_compute_actions or thread in self._inside:
            return self.inner.compute(input_dict, explore, timestep, episodes, **kwargs)
        policy = self.policy
        given = policy.acting_columns(input_dict)
        self._inside.add(thread)
        try:
            made: tuple[Any, Any, Any] = policy.compute_actions(
                given[OBS],
                [given[f"{STATE_IN_PREFIX}{index}"] for index in range(policy.num_state_tensors())],
                prev_action_batch=_true_if_any(given.get(PREV_ACTIONS)),
                prev_reward_batch=_true_if_any(given.get(PREV_REWARDS)),
                info_batch=input_dict.get(INFOS),
                episodes=episodes,
                explore=explore,
                timestep=timestep,
                **kwargs,
            )
        finally:
            self._inside.discard(thread)
        actions, states, columns = made
        return policy.batched(actions), _listed(states), dict(columns or {})


class _Rows(np.ndarray[Any, Any]):
    """Rows that are true if there are any: RLlib gave lists until 1.1, arrays later, and programs ask either."""

    def __bool__(self) -> bool:
        return len(self) > 0 if self.ndim else bool(self[()])


def _true_if_any(column: Any) -> Any:
    return column.view(_Rows) if type(column) is np.ndarray else column


def _listed(states: Any) -> list[Any]:
    """Returns the states that a user's method gave: a list, an array with one row for each, or None."""
    return [] if states is None else list(states)


def sampled(made: Any) -> tuple[Any, Any, Any, Any]:
    """Returns (actions, logp, distribution inputs or None, states) of what an `action_sampler_fn` gave.

    It gives `(actions, logp)`, `(actions, logp, states)` or `(actions, logp, distribution inputs, states)`.
    """
    actions, logp, *rest = made
    states = rest[-1] if rest else None
    inputs = rest[0] if len(rest) > 1 else None
    return actions, logp, inputs, states
