"""About how large elements are, judged by a few of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def estimated_size(elements: Sequence[Any]) -> int:
    """About how many bytes some elements take in memory, by a few of them."""
    sample = elements[:: max(1, len(elements) // 4)]
    return sum(_size(element, 4) for element in sample) * len(elements) // len(sample) if sample else 0


def estimated_content(elements: Sequence[Any]) -> int:
    """About how many bytes the values in some elements are, apart from the objects that hold them."""
    sample = elements[:: max(1, len(elements) // 16)]
    return sum(_content(element, 4) for element in sample) * len(elements) // len(sample) if sample else 0


def _size(value: Any, depth: int) -> int:
    if isinstance(value, (str, bytes)):
        return len(value) + 50
    if not depth:
        return 64
    if isinstance(value, Mapping):
        return 64 + sum(_size(item, depth - 1) + 16 for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return 56 + sum(_size(item, depth - 1) + 8 for item in value)
    if (fields := getattr(value, "__dict__", None)) is not None:
        return 48 + _size(fields, depth - 1)
    return 32


def _content(value: Any, depth: int) -> int:
    if isinstance(value, (str, bytes)):
        return len(value) + 4
    if not depth:
        return 8
    if isinstance(value, Mapping):
        return sum(_content(item, depth - 1) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return sum(_content(item, depth - 1) for item in value)
    if (fields := getattr(value, "__dict__", None)) is not None:
        return _content(fields, depth - 1)
    return 8
