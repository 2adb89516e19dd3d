"""Brings rows that were read into the form in which a worker's policies take them."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium as gym
import numpy as np
import tree
from numpy.typing import NDArray

from rlframe.data.column_dict import terminal_rows, trajectory_ends
from rlframe.data.columns import (
    ACTION_LOGP,
    ACTION_PROB,
    ACTIONS,
    BATCH_INDEXES,
    DISCOUNTS,
    DONES,
    EPS_ID,
    N_STEPS,
    NEXT_OBS,
    OBS,
    PREV_ACTIONS,
    REWARDS,
    TERMINATEDS,
    TRUNCATEDS,
    TURN,
    WEIGHTS,
    T,
)
from rlframe.data.n_step import n_step
from rlframe.data.nested import first_leaf
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.offline.io_context import IOContext
from rlframe.offline.json_format import take_normalized
from rlframe.offline.remembering import add_memory, as_rows, in_sequences
from rlframe.utils.errors import ConfigError, DataError
from rlframe.utils.spaces.space_maps import clip_action, normalize_action

logger = logging.getLogger(__name__)
_ROUNDED = 1e-3  # of an action, by its space's range


class PolicyRows:
    """Makes batches that were read such as the policies of a worker sample themselves.

    Actions come into the policies' space, observations get their dtype, rows of off-policy algorithms their discounts,
    and trajectories are postprocessed if `postprocess_inputs` says so. Without a worker, batches stay as they are.

    Args:
        ioctx: The worker's context. `input_config["n_step"]` says how many rewards rows without the column `n_steps`
            hold the sum of; 1 where it is not given.
    """

    def __init__(self, ioctx: IOContext) -> None:
        self._worker, self._config = ioctx.worker, ioctx.config
        self._told_of_bounds = False
        self._n_step = ioctx.input_config.get("n_step", 1)
        if not isinstance(self._n_step, int) or self._n_step < 1:
            raise ConfigError(
                f"input_config.n_step: got {self._n_step!r}, wanted how many rewards each row sums: 1, 2, ..."
            )

    def __call__(
        self, batch: SampleBatch | MultiAgentBatch, actions_normalized: bool | None = None
    ) -> SampleBatch | MultiAgentBatch:
        """Returns a batch as the worker's policies take it.

        Args:
            batch: Rows as they were read; its columns may be replaced.
            actions_normalized: Whether actions are as policies choose them; None: what the rows say in a column of
                their own, or else the config.

        Raises:
            DataError: If the rows are other policies' or of other spaces.
        """
        worker, said = self._worker, take_normalized(batch)
        if worker is None:
            return batch
        if actions_normalized is None:
            actions_normalized = said
        if actions_normalized is None:
            actions_normalized = bool(self._config.actions_in_input_normalized)
        if isinstance(batch, MultiAgentBatch):
            unknown = [pid for pid in batch.policy_batches if pid not in worker.policy_map]
            if unknown:
                raise DataError(
                    f"input: got rows of the policies {unknown}, wanted some of {list(worker.policy_map)}; name the "
                    'policies alike in "multiagent", or in the files'
                )
            for pid, part in batch.policy_batches.items():
                batch.policy_batches[pid] = self._rows(part, worker.policy_map[pid], actions_normalized)
            return batch
        if DEFAULT_POLICY_ID not in worker.policy_map:
            raise DataError(
                f"input: got rows of one policy, wanted those of {list(worker.policy_map)}: lines whose type is "
                "MultiAgentBatch"
            )
        return self._rows(batch, worker.policy_map[DEFAULT_POLICY_ID], actions_normalized)

    def _rows(self, batch: SampleBatch, policy: Any, actions_normalized: bool) -> SampleBatch:
        batch = as_rows(batch, policy)
        _check_observations(batch, policy)
        if ACTIONS in batch and not actions_normalized and not self._told_of_bounds:
            self._told_of_bounds = _tell_of_bounds(batch[ACTIONS], policy.action_space)
        for name in (ACTIONS, PREV_ACTIONS):
            if name in batch:
                batch[name] = _ActionColumn(name, policy, self._config, actions_normalized).converted(batch[name])
        if batch.get(REWARDS) is not None:
            batch[REWARDS] = np.asarray(batch[REWARDS], np.float32)
        for name in (WEIGHTS, BATCH_INDEXES):  # they speak of the buffer that the rows were in
            batch.pop(name, None)
        add_memory(batch, policy)
        # Rows whose rewards were summed have been postprocessed when they were sampled.
        summed = self._n_step > 1 or (N_STEPS in batch and (np.asarray(batch[N_STEPS]) > 1).any())
        if summed and policy.is_recurrent():
            raise DataError(
                "input: got rows whose rewards are sums of several steps, and a policy with memory, which learns from "
                "the steps of sequences; wanted data that were written with n_step=1"
            )
        if self._config.postprocess_inputs and not summed:
            made: SampleBatch = SampleBatch.concat_samples(
                [policy.postprocess_trajectory(trajectory) for trajectory in split_trajectories(batch)]
            )
            return made
        return self._with_discounts(batch, policy)

    def _with_discounts(self, batch: SampleBatch, policy: Any) -> SampleBatch:
        """Gives rows of single steps the discounts of the policy's gamma, and says how many rewards all rows hold."""
        known = N_STEPS in batch or DISCOUNTS in batch
        counted = "n_step" in policy.config or DISCOUNTS in (policy.columns_learned_from() or ())
        if not counted or (DONES not in batch and TERMINATEDS not in batch):
            return batch
        gamma = float(policy.config["gamma"])
        if not known and self._n_step > 1:
            batch[N_STEPS] = np.full(batch.count, self._n_step, np.int32)
            batch[DISCOUNTS] = np.float32(gamma**self._n_step) * ~terminal_rows(batch)
        elif not known or (N_STEPS in batch and (np.asarray(batch[N_STEPS]) == 1).all()):
            n_step(batch, 1, gamma)
        return batch


