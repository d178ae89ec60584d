"""Steps that need not run if nothing reads their results: those whose functions have no side effects.

A transform that makes more than is usually read, such as a graph, applies its own steps in `pure_steps`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_PURE: ContextVar[bool] = ContextVar("_PURE", default=False)


@contextmanager
def pure_steps() -> Iterator[None]:
    """A context in which only steps are applied whose functions are Tidegate's, and have no side effects."""
    before = _PURE.set(True)
    try:
        yield
    finally:
        _PURE.reset(before)


def are_pure() -> bool:
    """Whether the functions of the steps that are being applied have no side effects."""
    return _PURE.get()
