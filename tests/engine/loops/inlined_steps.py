"""Runs fused steps with their functions called and inlined, for tests that both do the same."""

from __future__ import annotations

import itertools
import linecache
import re
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import tidegate as tg
from tests.support.operator_driver import context, read
from tidegate.runners.engine.factory import build
from tidegate.runners.engine.loops.inlining import INLINED, Inlining
from tidegate.runners.engine.operator import Operator
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.metrics import collecting

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
ELEMENTS = (0, 1, 2, 3, -4, "ab", None, (1, 2), [3], 2.5, True)


@dataclass(frozen=True)
class Outcome:
    """What a run shows: its output, its failure with the author's traceback, and metrics without those of inlining."""

    out: list[tuple[str, Any, int]]
    failure: tuple[str, ...]
    metrics: dict[Any, Any]


@dataclass(frozen=True)
class Ran:
    outcome: Outcome
    inlined: int


def operator(
    write: Callable[[Any], Any], inline: str, *, sealed: bool = True, checks: str | None = None
) -> tuple[Operator, Any]:
    """The fused steps of `write`. Their functions have been pickled, unless `sealed` is False."""
    pipeline = tg.Pipeline()
    write(pipeline | "elements" >> tg.Create([0]))
    made = plan(pipeline.sealed(values=True) if sealed else pipeline.portable(), Traits(parallel=False))
    world = context(checks=checks)
    world.inline = inline  # type: ignore[assignment]
    operator = build(made.steps[1], made, world)
    operator.open()
    return operator, world


def ran(
    write: Callable[[Any], Any],
    inline: str,
    *elements: Iterable[Any],
    times: bool = False,
    checks: str | None = None,
    sealed: bool = True,
) -> Ran:
    """Run blocks of elements, each of which ends at the first error."""
    made, world = operator(write, inline, checks=checks, sealed=sealed)
    out: list[tuple[str, Any, int]] = []
    failure: list[str] = []
    for part in elements or (ELEMENTS,):
        values = list(part)
        try:
            with collecting(world.metrics):
                block = Block(values, list(range(len(values))) if times else 0)
                for collection, value, t, _ in read(made.process(block, "elements")):
                    out.append((collection, ADDRESS.sub("", f"{type(value).__name__}: {value!r}"), t))
        except TidegateError as error:
            texts = [str(error), *traceback.format_exception(error.__cause__)]
            failure += [type(error).__name__, *(ADDRESS.sub("", text) for text in texts)]
    if not failure:
        with collecting(world.metrics):
            for collection, value, t, _ in read(made.finish()):
                out.append((collection, ADDRESS.sub("", f"{type(value).__name__}: {value!r}"), t))
    list(made.finish_bundle())
    counters = {key: n for key, n in world.metrics.counters.items() if key.name != INLINED}
    inlined = sum(n for key, n in world.metrics.counters.items() if key.name == INLINED)
    made.close()
    return Ran(Outcome(out, tuple(failure), counters), inlined)


def compare(write: Callable[[Any], Any], *elements: Iterable[Any], times: bool = False) -> Outcome:
    """Run with functions called and inlined, compare, and return the outcome. Some elements must have been inlined."""
    parts = [list(part) for part in elements or (ELEMENTS,)]
    called = ran(write, "off", *parts, times=times)
    inlined = ran(write, "on", *parts, times=times)
    assert inlined.outcome == called.outcome
    assert called.inlined == 0
    assert inlined.inlined > 0
    return called.outcome


def reason(fn: Any, *arguments: Any, step: Any = tg.Map) -> str:
    """Why a function is called; "" if it is inlined."""
    made, _ = operator(lambda p: p | step(fn, *arguments), "on")
    links: Any = made.links  # type: ignore[attr-defined]
    return Inlining(links).reasons.get(0, "")


def author(text: str, **names: Any) -> dict[str, Any]:
    """The names of an author's module with this text."""
    file = f"<author {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names |= {"__name__": f"author_{file[8:-1]}"}
    exec(compile(text, file, "exec", dont_inherit=True), names)
    return names


_numbers = itertools.count()
