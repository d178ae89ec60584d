"""Join.on(...): joins of collections by columns, in rows of the columns of both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias, get_args

from tidegate.sdk.data.columns import Schema
from tidegate.sdk.data.row import Row
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives.relate import relate
from tidegate.sdk.relational.authoring import Expression, col
from tidegate.sdk.relational.expressions import Call, Column, Tree, mapped
from tidegate.sdk.relational.relations import Join, JoinKind, Named
from tidegate.sdk.steps.transform import Transform
from tidegate.sdk.time import Duration, DurationLike
from tidegate.transforms.rows.fields import is_computation

Key: TypeAlias = str | tuple[str | Expression, str | Expression]
Within: TypeAlias = DurationLike | tuple[DurationLike, DurationLike]

_KINDS: Final = get_args(JoinKind)


class JoinOn(Transform):
    """A join of two collections by columns; `Join.on(...)` returns one."""

    def __init__(
        self,
        other: PCollection[Any],
        keys: Iterable[Key],
        how: str,
        within: Within | None,
        where: Expression | None,
        suffix: str | None,
        name: str | None,
    ) -> None:
        self.keys = [_pair(key) for key in keys]
        if how not in _KINDS:
            raise BuildError(f"Join.on: how is one of {', '.join(_KINDS)}, not {shorten(how)}")
        if where is not None and not is_computation(where):
            raise BuildError(f"Join.on: where is an expression over the columns of both sides, not {shorten(where)}")
        self.other = other
        self.how: Any = how
        self.within = None if within is None else _bounds(within)
        self.where = where
        self.suffix = suffix
        self.label = name

    def default_label(self) -> str:
        return f"Join.on({', '.join(str(left.name or left) for left, _ in self.keys)})"

    def __call__(self, pcoll: PCollection[Any]) -> PCollection[Row]:
        result: PCollection[Row] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[Any]) -> PCollection[Row]:
        if not isinstance(self.other, PCollection) or self.other.pipeline is not input.pipeline:
            raise BuildError("Join.on takes a PCollection of the same pipeline, and then the names of columns")
        columns = self._columns(input.schema, self.other.schema)
        emitted = {name: tree for name, tree in columns.items() if self.how not in ("semi", "anti") or not _right(tree)}
        relation = Join(
            self.how,
            tuple((left.tree, _of_right(right.tree)) for left, right in self.keys),
            tuple(Named(name, self._value(name, tree)) for name, tree in emitted.items()),
            None if self.where is None else _resolved(self.where.tree, columns),
            self.within,
        )
        return relate([input, self.other], relation)[0]

    def _columns(self, left: Schema | None, right: Schema | None) -> dict[str, Column]:
        """The columns of both sides by their names in the rows. A key that has one name on both sides is one column."""
        columns = {name: Column(name) for name in (left.names if left is not None else ())}
        shared = {one.name for one, two in self.keys if _is_column(one) and _is_column(two) and one.name == two.name}
        for name in right.names if right is not None else ():
            if name in columns and name in shared:
                continue
            own = f"{name}{self.suffix}" if name in columns and self.suffix else name
            if own in columns and self.how not in ("semi", "anti"):
                raise BuildError(
                    f"Join.on: both sides have a column {name!r}: give those of the right side a suffix, as in "
                    "suffix='_right', or leave some out by tg.Select(...) before"
                )
            columns.setdefault(own, Column(name, input=1))
        return columns

    def _value(self, name: str, column: Column) -> Tree:
        """What a column of the rows has: a key that is one column has the value of the side that is there."""
        if not any(one.name == two.name == name and _is_column(one) and _is_column(two) for one, two in self.keys):
            return column
        match self.how:
            case "right":
                return Column(name, input=1)
            case "full":
                return Call("coalesce", (column, Column(name, input=1)))
        return column


def _pair(key: Any) -> tuple[Expression, Expression]:
    match key:
        case str():
            return col(key), col(key)
        case (left, right):
            return _side(left), _side(right)
    raise BuildError(
        "Join.on: a key is the name of a column that both sides have, or a pair of a column or expression of the left "
        f"side and one of the right side, not {shorten(key)}"
    )


def _side(given: Any) -> Expression:
    if isinstance(given, str):
        return col(given)
    if isinstance(given, Expression):
        return given
    raise BuildError(f"Join.on: a part of a key is the name of a column or an expression, not {shorten(given)}")


def _bounds(within: Any) -> tuple[int, int]:
    """The range of the right timestamp minus the left one, in µs: from -d to d for a single duration."""
    if isinstance(within, tuple):
        lower, upper = (Duration.of(each).micros for each in within)
    else:
        upper = Duration.of(within).micros
        lower = -upper
    if upper < lower:
        raise BuildError(f"Join.on: within={shorten(within)} is empty: its beginning is after its end")
    return lower, upper


def _is_column(side: Expression) -> bool:
    return isinstance(side.tree, Column)


def _right(column: Column) -> bool:
    return column.input == 1


def _of_right(tree: Tree) -> Tree:
    return mapped(tree, lambda each: Column(each.name, each.type, input=1) if isinstance(each, Column) else None)


def _resolved(tree: Tree, columns: dict[str, Column]) -> Tree:
    """An expression over the columns of the rows, as one over both sides."""

    def side(each: Tree) -> Tree | None:
        if not isinstance(each, Column):
            return None
        found = columns.get(each.name)
        if found is None:
            raise BuildError(f"Join.on: the rows have no column {each.name!r}; they have {', '.join(columns)}")
        return Column(found.name, each.type, input=found.input)

    return mapped(tree, side)
