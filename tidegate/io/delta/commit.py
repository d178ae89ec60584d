"""The commit of data files: they get their final names, and one transaction adds them to the table's log.

The transaction names the run and the checkpoint in the log (`txn`). A commit that finds them there was made before, and
does nothing. If two processes make the same commit at once, the log accepts one of the two transactions: they name the
same run, so the library reports a conflict to the other one, which then finds the commit made.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from tidegate.io import files
from tidegate.io.delta.attempt import WrittenFile
from tidegate.io.delta.client import NoTable, client_errors, open_table, words_of
from tidegate.io.delta.location import Location
from tidegate.io.delta.table_schema import check_unchanged, check_writable
from tidegate.sdk.connectors.sinks import Committable, in_order
from tidegate.sdk.errors import ReadError, WriteError

CONFLICTS: Final = 20
"""How many conflicts with transactions of other writers a commit survives."""

_MOVES_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class TableCommit:
    """The commit of one run. `schema` has the columns that were written; `root` is the table's folder in `store`, and
    `work` that of the run's data files."""

    location: Location
    schema: Any
    partition_by: tuple[str, ...]
    mode: str
    create: bool
    store: files.Store
    root: str
    work: str
    run: str

    def commit(self, committables: Sequence[Committable], checkpoint: int | None) -> list[str]:
        """Add the data files to the table, unless that was done before. Returns their names."""
        written = [WrittenFile(*committable.payload) for committable in in_order(committables)]
        bounded = checkpoint is None
        table = self._table(create=bounded or bool(written))
        if table is not None and (written or (bounded and self.mode == "overwrite")):
            self._commit(table, written, checkpoint or 0)
        if bounded:
            self.store.remove_folder(self.work)
        return [files.join(self.location.shown, each.final) for each in written]

    def _commit(self, table: Any, written: Sequence[WrittenFile], number: int) -> None:
        if self._is_committed(table, number):
            return
        with ThreadPoolExecutor(_MOVES_AT_ONCE) as pool:
            list(pool.map(self._finalize, written))
        self._add(table, written, number)

    @property
    def _application(self) -> str:
        """The name of the run in the table's log."""
        return f"tidegate-{self.run}"

    def _is_committed(self, table: Any, number: int) -> bool:
        with client_errors(self.location, "can't be written", WriteError):
            last = table.transaction_version(self._application)
        return last is not None and last >= number

    def _table(self, *, create: bool) -> Any:
        """The `DeltaTable` as it is now, which is created if there is none; None if it need not be."""
        try:
            return self._opened()
        except NoTable as error:
            if not self.create:
                raise WriteError(f"{error}; create=True creates it") from error
        if not create:
            return None
        import deltalake

        with client_errors(self.location, "the table can't be created", WriteError):
            try:
                deltalake.DeltaTable.create(
                    self.location.client_url,
                    deltalake.Schema.from_arrow(self.schema),
                    mode="ignore",
                    partition_by=list(self.partition_by),
                    storage_options=self.location.client_options(),
                )
            except deltalake.exceptions.DeltaError:
                if not deltalake.DeltaTable.is_deltatable(self.location.client_url, self.location.client_options()):
                    raise  # no other process has created it in between
        return self._opened()

    def _opened(self) -> Any:
        try:
            return open_table(self.location)
        except NoTable:
            raise
        except ReadError as error:
            raise WriteError(str(error)) from error

    def _finalize(self, written: WrittenFile) -> None:
        """Give a data file its final name; does nothing if it has it already."""
        part, final = files.join(self.work, written.path), files.join(self.root, written.final)
        if self.store.find(part) is not None:
            try:
                self.store.move(part, final)
                return
            except FileNotFoundError:
                pass  # another process that makes the same commit was faster
        found = self.store.find(final)
        if found is None or found.size != written.size:
            state = "does not exist" if found is None else f"has {found.size} bytes, not {written.size}"
            raise WriteError(
                f"output is lost: {self.store.url(part)} is gone, and {self.store.url(final)} {state}. Was "
                f"{self.location.shown}/{files.WORK_PREFIX}* removed while the pipeline ran?"
            )

    def _add(self, table: Any, written: Sequence[WrittenFile], number: int) -> None:
        """Make the transaction, again and again as long as those of other writers get in its way."""
        import deltalake
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        actions = [
            AddAction(each.final, each.size, dict(zip(self.partition_by, each.partition)), now, True, each.statistics)
            for each in written
        ]
        properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(self._application, number)])
        for conflicts in range(CONFLICTS + 1):
            check_writable(self.location, table, self.mode)
            check_unchanged(self.location, table, self.schema, self.partition_by)
            with client_errors(self.location, "the transaction failed", WriteError):
                try:
                    table.create_write_transaction(
                        actions, self.mode, table.schema(), list(self.partition_by), commit_properties=properties
                    )
                    return
                except deltalake.exceptions.CommitFailedError as error:
                    if conflicts == CONFLICTS:
                        raise WriteError(
                            f"{self.location.shown}: the transaction failed {conflicts} times, because other writers "
                            f"were faster: {words_of(error)}"
                        ) from error
            time.sleep(random.random() * min(1.0, 0.02 * 2**conflicts))
            table = self._opened()
            if self._is_committed(table, number):
                return
