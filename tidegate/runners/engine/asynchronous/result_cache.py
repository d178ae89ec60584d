"""A cache of results: bounded in number, and each for a limited time.

>>> cache = ResultCache(size=2, ttl=10)
>>> cache.put("a", 1, now=0); cache.put("b", 2, now=5)
>>> cache.get("a", now=9)
(1,)
>>> cache.put("c", 3, now=9)
>>> cache.get("b", now=9), cache.get("a", now=10), cache.get("c", now=10), len(cache)
(None, None, (3,), 1)
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


class ResultCache:
    """At most `size` results; the one that has been unused for longest makes room. Times are µs of processing time.

    `ttl`: how long after `put` a result is used; None: for ever.
    """

    def __init__(self, size: int, ttl: int | None) -> None:
        self._size = size
        self._ttl = ttl
        self._results: dict[Hashable, tuple[int, Any]] = {}

    def __len__(self) -> int:
        return len(self._results)

    def get(self, key: Hashable, now: int) -> tuple[Any] | None:
        """The result in a tuple, or None. TypeError if the key is not hashable."""
        found = self._results.pop(key, None)
        if found is None:
            return None
        at, result = found
        if self._ttl is not None and now - at >= self._ttl:
            return None
        self._results[key] = found  # now the latest
        return (result,)

    def put(self, key: Hashable, result: Any, now: int) -> None:
        """Store a result."""
        self._results.pop(key, None)
        while len(self._results) >= self._size:
            del self._results[next(iter(self._results))]
        self._results[key] = now, result
