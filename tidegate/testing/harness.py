"""A harness for operators of the engine: it runs an operator in every way that a runner may.

    check_operator(step_operator(pipeline, "GroupByKey"), [feed([("a", 1)], [3]), Watermark(10_000_000)])

An operator's output must not depend on where blocks are cut, on whether its iterators are suspended because the output
is full, or on whether a snapshot is taken and restored between two events. `check_operator` tries all three and raises
an AssertionError that names the first event at which two runs differ. Times are in µs, as in the engine.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.factory import build
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.plan import Plan
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import BLOCK_SIZE, GLOBAL, Block, PanesColumn, TimestampsColumn, WindowsColumn
from tidegate.sdk.data.panes import NO_PANE, PaneInfo
from tidegate.sdk.pipeline import Pipeline
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS

MakeOperator: TypeAlias = Callable[[Context], Operator]
"""Makes a new operator in a context."""

ALL_CUTS: Final = 6
"""The greatest number of possible cuts (places between elements) of which every combination is tried."""

BUDGET: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Feed:
    """A block of an input collection, which is None for an operator with a single input."""

    block: Block
    collection: str | None = None

    def __repr__(self) -> str:
        where = f", {self.collection!r}" if self.collection else ""
        return f"Feed({list(self.block.values)!r}{where})"


@dataclass(frozen=True, slots=True)
class Watermark:
    """The input watermark advances."""

    micros: int


@dataclass(frozen=True, slots=True)
class SideWatermark:
    """The watermark of a side input advances."""

    collection: str
    micros: int


@dataclass(frozen=True, slots=True)
class Clock:
    """Processing time advances to an instant."""

    micros: int


Event: TypeAlias = Feed | Watermark | SideWatermark | Clock


@dataclass(frozen=True, slots=True)
class Output:
    """An element that the operator emitted."""

    collection: str
    value: Any
    micros: int
    windows: tuple[Any, ...]
    pane: PaneInfo


@dataclass(frozen=True, slots=True)
class Answer:
    """The output of an operator for one event (None: the end of input), and its watermark hold afterwards."""

    event: Event | None
    outputs: tuple[Output, ...]
    hold: int


def feed(
    values: Sequence[Any],
    timestamps: TimestampsColumn = MIN_MICROS,
    windows: WindowsColumn = GLOBAL,
    panes: PanesColumn = NO_PANE,
    collection: str | None = None,
) -> Feed:
    """Make an event of a block of elements."""
    return Feed(Block(values, timestamps, windows, panes), collection)


def step_operator(pipeline: Pipeline, label: str, *, streaming: bool = True) -> MakeOperator:
    """Return a function that makes the operator of the step whose last node is `label`, as a runner would.

    With `streaming`, bounded input is treated as a stream. Raises KeyError if there is no such step.
    """
    planned: Plan = plan(pipeline.sealed(), Traits(parallel=False, streaming=streaming))
    for step in planned.steps:
        if step.label == label and not step.is_source and not step.is_sink:
            return lambda context: build(step, planned, context)
    raise KeyError(f"no step {label!r}; the steps are {', '.join(repr(step.label) for step in planned.steps)}")


def run_operator(make: MakeOperator, events: Sequence[Event], *, end: bool = True) -> list[Answer]:
    """Feed an operator the events and then, with `end`, the end of input; return its answer to each."""
    with _operator(make) as operator:
        answers = _play(operator, events)
        return answers + _end(operator) if end else answers


def outputs(answers: Sequence[Answer]) -> list[Output]:
    """All output, in order."""
    return [output for answer in answers for output in answer.outputs]


def check_operator(make: MakeOperator, events: Sequence[Event], *, end: bool = True) -> list[Answer]:
    """Check that the operator's answers are the same however it is run, and return them.

    Raises AssertionError naming the way of running, the event and the first output that differs.
    """
    expected = run_operator(make, events, end=end)
    _check_full_outbox(make, events, expected, end)
    for cut in _cuts(events):
        _compare(expected, _merged(cut, events, make, end), f"with blocks cut as {_sizes(cut)}")
    for position in range(len(events) + 1):
        _check_restore(make, events, position, end)
    return expected


# ---- ways of running


def _check_full_outbox(make: MakeOperator, events: Sequence[Event], expected: list[Answer], end: bool) -> None:
    """Take the output one element at a time, and let a second operator run one step in between.

    The second one finds operators that share state which they should not.
    """
    with _operator(make, block_size=1) as operator, _operator(make, block_size=1) as other:
        other_steps = _steps(other, events, end)
        answers = []
        for event in (*events, *([None] if end else [])):
            found: list[Output] = []
            for collection, block in _answering(operator, event):
                longest = len(event.block) if isinstance(event, Feed) else 1
                if len(block) > longest:
                    raise AssertionError(f"{_at(event)}: emitted a block of {len(block)} elements; the block size is 1")
                found += _elements(collection, block)
                operator.hold()
                operator.next_clock()
                next(other_steps, None)
            answers.append(Answer(event, tuple(found), operator.hold()))
        _compare(expected, answers, "with an output that is nearly always full")


def _steps(operator: Operator, events: Sequence[Event], end: bool) -> Iterator[None]:
    for event in (*events, *([None] if end else [])):
        for _ in _answering(operator, event):
            yield


def _check_restore(make: MakeOperator, events: Sequence[Event], position: int, end: bool) -> None:
    """Take a snapshot after `position` events; a restored operator must then answer as the original does."""
    before, after = events[:position], events[position:]
    where = f"restored after {position} of {len(events)} events"
    with _operator(make) as operator:
        _play(operator, before)
        _pull(operator.finish_bundle())
        state = operator.snapshot()
        try:
            frozen = pickle.dumps(state, 5)
        except Exception as error:
            raise AssertionError(f"{where}: the snapshot can't be pickled: {error}") from error
        expected = _play(operator, after) + (_end(operator) if end else [])
    for how, saved in (("", pickle.loads(frozen)), (" from a snapshot in memory", state)):
        with _operator(make) as restored:
            restored.restore(saved)
            found = _play(restored, after) + (_end(restored) if end else [])
        _compare(expected, found, where + how)


def _merged(cut: list[list[Event]], events: Sequence[Event], make: MakeOperator, end: bool) -> list[Answer]:
    """The operator's answers to the events in pieces; the answers to one event's pieces are merged."""
    answers = []
    with _operator(make) as operator:
        for event, pieces in zip(events, cut, strict=True):
            parts = _play(operator, pieces)
            answers.append(Answer(event, tuple(outputs(parts)), parts[-1].hold))
        return answers + _end(operator) if end else answers


def _cuts(events: Sequence[Event]) -> Iterator[list[list[Event]]]:
    """The events with their blocks cut: in every way if there are few, else in some ways from few cuts to many."""
    places = [
        (number, place)
        for number, event in enumerate(events)
        if isinstance(event, Feed)
        for place in range(1, len(event.block))
    ]
    chosen: list[set[tuple[int, int]]]
    if len(places) <= ALL_CUTS:
        chosen = [
            {place for place, cut in zip(places, cuts, strict=True) if cut}
            for cuts in product((False, True), repeat=len(places))
        ]
    else:
        import random

        seeded = random.Random(len(places))
        chosen = [set(places), *({place} for place in places[:64])]
        chosen += [{place for place in places if seeded.random() < density} for density in (0.1, 0.3, 0.5, 0.7) * 4]
    for cut in chosen:
        yield [_cut(event, [place for at, place in cut if at == number]) for number, event in enumerate(events)]


def _cut(event: Event, places: list[int]) -> list[Event]:
    if not isinstance(event, Feed) or not places:
        return [event]
    edges = [0, *sorted(places), len(event.block)]
    return [Feed(event.block.slice(a, b), event.collection) for a, b in pairwise(edges)]


# ---- driving one operator


@contextmanager
def _operator(make: MakeOperator, block_size: int = BLOCK_SIZE) -> Iterator[Operator]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tidegate-harness-") as directory:
        context = Context(memory_budget=BUDGET, temp_dir=lambda: Path(directory), block_size=block_size)
        operator = make(context)
        operator.open()
        try:
            yield operator
        finally:
            operator.close()


def _play(operator: Operator, events: Sequence[Event]) -> list[Answer]:
    return [Answer(event, _pull(_answering(operator, event)), operator.hold()) for event in events]


def _end(operator: Operator) -> list[Answer]:
    return [Answer(None, _pull(_answering(operator, None)), operator.hold())]


def _answering(operator: Operator, event: Event | None) -> Iterator[Emitted]:
    """Call the operator as a runner would for an event; None is the end of input."""
    match event:
        case Feed(block=block, collection=collection):
            yield from operator.process(block, collection or "input")
            return
    yield from operator.finish_bundle()
    match event:
        case Watermark(micros=micros):
            yield from operator.on_watermark(micros)
        case SideWatermark(collection=collection, micros=micros):
            yield from operator.on_side_watermark(collection, micros)
        case Clock(micros=micros):
            yield from operator.on_clock(micros)
        case None:
            yield from operator.on_watermark(MAX_MICROS)
            yield from operator.finish()


def _pull(emitted: Iterator[Emitted]) -> tuple[Output, ...]:
    return tuple(output for collection, block in emitted for output in _elements(collection, block))


def _elements(collection: str, block: Block) -> Iterator[Output]:
    columns = zip(block.values, block.timestamp_column(), block.window_list(), block.pane_list(), strict=True)
    return (Output(collection, value, micros, windows, pane) for value, micros, windows, pane in columns)


# ---- comparing


def _compare(expected: list[Answer], found: list[Answer], how: str) -> None:
    for number, (want, have) in enumerate(zip(expected, found, strict=True), 1):
        if want.outputs != have.outputs:
            raise AssertionError(f"{how}, {_at(want.event)} (number {number}):\n{_first_difference(want, have)}")
        if want.hold != have.hold:
            raise AssertionError(
                f"{how}, {_at(want.event)} (number {number}): the hold is {have.hold} instead of {want.hold}"
            )


def _first_difference(want: Answer, have: Answer) -> str:
    for number, (a, b) in enumerate(zip(want.outputs, have.outputs, strict=False), 1):
        if a != b:
            return f"  output {number} is {b}\n  instead of {a}"
    few, many = sorted((want.outputs, have.outputs), key=len)
    extra = "more" if many is have.outputs else "fewer"
    return f"  {len(have.outputs)} outputs, {extra} than {len(want.outputs)}: {many[len(few)]}"


def _at(event: Event | None) -> str:
    return "at the end of input" if event is None else f"at {event!r}"


def _sizes(cut: list[list[Event]]) -> list[list[int]]:
    return [[len(p.block) for p in pieces if isinstance(p, Feed)] for pieces in cut if isinstance(pieces[0], Feed)]
