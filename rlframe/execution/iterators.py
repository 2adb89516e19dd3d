"""The iterators that execution plans are made of, under one roof."""

from rlframe.execution.common import SharedMetrics, _NextValueNotReady
from rlframe.execution.local_iterator import LocalIterator, as_local_iterator
from rlframe.execution.parallel_iterator import (
    ParallelIterator,
    from_actors,
    from_items,
    from_iterators,
    from_range,
)
from rlframe.execution.shards import ParallelIteratorWorker

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
