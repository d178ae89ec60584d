"""Window table functions, TUMBLE, HOP, CUMULATE and SESSION, read from the tokens of a statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.sdk.time import Duration
from tidegate.sdk.windowing.assigners import (
    CumulativeWindows,
    FixedWindows,
    Sessions,
    SlidingWindows,
)
from tidegate.sql.syntax.text import SqlText


@dataclass(frozen=True, slots=True)
class TableFunction:
    """A call such as `TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' MINUTES)`.

    `table` is the name of the table, `column` that of its time, `partition` the columns of PARTITION BY. `start` is
    the offset of the call in the text.
    """

    name: str
    table: str
    column: str
    assigner: Any
    partition: tuple[str, ...] = ()
    start: int = field(default=0, compare=False)


PREFIX: Final = "table_function_"
"""How the names begin that stand for table functions in the syntax tree; a digit follows."""

UNITS: Final = {
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 7 * 86_400_000_000,
}
"""The units of intervals, in microseconds."""


def _tumble(size: Duration, offset: Duration | None = None) -> Any:
    return FixedWindows(size, offset or Duration(micros=0))


def _hop(period: Duration, size: Duration, offset: Duration | None = None) -> Any:
    return SlidingWindows(size, period, offset or Duration(micros=0))


def _cumulate(step: Duration, size: Duration, offset: Duration | None = None) -> Any:
    return CumulativeWindows(size, step, offset or Duration(micros=0))


_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], tuple[str, ...], str]]] = {
    "TUMBLE": (_tumble, ("SIZE", "OFFSET"), "TUMBLE(TABLE t, DESCRIPTOR(time_column), INTERVAL '10' MINUTES)"),
    "HOP": (_hop, ("SLIDE", "SIZE", "OFFSET"), "HOP(TABLE t, DESCRIPTOR(time_column), slide, size)"),
    "CUMULATE": (_cumulate, ("STEP", "SIZE", "OFFSET"), "CUMULATE(TABLE t, DESCRIPTOR(time_column), step, size)"),
    "SESSION": (Sessions, ("GAP",), "SESSION(TABLE t PARTITION BY key, DESCRIPTOR(time_column), gap)"),
}
"""By name: what makes the windows, of which intervals in their order, and how a call is written."""


def cut_out(tokens: list[Any], source: SqlText) -> tuple[list[Any], dict[str, TableFunction]]:
    """The tokens with a name in place of each table function, and the functions by these names.

    Both `TABLE(TUMBLE(...))` and, as Flink 2 allows, `TUMBLE(...)` alone are table functions. A name inside a call may
    be a common table expression, but not a query.
    """
    found: dict[str, TableFunction] = {}
    made: list[Any] = []
    at = 0
    while at < len(tokens):
        wrapped = _is(tokens, at, "TABLE", "(") and _name(tokens, at + 2) in _FUNCTIONS and _is(tokens, at + 3, "(")
        begins = _is(tokens, at + 1, "(", "TABLE") or _is(tokens, at + 1, "(", "DATA", "=>")
        bare = _name(tokens, at) in _FUNCTIONS and begins
        if not wrapped and not bare:
            made.append(tokens[at])
            at += 1
            continue
        reader = _Reader(tokens, at + 2 if wrapped else at, source)
        function = reader.function()
        if wrapped:
            reader.expect(")")
        word = tokens[at + 2 if wrapped else at]
        name = f"{PREFIX}{len(found)}"
        found[name] = function
        made.append(renamed(word, name))
        at = reader.at
    return made, found


def renamed(token: Any, name: str) -> Any:
    """A token for a name, at the place of another token."""
    from sqlglot.tokens import Token, TokenType

    return Token(TokenType.VAR, name, line=token.line, col=token.col, start=token.start, end=token.end)


def _name(tokens: list[Any], at: int) -> str:
    return str(tokens[at].text).upper() if at < len(tokens) else ""


def _is(tokens: list[Any], at: int, *words: str) -> bool:
    return all(_name(tokens, at + k) == word for k, word in enumerate(words))


class _Reader:
    """Reads one call from the tokens, `at` being the next one."""

    def __init__(self, tokens: list[Any], at: int, source: SqlText) -> None:
        self.tokens = tokens
        self.at = at
        self.source = source
        self.name = _name(tokens, at)
        self.start = int(tokens[at].start)

    def function(self) -> TableFunction:
        """The call, up to its closing parenthesis."""
        make, names, form = _FUNCTIONS[self.name]
        self.at += 1
        self.expect("(")
        self._skip_name("DATA")
        self.expect("TABLE")
        table = self.identifier("the name of a table")
        partition = self._partition()
        self.expect(",")
        self._skip_name("TIMECOL")
        self.expect("DESCRIPTOR")
        self.expect("(")
        column = self.identifier("the name of the time's column")
        self.expect(")")
        intervals: dict[str, Duration] = {}
        by_name = False
        while _is(self.tokens, self.at, ","):
            self.at += 1
            start = self._here()
            by_name |= _is(self.tokens, self.at + 1, "=>")
            if len(intervals) == len(names):
                raise self.source.error(f"{self.name} has more than {len(names)} intervals: write {form}", self.start)
            name = self._argument() if by_name else names[len(intervals)]
            if name not in names or name in intervals:
                problem = f"has {name} twice" if name in intervals else f"has no argument {name}"
                raise self.source.error(f"{self.name} {problem}: it takes {', '.join(names)}", start)
            intervals[name] = self._interval()
        self.expect(")")
        if not {name for name in names if name != "OFFSET"} <= intervals.keys():
            raise self.source.error(f"{self.name} has {len(intervals)} intervals: write {form}", self.start)
        if self.name != "SESSION" and partition:
            raise self.source.error(f"{self.name} takes no PARTITION BY: group by the columns instead", self.start)
        try:
            assigner = make(*(intervals[name] for name in names if name in intervals))
        except Exception as error:
            raise self.source.error(f"{self.name}: {error}", self.start) from None
        return TableFunction(self.name, table, column, assigner, partition, self.start)

    def expect(self, word: str) -> None:
        """Take the next token, which has to be this one."""
        if not _is(self.tokens, self.at, word):
            form = _FUNCTIONS[self.name][2]
            raise self.source.error(f"{word} is missing in {self.name}: write {form}", self._here())
        self.at += 1

    def identifier(self, what: str) -> str:
        """Take the next token, a name."""
        kind = self.tokens[self.at].token_type.name if self.at < len(self.tokens) else ""
        text = str(self.tokens[self.at].text) if kind else ""
        if kind == "STRING":
            advice = f"name the file in WITH name AS (SELECT * FROM '{text}') or CREATE TABLE, and write TABLE name"
            raise self.source.error(f"{self.name} takes the name of a table: {advice}", self._here())
        first = _name(self.tokens, self.at + 1 if kind == "L_PAREN" else self.at)
        if first in ("SELECT", "WITH"):
            message = f"{self.name} takes the name of a table: name the query in WITH name AS (…), and write TABLE name"
            raise self.source.error(message, self._here())
        if kind != "IDENTIFIER" and not text.isidentifier():
            raise self.source.error(f"{what} is missing in {self.name}", self._here())
        self.at += 1
        return text

    def _here(self) -> int:
        if self.at < len(self.tokens):
            return int(self.tokens[self.at].start)
        return len(self.source.text)

    def _skip_name(self, name: str) -> None:
        """Skip the name of an argument, as in `DATA => TABLE bids`."""
        if _is(self.tokens, self.at, name, "=>"):
            self.at += 2

    def _argument(self) -> str:
        """Take the name of an argument, which those after a named one need as well."""
        name = _name(self.tokens, self.at)
        self.at += 1
        self.expect("=>")
        return name

    def _partition(self) -> tuple[str, ...]:
        if _is(self.tokens, self.at, "PARTITION BY"):
            self.at += 1
        elif _is(self.tokens, self.at, "PARTITION", "BY"):
            self.at += 2
        else:
            return ()
        columns = [self.identifier("a column")]
        # A comma may also be the one before DESCRIPTOR.
        while _is(self.tokens, self.at, ",") and _name(self.tokens, self.at + 1) not in ("DESCRIPTOR", "TIMECOL"):
            self.at += 1
            columns.append(self.identifier("a column"))
        return tuple(columns)

    def _interval(self) -> Duration:
        self.expect("INTERVAL")
        number, unit = _name(self.tokens, self.at), _name(self.tokens, self.at + 1)
        micros = UNITS.get(unit.removesuffix("S"))
        if micros is None:
            units = ", ".join(UNITS)
            raise self.source.error(f"{self.name}: the unit of an interval is one of {units}", self._here())
        try:
            value = float(number) * micros
        except ValueError:
            raise self.source.error(f"{number!r} is no number", self._here()) from None
        self.at += 2
        return Duration(micros=round(value))
