"""What a program gives a policy to act on, checked: an observation of the environment, states and past columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import OBS, PREV_ACTIONS, PREV_REWARDS, STATE_IN_PREFIX
from rlframe.models.past_views import PREV_N_ACTIONS, PREV_N_REWARDS
from rlframe.models.preprocessors import NoPreprocessor
from rlframe.models.state_windows import NewestState
from rlframe.policy.recurrent_context import RecurrentContext
from rlframe.utils.errors import EnvError, NonFiniteError
from rlframe.utils.spaces.observations import describe, refuse_reset_pair


def observed(policy: Any, obs: Any) -> NDArray[Any]:
    """Returns one environment observation as a policy gets it: preprocessed and filtered, with the filter frozen.

    Raises:
        EnvError: If it is no observation of the space; names the leaf that does not fit.
        NonFiniteError: If it holds NaN or infinity.
    """
    given, preprocessor, wanted = obs, policy._obs_preprocessor, policy.observation_space.shape
    space = getattr(policy.observation_space, "original_space", policy.observation_space)
    if not hasattr(space, "spaces"):
        refuse_reset_pair(obs, "the observation to act on")
    if preprocessor is not None and wanted in (None, preprocessor.shape):  # else made by hand for raw observations
        obs = obs if _is_preprocessed(obs, preprocessor) else _preprocess(preprocessor, obs)
    array = _in_single(obs)
    if array.dtype == object or (wanted is not None and array.shape != wanted):
        raise EnvError(
            f"the observation to act on is a {describe(given)}; wanted one observation, without batch dimension, "
            f"of {policy.observation_space}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise NonFiniteError(f"the observation to act on has NaN or infinity in it: {array!r:.200}")
    return array if policy._obs_filter is None else np.asarray(policy._obs_filter(array, update=False))


def memory_inputs(policy: Any, given: Mapping[str, Any], count: int) -> dict[str, NDArray[Any]] | None:
    """Returns a policy's states and past columns for `count` rows out of what the caller gave; None without memory.

    Where nothing of them is given, an episode begins.

    Raises:
        ValueError: If some of them are given, and some are missing.
    """
    if not policy.needs_memory():
        return None
    fresh = RecurrentContext(policy, count).inputs(np.asarray(given[OBS]))
    for several, one in ((PREV_N_ACTIONS, PREV_ACTIONS), (PREV_N_REWARDS, PREV_REWARDS)):  # `prev_action=` has either
        if several in fresh and one in given and np.shape(given[one]) == fresh[several].shape:
            given = {several: given[one], **given}
    missing = [name for name in fresh if name not in given]
    if len(missing) == len(fresh):
        return fresh
    if missing:
        counts = {name: fresh[name].shape[1] for name in (PREV_N_ACTIONS, PREV_N_REWARDS) if name in missing}
        latest = "".join(f"; the latest {count} for {name}" for name, count in counts.items())
        raise ValueError(
            f"the model acts on {', '.join(fresh)}; got no {', '.join(missing)}: pass them (state=, prev_action=, "
            f"prev_reward={latest}), leave out all of them where an episode begins, or let trainer.make_actor() keep "
            "them"
        )
    columns = {name: _in_single(given[name]) for name in fresh}
    states = {name: column for name, column in columns.items() if name.startswith(STATE_IN_PREFIX)}
    unknown = [name for name in given if name.startswith(STATE_IN_PREFIX) and name not in states]
    wrong = [name for name, column in states.items() if column.shape != fresh[name].shape]
    if unknown or wrong:
        got = [np.shape(given[name]) for name in given if name.startswith(STATE_IN_PREFIX)]
        raise ValueError(
            f"got recurrent states of shapes {got}; wanted {[fresh[name].shape for name in states]} (first the "
            f"{count} rows), as get_initial_state() and compute_single_action() return them"
        )
    return columns


def _in_single(values: Any) -> NDArray[Any]:
    """Returns an array, in single precision where it was in double, as sampling has it."""
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _is_preprocessed(obs: Any, preprocessor: Any) -> bool:
    """Returns whether an observation is the result of a preprocessor already, by its shape; where that tells."""
    if not isinstance(obs, np.ndarray) or obs.shape != preprocessor.shape:
        return False
    return isinstance(preprocessor, NoPreprocessor) or preprocessor.shape != preprocessor._obs_space.shape


def _preprocess(preprocessor: Any, obs: Any) -> Any:
    try:
        return preprocessor.transform(obs)
    except (TypeError, ValueError, LookupError, AttributeError):
        preprocessor.check_shape(obs)  # says what is wrong with it
        raise


def states_of_one(policy: Any, states: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Returns the states [1, ...] of a single row without batch dimension; of windows over past ones, the newest."""
    if not states:
        return []
    model_config = policy.config.get("model") or {}
    if model_config.get("use_attention") or getattr(getattr(policy, "model", None), "state_windows", ()):
        return [NewestState.of(part[0]) for part in states]
    return [part[0] for part in states]
