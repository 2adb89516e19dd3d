"""The older name for torch policies made from functions."""

from __future__ import annotations

from typing import Any

from rlframe.policy.policy_template import build_policy_class


def build_torch_policy(name: str, **hooks: Any) -> type[Any]:
    """Returns a torch policy class; see `build_policy_class`."""
    return build_policy_class(name, framework="torch", **hooks)
