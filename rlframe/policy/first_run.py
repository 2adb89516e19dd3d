"""The first run of what users wrote: postprocessing and loss on rows of zeros, before anything is sampled."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.models.probe import declare_past
from rlframe.policy.users_code import needs_first_run, overridden_by_user, zeros

if TYPE_CHECKING:
    from rlframe.data.sample_batch import SampleBatch

_LOGGER = logging.getLogger(__name__)


def run_first(policy: Any, *, again: bool = False) -> None:
    """Runs postprocessing and loss of a policy once where they are the user's own; see `LearningPolicy.run_first`."""
    if policy._first_run_waits:
        return
    if overridden_by_user(type(policy.model), "custom_loss"):
        policy._loss_reads_all = True
        policy.collect_all_columns()
    if not policy._loss_initialized and needs_first_run(type(policy)):
        try:
            policy._initialize_loss_from_dummy_batch()
        except AttributeError:
            if again:
                return
            raise
    policy._loss_initialized = True


def initialize_loss(policy: Any, stats_fn: Callable[[Any, Any], Any] | None) -> None:
    """Runs postprocessing and loss of a policy once, and leaves its counts and streams as they were.

    Args:
        policy: The policy.
        stats_fn: `fn(policy, train_batch)`, called behind the loss.
    """
    step, streams = policy.global_timestep, (policy._action_rng, policy._exploration_rng)
    drawn = [stream.bit_generator.state for stream in streams]
    with policy.seeded("first_run"), np.errstate(all="ignore"):
        try:
            _run_on_zeros(policy, stats_fn)
        except Exception as error:
            if hasattr(error, "add_note"):  # Python 3.11
                error.add_note(
                    "This was the first run of the policy's postprocessing and loss, on rows of zeros and without "
                    "other agents, before anything is sampled; policy.loss_initialized() is False in it."
                )
            raise
    for stream, state in zip(streams, drawn, strict=True):
        stream.bit_generator.state = state
    policy.global_timestep = step
    policy._needs_memory = None
    policy._loss_initialized = True


def _run_on_zeros(policy: Any, stats_fn: Callable[[Any, Any], Any] | None) -> None:
    """Runs postprocessing and loss on rows of zeros, with the columns that the model turns out to read."""
    while True:
        try:
            with _taken_back_on_errors(policy, policy.model):
                samples = zeros(policy)
                if overridden_by_user(type(policy.exploration), "postprocess_trajectory"):
                    samples = policy.exploration.postprocess_trajectory(policy, samples) or samples
                made = _postprocessed(policy, samples)
                if made is not None:
                    policy._loss_of_zeros(made, stats_fn)
            return
        except KeyError as error:
            if not declare_past(policy.model, error):
                raise
            policy.view_requirements.update(policy.model.view_requirements)
            policy._needs_memory = None  # it may need that now, for the columns of the step before


def _postprocessed(policy: Any, samples: SampleBatch) -> SampleBatch | None:
    """Returns postprocessed rows of zeros; None where a user's postprocessing takes real ones only, which it says.

    RLlib up to 1.0 ran no postprocessing in PyTorch before it sampled, and told TensorFlow's of no infos: programs read
    the dicts of `infos`, other agents and the episode, or insist on the end of one. All columns are kept for them. What
    is wrong with real rows, too, is raised by the first of them.
    """
    try:
        made: SampleBatch = policy.postprocess_trajectory(samples)
    except (AssertionError, AttributeError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, AttributeError) and not _is_of_zeros(error):
            raise
        policy._loss_reads_all = True
        policy.collect_all_columns()
        _LOGGER.warning(
            "%s postprocesses no rows of zeros (%s: %s), so its loss is not tried before it samples; where "
            "policy.loss_initialized() is False, return the batch with the columns that the loss reads.",
            type(policy).__name__, type(error).__name__, error,
        )  # fmt: skip
        return None
    return made


def _is_of_zeros(error: AttributeError) -> bool:
    """Returns whether what lacks an attribute is a zero in the place of a dict, or the episode that is not there."""
    return error.name is not None and (error.obj is None or isinstance(error.obj, (np.generic, np.ndarray)))


@contextlib.contextmanager
def _taken_back_on_errors(*owners: Any) -> Iterator[None]:
    """Takes back what a run that failed has set: users' code tells the first run by what is not there yet."""
    before = [set(vars(owner)) for owner in owners]
    try:
        yield
    except Exception:
        for owner, names in zip(owners, before, strict=True):
            for name in set(vars(owner)) - names:
                del vars(owner)[name]
        raise
