"""Checks of what authors pass to windows, triggers and evictors: each gives the value in its stored form.

All raise `BuildError` with a message that names the class (`owner`), the argument and what was passed.
"""

from __future__ import annotations

from typing import Any

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.functions import UserFn
from tidegate.sdk.time import Duration, Timestamp


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
    """The author's callable, wrapped once."""
    if isinstance(value, UserFn):
        return value
    if not callable(value):
        raise BuildError(f"{owner}: {name} must be a function, not {shorten(value)}")
    return UserFn.of(value)


def put(instance: object, **fields: object) -> None:
    """Store converted arguments in a frozen dataclass that is being made."""
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
