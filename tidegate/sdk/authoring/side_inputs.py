"""Side inputs: the contents of a collection's window as an extra argument of a step (SEMANTICS, Side inputs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

View: TypeAlias = Literal["singleton", "iter", "list", "dict", "multimap"]


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


@dataclass(frozen=True, slots=True)
class SideInput:
    """A view of `pcoll` for use as an argument, created by `AsList(pcoll)` and the like."""

    pcoll: Any
    view: View
    default: Any = MISSING


def AsSingleton(pcoll: Any, default: Any = MISSING) -> Any:
    """The only element of the collection; `default` if it is empty (an error if there is no default)."""
    return SideInput(pcoll, "singleton", default)


def AsIter(pcoll: Any) -> Any:
    """The elements as an iterable that can be iterated repeatedly."""
    return SideInput(pcoll, "iter")


def AsList(pcoll: Any) -> Any:
    """The elements as a list."""
    return SideInput(pcoll, "list")


def AsDict(pcoll: Any) -> Any:
    """Pairs as a dict; a key that occurs twice is an error."""
    return SideInput(pcoll, "dict")


def AsMultiMap(pcoll: Any) -> Any:
    """Pairs as a dict from key to the list of its values."""
    return SideInput(pcoll, "multimap")
