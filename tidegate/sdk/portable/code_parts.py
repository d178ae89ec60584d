"""The author's code inside a pipeline: finding every reference to it, and replacing them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from tidegate.sdk.portable.values import Values
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
    kind: Any = type(value)
    new = {}
    for name, settable in _parts(kind):
        if settable:
            old = getattr(value, name)
            part = map_code(old, change)
            if part is not old:
                new[name] = part
    return replace(value, **new) if new else value  # type: ignore[type-var]


def code_of(value: Any) -> Iterator[UserFn | Values]:
    """Every UserFn and Values inside `value`, in a fixed order."""
    match value:
        case UserFn() | Values():
            yield value
        case tuple():
            for item in value:
                yield from code_of(item)
        case _:
            kind: Any = type(value)
            for name, _ in _parts(kind):
                yield from code_of(getattr(value, name))


@lru_cache(maxsize=256)
def _parts(kind: Any) -> tuple[tuple[str, bool], ...]:
    """The names of the fields that may have code, and whether `replace` can set them; () for other classes than
    dataclasses."""
    return tuple((f.name, f.init) for f in fields(kind) if f.compare) if is_dataclass(kind) else ()
