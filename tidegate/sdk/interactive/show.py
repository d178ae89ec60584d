"""`show`: the first elements of collections as small tables, on a terminal or in a notebook."""

from __future__ import annotations

import sys
from typing import Any, overload

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.interactive.html import table_html
from tidegate.sdk.interactive.runs import records
from tidegate.sdk.interactive.table import Table, table_of
from tidegate.sdk.notebook import in_notebook
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.runner import Runner
from tidegate.sdk.time import DurationLike
from tidegate.sdk.user_code.validation import positive_count
from tidegate.sdk.windowing.assigners import is_global_assigner


@overload
def show(
    what: PCollection[Any] | Pipeline,
    n: int,
    /,
    *,
    runner: str | Runner | None = None,
    run_for: DurationLike | None = None,
) -> None: ...
@overload
def show(
    *what: PCollection[Any] | Pipeline,
    n: int = 10,
    runner: str | Runner | None = None,
    run_for: DurationLike | None = None,
) -> None: ...
def show(
    *what: PCollection[Any] | Pipeline | int,
    n: int = 10,
    runner: str | Runner | None = None,
    run_for: DurationLike | None = None,
) -> None:
    """Run the steps upstream of each collection, and print its first `n` elements as a table, in a notebook as HTML.

    `show(pcoll, 3)` is `show(pcoll, n=3)`. Timestamps, windows and panes are shown if there are any. For a pipeline,
    each collection that no step reads is shown; `show(p["label"])` shows the output of one step. No sink is written.
    `runner` and `run_for` are those of `PCollection.head`.
    """
    __tracebackhide__ = True
    if len(what) == 2 and isinstance(what[1], int):
        n = what[1]
        what = (what[0],)
    positive_count("show", "n", n)
    try:
        for pcoll in [pcoll for one in what for pcoll in _collections(one)]:
            found = records(
                pcoll,
                n + 1,
                per_window=not is_global_assigner(pcoll.windowing.assigner),
                runner=runner,
                run_for=run_for,
            )
            _print(table_of(pcoll.id, found[:n], more=len(found) > n))
    finally:
        for one in what:
            if isinstance(one, PCollection):
                one.pipeline.drop_scratch([one])


def _collections(one: PCollection[Any] | Pipeline | int) -> list[PCollection[Any]]:
    match one:
        case PCollection():
            return [one]
        case Pipeline():
            found = one.unread()
            if not found:
                raise BuildError(
                    f"steps read all collections of the pipeline {one.name!r}: pass the collection to show"
                )
            return found
        case str():
            raise BuildError(
                f"show takes collections and pipelines, not {shorten(one)}: p[{shorten(one)}] is the output of the "
                "step with that label"
            )
    raise BuildError(f"show takes collections and pipelines, not {shorten(one)}")


def _print(table: Table) -> None:
    if in_notebook():
        from importlib import import_module

        import_module("IPython.display").display(
            {"text/html": table_html(table), "text/plain": _text_of(table, plain=True)}, raw=True
        )
    else:
        sys.stdout.write(_text_of(table) + "\n")


def _text_of(table: Table, *, plain: bool = False) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    drawn = Drawn(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        drawn.add_column(column, overflow="fold", no_wrap=column in ("timestamp", "pane"))
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    console = Console(force_jupyter=False, force_terminal=False) if plain else Console()
    with console.capture() as capture:
        console.print(Text(table.title, style="bold"), drawn, Text(table.caption), sep="\n")
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
