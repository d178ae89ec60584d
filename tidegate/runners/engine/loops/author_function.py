"""Makes functions that seem to be the author's: their frames name an author's function, and a position in it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import CodeType, FunctionType
from typing import Any

from tidegate.runners.engine.loops.inlining import InlinedBody
from tidegate.sdk.data.timestamps import element_micros


def function_at(fn: FunctionType, name: str, qualname: str, parameters: Sequence[str], does: ast.stmt) -> FunctionType:
    """A function with the globals of `fn` that does what a statement says, at its position in the author's file."""
    start = fn.__code__.co_firstlineno
    first: dict[str, Any] = {"lineno": start, "end_lineno": start, "col_offset": 0, "end_col_offset": 0}
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(parameter, **first) for parameter in parameters],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    made = ast.FunctionDef(name="made", args=arguments, body=[does], decorator_list=[], **first)
    module = compile(ast.Module([made], []), fn.__code__.co_filename, "exec", dont_inherit=True)
    code = next(const for const in module.co_consts if isinstance(const, CodeType))
    return FunctionType(code.replace(co_name=name, co_qualname=qualname), fn.__globals__)


def converting(body: InlinedBody) -> FunctionType:
    """The conversion of a timestamp that the body of a function passes to TimestampedValue, as if called from there.

    The conversion may raise, and warns about the author's line.
    """
    assert body.stamped is not None
    call = body.stamped.call
    names: list[ast.expr] = [ast.copy_location(ast.Name(name, ast.Load()), call) for name in ("convert", "timestamp")]
    does = ast.copy_location(ast.Return(ast.copy_location(ast.Call(names[0], names[1:], []), call)), call)
    code = body.fn.__code__
    function = function_at(body.fn, code.co_name, code.co_qualname, ("timestamp", "convert"), does)
    function.__defaults__ = (element_micros,)
    return function
