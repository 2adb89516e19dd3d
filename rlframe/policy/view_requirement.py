"""RLlib's path to ViewRequirement."""

from rlframe.data.view_requirements import ViewRequirement

__all__ = ["ViewRequirement"]
