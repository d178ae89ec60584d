"""Reading Parquet. Files are divided between row groups, and statistics tell which of them can be skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from tidegate.io.file_source.format import Chunk, FileFormat, Reading, Start
from tidegate.io.file_source.opened import OpenedFile
from tidegate.io.formats.packages import need_pyarrow
from tidegate.io.formats.parquet_tables import parquet_table
from tidegate.io.records.decoder import BatchDecoder
from tidegate.io.records.predicate import Condition, may_match
from tidegate.io.records.problems import BadRecord, bad_file
from tidegate.io.records.projection import Projection, Selection
from tidegate.io.records.pushed import Kept, Statistics, may_meet, usable
from tidegate.io.records.schema import RecordSchema, of_arrow
from tidegate.io.records.types import kind_of
from tidegate.sdk.connectors.outage import is_outage
from tidegate.sdk.connectors.stored_tables import StoredTable
from tidegate.sdk.errors import PositionLost, ReadError

_BATCH_BYTES: Final = 8 << 20
_BATCH_ROWS: Final = 8192


class FileColumns(NamedTuple):
    """How the columns of a file are read: `to_read` are those that it has, and `complete` adds the other ones of the
    projection to a batch."""

    projection: Projection
    to_read: Sequence[str]
    complete: Callable[[Any, int], Any]


@dataclass(frozen=True, slots=True)
class ParquetFormat(FileFormat):
    """Parquet files. A chunk starts at `[row group, row]`."""

    name: ClassVar[str] = "parquet"
    divided_by: ClassVar = "parts"
    states_columns: ClassVar[bool] = True

    def check(self, of: str) -> None:
        need_pyarrow(of)

    def inspect(self, file: OpenedFile, selection: Selection) -> RecordSchema | None:
        return of_arrow(_opened(file).schema_arrow)

    def stored_table(self, paths: Sequence[str], selection: Selection) -> StoredTable | str:
        return (
            parquet_table(paths, selection)
            if type(self) is ParquetFormat
            else FileFormat.stored_table(self, paths, selection)
        )

    def parts(self, file: OpenedFile, selection: Selection) -> Sequence[int]:
        metadata = _opened(file).metadata
        return [metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups)]

    def read(self, file: OpenedFile, start: Start, reading: Reading) -> Iterator[Chunk]:
        try:
            parquet = _opened(file)
            columns = self.columns(file, parquet, reading)
        except PositionLost:
            raise
        except ReadError as error:
            if reading.refuses(error):
                raise
            yield [0, 0], [bad_file(file.url, error)]
            return
        metadata = parquet.metadata
        decoder = BatchDecoder(reading.selection, columns.projection, reading.conditions)
        skips = _Skips(parquet, reading, columns.projection)
        first_group, first_row = start or (file.part.start, 0)
        end = metadata.num_row_groups if file.part.end is None else file.part.end
        before = sum(metadata.row_group(at).num_rows for at in range(first_group))
        for group in range(first_group, end):
            rows = metadata.row_group(group).num_rows
            at = first_row if group == first_group else 0
            if skips.skips(group):
                pass
            elif not reading.selection.where and skips.leaves_out(group):  # positions count what meets `where`
                yield [group, at], Kept((), (), max(0, rows - at))
            else:
                yield from _group(file, parquet, group, at, before, decoder, columns, reading)
            before += rows

    def columns(self, file: OpenedFile, parquet: Any, reading: Reading) -> FileColumns:
        """How the columns of an opened file are read. ReadError if they don't fit."""
        projection = reading.project(file, of_arrow(parquet.schema_arrow))
        return FileColumns(projection, projection.to_read, _unchanged)


def _unchanged(batch: Any, rows_before: int) -> Any:
    return batch


def _group(
    file: OpenedFile,
    parquet: Any,
    group: int,
    row: int,
    before: int,
    decoder: BatchDecoder,
    columns: FileColumns,
    reading: Reading,
) -> Iterator[Chunk]:
    """The elements of a row group from its row `row` on; `before` it, the file has that many rows."""
    at = 0
    try:
        for batch in _batches(parquet, group, columns.to_read):
            passed = max(0, min(row - at, batch.num_rows))
            at += passed
            batch = batch.slice(passed)
            if batch.num_rows:
                first = before + at + 1
                elements = reading.report(
                    file, "row", decoder.decode(columns.complete(batch, first - 1)), first.__add__
                )
                yield [group, at], elements
                at += batch.num_rows
    except (OSError, ValueError) as error:
        if is_outage(error):
            raise  # the row group is not bad
        file.check_unchanged()
        words = f"row group {group} can't be read: {error}"
        if reading.selection.bad_records == "fail":
            raise ReadError(f"{file.url}, {words}") from error
        yield [group, at], [BadRecord(file.url, before + at + 1, None, words, None)]


