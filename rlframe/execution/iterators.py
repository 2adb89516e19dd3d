"""The iterators that execution plans are made of, under one roof."""

from rlframe.execution.plan.context import SharedMetrics, _NextValueNotReady
from rlframe.execution.plan.local_iterator import LocalIterator, as_local_iterator
from rlframe.execution.plan.parallel_iterator import (
    ParallelIterator,
    from_actors,
    from_items,
    from_iterators,
    from_range,
)
from rlframe.execution.plan.shards import ParallelIteratorWorker

__all__ = [
    "LocalIterator",
    "ParallelIterator",
    "ParallelIteratorWorker",
    "SharedMetrics",
    "_NextValueNotReady",
    "as_local_iterator",
    "from_actors",
    "from_items",
    "from_iterators",
    "from_range",
]
