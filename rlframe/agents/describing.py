"""What a trainer shows of itself at a prompt and in a notebook."""

from __future__ import annotations

import html
from typing import Any


class DescribingMixin:
    """`repr()` and the notebook's picture of a `Trainer`; also of one that is not built to its end."""

    def _facts(self) -> dict[str, Any]:
        """Returns what tells this trainer from others, by name."""
        parts: dict[str, Any] = vars(self)
        config = parts.get("config") or {}
        facts = {name: config.get(name) for name in ("framework", "num_workers") if name in config}
        workers = parts.get("workers")
        local = None if workers is None else workers.local_worker()
        if local is not None:
            classes = {pid: spec.policy_class for pid, spec in local.policy_specs.items()}
            facts["policies"] = {pid: getattr(chosen, "__name__", None) for pid, chosen in classes.items()}
        facts["iteration"] = parts.get("_iteration", 0)
        facts["env_steps"] = parts.get("_timesteps_total") or 0
        return {"env": parts.get("_env_id"), **facts}

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._facts().items())
        return f"{type(self).__name__}({shown})"

    def _repr_html_(self) -> str:
        """Returns the same as a table, for notebooks."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name.replace('_', ' '))}</th>"
            f"<td style='text-align:left'>{html.escape(_text(value))}</td></tr>"
            for name, value in self._facts().items()
        )
        return f"<table><caption>{html.escape(type(self).__name__)}</caption>{rows}</table>"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {item}" for name, item in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
