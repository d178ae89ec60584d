"""Kinds of flags: what each type takes on a command line, what that is called, and how a value of it is written."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from tidegate.sdk.options.quantities import format_duration, format_size, parse_duration
from tidegate.sdk.time import Duration

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Kind:
    """The command-line syntax of a type. `read` turns the given texts, in order, into a value for pydantic."""

    takes: str
    metavar: str
    example: str
    read: Callable[[Sequence[str]], object]
    is_bool: bool = False
    multiple: bool = False


def kind_of(field: FieldInfo) -> Kind:
    """The syntax of a field: a Kind among its `Annotated` metadata, or the one of its type."""
    return _marked(field.metadata) or _kind(field.annotation)


def text_of(value: object, kind: Kind) -> str:
    """A value as one would write it after its flag."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case Duration():
            return format_duration(value)
        case timedelta():
            return format_duration(Duration.of(value))
        case int() if kind.metavar == SIZE.metavar:
            return format_size(value)
        case Enum():
            return _choice_text(value)
        case Mapping():
            return ",".join(f"{key}={text_of(item, kind)}" for key, item in value.items())
        case list() | tuple() | set() | frozenset():
            return ",".join(text_of(item, kind) for item in value)
    return str(value)


def _last(texts: Sequence[str]) -> object:
    return texts[-1]


def _timedelta_text(texts: Sequence[str]) -> object:
    """A `timedelta` flag reads durations like all others; pydantic keeps its ISO forms (`PT5M`)."""
    try:
        return timedelta(microseconds=parse_duration(texts[-1]).micros)
    except ValueError:
        return texts[-1]


DURATION: Final = Kind("a duration", "DURATION", "10s", _last)
SIZE: Final = Kind("a size", "SIZE", "256MB", _last)
_SIMPLE: Final[dict[object, Kind]] = {
    str: Kind("text", "TEXT", "TEXT", _last),
    Path: Kind("a path", "PATH", "some/path", _last),
    int: Kind("a whole number", "INT", "10", _last),
    float: Kind("a number", "NUMBER", "0.5", _last),
    Decimal: Kind("a number", "NUMBER", "0.5", _last),
    bool: Kind("true or false", "", "true", _last, is_bool=True),
    timedelta: Kind("a duration", "DURATION", "10s", _timedelta_text),
    datetime: Kind("a date and time", "DATETIME", "2025-01-31T12:00:00Z", _last),
    date: Kind("a date", "DATE", "2025-01-31", _last),
    bytes: Kind("text", "TEXT", "TEXT", _last),
}
_LISTS: Final = (list, tuple, set, frozenset, Sequence, Iterable)


def _marked(marks: Iterable[object]) -> Kind | None:
    return next((mark for mark in marks if isinstance(mark, Kind)), None)


def _kind(annotation: Any) -> Kind:
    origin, args = get_origin(annotation), get_args(annotation)
    if alias := getattr(annotation, "__value__", None) or getattr(annotation, "__supertype__", None):
        return _kind(alias)  # `type Name = …` and NewType
    if origin is Annotated:
        return _marked(args[1:]) or _kind(args[0])
    if origin in (Union, types.UnionType):
        return _union_kind([arg for arg in args if arg is not types.NoneType], optional=types.NoneType in args)
    if origin is Literal:
        return _choice_kind(args)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _choice_kind(tuple(annotation))
    if (origin or annotation) in _LISTS:
        members = set(args) - {...}
        return _list_kind(_kind(members.pop()) if len(members) == 1 else _SIMPLE[str])
    if (origin or annotation) in (dict, Mapping):
        return _pairs_kind(_kind(args[1]) if args else _SIMPLE[str])
    return _SIMPLE.get(annotation) or _other_kind(annotation)


def _union_kind(members: Sequence[Any], optional: bool) -> Kind:
    """The first member that accepts the text; `T | None` takes `none` too where that can't be a text of T's."""
    kinds = [_kind(member) for member in members]
    kind = kinds[0]
    if len(kinds) > 1:
        adapters: list[TypeAdapter[Any]] = [TypeAdapter(member) for member in members]

        def first_accepting(texts: Sequence[str]) -> object:
            for kind, adapter in zip(kinds, adapters, strict=True):
                try:
                    return adapter.validate_python(kind.read(texts))
                except ValidationError:
                    continue
            return texts[-1]

        kind = Kind(
            takes=" or ".join(dict.fromkeys(kind.takes for kind in kinds)),
            metavar="|".join(dict.fromkeys(kind.metavar or "true|false" for kind in kinds)),
            example=kind.example,
            read=first_accepting,
        )
    if not optional or any(text in kind.metavar for text in ("TEXT", "PATH", "none")):
        return kind
    read = kind.read
    return replace(kind, read=lambda texts: None if texts[-1].lower() == "none" else read(texts))


def _choice_kind(choices: Sequence[object]) -> Kind:
    by_text = {
        text: choice for choice in choices if isinstance(choice, Enum) for text in (choice.name, str(choice.value))
    }
    names = [_choice_text(choice) for choice in choices]
    by_text |= dict(zip(names, choices, strict=True))  # type: ignore[arg-type]

    def read(texts: Sequence[str]) -> object:
        return by_text.get(texts[-1], texts[-1])

    return Kind(f"one of {', '.join(names)}", "|".join(names), names[0], read)


def _choice_text(choice: object) -> str:
    """The spelling of a choice: the value of an enum's member if that is text, else its name."""
    if isinstance(choice, Enum):
        return choice.value if isinstance(choice.value, str) else choice.name
    return "none" if choice is None else str(choice)


def _list_kind(element: Kind) -> Kind:
    """`--tag a --tag b`, `--tag a,b`, or as JSON where an element holds a comma: `--tag '["a,b"]'`."""

    def read(texts: Sequence[str]) -> object:
        items: list[object] = []
        for text in texts:
            if isinstance(listed := _json([text]), list):
                items += listed
            elif text:
                items += [element.read([part.strip()]) for part in text.split(",")]
        return items

    metavar = (element.metavar or "true|false") + ",…"
    return Kind(f"a list, each {element.takes}", metavar, element.example, read, multiple=True)


def _pairs_kind(value: Kind) -> Kind:
    """`--conf key=value`, repeated, or JSON; no commas, which values of settings often hold."""

    def read(texts: Sequence[str]) -> object:
        pairs: dict[object, object] = {}
        for text in texts:
            key, equals, of_key = text.partition("=")
            if isinstance(listed := _json([text]), dict):
                pairs |= listed
            elif equals:
                pairs[key] = value.read([of_key])
            elif text:
                return text
        return pairs

    return Kind("pairs key=value", "KEY=VALUE", f"key={value.example}", read, multiple=True)


def _other_kind(annotation: Any) -> Kind:
    """Models, dataclasses and the like are given as JSON, types that pydantic reads from text (UUID, URLs) as that."""
    return Kind(f"a value of type {getattr(annotation, '__name__', annotation)}", "VALUE", "", _json)


def _json(texts: Sequence[str]) -> object:
    if texts[-1].startswith(("{", "[")):
        try:
            return json.loads(texts[-1])
        except (ValueError, RecursionError):
            pass
    return texts[-1]
