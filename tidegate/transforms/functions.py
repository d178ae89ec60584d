"""The functions that the library's steps run for each element, at module level so that workers can import them.

If a function builds its result in the return statement (`return a, b`), the engine knows that it returns plain values,
never a `TimestampedValue` or the like, and doesn't inspect each result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")


def takes_one(fn: Any) -> bool:
    """True only if `fn` certainly takes nothing but the element: it has no defaults, which could be markers."""
    if isinstance(fn, FunctionType):
        return not (fn.__defaults__ or fn.__kwdefaults__)
    return isinstance(fn, (BuiltinFunctionType, MethodDescriptorType)) or fn in (str, int, float, bool, len)


def key_of(pair: tuple[K, Any]) -> K:
    """The key of a pair."""
    return pair[0]


def value_of(pair: tuple[Any, T]) -> T:
    """The value of a pair."""
    return pair[1]


def swapped(pair: tuple[K, T]) -> tuple[T, K]:
    """`(value, key)`."""
    key, value = pair
    return value, key


def with_key(element: T, key: K) -> tuple[K, T]:
    """`(key, element)`."""
    return key, element


def with_computed_key(element: T, fn: Callable[[T], K]) -> tuple[K, T]:
    """`(fn(element), element)`."""
    return fn(element), element


def key_and_value(element: T, key: Callable[[T], K], value: Callable[[T], R]) -> tuple[K, R]:
    """`(key(element), value(element))`."""
    return key(element), value(element)


def with_computed_key_from(element: T, fn: Callable[..., K], *args: Any, **kwargs: Any) -> tuple[K, T]:
    """As `with_computed_key`, for a function with further arguments."""
    return fn(element, *args, **kwargs), element


def with_mapped_value(pair: tuple[K, T], fn: Callable[[T], R]) -> tuple[K, R]:
    """`(key, fn(value))`."""
    key, value = pair
    return key, fn(value)


def with_mapped_value_from(pair: tuple[K, T], fn: Callable[..., R], *args: Any, **kwargs: Any) -> tuple[K, R]:
    """As `with_mapped_value`, for a function with further arguments."""
    key, value = pair
    return key, fn(value, *args, **kwargs)


def with_each_value(pair: tuple[K, T], fn: Callable[[T], Iterable[R] | None]) -> Iterable[tuple[K, R]] | None:
    """`(key, item)` for each item of `fn(value)`, lazily: there may be very many."""
    key, value = pair
    items = fn(value)
    return None if items is None else zip(repeat(key), items)


def with_each_value_from(
    pair: tuple[K, T], fn: Callable[..., Iterable[R] | None], *args: Any, **kwargs: Any
) -> Iterable[tuple[K, R]] | None:
    """As `with_each_value`, for a function with further arguments."""
    key, value = pair
    items = fn(value, *args, **kwargs)
    return None if items is None else zip(repeat(key), items)


def tagged(pair: tuple[K, T], number: int) -> tuple[K, tuple[int, T]]:
    """`(key, (number, value))`, where `number` is the number of the pair's collection."""
    key, value = pair
    return key, (number, value)


def untagged(pair: tuple[K, tuple[int, T]]) -> tuple[K, T]:
    """`(key, value)`: the inverse of `tagged`."""
    key, (_, value) = pair
    return key, value


def text_of(element: Any) -> str:
    """`str(element)`."""
    return str(element)


def text_of_pair(pair: tuple[Any, Any], delimiter: str) -> str:
    """Key and value with the delimiter between them."""
    key, value = pair
    return f"{key}{delimiter}{value}"


def text_of_items(items: Iterable[Any], delimiter: str) -> str:
    """The items with the delimiter between them."""
    return delimiter.join(map(str, items))
