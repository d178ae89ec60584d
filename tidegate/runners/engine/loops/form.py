"""The intermediate form of generated loops: what they do, as data, of which `loop_tree.py` makes Python.

Targets and expressions are Python's. A name in an expression may stand for an inlined one: see `Bodies`.

>>> text, lines = written(Form("values", (Loop("v0", "values", (Emit("f0(v0)", at=(0, "v0")),)),)))
>>> print(text, end="")
def run(values):
    for v0 in values:
        yield f0(v0)
>>> lines
{3: (0, 'v0')}
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidegate.runners.engine.loops.bodies.cell_operations import operation_names
from tidegate.runners.engine.loops.bodies.inner_functions import ITER
from tidegate.runners.engine.loops.inlined_body import CALLED, InlinedBody

At: TypeAlias = tuple[int, str]
"""The number of the step that a statement runs, and the local with the step's input."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacedBody:
    """An expression of an inlined body, or its first statements, in a loop whose form has a `name` instead.

    `names` has, by each name that the body reads, the variable of the loop with the value. Statements assign what they
    return to `result`, unless that is "". `prefix` distinguishes the variables of the body from those of others in the
    step. `lines` are its lines in the generated code: those of the author's file plus `offset`.
    """

    at: At
    body: InlinedBody
    names: dict[str, str]
    nodes: tuple[ast.expr] | tuple[ast.stmt, ...]
    name: str
    result: str
    prefix: str
    lines: range
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Assign:
    """Assign a value to a target; with `adds`, add it to what the target has."""

    target: str
    value: str
    at: At | None = None
    adds: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Do:
    """Call something whose result does not matter, leave what is around this, or do what a line of the SDK says."""

    what: str
    at: At | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Emit:
    """Yield a value; with `several`, each item of it."""

    value: str
    at: At | None = None
    several: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Test:
    """Do one thing or the other."""

    condition: str
    then: Statements
    otherwise: Statements = ()
    at: At | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """Do something for each item."""

    target: str
    items: str
    body: Statements
    at: At | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Do something once, which a `break` leaves."""

    body: Statements


@dataclass(frozen=True, slots=True, eq=False)
class Try:
    """Do something, and handle exceptions of a class."""

    body: Statements
    exceptions: str
    handler: Statements


@dataclass(frozen=True, slots=True, eq=False)
class Inlined:
    """Do what the statements of an inlined body do, and what is `yielded` where they yield; and, in place of a loop
    that does nothing but yield, what is `repeated` (see `statements.yielding`)."""

    placed: PlacedBody
    yielded: Statements = ()
    repeated: Statements = ()


@dataclass(frozen=True, slots=True, eq=False)
class Collect:
    """Assign a list comprehension of these parts, each of which may run a step. `at`: the step whose results are the
    comprehension's condition: Python 3.11 tests these at the line where the comprehension begins."""

    target: str
    parts: tuple[tuple[str, At | None], ...]
    at: At | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Do something to run a step, so that each statement has the same position."""

    at: At
    body: Statements


Statement: TypeAlias = Assign | Do | Emit | Test | Loop | Block | Try | Inlined | Collect | Run
Statements: TypeAlias = tuple[Statement, ...]
Building: TypeAlias = Iterator["Statement | Building"]
"""Statements in their order. An iterator among them stands for its own, so that steps that follow each other in a long
chain are not nested in each other."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A generated function `run`. `counted` are the numbers of the steps whose outputs it counts itself."""

    parameters: str
    body: Statements
    placed: tuple[PlacedBody, ...] = ()
    counted: tuple[int, ...] = ()

    def inlined(self, line: int) -> PlacedBody | None:
        """The inlined body of a line, if it is one of an inlined body. A comprehension in one begins in such a line."""
        return next((each for each in self.placed if line in each.lines), None)


def built(building: Building) -> Statements:
    """All statements of an iterator, and of those in it."""
    done: list[Statement] = []
    around = [building]
    while around:
        match next(around[-1], None):
            case None:
                around.pop()
            case Iterator() as inside:
                around.append(inside)
            case statement:
                done.append(statement)
    return tuple(done)


def written(form: Form) -> tuple[str, dict[int, At]]:
    """Its text, in which names stand for inlined bodies, and the position of each line that runs a step."""
    written = [(f"def run({form.parameters}):\n", None), *_lines(form.body, None, _INDENT)]
    lines = {number: at for number, (_, at) in enumerate(written, 1) if at is not None}
    for placed in form.placed:
        lines |= dict.fromkeys(placed.lines, placed.at)
    return "".join(line for line, _ in written), lines


