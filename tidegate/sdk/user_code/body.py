"""The text of an author's function, as proven by its code: compiling the text gives exactly that code.

`find_body` is asked while a pipeline is built, where the source is; `proven_node` wherever the function is about to
run, with the unpickled function and the recorded text. A function whose text cannot be proven has no body: no harm is
done, since it is called as ever.

>>> increment = find_body(lambda x: x + 1)
>>> increment.text, increment.parameters, increment.names
('x + 1', ('x',), ())
"""

from __future__ import annotations
import __future__

import ast
import linecache
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dis import get_instructions
from functools import lru_cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_NESTED, CO_VARARGS, CO_VARKEYWORDS
from itertools import pairwise
from opcode import EXTENDED_ARG, opmap
from types import CodeType, FunctionType
from typing import Any, Final, TypeAlias, TypeVar

from tidegate.sdk.notebook import place_of

Function: TypeAlias = ast.Lambda | ast.FunctionDef

K = TypeVar("K")
V = TypeVar("V")

_TESTED: Final = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info[:2] <= (3, 13)
"""Whether the bytecode of this Python is one that this module was tested with."""

_LOAD_GLOBAL: Final = opmap["LOAD_GLOBAL"]
_ASYNC: Final = CO_COROUTINE | CO_ASYNC_GENERATOR
_FUTURES: Final = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names} - {CO_NESTED})
"""The compiler flags of all `from __future__ import`s; `nested_scopes` has that of nested functions."""


@dataclass(frozen=True, slots=True)
class Body:
    """The text of a function: of a lambda its expression, of any other function the `def` statement.

    The text begins in line `line` of `file`, in column `column`, counted in bytes of UTF-8. `parameters` are as in a
    signature (`x`, `*rest`, `**options`); `names` are the globals, builtins and captured variables that it reads.
    """

    text: str
    file: str
    line: int
    column: int
    parameters: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def find_body(fn: Any) -> Body | None:
    """The body of a live function; None if its source is missing, or is not what the function was compiled from.

    Coroutines have none, nor do functions that are not written in Python.
    """
    if not isinstance(fn, FunctionType) or not _TESTED or fn.__code__.co_flags & _ASYNC:
        return None
    code = fn.__code__
    known = _found.get(id(code))
    if known is not None:
        return known[1]
    lines = linecache.getlines(code.co_filename, fn.__globals__)
    if not lines:
        return None
    places = _expressions(code, lines) if code.co_name == "<lambda>" else _statement(code, lines)
    silence_warnings()
    found = next((each for each in places if _proven(code, *each) is not None), None)
    if found is None:
        return None
    text, line, column = found
    body = Body(text, place_of(code.co_filename), line, column, _parameters(code), _names(code))
    _remember(_found, id(code), (code, body))
    _remember(_proofs, body, code)
    return body


def proven_node(body: Body, fn: Any) -> Function | None:
    """The node of `fn`, with its positions in the author's file, if compiling the body gives the code of `fn`."""
    if not isinstance(fn, FunctionType) or not _TESTED:
        return None
    known = _proofs.get(body)
    silence_warnings()
    if known is not None and _same(known, fn.__code__):
        return _parsed(known, body.text, body.line, body.column)
    node = _proven(fn.__code__, body.text, body.line, body.column)
    if node is not None:
        _remember(_proofs, body, fn.__code__)
    return node


COMPILED_AGAIN: Final = "<compiled again>"
"""The name of the file as which the author's text is compiled once more, see `silence_warnings`."""


def silence_warnings() -> None:
    """Have Python not warn about text in the file COMPILED_AGAIN: it has warned when it compiled the author's file.

    The filters of warnings are those of the whole process, and the author's threads may save, change and restore them
    at the same time. Therefore, this only adds a filter, which concerns no other file, and restores nothing.
    """
    if not warnings.filters or warnings.filters[0] != ("ignore", None, Warning, re.compile(COMPILED_AGAIN), 0):
        warnings.filterwarnings("ignore", module=COMPILED_AGAIN)


_found: Final[dict[int, tuple[CodeType, Body]]] = {}
"""By the id of a code object, which the entry keeps alive, the body that was found for it."""
_proofs: Final[dict[Body, CodeType]] = {}
"""By body, a code that it compiles to."""
_CACHED: Final = 1024


def _remember(cache: dict[K, V], key: K, value: V) -> None:
    if len(cache) >= _CACHED:
        cache.clear()
    cache[key] = value


def class_around(code: CodeType) -> str:
    """The name of the innermost class that code was written in, by which it mangles private names; "" if none."""
    parts = code.co_qualname.split(".")
    classes = [part for part, inner in pairwise(parts) if "<locals>" not in (part, inner)]
    return classes[-1] if classes else ""


# -- finding the text


