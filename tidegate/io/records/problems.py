"""Bad records: where they are and what is wrong with them, as an error or as a dead letter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from tidegate.sdk.errors import BuildError, ReadError

BadRecords: TypeAlias = Literal["fail", "dead_letter"]


class BadRecord(NamedTuple):
    """A dead letter of a reader: a record that could not be read.

    `line_or_row` counts from 1: the line of a CSV file or of JSON lines, else the row. `column` is None where the
    record as a whole is bad. `text` is its beginning, as the file has it.
    """

    file: str
    line_or_row: int | None
    column: str | None
    reason: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with the record at an index of a batch."""

    at: int
    column: str | None
    reason: str
    text: str | None = None


class WithProblems(list[Any]):
    """Elements among which there are problems. Decoders return plain lists where there are none, so that the
    elements need not be searched."""


class SchemaMismatch(Exception):
    """A column of a file doesn't fit the schema: it has another type, or it is missing."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column!r}: {reason}")
        self.column = column
        self.reason = reason


def read_error(file: str, unit: str, number: int | None, problem: Problem) -> ReadError:
    """The error for a problem where bad records fail the run; `unit` is "line" or "row"."""
    where = f"{file}, {unit} {number}" if number is not None else file
    column = f", column {problem.column!r}" if problem.column is not None else ""
    text = f": {problem.text}" if problem.text else ""
    return ReadError(f"{where}{column}: {problem.reason}{text}")


def bad_record(file: str, number: int | None, problem: Problem) -> BadRecord:
    """The dead letter of a problem."""
    return BadRecord(file, number, problem.column, problem.reason, problem.text)


def bad_file(url: str, error: Exception) -> BadRecord:
    """The dead letter of a file of which no record can be read. `error` names the file."""
    if isinstance(error.__cause__, SchemaMismatch):
        return BadRecord(url, None, error.__cause__.column, error.__cause__.reason, None)
    return BadRecord(url, None, None, str(error).removeprefix(url).lstrip(":, "), None)


def excerpt(text: str | bytes, limit: int = 200) -> str:
    """The beginning of a record for messages."""
    if isinstance(text, bytes):
        text = text[: 4 * limit].decode("utf-8", "backslashreplace")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def check_bad_records(bad_records: str, of: str) -> None:
    """Raise BuildError for any other choice."""
    if bad_records not in ("fail", "dead_letter"):
        raise BuildError(f"{of}: bad_records is 'fail' or 'dead_letter', not {bad_records!r}")
