"""The functions that steps of the library run for each element, under names that workers can import.

Where one makes its result on the spot (`return a, b`), the engine sees that it is a plain value and looks at none.
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
    """Whether `fn` surely asks for nothing beside its one argument: no defaults, which may be markers."""
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
    """The pair the other way round."""
    key, value = pair
    return value, key


def with_key(element: T, key: K) -> tuple[K, T]:
    """The element under a key."""
    return key, element


def with_computed_key(element: T, fn: Callable[[T], K]) -> tuple[K, T]:
    """The element under the key that `fn` gives it."""
    return fn(element), element


def with_computed_key_from(element: T, fn: Callable[..., K], *args: Any, **kwargs: Any) -> tuple[K, T]:
    """As `with_computed_key`, for a function with further arguments."""
    return fn(element, *args, **kwargs), element


def with_mapped_value(pair: tuple[K, T], fn: Callable[[T], R]) -> tuple[K, R]:
    """The pair with `fn` of its value."""
    key, value = pair
    return key, fn(value)


def with_mapped_value_from(pair: tuple[K, T], fn: Callable[..., R], *args: Any, **kwargs: Any) -> tuple[K, R]:
    """As `with_mapped_value`, for a function with further arguments."""
    key, value = pair
    return key, fn(value, *args, **kwargs)


def with_each_value(pair: tuple[K, T], fn: Callable[[T], Iterable[R] | None]) -> Iterable[tuple[K, R]] | None:
    """The key with each item that `fn` gives for the value, one at a time: there may be very many."""
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
    """The pair with its value marked as one of collection `number`."""
    key, value = pair
    return key, (number, value)


def untagged(pair: tuple[K, tuple[int, T]]) -> tuple[K, T]:
    """The pair as it was before `tagged`."""
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
