"""Scripts of streams for the tests of the contract, and runs of them.

A script is a list of events: `("a", 3)` is the element "a" at 3 s under key "k", `("a", 3, "other")` under another key,
`Watermark(10)` advances the watermark, `AdvanceClock(5)` the clock. `SecondInput(event)` is an event of a second input;
either input may be `Idle()`. The end of the script is the end of input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tidegate as tg
from tidegate.testing import PaneRecorder, Recorded, TestPipeline, TestStream

KEY = "k"


@dataclass(frozen=True)
class Watermark:
    """The watermark advances to `to`."""

    to: Any


@dataclass(frozen=True)
class AdvanceClock:
    """The clock advances by `by` seconds."""

    by: float


@dataclass(frozen=True)
class Idle:
    """The input is idle until its next event."""


@dataclass(frozen=True)
class SecondInput:
    """An event of the second input, which is flattened with the first."""

    event: Any


INFINITY = Watermark(tg.MAX_TIMESTAMP)


def has_two_inputs(script: Iterable[Any]) -> bool:
    """True if a script has events of a second input; its stream then has two outputs, main and other."""
    return any(isinstance(event, SecondInput) for event in script)


def to_test_stream(script: Sequence[Any], *, together: bool = False) -> TestStream:
    """Convert a script to a TestStream; with `together`, consecutive elements are sent as one block."""
    made = TestStream().with_outputs("other") if has_two_inputs(script) else TestStream()
    block: list[Any] = []
    before: str | None = None

    def flush() -> None:
        if block:
            made.add_elements(list(block), tag=before)
            block.clear()

    for item in script:
        event, tag = (item.event, "other") if isinstance(item, SecondInput) else (item, None)
        if not together or tag != before:
            flush()
        before = tag
        match event:
            case Watermark(to=to):
                flush()
                made.advance_watermark_to(to, tag=tag)
            case AdvanceClock(by=by):
                flush()
                made.advance_processing_time(by)
            case Idle():
                flush()
                made.idle(tag)
            case (value, timestamp, *key):
                block.append(tg.TimestampedValue((key[0] if key else KEY, value), timestamp))
    flush()
    return made


@dataclass(frozen=True)
class ScriptResult:
    """The panes a grouping emitted, by key, and the run's result with its counters."""

    panes: dict[Any, list[Recorded]]
    result: tg.PipelineResult

    @property
    def of_key(self) -> list[Recorded]:
        """The panes of the key of elements for which the script names none."""
        return self.panes.get(KEY, [])

    def counted(self, name: str) -> int:
        """The value of one of the engine's counters, summed over all steps."""
        return self.result.metrics().counter(name)


def run_script(
    runner: str,
    script: Sequence[Any],
    into: tg.WindowInto[Any] | None,
    grouping: Any = None,
    *,
    together: bool = False,
    options: Mapping[str, Any] | None = None,
    then: Callable[[Any], Any] | None = None,
) -> ScriptResult:
    """Run a script through windows and a grouping (by default GroupByKey), and return the panes by key."""
    pipeline = TestPipeline(runner, options)
    windowed: Any = pipeline | to_test_stream(script, together=together)
    if has_two_inputs(script):
        windowed = (windowed.main, windowed.other) | tg.Flatten()
    if into is not None:
        windowed = windowed | into
    grouped = windowed | (tg.GroupByKey() if grouping is None else grouping)
    if then is not None:
        grouped = then(grouped)
    recorder = PaneRecorder()
    _ = grouped | recorder
    result = pipeline.run()
    return ScriptResult(recorder.per_key(), result)


def panes_of_script(
    runner: str, script: Sequence[Any], into: tg.WindowInto[Any], grouping: Any = None, **more: Any
) -> list[Recorded]:
    """Run a script with a single key, and return its panes in order."""
    return run_script(runner, script, into, grouping, **more).of_key
