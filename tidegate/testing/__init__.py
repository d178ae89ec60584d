"""The testing kit: pipelines with assertions, streams that a test scripts event by event, recorders of panes.

    with TestPipeline() as pipeline:
        counts = pipeline | tg.Create(["a", "b", "a"]) | tg.CombinePerElement(len)
        assert_that(counts, equal_to([("a", 2), ("b", 1)]))

Assertions are checked after the run, in the test's process, on any runner. `check_source` and `check_sink` check that a
connector keeps the rules of its interface. They, `strategies` (for hypothesis) and `harness` (for developers of the
engine) are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidegate.testing.expected_panes import ANY, Fired, Recorded, early, fired, late, on_time
from tidegate.testing.matchers import (
    Matcher,
    contains,
    each,
    equal_to,
    equal_to_per_window,
    is_empty,
    is_not_empty,
    matches,
)
from tidegate.testing.pane_recorder import PaneRecorder
from tidegate.testing.test_pipeline import TestPipeline, assert_that
from tidegate.testing.test_stream import TestStream
from tidegate.testing.trace.api import trace
from tidegate.testing.trace.recorded_run import Trace

if TYPE_CHECKING:  # they import the engine
    from tidegate.testing.conformance.rules import ConformanceReport, RuleBroken
    from tidegate.testing.conformance.sink import check_sink
    from tidegate.testing.conformance.source import check_source

__all__ = [
    "TestPipeline",
    "assert_that",
    "Matcher",
    "equal_to",
    "equal_to_per_window",
    "contains",
    "each",
    "is_empty",
    "is_not_empty",
    "matches",
    "TestStream",
    "PaneRecorder",
    "Recorded",
    "Fired",
    "fired",
    "early",
    "on_time",
    "late",
    "ANY",
    "trace",
    "Trace",
    "check_source",
    "check_sink",
    "ConformanceReport",
    "RuleBroken",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "harness", "strategies"])


def __getattr__(name: str) -> Any:
    if name in ("strategies", "harness"):
        from importlib import import_module

        return import_module(f"tidegate.testing.{name}")
    if name in _CONFORMANCE:
        from importlib import import_module

        return getattr(import_module(f"tidegate.testing.conformance.{_CONFORMANCE[name]}"), name)
    raise AttributeError(f"module 'tidegate.testing' has no attribute {name!r}")


_CONFORMANCE: Final = {
    "check_source": "source",
    "check_sink": "sink",
    "ConformanceReport": "rules",
    "RuleBroken": "rules",
}
"""The module of each name of the conformance suite."""
