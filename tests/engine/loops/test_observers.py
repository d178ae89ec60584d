"""Tools that observe calls: while one is active, functions are called."""

from __future__ import annotations

import bdb
import cProfile
import pstats
import sys
import trace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import tidegate as tg
from tests.support.operator_driver import context, read
from tidegate.runners.engine.factory import build
from tidegate.runners.engine.loops.inlining import INLINED, observed
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import Block

ADD = lambda x: x + 1  # noqa: E731
LINE = ADD.__code__.co_firstlineno


class Run:
    """A step that maps `ADD`, over one block at a time."""

    def __init__(self) -> None:
        pipeline = tg.Pipeline()
        pipeline | tg.Create([0]) | "add" >> tg.Map(ADD)
        made = plan(pipeline.portable(), Traits(parallel=False))
        self.world = context()
        self.world.inline = "on"
        self.operator: Any = build(made.steps[1], made, self.world)
        self.operator.open()

    def block(self) -> list[Any]:
        """The results for 1 and 2."""
        return [value for _, value, _, _ in read(self.operator.process(Block([1, 2], 0), "elements"))]

    def inlined(self) -> int:
        """How many elements were inlined so far."""
        list(self.operator.finish_bundle())
        return sum(n for key, n in self.world.metrics.counters.items() if key.name == INLINED)


@contextmanager
def without_observers() -> Iterator[None]:
    """Turn off the tracer and the profiler that may observe the tests, and turn them on again."""
    tracer, profiler = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        sys.setprofile(profiler)


class Debugger(bdb.Bdb):
    """Notes the variables of the frame at a breakpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.stops: list[dict[str, Any]] = []

    def user_line(self, frame: FrameType) -> None:
        if frame.f_code is ADD.__code__:
            self.stops.append(dict(frame.f_locals))
        self.set_continue()


def debugged(run: Run) -> int:
    debugger = Debugger()
    assert debugger.set_break(__file__, LINE) is None
    debugger.runcall(run.block)
    assert [stop["x"] for stop in debugger.stops] == [1, 2]
    return len(debugger.stops)


def counted(run: Run) -> int:
    tracer = trace.Trace(count=1, trace=0)
    tracer.runfunc(run.block)
    counts: Any = tracer.results().counts
    return int(counts[__file__, LINE])


def profiled(run: Run) -> int:
    profiler = cProfile.Profile()
    profiler.runcall(run.block)
    stats: Any = pstats.Stats(profiler)
    return int(stats.stats[__file__, LINE, "<lambda>"][1])


def monitored(run: Run) -> int:
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        pytest.skip("sys.monitoring exists since Python 3.12")
    seen: list[Any] = []
    monitoring.use_tool_id(monitoring.COVERAGE_ID, "a test")
    try:
        monitoring.register_callback(
            monitoring.COVERAGE_ID, monitoring.events.PY_START, lambda code, _: seen.append(code)
        )
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.PY_START)
        run.block()
    finally:
        monitoring.set_events(monitoring.COVERAGE_ID, 0)
        monitoring.free_tool_id(monitoring.COVERAGE_ID)
    return seen.count(ADD.__code__)


TOOLS: dict[str, Callable[[Run], int]] = {
    "a debugger": debugged,
    "a tool that counts lines": counted,
    "a profiler": profiled,
    "a tool that monitors": monitored,
}
"""Each observes a block, and returns how many calls of `ADD` it has seen."""


@pytest.mark.parametrize("tool", TOOLS)
def test_functions_are_called_while_a_tool_observes_them(tool: str) -> None:
    with without_observers():
        run = Run()
        assert run.block() == [2, 3]
        assert run.inlined() == 2
        assert TOOLS[tool](run) == 2
        assert run.inlined() == 2
        assert not observed()
        assert run.block() == [2, 3]
        assert run.inlined() == 4
