"""Validation of the arguments of windows, triggers and evictors; each function returns the value in its stored form.

All raise `BuildError` with a message that names the class (`owner`), the argument and the value.
"""

from __future__ import annotations

import functools
import inspect
from inspect import CO_GENERATOR
from typing import Any, Final

from tidegate.sdk.errors import BuildError, TidegateWarning, shorten
from tidegate.sdk.time import Duration, Timestamp
from tidegate.sdk.user_code.frames import Where, caller
from tidegate.sdk.user_code.user_fn import UserFn, name_of


def positive_duration(owner: str, name: str, value: Any) -> Duration:
    """A duration of at least one microsecond."""
    length = any_duration(owner, name, value)
    if length.micros <= 0:
        raise BuildError(f"{owner}: {name} must be longer than 0 (at least one microsecond), not {shorten(value)}")
    return length


def nonnegative_duration(owner: str, name: str, value: Any) -> Duration:
    """A duration of 0 or more."""
    length = any_duration(owner, name, value)
    if length.micros < 0:
        raise BuildError(f"{owner}: {name} must be 0 or more, not {shorten(value)}")
    return length


def any_duration(owner: str, name: str, value: Any) -> Duration:
    """A duration of either sign."""
    try:
        return Duration.of(value)
    except (TypeError, ValueError) as error:
        raise BuildError(
            f"{owner}: {name} must be a duration (seconds, a timedelta or a Duration), not {shorten(value)}"
        ) from error


def any_timestamp(owner: str, name: str, value: Any) -> Timestamp:
    """An instant."""
    try:
        return Timestamp.of(value)
    except (TypeError, ValueError) as error:
        raise BuildError(f"{owner}: {name} must be a timestamp, not {shorten(value)}: {error}") from error


def offset_within(owner: str, value: Any, limit: Duration, limit_name: str) -> Duration:
    """An offset whose magnitude is below `limit`."""
    offset = any_duration(owner, "offset", value)
    if abs(offset.micros) >= limit.micros:
        raise BuildError(f"{owner}: offset must be smaller than {limit_name} ({limit!r}) either way, not {offset!r}")
    return offset


def positive_count(owner: str, name: str, value: Any) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BuildError(f"{owner}: {name} must be a whole number of at least 1, not {shorten(value)}")
    return value


def any_number(owner: str, name: str, value: Any) -> int | float:
    """An int or float that is not NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise BuildError(f"{owner}: {name} must be a number, not {shorten(value)}")
    return value


def one_of(owner: str, name: str, value: Any, *allowed: str) -> None:
    """One of a few words."""
    if value not in allowed:
        raise BuildError(f"{owner}: {name} must be {' or '.join(map(repr, allowed))}, not {shorten(value)}")


def user_function(owner: str, name: str, value: Any) -> UserFn:
    """The author's callable as a UserFn."""
    if isinstance(value, UserFn):
        return value
    if not callable(value):
        raise BuildError(f"{owner}: {name} must be a function, not {shorten(value)}")
    return UserFn.of(value)


def refuse_generator(owner: str, fn: Any) -> None:
    """Refuse a generator function where each call must return one result, which would be a generator object."""
    called = fn
    while isinstance(called, functools.partial):
        called = called.func
    code = getattr(called, "__code__", None) or getattr(getattr(type(called), "__call__", None), "__code__", None)  # noqa: B004
    if code is None or not code.co_flags & CO_GENERATOR:
        return
    name = name_of(fn)
    what = f"{owner} takes a function that returns its result, and {name} is a generator function (it has a yield)"
    if owner == "Filter":
        raise BuildError(f"{what}: a generator is always true. Write `return` in place of `yield`")
    flat = _FLAT.get(owner)
    advice = f". To emit what it yields as elements, write tg.{flat}({name})" if flat else ". Write `return`"
    raise BuildError(f"{what}, so each result would be a generator{advice}")


_FLAT: Final = {"Map": "FlatMap", "MapTuple": "FlatMapTuple", "MapValues": "FlatMapValues"}


def required_arguments(fn: Any) -> int:
    """The number of positional arguments that a callable requires; 1 if its signature is not known."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(1 for p in parameters if p.kind in positional and p.default is p.empty)


def warn(message: str, where: Where | None = None) -> None:
    """Issue a TidegateWarning at `where`, by default the line of the step being applied."""
    import warnings

    at = where or caller()
    warnings.warn_explicit(message, TidegateWarning, at.file, at.line, module="tidegate")


def put(instance: object, **fields: object) -> None:
    """Store converted arguments in a frozen dataclass that is being initialized."""
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
