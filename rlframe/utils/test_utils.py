"""What tests of algorithms and of user code compare and check with."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.utils.framework import try_import_tf, try_import_torch
from rlframe.utils.numpy import convert_to_numpy

_logger = logging.getLogger(__name__)


def check(
    x: Any,
    y: Any,
    decimals: int = 5,
    atol: float | None = None,
    rtol: float | None = None,
    false: bool = False,
) -> None:
    """Compares two structures of numbers, arrays, tensors and plain values.

    Args:
        x: What was got.
        y: What was wanted.
        decimals: Digits after the point that must agree, where neither tolerance is given.
        atol: Absolute tolerance.
        rtol: Relative tolerance.
        false: Whether they must differ instead.

    Raises:
        AssertionError: If they differ (or, with `false`, do not); the place in the structure is in the message.
    """
    if atol is None and rtol is None:
        # What rounds to the same digits may lie this far apart.
        tolerances = {"atol": 1.5 * 10.0**-decimals, "rtol": 0.0}
    else:
        tolerances = {"atol": 0.0 if atol is None else atol, "rtol": 1e-7 if rtol is None else rtol}
    fault = _difference(x, y, tolerances, "")
    if false and fault is None:
        raise AssertionError(f"Both are {x!r}; wanted them to differ.")
    if not false and fault is not None:
        raise AssertionError(fault)


def _difference(x: Any, y: Any, tolerances: dict[str, float], path: str) -> str | None:
    """Returns a sentence about the first difference, None if there is none."""
    x, y = (value if isinstance(value, (Mapping, list, tuple)) else convert_to_numpy(value) for value in (x, y))
    where = f"At {path}: " if path else ""
    if isinstance(x, Mapping) and isinstance(y, Mapping):
        if set(x) != set(y):
            return f"{where}keys are {sorted(map(str, x))}; wanted {sorted(map(str, y))}."
        faults = (_difference(x[key], y[key], tolerances, f"{path}[{key!r}]") for key in x)
        return next((fault for fault in faults if fault), None)
    if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
        if len(x) != len(y):
            return f"{where}{len(x)} items; wanted {len(y)}."
        faults = (
            _difference(a, b, tolerances, f"{path}[{index}]") for index, (a, b) in enumerate(zip(x, y, strict=True))
        )
        return next((fault for fault in faults if fault), None)
    if isinstance(x, Mapping) or isinstance(y, Mapping):
        return f"{where}got {type(x).__name__}; wanted {type(y).__name__}."
    return _leaf_difference(x, y, tolerances, where)


def _leaf_difference(x: Any, y: Any, tolerances: dict[str, float], where: str) -> str | None:
    if x is None or y is None or isinstance(x, (str, bytes)) or isinstance(y, (str, bytes)):
        return None if type(x) is type(y) and x == y else f"{where}got {x!r}; wanted {y!r}."
    a, b = np.asarray(x), np.asarray(y)
    numbers = a.dtype.kind in "biufc" and b.dtype.kind in "biufc"
    if not numbers:
        return None if a.shape == b.shape and bool(np.all(a == b)) else f"{where}got {x!r}; wanted {y!r}."
    try:
        np.testing.assert_allclose(a, b, equal_nan=True, rtol=tolerances["rtol"], atol=tolerances["atol"])
    except AssertionError as error:
        return f"{where}{error}"
    return None


def framework_iterator(
    config: dict[str, Any] | None = None,
    frameworks: str | Sequence[str] = ("tf2", "torch"),
    session: bool = False,
    **kwargs: Any,  # noqa: ARG001 (other options of RLlib's)
) -> Iterator[Any]:
    """Yields the frameworks that are installed, one after the other, and sets `config["framework"]` to each.

    Args:
        config: The config to change, if any; afterwards it is as it was.
        frameworks: Names to go through: "torch", "tf2", "tf", "tfe".
        session: Whether to yield pairs of a framework and a session, which is always None: there are none.
        **kwargs: Accepted and not needed.
    """
    names = [frameworks] if isinstance(frameworks, str) else list(frameworks)
    before = None if config is None else config.get("framework")
    try:
        for name in names:
            there = try_import_torch()[0] if name == "torch" else try_import_tf()[1]
            if there is None:
                _logger.warning("framework_iterator leaves out %s, which is not installed.", name)
                continue
            if config is not None:
                config["framework"] = name
            yield (name, None) if session else name
    finally:
        if config is not None:
            config["framework"] = before


def check_learning_achieved(tune_results: Any, min_reward: float, evaluation: bool | None = False) -> None:
    """Checks that the last result of some trial reached a reward.

    Args:
        tune_results: What `tune.run()` returned, or a list of result dicts.
        min_reward: The wanted `episode_reward_mean`.
        evaluation: Whether to look at the evaluation's.

    Raises:
        ValueError: If no trial reached it.
    """
    trials = getattr(tune_results, "trials", tune_results)
    results = [getattr(trial, "last_result", trial) for trial in trials]
    rewards = [
        float((r.get("evaluation", {}) if evaluation else r).get("episode_reward_mean", math.nan)) for r in results
    ]
    best = max((reward for reward in rewards if not math.isnan(reward)), default=math.nan)
    if not best >= min_reward:
        raise ValueError(f"The best episode_reward_mean is {best} (of {rewards}); wanted at least {min_reward}.")


def check_train_results(train_results: Mapping[str, Any]) -> Mapping[str, Any]:
    """Checks that a result of `Trainer.train()` has the keys that programs rely on; returns it.

    Raises:
        ValueError: If a key is missing; all missing ones are named.
    """
    wanted = (
        "config",
        "custom_metrics",
        "date",
        "episode_len_mean",
        "episode_reward_max",
        "episode_reward_mean",
        "episode_reward_min",
        "episodes_this_iter",
        "episodes_total",
        "hist_stats",
        "info",
        "iterations_since_restore",
        "policy_reward_mean",
        "sampler_perf",
        "time_this_iter_s",
        "time_total_s",
        "timers",
        "timesteps_total",
        "training_iteration",
    )
    missing = [key for key in wanted if key not in train_results]
    if "info" in train_results and "learner" not in train_results["info"]:
        missing.append("info.learner")
    if missing:
        raise ValueError(f"The result lacks {', '.join(missing)}; it has {', '.join(sorted(train_results))}.")
    return train_results


def check_compute_single_action(
    trainer: Any,
    include_state: bool = False,
    include_prev_action_reward: bool = False,
    policy_id: str = "default_policy",
) -> None:
    """Checks that a trainer answers observations of its environment with actions of the environment.

    Each case is tried with and without exploration, and with and without all outputs.

    Args:
        trainer: A trainer.
        include_state: Whether to give the policy's initial state.
        include_prev_action_reward: Whether to give an action and a reward before.
        policy_id: The policy to ask.

    Raises:
        ValueError: If an action is outside the action space, or the outputs have another form.
    """
    policy = trainer.get_policy(policy_id)
    space = getattr(policy.observation_space, "original_space", policy.observation_space)
    given: dict[str, Any] = {"state": policy.get_initial_state()} if include_state else {}
    if include_prev_action_reward:
        given.update(prev_action=policy.action_space.sample(), prev_reward=1.0)
    for explore in (True, False):
        asked = {**given, "policy_id": policy_id, "explore": explore}
        action = trainer.compute_single_action(space.sample(), **asked)
        action = action[0] if include_state else action
        full = trainer.compute_single_action(space.sample(), **asked, full_fetch=True)
        if not (isinstance(full, tuple) and len(full) == 3):
            raise ValueError(f"full_fetch=True gave {full!r}; wanted (action, states, extra outputs).")
        for got in (action, full[0]):
            if not policy.action_space.contains(got):
                raise ValueError(
                    f"compute_single_action(explore={explore}) gave {got!r}; wanted one of {policy.action_space}."
                )
