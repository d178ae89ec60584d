"""Collections as queries in Spark's SQL, over DataFrames that they name by number.

A region is one text, which Spark parses and analyzes once. That takes a fraction of the time of an operation of its
DataFrame API for each relation, each with its own messages to the JVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate.runners.spark.catalyst.expressions import END, START, quoted

TIME: Final = "tidegate: time"
WINDOW: Final = (START, END)
HIDDEN: Final = (TIME, *WINDOW)
"""The names of the columns that no relation names: timestamps, and the bounds of windows."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a collection is made by. `table` is what stands after FROM: a query, or the place of a DataFrame.

    `joined`: a join is among the steps that it is made by. Behind its `columns` it has those of windows if it is
    `windowed`, or else of timestamps if it is `timed`. `merging`: its windows are sessions, which the next grouping
    unites.
    """

    table: str
    columns: tuple[str, ...]
    joined: bool = False
    windowed: bool = False
    merging: bool = False
    timed: bool = False

    @property
    def windows(self) -> tuple[str, ...]:
        """The columns of windows, quoted."""
        return tuple(map(quoted, WINDOW)) if self.windowed else ()

    @property
    def hidden(self) -> tuple[str, ...]:
        """The columns that no relation names, quoted."""
        return self.windows or ((quoted(TIME),) if self.timed else ())

    @property
    def every(self) -> tuple[str, ...]:
        """All columns, quoted."""
        return (*map(quoted, self.columns), *self.hidden)

    @property
    def depth(self) -> int:
        """How many queries are inside each other, at most."""
        return self.table.count(_BEGIN)


_BEGIN: Final = "(SELECT "
_PLACE: Final = re.compile("\x00([0-9]+)\x00")


def place(number: int) -> str:
    """The place of a DataFrame, as a table."""
    return f"\x00{number}\x00"


def listed(columns: Iterable[str]) -> str:
    """The columns of a query, which has one if no relation reads any."""
    return ", ".join(columns) or "1"


def query(columns: Iterable[str], table: str, rest: str = "") -> str:
    """A query as a table. `rest` is what follows FROM, with a space before it."""
    return f"{_BEGIN}{listed(columns)} FROM {table}{rest}) AS t"


def named(text: str, name: str) -> str:
    """An expression as a column of a query."""
    return f"{text} AS {quoted(name)}"


def dataframe(session: Any, made: Made, frames: Sequence[Any]) -> Any:
    """The DataFrame of all columns."""
    text = f"SELECT {listed(made.every)} FROM {made.table}"
    used = {int(number): frames[int(number)] for number in _PLACE.findall(text)}
    if not used:
        return session.sql(text)
    text = _PLACE.sub(r"{f\1}", text.replace("{", "{{").replace("}", "}}"))
    return session.sql(text, **{f"f{number}": frame for number, frame in used.items()})
