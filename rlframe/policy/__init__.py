"""Policies: what maps observations to actions and learns from batches; one class per framework."""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "Policy": "rlframe.policy.policy",
    "PolicySpec": "rlframe.policy.policy",
    "TFPolicy": "rlframe.policy.tf_policy",
    "TorchPolicy": "rlframe.policy.torch_policy",
    "build_policy_class": "rlframe.policy.policy_template",
    "build_tf_policy": "rlframe.policy.tf_policy_template",
    "build_torch_policy": "rlframe.policy.torch_policy_template",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
