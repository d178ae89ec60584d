"""`show`: the first elements of collections as small tables, on a terminal or in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, overload

from tidegate.sdk.data.panes import NO_PANE, PaneInfo
from tidegate.sdk.errors import BuildError, shorten, visible
from tidegate.sdk.interactive.recorder import Record
from tidegate.sdk.interactive.runs import records
from tidegate.sdk.notebook import in_notebook
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.runner import Runner
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, DurationLike, format_micros
from tidegate.sdk.user_code.validation import positive_count
from tidegate.sdk.windowing.assigners import is_global_assigner

LONGEST: Final = 200
"""Characters of an element."""

_NO_TIMES: Final = (MIN_MICROS, MAX_MICROS - 1, MAX_MICROS)
"""The timestamps of elements that nobody stamped, and of what groupings make of them."""
_ONLY: Final = "on_time, only"


@dataclass(frozen=True, slots=True)
class Table:
    """A collection's first elements: `columns` says what is shown of each, `more` whether there are others."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: bool

    @property
    def caption(self) -> str:
        """How much of the collection this is."""
        if self.more:
            return "the first element, of more" if len(self.rows) == 1 else f"the first {len(self.rows)}, of more"
        return {0: "empty", 1: "1 element"}.get(len(self.rows), f"{len(self.rows)} elements")


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
    """Run the steps that lead to each collection, and print its first `n` elements as a table: in a notebook as HTML.

    `show(pcoll, 3)` is `show(pcoll, n=3)`. Timestamps, windows and panes are shown where there are any. Of a pipeline
    it shows each collection that no step reads; `show(p["label"])` shows the output of one step. No sink is written.
    `runner` and `run_for` are those of `PCollection.head`.
    """
    __tracebackhide__ = True
    if len(what) == 2 and isinstance(what[1], int):
        n = what[1]
        what = (what[0],)
    positive_count("show", "n", n)
    for pcoll in [pcoll for one in what for pcoll in _collections(one)]:
        found = records(
            pcoll,
            n + 1,
            per_window=not is_global_assigner(pcoll.windowing.assigner),
            runner=runner,
            run_for=run_for,
        )
        _print(table_of(pcoll.id, found[:n], more=len(found) > n))


def table_of(title: str, records: list[Record], *, more: bool) -> Table:
    """Records as text, without the columns that would say nothing."""
    columns = ["element"]
    cells = [[visible(shorten(value, LONGEST)) for value, _, _, _ in records]]
    if any(micros not in _NO_TIMES for _, micros, _, _ in records):
        columns.append("timestamp")
        cells.append([format_micros(micros) for _, micros, _, _ in records])
    if any(window is not None for _, _, window, _ in records):
        columns.append("window")
        cells.append([visible(shorten(window, LONGEST)) for _, _, window, _ in records])
    if any(pane != NO_PANE and _pane(pane) != _ONLY for _, _, _, pane in records):
        columns.append("pane")
        cells.append([_pane(pane) for _, _, _, pane in records])
    return Table(title, tuple(columns), tuple(zip(*cells)), more)


def _pane(pane: PaneInfo) -> str:
    ends = [word for word, holds in (("first", pane.is_first), ("last", pane.is_last)) if holds]
    place = "only" if len(ends) == 2 else (ends or [f"index {pane.index}"])[0]
    return f"{pane.timing.value}, {place}"


def _collections(one: PCollection[Any] | Pipeline | int) -> list[PCollection[Any]]:
    match one:
        case PCollection():
            return [one]
        case Pipeline():
            found = one.unread()
            if not found:
                raise BuildError(
                    f"the pipeline {one.name!r} has no collection that no step reads: show the one that is meant"
                )
            return found
        case str():
            raise BuildError(
                f"show takes collections and pipelines, not {shorten(one)}: p[{shorten(one)}] is the output of the "
                "step of that label"
            )
    raise BuildError(f"show takes collections and pipelines, not {shorten(one)}")


def _print(table: Table) -> None:
    if in_notebook():
        from importlib import import_module

        from tidegate.sdk.interactive.html import table_html

        import_module("IPython.display").display(
            {"text/html": table_html(table), "text/plain": table.caption}, raw=True
        )
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    drawn = Drawn(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        drawn.add_column(column, overflow="fold", no_wrap=column in ("timestamp", "pane"))
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    console = Console()
    with console.capture() as capture:
        console.print(Text(table.title, style="bold"), drawn, Text(table.caption), sep="\n")
    console.file.write("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n")
