"""Compiles loops: their form becomes a syntax tree, in which the author's nodes stand at their own positions.

Generated lines have the numbers that they have in the text of the form. Those of each inlined body follow, in a range
of their own: the line in the author's file, moved by an offset. So a line number identifies the step whether its
function is called or inlined, and the author's line with it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from tidegate.runners.engine.loops.author_function import converting, taking
from tidegate.runners.engine.loops.bodies.statements import leaving, yielding
from tidegate.runners.engine.loops.form import GLOBALS, At, Form, PlacedBody, written
from tidegate.runners.engine.loops.inlined_body import Module
from tidegate.sdk.user_code.body import COMPILED_AGAIN, silence_warnings


@dataclass(frozen=True, slots=True, eq=False)
class PreparedLoop:
    """A form with its text, the positions of its lines, and its code: functions of any number of steps can be made."""

    form: Form
    text: str
    lines: dict[int, At]
    code: CodeType


def prepared(form: Form) -> PreparedLoop:
    """A form that is ready to be compiled."""
    text, lines = written(form)
    cells = [f"cell{each.prefix}_{name}" for each in form.placed for name in each.body.cells]
    return PreparedLoop(form, text, lines, _code(form, text, tuple(dict.fromkeys(cells))))


def compile_loop(loop: PreparedLoop, name: str, env: dict[str, Any]) -> FunctionType:
    """The function `run` of a form. `env` has the names that it uses, and gets those of the inlined bodies.

    If inlined bodies read globals of the author's, the function has these globals: they may change at any time.
    """
    form, cells = loop.form, dict[str, CellType]()
    for each in form.placed:
        step, body = each.prefix, each.body
        env[f"globals{step}"] = body.values
        if body.by_module:
            env[f"module{step}"] = Module(body.fn.__globals__)
        env |= {f"d{step}_{name}": value for name, value in body.defaults.items()}
        env |= {each.names[name]: function for name, function in body.inner.items()}
        if body.items:
            env[f"taking{step}"] = taking(body)
        if body.stamped is not None:
            env[f"micros{step}"] = converting(body)
        cells |= {f"cell{step}_{name}": cell for name, cell in body.cells.items()}
    exec(_named(loop.code, name), env)
    make: FunctionType | None = env.get(_MAKE)
    if make is None:
        run: FunctionType = env["run"]
        return run
    code = make.__code__
    unbound: FunctionType = make(
        *(env.get(each, vars(builtins).get(each)) for each in code.co_varnames[: code.co_argcount])
    )
    made = zip(unbound.__code__.co_freevars, unbound.__closure__ or (), strict=True)
    closure = tuple(cells.get(variable, cell) for variable, cell in made)
    shared = next((each.body.fn.__globals__ for each in form.placed if each.body.at_use), env)
    return FunctionType(unbound.__code__, shared, "run", unbound.__defaults__, closure)


def printed(form: Form) -> str:
    """The text of a loop with the inlined bodies in it, for tests and people."""
    return ast.unparse(_tree(form, written(form)[0])) + "\n"


def _tree(form: Form, text: str) -> ast.Module:
    tree: ast.Module = _Placing({each.name: _copied(each) for each in form.placed}).visit(ast.parse(text))
    return tree


def _code(form: Form, text: str, cells: tuple[str, ...]) -> CodeType:
    """The compiled module, in which `cells` are the captured variables.

    Loops of the same shape with the same bodies have the same code, in all steps, tasks and runs of a process.
    """
    key = text, cells, *map(_identity, form.placed)
    code = _codes.get(key)
    if code is None:
        if len(_codes) >= _CACHED_CODES:
            _codes.clear()
        tree = _tree(form, text)
        outside = (*cells, *_outside(tree)) if any(each.body.at_use for each in form.placed) else cells
        if outside:
            tree.body = [_around(tree.body, tuple(dict.fromkeys(outside)))]
        silence_warnings()
        code = _codes[key] = compile(tree, COMPILED_AGAIN, "exec", dont_inherit=True)
    return code


def _identity(placed: PlacedBody) -> Hashable:
    """What determines the code of an inlined body: its nodes with their positions, and the names in them."""
    dumped = [ast.dump(node, include_attributes=True) for node in placed.nodes]
    return placed.name, placed.result, placed.offset, *dumped, *placed.names.items()


_codes: Final[dict[Hashable, CodeType]] = {}
_CACHED_CODES: Final = 1024


def _outside(tree: ast.Module) -> list[str]:
    """The names in a loop that are not globals of the author's, its own variables among them."""
    return sorted(
        {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and not each.id.startswith(GLOBALS)}
    )


def _named(code: CodeType, name: str) -> CodeType:
    """The code with another file name, by which a traceback shows the loop that it passed, and with the author's names
    of globals."""
    consts = tuple(_named(each, name) if isinstance(each, CodeType) else each for each in code.co_consts)
    names = tuple(each.removeprefix(GLOBALS) for each in code.co_names)
    return code.replace(co_filename=name, co_consts=consts, co_names=names)


