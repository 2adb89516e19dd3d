"""What a batch notes of its columns while somebody watches: which are read, added, deleted; and their conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class AccessWatch:
    """Lazily converts the columns of one batch and records which of them are touched.

    Attributes:
        interceptor: Called once per column with its stored value when the column is first read; None converts nothing.
        converted: What the interceptor returned, by column.
        accessed: Columns that were read.
        added: Columns that were set and had not been there.
        deleted: Columns that were deleted.
    """

    __slots__ = ("accessed", "added", "converted", "deleted", "interceptor")

    def __init__(self, interceptor: Callable[[Any], Any] | None = None) -> None:
        self.interceptor = interceptor
        self.converted: dict[str, Any] = {}
        self.accessed: set[str] = set()
        self.added: set[str] = set()
        self.deleted: set[str] = set()

    def read(self, key: str, value: Any) -> Any:
        """Returns the stored `value` of column `key`, converted, and records the access."""
        self.accessed.add(key)
        if self.interceptor is None:
            return value
        if key not in self.converted:
            self.converted[key] = self.interceptor(value)
        return self.converted[key]

    def wrote(self, key: str, *, is_new: bool) -> None:
        """Records that `key` was set; the new value is converted when it is read."""
        if is_new:
            self.added.add(key)
        self.converted.pop(key, None)

    def removed(self, key: str) -> None:
        """Records that `key` was deleted."""
        self.deleted.add(key)
        self.converted.pop(key, None)


class WatchedColumns:
    """The part of a batch that says who watches it, and what was seen."""

    _watch: AccessWatch | None = None

    def set_get_interceptor(self, fn: Callable[[Any], Any] | None) -> None:
        """Converts each column by `fn` when it is first read, and records what is read from now on; None ends both."""
        if fn is None:
            self._watch = None
        elif self._watch is None or self._watch.interceptor is not fn:
            self._watch = AccessWatch(fn)

    def track_access(self) -> None:
        """Starts recording which columns are read, added and deleted."""
        if self._watch is None:
            self._watch = AccessWatch()

    @property
    def get_interceptor(self) -> Callable[[Any], Any] | None:
        """The function that converts columns when they are read, if any."""
        return None if self._watch is None else self._watch.interceptor

    @property
    def accessed_keys(self) -> set[str]:
        """Columns read since recording began; empty where nothing is recorded."""
        return set() if self._watch is None else self._watch.accessed

    @property
    def added_keys(self) -> set[str]:
        """Columns added since recording began; empty where nothing is recorded."""
        return set() if self._watch is None else self._watch.added

    @property
    def deleted_keys(self) -> set[str]:
        """Columns deleted since recording began; empty where nothing is recorded."""
        return set() if self._watch is None else self._watch.deleted
