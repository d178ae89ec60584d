"""Static analysis of a script before it is executed: where it makes pipelines, and what its `__main__` guard hides."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.sdk.user_code.body import COMPILED_AGAIN, silence_warnings

FUNCTION = "pipeline"
"""The name of the function or Pipeline that a command uses if its target names none."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a script that makes a pipeline."""

    line: int
    own_name: str | None = None
    """The pipeline's `name=`; "" if it is not a literal."""
    variable: str | None = None
    repeated: bool = False
    """Whether the place is inside a loop."""

    @property
    def name(self) -> str | None:
        """The name by which a target can refer to the pipeline."""
        return self.own_name or self.variable

    def matches(self, name: str) -> bool:
        """Whether the name of a target may refer to a pipeline made here."""
        return self.own_name == "" or name in (self.own_name, self.variable)

    def __str__(self) -> str:
        return f"{self.name or 'one without a name'} (line {self.line}{', in a loop' if self.repeated else ''})"


class Script:
    """The parsed text of a script. A script that isn't valid Python counts as empty: executing it reports the error."""

    def __init__(self, text: bytes) -> None:
        try:
            silence_warnings()
            self._body = ast.parse(text, COMPILED_AGAIN).body
        except (SyntaxError, ValueError):
            self._body = []

    @property
    def has_guard(self) -> bool:
        """Whether the script has an `if __name__ == "__main__":`."""
        return any(_is_guard(statement) for statement in self._body)

    def binds(self, name: str) -> bool:
        """Whether importing the script may define the name."""
        return not names_bound(self._body).isdisjoint((name, "*"))

    def sites(self, *, guarded: bool) -> list[Site]:
        """The places that may make pipelines when the script is executed; those under its guard only if `guarded`."""
        body = [part for part in self._body if guarded or not _is_guard(part)]
        functions = {part.name: part for part in self._body if isinstance(part, ast.FunctionDef)}
        found = [Site(functions[FUNCTION].lineno, variable=FUNCTION)] if FUNCTION in functions else []
        called = {
            node.func.id
            for statement in body
            for node in _executed(statement)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        inside = [part for name in called - {FUNCTION} if name in functions for part in functions[name].body]
        found += [site for statement in [*body, *inside] for site in _sites(statement, repeated=False)]
        return sorted(found, key=lambda site: site.line)


def names_bound(body: list[ast.stmt]) -> set[str]:
    """The names that the statements outside a guard define; "*" stands for the names of a star import."""
    found: set[str] = set()
    for statement in body:
        if _is_guard(statement):
            continue
        for node in _executed(statement):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.Name(id=name, ctx=ast.Store()):
                    found.add(name)
                case ast.alias(name=name, asname=other):
                    found.add(other or name.partition(".")[0])
    return found


def _executed(statement: ast.AST) -> Iterator[ast.AST]:
    """The syntax nodes of a statement, except for the bodies of functions and classes that it defines."""
    yield statement
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        return
    for part in ast.iter_child_nodes(statement):
        yield from _executed(part)


def _sites(node: ast.AST, *, repeated: bool) -> Iterator[Site]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
            return
        case ast.withitem(context_expr=value, optional_vars=variable) if call := _pipeline_call(value):
            yield Site(call.lineno, _own_name(call), _variable(variable), repeated)
        case ast.Assign(targets=[variable], value=value) if call := _pipeline_call(value):
            yield Site(call.lineno, _own_name(call), _variable(variable), repeated)
        case ast.AnnAssign(target=variable, value=ast.expr() as value) if call := _pipeline_call(value):
            yield Site(call.lineno, _own_name(call), _variable(variable), repeated)
    inner = repeated or isinstance(node, (ast.For, ast.While, ast.AsyncFor))
    for part in ast.iter_child_nodes(node):
        yield from _sites(part, repeated=inner)


def _pipeline_call(value: ast.expr) -> ast.Call | None:
    """The expression, if it is a call of `Pipeline`."""
    match value:
        case ast.Call(func=ast.Name(id="Pipeline") | ast.Attribute(attr="Pipeline")) as call:
            return call
    return None


def _own_name(call: ast.Call) -> str | None:
    for keyword in call.keywords:
        match keyword:
            case ast.keyword(arg="name", value=ast.Constant(value=str(name))):
                return name
            case ast.keyword(arg="name"):
                return ""
    return None


def _variable(target: ast.expr | None) -> str | None:
    return target.id if isinstance(target, ast.Name) else None


def _is_guard(statement: ast.stmt) -> bool:
    match statement:
        case ast.If(
            test=ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")])
        ):
            return True
    return False
