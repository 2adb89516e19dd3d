"""What every policy is given when it is made: an exploration, and the columns that its batches may have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTIONS,
    AGENT_INDEX,
    EPS_ID,
    INFOS,
    NEXT_OBS,
    OBS,
    PREV_ACTIONS,
    PREV_REWARDS,
    REWARDS,
    STATE_IN_PREFIX,
    STATE_OUT_PREFIX,
    TERMINATEDS,
    TRUNCATEDS,
    UNROLL_ID,
    T,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.view_requirements import ViewRequirement
from rlframe.exploration.make import make_exploration
from rlframe.models.numpy_dists import numpy_dist_for
from rlframe.policy.group_actions import GroupCategorical, explored_by_agent
from rlframe.policy.users_code import explored, users_way


class PolicyMaking:
    """How a `Policy` makes its distribution and its exploration, of what its config and its class say."""

    def exploration_options(self: Any) -> Mapping[str, Any]:
        """Returns the config of the exploration: GaussianNoise in place of draws where actions are not drawn."""
        options = self.config.exploration_config or {"type": "StochasticSampling"}
        undrawn = self.dist_type == "tanh" and options.get("type", "StochasticSampling") == "StochasticSampling"
        return {"type": "GaussianNoise"} if undrawn else options

    def _get_default_view_requirements(self: Any) -> dict[str, ViewRequirement]:
        """Returns the views that every policy has, which classes of users' own lay theirs upon."""
        return default_view_requirements(self.observation_space, self.action_space)

    def _add_views_of_model(self: Any) -> None:
        """Adds what the model wants to see to the views, and its states: those before a step, and those behind it."""
        self.view_requirements.update(getattr(self.model, "view_requirements", {}))
        states = self.model.get_initial_state() if hasattr(self.model, "get_initial_state") else []
        for index, state in enumerate(states):
            before, behind = f"{STATE_IN_PREFIX}{index}", f"{STATE_OUT_PREFIX}{index}"
            space = gym.spaces.Box(-np.inf, np.inf, np.shape(state), np.float32)
            self.view_requirements.setdefault(before, ViewRequirement(behind, shift=-1, space=space))
            self.view_requirements.setdefault(behind, ViewRequirement(space=space, used_for_compute_actions=False))

    def _built_in_distribution(self: Any) -> Any:
        """Returns what makes the NumPy distribution that belongs to the action space and `dist_type`."""
        if self.acts_for_group:
            return partial(GroupCategorical, n_agents=len(self.action_space_struct))
        return numpy_dist_for(self.action_space, self.dist_type)[0]

    def _create_exploration(self: Any) -> Any:
        """Returns the exploration that `exploration_options` describes."""
        return create_exploration(self)


def default_view_requirements(observation_space: Any, action_space: Any) -> dict[str, ViewRequirement]:
    """Returns the columns that every policy's batches may have, with their spaces."""
    scalar = gym.spaces.Box(-np.inf, np.inf, (), np.float32)
    acting: dict[str, Any] = {"used_for_compute_actions": False}
    return {
        OBS: ViewRequirement(space=observation_space),
        NEXT_OBS: ViewRequirement(data_col=OBS, shift=1, space=observation_space, **acting),
        ACTIONS: ViewRequirement(space=action_space, **acting),
        PREV_ACTIONS: ViewRequirement(data_col=ACTIONS, shift=-1, space=action_space, **acting),
        REWARDS: ViewRequirement(space=scalar, **acting),
        PREV_REWARDS: ViewRequirement(data_col=REWARDS, shift=-1, space=scalar, **acting),
        TERMINATEDS: ViewRequirement(space=scalar, **acting),
        TRUNCATEDS: ViewRequirement(space=scalar, **acting),
        SampleBatch.DONES: ViewRequirement(space=scalar, **acting),
        INFOS: ViewRequirement(space=scalar, **acting),
        EPS_ID: ViewRequirement(space=scalar, **acting),
        UNROLL_ID: ViewRequirement(space=scalar, **acting),
        AGENT_INDEX: ViewRequirement(space=scalar, **acting),
        T: ViewRequirement(space=scalar, **acting),
    }


def create_exploration(policy: Any) -> Any:
    """Returns the exploration that a policy's `exploration_options` describe."""
    made: Any = make_exploration(
        policy.exploration_options(),
        action_space=policy.action_space_struct[0] if policy.acts_for_group else policy.action_space,
        framework=policy.framework,
        policy_config=policy.config,
        model=getattr(policy, "model", None),
        num_workers=int(policy.config.get("num_workers", 0)),
        worker_index=int(policy.config.get("worker_index", 0)),
        rng=policy._exploration_rng,
    )
    made.policy = policy
    if policy.acts_for_group:
        made.get_exploration_action = partial(explored_by_agent, made.get_exploration_action)
    if policy._acts_in_points:
        made.get_exploration_action = partial(_explored_points, policy.action_space, made.get_exploration_action)
    if users_way(type(policy)) is not None:
        made.get_exploration_action = partial(explored, made.get_exploration_action)
    if policy.train_columns is not None and not set(made.reads) <= set(policy.train_columns):
        policy.train_columns = tuple(dict.fromkeys([*policy.train_columns, *made.reads]))
    return made


def _explored_points(space: Any, choose: Any, /, **kwargs: Any) -> tuple[Any, Any]:
    """Returns what an exploration gives, as points on the simplex: some of them choose numbers."""
    actions, logp = choose(**kwargs)
    return (corners(actions, space) if np.ndim(actions) == 1 else actions), logp


def corners(choices: NDArray[Any], space: Any) -> NDArray[np.float32]:
    """Returns choices of a Discrete space, integers `[...]`, as corners of the simplex, float32 `[..., n]`."""
    made: NDArray[np.float32] = np.eye(int(space.n), dtype=np.float32)[choices]
    return made
