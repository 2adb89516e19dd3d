"""On what a run was carried out: machine and versions."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from rlframe.version import __version__

_PACKAGES = ("torch", "tensorflow", "tensorflow-cpu", "ray", "gymnasium", "numpy")


def describe_machine() -> dict[str, str]:
    """Returns names and values as text: machine, system, Python, and the packages that decide about numbers.

    Nothing is imported for it.
    """
    described = {
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs{_model()}",
        "system": platform.platform(),
        "python": platform.python_version(),
        "rlframe": __version__,
    }
    for package in _PACKAGES:
        try:
            described[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return described


def _model() -> str:
    """Returns the processor's name where Linux tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        return ""
    return f", {names[0]}" if names else ""
