"""A cache of the partitions of keys.

>>> cache = PartitionCache(4)
>>> cache.partitions(["a", "b", "a"]) == [partition_of(key, 4) for key in ["a", "b", "a"]]
True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tidegate.sdk.data.keys import partition_of, plain_crcs

_MAX_BYPASS: Final = 15


class PartitionCache(dict[Any, int]):
    """A cache: `cache[key] == partition_of(key, n)`. With `names`, returns the name of the partition there.

    A hit is one dict look-up. For a loop over single keys, bind `cache.__getitem__` to a local variable; for a column
    of keys, call `cache.partitions(keys)`. When the cache has `limit` keys, it is cleared. A dict can look up keys in
    place of their encoding because both follow `==`: `1`, `1.0` and `True` are one entry and have one partition.

    The cache also serves for key groups (`n` = max_parallelism). Install coders before using it.

    If most keys of a column are new, the next columns of plain ints or strs bypass the cache, which takes half the time
    of a miss.
    """

    __slots__ = ("_bypass", "_next_bypass", "limit", "n", "names")

    def __init__(self, n: int, limit: int = 65_536, names: Sequence[int] | None = None) -> None:
        if n < 1 or limit < 1:
            raise ValueError(f"a partition cache needs n ≥ 1 and limit ≥ 1, not n={n}, limit={limit}")
        super().__init__()
        self.n = n
        self.limit = limit
        self.names = names or range(n)
        self._bypass = 0
        """The number of columns that still bypass the cache."""
        self._next_bypass = 1

    def __missing__(self, key: object) -> int:
        partition = self.names[partition_of(key, self.n)]
        if len(self) >= self.limit:
            self.clear()
        self[key] = partition
        return partition

    def of_distinct(self, keys: list[Any]) -> list[int]:
        """The partition of each of these keys, which all differ, so that a cache would only cost."""
        return self._by_crc(keys) or self.partitions(keys)

    def _by_crc(self, keys: list[Any]) -> list[int] | None:
        """The partitions of plain ints or strs, without the cache; None for others."""
        crcs = plain_crcs(keys)
        n, names = self.n, self.names
        return None if crcs is None else [names[crc * n >> 32] for crc in crcs]

    def partitions(self, keys: Iterable[object]) -> list[int]:
        """The partition of each key, in order. KeyEncodingError for a key without encoding, even an unhashable one."""
        keys = keys if isinstance(keys, list) else list(keys)
        if self._bypass:
            self._bypass -= 1
            if (found := self._by_crc(keys)) is not None:
                return found
        known = len(self)
        try:
            found = list(map(self.__getitem__, keys))
            if not 0 <= 2 * (len(self) - known) <= len(keys):
                # Even with few distinct keys the first columns are new: retry soon, then at growing intervals.
                self._bypass = self._next_bypass
                self._next_bypass = min(2 * self._next_bypass + 1, _MAX_BYPASS)
            return found
        except TypeError:
            # A key is unhashable, or the dict has Decimals and numpy ints, which can't be compared.
            return [self.names[partition_of(key, self.n)] for key in keys]
