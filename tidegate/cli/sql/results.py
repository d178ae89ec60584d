"""Results of queries on standard output: a table on a terminal, else CSV."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from tidegate.sdk.pipeline import PCollection
    from tidegate.sql.script import Script

_SHOWN: Final = 1000
"""How many rows of a result are shown."""


def show_results(script: Script) -> None:
    """Run the queries of a script whose results nothing writes, and print them."""
    for rows in script.results:
        if not rows.is_bounded:
            raise click.UsageError("the result of a query over a followed table never ends: write INSERT INTO …")
        print_rows(rows)


def print_rows(rows: PCollection[Any]) -> None:
    """Print a result: as a table on a terminal, else as CSV."""
    names = rows.schema.names if rows.schema is not None else ()
    found = rows.head(_SHOWN + 1)
    if not sys.stdout.isatty():
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_plain(value) for value in row] for row in (rows.collect() if len(found) > _SHOWN else found))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table(*map(escape, names))
    for row in found[:_SHOWN]:
        table.add_row(*[Text("NULL" if value is None else _plain(value)) for value in row])
    if len(found) > _SHOWN:
        table.caption = f"the first {_SHOWN} rows"
    Console().print(table)


def _plain(value: Any) -> str:
    return "" if value is None else value.isoformat(" ") if hasattr(value, "hour") else str(value)
