"""Timestamps and windows of rows that Spark computes: columns that no relation names, in microseconds since 1970.

Rows with timestamps of their own have `TIME`; rows in windows have `START` and `END` in place of it, and are as many as
their windows. So groupings have these as further keys. Sessions, whose windows merge, stay with the workers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tidegate.runners.spark.catalyst.expressions import END, START, literal, quoted, sql
from tidegate.sdk.data.columns import STRING
from tidegate.sdk.portable.model import ParDo
from tidegate.sdk.relational.expressions import Literal, Tree
from tidegate.sdk.relational.expressions import text as shown
from tidegate.sdk.windowing.assigners import CumulativeWindows, FixedWindows, GlobalWindows, SlidingWindows
from tidegate.sdk.windowing.strategy import GLOBAL_DEFAULT, WindowingStrategy

TIME: Final = "tidegate: time"
WINDOW: Final = (START, END)
HIDDEN: Final = (TIME, *WINDOW)
"""The names of the columns that no relation names."""

_LONGEST: Final = 10**18
"""Windows of fewer microseconds begin and end within 64 bits, if they contain an instant of the years 1 to 9999."""


def is_windowed(windowing: WindowingStrategy) -> bool:
    """Whether elements are in windows other than the global one."""
    return not isinstance(windowing.assigner, GlobalWindows)


def has_native_windows(windowing: WindowingStrategy) -> bool:
    """Whether Spark's rows can be in these windows, each with one final result."""
    match windowing.assigner:
        case FixedWindows(size=size) | SlidingWindows(size=size) | CumulativeWindows(size=size):
            return size.micros < _LONGEST and replace(windowing, assigner=GLOBAL_DEFAULT.assigner) == GLOBAL_DEFAULT
    return windowing == GLOBAL_DEFAULT


def time_of(node: ParDo) -> Tree | None:
    """The expression of the timestamps that a step gives to its elements; None if it does more, or anything else."""
    if node.form != "map" or len(node.outputs) > 1 or node.side_inputs or node.stateful or node.dead_letters:
        return None
    return getattr(node.fn.load(), "timestamp_of", None)


def stamped(frame: Any, time: Tree) -> Any:
    """Rows with a timestamp; one that is NULL is an error."""
    text = sql(time)
    if time.nullable:
        message = f"[INVALID_COLUMN_VALUE] the time column {shown(time)!r} is NULL: filter such rows out"
        raised = f"CAST(raise_error({literal(Literal(message, STRING))}) AS BOOLEAN)"
        # A condition, since Spark leaves out columns that nothing reads, and filters rows before it computes them.
        frame = frame.where(f"IF({text} IS NULL, {raised}, TRUE)")
    columns = [quoted(name) for name in frame.columns if name not in HIDDEN]
    return frame.selectExpr(*columns, f"unix_micros({text}) AS {quoted(TIME)}")


def in_windows(frame: Any, windowing: WindowingStrategy) -> Any:
    """Rows in each of their windows; in the global one they are as they were, or have lost their windows."""
    if not is_windowed(windowing):
        return frame.drop(*WINDOW)
    time = quoted(TIME)
    columns = [quoted(name) for name in frame.columns if name not in HIDDEN]
    start, end = quoted(START), quoted(END)
    match windowing.assigner:
        case FixedWindows(size=size, offset=offset):
            begins = _begin(time, size.micros, offset.micros)
            return frame.selectExpr(*columns, f"{begins} AS {start}", f"{begins} + {size.micros}L AS {end}")
        case SlidingWindows(size=size, period=period, offset=offset):
            last, step = _begin(time, period.micros, offset.micros), period.micros
            earlier = (size.micros - 1) // step * step
            starts = f"explode(sequence({last} - {earlier}L, {last}, {step}L)) AS {start}"
            frame = frame.selectExpr(*columns, time, starts).where(f"{start} > {time} - {size.micros}L")
            return frame.selectExpr(*columns, start, f"{start} + {size.micros}L AS {end}")
        case CumulativeWindows(size=size, step=every, offset=offset):
            begins, step = _begin(time, size.micros, offset.micros), every.micros
            first = f"{begins} + ({time} - {begins}) DIV {step}L * {step}L + {step}L"
            ends = f"explode(sequence({first}, {begins} + {size.micros}L, {step}L)) AS {end}"
            return frame.selectExpr(*columns, f"{begins} AS {start}", ends)
    raise AssertionError(f"{windowing.assigner!r} has no native windows")


def _begin(time: str, every: int, offset: int) -> str:
    """The latest of the instants that are an offset past multiples of a duration, and not after a time."""
    return f"({time} - pmod({time} - {offset}L, {every}L))"
