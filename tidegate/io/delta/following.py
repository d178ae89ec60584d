"""Following a table: an enumerator that finds the data files that each new version adds, each once.

It begins with all files of one version. Its state is the last version that was seen, how many of its files have been
returned, and the table's columns at that version, so that a run that resumes needs nothing but the log's newer files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegate.io.delta.client import check_protocol, open_table
from tidegate.io.delta.location import Location
from tidegate.io.delta.log import DataFile, Log, Version, file_of_action
from tidegate.io.delta.snapshot import Snapshot, TableColumns
from tidegate.io.records.problems import SchemaMismatch
from tidegate.io.records.projection import Selection, project
from tidegate.io.records.schema import of_arrow
from tidegate.sdk.connectors.sources import Discovery, Position, Split, SplitEnumerator
from tidegate.sdk.errors import BuildError, PositionLost, ReadError
from tidegate.sdk.metrics import ENGINE, Metrics
from tidegate.sdk.time import SECOND, Duration, DurationLike

SplitsOf: TypeAlias = Callable[[DataFile, TableColumns, int], list[Split]]
"""The splits of a data file of a table with these columns, which a version has added."""


@dataclass(frozen=True, slots=True)
class FollowTable:
    """How a table is followed: the seconds between two looks, and whether versions that change data are skipped."""

    poll_interval: float = 1.0
    skip_change_commits: bool = False

    @staticmethod
    def of(poll_interval: DurationLike, skip_change_commits: bool, of: str) -> FollowTable:
        """Raises BuildError, naming the transform `of`, if the interval is invalid."""
        interval = Duration.of(poll_interval).micros
        if interval <= 0:
            raise BuildError(f"{of}: poll_interval must be positive, but is {poll_interval!r}")
        return FollowTable(interval / SECOND, skip_change_commits)


class FollowedTable(SplitEnumerator):
    """Returns the splits of the files of a first version, and of those that each later version adds.

    `snapshot` opens the table at a version, or at the first one (None).

    - A version that removes or rewrites rows is an error, unless such versions are skipped as a whole. Versions that
      only arrange data anew, as OPTIMIZE does, add nothing.
    - A version that alters the columns is an error, if an element would lack something: see `_alter`.
    - A version that the log doesn't have any more, or a table that was replaced by another one, is PositionLost.
    """

    def __init__(
        self,
        location: Location,
        selection: Selection,
        follow: FollowTable,
        snapshot: Callable[[int | None], Snapshot],
        splits_of: SplitsOf,
        state: Position = None,
    ) -> None:
        self._location = location
        self._selection = selection
        self._follow = follow
        self._snapshot = snapshot
        self._splits_of = splits_of
        self._state = state
        self._log: Log | None = None
        self._table = ""
        self._version = -1
        self._of_snapshot = False
        self._columns = TableColumns("", ())
        self._files: Sequence[DataFile] = ()
        self._returned = 0, 0
        """Progress in the current version: the number of files returned whole, and of splits of the file after them."""

    def discover(self, limit: int) -> Discovery:
        if self._log is None:
            self._begin()
        splits: list[Split] = []
        while len(splits) < limit:
            if self._returned[0] < len(self._files):
                splits += self._take(limit - len(splits))
            elif splits or not self._advance():
                break
        return Discovery(splits, wait=0.0 if splits else self._follow.poll_interval)

    def state(self) -> Position:
        """`files`: how many files of the version have been returned, None for all; `splits`: how many of the next."""
        if self._log is None:
            return self._state
        files, splits = self._returned
        return {
            "table": self._table,
            "version": self._version,
            "snapshot": self._of_snapshot,
            "files": files if files < len(self._files) else None,
            "splits": splits,
            "columns": [self._columns.json, list(self._columns.partition)],
        }

    def close(self) -> None:
        """Nothing is open between two looks."""

    def _begin(self) -> None:
        log = Log(self._location)
        if self._state is None:
            self._use(self._snapshot(None))
        else:
            self._resume(log, self._state)
        self._log = log

    def _use(self, snapshot: Snapshot) -> None:
        self._table, self._version = snapshot.id, snapshot.version
        self._of_snapshot, self._columns, self._files = True, snapshot.columns, snapshot.files

    def _resume(self, log: Log, state: Any) -> None:
        self._table, self._version, self._of_snapshot = state["table"], state["version"], state["snapshot"]
        json, partition = state["columns"]
        self._columns = TableColumns(json, tuple(partition))
        table = open_table(self._location)
        if str(table.metadata().id) != self._table or table.version() < self._version:
            raise self._replaced()
        if state["files"] is None:
            return
        if self._of_snapshot:
            try:
                self._use(self._snapshot(self._version))
            except ReadError as error:
                raise self._cleaned(self._version) from error
        else:
            version = log.version(self._version)
            if version is None:
                raise self._cleaned(self._version)
            self._files = self._added(version)
        self._returned = state["files"], state["splits"]

    def _take(self, limit: int) -> list[Split]:
        """At most `limit` splits of the next file."""
        at, done = self._returned
        splits = self._splits_of(self._files[at], self._columns, self._version)
        found = splits[done : done + limit]
        done += len(found)
        self._returned = (at, done) if done < len(splits) else (at + 1, 0)
        return found

    def _advance(self) -> bool:
        """Go on to the next version; False if there is none yet."""
        assert self._log is not None
        number = self._version + 1
        version = self._log.version(number)
        if version is None:
            if self._log.checkpointed() >= number:
                version = self._log.version(number)  # which may have been committed meanwhile
                if version is None:
                    raise self._cleaned(number)
            elif not self._log.exists(self._version) and self._log.checkpointed() < self._version:
                raise self._replaced()
            else:
                return False
        files = self._applied(version)
        self._version, self._of_snapshot, self._files, self._returned = number, False, files, (0, 0)
        return True

    def _applied(self, version: Version) -> Sequence[DataFile]:
        """The files that a version adds. ReadError, naming the version, for one that can't be followed."""
        configuration = (version.metadata or {}).get("configuration") or {}
        if (protocol := version.protocol) is not None:
            features = protocol.get("readerFeatures")
            check_protocol(self._location, protocol["minReaderVersion"], features, configuration)
        elif configuration:
            check_protocol(self._location, 3, ["columnMapping"], configuration)
        if version.rewrites and not self._follow.skip_change_commits:
            raise ReadError(
                f"{self._location.shown}: version {version.number} ({version.operation}) removes or rewrites rows that "
                "may have been read already, so it can't be followed. Start a new run, without this one's checkpoints, "
                "to read the table as it is now; or set skip_change_commits=True to skip such versions, and the rows "
                "that they add with them"
            )
        if version.metadata is not None:
            self._columns = self._alter(version.number, version.metadata)
        if not version.rewrites:
            return self._added(version)
        _logger().warning(
            "%s: version %s (%s) removes or rewrites rows; it is skipped, with %s files that it adds",
            self._location.shown,
            version.number,
            version.operation,
            len(version.added),
        )
        Metrics.counter(ENGINE, "versions_skipped").inc()
        return ()

    def _added(self, version: Version) -> Sequence[DataFile]:
        schema = self._columns.schema
        return [file_of_action(self._location, action, schema) for action in version.added]

    def _alter(self, number: int, metadata: Any) -> TableColumns:
        """The columns that a version gives the table. ReadError if elements would have to change with them.

        Columns that are added are read from this version on with `schema_evolution="union"`, and ignored where the
        author chose the columns. A column that is read must keep its name and type.
        """
        where = f"{self._location.shown}: version {number}"
        if metadata["id"] != self._table:
            raise self._replaced()
        altered = TableColumns.of_metadata(metadata)
        before, after = of_arrow(self._columns.schema), of_arrow(altered.schema)
        selection = self._selection
        try:
            projection = project(before, selection, before, where)
            read = [column.name for column in (*projection.columns, *projection.for_conditions) if column.in_file]
            for name in read:
                old, new = before.field(name), after.field(name)
                assert old is not None
                if new is None:
                    raise ReadError(f"{where} drops the column {name!r}, which is read: {_ANEW}")
                if not new.type.equals(old.type):
                    raise ReadError(f"{where} makes the column {name!r} {new.type}, which was {old.type}: {_ANEW}")
            project(after, selection, after, where)
        except SchemaMismatch as error:
            raise ReadError(f"{where} alters the columns: {error}") from error
        added = [name for name in after.names if name not in before.names]
        if added and selection.names is None:
            if selection.evolution == "refuse":
                raise ReadError(
                    f"{where} adds the column {added[0]!r}, which elements don't have: choose the columns to read "
                    "(columns=[…], or a class as as_=), or set schema_evolution='union' to read it from then on"
                )
            selection.shape.check_names(after.names, where, ReadError)
            _logger().warning("%s adds the columns %s; they are read from now on", where, ", ".join(added))
        return altered

    def _cleaned(self, number: int) -> PositionLost:
        return PositionLost(
            f"{self._location.shown}: version {number}, which was to be read next, isn't in the table's log any more: "
            "the log was cleaned up (delta.logRetentionDuration). What it added can't be told from older rows: start a "
            "new run, without this one's checkpoints"
        )

    def _replaced(self) -> PositionLost:
        return PositionLost(
            f"{self._location.shown} isn't the table any more that was read up to version {self._version}: another one "
            "was created in its place. Start a new run, without this one's checkpoints"
        )


_ANEW = "start a new run, without this one's checkpoints, to read the table as it is now"


def _logger() -> logging.Logger:
    return logging.getLogger("tidegate")
