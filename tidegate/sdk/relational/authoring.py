"""Expressions as authors write them: `tg.col("price") * tg.col("qty") > 10`.

Operators of Python build the tree of an `Expression`; nothing is computed and no type is known before a step binds it
to the columns of its input.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from decimal import Context, Decimal
from typing import Any, ClassVar, Final, NoReturn

from tidegate.sdk.data.columns import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    MAX_PRECISION,
    STRING,
    TIMESTAMP,
    UNKNOWN,
    VOID,
    ColumnType,
)
from tidegate.sdk.data.schema import column_type
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.relational.decimal_types import decimal_of
from tidegate.sdk.relational.expressions import Call, Case, Cast, Column, Literal, Tree, text
from tidegate.sdk.relational.operations import OPERATIONS
from tidegate.sdk.relational.relations import Order
from tidegate.sdk.time import Duration, Timestamp


class Expression:
    """An expression over the columns of an element: a column, a literal, or an operation on expressions.

    The operators are those of SQL: a NULL operand gives NULL, `&`, `|` and `~` are AND, OR and NOT, `==` compares, `/`
    of whole numbers is a double, and `%` has the sign of the dividend. Numbers, strings, dates and None become
    literals.
    """

    __slots__ = ("name", "tree")
    is_expression: ClassVar[bool] = True
    __hash__: ClassVar[None] = None  # type: ignore[assignment]
    __iter__: ClassVar[None] = None

    def __init__(self, tree: Tree, name: str | None = None) -> None:
        self.tree = tree
        self.name = name

    def alias(self, name: str) -> Expression:
        """The same expression with a name, for the column that `Select` makes of it."""
        return Expression(self.tree, name)

    def asc(self, *, nulls_first: bool = True) -> Ordering:
        """The order by this value, the least one first; NULL comes first, or last."""
        return Ordering(self, Order(self.tree, nulls_first=nulls_first))

    def desc(self, *, nulls_first: bool = False) -> Ordering:
        """The order by this value, the greatest one first; NULL comes last, or first."""
        return Ordering(self, Order(self.tree, descending=True, nulls_first=nulls_first))

    def filter(self, condition: Any) -> Expression:
        """This aggregate of the elements for which a condition is true: `tg.fn.sum("price").filter(...)`."""
        match self.tree:
            case Call(operation="count", arguments=()):
                value: Tree = Literal(True, BOOLEAN)
            case Call(operation=operation, arguments=(value,)) if OPERATIONS[operation].aggregate:
                pass
            case _:
                raise BuildError(f"{self} is no aggregate: filter() leaves out elements of one, as of tg.fn.count()")
        case = Case(((tree_of(condition), value),), Literal(None, VOID))
        return Expression(Call(self.tree.operation, (case,)), self.name)

    def cast(self, type: Any) -> Expression:
        """The value converted to a type, a name in SQL or a Python type; an error if it can't be converted."""
        return Expression(Cast(self.tree, column_type(type)))

    def is_null(self) -> Expression:
        """Whether the value is NULL. Never NULL itself."""
        return _call("is_null", self)

    def is_not_null(self) -> Expression:
        """Whether the value is not NULL. Never NULL itself."""
        return _call("not", self.is_null())

    def is_distinct_from(self, other: Any) -> Expression:
        """Whether both differ, where NULL equals NULL. Never NULL itself."""
        return _call("not", _call("not_distinct", self, other))

    def is_not_distinct_from(self, other: Any) -> Expression:
        """Whether both are equal, where NULL equals NULL. Never NULL itself."""
        return _call("not_distinct", self, other)

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Whether the value is one of these. If it is none, and NULL is among them, the result is NULL."""
        if isinstance(values, (str, bytes, Expression)) or not isinstance(values, Iterable):
            raise BuildError(f"is_in takes a list of values, not {shorten(values)}")
        return _call("is_in", self, *values)

    def between(self, least: Any, greatest: Any) -> Expression:
        """Whether the value is at least the first and at most the second."""
        return _call("and", self >= least, self <= greatest)

    def like(self, pattern: str) -> Expression:
        """Whether the whole string matches: `%` stands for any text, `_` for one code point, `\\` escapes either."""
        return _call("like", self, pattern)

    def __add__(self, other: Any) -> Expression:
        return _call("add", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _call("add", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _call("subtract", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _call("subtract", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _call("multiply", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _call("multiply", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _call("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _call("divide", other, self)

    def __mod__(self, other: Any) -> Expression:
        return _call("remainder", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return _call("remainder", other, self)

    def __floordiv__(self, other: Any) -> NoReturn:
        raise BuildError(
            f"{self} // …: Python rounds such a quotient down, and SQL truncates it. For SQL's, write "
            "tg.fn.div(a, b); for Python's, tg.fn.floor(a / b)"
        )

    __rfloordiv__ = __floordiv__

    def __neg__(self) -> Expression:
        return _call("negate", self)

    def __abs__(self) -> Expression:
        return _call("abs", self)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return _call("equal", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return _call("not_equal", self, other)

    def __lt__(self, other: Any) -> Expression:
        return _call("less", self, other)

    def __le__(self, other: Any) -> Expression:
        return _call("less_or_equal", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _call("greater", self, other)

    def __ge__(self, other: Any) -> Expression:
        return _call("greater_or_equal", self, other)

    def __and__(self, other: Any) -> Expression:
        return _call("and", self, other)

    def __rand__(self, other: Any) -> Expression:
        return _call("and", other, self)

    def __or__(self, other: Any) -> Expression:
        return _call("or", self, other)

    def __ror__(self, other: Any) -> Expression:
        return _call("or", other, self)

    def __invert__(self) -> Expression:
        return _call("not", self)

    def __getitem__(self, part: Any) -> Expression:
        """The item of an array at an index from 0, the value that a map has for a key, or the field of a record."""
        if isinstance(part, slice):
            raise BuildError(f"{self}[{part.start or ''}:{part.stop or ''}]: an expression has no slices")
        return _call("part", self, part)

    def __bool__(self) -> NoReturn:
        raise BuildError(
            f"the expression {self} is neither true nor false: it has a value for each element of a run. "
            "Combine conditions with & (and), | (or) and ~ (not), each in parentheses; test for a list of values with "
            ".is_in([...])"
        )

    def __contains__(self, item: object) -> NoReturn:
        raise BuildError(
            f"{shorten(item)} in {self}: write tg.fn.contains({self}, {shorten(item)}), or tg.fn.array_contains(…) of "
            "an array"
        )

    def __repr__(self) -> str:
        return text(self.tree) if self.name is None else f"{text(self.tree)} as {self.name}"


class Ordering:
    """An expression with a direction, in an order of elements."""

    __slots__ = ("expression", "order")

    def __init__(self, expression: Expression, order: Order) -> None:
        self.expression = expression
        self.order = order

    def __repr__(self) -> str:
        direction = "desc" if self.order.descending else "asc"
        plain = self.order.nulls_first != self.order.descending
        return f"{self.expression}.{direction}({'' if plain else f'nulls_first={self.order.nulls_first}'})"


def order_of(given: Any) -> Order:
    """The order by a column's name, an expression, or one with a direction. Raises BuildError for anything else."""
    match given:
        case Ordering():
            return given.order
        case _:
            return Order(tree_of_column(given))


