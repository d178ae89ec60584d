"""Makes elements from record batches: casts, filters, converts and constructs a whole batch at a time.

Only if one of these fails is the batch divided, until the bad records are found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from functools import reduce
from typing import Any

from tidegate.io.records.columns import fit, values_of
from tidegate.io.records.predicate import mask_of, matches
from tidegate.io.records.problems import Problem, WithProblems, excerpt
from tidegate.io.records.projection import Projected, Projection, Selection
from tidegate.io.records.pushed import Kept, mask_of_pushed, usable
from tidegate.io.records.shapes import BadValue
from tidegate.sdk.errors import shorten
from tidegate.sdk.relational.expressions import Tree, column_names


class BatchDecoder:
    """Makes elements from batches with the columns of one file, which `projection` describes.

    Those of rows that can't meet the `conditions` are left out if the whole batch can be decoded at once.

    >>> import pyarrow as pa
    >>> from tidegate.io.records.projection import project, selection_of
    >>> from tidegate.io.records.schema import of_arrow
    >>> batch = pa.record_batch({"city": ["Bonn", "Ulm"], "people": [331, 129]})
    >>> columns = of_arrow(batch.schema)
    >>> selection = selection_of("ReadFromParquet", as_=dict, where=[("people", ">", 200)])
    >>> BatchDecoder(selection, project(columns, selection, columns, "cities.parquet")).decode(batch)
    [{'city': 'Bonn', 'people': 331}]
    """

    def __init__(self, selection: Selection, projection: Projection, conditions: Sequence[Tree] = ()) -> None:
        self._selection = selection
        self._projection = projection
        names = tuple(column.name for column in projection.columns)
        self._width = len(names)
        self._make = selection.shape.maker(names)
        self._all = (*projection.columns, *projection.for_conditions)
        self._conditions = usable(conditions, projection.columns)
        self._as_stored = {column.name for column in projection.columns if column.default is None}

    def decode(self, batch: Any) -> list[Any]:
        """The elements of a batch's records, with a `Problem` in the place of each that is bad."""
        try:
            return self._decode(batch, self._conditions)
        except _Refused:
            return WithProblems(self._divided(batch, 0))

    def decode_all(self, batch: Any) -> list[Any]:
        """As `decode`, without leaving out elements by the conditions."""
        try:
            return self._decode(batch)
        except _Refused:
            return WithProblems(self._divided(batch, 0))

    def _divided(self, batch: Any, offset: int) -> list[Any]:
        try:
            return self._decode(batch)
        except _Refused as error:
            rows = batch.num_rows
            if rows == 1:
                return [Problem(offset, error.column, error.reason, error.text or self._text(batch, error.column))]
            half = rows // 2
            return self._divided(batch.slice(0, half), offset) + self._divided(batch.slice(half), offset + half)

    def _decode(self, batch: Any, conditions: Sequence[Tree] = ()) -> list[Any]:
        if not batch.num_rows:
            return []
        if not self._all:
            raise _Refused(None, "it has no columns")
        columns = [self._fitted(batch, column) for column in self._all]
        if self._selection.where:
            columns = self._filtered(columns)
        if not len(columns[0]):
            return []
        of, rows = len(columns[0]), None
        if conditions:
            columns, rows = self._kept(conditions, columns)
        values = [self._values(column, array) for column, array in zip(self._all[: self._width], columns)]
        try:
            elements = self._make(values)
        except BadValue as error:
            first = error.problems[0]
            raise _Refused(first.column, first.reason, first.text) from error
        return elements if rows is None else Kept(elements, rows, of)

    def _kept(self, conditions: Sequence[Tree], columns: list[Any]) -> tuple[list[Any], Sequence[int] | None]:
        """The columns without the rows that can't meet the conditions, and the numbers of the others; None for all."""
        import pyarrow.compute as pc

        arrays = {each.name: array for each, array in zip(self._all, columns) if each.name in self._as_stored}
        mask = mask_of_pushed([each for each in conditions if column_names(each).keys() <= arrays.keys()], arrays)
        if mask is None or mask.true_count == len(mask):
            return columns, None
        return [array.filter(mask) for array in columns], pc.indices_nonzero(mask).to_pylist()

    def _fitted(self, batch: Any, column: Projected) -> Any:
        import pyarrow as pa

        if not column.in_file:
            return pa.nulls(batch.num_rows, column.type)
        array = batch.column(column.name)
        if not column.nullable and array.null_count and column.default is None:
            raise _Refused(column.name, "it is null, and the schema doesn't allow that")
        try:
            return fit(array, column.type, self._selection.timezone)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise _Refused(column.name, f"as {column.type}: {_first_line(error)}") from error

    def _filtered(self, columns: list[Any]) -> list[Any]:
        import pyarrow.compute as pc

        by_name = {column.name: array for column, array in zip(self._all, columns)}
        masks = [mask_of(condition, by_name[condition.column]) for condition in self._selection.where]
        mask = reduce(pc.and_, masks)
        if mask.true_count == len(mask):
            return columns
        return [column.filter(mask) for column in columns[: self._width]]

    def _values(self, column: Projected, array: Any) -> list[Any]:
        try:
            values = values_of(array)
        except (ValueError, OverflowError) as error:
            raise _Refused(column.name, _first_line(error)) from error
        default = column.default
        if default is not None and array.null_count:
            return [default() if value is None else value for value in values]
        return values

    def _text(self, batch: Any, column: str | None) -> str:
        names = [column] if column is not None and column in batch.schema.names else list(batch.schema.names)
        try:
            found = {name: batch.column(name)[0] for name in names}
            text = str(found[column]) if column in found else str({name: str(each) for name, each in found.items()})
        except (ValueError, OverflowError):
            return ""
        return excerpt(text)


