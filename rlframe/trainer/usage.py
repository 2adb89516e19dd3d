"""How busy the machine is."""

from __future__ import annotations

import importlib.util
from typing import Any


def system_usage() -> dict[str, Any]:
    """Returns `cpu_util_percent` and `ram_util_percent` since the last call; `{}` where psutil is not installed."""
    if importlib.util.find_spec("psutil") is None:
        return {}
    psutil = importlib.import_module("psutil")
    return {"cpu_util_percent": psutil.cpu_percent(interval=None), "ram_util_percent": psutil.virtual_memory().percent}
