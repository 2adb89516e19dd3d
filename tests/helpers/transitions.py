"""Batches of transitions whose observations say which episode and step they are of, or are drawn from a few."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.sample_batch import SampleBatch


def observations(episode: int, steps: Any, shape: tuple[int, ...] = (2,), alphabet: int | None = None) -> Any:
    """Returns the observations of an episode's steps, `[len(steps), *shape]`.

    No two are equal; with an `alphabet` there are only that many, and most episodes have equal ones at equal steps.
    """
    rows = np.zeros((len(steps), *shape), np.float32)
    if alphabet is not None:
        rows[...] = ((np.asarray(steps) + episode // 3) % alphabet).reshape(-1, *(1,) * len(shape))
        return rows
    flat = rows.reshape(len(steps), -1)
    flat[:, 0] = np.asarray(steps) + (1000 * episode if flat.shape[1] == 1 else 0)
    flat[:, -1] += episode if flat.shape[1] > 1 else 0
    return rows


def fragment(
    episode: int,
    start: int,
    rows: int,
    *,
    n: int = 1,
    ends: bool = False,
    shape: tuple[int, ...] = (2,),
    alphabet: int | None = None,
) -> SampleBatch:
    """Returns `rows` consecutive transitions, after summing over n steps within the fragment.

    `rewards` are `100 * episode + t`, so that each transition is known by its reward too.
    """
    t = np.arange(start, start + rows)
    n_steps = np.minimum(n, start + rows - t).astype(np.int32)
    terminateds = (t + n_steps == start + rows) & ends
    return SampleBatch(
        obs=observations(episode, t, shape, alphabet),
        new_obs=observations(episode, t + n_steps, shape, alphabet),
        actions=t % 2,
        rewards=(100 * episode + t).astype(np.float32),
        terminateds=terminateds,
        truncateds=np.zeros(rows, bool),
        discounts=(0.9**n_steps * ~terminateds).astype(np.float32),
        n_steps=n_steps,
        eps_id=np.full(rows, episode),
        t=t,
    )


def check_transitions(batch: SampleBatch, alphabet: int | None = None) -> None:
    """Asserts that every row of a batch drawn from fragments of that alphabet is as it was when it was stored."""
    shape = batch["obs"].shape[1:]
    for row in range(batch.count):
        episode, t, n = int(batch["eps_id"][row]), int(batch["t"][row]), int(batch["n_steps"][row])
        np.testing.assert_array_equal(batch["obs"][row], observations(episode, [t], shape, alphabet)[0])
        np.testing.assert_array_equal(batch["new_obs"][row], observations(episode, [t + n], shape, alphabet)[0])
        assert batch["rewards"][row] == 100 * episode + t
        assert batch["actions"][row] == t % 2
