"""The syntax tree of generated code, in which the author's nodes stand at their own positions.

Generated lines have the numbers that they have in the text. Those of each inlined body follow, in a range of their own:
the line in the author's file, moved by an offset. So a line number identifies the step whether its function is called
or inlined, and the author's line with it.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from tidegate.runners.engine.loops.author_function import converting, taking
from tidegate.runners.engine.loops.code_writer import PlacedBody, Source
from tidegate.runners.engine.loops.inlining import CALLED
from tidegate.runners.engine.loops.statements import leaving, yielding
from tidegate.sdk.user_code.body import COMPILED_AGAIN, silence_warnings


@dataclass(frozen=True, slots=True)
class PlacedLines:
    """The lines of an inlined body in the generated code: those of the author's file plus `offset`."""

    placed: PlacedBody
    lines: range
    offset: int


def place_lines(source: Source) -> tuple[PlacedLines, ...]:
    """The lines of each inlined body of a source, after those of its text and without gaps."""
    free = source.text.count("\n") + 1
    found = []
    for placed in source.placed:
        lines = placed.lines
        offset = free - lines.start
        found.append(PlacedLines(placed, range(free, free + len(lines)), offset))
        free += len(lines)
    return tuple(found)


def compile_loop(source: Source, lines: tuple[PlacedLines, ...], name: str, env: dict[str, Any]) -> FunctionType:
    """The function `run` of a source. `env` has the names that it uses, and gets those of the inlined bodies."""
    cells: dict[str, CellType] = {}
    for each in lines:
        step, body = each.placed.prefix, each.placed.body
        env[f"globals{step}"] = body.values
        env |= {f"d{step}_{name}": value for name, value in body.defaults.items()}
        env |= {each.placed.names[name]: function for name, function in body.inner.items()}
        if body.items:
            env[f"taking{step}"] = taking(body)
        if body.stamped is not None:
            env[f"micros{step}"] = converting(body)
        cells |= {f"cell{step}_{name}": cell for name, cell in body.cells.items()}
    exec(_named(_code(source.text, lines, tuple(cells)), name), env)
    if not cells:
        run: FunctionType = env["run"]
        return run
    unbound: FunctionType = env[_MAKE](*cells)
    bound = tuple(cells[name] for name in unbound.__code__.co_freevars)
    return FunctionType(unbound.__code__, env, "run", unbound.__defaults__, bound)


def printed(source: Source) -> str:
    """The text of generated code with the inlined bodies in it, for tests and people."""
    tree = ast.parse(source.text)
    return ast.unparse(_Placing(_copies((each, 0) for each in source.placed)).visit(tree)) + "\n"


def _code(text: str, lines: tuple[PlacedLines, ...], cells: tuple[str, ...]) -> CodeType:
    """The compiled module, in which `cells` are the captured variables.

    Loops of the same shape with the same bodies have the same code, in all steps, tasks and runs of a process.
    """
    key = text, cells, *(_identity(each) for each in lines)
    code = _codes.get(key)
    if code is None:
        if len(_codes) >= _CACHED_CODES:
            _codes.clear()
        tree = ast.parse(text)
        _Placing(_copies((each.placed, each.offset) for each in lines)).visit(tree)
        if cells:
            tree.body = [_around(tree.body, cells)]
        silence_warnings()
        code = _codes[key] = compile(tree, COMPILED_AGAIN, "exec", dont_inherit=True)
    return code


def _identity(lines: PlacedLines) -> Hashable:
    """What determines the code of an inlined body: its nodes with their positions, and the names in them."""
    placed = lines.placed
    nodes = placed.part if isinstance(placed.part, tuple) else (placed.part,)
    dumped = [ast.dump(node, include_attributes=True) for node in nodes]
    return placed.name, placed.result, lines.offset, *dumped, *placed.names.items()


_codes: Final[dict[Hashable, CodeType]] = {}
_CACHED_CODES: Final = 1024


def _named(code: CodeType, name: str) -> CodeType:
    """The code with another file name, by which a traceback shows the loop that it passed."""
    consts = tuple(_named(each, name) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=name, co_consts=consts)


_MAKE: Final = "make_run"


def _around(statements: list[ast.stmt], names: Sequence[str]) -> ast.stmt:
    """A function that returns `run`, in which the captured variables of the inlined bodies are variables."""
    (made,) = ast.parse(f"def {_MAKE}({', '.join(names)}):\n    return run").body
    assert isinstance(made, ast.FunctionDef)
    made.body[:0] = statements
    return made


