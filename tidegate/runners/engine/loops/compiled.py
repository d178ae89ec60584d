"""Compiles generated loops, and finds the line of a loop, and with it the step, that an error was raised in."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from operator import length_hint
from types import TracebackType
from typing import Any, Final

from tidegate.runners.engine.loops.author_traceback import NamedForm, author_traceback, generator_error
from tidegate.runners.engine.loops.form import At, Form
from tidegate.runners.engine.loops.loop_tree import PreparedLoop, compile_loop
from tidegate.sdk.metrics import GENERATED, STEP_OF_LINE

_serial: Final = count()


@dataclass(frozen=True, slots=True)
class LoopPosition:
    """Where in a loop an error was raised or passed: the link that the line runs, and the loop's locals by name."""

    link: int
    local: str
    """The local that holds the link's input, or those that hold the items of a pair: `k, (n, x)`; or the expression of
    an element that the loop has unpacked, by its index in a list."""
    frame: dict[str, Any]
    raised_here: bool
    """True if the engine's part of the line raised, and not a function of the author's."""

    @property
    def element(self) -> Any:
        return self._value_of(ast.parse(self.local or f"v{self.link}", mode="eval").body)

    def _value_of(self, names: ast.expr) -> Any:
        match names:
            case ast.Tuple(elts=parts):  # a pair that was never made
                return tuple(map(self._value_of, parts))
            case ast.Subscript():  # one that the loop has unpacked
                return self.frame["values"][current_index(self.frame["values"], self.frame["rest"])]
            case _:
                return self.frame.get(ast.unparse(names))


def current_index(values: list[Any], rest: Iterator[Any]) -> int:
    """The index of the element that a loop over `rest`, the iterator of a list, is at."""
    return len(values) - length_hint(rest) - 1


class CompiledLoops:
    """The loops of one chain.

    `counted` are the links whose outputs the loops count themselves; they are the same in every loop.
    """

    __slots__ = ("_forms", "_lines", "counted")

    def __init__(self) -> None:
        self._forms: dict[str, NamedForm] = {}
        self._lines: dict[str, dict[int, At]] = {}
        self.counted: tuple[int, ...] = ()

    def compile(self, loop: PreparedLoop, labels: Sequence[str], env: dict[str, Any]) -> Callable[..., Iterator[Any]]:
        """The function `run` of a loop. The steps' metrics are counted under `labels`, which are by link."""
        name = f"{GENERATED}{next(_serial)}>"
        self._forms[name], self._lines[name], self.counted = (loop.form, env), loop.lines, loop.form.counted
        STEP_OF_LINE[name] = {line: labels[k] for line, (k, _) in loop.lines.items()}
        return compile_loop(loop, name, env)

    def position(self, error: BaseException) -> LoopPosition | None:
        """The position in the innermost of these loops that an error passed; None if it passed none."""
        trace, found = error.__traceback__, None
        while trace is not None:
            code = trace.tb_frame.f_code
            match self._forms.get(code.co_filename):
                case form, _ if form.inlined(code.co_firstlineno) is None:
                    found = form, trace
            trace = trace.tb_next
        return None if found is None else self._position(*found)

    def _position(self, form: Form, trace: TracebackType) -> LoopPosition:
        lines, line = self._lines[trace.tb_frame.f_code.co_filename], trace.tb_lineno
        link, local = lines.get(line, (-1, ""))
        if link < 0:
            # A check belongs to the call it checks, which is the nearest line above that runs a link.
            above = [at for at in lines if at <= line]
            link = lines[max(above)][0] if above else 0
        return LoopPosition(
            link, local, dict(trace.tb_frame.f_locals), trace.tb_next is None and not form.inlined(line)
        )

    def author_traceback(self, error: BaseException) -> TracebackType | None:
        """An error's traceback, in which inlined bodies have the frames that calls would have."""
        return author_traceback(error.__traceback__, self._forms)

    def generator_error(self, stop: StopIteration) -> RuntimeError | None:
        """The error that a StopIteration becomes when it leaves a generator, if it has left an inlined generator."""
        return generator_error(stop, self._forms)

    def discard(self) -> None:
        """Forget the loops' lines; they will not run again."""
        for name in self._forms:
            STEP_OF_LINE.pop(name, None)
