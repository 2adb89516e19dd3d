"""One thing that keeps a policy from learning."""

from __future__ import annotations

from dataclasses import dataclass

PAGE = "docs/why_does_it_not_learn.md"


@dataclass(frozen=True)
class Finding:
    """One thing that keeps a policy from learning.

    Attributes:
        name: Short and stable, for programs: "no_end".
        evidence: What was seen, with the number.
        change: The config key to change, or what to change in the environment.
        page: Where more is said about it.
    """

    name: str
    evidence: str
    change: str
    page: str = PAGE