def as_sampled(batch: SampleBatch | MultiAgentBatch, policies: Any) -> SampleBatch | MultiAgentBatch:
    """Returns rows with the columns that off-policy policies have when they sample, so that one buffer takes both.

    Other policies' rows, and those of a loss that reads all columns, keep theirs. Rows of policies with memory are cut
    into sequences.

    Args:
        batch: Rows that were brought to the policies.
        policies: The policies by id.
    """
    if isinstance(batch, MultiAgentBatch):
        made = {
            pid: in_sequences(_narrowed(part, policies[pid]), policies[pid])
            for pid, part in batch.policy_batches.items()
        }
        return MultiAgentBatch(made, batch.env_steps())
    policy = policies[DEFAULT_POLICY_ID]
    return in_sequences(_narrowed(batch, policy), policy)


def _narrowed(batch: SampleBatch, policy: Any) -> SampleBatch:
    learned = policy.columns_learned_from()
    if learned is None or not policy.config.get("replay_buffer_config"):
        return batch
    kept = {OBS, ACTIONS, REWARDS, DISCOUNTS, N_STEPS, *learned}
    columns = {name: column for name, column in batch.items() if name in kept}
    if DONES in batch or TERMINATEDS in batch:
        terminal = terminal_rows(batch)
        columns[TERMINATEDS] = terminal
        columns[TRUNCATEDS] = np.asarray(
            batch.get(TRUNCATEDS, np.asarray(batch.get(DONES, terminal), bool) & ~terminal), bool
        )
        columns[DONES] = terminal | columns[TRUNCATEDS]
    last = trajectory_ends(batch)
    first = np.flatnonzero(np.append(True, last[:-1]))
    lengths = np.diff(np.append(first, batch.count))
    columns[EPS_ID] = np.asarray(batch.get(EPS_ID, np.cumsum(last) - last), np.int64)
    columns[T] = np.asarray(batch.get(TURN, batch.get(T, np.arange(batch.count) - np.repeat(first, lengths))), np.int64)
    return batch._like(columns)


