"""The author's code inside a pipeline: finding every reference to it, and replacing them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from tidegate.sdk.portable.model import Values
from tidegate.sdk.user_code.user_fn import UserFn

T = TypeVar("T")


def map_code(value: T, change: Any) -> T:
    """`value` with every UserFn and Values inside it replaced by `change` of it; unchanged parts are shared."""
    match value:
        case UserFn() | Values():
            return change(value)  # type: ignore[no-any-return]
        case tuple():
            changed = tuple(map_code(item, change) for item in value)
            same = all(a is b for a, b in zip(changed, value, strict=True))
            return value if same else changed  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        new = {}
        for f in fields(value):
            if f.init and f.compare:
                old = getattr(value, f.name)
                part = map_code(old, change)
                if part is not old:
                    new[f.name] = part
        if new:
            return replace(value, **new)
    return value


def code_of(value: Any) -> Iterator[UserFn | Values]:
    """Every UserFn and Values inside `value`, in a fixed order."""
    match value:
        case UserFn() | Values():
            yield value
        case tuple():
            for item in value:
                yield from code_of(item)
        case _ if is_dataclass(value) and not isinstance(value, type):
            for f in fields(value):
                if f.compare:
                    yield from code_of(getattr(value, f.name))