def _expressions(code: CodeType, lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """The text and place of a lambda's expression: all that its instructions were compiled from.

    Python 3.12 does not record where a constant stands that is returned. There, the expressions of all lambdas that
    begin in the line follow.
    """
    begin, end = (sys.maxsize, 0), (0, 0)
    for line, end_line, column, end_column in code.co_positions():
        if line is not None and end_line is not None and column is not None and end_column is not None:
            if (line, column) != (end_line, end_column):  # not an instruction that Python put there for itself
                begin, end = min(begin, (line, column)), max(end, (end_line, end_column))
    if 0 < begin[0] <= end[0] <= len(lines):
        yield _text(lines, begin, end)
    if sys.version_info[:2] == (3, 12) and opmap["RETURN_CONST"] in code.co_code[::2]:
        for node in _lambdas("".join(lines), _parse_flags(code)):
            if node.lineno == code.co_firstlineno:
                end = node.body.end_lineno or 0, node.body.end_col_offset or 0
                yield _text(lines, (node.body.lineno, node.body.col_offset), end)


def _text(lines: Sequence[str], begin: tuple[int, int], end: tuple[int, int]) -> tuple[str, int, int]:
    """The text between two positions, and where it begins."""
    rows = [row.encode(errors="surrogatepass") for row in lines[begin[0] - 1 : end[0]]]
    rows[-1] = rows[-1][: end[1]]
    rows[0] = rows[0][begin[1] :]
    return b"".join(rows).decode(errors="replace"), *begin


@lru_cache(maxsize=8)
def _lambdas(text: str, flags: int) -> list[ast.Lambda]:
    """All lambdas in the text of a file; none if it is not plain Python, such as a cell with magics."""
    try:
        parsed = compile(text, COMPILED_AGAIN, "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [node for node in ast.walk(parsed) if isinstance(node, ast.Lambda)]


def _statement(code: CodeType, lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """The text and place of a `def` statement, without its decorators."""
    first = code.co_firstlineno
    last = max(_last_lines(code), default=0)
    if not 0 < first <= last <= len(lines):
        return
    indent = _indent(lines[first - 1])
    while last < len(lines) and (not lines[last].strip() or _indent(lines[last]) > indent):
        last += 1
    try:
        node = _parsed_statement("".join(lines[first - 1 : last]), first)
    except (SyntaxError, ValueError):
        return
    if node is not None and node.end_lineno is not None:
        yield "".join(lines[node.lineno - 1 : node.end_lineno]).rstrip("\n"), node.lineno, 0


def _last_lines(code: CodeType) -> Iterator[int]:
    """The last lines of the instructions of a function, and of those inside it; none if Python records no columns."""
    for _, line, column, _ in code.co_positions():
        if line is not None and column is not None:
            yield line
    for inner in _inner(code):
        yield from _last_lines(inner)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# -- proving it


def _proven(code: CodeType, text: str, line: int, column: int) -> Function | None:
    """The node of the text, if compiling it where it stands gives this code."""
    try:
        node = _parsed(code, text, line, column)
        if node is None or getattr(node, "type_params", None):
            return None
        if _same(_compiled(node, code, ()), code):
            return node
        imported = sorted(imported_names(code))
        return node if imported and _same(_compiled(node, code, imported), code) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def _parsed(code: CodeType, text: str, line: int, column: int) -> Function | None:
    """The node of a text that begins in this line and column; None if it is no function."""
    return _lambda(code, text, line, column) if code.co_name == "<lambda>" else _parsed_statement(text, line)


def _lambda(code: CodeType, text: str, line: int, column: int) -> ast.Lambda:
    parsed = compile(f"(\n{' ' * column}{text}\n)", COMPILED_AGAIN, "eval", _parse_flags(code), dont_inherit=True)
    ast.increment_lineno(parsed, line - 2)
    at: dict[str, Any] = {
        "lineno": code.co_firstlineno,
        "col_offset": 0,
        "end_lineno": code.co_firstlineno,
        "end_col_offset": 0,
    }
    names = [ast.arg(name, **at) for name in code.co_varnames]
    positional, only = code.co_argcount, code.co_kwonlyargcount
    rest = iter(names[positional + only :])
    arguments = ast.arguments(
        posonlyargs=names[: code.co_posonlyargcount],
        args=names[code.co_posonlyargcount : positional],
        vararg=next(rest) if code.co_flags & CO_VARARGS else None,
        kwonlyargs=names[positional : positional + only],
        kw_defaults=[None] * only,
        kwarg=next(rest) if code.co_flags & CO_VARKEYWORDS else None,
        defaults=[],
    )
    return ast.Lambda(arguments, parsed.body, **at)


def _parsed_statement(text: str, line: int) -> ast.FunctionDef | None:
    """The node of a `def` statement that begins in this line, with its decorators; None if the text is another."""
    inside = _indent(text) > 0
    parsed = ast.parse(f"if 1:\n{text}" if inside else text, COMPILED_AGAIN)
    ast.increment_lineno(parsed, line - 1 - inside)
    statements = parsed.body
    if inside and isinstance(statements[0], ast.If):
        statements = statements[0].body
    node = statements[0] if len(statements) == 1 else None
    return node if isinstance(node, ast.FunctionDef) else None


def _compiled(node: Function, live: CodeType, imported: Sequence[str]) -> CodeType:
    """The code of a node, compiled as if it stood where the live code does, in a module that imports these names."""
    first: dict[str, Any] = {
        "lineno": live.co_firstlineno,
        "col_offset": 0,
        "end_lineno": live.co_firstlineno,
        "end_col_offset": 0,
    }
    statement: ast.stmt
    if isinstance(node, ast.Lambda):
        statement = ast.Expr(node, **first)
    else:
        decorated = [ast.Constant(None, **first)] if node.lineno != live.co_firstlineno else []
        statement = _bare(node, decorated)
    if name := class_around(live):
        statement = ast.ClassDef(name=name, bases=[], keywords=[], body=[statement], decorator_list=[], **first)
    if live.co_flags & CO_NESTED:
        captured = [ast.arg(name, **first) for name in live.co_freevars]
        around = ast.arguments(posonlyargs=[], args=captured, kwonlyargs=[], kw_defaults=[], defaults=[])
        statement = ast.FunctionDef(name="_", args=around, body=[statement], decorator_list=[], **first)
    imports = [ast.Import([ast.alias(name, **first)], **first) for name in imported]
    tree = ast.Module([*imports, statement], [])
    flags = live.co_flags & _FUTURES
    code: CodeType = compile(tree, COMPILED_AGAIN, "exec", flags, dont_inherit=True)
    for _ in range(bool(live.co_flags & CO_NESTED) + bool(name) + 1):
        code = next(_inner(code))
    return code


def imported_names(code: CodeType) -> frozenset[str]:
    """The names which the module that code stands in imports, as far as that shows in the code.

    Python compiles `name.method()` in another way if the module has a statement that imports the name.
    """
    return frozenset(_imported(code))


def _imported(code: CodeType) -> Iterator[str]:
    instructions = [each for each in get_instructions(code) if each.opname not in ("CACHE", "EXTENDED_ARG")]
    for one, two, three in zip(instructions, instructions[1:], instructions[2:], strict=False):
        if sys.version_info >= (3, 13):
            if three.opname == "PUSH_NULL" and two.opname == "LOAD_ATTR" and one.opname.startswith("LOAD_"):
                yield one.argval[-1] if isinstance(one.argval, tuple) else str(one.argval)
        elif one.opname == "PUSH_NULL" or (two.opname == "LOAD_GLOBAL" and (two.arg or 0) & 1):
            if two.opname.startswith("LOAD_") and three.opname == "LOAD_ATTR":
                yield str(two.argval)
    for inner in _inner(code):
        yield from _imported(inner)


def _bare(node: ast.FunctionDef, decorators: Sequence[ast.expr]) -> ast.FunctionDef:
    """A `def` statement without what Python evaluates outside of the function's own code."""
    given = node.args

    def bare(arg: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(arg.arg), arg)

    arguments = ast.arguments(
        posonlyargs=list(map(bare, given.posonlyargs)),
        args=list(map(bare, given.args)),
        vararg=bare(given.vararg) if given.vararg else None,
        kwonlyargs=list(map(bare, given.kwonlyargs)),
        kw_defaults=[None] * len(given.kwonlyargs),
        kwarg=bare(given.kwarg) if given.kwarg else None,
        defaults=[],
    )
    statement = ast.FunctionDef(name=node.name, args=arguments, body=node.body, decorator_list=list(decorators))
    return ast.copy_location(statement, node)


def _same(made: CodeType, live: CodeType) -> bool:
    """Whether both are equal, with the positions of all their instructions."""
    return made == live and made.co_linetable == live.co_linetable and all(map(_same, _inner(made), _inner(live)))


def _inner(code: CodeType) -> Iterator[CodeType]:
    """The code of the functions, comprehensions and classes inside."""
    return (const for const in code.co_consts if isinstance(const, CodeType))


def _parse_flags(code: CodeType) -> int:
    flags: int = ast.PyCF_ONLY_AST | code.co_flags & _FUTURES
    return flags


# -- what it takes and reads


def _parameters(code: CodeType) -> tuple[str, ...]:
    plain = code.co_argcount + code.co_kwonlyargcount
    stars = ["*"] * bool(code.co_flags & CO_VARARGS) + ["**"] * bool(code.co_flags & CO_VARKEYWORDS)
    rest = (star + name for star, name in zip(stars, code.co_varnames[plain:], strict=False))
    return (*code.co_varnames[:plain], *rest)


def _names(code: CodeType) -> tuple[str, ...]:
    return (*code.co_freevars, *sorted(set(_globals(code))))


def _globals(code: CodeType) -> Iterator[str]:
    """The globals and builtins that code reads, in comprehensions, too."""
    high = 0
    for operation, argument in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        if operation == _LOAD_GLOBAL:
            yield code.co_names[(high | argument) >> 1]
        high = (high | argument) << 8 if operation == EXTENDED_ARG else 0
    for inner in _inner(code):
        yield from _globals(inner)
