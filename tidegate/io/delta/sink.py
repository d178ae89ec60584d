"""`DeltaSink`: appends to a Delta table, in one transaction for each checkpoint or bounded run."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tidegate.io import files
from tidegate.io.delta.attempt import DeltaAttempt, FileLayout
from tidegate.io.delta.client import need_deltalake
from tidegate.io.delta.commit import TableCommit
from tidegate.io.delta.location import Location
from tidegate.io.delta.store import store_of
from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink
from tidegate.sdk.errors import BuildError, TidegateError, WriteError

_CODECS: Final = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
_MODES: Final = ("append", "overwrite")


@dataclass(frozen=True, slots=True)
class DeltaSink(Sink[Any]):
    """Records as rows of the table at `location`. `schema` has the table's columns, as a `pyarrow.Schema`, and
    `partition_by` those by which it is partitioned; other fields are explained at `WriteToDelta`.

    Data files are written to a work folder below the table, which readers of the table don't see.
    """

    location: Location
    schema: Any
    partition_by: tuple[str, ...] = ()
    mode: str = "append"
    create: bool = True
    codec: str = "snappy"
    timezone: str | None = None
    row_group_buffer_size: int = 1 << 26
    max_file_bytes: int = 1 << 27

    delivery = "exactly_once"
    forks_safely = False

    @property
    def name(self) -> str:
        return f"delta {self.location.shown}"

    def check(self) -> None:
        of = "WriteToDelta"
        need_deltalake(of)
        if self.mode not in _MODES:
            raise BuildError(f"{of}: mode is 'append' or 'overwrite', not {self.mode!r}")
        if self.codec not in _CODECS:
            raise BuildError(f"{of}: codec is one of {', '.join(map(repr, _CODECS))}, not {self.codec!r}")
        for name, size in (
            ("row_group_buffer_size", self.row_group_buffer_size),
            ("max_file_bytes", self.max_file_bytes),
        ):
            if type(size) is not int or size < 1:
                raise BuildError(f"{of}: {name} is a number of bytes from 1 on, not {size!r}")
        unsafe = {name.lower(): value for name, value in self.location.options}.get("aws_s3_allow_unsafe_rename")
        if str(unsafe or os.environ.get("AWS_S3_ALLOW_UNSAFE_RENAME", "")).lower() in ("true", "1"):
            raise BuildError(
                f"{of}: with AWS_S3_ALLOW_UNSAFE_RENAME, two writers can overwrite each other's transactions: leave it "
                "out. Stores with conditional writes (S3, and most that are compatible with it) need no lock"
            )
        if self.location.is_local:
            files.Local().check_writable(self.location.client_url)

    def local_folders(self) -> Sequence[str]:
        return [self.location.client_url] if self.location.is_local else []

    def writes(self) -> Hashable:
        location = self.location
        return f"delta {os.path.realpath(location.client_url) if location.is_local else location.url}"

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        layout = FileLayout(
            self.location.shown,
            self.schema,
            self.partition_by,
            self.codec,
            self.timezone,
            self.row_group_buffer_size,
            self.max_file_bytes,
        )
        _, root = store_of(self.location)
        return DeltaAttempt(layout, lambda: store_of(self.location)[0], self._work(root, run), task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> list[str]:
        if checkpoint is not None and self.mode == "overwrite":
            raise WriteError(f"{self.location.shown}: a stream can't overwrite a table: mode='append' adds to it")
        with _failing(self.location, "the output can't be committed"):
            store, root = store_of(self.location)
            work = self._work(root, run)
            commit = TableCommit(
                self.location, self.schema, self.partition_by, self.mode, self.create, store, root, work, run
            )
            return commit.commit(committables, checkpoint)

    def abort(self, run: str) -> None:
        with _failing(self.location, "unfinished output can't be removed"):
            store, root = store_of(self.location)
            store.remove_folder(self._work(root, run))

    def _work(self, root: str, run: str) -> str:
        return files.join(root, f"{files.WORK_PREFIX}{run}")


@contextmanager
def _failing(location: Location, doing: str) -> Iterator[None]:
    """A context in which an error of a store becomes a WriteError that names the table."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:  # stores raise what they like
        raise WriteError(f"{location.shown}: {doing}: {files.describe(error)}") from error