def tree_of_column(given: Any) -> Tree:
    """The tree of a column's name or of an expression. Raises BuildError for anything else."""
    match given:
        case str():
            return col(given).tree
        case Expression():
            return given.tree
    raise BuildError(f"a column is a name or an expression, not {shorten(given)}")


class When(Expression):
    """A CASE, which is NULL if no condition is true; `when` adds a condition, `otherwise` the value if none is true."""

    __slots__ = ("branches",)

    def __init__(self, branches: tuple[tuple[Tree, Tree], ...]) -> None:
        super().__init__(Case(branches, Literal(None, VOID)))
        self.branches = branches

    def when(self, condition: Any, value: Any) -> When:
        """Another condition, asked if all before it are not true."""
        return When((*self.branches, (tree_of(condition), tree_of(value))))

    def otherwise(self, value: Any) -> Expression:
        """The value if no condition is true."""
        return Expression(Case(self.branches, tree_of(value)))


def col(name: str, type: Any = None) -> Expression:
    """A column: the field `name` of each element.

    Its type is that of the field in the element type. `type`, a Python type such as `int` or a name in SQL such as
    `"bigint"`, gives one to a field without; the column may then be NULL. Values of another type are an error when the
    pipeline runs.
    """
    if not isinstance(name, str) or not name:
        raise BuildError(f"tg.col takes the name of a column, not {shorten(name)}")
    return Expression(Column(name, UNKNOWN if type is None else column_type(type)), name)


def lit(value: Any) -> Expression:
    """A literal: a bool, int, float, Decimal, str, bytes, date, aware datetime, timedelta, Timestamp, Duration, or None
    for NULL."""
    return Expression(literal(value))


def literal(value: Any) -> Literal:
    """A literal with the type of its value. Raises BuildError for a value that no literal has."""
    match value:
        case None:
            return Literal(None, VOID)
        case Timestamp():
            return Literal(value.to_utc_datetime(), TIMESTAMP)
        case Duration():
            return Literal(datetime.timedelta(microseconds=value.micros), INTERVAL)
        case datetime.datetime():
            if value.tzinfo is None:
                raise BuildError(f"{value!r} has no time zone, so it is not an instant: add tzinfo=timezone.utc")
            return Literal(value.astimezone(datetime.UTC), TIMESTAMP)
        case Decimal():
            type = decimal_of(value)
            if type is None:
                raise BuildError(f"{value} is no decimal of at most {MAX_PRECISION} digits")
            scaled = value.quantize(Decimal(1).scaleb(-type.scale), context=_WIDE)
            return Literal(scaled if scaled else scaled.copy_abs(), type)
        case int() if not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            raise BuildError(f"{value} is out of range for bigint, which has 64 bits")
    for kind, scalar in _LITERALS.items():
        if isinstance(value, kind):
            return Literal(value, scalar)
    raise BuildError(
        f"{shorten(value)} can't be part of an expression: literals are numbers, strings, bytes, bools, dates, times "
        "and None. A column is tg.col(name)"
    )


_WIDE: Final = Context(100)
_LITERALS: Final[dict[type, ColumnType]] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: STRING,
    bytes: BINARY,
    datetime.date: DATE,
    datetime.timedelta: INTERVAL,
}


def tree_of(value: Any) -> Tree:
    """The tree of an expression, or of a value as a literal."""
    return value.tree if isinstance(value, Expression) else literal(value)


def is_expression(value: object) -> bool:
    """Whether a value is an `Expression`."""
    return isinstance(value, Expression)


def _call(operation: str, *arguments: Any) -> Expression:
    return Expression(Call(operation, tuple(map(tree_of, arguments))))
