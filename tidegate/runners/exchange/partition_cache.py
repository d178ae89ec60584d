"""Partitions by key, computed once per key.

>>> cache = PartitionCache(4)
>>> cache.partitions(["a", "b", "a"]) == [partition_of(key, 4) for key in ["a", "b", "a"]]
True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tidegate.sdk.data.keys import partition_of, plain_crcs

_ASIDE: Final = 15


class PartitionCache(dict[Any, int]):
    """Partitions by key, computed once: `cache[key] == partition_of(key, n, level)`.

    A hit is one dict look-up. In a loop over a block keep `find = cache.__getitem__` in a local, or take a whole
    column at C speed with `cache.partitions(keys)`. It holds at most `limit` keys, then starts anew. A dict can stand
    for `key_bytes` because both follow `==`: `1`, `1.0` and `True` are one entry and have one partition.

    Serves for key groups too (`n` = max_parallelism). Install coders before a cache is used.

    Where most keys of a column are new, the next columns of plain ints or strs are worked out without it: that takes
    half the time of a miss. With `names`, each partition goes by its name there.
    """

    __slots__ = ("_aside", "_next_aside", "level", "limit", "n", "names")

    def __init__(self, n: int, level: int = 0, limit: int = 65_536, names: Sequence[int] | None = None) -> None:
        if n < 1 or limit < 1:
            raise ValueError(f"a partition cache needs n ≥ 1 and limit ≥ 1, not n={n}, limit={limit}")
        super().__init__()
        self.n = n
        self.level = level
        self.limit = limit
        self.names = names or range(n)
        self._aside = 0
        """How many columns are still to be worked out without it."""
        self._next_aside = 1

    def __missing__(self, key: object) -> int:
        partition = self.names[partition_of(key, self.n, self.level)]
        if len(self) >= self.limit:
            self.clear()
        self[key] = partition
        return partition

    def partitions(self, keys: Iterable[object]) -> list[int]:
        """The partition of each key, in order; KeyEncodingError for one without an encoding, unhashable ones too."""
        keys = keys if isinstance(keys, list) else list(keys)
        if self._aside:
            self._aside -= 1
            if not self.level and (spread := plain_crcs(keys)) is not None:
                n, names = self.n, self.names
                return [names[crc * n >> 32] for crc in spread]
        known = len(self)
        try:
            found = list(map(self.__getitem__, keys))
            if not 0 <= 2 * (len(self) - known) <= len(keys):
                # The first columns of few keys are new as well: it is tried again soon, and ever later.
                self._aside = self._next_aside
                self._next_aside = min(2 * self._next_aside + 1, _ASIDE)
            return found
        except TypeError:
            # An unhashable key; or Decimal and numpy ints as keys of one dict, whose comparison raises in CPython.
            return [self.names[partition_of(key, self.n, self.level)] for key in keys]
