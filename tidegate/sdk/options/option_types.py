"""Types of options that are written as quantities: durations and sizes."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator
from pydantic_core import PydanticCustomError

from tidegate.sdk.options import flag_types
from tidegate.sdk.options.quantities import format_duration, parse_duration, parse_size
from tidegate.sdk.time import Duration


def _duration(value: object) -> Duration:
    try:
        return parse_duration(value) if isinstance(value, str) else Duration.of(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise PydanticCustomError("duration_parsing", "not a duration") from None


def _size(value: object) -> object:
    try:
        return parse_size(value) if isinstance(value, str) else value
    except ValueError:
        raise PydanticCustomError("size_parsing", "not a size") from None


DurationOption: TypeAlias = Annotated[
    Duration, PlainValidator(_duration), PlainSerializer(format_duration, when_used="json"), flag_types.DURATION
]
"""A `Duration` written `500ms`, `10s`, `5m`, `2h` or `1d`; a number is seconds."""


def _not_negative(value: Duration) -> Duration:
    if value < Duration(0):
        raise ValueError("must not be negative")
    return value


def _positive(value: Duration) -> Duration:
    if value <= Duration(0):
        raise ValueError("must be more than 0")
    return value


Wait: TypeAlias = Annotated[DurationOption, AfterValidator(_not_negative)]
"""A duration that may be 0."""

Period: TypeAlias = Annotated[DurationOption, AfterValidator(_positive)]
"""A duration of more than 0."""

SizeOption: TypeAlias = Annotated[int, BeforeValidator(_size), Field(ge=0), flag_types.SIZE]
"""A number of bytes, written `512k`, `256MB` or `4GiB` (see `parse_size`)."""
