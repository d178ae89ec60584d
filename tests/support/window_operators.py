"""Builds window operators without a pipeline, feeds them events and reads their panes; also draws the random windowing
strategies and streams for their tests."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.windowing.operator import WindowOperator
from tidegate.sdk.authoring.combine import CombineFn, as_combine_fn
from tidegate.sdk.data.block import Block, Each
from tidegate.sdk.errors import BuildError
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey, Output
from tidegate.sdk.time import MAX_MICROS, Duration, Timestamp
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.windowing import triggers as tr
from tidegate.sdk.windowing.assigners import (
    CumulativeWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    WindowAssigner,
    as_assigner,
    is_merging,
)
from tidegate.sdk.windowing.assignment import assign
from tidegate.sdk.windowing.evictors import Evictor, KeepLast, KeepRecent, KeepWithinDelta, as_evictor
from tidegate.sdk.windowing.strategy import AccumulationMode, TimestampCombiner, WindowingStrategy
from tidegate.sdk.windowing.window import BoundedWindow

HERE = Where("script.py", 7)
Event = tuple[Any, ...]


def micros(n: int) -> Duration:
    return Duration(micros=n)


def context(*, block_size: int = 4096, memory_budget: int = 1 << 40, temp_dir: Path | None = None) -> Context:
    def directory() -> Path:
        assert temp_dir is not None, "nothing should be spilled"
        return temp_dir

    return Context(memory_budget=memory_budget, temp_dir=directory, block_size=block_size)


def group(late_tag: str | None = None) -> GroupByKey:
    return GroupByKey(label="Group", where=HERE, inputs=("in",), outputs=(Output("main", "out"),), late_tag=late_tag)


def combine(combiner: Any, key: str = "first", **facts: Any) -> CombinePerKey:
    fn = as_combine_fn(combiner)
    return CombinePerKey(
        label="Combine",
        where=HERE,
        inputs=("in",),
        outputs=(Output("main", "out"),),
        fn=UserFn.of(fn),
        name="combiner",
        in_parts=fn.in_parts,
        has_identity=fn.has_identity,
        key=key,  # type: ignore[arg-type]
        **facts,
    )


def window_operator(
    node: GroupByKey | CombinePerKey, strategy: WindowingStrategy, ctx: Context | None = None, late: str | None = None
) -> WindowOperator:
    return WindowOperator(node, "whole", strategy, ctx or context(), "out", late)


def elements_block(elements: list[Event]) -> Block:
    """("element", key, x, t, windows) events as one block."""
    return Block(
        [(key, x) for _, key, x, _, _ in elements],
        [t for _, _, _, t, _ in elements],
        Each([windows for _, _, _, _, windows in elements]),
    )


def read(emitted: Any) -> list[tuple[Any, ...]]:
    """The main output in an operator's iterator, as (key, value, window, timestamp, pane)."""
    out = []
    for collection, block in emitted:
        if collection != "out":
            continue
        assert len(block)
        for value, t, windows, pane in zip(
            block.values, block.timestamp_column(), block.window_list(), block.pane_list(), strict=True
        ):
            (window,) = windows
            key, result = value
            facts = (pane.timing.name, pane.index, pane.nonspeculative_index, pane.is_first, pane.is_last)
            out.append((key, result, window, t, facts))
    return out


@dataclass
class EventDriver:
    """Feeds events to an operator; consecutive elements form blocks, cut at `cuts` (positions in the events)."""

    operator: Any
    cuts: frozenset[int] | None = None
    restart: Any = None
    """Creates an operator. If set, a new operator with the state replaces the running one before every event."""

    def run(self, events: list[Event]) -> list[tuple[Any, ...]]:
        out: list[tuple[Any, ...]] = []
        pending: list[Event] = []
        self.operator.open()
        self.operator.on_clock(0)
        list(self.operator.on_clock(0))
        for i, event in enumerate(events):
            if event[0] == "element":
                if self.cuts is None or i in self.cuts:
                    out += self.flush(pending)
                pending.append(event)
                continue
            out += self.flush(pending)
            self.restart_operator()
            out += read(self.operator.finish_bundle())
            if event[0] == "watermark":
                out += read(self.operator.on_watermark(event[1]))
            else:
                out += read(self.operator.on_clock(event[1]))
        out += self.flush(pending)
        return out

    def flush(self, pending: list[Event]) -> list[tuple[Any, ...]]:
        if not pending:
            return []
        self.restart_operator()
        block = elements_block(pending)
        pending.clear()
        return read(self.operator.process(block, "in"))

    def restart_operator(self) -> None:
        if self.restart is not None:
            state = pickle.loads(pickle.dumps(self.operator.snapshot()))
            self.operator = self.restart()
            self.operator.open()
            self.operator.restore(state)


# ---- random strategies


class Odd(Evictor):
    """Keeps every other element, from the first."""

    def keep(self, elements: Any) -> Any:
        return range(0, len(elements), 2)


class Nothing(Evictor):
    """Keeps nothing."""

    when = "after"

    def keep(self, elements: Any) -> Any:
        return ()


