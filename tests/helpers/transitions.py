"""Batches of transitions whose observations say which episode and step they are of."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.sample_batch import SampleBatch


def observations(episode: int, steps: Any, shape: tuple[int, ...] = (2,)) -> Any:
    """Returns the observations of an episode's steps, `[len(steps), *shape]`: no two are equal."""
    rows = np.zeros((len(steps), *shape), np.float32)
    flat = rows.reshape(len(steps), -1)
    flat[:, 0] = np.asarray(steps) + (1000 * episode if flat.shape[1] == 1 else 0)
    flat[:, -1] += episode if flat.shape[1] > 1 else 0
    return rows


def fragment(
    episode: int, start: int, rows: int, *, n: int = 1, ends: bool = False, shape: tuple[int, ...] = (2,)
) -> SampleBatch:
    """Returns `rows` consecutive transitions, after summing over n steps within the fragment.

    `rewards` are `100 * episode + t`, so that each transition is known by its reward too.
    """
    t = np.arange(start, start + rows)
    n_steps = np.minimum(n, start + rows - t).astype(np.int32)
    terminateds = (t + n_steps == start + rows) & ends
    return SampleBatch(
        obs=observations(episode, t, shape),
        new_obs=observations(episode, t + n_steps, shape),
        actions=t % 2,
        rewards=(100 * episode + t).astype(np.float32),
        terminateds=terminateds,
        truncateds=np.zeros(rows, bool),
        discounts=(0.9**n_steps * ~terminateds).astype(np.float32),
        n_steps=n_steps,
        eps_id=np.full(rows, episode),
        t=t,
    )


def check_transitions(batch: SampleBatch) -> None:
    """Asserts that every row of a batch drawn from fragments is as it was when it was stored."""
    shape = batch["obs"].shape[1:]
    for row in range(batch.count):
        episode, t, n = int(batch["eps_id"][row]), int(batch["t"][row]), int(batch["n_steps"][row])
        np.testing.assert_array_equal(batch["obs"][row], observations(episode, [t], shape)[0])
        np.testing.assert_array_equal(batch["new_obs"][row], observations(episode, [t + n], shape)[0])
        assert batch["rewards"][row] == 100 * episode + t
        assert batch["actions"][row] == t % 2
