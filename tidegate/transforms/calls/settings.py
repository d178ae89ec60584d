"""How calls out of a pipeline are repeated, and how long their results are cached.

>>> Retry(attempts=4, backoff=0.5)
Retry(attempts=4, backoff=0.5, multiplier=2.0, max_backoff=60, on=(<class 'Exception'>,))
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.sdk.errors import BuildError
from tidegate.sdk.portable.async_calls import CacheSettings, RetryPolicy
from tidegate.sdk.time import Duration, DurationLike
from tidegate.sdk.user_code.user_fn import UserFn


@dataclass(frozen=True)
class Retry:
    """Repeat a failed call: at most `attempts` calls in all, if the exception is one of the classes in `on`.

    The wait before the second attempt is `backoff`. Each later wait is `multiplier` times as long as the one before it,
    up to `max_backoff`. An attempt that takes longer than the step's timeout raises a `TimeoutError`.
    """

    attempts: int = 3
    backoff: DurationLike = 1.0
    multiplier: float = 2.0
    max_backoff: DurationLike = 60
    on: type[BaseException] | tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        if not _is_count(self.attempts):
            raise BuildError(f"tg.Retry: attempts is a number of calls, at least 1, and not {self.attempts!r}")
        for name in ("backoff", "max_backoff"):
            length("tg.Retry", name, getattr(self, name), least=0)
        if not isinstance(self.multiplier, (int, float)) or not self.multiplier >= 1:
            raise BuildError(f"tg.Retry: multiplier is at least 1, and not {self.multiplier!r}")
        classes = self.on if isinstance(self.on, tuple) else (self.on,)
        if not classes or not all(isinstance(each, type) and issubclass(each, BaseException) for each in classes):
            raise BuildError(f"tg.Retry: on is an exception class, or a tuple of them, and not {self.on!r}")

    def portable(self) -> RetryPolicy:
        """The policy as data."""
        backoff, longest = Duration.of(self.backoff), Duration.of(self.max_backoff)
        default = self.on in (Exception, (Exception,))
        on = None if default else UserFn.of(self.on, "the exceptions of tg.Retry")
        return RetryPolicy(self.attempts, backoff, float(self.multiplier), longest, on)


@dataclass(frozen=True)
class Cache:
    """Use a result again for elements with the same key, for `ttl` of processing time; None: for ever.

    The cache of each worker's task holds at most `size` results; the one that has been unused for longest makes room.
    Elements that arrive during the call for their key share its result.
    """

    ttl: DurationLike | None
    size: int = 10_000

    def __post_init__(self) -> None:
        if self.ttl is not None:
            length("tg.Cache", "ttl", self.ttl)
        if not _is_count(self.size):
            raise BuildError(f"tg.Cache: size is a number of results, at least 1, and not {self.size!r}")

    def portable(self) -> CacheSettings:
        """The settings as data."""
        return CacheSettings(self.size, None if self.ttl is None else Duration.of(self.ttl))


def length(what: str, name: str, value: DurationLike, *, least: int = 1) -> Duration:
    """A duration of at least `least` µs; BuildError, naming the argument, for anything else."""
    try:
        duration = Duration.of(value)
    except TypeError as error:
        raise BuildError(f"{what}: {name}: {error}") from None
    if duration.micros < least:
        raise BuildError(f"{what}: {name} must be {'positive' if least else 'at least 0'}, and is {duration}")
    return duration


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