def _batches(parquet: Any, group: int, to_read: Sequence[str]) -> Iterator[Any]:
    """The batches of a row group, of a size that memory holds easily whatever the rows are."""
    import pyarrow as pa

    metadata = parquet.metadata.row_group(group)
    if not to_read:
        yield pa.record_batch([pa.nulls(metadata.num_rows)], [""])
        return
    rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * metadata.num_rows // max(1, metadata.total_byte_size)))
    yield from parquet.iter_batches(rows, [group], list(to_read), use_threads=False)


def _opened(file: OpenedFile) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    raw = file.raw()
    try:
        if file.local_path is not None:
            # Arrow's own file reads without the interpreter's lock.
            return pq.ParquetFile(pa.OSFile(file.local_path), pre_buffer=False)
        return pq.ParquetFile(raw, pre_buffer=True)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ReadError(f"{file.url}: not a valid Parquet file: {str(error).splitlines()[0]}") from error


class _Skips:
    """Finds the row groups in which no row can meet the conditions."""

    def __init__(self, parquet: Any, reading: Reading, projection: Projection) -> None:
        where = reading.selection.where
        self._pushed = usable(reading.conditions, projection.columns)
        self._metadata = metadata = parquet.metadata
        leaves: dict[str, int] = {}
        if (where or self._pushed) and metadata.num_row_groups:
            # Not from `parquet.schema`: it and the metadata refer to each other, so that the metadata of every file
            # would stay in memory until the next garbage collection.
            first = metadata.row_group(0)
            leaves = {first.column(at).path_in_schema: at for at in range(metadata.num_columns)}
        self._leaves = leaves
        self._read = [each for each in (*projection.columns, *projection.for_conditions) if each.in_file]
        self._in_nanoseconds = {each.name for each in parquet.schema_arrow if "[ns" in str(each.type)}
        self._types = types = {each.name: each.type for each in (*projection.columns, *projection.for_conditions)}
        self._conditions = [
            (condition, leaves[condition.column], types[condition.column])
            for condition in where
            if condition.column in leaves
        ]

    def skips(self, group: int) -> bool:
        """Whether the statistics of a row group rule out all its rows."""
        return any(self._rules_out(group, *each) for each in self._conditions)

    def leaves_out(self, group: int) -> bool:
        """Whether the statistics of a row group say that no row meets the conditions of the planner's."""
        meets = all(may_meet(each, partial(self._known, group)) for each in self._pushed)
        return not meets and not self._may_refuse(group)

    def _may_refuse(self, group: int) -> bool:
        """Whether a row of a row group may be an error, which has to be found wherever the file is cut into groups."""
        for each in self._read:
            if each.name in self._in_nanoseconds:
                return True
            if not each.nullable and each.default is None:
                known = self._known(group, each.name)
                if known is None or known.nulls != 0:
                    return True
        return False

    def _rules_out(self, group: int, condition: Condition, leaf: int, type: Any) -> bool:
        known = self._statistics(group, leaf, type)
        return known is not None and not may_match(condition, known.least, known.greatest, known.nulls, known.rows)

    def _known(self, group: int, column: str) -> Statistics | None:
        leaf = self._leaves.get(column)
        return None if leaf is None or column not in self._types else self._statistics(group, leaf, self._types[column])

    def _statistics(self, group: int, leaf: int, type: Any) -> Statistics | None:
        row_group = self._metadata.row_group(group)
        statistics = row_group.column(leaf).statistics
        if statistics is None:
            return None
        nulls = statistics.null_count if statistics.has_null_count else None
        least = greatest = None
        if statistics.has_min_max and kind_of(type) in _COMPARABLE:
            try:
                least, greatest = statistics.min, statistics.max
            except (ValueError, OverflowError):
                pass  # nanoseconds, or years, that Python doesn't have
            if least != least or greatest != greatest:
                least = greatest = None  # some writers count NaN
        return Statistics(least, greatest, nulls, row_group.num_rows)


_COMPARABLE: Final = frozenset({"integer", "float", "string", "boolean", "date", "decimal", "timestamp"})
"""Kinds of columns whose statistics are Python values that order as the reader's do. Naive times don't compare with
instants, which rules nothing out."""
