"""How the function of a step that calls out of the pipeline is called, as data."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.sdk.time import Duration
from tidegate.sdk.user_code.user_fn import UserFn


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How failed calls are repeated: `attempts` in all, if the exception is one of the classes `on` (None: Exception).

    The wait before the second attempt is `backoff`; each later one is `multiplier` times as long, up to `max_backoff`.
    """

    attempts: int
    backoff: Duration
    multiplier: float = 2.0
    max_backoff: Duration = Duration(60)
    on: UserFn | None = None


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """A cache of at most `size` results, each of which is used for `ttl` of processing time (None: for ever)."""

    size: int
    ttl: Duration | None = None


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Calls are made with a list of up to `size` arguments, of which the first has waited for `wait` at most."""

    size: int
    wait: Duration


@dataclass(frozen=True, slots=True)
class AsyncCalls:
    """How the function of an `AsyncMap` is called: beside the stream, for up to `capacity` elements at a time.

    `awaits`: it is a coroutine function, which an event loop runs; otherwise a pool of threads does. `ordered`: results
    are emitted in the order of the elements. `timeout` is for each attempt.

    `key` returns an element's key in the cache, or the key that is looked up: with `by_key`, the function is called
    with the key instead of the element. `join` makes the result from the element and what the function has returned.
    """

    capacity: int
    awaits: bool
    ordered: bool = True
    timeout: Duration | None = None
    retry: RetryPolicy | None = None
    cache: CacheSettings | None = None
    batch: BatchSettings | None = None
    key: UserFn | None = None
    by_key: bool = False
    join: UserFn | None = None
