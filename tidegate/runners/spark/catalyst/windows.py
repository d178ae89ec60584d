"""Timestamps and windows of rows that Spark computes: columns that no relation names, in microseconds since 1970.

Rows with timestamps of their own have `TIME`; rows in windows have `START` and `END` in place of it, and are as many as
their windows. So groupings have these as further keys. Those of sessions have the number of the session instead, which
is counted for each key in the order of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tidegate.runners.spark.catalyst.expressions import END, START, literal, quoted, sql
from tidegate.runners.spark.catalyst.queries import TIME, Made, named, query
from tidegate.sdk.data.columns import STRING
from tidegate.sdk.relational.expressions import Literal, Tree
from tidegate.sdk.relational.expressions import text as shown
from tidegate.sdk.time import Duration
from tidegate.sdk.windowing.assigners import (
    CumulativeWindows,
    FixedWindows,
    GlobalWindows,
    Merged,
    Sessions,
    SlidingWindows,
)
from tidegate.sdk.windowing.strategy import GLOBAL_DEFAULT, WindowingStrategy

SESSION: Final = "tidegate: session"
"""The number of a row's session, within a grouping."""

LONGEST: Final = 10**18
"""Fewer microseconds before or after an instant of the years 1 to 9999 are instants within 64 bits."""


def is_windowed(windowing: WindowingStrategy) -> bool:
    """Whether elements are in windows other than the global one."""
    return not isinstance(windowing.assigner, GlobalWindows)


def has_native_windows(windowing: WindowingStrategy) -> bool:
    """Whether Spark's rows can be in these windows, each with one final result."""
    match windowing.assigner:
        case FixedWindows(size=size) | SlidingWindows(size=size) | CumulativeWindows(size=size):
            pass
        case Sessions(gap=Duration() as size) | Merged(Sessions(gap=Duration() as size)):
            pass
        case _:
            return windowing == GLOBAL_DEFAULT
    return size.micros < LONGEST and replace(windowing, assigner=GLOBAL_DEFAULT.assigner) == GLOBAL_DEFAULT


def still_merge(windowing: WindowingStrategy) -> bool:
    """Whether elements are in sessions that the next grouping unites."""
    return isinstance(windowing.assigner, Sessions)


def stamped(input: Made, time: Tree) -> Made:
    """Rows with a timestamp; one that is NULL is an error."""
    text, where = sql(time), ""
    if time.nullable:
        message = f"[INVALID_COLUMN_VALUE] the time column {shown(time)!r} is NULL: filter such rows out"
        raised = f"CAST(raise_error({literal(Literal(message, STRING))}) AS BOOLEAN)"
        # A condition, since Spark leaves out columns that nothing reads, and filters rows before it computes them.
        where = f" WHERE IF({text} IS NULL, {raised}, TRUE)"
    columns = [*map(quoted, input.columns), named(f"unix_micros({text})", TIME)]
    return replace(input, table=query(columns, input.table, where), timed=True)


def in_windows(input: Made, windowing: WindowingStrategy) -> Made:
    """Rows in each of their windows; in the global one they are as they were, or have lost their windows."""
    if not is_windowed(windowing):
        return replace(input, windowed=False, merging=False)
    time, columns, table = quoted(TIME), [*map(quoted, input.columns)], input.table
    made = replace(input, windowed=True, timed=False, merging=still_merge(windowing))
    start, end = quoted(START), quoted(END)
    match windowing.assigner:
        case FixedWindows(size=size, offset=offset):
            begins = _begin(time, size.micros, offset.micros)
            bounds = [f"{begins} AS {start}", f"{begins} + {size.micros}L AS {end}"]
        case SlidingWindows(size=size, period=period, offset=offset):
            last, step = _begin(time, period.micros, offset.micros), period.micros
            earlier = (size.micros - 1) // step * step
            starts = f"explode(sequence({last} - {earlier}L, {last}, {step}L)) AS {start}"
            table = query([*columns, time, starts], table)
            columns_of_windows = [*columns, start, f"{start} + {size.micros}L AS {end}"]
            return replace(made, table=query(columns_of_windows, table, f" WHERE {start} > {time} - {size.micros}L"))
        case CumulativeWindows(size=size, step=every, offset=offset):
            begins, step = _begin(time, size.micros, offset.micros), every.micros
            first = f"{begins} + ({time} - {begins}) DIV {step}L * {step}L + {step}L"
            ends = f"explode(sequence({first}, {begins} + {size.micros}L, {step}L)) AS {end}"
            bounds = [f"{begins} AS {start}", ends]
        case Sessions(gap=Duration(micros=gap)):
            bounds = [f"{time} AS {start}", f"{time} + {gap}L AS {end}"]
        case _:
            raise AssertionError(f"{windowing.assigner!r} has no native windows")
    return replace(made, table=query([*columns, *bounds], table))


def numbered_sessions(table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """Rows of sessions that still merge, with the number of the session that unites those of a key that overlap."""
    start, end = quoted(START), quoted(END)
    each_key = f"PARTITION BY {', '.join(keys)} " if keys else ""
    in_time_order = f"({each_key}ORDER BY {start})"
    is_first = named(f"IF({start} < lag({end}) OVER {in_time_order}, 0L, 1L)", SESSION)
    number = named(f"sum({quoted(SESSION)}) OVER {in_time_order}", SESSION)
    return query([*columns, start, end, number], query([*columns, start, end, is_first], table))


def _begin(time: str, every: int, offset: int) -> str:
    """The latest of the instants that are an offset past multiples of a duration, and not after a time."""
    return f"({time} - pmod({time} - {offset}L, {every}L))"
