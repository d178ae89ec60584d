"""Makes functions that seem to be the author's: their frames name an author's function, and a position in it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import CodeType, FunctionType
from typing import Any

from tidegate.runners.engine.loops.bodies.generator_loops import GENEXPR
from tidegate.runners.engine.loops.inlined_body import InlinedBody
from tidegate.sdk.data.timestamps import element_micros
from tidegate.sdk.user_code.body import COMPILED_AGAIN, silence_warnings


def function_at(
    fn: FunctionType,
    name: str,
    qualname: str,
    parameters: Sequence[str],
    *does: ast.stmt,
    positional_only: int = 0,
    keyword_only: int = 0,
) -> FunctionType:
    """A function with the globals of `fn` that does what statements say, at their positions in the author's file."""
    start = fn.__code__.co_firstlineno
    first: dict[str, Any] = {"lineno": start, "end_lineno": start, "col_offset": 0, "end_col_offset": 0}
    made = [ast.arg(parameter, **first) for parameter in parameters]
    positional = len(made) - keyword_only
    arguments = ast.arguments(
        posonlyargs=made[:positional_only],
        args=made[positional_only:positional],
        kwonlyargs=made[positional:],
        kw_defaults=[None] * keyword_only,
        defaults=[],
    )
    statement = ast.FunctionDef(name="made", args=arguments, body=list(does), decorator_list=[], **first)
    silence_warnings()
    module = compile(ast.Module([statement], []), COMPILED_AGAIN, "exec", dont_inherit=True)
    code = next(const for const in module.co_consts if isinstance(const, CodeType))
    return FunctionType(
        code.replace(co_name=name, co_qualname=qualname, co_filename=fn.__code__.co_filename), fn.__globals__
    )


def names_of(fn: FunctionType, inner: str) -> tuple[str, str]:
    """The name, and the name with those around it, of a function, or of the function `inner` in it."""
    name, qualname = fn.__code__.co_name, fn.__code__.co_qualname
    return (inner, f"{qualname}.<locals>.{inner}") if inner else (name, qualname)


def converting(body: InlinedBody) -> FunctionType:
    """The conversion of a timestamp that the body of a function passes to TimestampedValue, as if called from there.

    The conversion may raise, and warns about the author's line.
    """
    assert body.stamped is not None
    call = body.stamped.call
    names: list[ast.expr] = [ast.copy_location(ast.Name(name, ast.Load()), call) for name in ("convert", "timestamp")]
    does = ast.copy_location(ast.Return(ast.copy_location(ast.Call(names[0], names[1:], []), call)), call)
    inside = body.generator is not None and body.generator.is_around(call)
    function = function_at(body.fn, *names_of(body.fn, GENEXPR if inside else ""), ("timestamp", "convert"), does)
    function.__defaults__ = (element_micros,)
    return function


def taking(body: InlinedBody) -> FunctionType:
    """A function with the parameters of an inlined one that returns the items among its arguments.

    Calling it with arguments that don't fit fails as a call of the author's function does.
    """
    fn, code = body.fn, body.fn.__code__
    start: dict[str, Any] = {"lineno": code.co_firstlineno, "col_offset": 0}
    items: list[ast.expr] = [ast.Name(name, ast.Load(), **start) for name in body.items]
    does = ast.Return(ast.Tuple(items, ast.Load(), **start), **start)
    function = function_at(
        fn,
        code.co_name,
        code.co_qualname,
        code.co_varnames[: code.co_argcount + code.co_kwonlyargcount],
        does,
        positional_only=code.co_posonlyargcount,
        keyword_only=code.co_kwonlyargcount,
    )
    function.__defaults__, function.__kwdefaults__ = fn.__defaults__, fn.__kwdefaults__
    function.__name__, function.__qualname__, function.__module__ = fn.__name__, fn.__qualname__, fn.__module__
    return function
