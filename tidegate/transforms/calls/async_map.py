"""AsyncMap: a function that waits for something outside the pipeline, called for many elements at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, overload

from tidegate.sdk.authoring.dofn import Call, DoFn, bind, refuse_injection
from tidegate.sdk.errors import BuildError
from tidegate.sdk.portable.async_calls import AsyncCalls
from tidegate.sdk.portable.model import Form
from tidegate.sdk.primitives.elementwise import E, ElementWise, R, unwrapped
from tidegate.sdk.time import DurationLike
from tidegate.sdk.typehints import signatures
from tidegate.sdk.user_code.user_fn import UserFn, name_of
from tidegate.transforms.calls.async_function import AsyncFunction, is_awaited
from tidegate.transforms.calls.settings import Cache, Retry, length

CAPACITY = 100
"""How many elements are on their way at a time, if the function is a coroutine function."""
THREADS = 16
"""How many are if it is a plain function, each of which needs a thread."""
MAX_THREADS = 512


class CallingStep(ElementWise[E, R]):
    """A step whose function is called beside the stream: the base of `AsyncMap` and `LookupJoin`."""

    form: Form = "map"
    awaits = True

    def __init__(
        self,
        fn: Any,
        *,
        capacity: int | None,
        timeout: DurationLike | None,
        ordered: bool,
        retry: Retry | None,
        cache: Cache | None,
        key: Any,
        name: str | None,
    ) -> None:
        what = type(self).__name__
        if isinstance(fn, DoFn):
            raise BuildError(f"{what} takes a function of one argument, or a tg.AsyncFunction, and not a DoFn")
        if isinstance(fn, type) and issubclass(fn, AsyncFunction):
            raise BuildError(f"{what} takes an instance: {fn.__name__}(), not the class {fn.__name__}")
        super().__init__(fn, (), {}, name)
        awaited = is_awaited(fn)
        if capacity is None:
            capacity = CAPACITY if awaited else THREADS
        if not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 1:
            raise BuildError(f"{what}: capacity is a number of elements, at least 1, and not {capacity!r}")
        if not awaited and capacity > MAX_THREADS:
            raise BuildError(
                f"{what}: {name_of(fn)} is a plain function, so each call needs a thread, and capacity={capacity} is "
                f"more than {MAX_THREADS} threads. An `async def` needs none"
            )
        for argument, value, kind in (("retry", retry, Retry), ("cache", cache, Cache)):
            if value is not None and not isinstance(value, kind):
                raise BuildError(f"{what}: {argument} is a tg.{kind.__name__}, and not {value!r}")
        if key is not None and not callable(key):
            raise BuildError(f"{what}: key is a function of the element, and not {key!r}")
        refuse_injection(key, "it is called with an element only: put it into the elements by a tg.Map in front")
        self.key = key
        self.calls = AsyncCalls(
            capacity,
            awaited,
            bool(ordered),
            None if timeout is None else length(what, "timeout", timeout),
            None if retry is None else retry.portable(),
            None if cache is None else cache.portable(),
            key=None if key is None else UserFn.of(key),
        )

    def call_fields(self) -> tuple[Call, dict[str, Any]]:
        call = bind(self.fn, (), {})
        if call.kinds() != {"element"}:
            raise BuildError(
                f"{type(self).__name__}: {name_of(self.fn)} is called beside the stream, with one argument: nothing "
                "can be injected. A tg.Map before this step can put a timestamp or a window into its elements"
            )
        return call, {"calls": self.calls}

    def gives(self, signature: signatures.FnTypes, element_type: Any) -> Any:
        return unwrapped(awaited_type(signature.result))


class AsyncMap(CallingStep[E, R]):
    """Emits the result of `fn(element)`, which is called for up to `capacity` elements at a time, beside the stream.

    `fn` is an `async def`, which an event loop runs; a plain function, which a pool of threads runs; or an
    `AsyncFunction`. Results keep the timestamp, windows and pane of their element. They are emitted in the order of the
    elements, or with `ordered=False` as they arrive, though never across a watermark; watermarks wait for the calls
    before them. While `capacity` elements are on their way (by default 100, or 16 for a plain function), no more are
    read.

    `timeout` is for each attempt; `retry` repeats failed ones. What fails after that fails the run, unless
    `.with_exception_handling()` is added. `cache` reuses results for elements with the same `key(element)`, by default
    the element itself. After a failure of a worker, calls whose results no checkpoint has are made again: every call is
    made at least once, and every result is emitted exactly once.
    """

    @overload
    def __init__(
        self,
        fn: Callable[[E], Awaitable[R]],
        *,
        capacity: int | None = None,
        timeout: DurationLike | None = 60,
        ordered: bool = True,
        retry: Retry | None = None,
        cache: Cache | None = None,
        key: Callable[[E], Any] | None = None,
        name: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        fn: Callable[[E], R],
        *,
        capacity: int | None = None,
        timeout: DurationLike | None = 60,
        ordered: bool = True,
        retry: Retry | None = None,
        cache: Cache | None = None,
        key: Callable[[E], Any] | None = None,
        name: str | None = None,
    ) -> None: ...
    def __init__(
        self,
        fn: Any,
        *,
        capacity: int | None = None,
        timeout: DurationLike | None = 60,
        ordered: bool = True,
        retry: Retry | None = None,
        cache: Cache | None = None,
        key: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            fn, capacity=capacity, timeout=timeout, ordered=ordered, retry=retry, cache=cache, key=key, name=name
        )
        if key is not None and cache is None:
            raise BuildError("AsyncMap: key is the key of an element in the cache, and there is no cache")


def awaited_type(hint: Any) -> Any:
    """The type of what awaiting gives: T for `Coroutine[Any, Any, T]` and `Awaitable[T]`, any other type itself."""
    import collections.abc

    origin = getattr(hint, "__origin__", None)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Awaitable):
        return hint.__args__[-1]
    return Any if hint in (collections.abc.Awaitable, collections.abc.Coroutine) else hint
