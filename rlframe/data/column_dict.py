"""A dict of columns that can compute `dones`, convert columns when they are read, and record which are touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rlframe.data.columns import DONES, IS_TRAINING, TERMINATEDS, TRUNCATEDS

_get = dict.__getitem__
_MISSING: Final = object()


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


class ColumnDict(dict[str, Any]):
    """The item access of a `SampleBatch`.

    `batch["dones"]` is computed where only `terminateds` (and `truncateds`) are stored; `batch["is_training"]` is a
    flag, not a column. What `items()` and `values()` give is what is stored: neither computed nor converted.
    """

    # Defaults live on the class, so that a batch built without any flag has an empty `__dict__`.
    _is_training: Any = None
    _watch: AccessWatch | None = None

    def _rows(self, rows: slice) -> Any:
        raise TypeError(f"Got slice {rows} of a {type(self).__name__}, which has no rows")

    def __getitem__(self, key: Any) -> Any:
        if self._watch is None and key.__class__ is str:
            return _get(self, key)
        if isinstance(key, slice):
            return self._rows(key)
        value = _get(self, key)
        if self._watch is None or key == IS_TRAINING:
            return value
        return self._watch.read(key, value)

    def __missing__(self, key: str) -> Any:
        if key == IS_TRAINING:
            return self.is_training
        if key == DONES and TERMINATEDS in self:
            return self._derive_dones()
        raise KeyError(f"the batch has no column {key!r}; it has {sorted(map(str, self))}")

    def _derive_dones(self) -> Any:
        terminateds = _get(self, TERMINATEDS)
        truncateds = dict.get(self, TRUNCATEDS)
        return terminateds if truncateds is None else terminateds | truncateds

    def __setitem__(self, key: str, value: Any) -> None:
        if key == IS_TRAINING:
            self._is_training = value
            return
        if self._watch is not None:
            self._watch.wrote(key, is_new=key not in self)
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: str) -> None:
        dict.__delitem__(self, key)
        if self._watch is not None:
            self._watch.removed(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Returns `batch[key]` (derived `dones` included), or the default where there is no such column."""
        if key in self or (key == DONES and TERMINATEDS in self) or key == IS_TRAINING:
            return self[key]
        return default

    def pop(self, key: str, default: Any = _MISSING) -> Any:
        """Removes a column and returns it, or the default where there is no such column."""
        if key not in self:
            if default is _MISSING:
                raise KeyError(f"the batch has no column {key!r}; it has {sorted(map(str, self))}")
            return default
        value = self[key]
        del self[key]
        return value

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Sets columns as `dict.update` does."""
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Sets a column where there is none; returns what is there."""
        if key not in self:
            self[key] = default
        return self[key]

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

    @property
    def is_training(self) -> Any:
        """Whether the batch is learnt from (False until `set_training` said otherwise)."""
        return False if self._is_training is None else self._is_training

    def set_training(self, training: Any = True) -> None:
        """Sets the `is_training` flag."""
        self._is_training = training
