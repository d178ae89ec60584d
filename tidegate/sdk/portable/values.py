"""The elements of a `Create` as a part of the portable pipeline."""

from __future__ import annotations

from typing import Any

from tidegate.sdk import moved
from tidegate.sdk.user_code.sealing import Sealer


class Values:
    """The elements of a `Create`: the author's objects while live, a pickle once sealed."""

    __slots__ = ("_live", "count", "data")

    def __init__(self, live: Any, count: int, data: bytes | None = None) -> None:
        self._live = live
        self.count = count
        self.data = data

    def load(self) -> Any:
        """The elements, as a sequence."""
        if self._live is None and self.data is not None:
            self._live = moved.loads(self.data)
        return self._live

    def sealed(self, sealer: Sealer, name: str) -> Values:
        """These elements with their pickle; raises PicklingError."""
        if self.data is not None:
            return self
        return Values(self._live, self.count, sealer.seal_values(self._live, name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Values):
            return NotImplemented
        if self.data is None or other.data is None:
            return self._live is other._live
        return self.data == other.data

    def __hash__(self) -> int:
        return hash(self.count)

    def __repr__(self) -> str:
        return f"Values({self.count})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.data is None:
            raise TypeError("the values of this Create are not sealed yet")
        return Values, (None, self.count, self.data)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """In JSON: an id in the table of values, which is passed as pydantic's context."""
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(
            lambda value, info: info.context.values_by_id(value),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda values, info: info.context.id_of_values(values), info_arg=True
            ),
        )
