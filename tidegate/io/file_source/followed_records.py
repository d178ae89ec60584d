"""Following files of records: an enumerator that knows which columns the files should have.

If the author has given no schema, the files do. With `schema_evolution="refuse"`, all files should have the columns of
the first one. With `"union"`, they should have those of all files found so far: a file that has more columns, or wider
types, extends them for itself and the files after it. The columns are part of the enumerator's state, so they are the
same after a restart, even if the first file has been deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidegate.io.file_source.following import FOLLOWED_SPLIT, Follow, FollowedFiles
from tidegate.io.file_source.format import mismatch_error
from tidegate.io.file_source.listing import Found
from tidegate.io.file_source.opened import FilePart
from tidegate.io.file_source.reader import FileParts
from tidegate.io.file_source.record_files import RecordFiles
from tidegate.io.records.problems import SchemaMismatch
from tidegate.io.records.schema import RecordSchema, from_json, to_json
from tidegate.io.records.types import unify
from tidegate.sdk.connectors.sources import Discovery, Position, Split, SplitEnumerator


class _Reference(NamedTuple):
    """The columns that files should have, and the file that they come from."""

    columns: RecordSchema
    url: str


class FollowedRecords(SplitEnumerator):
    """Returns the splits of each file that appears, with the columns that it should have."""

    def __init__(
        self, record_files: RecordFiles, patterns: Sequence[str], follow: Follow, state: Position = None
    ) -> None:
        self._record_files = record_files
        self._infers = record_files.format.infers_columns(record_files.selection)
        self._reference: _Reference | None = None
        if state is not None and state["columns"] is not None:
            self._reference = _Reference(from_json(state["columns"]), state["columns_of"])
        self._files = FollowedFiles(
            patterns,
            follow,
            self._splits_of,
            None if state is None else state["files"],
            options=record_files.options,
        )

    def discover(self, limit: int) -> Discovery:
        return self._files.discover(limit)

    def state(self) -> Position:
        """`files` is the state of `FollowedFiles`; `columns` are those that files should have, if files tell."""
        known = self._reference
        return {
            "files": self._files.state(),
            "columns": None if known is None else to_json(known.columns),
            "columns_of": None if known is None else known.url,
        }

    def close(self) -> None:
        self._files.close()

    def _splits_of(self, file: Found) -> Iterator[Split]:
        record_files = self._record_files
        target = max(record_files.min_split_size, FOLLOWED_SPLIT)
        for part in record_files.members(file):
            if self._infers:
                self._reference = self._with_columns_of(part)
            columns, url = self._reference or (None, "")
            for divided, size in record_files.divide(part, target):
                yield FileParts((divided,), columns, url).split(size, record_files.options)

    def _with_columns_of(self, part: FilePart) -> _Reference | None:
        """The known columns, extended by those of a file. Raises ReadError, naming the file and the column, for one
        whose type has nothing in common with the known one."""
        known, selection = self._reference, self._record_files.selection
        if known is not None and selection.evolution == "refuse":
            return known
        found, url = self._record_files.inspect_or_skip(part), self._record_files.url(part)
        if known is None or found is None:
            return known if found is None else _Reference(found, url)
        try:
            united = unify([known.columns, found], [known.url, url])
        except SchemaMismatch as error:
            if selection.bad_records == "fail":
                raise mismatch_error(url, error) from error
            return known  # the reader makes a dead letter of the file
        changes = _changes(known.columns, united)
        if changes:
            import logging

            logging.getLogger("tidegate").warning(
                "%s extends the columns of the files before it: %s", url, "; ".join(changes)
            )
        return _Reference(united, "the files before it") if changes else _Reference(united, known.url)


def _changes(before: RecordSchema, after: RecordSchema) -> list[str]:
    """The columns that are new, or have another type than before."""
    changes = []
    for field in after.fields:
        known = before.field(field.name)
        if known is None:
            changes.append(f"{field.name!r} is new ({field.type})")
        elif known.type != field.type:
            changes.append(f"{field.name!r} was {known.type} and is {field.type}")
    return changes
