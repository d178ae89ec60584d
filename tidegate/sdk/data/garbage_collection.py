"""Pauses of the collector of cyclic garbage, for code that makes many objects none of which is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A context in which the cycle collector doesn't run.

    It runs each time that some thousands of objects are made, looks at all that have lasted, finds nothing to free, and
    takes longer than making them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
