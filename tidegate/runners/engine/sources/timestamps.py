"""Calls the author's function for the timestamps of a block, or runs a loop that contains its expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import count
from typing import Any, Final

from tidegate.runners.engine.loops.form import Bodies, Collect, Do, Form, body_names, read_globals
from tidegate.runners.engine.loops.inlined_body import InlinedBody
from tidegate.runners.engine.loops.inlining import CalledStep, Inlining
from tidegate.runners.engine.loops.loop_tree import compile_loop, prepared
from tidegate.sdk.user_code.user_fn import UserFn

_MIN_ELEMENTS: Final = 1024
"""The least number of elements that pays for a loop to be compiled."""

_serial: Final = count()


class TimestampFunction:
    """A function from elements to timestamps. `inline`: its expression may stand in a loop; it is called otherwise.

    An error may be raised by the loop: the function has to be called again for the traceback.
    """

    def __init__(self, fn: UserFn, *, inline: bool) -> None:
        self.call: Callable[[Any], Any] = fn.load()
        self._body = fn.body
        self._inline = inline
        self._elements = 0

    def of(self, elements: Sequence[Any]) -> list[Any]:
        """What the function returns for each element. Shorter than these if the function raises StopIteration."""
        self._elements += len(elements)
        if self._inline and self._elements >= _MIN_ELEMENTS and self._loop is not None and self._inlining.ready():
            found: list[Any] = self._loop(elements)
            return found
        return list(map(self.call, elements))

    @property
    def reason(self) -> str:
        """Why the function has to be called for each element; "" if its expression may stand in a loop."""
        if self._inlining.reasons:
            return self._inlining.reasons[0]
        return "" if _is_expression(self._inlining.bodies[0]) else "it is more than one expression"

    @cached_property
    def _inlining(self) -> Inlining:
        return Inlining([CalledStep(self.call, self._body)])

    @cached_property
    def _loop(self) -> Callable[..., Any] | None:
        """The loop with the expression of the function in it; None if it has to be called."""
        body = self._inlining.bodies.get(0)
        if body is None or not _is_expression(body):
            return None
        form = _form(body)
        return compile_loop(prepared(form), f"<timestamps {next(_serial)}>", {})


def _is_expression(body: InlinedBody) -> bool:
    return body.one_expression and body.expression is not None and not body.yields


def _form(body: InlinedBody) -> Form:
    """A function from elements to the values of an expression."""
    bodies, at = Bodies(), (0, "v0")
    names = body_names(0, body) | dict.fromkeys(body.arguments, "v0")
    value = bodies.expression(at, body, names, "", body.expression)
    collected = Collect("found", ((value, at), ("for v0 in elements", None)))
    return Form("elements", (*read_globals(0, body), collected, Do("return found")), tuple(bodies.placed))
