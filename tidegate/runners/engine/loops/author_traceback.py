"""Gives errors of inlined bodies the traceback that they would have if the function had been called."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from types import FrameType, FunctionType, TracebackType
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.loops.author_function import function_at, names_of
from tidegate.runners.engine.loops.bodies.generator_loops import GENEXPR, Span, operation
from tidegate.runners.engine.loops.form import Form, PlacedBody
from tidegate.runners.engine.loops.inlined_body import is_testable
from tidegate.sdk.notebook import chained

NamedForm: TypeAlias = tuple[Form, Mapping[str, Any]]
"""The form of a loop, and the values of the names in it that it does not assign."""


def author_traceback(trace: TracebackType | None, loops: Mapping[str, NamedForm]) -> TracebackType | None:
    """The traceback in which each frame of a loop that executes an inlined body is followed by one of the function.

    `loops` has the loops by the file names of the generated code.
    """
    return chained(list(_parts(trace, loops)))


# The frames that are made refer to those of the functions that make them, as the frames below them. No variable of
# these may have what is made: it would be freed only by the garbage collector, and with it the author's variables.


def _parts(trace: TracebackType | None, loops: Mapping[str, NamedForm]) -> Iterator[TracebackType]:
    while trace is not None:
        loop = loops.get(trace.tb_frame.f_code.co_filename)
        yield (None if loop is None else _called(trace, *loop)) or trace
        trace = trace.tb_next


def _called(trace: TracebackType, loop: Form, env: Mapping[str, Any]) -> TracebackType | None:
    """The frame of the author's function, or of a comprehension in it, at the position at which a frame of a loop is,
    if that is in an inlined body. `env` has what the loop does not assign."""
    inside = loop.inlined(trace.tb_lineno)
    if inside is None or _tests_result(trace, inside):
        return None
    frame, body = trace.tb_frame, inside.body
    if frame.f_code.co_firstlineno in inside.lines:  # before Python 3.12, a comprehension has a frame of its own
        return _frame(body.fn, frame.f_code.co_name, _span(trace, inside.offset), {})
    in_it, span = _place(trace, inside)
    if in_it:
        return _frame(body.fn, GENEXPR, span, {})
    known = {**env, **_locals(frame)}
    names = inside.names
    used = [*body.arguments, *body.items, *body.defaults, *body.cells]
    variables = {each: known[names[each]] for each in used if names[each] in known}
    # The loop sets variables to None after each element, since they have no value before they are assigned.
    assigned = {each: known.get(names[each]) for each in body.local if each not in variables}
    variables |= {each: value for each, value in assigned.items() if value is not None}
    return _frame(body.fn, "", span, variables)


def _locals(frame: FrameType) -> dict[str, Any]:
    """The variables of a frame now. Before Python 3.13, the frame has a copy of them, which would keep their values
    after the loop has set them to None."""
    found = dict(frame.f_locals)
    if sys.version_info < (3, 13):
        frame.f_locals.clear()
    return found


def _frame(fn: FunctionType, inner: str, span: Span, variables: dict[str, Any]) -> TracebackType:
    """A frame of a function, or of the function `inner` in it, at a position."""
    name, qualname = names_of(fn, inner)
    place = _attributes(span)
    fails = ast.Raise(ast.Constant(_HERE, **place), **place)
    failing = function_at(fn, name, qualname, list(variables), fails)
    # The class, and not an error: code that refers to an error with its frame would keep both for ever.
    consts = tuple(_Here if const == _HERE else const for const in failing.__code__.co_consts)
    failing.__code__ = failing.__code__.replace(co_consts=consts)
    try:
        failing(**variables)
    except _Here as raised:
        return _without_first(raised.__traceback__)
    raise AssertionError("a function that raises an error fails")


def _without_first(trace: TracebackType | None) -> TracebackType:
    assert trace is not None
    assert trace.tb_next is not None
    return trace.tb_next


def _tests_result(trace: TracebackType, placed: PlacedBody) -> bool:
    """Whether a frame is where the truth of an inlined expression's result is tested, which the function does not do.

    That instruction has the position of the expression. No other test has, if the expression is testable and no
    comprehension, whose conditions may have it.
    """
    node = placed.nodes[0]
    if not isinstance(node, ast.expr) or isinstance(node, _COMPREHENSIONS) or not is_testable(node):
        return False
    tests = operation(trace.tb_frame.f_code, trace.tb_lasti) == "TO_BOOL"
    return tests and _span(trace, placed.offset) == _whole(node)


_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp)


def generator_error(stop: StopIteration, loops: Mapping[str, NamedForm]) -> RuntimeError | None:
    """The error that Python makes of a StopIteration which leaves a generator, if one has left an inlined generator."""
    trace = stop.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename not in loops:
        trace = trace.tb_next
    if trace is None:
        return None
    form, _ = loops[trace.tb_frame.f_code.co_filename]
    inside = form.inlined(trace.tb_lineno)
    if inside is None or not inside.body.yields:
        return None
    in_it, span = _place(trace, inside)
    if inside.body.generator is not None and not in_it:
        return None  # it has left a function that makes a generator
    shown, context = author_traceback(trace, loops), stop.__context__
    names = names_of(inside.body.fn, GENEXPR if in_it else "")
    place = _attributes(span)
    generator = function_at(inside.body.fn, *names, [], ast.Expr(ast.Yield(**place), **place))()
    next(generator)
    try:
        generator.throw(stop)
    except RuntimeError as raised:
        stop.__traceback__, stop.__context__ = shown, context  # which raising it again has changed
        return raised.with_traceback(raised.__traceback__ and raised.__traceback__.tb_next)
    raise AssertionError("a generator that raises StopIteration fails")


def _place(trace: TracebackType, inside: PlacedBody) -> tuple[bool, Span]:
    """The position in the author's file of the instruction at which a frame of a loop is, and whether that is inside of
    the generator expression for which the loop stands."""
    looped, span = inside.body.generator, _span(trace, inside.offset)
    return (False, span) if looped is None else looped.place(operation(trace.tb_frame.f_code, trace.tb_lasti), span)


def _span(trace: TracebackType, offset: int) -> Span:
    """The position of the instruction at which a frame is, in a file whose lines have other numbers."""
    position = next(islice(trace.tb_frame.f_code.co_positions(), trace.tb_lasti // 2, None))
    line, end_line, column, end_column = (part or 0 for part in position)
    return line - offset, end_line - offset, column, end_column


def _whole(node: ast.expr) -> Span:
    """The position of an expression."""
    return node.lineno, node.end_lineno or node.lineno, node.col_offset, node.end_col_offset or node.col_offset


def _attributes(span: Span) -> dict[str, Any]:
    """A position as the attributes of a node."""
    return dict(zip(("lineno", "end_lineno", "col_offset", "end_col_offset"), span, strict=True))


class _Here(Exception):
    """Raised at a position of the author's code, for the frame."""


_HERE: Final = "tidegate:here"
