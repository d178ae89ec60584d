"""Limits the rate at which a source step reads: a token bucket."""

from __future__ import annotations

from typing import Final

from tidegate.sdk.time import SECOND

_BURST: Final = 0.1
"""The bucket holds the tokens of this many seconds, or one."""


class RateLimiter:
    """At most `rate` elements per second. Times are µs of a monotonic clock.

    >>> limiter = RateLimiter(rate=100.0, now=0)
    >>> limiter.available(now=50_000), limiter.next_time(now=50_000)
    (5, 50000)
    >>> limiter.spend(5)
    >>> limiter.available(now=50_000), limiter.next_time(now=50_000)
    (0, 100000)
    """

    def __init__(self, rate: float, now: int) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate * _BURST)
        self._tokens = 0.0
        self._at = now

    def available(self, now: int) -> int:
        """How many elements may be read now."""
        self._tokens = min(self._capacity, self._tokens + self._rate * (now - self._at) / SECOND)
        self._at = now
        return max(0, int(self._tokens + _ROUNDING))

    def spend(self, count: int) -> None:
        """So many elements have been read."""
        self._tokens -= count

    def next_time(self, now: int) -> int:
        """When to read next: as soon as a few elements may be read, so that they are read together."""
        missing = max(1.0, self._capacity / 2) - self._tokens - self._rate * (now - self._at) / SECOND
        return now + max(0, -int(-missing * SECOND // self._rate))


_ROUNDING: Final = 1e-6
