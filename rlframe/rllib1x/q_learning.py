"""What RLlib's DQN was made of in both frameworks, for policies that are made of functions."""

from __future__ import annotations

from typing import Any

from rlframe.policy.schedules import LearningRateSchedule


def setup_early_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Starts the schedule of the learning rate."""
    del obs_space, action_space
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])


def build_q_stats(policy: Any, batch: Any) -> dict[str, Any]:
    """Returns what the loss kept of the Q-values, and the learning rate."""
    del batch
    kept = {name: value for name, value in policy._loss_outputs.items() if name != "td_error"}
    return {"cur_lr": getattr(policy, "cur_lr", policy.config["lr"]), **kept}
