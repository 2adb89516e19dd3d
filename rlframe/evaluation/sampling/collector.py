"""What the sampling loop for several agents keeps of each policy, and of each agent in an episode."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.evaluation.sampling.trajectory_store import TrajectoryStore
from rlframe.models.preprocessors import NoPreprocessor
from rlframe.policy.recurrent_context import RecurrentContext

if TYPE_CHECKING:
    from rlframe.policy.policy import Policy


class PolicyCollector:
    """What the loop keeps for one policy."""

    def __init__(self, policy_id: str, policy: Policy, obs_filter: Any, *, with_env_steps: bool) -> None:
        self.policy_id = policy_id
        self.policy = policy
        self.filter = obs_filter
        space = policy.observation_space
        dtype = np.dtype(space.dtype or np.float32)
        plain = np.dtype(np.float32) if dtype == np.float64 or obs_filter is not None else dtype
        self.shape = tuple(space.shape or ())
        self.store = TrajectoryStore(self.shape, plain, policy.train_columns, with_env_steps=with_env_steps)
        preprocessor = policy._obs_preprocessor
        self.preprocess: Any = None if isinstance(preprocessor, NoPreprocessor) else preprocessor
        self.raw_space = getattr(space, "original_space", space)
        self.nested = policy.action_space_struct is not policy.action_space
        self.memory = RecurrentContext(policy, 1) if policy.needs_memory() else None
        self.free_places: list[int] = []
        self.places = 0
        #: Agents whose rows wait for an action, in the order of the rows.
        self.waiting: list[Agent] = []
        self.unfiltered = 0
        #: The exploration that was told that acting begins, None between samples.
        self.told: weakref.ref[Any] | None = None

    def prepared(self, raw: Any) -> Any:
        """Returns an observation as the policy takes it."""
        return raw if self.preprocess is None else self.preprocess.transform(raw)

    def take_place(self) -> int:
        """Returns a free place in the memory, which begins anew."""
        if self.memory is None:
            return 0
        if self.free_places:
            place = self.free_places.pop()
        else:
            place, self.places = self.places, self.places + 1
            self.memory.grow(max(16, 2 * self.places))
        self.memory.begin(place)
        return place


class Agent:
    """One agent in one episode."""

    __slots__ = ("collector", "done", "id", "index", "place", "row", "slot", "step", "total")

    def __init__(
        self, agent_id: Any, index: int, slot: int, collector: PolicyCollector, place: int | None = None
    ) -> None:
        self.id, self.index, self.slot, self.collector = agent_id, index, slot, collector
        self.row = -1  # its open row
        self.step = 0
        self.total = 0.0
        self.done = False
        self.place = collector.take_place() if place is None else place
