"""The interface of formats: which columns a file has, how the file is divided, and how its elements are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from tidegate.io.file_source.opened import FileChanged, OpenedFile
from tidegate.io.records.problems import Problem, SchemaMismatch, WithProblems, bad_record, read_error
from tidegate.io.records.projection import Projection, Selection, project
from tidegate.io.records.schema import RecordSchema
from tidegate.sdk.connectors.outage import is_outage
from tidegate.sdk.connectors.stored_tables import StoredTable
from tidegate.sdk.errors import ReadError
from tidegate.sdk.relational.expressions import Tree

Start: TypeAlias = Any
"""The place in a part of a file at which a chunk of its elements begins: a small value that survives JSON."""

Chunk: TypeAlias = tuple[Start, list[Any]]
"""Consecutive elements of a file, and the place at which they begin."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a file is read: what the author has selected, and the columns `reference` that all files should have.

    `of_reference` names the file that has these columns, for messages. `reference` None: the file's own columns. Rows
    that can't meet the `conditions` may be left out.
    """

    selection: Selection
    reference: RecordSchema | None
    of_reference: str
    conditions: tuple[Tree, ...] = ()

    def project(self, file: OpenedFile, found: RecordSchema, *, may_lack: bool = False) -> Projection:
        """Which columns of a file are read, and as what. Raises ReadError, naming the file and the column, if they
        don't fit."""
        selection = self.selection
        if selection.names is None:
            selection.shape.check_names((self.reference or found).names, file.url, ReadError)
        try:
            return project(found, selection, self.reference or found, self.of_reference, may_lack=may_lack)
        except SchemaMismatch as error:
            raise mismatch_error(file.url, error) from error

    def refuses(self, error: Exception) -> bool:
        """Whether an error that makes a file unreadable fails the run, instead of becoming a dead letter. An outage
        of the file system says nothing about the file."""
        return self.selection.bad_records == "fail" or isinstance(error, FileChanged) or is_outage(error)

    def report(
        self, file: OpenedFile, unit: str, elements: list[Any], number: Callable[[int], int | None]
    ) -> list[Any]:
        """The elements with dead letters in place of the problems. Raises ReadError for the first problem if bad
        records fail the run. `number` turns the index of a record into its line or row."""
        if not isinstance(elements, WithProblems):
            return elements
        made: list[Any] = []
        for each in elements:
            if type(each) is Problem:
                at = number(each.at)
                if self.selection.bad_records == "fail":
                    raise read_error(file.url, unit, at, each)
                each = bad_record(file.url, at, each)
            made.append(each)
        return made


def mismatch_error(url: str, error: SchemaMismatch) -> ReadError:
    """The error for a file whose columns don't fit."""
    return ReadError(f"{url}, {error}")


class FileFormat(ABC):
    """A format of files. Implementations are frozen dataclasses whose fields are the format's options."""

    name: ClassVar[str]
    """The name shown in `explain`, graphs and messages."""
    unit: ClassVar[Literal["line", "row"]] = "row"
    """What messages count records in."""
    divided_by: ClassVar[Literal["bytes", "parts"]] = "bytes"
    """Whether a file can be divided at any byte, or only into the parts that `parts` lists."""

    may_lack: ClassVar[bool] = False
    """Whether a record may leave out columns that others have, as in JSON."""
    casts: ClassVar[bool] = True
    """Whether all values of a column have the type that the author's schema asks for, or else are bad records."""
    states_columns: ClassVar[bool] = False
    """Whether a file states its columns in a part that is either whole or missing, as in a footer."""

    @property
    def divisible(self) -> bool:
        """Whether files can be divided at all."""
        return True

    def infers_columns(self, selection: Selection) -> bool:
        """Whether only a file can tell which columns there are, because the author has given no schema."""
        return selection.schema is None

    def check(self, of: str) -> None:  # noqa: B027
        """Raise BuildError, naming the transform `of`, for wrong options or missing packages."""

    @abstractmethod
    def inspect(self, file: OpenedFile, selection: Selection) -> RecordSchema | None:
        """The columns of a file, read from its header or its first records; None if it has none to go by."""

    def takes_columns(self, selection: Selection) -> bool:
        """Whether the columns that nobody reads can be left out of the elements."""
        return selection.shape.kind in ("row", "dict")

    def takes_conditions(self, selection: Selection) -> bool:
        """Whether the reader can leave out rows by conditions."""
        return not selection.shape.has_code

    def parts(self, file: OpenedFile, selection: Selection) -> Sequence[int]:
        """The sizes, in bytes, of the parts of a file that can be read independently."""
        raise NotImplementedError

    def stored_table(self, paths: Sequence[str], selection: Selection) -> StoredTable | str:
        """Local files as a table that an engine may read itself; else the reason why it can't have the same rows."""
        return f"engines read {self.name} in ways of their own"

    @abstractmethod
    def read(self, file: OpenedFile, start: Start, reading: Reading) -> Iterator[Chunk]:
        """The elements of the part `file.part` of a file, with dead letters among them, from `start` on (None: from
        the start of the part). Raises ReadError, naming the file and the line or row, for bad input."""
