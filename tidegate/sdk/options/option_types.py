"""Types of options that are written as quantities: durations and sizes."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator
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

SizeOption: TypeAlias = Annotated[int, BeforeValidator(_size), Field(ge=0), flag_types.SIZE]
"""A number of bytes, written `512k`, `256MB` or `4GiB` (see `parse_size`)."""
