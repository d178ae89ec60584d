"""Seeing windows: a run of a pipeline recorded on the direct runner, drawn as event time against processing time.

    trace(pipeline).save("trace.html")

What is recorded of each grouping and each stateful step: the elements that reach it, its watermark, its windows from
their first element to their expiry, and every pane it fires. `recording` and `watching` see to it, `trace_page` draws.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import Pipeline
from tidegate.sdk.time import MIN_MICROS

if TYPE_CHECKING:
    from os import PathLike

    from tidegate.runners.engine.time.clock import Clock

Standing: TypeAlias = Literal["in time", "behind", "late", "dropped late", "dropped closed", "no window"]
"""How an element stands when it arrives (SEMANTICS, Lateness): `behind` the watermark, but in a window that has not
ended; `late` for a window that has; refused because its windows have expired, or because the trigger has finished; or
in no window at all."""

Timing: TypeAlias = Literal["early", "on_time", "late", "unknown"]


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happened: the number of the event at its step, and processing time (µs)."""

    event: int
    clock: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """An element that reached the step. `key` is a number in `Traced.keys`, -1 without keys; `timestamp` is in µs."""

    at: Moment
    key: int
    value: str
    timestamp: int
    standing: Standing


@dataclass(frozen=True, slots=True)
class Window:
    """A window of one key from its first element to its expiry, or to when it was merged `into` another (its number).

    Bounds are µs, None for a start or an end of time that it does not have. `closed` is None if the run ended first.
    """

    key: int
    name: str
    start: int | None
    end: int | None
    opened: Moment
    closed: Moment | None = None
    into: int | None = None


@dataclass(frozen=True, slots=True)
class Firing:
    """One pane of one key, or an element that a stateful step gave. `window` is a number in `Traced.windows`, or None.

    `name`, `start` and `end` are the window's, as in `Window`; `timestamp` is in µs.
    """

    at: Moment
    key: int
    value: str
    timestamp: int
    window: int | None
    name: str
    start: int | None
    end: int | None
    timing: Timing
    index: int
    nonspeculative_index: int
    is_first: bool
    is_last: bool


@dataclass(frozen=True, slots=True)
class Traced:
    """What was seen of one step. Of long runs a part: one element, window or pane of `every` that many was kept.

    `watermark` holds (moment, µs) for each advance; `counts` the number of elements, panes, and of those dropped;
    `facts` what the step is, in words.
    """

    label: str
    where: str
    facts: tuple[tuple[str, str], ...]
    bounded: bool
    merging: bool
    keys: tuple[str, ...]
    arrivals: tuple[Arrival, ...]
    windows: tuple[Window, ...]
    firings: tuple[Firing, ...]
    watermark: tuple[tuple[Moment, int], ...]
    counts: dict[str, int] = field(default_factory=dict)
    every: dict[str, int] = field(default_factory=dict)

    def of_key(self, key: str) -> tuple[Firing, ...]:
        """The firings of a key, given as its repr."""
        number = self.keys.index(key)
        return tuple(firing for firing in self.firings if firing.key == number)


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run: its groupings and stateful steps, in the pipeline's order. `error` is what it failed with."""

    name: str
    steps: tuple[Traced, ...]
    error: str | None = None

    def step(self, label: str) -> Traced:
        """The step of that label path, or whose path ends so. KeyError, with those there are, if there is none."""
        for step in self.steps:
            if step.label == label or step.label.endswith("/" + label):
                return step
        raise KeyError(f"no traced step {label!r}; there are: {', '.join(step.label for step in self.steps) or 'none'}")

    def __repr__(self) -> str:
        steps = ", ".join(repr(step.label) for step in self.steps) or "nothing"
        return f"<Trace of {self.name!r}: {steps}{f'; failed: {self.error}' if self.error else ''}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f'<iframe style="width: 100%; height: 640px; border: 0" srcdoc="{escape(self.html())}"></iframe>'

    def html(self) -> str:
        """The picture, as a page that needs nothing else."""
        from tidegate.testing.trace.page import page

        return page(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file."""
        from pathlib import Path

        Path(path).write_text(self.html(), encoding="utf-8")


UNSTAMPED: Final = MIN_MICROS
"""The timestamp of elements that nobody stamped."""


def trace(pipeline: Pipeline, *, clock: Clock | None = None) -> Trace:
    """Run a pipeline on the direct runner, to its end, and return what was seen of it.

    The pipeline's options hold; of its own runner only a clock does. A TestPipeline checks its assertions. `clock` is
    processing time (a TestStream brings its own). Raises what the run raises, and BuildError for what is no pipeline.
    """
    if not isinstance(pipeline, Pipeline):
        raise BuildError(f"trace takes a Pipeline, not {type(pipeline).__name__}: build one, and trace it unrun")
    from tidegate.testing.trace.tracer import Tracer

    tracer = Tracer(clock=clock or getattr(pipeline.runner, "clock", None))
    runner, pipeline._runner = pipeline._runner, tracer
    try:
        pipeline.run().wait_until_finish()
    finally:
        pipeline._runner = runner
    return tracer.trace()
