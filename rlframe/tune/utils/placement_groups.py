"""`ray.tune.utils.placement_groups` of Ray 1.x: what trainers that ask for resources of their own import."""

from ray.tune import PlacementGroupFactory

__all__ = ["PlacementGroupFactory"]
