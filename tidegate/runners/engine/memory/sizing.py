"""How much memory elements take: estimates from samples, the same on every run, never the process's own figure."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

TABLE_ENTRY: Final = 104
"""About what one more key costs a dict, its growth and its hash table included (bytes)."""
LIST: Final = 88
"""About what an empty list that will grow costs (bytes)."""
LIST_ITEM: Final = 9
"""About what a list takes for each of its items, with the room it keeps to grow (bytes)."""


def deep_size(value: Any, depth: int = 6) -> int:
    """About how many bytes `value` keeps alive; of a long container, from a sample of its items."""
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