class _ActionColumn:
    """A column of actions on its way into a policy's space."""

    def __init__(self, name: str, policy: Any, config: Any, normalized: bool) -> None:
        self._name, self._policy, self._config, self._normalized = name, policy, config, normalized

    def converted(self, actions: Any) -> Any:
        """Returns actions of the environment's range in the policy's."""
        struct = self._policy.action_space_struct
        leaves = tree.flatten(struct)
        if isinstance(struct, gym.Space):
            return self._leaf(actions, struct)
        if not isinstance(actions, np.ndarray):
            return tree.map_structure_up_to(struct, lambda leaf, column: self._leaf(column, leaf), struct, actions)
        # Side by side, as sampling flattens them.
        sizes = [int(np.prod(leaf.shape)) for leaf in leaves]
        if actions.ndim != 2 or actions.shape[1] != sum(sizes):
            raise DataError(
                f"input: got {self._name!r} of shape {actions.shape[1:]} by row, wanted ({sum(sizes)},) for the action "
                f"space {self._policy.action_space}"
            )
        parts = np.split(actions, np.cumsum(sizes)[:-1], axis=1)
        made = [self._leaf(part, leaf) for part, leaf in zip(parts, leaves, strict=True)]
        return np.concatenate([part.reshape(len(actions), -1) for part in made], axis=1)

    def _leaf(self, actions: Any, space: Any) -> Any:
        config, column = self._config, np.asarray(actions)
        if space.shape is not None and column.size == len(column) * int(np.prod(space.shape)):
            column = column.reshape(len(column), *space.shape)
        elif space.shape is not None:
            raise DataError(f"input: got {self._name!r} of shape {column.shape[1:]} by row, wanted {space.shape}")
        if isinstance(space, gym.spaces.Discrete) and self._name == ACTIONS:
            self._check_choices(column, space)
        if column.dtype.kind in "iuf" and space.dtype is not None and space.dtype.kind in "iuf":
            column = column.astype(_sampled_dtype(space.dtype), copy=False)
        if not self._normalized and isinstance(space, gym.spaces.Discrete):
            column = column - column.dtype.type(space.start)
        if config.normalize_actions and not self._normalized:
            column = normalize_action(column, space)
        if config.clip_actions and not config.normalize_actions:
            column = clip_action(column, space)
        return column

    def _check_choices(self, column: Any, space: gym.spaces.Discrete) -> None:
        """Refuses what is none of a space's choices."""
        low = 0 if self._normalized else int(space.start)
        high = low + int(space.n) - 1
        numbers = column.dtype.kind in "biuf"
        odd = np.flatnonzero((column != np.floor(column)) | (column < low) | (column > high)) if numbers else [0]
        if len(odd):
            raise DataError(
                f"input: got the action {column[odd[0]].item()!r} ({column.dtype}), wanted a whole number from {low} "
                f"to {high} for the action space {space}"
            )


def split_trajectories(batch: SampleBatch) -> list[SampleBatch]:
    """Returns one batch for each episode, or part of one, that follows another in a batch."""
    stops = (np.flatnonzero(trajectory_ends(batch)) + 1).tolist()
    return [batch[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def _tell_of_bounds(actions: Any, space: Any) -> bool:
    """Warns of actions that the environment does not take, such as those in other units; returns whether it has."""
    column = np.asarray(actions) if isinstance(space, gym.spaces.Box) else np.zeros(0)
    if not column.size or column.dtype.kind not in "iuf" or not space.is_bounded():
        return False
    low, high = float(space.low.min()), float(space.high.max())
    slack = _ROUNDED * (high - low)
    if column.min() >= low - slack and column.max() <= high + slack:
        return False
    logger.warning(
        "input: got actions from %.4g to %.4g, and the action space is %s; are they in other units? Of actions that "
        "are as policies choose them, say actions_in_input_normalized",
        column.min(), column.max(), space,
    )  # fmt: skip
    return True


def _check_observations(batch: SampleBatch, policy: Any) -> None:
    """Gives observations the policy's dtype; refuses those of another shape."""
    wanted = getattr(policy.observation_space, "shape", None)
    for name in (OBS, NEXT_OBS):
        column = batch.get(name)
        if wanted is None or column is None or not isinstance(column, np.ndarray):
            continue
        got = first_leaf(column).shape[1:]
        if got != tuple(wanted):
            raise DataError(
                f"input: got {name!r} of shape {got} by row, wanted {tuple(wanted)}, as the policy's preprocessor "
                "gives it; write observations as get_preprocessor(space)(space).transform(obs) returns them"
            )
        dtype = policy.observation_space.dtype
        if dtype is not None and dtype.kind in "iuf" and column.dtype.kind in "iuf":
            batch[name] = column.astype(_sampled_dtype(dtype), copy=False)


def _sampled_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the dtype of a space as sampled columns have it: no float64."""
    return np.dtype(np.float32) if dtype == np.float64 else dtype


def logged_log_likelihood(rows: SampleBatch) -> NDArray[np.float64] | None:
    """Returns the logarithms `[B]` of the probabilities (or densities) of logged actions; None where none are known.

    They are `action_prob`'s, as in RLlib; where float32 cannot hold a density, and of rows without that column,
    `action_logp`.
    """
    logp = np.asarray(rows[ACTION_LOGP], np.float64) if ACTION_LOGP in rows else None
    if ACTION_PROB not in rows:
        return logp
    probs = np.asarray(rows[ACTION_PROB], np.float64)
    with np.errstate(divide="ignore"):
        logs = np.log(probs)
    held = np.isfinite(probs) & (probs >= np.finfo(np.float32).tiny)
    return logs if logp is None else np.where(held, logs, logp)


__all__ = ["PolicyRows", "as_sampled", "logged_log_likelihood", "split_trajectories"]
