"""The first run of what users wrote: postprocessing and loss on rows of zeros, before anything is sampled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlframe.models.probe import declare_past
from rlframe.policy.users_code import needs_first_run, overridden_by_user, zeros


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
                policy._loss_of_zeros(policy.postprocess_trajectory(samples), stats_fn)
            return
        except KeyError as error:
            if not declare_past(policy.model, error):
                raise
            policy.view_requirements.update(policy.model.view_requirements)
            policy._needs_memory = None  # it may need that now, for the columns of the step before


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
