"""Instants as people and log processors read them."""

from __future__ import annotations

import time


def rfc3339(seconds: float) -> str:
    """An instant (s since 1970) in UTC, in the format of RFC 3339; in seconds if it is outside of the calendar.

    >>> rfc3339(0.25)
    '1970-01-01T00:00:00.250Z'
    """
    try:
        date_and_time = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds // 1))
    except (OverflowError, OSError, ValueError):
        return f"{seconds:.3f}"
    return f"{date_and_time}.{int(seconds % 1 * 1000):03}Z"
