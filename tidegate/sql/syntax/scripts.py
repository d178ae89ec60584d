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
class TableDefinition:
    """CREATE TABLE: columns as pairs of a name and a type in SQL, and what WITH says.

    `time` is the column of WATERMARK FOR, and `delay` how much later than it the watermark is (µs). `required` are the
    columns that are NOT NULL. `start` is the offset of the statement in the text.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    required: frozenset[str]
    time: str | None
    delay: int
    options: Mapping[str, str]
    source: SqlText
    start: int


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
        self.columns: list[tuple[str, str]] = []
        self.required: set[str] = set()
        self.time: str | None = None
        self.delay = 0

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
        columns, required = tuple(self.columns), frozenset(self.required)
        return TableDefinition(name, columns, required, self.time, self.delay, options, self.source, start)

    def _column(self) -> None:
        if self._is("WATERMARK") and _word(self.tokens, self.at + 1) == "FOR":
            self._watermark()
            return
        name, type = self._take(), self._take().upper()
        if type in ("DECIMAL", "NUMERIC"):
            precision, scale = self._digits()
            type = f"DECIMAL({precision},{scale})"
        elif self._is("("):  # a precision, as in TIMESTAMP(3)
            self.at += 1
            self._take()
            self._expect(")")
        self.columns.append((name, type))
        if self._is("NOT"):
            self.at += 1
            self._expect("NULL")
            self.required.add(name)

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
        self.at += 2
        self.time = self._take()
        self._expect("AS")
        if self._take() != self.time:
            raise self._error(f"WATERMARK FOR {self.time} is AS {self.time}, or that minus an interval")
        if self._is("-"):
            self.at += 1
            self._expect("INTERVAL")
            number, unit = self._take(), self._take().upper().removesuffix("S")
            if unit not in UNITS or not number.replace(".", "", 1).isdigit():
                raise self._error("the delay of a watermark is an interval such as INTERVAL '5' SECONDS")
            self.delay = round(float(number) * UNITS[unit])

    def _options(self) -> dict[str, str]:
        found: dict[str, str] = {}
        self._expect("WITH")
        self._expect("(")
        while True:
            key = self._take()
            self._expect("=")
            found[key] = self._take()
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

    def _error(self, message: str) -> Exception:
        last = self.tokens[min(self.at, len(self.tokens) - 1)]
        return self.source.error(message, int(last.start))