class DictDecoder:
    """Makes elements from records that are dicts already, such as Avro's. The values have the types of the schema, or
    are numbers of a narrower type."""

    def __init__(self, selection: Selection, projection: Projection | None) -> None:
        """`projection` None: the dicts are the elements."""
        self._selection = selection
        self._names = None if projection is None else tuple(column.name for column in projection.columns)
        self._make = None if self._names is None else selection.shape.maker(self._names)
        self._columns = () if projection is None else projection.columns
        self._fits = {} if projection is None else _value_fits(projection, selection.timezone)

    def decode(self, records: Sequence[dict[str, Any]]) -> list[Any]:
        """The elements of records, with a `Problem` in the place of each that is bad."""
        if self._selection.where:
            records = [record for record in records if matches(self._selection.where, record)]
        if self._make is None:
            return list(records)
        try:
            return self._decode(records)
        except _Refused:
            return WithProblems(each for at, record in enumerate(records) for each in self._singly(at, record))

    def _singly(self, at: int, record: dict[str, Any]) -> list[Any]:
        try:
            return self._decode([record])
        except _Refused as error:
            text = error.text or shorten(record.get(error.column) if error.column else record)
            return [Problem(at, error.column, error.reason, text)]

    def _decode(self, records: Sequence[dict[str, Any]]) -> list[Any]:
        assert self._make is not None
        if not records:
            return []
        columns = []
        for column in self._columns:
            name = column.name
            values = [record.get(name) for record in records]
            if not column.nullable and None in values:
                raise _Refused(name, "it is null, and the schema doesn't allow that")
            if (fits := self._fits.get(name)) is not None:
                try:
                    values = [None if value is None else fits(value) for value in values]
                except (ValueError, OverflowError, ArithmeticError) as error:
                    raise _Refused(name, _first_line(error)) from error
            columns.append(values)
        try:
            return self._make(columns)
        except BadValue as error:
            first = error.problems[0]
            raise _Refused(first.column, first.reason, first.text) from error


def _value_fits(projection: Projection, timezone: str | None) -> dict[str, Callable[[Any], Any]]:
    """The conversions of columns whose values fastavro returns as another type: naive times, narrower numbers, and
    decimals of other digits."""
    from tidegate.io.records.types import kind_of

    found: dict[str, Callable[[Any], Any]] = {}
    for column in projection.columns:
        match None if column.type is None else kind_of(column.type):
            case "float":
                found[column.name] = float
            case "decimal":
                found[column.name] = _decimal_of(column.type.precision, column.type.scale)
            case "timestamp":
                found[column.name] = _instant_in(timezone)
    return found


def _decimal_of(precision: int, scale: int) -> Callable[[Any], Any]:
    from decimal import Context, Decimal

    unit, wide = Decimal(1).scaleb(-scale), Context(100)

    def exactly(value: Any) -> Decimal:
        found = Decimal(value)
        rounded = found.quantize(unit, context=wide)
        if rounded != found or (rounded and rounded.adjusted() >= precision - scale):
            raise ValueError(f"{found} is no decimal({precision},{scale})")
        return rounded

    return exactly


def _instant_in(timezone: str | None) -> Callable[[Any], Any]:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    zone = ZoneInfo(timezone) if timezone is not None else None

    def instant(value: datetime) -> datetime:
        if value.tzinfo is not None:
            return value.astimezone(UTC) if value.tzinfo is not UTC else value
        earlier, later = (value.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        if earlier != later or earlier.astimezone(zone).replace(tzinfo=None, fold=0) != value:
            raise ValueError(f"{value} is skipped or repeated by a clock change in {timezone}")
        return earlier

    return instant


class _Refused(Exception):
    """A batch has a record that can't become an element."""

    def __init__(self, column: str | None, reason: str, text: str | None = None) -> None:
        super().__init__(reason)
        self.column = column
        self.reason = reason
        self.text = text


def _first_line(error: BaseException) -> str:
    return str(error).strip().rstrip(".").splitlines()[0] if str(error) else type(error).__name__
