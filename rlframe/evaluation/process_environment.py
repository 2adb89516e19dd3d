"""Environment variables that a config sets in the driver and in workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rlframe.utils.names import check


def check_environment(key: str, config: Mapping[str, Any]) -> None:
    """Raises where a config's environment variables come from a file.

    Raises:
        CheckpointError: If so: they can make programs load anything.
    """
    variables = config.get(key)
    if variables:
        check(f"environment variables ({key}: {', '.join(map(str, variables))})")


def set_environment(key: str, config: Mapping[str, Any]) -> None:
    """Sets the environment variables that a config asks for at `key`.

    Raises:
        CheckpointError: If they come from a file.
    """
    check_environment(key, config)
    for name, value in (config.get(key) or {}).items():
        os.environ[name] = str(value)
