"""Gives errors of inlined bodies the traceback that they would have if the function had been called."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import islice
from types import FunctionType, TracebackType
from typing import Any, Final

from tidegate.runners.engine.loops.author_function import function_at
from tidegate.runners.engine.loops.loop_tree import PlacedLines
from tidegate.sdk.notebook import chained


def author_traceback(trace: TracebackType | None, loops: Mapping[str, tuple[PlacedLines, ...]]) -> TracebackType | None:
    """The traceback in which each frame of a loop that executes an inlined body is followed by one of the function.

    `loops` has the inlined bodies of the loops, by the file name of the generated code.
    """
    parts: list[TracebackType] = []
    changed = False
    while trace is not None:
        inside = _called(trace, loops.get(trace.tb_frame.f_code.co_filename, ()))
        parts.append(trace if inside is None else inside)
        changed = changed or inside is not None
        trace = trace.tb_next
    return chained(parts)


def _called(trace: TracebackType, loop: tuple[PlacedLines, ...]) -> TracebackType | None:
    """A frame of the author's function at the position at which a frame of a loop is, if that is in an inlined body."""
    line = trace.tb_lineno
    inside = next((each for each in loop if line in each.lines), None)
    if inside is None:
        return None
    frame, body = trace.tb_frame, inside.placed.body
    variables: dict[str, Any] = {}
    name, qualname = body.fn.__code__.co_name, body.fn.__code__.co_qualname
    if frame.f_code.co_firstlineno in inside.lines:  # before Python 3.12, a comprehension has a frame of its own
        name, qualname = frame.f_code.co_name, f"{qualname}.<locals>.{frame.f_code.co_name}"
    else:
        known = frame.f_globals | frame.f_locals
        used = [*body.arguments, *body.defaults, *body.cells]
        variables = {each: known[inside.placed.names[each]] for each in used if inside.placed.names[each] in known}
    position = next(islice(frame.f_code.co_positions(), trace.tb_lasti // 2, None))
    return _frame_at(body.fn, name, qualname, variables, position, inside.offset)


def _frame_at(
    fn: FunctionType,
    name: str,
    qualname: str,
    variables: Mapping[str, Any],
    position: tuple[int | None, int | None, int | None, int | None],
    offset: int,
) -> TracebackType:
    """A traceback of one frame, which executes `fn` at a position: the frame of a function that fails there."""
    line, end_line, column, end_column = (part or 0 for part in position)
    place: dict[str, Any] = {
        "lineno": line - offset,
        "end_lineno": end_line - offset,
        "col_offset": column,
        "end_col_offset": end_column,
    }
    failing = function_at(fn, name, qualname, list(variables), ast.Raise(ast.Constant(_HERE, **place), **place))
    error = _Here()
    consts = tuple(error if const == _HERE else const for const in failing.__code__.co_consts)
    failing.__code__ = failing.__code__.replace(co_consts=consts)
    try:
        failing(**variables)
    except _Here as raised:
        trace = raised.__traceback__
    else:
        trace = None
    assert trace is not None
    assert trace.tb_next is not None
    return trace.tb_next


class _Here(Exception):
    """Raised at a position of the author's code, for the frame."""


_HERE: Final = "tidegate:here"
