"""Policies: what maps observations to actions and learns from batches; one class per framework."""

from __future__ import annotations

from typing import Any

from rlframe.utils.lazy import import_name

_NAMES = {
    "Policy": "rlframe.policy.policy",
    "PolicySpec": "rlframe.policy.policy",
    "TFPolicy": "rlframe.policy.tf_policy",
    "TorchPolicy": "rlframe.policy.torch_policy",
    "build_policy_class": "rlframe.policy.policy_template",
    "build_tf_policy": "rlframe.policy.tf_policy_template",
    "build_torch_policy": "rlframe.policy.torch_policy_template",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