def _lines(statements: Statements, inherited: At | None, indent: str) -> Iterator[tuple[str, At | None]]:
    """The lines of statements. Those without a position have the one that they inherit, if any."""
    for statement in statements:
        at = getattr(statement, "at", None) or inherited
        match statement:
            case Assign(target, value, adds=adds):
                yield f"{indent}{target} {'+=' if adds else '='} {value}\n", at
            case Do(what):
                yield f"{indent}{what}\n", at
            case Emit(value, several=several):
                yield f"{indent}yield {'from ' if several else ''}{value}\n", at
            case Test(condition, then, otherwise):
                yield f"{indent}if {condition}:\n", at
                yield from _lines(then, inherited, indent + _INDENT)
                if otherwise:
                    yield f"{indent}else:\n", None
                    yield from _lines(otherwise, inherited, indent + _INDENT)
            case Loop(target, items, body):
                yield f"{indent}for {target} in {items}:\n", at
                yield from _lines(body, inherited, indent + _INDENT)
            case Block(body):
                yield f"{indent}while True:\n", None
                yield from _lines((*body, Do("break")), inherited, indent + _INDENT)
            case Try(body, exceptions, handler):
                yield f"{indent}try:\n", None
                yield from _lines(body, inherited, indent + _INDENT)
                yield f"{indent}except {exceptions}:\n", None
                yield from _lines(handler, inherited, indent + _INDENT)
            case Inlined(placed, yielded, repeated):
                yield f"{indent}if {placed.name}:\n" if yielded else f"{indent}{placed.name}\n", placed.at
                yield from _lines(yielded, inherited, indent + _INDENT)
                if repeated:
                    yield f"{indent}else:\n", None
                    yield from _lines(repeated, inherited, indent + _INDENT)
            case Collect(target, parts):
                yield f"{indent}{target} = [\n", at
                yield from ((f"{indent}{_INDENT}{part}\n", at) for part, at in parts)
                yield f"{indent}]\n", None
            case Run(at, body):
                yield from _lines(body, at, indent)


_INDENT: Final = "    "


GLOBALS: Final = "globals."
"""Before the name of a global that a loop reads as the author's function does, since it has the same globals."""


def body_names(step: int | str, body: InlinedBody) -> dict[str, str]:
    """The variables of a loop for what a body reads besides its arguments."""
    names = {name: f"{GLOBALS}{name}" for name in body.globals} if body.at_use else {}
    names |= {name: f"module{step}.{name}" for name in body.by_module} | {name: f"g{step}_{name}" for name in body.once}
    names |= {name: f"cell{step}_{name}" for name in body.cells}
    names |= {name: f"h{step}_{name.strip('<>')}" for name in body.inner} | {ITER: "iter"}
    names |= {name: f"d{step}_{name}" for name in body.defaults}
    for cell in body.tables:
        names |= operation_names(cell)
    return names | {name: f"l{step}_{name}" for name in body.local}


@dataclass(slots=True)
class Bodies:
    """Gives names, and lines, to the parts of inlined bodies that stand in a loop."""

    placed: list[PlacedBody] = field(default_factory=list)

    def expression(self, at: At, body: InlinedBody, names: dict[str, str], part: str, of: ast.expr | None) -> str:
        """The name for the expression of a body, or for a part `of` it, in an expression of the loop."""
        assert of is not None
        return self._place(at, body, names, (of,), part).name

    def statements(
        self,
        at: At,
        body: InlinedBody,
        names: dict[str, str],
        result: str,
        *yielded: Statement,
        repeated: Statements = (),
    ) -> Inlined:
        """The statements of a body, which assign what they return to `result`. `yielded` and `repeated`: as for
        Inlined."""
        return Inlined(self._place(at, body, names, body.first, "_first", result), yielded, repeated)

    def _place(
        self,
        at: At,
        body: InlinedBody,
        names: dict[str, str],
        nodes: tuple[ast.expr] | tuple[ast.stmt, ...],
        part: str = "",
        result: str = "",
        prefix: str = "",
    ) -> PlacedBody:
        call = body.inner_call
        if call is not None and CALLED not in names:
            (parameter,) = call.body.arguments
            inner = body_names(f"{at[0]}i", call.body) | {parameter: names[call.argument]}
            assert call.body.expression is not None
            names[CALLED] = self._place(at, call.body, inner, (call.body.expression,), prefix=f"{at[0]}i").name
        prefix = prefix or str(at[0])
        start = self.placed[-1].lines.stop if self.placed else _LINES_OF_BODIES
        offset = start - nodes[0].lineno
        lines = range(start, offset + (nodes[-1].end_lineno or nodes[-1].lineno) + 1)
        self.placed.append(PlacedBody(at, body, names, nodes, f"body{prefix}{part}", result, prefix, lines, offset))
        return self.placed[-1]


_LINES_OF_BODIES: Final = 1_000_000
"""The first line of inlined bodies in generated code, after those of any text."""


def read_globals(step: int | str, body: InlinedBody) -> Statements:
    """The statements that read what a body, and a function that it calls, read once for each block."""
    inner = read_globals(f"{step}i", body.inner_call.body) if body.inner_call is not None else ()
    if not body.once:
        return inner
    return Assign(f"({''.join(f'g{step}_{name}, ' for name in body.once).rstrip()})", f"globals{step}()"), *inner