class Mean(CombineFn[int, list[int], float]):
    """A CombineFn that changes its accumulator in place and returns it as the result."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add_input(self, accumulator: list[int], element: int) -> list[int]:
        accumulator[0] += element
        accumulator[1] += 1
        return accumulator

    def merge_accumulators(self, accumulators: Any) -> list[int]:
        first, *rest = accumulators
        for other in rest:
            first[0] += other[0]
            first[1] += other[1]
        return first

    def extract_output(self, accumulator: list[int]) -> Any:
        return accumulator


class Trip(BoundedWindow):
    """A user-defined window type: a trip on a line that ends at `end`."""

    def __init__(self, end: Timestamp, line: int) -> None:
        self.end = end
        self.line = line

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trip) and (self.end, self.line) == (other.end, other.line)

    def __lt__(self, other: Any) -> bool:
        return (self.end, self.line) < (other.end, other.line)

    def __hash__(self) -> int:
        return hash((self.end, self.line))

    def __repr__(self) -> str:
        return f"Trip({self.end.micros}, {self.line})"


class Trips(WindowAssigner):
    """Merges the trips of one line that end within 8 µs of each other into one that ends with the last."""

    def assign(self, timestamp: Timestamp, element: Any) -> Any:
        return [Trip(Timestamp(micros=timestamp.micros + 10), element[1] % 2)]

    def merge(self, windows: Any) -> Any:
        for line in (0, 1):
            run: list[Trip] = []
            for window in sorted(w for w in windows if w.line == line):
                if run and window.end.micros - run[-1].end.micros > 8:
                    yield run[-1], run
                    run = []
                run.append(window)
            if run:
                yield run[-1], run


def is_odd(x: int) -> bool:
    return x % 2 == 1


def difference(a: int, b: int) -> int:
    return abs(a - b)


ASSIGNERS = {
    "global": GlobalWindows(),
    "fixed": FixedWindows(micros(10)),
    "sliding": SlidingWindows(micros(10), micros(5)),
    "cumulative": CumulativeWindows(micros(10), micros(5)),
    "sessions": Sessions(micros(5)),
    "gaps": Sessions(lambda element: micros(1 + element[1] % 7)),
    "trips": as_assigner(Trips()),
}

RESULTS = {
    "group": (None, list, True),
    "sum": (sum, sum, True),
    "max": (max, max, False),
    "sorted": (sorted, sorted, False),
    "mean": (Mean(), lambda values: [sum(values), len(values)], True),
    "list": (list, list, True),
}


def _finite(inner: Any) -> Any:
    return (
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: tr.AfterAny(*parts))
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: tr.AfterAll(*parts))
        | st.lists(inner, min_size=1, max_size=3).map(_each)
        | inner.map(tr.Repeatedly)
        | inner.map(tr.Repeatedly)
        | st.tuples(inner, inner).map(lambda pair: tr.OrFinally(*pair))
        | st.tuples(st.none() | inner, st.none() | inner).map(lambda pair: tr.AfterWatermark(*pair))
        | st.tuples(st.none() | inner, st.none() | inner).map(lambda pair: tr.AfterWatermark(*pair))
    )


def _each(parts: list[Any]) -> Any:
    try:
        return tr.AfterEach(*parts)
    except BuildError:
        return tr.AfterEach(*[part for part in parts if not tr.never_finishes(part)], parts[-1])


def triggers(*, delta: bool) -> Any:
    leaves = [
        st.just(tr.AfterWatermark()),
        st.just(tr.DefaultTrigger()),
        st.builds(tr.AfterCount, st.integers(1, 4)),
        st.builds(tr.AfterProcessingTime, st.integers(0, 12).map(micros), st.none() | st.just(micros(5))),
        st.builds(tr.EveryEventTime, st.integers(2, 6).map(micros)),
        st.builds(tr.EveryProcessingTime, st.integers(2, 6).map(micros)),
        st.just(tr.AfterElement(is_odd)),
        st.just(tr.Never()),
    ]
    if delta:
        leaves.append(st.builds(tr.AfterDelta, st.integers(1, 4), st.just(difference)))
    return st.recursive(st.one_of(leaves), _finite, max_leaves=5)


EVICTORS = st.sampled_from(
    [None] * 4
    + [KeepLast(2), KeepLast(1, when="after"), KeepRecent(micros(4)), KeepRecent(micros(4), when="after")]
    + [KeepWithinDelta(3, difference), as_evictor(Odd()), as_evictor(Nothing())]
)


@st.composite
def strategies(draw: Any, names: tuple[str, ...] = tuple(ASSIGNERS)) -> WindowingStrategy:
    name = draw(st.sampled_from(names))
    merging = is_merging(ASSIGNERS[name])
    return WindowingStrategy(
        ASSIGNERS[name],
        draw(triggers(delta=not merging)),
        draw(st.sampled_from(AccumulationMode)),
        micros(draw(st.sampled_from([0, 0, 3, 8, 100]))),
        draw(st.sampled_from(TimestampCombiner)),
        draw(EVICTORS),
        draw(st.sampled_from(["emit", "emit", "emit", "drop"])),
    )


@st.composite
def streams(draw: Any, strategy: WindowingStrategy, max_size: int = 25, clocks: bool = True) -> list[Event]:
    """Elements around a rising watermark, some late, and clock advances; the watermark ends at the end of time."""
    windows = assign(strategy.assigner)
    events: list[Event] = []
    watermark = clock = 0
    kinds = ["element"] * 6 + ["watermark"] * 2 + ["clock"] * 2 * clocks
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=max_size)):
        if kind == "element":
            key, x = draw(st.sampled_from("aab")), draw(st.integers(0, 6))
            t = max(0, watermark + draw(st.integers(-14, 10)))
            events.append(("element", key, x, t, windows(t, (key, x))))
        elif kind == "watermark":
            watermark += draw(st.sampled_from([0, 1, 3, 5, 10, 20]))
            events.append(("watermark", watermark))
        else:
            clock += draw(st.sampled_from([1, 3, 5, 10, 20]))
            events.append(("clock", clock))
    return [*events, ("watermark", MAX_MICROS)]
