"""Row, an immutable record with named fields."""

from __future__ import annotations

from collections import _tuplegetter as field_getter  # type: ignore[attr-defined]  # a third of the time of a property
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, ClassVar

from tidegate.sdk.errors import MissingAttribute


class Row(tuple[Any, ...]):
    """`Row(word="tide", n=3)`: an immutable record; fields are attributes, in the order given.

    Like a NamedTuple it is a tuple: it unpacks, compares, hashes and groups by its values in order, whatever their
    names, and has `_fields`, `_asdict()` and `_replace(…)`. Rows with the same names have the same class, created on
    first use; a pickle stores the names. Raises ValueError for a name that begins with an underscore.

        >>> row = Row(word="tide", n=3)
        >>> row.n, row == ("tide", 3), row._replace(n=4)
        (3, True, Row(word='tide', n=4))
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, **fields: Any) -> Row:
        return tuple.__new__(row_class(tuple(fields)), fields.values())

    def _asdict(self) -> dict[str, Any]:
        """The values by field name, as for a NamedTuple."""
        return dict(zip(self._fields, self, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """The same as `_asdict`."""
        return self._asdict()

    def _replace(self, /, **fields: Any) -> Row:
        """A row with other values in some fields. Raises ValueError for a name that is no field."""
        unknown = [name for name in fields if name not in self._fields]
        if unknown:
            raise ValueError(self._no_field(unknown[0]))
        return row_of(self._fields, [fields.get(name, value) for name, value in self._asdict().items()])

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError: Python calls this only for names that are not fields."""
        raise MissingAttribute(self._no_field(name))

    def _no_field(self, name: str) -> str:
        return f"this row has no field {name!r}; it has {', '.join(self._fields) or 'none'}"

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self, strict=True))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return row_of, (self._fields, tuple(self))


class _OfValues(tuple[Any, ...]):
    """The first base of the classes of rows: called with values, they make a row without any Python code, which takes
    two thirds of the time of `tuple.__new__`. `Row` itself is called with fields."""

    __slots__ = ()
    __new__ = tuple.__new__


@lru_cache(maxsize=4096)
def row_class(fields: tuple[str, ...]) -> type[Row]:
    """The class of rows with these fields."""
    bad = [name for name in fields if name.startswith("_")]
    if bad:
        raise ValueError(f"a row's fields can't begin with an underscore, as {bad[0]!r} does")
    members: dict[str, Any] = {name: field_getter(at, None) for at, name in enumerate(fields)}
    return type("Row", (_OfValues, Row), {**members, "__slots__": (), "_fields": fields, "__module__": Row.__module__})


def row_of(fields: tuple[str, ...], values: Iterable[Any]) -> Row:
    """A row with these names and values."""
    return row_maker(fields)(values)


def row_maker(fields: tuple[str, ...]) -> Callable[[Iterable[Any]], Row]:
    """A function that makes rows with these fields from their values."""
    made: Any = row_class(fields)
    return made  # type: ignore[no-any-return]
