"""Writes generated code line by line, and records which step each line runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidegate.runners.engine.loops.cell_operations import operation_names
from tidegate.runners.engine.loops.inlining import CALLED, InlinedBody
from tidegate.runners.engine.loops.inner_functions import ITER


@dataclass(frozen=True, slots=True)
class PlacedBody:
    """An expression, or statements, of an inlined body in generated code, where the text has a name instead.

    `names` has, by each name that the body reads, the variable of the generated code with the value; `local` is the
    variable with the input of the step. Statements assign what they return to `result`, unless that is "". `prefix`
    distinguishes the variables of the body from those of others in the step.
    """

    step: int
    body: InlinedBody
    names: dict[str, str]
    local: str
    part: ast.expr | tuple[ast.stmt, ...]
    name: str
    result: str = ""
    prefix: str = ""

    @property
    def lines(self) -> range:
        """The lines of the author's file in which the part stands."""
        nodes = self.part if isinstance(self.part, tuple) else (self.part,)
        return range(nodes[0].lineno, (nodes[-1].end_lineno or nodes[-1].lineno) + 1)


def body_names(step: int | str, body: InlinedBody) -> dict[str, str]:
    """The variables of generated code for what a body reads besides its arguments."""
    names = {name: f"g{step}_{name}" for name in body.globals} | {name: f"cell{step}_{name}" for name in body.cells}
    names |= {name: f"h{step}_{name.strip('<>')}" for name in body.inner} | {ITER: "iter"}
    names |= {name: f"d{step}_{name}" for name in body.defaults}
    for cell in body.tables:
        names |= operation_names(cell)
    return names | {name: f"l{step}_{name}" for name in body.local}


@dataclass(frozen=True, slots=True)
class Source:
    """Generated code: its text, and for each line that runs a step, the step's number and the local with its input."""

    text: str
    lines: dict[int, tuple[int, str]]
    counted: tuple[int, ...] = ()
    """The numbers of the steps whose outputs the code counts itself."""
    placed: tuple[PlacedBody, ...] = ()


@dataclass(slots=True)
class CodeWriter:
    """Writes generated code.

    >>> w = CodeWriter()
    >>> w.put("def run(values):")
    >>> with w.indented():
    ...     w.put("for v0 in values:")
    ...     with w.indented():
    ...         w.put("yield f0(v0)", 0, "v0")
    >>> source = w.source()
    >>> print(source.text, end="")
    def run(values):
        for v0 in values:
            yield f0(v0)
    >>> source.lines
    {3: (0, 'v0')}
    """

    text: list[str] = field(default_factory=list)
    lines: dict[int, tuple[int, str]] = field(default_factory=dict)
    depth: int = 0
    placed: list[PlacedBody] = field(default_factory=list)

    def put(self, line: str, step: int | None = None, local: str = "") -> None:
        """Write a line at the current depth. `step` is the step that it runs, on the element in `local`."""
        self.text.append("    " * self.depth + line)
        if step is not None:
            self.lines[len(self.text)] = (step, local)

    def place(
        self,
        step: int,
        body: InlinedBody,
        names: dict[str, str],
        local: str,
        part: str = "",
        of: ast.expr | None = None,
    ) -> str:
        """The name for the expression of a body, or for a part `of` it, in a line."""
        name = f"body{step}{part}"
        expression = of or body.expression
        assert expression is not None
        self._place_called(step, body, names, local)
        self.placed.append(PlacedBody(step, body, names, local, expression, name, prefix=str(step)))
        return name

    def place_first(self, step: int, body: InlinedBody, names: dict[str, str], local: str, result: str) -> str:
        """The name for the statements of a body, which assign what they return to `result`.

        A line with this name alone stands for the statements. In `if` of this name, the block stands where they yield.
        """
        name = f"body{step}_first"
        self._place_called(step, body, names, local)
        self.placed.append(PlacedBody(step, body, names, local, body.first, name, result, str(step)))
        return name

    def _place_called(self, step: int, body: InlinedBody, names: dict[str, str], local: str) -> None:
        """Place the expression of the function that a body calls."""
        call = body.inner_call
        if call is None or CALLED in names:
            return
        (parameter,) = call.body.arguments
        prefix = f"{step}i"
        inner = body_names(prefix, call.body) | {parameter: names[call.argument]}
        names[CALLED] = f"body{prefix}"
        assert call.body.expression is not None
        part = call.body.expression
        self.placed.append(PlacedBody(step, call.body, inner, local, part, names[CALLED], prefix=prefix))

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Indent the lines that are written inside by one level, and reset the depth at the end."""
        depth = self.depth
        self.depth += 1
        try:
            yield
        finally:
            self.depth = depth

    def source(self, counted: tuple[int, ...] = ()) -> Source:
        """The code written so far."""
        return Source("\n".join(self.text) + "\n", self.lines, counted, tuple(self.placed))


def read_globals(w: CodeWriter, step: int | str, body: InlinedBody) -> None:
    """Write the lines that read the globals of a body, and of a function that it calls."""
    if body.globals:
        w.put(f"({''.join(f'g{step}_{name}, ' for name in body.globals).rstrip()}) = globals{step}()")
    if body.inner_call is not None:
        read_globals(w, f"{step}i", body.inner_call.body)