_MAKE: Final = "make_run"


def _around(statements: list[ast.stmt], names: Sequence[str]) -> ast.stmt:
    """A function that returns `run`, in which some names are variables: the captured ones of the inlined bodies, and
    all that the loop itself uses if its globals are the author's."""
    (made,) = ast.parse(f"def {_MAKE}({', '.join(names)}):\n    return run").body
    assert isinstance(made, ast.FunctionDef)
    made.body[:0] = statements
    return made


@dataclass(slots=True)
class _Placing(ast.NodeTransformer):
    """Replaces the names of inlined bodies. A function that another one calls stands in its body."""

    bodies: Mapping[str, ast.expr | list[ast.stmt]]

    def visit_Name(self, node: ast.Name) -> Any:
        body = self.bodies.get(node.id)
        return self.visit(body) if isinstance(body, ast.expr) else node

    def visit_Expr(self, node: ast.Expr) -> Any:
        placed = self._statements(node.value)
        return self.generic_visit(node) if placed is None else placed

    def visit_If(self, node: ast.If) -> Any:
        placed = self._statements(node.test)
        if placed is None:
            return self.generic_visit(node)
        return yielding(placed, self._visited(node.body), self._visited(node.orelse))

    def _statements(self, node: ast.expr) -> list[ast.stmt] | None:
        """The statements that a name stands for; None if it is no such name."""
        body = self.bodies.get(node.id) if isinstance(node, ast.Name) else None
        return self._visited(body) if isinstance(body, list) else None

    def _visited(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        made: ast.Module = self.visit(ast.Module(statements, []))
        return made.body


def _copied(placed: PlacedBody) -> ast.expr | list[ast.stmt]:
    """A part of an inlined body with the names and the lines of the generated code."""
    nodes = _Copying(placed.names, placed.offset, placed.body.imported).copy(list(placed.nodes))
    if isinstance(placed.nodes[0], ast.stmt):
        return leaving(nodes, placed.result, f"e{placed.prefix}", f"tag{placed.prefix}")
    expression: ast.expr = nodes[0]
    return expression


@dataclass(frozen=True, slots=True)
class _Copying:
    """Copies nodes of the author's, with the `names` of the generated code, and lines moved by `offset`. `imported` are
    names which the author's module imports."""

    names: Mapping[str, str]
    offset: int
    imported: Set[str]

    def copy(self, node: Any) -> Any:
        """A copy of a node, or of each one in a list; of another value, the value itself."""
        match node:
            case list():
                return [self.copy(part) for part in node]
            case ast.Name(id=name) if name in self.names:
                made: ast.AST = self._variable(self.names[name], node)
            case ast.ListComp() | ast.SetComp() | ast.DictComp():
                made = self._comprehension(node)
            case ast.AnnAssign():  # Python does not evaluate annotations of variables in functions
                made = ast.Assign([self.copy(node.target)], self.copy(node.value))
            case ast.AST():
                made = self._fields(node)
                if isinstance(made, ast.Call):
                    made.func = self._function(node.func, made.func)  # type: ignore[attr-defined]
            case _:
                return node
        return self._at(made, node)

    def _fields(self, node: ast.AST) -> ast.AST:
        return type(node)(**{field: self.copy(value) for field, value in ast.iter_fields(node)})

    def _at(self, made: Any, node: Any) -> Any:
        """A new node at the position of the author's."""
        for attribute in node._attributes:
            value = getattr(node, attribute)
            setattr(made, attribute, value + self.offset if attribute.endswith("lineno") else value)
        return made

    def _variable(self, name: str, node: ast.Name) -> ast.expr:
        """What the loop has in place of a name of the author's: a variable, its own global, or one of a module."""
        module, dot, attribute = name.partition(".")
        if not dot or name.startswith(GLOBALS):
            return ast.Name(name, node.ctx)
        return ast.Attribute(self._at(ast.Name(module, ast.Load()), node), attribute, node.ctx)

    def _function(self, node: ast.expr, made: ast.expr) -> ast.expr:
        """The function that a call is of. If it is an attribute, Python compiles the call as one of a method, which can
        be slower, and at another line; but not if the attribute is that of a name which the module imports. Here it
        compiles neither so, nor a global that is an attribute: it leaves out a condition that always holds."""
        match node:
            case ast.Name() if isinstance(made, ast.Attribute):
                pass
            case ast.Attribute(value=ast.Name(id=name)) if name in self.imported:
                pass
            case _:
                return made
        always, never = (self._at(ast.Constant(value), node) for value in (True, None))
        choice: ast.expr = self._at(ast.IfExp(always, made, never), node)
        return choice

    def _comprehension(self, node: Any) -> Any:
        """A copy in which the comprehension keeps its own variables. The first iterable stands outside of it."""
        own = {part.id for each in node.generators for part in ast.walk(each.target) if isinstance(part, ast.Name)}
        inner = replace(self, names={name: new for name, new in self.names.items() if name not in own})
        made: Any = inner._fields(node)
        made.generators[0].iter = self.copy(node.generators[0].iter)
        return made
