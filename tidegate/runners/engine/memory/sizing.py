"""Estimates how much memory elements take, from samples; deterministic, so never from the process's memory usage."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

TABLE_ENTRY: Final = 104
"""Estimated size of a key's entry in a dict (bytes), including the hash table and its room for growth."""
LIST: Final = 88
"""Estimated size of an empty list (bytes)."""
LIST_ITEM: Final = 9
"""Estimated size of a reference in a list (bytes), including the list's room for growth."""


def deep_size(value: Any, depth: int = 6) -> int:
    """The estimated size of `value` and the objects it refers to (bytes). Long containers are sampled."""
    size = sys.getsizeof(value, 64)
    if depth == 0:
        return size
    match value:
        case str() | bytes() | int() | float() | None:
            return size
        case Mapping():
            return size + _sampled(value.items(), len(value), depth)
        case list() | tuple() | set() | frozenset():
            return size + _sampled(value, len(value), depth)
        case _:
            inner = getattr(value, "__dict__", None)
            if inner:
                size += sys.getsizeof(inner) + sum(deep_size(part, depth - 1) for part in inner.values())
            for slot in getattr(type(value), "__slots__", ()) or ():
                size += deep_size(getattr(value, slot, None), depth - 1)
            return size


def _sampled(items: Iterable[Any], count: int, depth: int) -> int:
    if not count:
        return 0
    total = seen = 0
    for item in items:
        total += deep_size(item, depth - 1)
        seen += 1
        if seen == 16:
            break
    return total * count // seen
