"""`FromIterable`: Python iterables as bounded and as live sources, resumed by the number of elements read."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.io.generators.iterables import AHEAD, IterableSource
from tidegate.sdk.connectors.sources import Reader

CALLS: list[int] = []


def squares() -> Iterator[int]:
    for n in range(10):
        yield n * n


def squares_from(skip: int) -> Iterator[int]:
    CALLS.append(skip)
    return (n * n for n in range(skip, 10))


def read_until(reader: Reader[Any], done: Callable[[list[Any], bool], bool], limit: int = 100) -> list[Any]:
    """Read from a reader until `done(elements, end)`, waiting between reads as it asks."""
    found: list[Any] = []
    pause = threading.Event()
    while True:
        batch = reader.read(limit)
        assert len(batch.block) <= limit
        found += batch.block.values
        if done(found, batch.end):
            return found
        if not len(batch.block):
            assert batch.wait > 0
            pause.wait(batch.wait)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("fn", [squares, squares_from])
@pytest.mark.parametrize("stopped_after", range(1, 11))
def test_a_reader_resumes_with_the_next_element(fn: Any, bounded: bool, stopped_after: int) -> None:
    source = IterableSource(fn, bounded)
    [split] = source.splits(4)
    first = source.reader(split)
    found = read_until(first, lambda found, end: len(found) >= stopped_after, limit=1)
    position = json.loads(json.dumps(first.position()))
    first.close()
    second = source.reader(split, position)
    found += read_until(second, lambda found, end: end, limit=3)
    second.close()
    assert found == [n * n for n in range(10)]


def test_a_function_with_a_parameter_is_called_with_the_number_of_elements_to_skip() -> None:
    CALLS.clear()
    source = IterableSource(squares_from)
    [split] = source.splits(1)
    source.reader(split).read(1)
    source.reader(split, 7).read(1)
    assert CALLS == [0, 7]


def test_a_parameter_with_a_default_does_not_receive_the_number_to_skip() -> None:
    source = IterableSource(lambda count=4: range(count))
    assert source.reader(source.splits(1)[0], 2).read(10).block.values == [2, 3]


@pytest.mark.parametrize("bounded", [True, False])
def test_an_iterable_that_became_shorter_is_refused_when_resuming(bounded: bool) -> None:
    source = IterableSource(squares, bounded)
    reader = source.reader(source.splits(1)[0], 11)
    with pytest.raises(tg.io.PositionLost, match="squares yielded 10 elements, but 11 had been read before"):
        read_until(reader, lambda found, end: end)


def test_a_live_reader_returns_at_once_while_its_iterator_waits() -> None:
    items: queue.Queue[int | None] = queue.Queue()
    source = IterableSource(lambda: iter(items.get, None), bounded=False)
    reader = source.reader(source.splits(1)[0])
    batch = reader.read(10)
    assert (len(batch.block), batch.end, batch.wait > 0) == (0, False, True)
    items.put(1)
    assert read_until(reader, lambda found, end: bool(found)) == [1]
    items.put(None)
    assert read_until(reader, lambda found, end: end) == []


def test_a_live_reader_reads_ahead_within_bounds() -> None:
    reached = threading.Event()
    yielded: list[int] = []

    def endless() -> Iterator[int]:
        n = 0
        while True:
            yielded.append(n)
            if n == AHEAD:
                reached.set()
            yield n
            n += 1

    source = IterableSource(endless, bounded=False)
    reader = source.reader(source.splits(1)[0])
    found = list(reader.read(1).block.values)
    assert reached.wait(60)
    assert len(yielded) <= AHEAD + 1 + len(found)
    found += read_until(reader, lambda found, end: len(found) >= 3 * AHEAD)
    assert found == list(range(len(found)))
    reader.close()


def test_closing_a_live_reader_ends_its_thread_and_closes_the_generator() -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    source = IterableSource(endless, bounded=False)
    reader = source.reader(source.splits(1)[0])
    read_until(reader, lambda found, end: bool(found))
    reader.close()
    assert closed.wait(60)


@pytest.mark.parametrize("bounded", [True, False])
def test_an_error_of_the_iterable_is_raised_after_the_elements_yielded_before_it(bounded: bool) -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    source = IterableSource(failing, bounded)
    reader = source.reader(source.splits(1)[0])
    assert read_until(reader, lambda found, end: bool(found), limit=1) == [1]
    with pytest.raises(ValueError, match="no more"):
        read_until(reader, lambda found, end: end)


@pytest.mark.parametrize(
    "runner", ["direct", "streaming", pytest.param("spark", marks=pytest.mark.xdist_group("spark"))]
)
def test_an_iterable_is_read_in_order_on_every_runner_and_may_have_timestamps(runner: str) -> None:
    def words() -> Iterator[Any]:
        yield from (tg.TimestampedValue(word, seconds) for seconds, word in enumerate(["to", "be", "or"]))

    found = collect(lambda p: {"words": p | tg.io.FromIterable(words)}, runner)
    assert [(element.value, element.micros) for element in found.seen["words"]] == [
        ("to", 0),
        ("be", 10**6),
        ("or", 2 * 10**6),
    ]


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_live_iterable_ends_the_run_when_it_ends(runner: str) -> None:
    found = collect(lambda p: {"numbers": p | tg.io.FromIterable(squares, bounded=False)}, runner)
    assert found.values("numbers") == [n * n for n in range(10)]


def test_the_element_type_comes_from_the_annotation_of_the_function() -> None:
    pipeline = tg.Pipeline()
    assert (pipeline | tg.io.FromIterable(squares)).element_type is int


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        ((n for n in range(3)), "needs a function that returns an iterable, not <generator"),
        ([1, 2], r"not \[1, 2\].*tg\.Create\(values\) emits the elements"),
        (lambda start, stop: range(start, stop), "has 2 parameters"),
    ],
)
def test_a_value_that_is_no_suitable_function_is_refused(fn: Any, message: str) -> None:
    with pytest.raises(tg.BuildError, match=message):
        tg.io.FromIterable(fn)
