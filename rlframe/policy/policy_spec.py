"""What a policy is made from: an entry of `multiagent.policies`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym


class PolicySpec(NamedTuple):
    """What a policy is made from; None is filled in from the trainer, the environment, and `{}`."""

    policy_class: Any = None
    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None
    config: Mapping[str, Any] | None = None
