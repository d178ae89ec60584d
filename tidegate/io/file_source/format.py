"""The interface of formats: the columns of a file, how the file is divided, and how its elements are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from tidegate.io.file_source.opened import OpenedFile
from tidegate.io.records.problems import Problem, SchemaMismatch, WithProblems, bad_record, read_error
from tidegate.io.records.projection import Projection, Selection, project
from tidegate.io.records.schema import RecordSchema
from tidegate.sdk.errors import ReadError

Start: TypeAlias = Any
"""Where in a part of a file a chunk of its elements begins: small, and survives JSON."""

Chunk: TypeAlias = tuple[Start, list[Any]]
"""Consecutive elements of a file, and where they begin."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How the files of a source are read: what is selected, and the columns that all of them should have, which are
    those of the file `of_reference`."""

    selection: Selection
    reference: RecordSchema | None
    of_reference: str

    def project(self, file: OpenedFile, found: RecordSchema, *, may_lack: bool = False) -> Projection:
        """What of the columns of a file is read. ReadError, naming the file and the column, if they don't fit."""
        selection = self.selection
        if selection.names is None:
            selection.shape.check_names((self.reference or found).names, file.url, ReadError)
        try:
            return project(found, selection, self.reference or found, self.of_reference, may_lack=may_lack)
        except SchemaMismatch as error:
            raise mismatch_error(file.url, error) from error

    def report(
        self, file: OpenedFile, unit: str, elements: list[Any], number: Callable[[int], int | None]
    ) -> list[Any]:
        """The elements with dead letters in the place of problems; ReadError for the first of them if there should be
        none. `number` turns the index of a record into its line or row."""
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
    """The failure of a file whose columns don't fit, with what can be done."""
    return ReadError(f"{url}, {error}")


class FileFormat(ABC):
    """A format of files. Implementations are frozen dataclasses whose fields are the format's options."""

    name: ClassVar[str]
    """For `explain`, graphs and messages."""
    unit: ClassVar[Literal["line", "row"]] = "row"
    """What the numbers of records in messages count."""
    divided_by: ClassVar[Literal["bytes", "parts"]] = "bytes"
    """Whether a file may be divided at any byte, or into the parts that `parts` lists."""

    may_lack: ClassVar[bool] = False
    """Whether a record may leave out columns that others have, as JSON's do."""

    @property
    def divisible(self) -> bool:
        """Whether files can be divided at all."""
        return True

    def check(self, of: str) -> None:  # noqa: B027
        """Raise BuildError for options that are wrong, or packages that are missing."""

    @abstractmethod
    def inspect(self, file: OpenedFile, selection: Selection) -> RecordSchema | None:
        """The columns of a file, of its header or its beginning; None if its records have any."""

    def parts(self, file: OpenedFile, selection: Selection) -> Sequence[int]:
        """The sizes, in bytes, of the parts of a file that can be read on their own."""
        raise NotImplementedError

    @abstractmethod
    def read(self, file: OpenedFile, start: Start, reading: Reading) -> Iterator[Chunk]:
        """The elements of the part `file.part` of a file, with dead letters among them, from `start` on (None: from
        the start of the part). Raises ReadError, naming the file and the line or row, for what can't be read."""
