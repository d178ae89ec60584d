"""Handles on the collections of a pipeline, and how to find them among the inputs and results of steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.sdk.data.columns import Schema
from tidegate.sdk.portable import model as nodes
from tidegate.sdk.typehints import hints
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.windowing.strategy import GLOBAL_DEFAULT, WindowingStrategy


class Applier:
    """Applies transforms: the interface of `Pipeline` that its collections use."""

    def apply(self, transform: Any, input: Any) -> Any:
        """Apply a transform to `input`, and return its result."""
        raise NotImplementedError


class PValue:
    """A handle on a collection: its id, the output `tag` of its step, and the type and windowing of its elements."""

    pipeline: Applier

    def __init__(
        self,
        pipeline: Applier,
        id: str,
        tag: str = nodes.MAIN,
        element_type: Any = Any,
        windowing: WindowingStrategy = GLOBAL_DEFAULT,
        bounded: bool = True,
    ) -> None:
        self.pipeline = pipeline
        self.id = id
        self.tag = tag
        self.element_type = element_type
        self.windowing = windowing
        self.is_bounded = bounded
        self.is_removed = False
        """Whether its step has been removed from the pipeline."""

    @property
    def schema(self) -> Schema | None:
        """The fields of the elements, if their type declares them."""
        if self.element_type is Any:
            return None
        from tidegate.sdk.data.schema import schema_of

        return schema_of(self.element_type)

    def as_data(self) -> nodes.Collection:
        """This collection in the portable pipeline."""
        return nodes.Collection(self.id, self.is_bounded, self.windowing, type_ref(self.element_type), self.schema)


def inputs_of(input: Any) -> list[PValue]:
    """The collections that a step is applied to. Iterators are left alone, since they can be consumed only once."""
    match input:
        case PValue():
            return [input]
        case Mapping():
            return [part for part in input.values() if isinstance(part, PValue)]
        case tuple() | list():
            return [part for part in input if isinstance(part, PValue)]
        case _:
            return []


def values_in(result: Any) -> list[PValue]:
    """The collections in a step's result: one, or those in a tuple, a mapping or a `MultiOutput`."""
    match result:
        case PValue():
            return [result]
        case str() | bytes() | Applier():
            return []
        case Mapping():
            return [pcoll for part in result.values() for pcoll in values_in(part)]
        case Iterable():
            return [pcoll for part in result for pcoll in values_in(part)]
        case _:
            return []


def type_ref(hint: Any) -> nodes.TypeRef:
    """An element type as data."""
    return (
        nodes.TypeRef() if hint is Any else nodes.TypeRef(hints.type_name(hint), UserFn.of(hint, hints.type_name(hint)))
    )
