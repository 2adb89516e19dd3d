"""Actions that a program asks a policy for: of the environment's space, for the environment's observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tree
from numpy.typing import NDArray

from rlframe.data.columns import INFOS, OBS, PREV_ACTIONS, PREV_REWARDS, STATE_IN_PREFIX
from rlframe.policy.env_actions import EnvActions, to_zero
from rlframe.policy.given_rows import memory_inputs, observed, states_of_one
from rlframe.policy.inference import Inference
from rlframe.policy.policy_lock import OwnLock
from rlframe.policy.users_code import method
from rlframe.utils.spaces.space_maps import map_space, normalize_action


class RequestedActions(EnvActions):
    """What a `Policy` answers who is no sampler: RLlib's `compute_*` methods, actions of the environment's space."""

    forward: Any
    forward_with_memory: Any
    notice_own_parts: Any
    #: Held while the policy acts or learns, so that threads do so in turn.
    _policy_lock = OwnLock()

    def batched(self, actions: Any) -> Any:
        """Returns actions [B, ...] as arrays, of what a user's method gave: also a list of single ones."""
        if isinstance(actions, list) and self.action_space_struct is not self.action_space:
            return tree.map_structure(lambda *leaves: np.stack(leaves), *actions)
        return actions if isinstance(actions, (tuple, dict)) else np.asarray(actions)

    def acting_columns(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the columns that acting takes: what the caller gave but for infos, and memory where it needs one."""
        obs = np.asarray(given[OBS])
        memory = memory_inputs(self, given, len(obs)) or {}
        return {**{key: value for key, value in given.items() if key != INFOS}, OBS: obs, **memory}

    def compute_actions_from_input_dict(
        self,
        input_dict: Mapping[str, Any],
        explore: bool | None = None,
        timestep: int | None = None,
        episodes: Any = None,
        **kwargs: Any,
    ) -> tuple[NDArray[Any], list[NDArray[Any]], dict[str, NDArray[Any]]]:
        """Returns actions [B, ...], recurrent states (`[]`) and extra columns for a dict of columns with `obs`."""
        explore = bool(self.config.explore) if explore is None else explore
        with self._policy_lock:
            self.notice_own_parts()
            inference: Inference = self.inference  # type: ignore[attr-defined]  # the policy's
            return inference.compute(input_dict, explore, timestep, episodes, **kwargs)

    def compute_actions(
        self,
        obs_batch: Any,
        state_batches: list[Any] | None = None,
        prev_action_batch: Any = None,
        prev_reward_batch: Any = None,
        info_batch: Any = None,
        episodes: Any = None,
        explore: bool | None = None,
        timestep: int | None = None,
        **kwargs: Any,
    ) -> tuple[NDArray[Any], list[NDArray[Any]], dict[str, NDArray[Any]]]:
        """Returns actions [B, ...], states and extra columns for preprocessed observations [B, ...]."""
        input_dict = {OBS: np.asarray(obs_batch)}
        for name, column in ((PREV_ACTIONS, prev_action_batch), (PREV_REWARDS, prev_reward_batch)):
            if column is not None:
                input_dict[name] = np.asarray(column)
        for index, state in enumerate(state_batches or []):
            input_dict[f"state_in_{index}"] = np.asarray(state)
        return self.compute_actions_from_input_dict(input_dict, explore, timestep, episodes, **kwargs)

    def compute_single_action(
        self,
        obs: Any = None,
        state: list[Any] | None = None,
        prev_action: Any = None,
        prev_reward: Any = None,
        info: Any = None,
        episode: Any = None,
        clip_actions: bool | None = None,
        explore: bool | None = None,
        timestep: int | None = None,
        *,
        input_dict: Mapping[str, Any] | None = None,
        unsquash_action: bool | None = None,
        clip_action: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """Returns one action of the environment's space for one observation of the environment.

        The whole pipeline runs: preprocessor, filter (frozen), model, exploration, un-squashing or clipping as the
        config says. An observation that already has the preprocessed shape is not preprocessed again.

        Args:
            obs: One observation, without batch dimension.
            state: Recurrent state, a list of arrays; None begins an episode.
            prev_action: The action before, of the environment's space, for models that want it.
            prev_reward: The reward before, for models that want it.
            info: The environment's info, for policies whose own `compute_actions` reads `info_batch`.
            episode: The episode that it is for, where a policy acts by what it sees of it.
            clip_actions: Older spelling of `clip_action`.
            explore: Whether to explore; None takes `config["explore"]`.
            timestep: Global step for exploration schedules; None takes the policy's own.
            input_dict: Alternative to `obs`: a dict of columns without batch dimension.
            unsquash_action: Maps [-1, 1] to the space's bounds; None takes `config["normalize_actions"]`.
            clip_action: Clips to the space's bounds; None takes `config["clip_actions"]`.
            **kwargs: Passed on to `compute_actions_from_input_dict`.

        Returns:
            The action, the list of new states, and the extra outputs, all without batch dimension.
        """
        given = dict(input_dict) if input_dict is not None else {OBS: obs}
        if prev_action is not None:
            given[PREV_ACTIONS] = self.from_env_action(prev_action)
        if prev_reward is not None:
            given[PREV_REWARDS] = prev_reward
        if info is not None:
            given[INFOS] = info
        given[OBS] = self._observed(given[OBS])
        batched = {key: np.asarray(value)[None] for key, value in given.items()}
        for index, part in enumerate(() if state is None else state):
            batched[f"state_in_{index}"] = np.asarray(getattr(part, "window", part))[None]
        episodes = None if episode is None else [episode]
        actions, states, extra = self.compute_actions_from_input_dict(
            batched, explore, timestep, episodes=episodes, **kwargs
        )
        clip = clip_actions if clip_action is None else clip_action
        action = self.to_env_actions(self.batched(actions), unsquash=unsquash_action, clip=clip)
        return (
            unbatch_one(action),
            states_of_one(self, states),
            {key: column[0] for key, column in extra.items()},
        )

    def _observed(self, obs: Any) -> NDArray[Any]:
        """Returns one environment observation preprocessed and filtered (filter frozen); see `given_rows.observed`."""
        return observed(self, obs)

    def compute_log_likelihoods(
        self: Any,
        actions: Any,
        obs_batch: Any,
        state_batches: Any = None,
        prev_action_batch: Any = None,
        prev_reward_batch: Any = None,
        actions_normalized: bool = True,
    ) -> Any:
        """Returns log π(actions | obs) [B]; `actions` in the policy's space unless `actions_normalized` is False.

        As RLlib's: a tensor without gradients in PyTorch, for `logp.cpu().numpy()`, else an array.
        """
        if not actions_normalized and self._counts_from_elsewhere:
            actions = map_space(to_zero, actions, self.action_space_struct)
        if not actions_normalized and self.config.normalize_actions:
            actions = normalize_action(actions, self.action_space_struct)
        given = {OBS: np.asarray(obs_batch), PREV_ACTIONS: prev_action_batch, PREV_REWARDS: prev_reward_batch}
        given.update({f"{STATE_IN_PREFIX}{index}": state for index, state in enumerate(state_batches or [])})
        known = {name: column for name, column in given.items() if column is not None}
        inputs = memory_inputs(self, known, len(known[OBS]))
        with self._policy_lock:
            if inputs is None:
                dist_inputs, _ = self.forward(known[OBS], False)
            else:
                dist_inputs, _, _ = self.forward_with_memory(known[OBS], inputs, False)
        nested = isinstance(self.action_space_struct, (tuple, dict)) and isinstance(actions, (tuple, dict))
        wanted = actions if nested else np.asarray(actions)
        if self.numpy_dist is None and self.framework is not None:  # a distribution of the user's own
            inputs, taken = self.to_tensors(dist_inputs), self.to_tensors(wanted)
            logp = self.to_numpy(self.dist_class(inputs, self.model).logp(taken))
        else:
            logp = method(self, "distribution")(dist_inputs).logp(wanted)
        logp = np.asarray(logp, np.float32)
        return self.to_tensors(logp) if self.framework == "torch" else logp


def unbatch_one(actions: Any) -> Any:
    """Returns the only action of a batch of one, through nested tuples and dicts."""
    if isinstance(actions, tuple):
        return tuple(unbatch_one(part) for part in actions)
    if isinstance(actions, Mapping):
        return {key: unbatch_one(part) for key, part in actions.items()}
    return actions[0]