class _Placing(ast.NodeTransformer):
    def __init__(self, bodies: Mapping[str, ast.expr | list[ast.stmt]]) -> None:
        self._bodies = bodies

    def visit_Name(self, node: ast.Name) -> ast.expr:
        body = self._bodies.get(node.id, node)
        assert isinstance(body, ast.expr)
        return body

    def visit_Expr(self, node: ast.Expr) -> Any:
        statements = self._statements(node.value)
        return self.generic_visit(node) if statements is None else statements

    def visit_If(self, node: ast.If) -> Any:
        statements = self._statements(node.test)
        if statements is None:
            return self.generic_visit(node)
        following = [each for line in node.body for each in self._visited(line)]
        return yielding(statements, following)

    def _statements(self, node: ast.expr) -> list[ast.stmt] | None:
        """The statements that a name stands for; None if it is no such name."""
        body = self._bodies.get(node.id) if isinstance(node, ast.Name) else None
        return body if isinstance(body, list) else None

    def _visited(self, node: ast.stmt) -> list[ast.stmt]:
        made = self.visit(node)
        return made if isinstance(made, list) else [made]


def _copies(placed: Iterable[tuple[PlacedBody, int]]) -> dict[str, ast.expr | list[ast.stmt]]:
    """By their names, parts of inlined bodies with the names of the generated code, and their lines moved by offsets.

    A function that another one calls comes before it, and stands in it.
    """
    made: dict[str, ast.expr | list[ast.stmt]] = {}
    for each, offset in placed:
        part = _copied(each, offset)
        called = made.get(each.names.get(CALLED, ""))
        made[each.name] = part if called is None else _with_called(part, each.names[CALLED], called)
    return made


def _with_called(part: Any, name: str, called: Any) -> Any:
    """A part of a body in which the expression of the called function stands in place of its name."""
    placing = _PlacingCalled(name, called)
    return [placing.visit(each) for each in part] if isinstance(part, list) else placing.visit(part)


@dataclass(slots=True)
class _PlacingCalled(ast.NodeTransformer):
    name: str
    called: ast.expr

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.called if node.id == self.name else node


def _copied(placed: PlacedBody, offset: int) -> ast.expr | list[ast.stmt]:
    """A part of an inlined body, with the names of the generated code, and its lines moved by `offset`."""
    if isinstance(placed.part, tuple):
        step = placed.prefix
        return leaving(_copy(list(placed.part), placed.names, offset), placed.result, f"e{step}", f"tag{step}")
    made: ast.expr = _copy(placed.part, placed.names, offset)
    return made


def _copy(node: Any, names: Mapping[str, str], offset: int) -> Any:
    match node:
        case list():
            return [_copy(part, names, offset) for part in node]
        case ast.Name(id=name) if name in names:
            made: ast.AST = ast.Name(names[name], node.ctx)
        case ast.ListComp() | ast.SetComp() | ast.DictComp():
            made = _copy_comprehension(node, names, offset)
        case ast.AnnAssign():  # Python does not evaluate annotations of variables in functions
            made = ast.Assign([_copy(node.target, names, offset)], _copy(node.value, names, offset))
        case ast.AST():
            made = type(node)(**{field: _copy(value, names, offset) for field, value in ast.iter_fields(node)})
        case _:
            return node
    for attribute in node._attributes:
        value = getattr(node, attribute)
        setattr(made, attribute, value + offset if attribute.endswith("lineno") else value)
    return made


def _copy_comprehension(node: ast.ListComp | ast.SetComp | ast.DictComp, names: Mapping[str, str], offset: int) -> Any:
    """A copy in which the comprehension's own variables keep their names. The first iterable stands outside of it."""
    own = {part.id for each in node.generators for part in ast.walk(each.target) if isinstance(part, ast.Name)}
    inner = {name: new for name, new in names.items() if name not in own}
    generators = [
        ast.comprehension(
            _copy(each.target, inner, offset),
            _copy(each.iter, inner if number else names, offset),
            _copy(each.ifs, inner, offset),
            each.is_async,
        )
        for number, each in enumerate(node.generators)
    ]
    if isinstance(node, ast.DictComp):
        return ast.DictComp(_copy(node.key, inner, offset), _copy(node.value, inner, offset), generators)
    return type(node)(_copy(node.elt, inner, offset), generators)
