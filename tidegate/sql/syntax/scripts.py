"""Scripts: statements divided by semicolons, which define tables, insert rows into them, and query them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidegate.sql.syntax.nodes import read
from tidegate.sql.syntax.parsing import Parsed, parsed_tokens, tokens_of
from tidegate.sql.syntax.table_functions import UNITS
from tidegate.sql.syntax.text import SqlText


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of a table. `type` is that of SQL, `required` says NOT NULL, and `start` is its offset in the text."""

    name: str
    type: str
    required: bool
    start: int


@dataclass(frozen=True, slots=True)
class Option:
    """What WITH says of a key. `start` is the offset of the key in the text, and `value_start` that of the value."""

    value: str
    start: int
    value_start: int


@dataclass(frozen=True, slots=True)
class Watermark:
    """WATERMARK FOR a column, `delay` µs behind it. `start` is the offset of the column in the text."""

    column: str
    delay: int
    start: int


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """CREATE TABLE: columns, and what WITH says. `start` is the offset of the statement in the text."""

    name: str
    columns: tuple[ColumnDefinition, ...]
    watermark: Watermark | None
    options: Mapping[str, Option]
    source: SqlText
    start: int

    def option(self, key: str) -> str | None:
        """The value of an option; None if it isn't given."""
        return self.options[key].value if key in self.options else None

    @property
    def path(self) -> str:
        """Where the table's files are."""
        return self.options["path"].value


@dataclass(frozen=True, slots=True)
class Insertion:
    """INSERT INTO a table, of the rows of a query."""

    table: str
    query: Parsed


Statement = TableDefinition | Insertion | Parsed


def statements_of(text: str) -> list[tuple[int, Statement]]:
    """The statements of a script, each with the number of its first line. Raises SqlError where it is no SQL."""
    source = SqlText(text)
    found: list[tuple[int, Statement]] = []
    for tokens in _divided(tokens_of(source)):
        line = text.count("\n", 0, int(tokens[0].start)) + 1
        if _word(tokens, 0) == "CREATE":
            found.append((line, _Definition(tokens, source).table()))
            continue
        for query in parsed_tokens(tokens, source):
            found.append((line, _insertion(query) if query.tree.kind == "Insert" else query))
    return found


def _divided(tokens: list[Any]) -> list[list[Any]]:
    parts: list[list[Any]] = [[]]
    for token in tokens:
        if token.token_type.name == "SEMICOLON":
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _insertion(query: Parsed) -> Insertion:
    tree = read(query.tree, "Insert", "this expression", query.source)
    table = read(tree.this, "Table", "this", query.source)
    return Insertion(table.name, Parsed(query.source, tree.expression, query.functions))


def _word(tokens: list[Any], at: int) -> str:
    return str(tokens[at].text).upper() if at < len(tokens) else ""


_FORM: Final = (
    "CREATE TABLE t (id BIGINT NOT NULL, …, WATERMARK FOR at AS at - INTERVAL '5' SECONDS) WITH ('path' = 'f')"
)


class _Definition:
    """Reads CREATE TABLE from its tokens, `at` being the next one."""

    def __init__(self, tokens: list[Any], source: SqlText) -> None:
        self.tokens = tokens
        self.source = source
        self.at = 1
        self.columns: list[ColumnDefinition] = []
        self.watermark: Watermark | None = None

    def table(self) -> TableDefinition:
        """The definition."""
        self._expect("TABLE")
        name = self._take()
        if self._is("("):
            self.at += 1
            while True:
                self._column()
                if not self._is(","):
                    break
                self.at += 1
            self._expect(")")
        options = self._options()
        if self.at < len(self.tokens):
            raise self._error(f"{_word(self.tokens, self.at)} is not expected in CREATE TABLE: write {_FORM}")
        start = int(self.tokens[0].start)
        return TableDefinition(name, tuple(self.columns), self.watermark, options, self.source, start)

    def _column(self) -> None:
        if self._is("WATERMARK") and _word(self.tokens, self.at + 1) == "FOR":
            self._watermark()
            return
        start = self._start()
        name, type = self._take(), self._take().upper()
        if type in ("DECIMAL", "NUMERIC"):
            precision, scale = self._digits()
            type = f"DECIMAL({precision},{scale})"
        elif self._is("("):  # a precision, as in TIMESTAMP(3)
            self.at += 1
            self._take()
            self._expect(")")
        required = self._is("NOT")
        if required:
            self.at += 1
            self._expect("NULL")
        self.columns.append(ColumnDefinition(name, type, required, start))

    def _digits(self) -> tuple[str, str]:
        """The digits of DECIMAL(p, s); without any, ten, none of them after the point."""
        given = ["10", "0"]
        if self._is("("):
            self.at += 1
            given[0] = self._take()
            if self._is(","):
                self.at += 1
                given[1] = self._take()
            self._expect(")")
        return given[0], given[1]

    def _watermark(self) -> None:
        if self.watermark is not None:
            raise self._error("a table has one WATERMARK FOR")
        self.at += 2
        start, delay = self._start(), 0
        column = self._take()
        self._expect("AS")
        if self._take() != column:
            self.at -= 1
            raise self._error(f"WATERMARK FOR {column} is AS {column}, or that minus an interval")
        if self._is("-"):
            self.at += 1
            self._expect("INTERVAL")
            number, unit = self._take(), self._take().upper().removesuffix("S")
            if unit not in UNITS or not number.replace(".", "", 1).isdigit():
                self.at -= 2
                raise self._error("the delay of a watermark is an interval such as INTERVAL '5' SECONDS")
            delay = round(float(number) * UNITS[unit])
        self.watermark = Watermark(column, delay, start)

    def _options(self) -> dict[str, Option]:
        found: dict[str, Option] = {}
        self._expect("WITH")
        self._expect("(")
        while True:
            start = self._start()
            key = self._take()
            if key in found:
                self.at -= 1
                raise self._error(f"the option {key!r} is given twice")
            self._expect("=")
            value_start = self._start()
            found[key] = Option(self._take(), start, value_start)
            if not self._is(","):
                break
            self.at += 1
        self._expect(")")
        return found

    def _is(self, word: str) -> bool:
        return _word(self.tokens, self.at) == word

    def _expect(self, word: str) -> None:
        if not self._is(word):
            raise self._error(f"{word} is missing: write {_FORM}")
        self.at += 1

    def _take(self) -> str:
        if self.at >= len(self.tokens):
            raise self._error(f"the statement ends too early: write {_FORM}")
        self.at += 1
        return str(self.tokens[self.at - 1].text)

    def _start(self) -> int:
        """The offset of the next token, or that of the last one."""
        return int(self.tokens[min(self.at, len(self.tokens) - 1)].start)

    def _error(self, message: str) -> Exception:
        return self.source.error(message, self._start())
