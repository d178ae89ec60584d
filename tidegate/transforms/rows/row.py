"""Row, an immutable record with named fields, and Select, which converts elements to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Map
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.typehints.hints import field_types, is_union, plain_hint
from tidegate.sdk.typehints.signatures import signature_of

if TYPE_CHECKING:
    from tidegate.sdk.relational.authoring import Expression as Computation

Expression: TypeAlias = str | Callable[[Any], Any]
"""A field of an element, by its attribute's name or as a function of the element."""


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
        raise AttributeError(self._no_field(name))

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
    members: dict[str, Any] = {name: property(itemgetter(at)) for at, name in enumerate(fields)}
    return type("Row", (_OfValues, Row), {**members, "__slots__": (), "_fields": fields, "__module__": Row.__module__})


def row_of(fields: tuple[str, ...], values: Iterable[Any]) -> Row:
    """A row with these names and values."""
    return row_maker(fields)(values)


def row_maker(fields: tuple[str, ...]) -> Callable[[Iterable[Any]], Row]:
    """A function that makes rows with these fields from their values."""
    made: Any = row_class(fields)
    return made  # type: ignore[no-any-return]


class Select(PTransform[PCollection[Any], PCollection[Row]]):
    """Convert elements to Rows: `Select("word", n=len)` copies the attribute `word` and sets `n` to `len(element)`.

    A function given without a name becomes the field `arg0`, `arg1`, … by its position. Expressions
    (`Select("user", total=tg.col("price") * tg.col("qty"))`) are checked against the schema of the input, and give the
    rows one; without a name they have that of their column or `alias`.
    """

    def __init__(
        self, *fields: Expression | Computation, name: str | None = None, **named: Expression | Computation
    ) -> None:
        self.expressions = expressions_of("Select", "arg", fields, named)
        if not self.expressions:
            raise BuildError('Select takes at least one field, such as Select("word", n=len)')
        self.label = name

    def default_label(self) -> str:
        return f"Select({', '.join(self.expressions)})"

    def expand(self, input: PCollection[Any]) -> PCollection[Row]:
        make: Callable[[Any], Row] = RowOf(self.expressions)
        hint: Any = Row
        if any(map(is_computation, self.expressions.values())):
            from tidegate.transforms.rows.computed import select_rows

            make, hint = select_rows(self.expressions, input.element_type)
        return Map(make).with_output_types(hint).expand(input)  # type: ignore[no-any-return]


class RowOf:
    """A function from an element to the Row of its expressions' values."""

    def __init__(self, expressions: dict[str, Expression]) -> None:
        self.expressions = expressions
        self._make = row_maker(tuple(expressions))
        self._values = values_function(expressions.values())

    def __call__(self, element: Any) -> Row:
        return self._make(self._values(element))

    def __reduce__(self) -> tuple[Any, ...]:
        return RowOf, (self.expressions,)


def is_computation(field: Any) -> bool:
    """Whether a field is an expression over columns, such as `tg.col("price") * 2`."""
    return bool(getattr(type(field), "is_expression", False))


def expressions_of(owner: str, unnamed: str, fields: Iterable[Any], named: dict[str, Any]) -> dict[str, Any]:
    """The expressions by field name. Raises BuildError for a name given twice or a bad expression."""
    found: dict[str, Any] = {}
    for at, field in enumerate(fields):
        if is_computation(field):
            from tidegate.transforms.rows.computed import named_expression

            add_field(owner, found, named_expression(field, owner), field)
        else:
            add_field(owner, found, field if isinstance(field, str) else f"{unnamed}{at}", field)
    for name, field in named.items():
        add_field(owner, found, name, field)
    return found


def add_field(owner: str, found: dict[str, Any], name: str, field: Any) -> None:
    """Add an expression as field `name`. Raises BuildError as `expressions_of` does."""
    if not isinstance(field, str) and not callable(field) and not is_computation(field):
        raise BuildError(f"{owner}: a field is an attribute's name, a function or an expression, not {shorten(field)}")
    if name in found:
        raise BuildError(f"{owner}: the field {name!r} occurs twice: give one of them another name")
    if not name.isidentifier() or name.startswith("_"):
        rule = "names are identifiers that don't begin with an underscore"
        raise BuildError(f"{owner}: {name!r} can't name a field: {rule}")
    found[name] = field


def function_of(expression: Expression) -> Callable[[Any], Any]:
    """The expression as a function of an element."""
    return attrgetter(expression) if isinstance(expression, str) else expression


def values_function(expressions: Iterable[Expression]) -> Callable[[Any], tuple[Any, ...]]:
    """A function from an element to the values of several expressions, in order."""
    functions = tuple(map(function_of, expressions))
    names = [expression for expression in expressions if isinstance(expression, str)]
    return attrgetter(*names) if len(names) == len(functions) > 1 else _Values(functions)


class _Values:
    def __init__(self, functions: tuple[Callable[[Any], Any], ...]) -> None:
        self.functions = functions

    def __call__(self, element: Any) -> tuple[Any, ...]:
        return tuple([function(element) for function in self.functions])


def expression_type(expression: Expression, element_type: Any) -> Any:
    """The type of an expression's values for elements of type `element_type`."""
    if not isinstance(expression, str):
        return signature_of(expression).result
    plain = plain_hint(element_type)
    if plain is Any or is_union(plain) or not isinstance(getattr(plain, "__origin__", plain), type):
        return Any
    return field_types(plain).get(expression, Any)
