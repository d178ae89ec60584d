"""Functions with a life cycle that run beside the stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any, Generic, TypeVar

E = TypeVar("E", contravariant=True)
R = TypeVar("R", covariant=True)


class AsyncFunction(ABC, Generic[E, R]):
    """A function for `AsyncMap` or `LookupJoin` that needs a client: override `__call__`, `setup` and `teardown`.

    If `__call__` is `async def`, all three run on an event loop, and `setup` and `teardown` may be async too; otherwise
    they run in threads. `setup` is called in the process that makes the calls, before the first one.
    """

    def setup(self) -> Any:
        """Called once, before the first call, to open a client."""

    @abstractmethod
    def __call__(self, argument: E, /) -> R | Awaitable[R]:
        """The result for an element, or for a key that is looked up."""

    def teardown(self) -> Any:
        """Called once, after the last call, to close the client."""


def is_awaited(fn: Any) -> bool:
    """Whether a function, a partial of one, or an object with `__call__` is a coroutine function."""
    from inspect import iscoroutinefunction

    return iscoroutinefunction(fn) or iscoroutinefunction(getattr(type(fn), "__call__", None))  # noqa: B004
