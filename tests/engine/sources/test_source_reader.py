"""Reading the splits of a source: their order, the watermark, and the positions to resume from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine.sources.source_reader import SourceReader
from tidegate.runners.engine.sources.source_step import SourceStep
from tidegate.runners.engine.sources.split_reader import SplitReader
from tidegate.runners.engine.time.clock import ManualClock
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.sdk.time import MIN_MICROS, SECOND
from tidegate.sdk.user_code.frames import Where


class ScriptedSource(tg.io.Source[int]):
    """Each split is a list of batches that its reader returns in order."""

    def __init__(self, *scripts: list[tg.io.Batch], bounded: bool = False) -> None:
        self.scripts = scripts
        self.bounded = bounded
        self.closed: list[int] = []
        self.closing: Callable[[], None] = lambda: None

    def splits(self, desired: int) -> list[tg.io.Split]:
        return [tg.io.Split(str(number)) for number in range(len(self.scripts))]

    def reader(self, split: tg.io.Split, position: Any = None) -> tg.io.Reader[int]:
        return ScriptedReader(self, int(split.id), position or 0)


class ScriptedReader(tg.io.Reader[int]):
    def __init__(self, source: ScriptedSource, number: int, at: int) -> None:
        self.source = source
        self.number = number
        self.at = at

    def read(self, limit: int) -> tg.io.Batch:
        self.at += 1
        return self.source.scripts[self.number][self.at - 1]

    def position(self) -> Any:
        return self.at

    def close(self) -> None:
        self.source.closed.append(self.number)
        self.source.closing()


def batch(*values: int, watermark: int | None = None, idle: bool = False, end: bool = False) -> tg.io.Batch:
    return tg.io.Batch(tg.io.Block.of(list(values)), watermark=watermark, idle=idle, end=end)


def empty_batch(*, wait: float = 0.0, idle: bool = False) -> tg.io.Batch:
    return tg.io.Batch(tg.io.Block.of([]), wait=wait, idle=idle)


def step_of(source: ScriptedSource) -> SourceStep:
    return SourceStep("Reading", Where("page.py", 1), source, source.bounded)


def reader_of(source: ScriptedSource, clock: ManualClock | None = None, **options: Any) -> SourceReader:
    reader = SourceReader(step_of(source), clock or ManualClock(), **options)
    reader.assign([(split, None) for split in source.splits(1)], more=False)
    return reader


def values(reader: SourceReader, polls: int) -> list[list[int]]:
    return [[] if (block := reader.poll(10)) is None else list(block.values) for _ in range(polls)]


def test_live_splits_are_polled_in_turn() -> None:
    source = ScriptedSource([batch(1), batch(2)], [batch(10), batch(20)])
    assert values(reader_of(source), 4) == [[1], [10], [2], [20]]


def test_a_bounded_split_is_read_to_its_end_before_the_next_is_opened() -> None:
    source = ScriptedSource([batch(1), batch(2, end=True)], [batch(10, end=True)], bounded=True)
    reader = reader_of(source)
    assert values(reader, 2) == [[1], [2]]
    assert (source.closed, reader.finished, reader.status.ended) == ([0], ["0"], False)
    assert values(reader, 1) == [[10]]
    assert (source.closed, reader.finished, reader.status.ended) == ([0, 1], ["0", "1"], True)


def test_the_watermark_is_the_minimum_over_the_splits_that_are_not_idle() -> None:
    source = ScriptedSource(
        [batch(1, watermark=5), batch(2, watermark=9), empty_batch(idle=True)],
        [batch(3, watermark=7), batch(4), empty_batch(idle=True)],
    )
    reader = reader_of(source)
    statuses = []
    for _ in range(5):
        reader.poll(10)
        statuses.append(reader.status)
    assert statuses == [
        CollectionStatus(MIN_MICROS),
        CollectionStatus(5),
        CollectionStatus(7),
        CollectionStatus(7),
        CollectionStatus(7),
    ]
    reader.poll(10)
    assert reader.status == CollectionStatus(9, idle=True)


def test_a_waiting_split_is_not_polled_early_while_another_is_polled() -> None:
    clock = ManualClock()
    reader = reader_of(
        ScriptedSource(
            [empty_batch(wait=3.0), batch(1)], [batch(10), empty_batch(wait=1.0), batch(20), empty_batch(wait=9.0)]
        ),
        clock,
    )
    assert values(reader, 4) == [[], [10], [], []]
    assert reader.next_poll == SECOND
    clock.advance(SECOND)
    assert values(reader, 1) == [[20]]
    clock.advance(2 * SECOND)
    assert values(reader, 1) == [[1]]


def test_a_split_too_far_ahead_pauses_while_the_others_continue() -> None:
    reader = reader_of(
        ScriptedSource([batch(1, watermark=50)] * 3, [batch(10, watermark=20)] * 3), max_watermark=lambda: 30
    )
    assert values(reader, 4) == [[1], [10], [10], [10]]


def test_a_new_reader_resumes_at_the_positions() -> None:
    source = ScriptedSource([batch(1, end=True)], [batch(2), batch(3, end=True)], [batch(4, end=True)], bounded=True)
    reader = reader_of(source)
    assert values(reader, 2) == [[1], [2]]
    assert (reader.finished, reader.positions()) == (["0"], [("1", 1), ("2", None)])
    resumed = SourceReader(step_of(source), ManualClock())
    resumed.assign([(tg.io.Split(id), position) for id, position in reader.positions()], more=False)
    assert values(resumed, 2) == [[3], [4]]
    assert resumed.status.ended


def test_a_stopped_source_ends_and_counts_its_splits_as_finished() -> None:
    source = ScriptedSource([batch(1)], [batch(2)])
    reader = reader_of(source)
    reader.poll(10)
    reader.stop()
    assert reader.poll(10) is None
    assert (reader.status.ended, reader.finished, reader.positions()) == (True, ["0", "1"], [])
    assert source.closed == [0, 1]


def test_splits_are_requested_once_when_all_have_been_read() -> None:
    reader = SourceReader(step_of(ScriptedSource([batch(1, end=True)], bounded=True)), ManualClock())
    assert (reader.poll(10), reader.take_request(), reader.take_request()) == (None, True, False)
    reader.assign([(tg.io.Split("0"), None)], more=True)
    assert values(reader, 1) == [[1]]
    assert (reader.take_request(), reader.status.ended) == (True, False)


def test_an_error_of_closing_a_reader_names_the_step() -> None:
    source = ScriptedSource([batch(1, end=True)], bounded=True)
    source.closing = fail
    with pytest.raises(tg.UserCodeError, match=r"(?s)no more.*in step 'Reading', applied at page.py:1.*calling close"):
        reader_of(source).poll(10)
    assert source.closed == [0]


def test_a_reader_is_closed_at_the_end_of_its_split_and_after_an_error() -> None:
    source = ScriptedSource([batch(1), empty_batch(), batch(2, end=True)], [batch(3)], bounded=True)
    complete, failing = (SplitReader(step_of(source), split, ManualClock()) for split in source.splits(1))
    assert [list(block.values) for block in complete.blocks(10)] == [[1], [2]]
    assert source.closed == [0]
    source.closing = fail
    with pytest.raises(tg.UserCodeError, match="IndexError"):
        list(failing.blocks(10))
    assert source.closed == [0, 1]


class Mixed(ScriptedSource):
    """Splits that are bounded or unbounded, as given by `bounded_splits`."""

    def __init__(self, *scripts: list[tg.io.Batch], bounded_splits: tuple[bool, ...]) -> None:
        super().__init__(*scripts)
        self.bounded_splits = bounded_splits

    def splits(self, desired: int) -> list[tg.io.Split]:
        return [tg.io.Split(str(number), bounded=bounded) for number, bounded in enumerate(self.bounded_splits)]


def test_bounded_splits_of_an_unbounded_source_are_read_one_by_one_beside_the_others() -> None:
    source = Mixed(
        [batch(1), batch(2, end=True)], [batch(10), batch(20)], [batch(3, end=True)], bounded_splits=(True, False, True)
    )
    reader = reader_of(source)
    assert values(reader, 4) == [[10], [1], [20], [2]]
    assert reader.finished == ["0"]
    assert [id for id, _ in reader.positions()] == ["1", "2"]


def test_more_splits_are_requested_while_only_unbounded_ones_are_read() -> None:
    source = Mixed([batch(1), batch(2), batch(3), batch(4)], [batch(10, end=True)], bounded_splits=(False, True))
    reader = SourceReader(step_of(source), ManualClock())
    unbounded, bounded = source.splits(1)
    reader.assign([(unbounded, None)], more=True)
    assert (values(reader, 1), reader.take_request()) == ([[1]], True)
    assert (values(reader, 1), reader.take_request()) == ([[2]], False)
    reader.assign([(bounded, None)], more=True)
    assert (values(reader, 1), reader.take_request()) == ([[10]], True)
    assert (values(reader, 1), reader.take_request()) == ([[3]], False)


def test_a_split_discovered_later_holds_the_watermark_from_its_first_element_on() -> None:
    source = ScriptedSource(
        [batch(1, watermark=50), batch(2, watermark=60), batch(3, watermark=90)],
        [empty_batch(), batch(10, watermark=55), empty_batch()],
    )
    clock = ManualClock()
    reader = SourceReader(step_of(source), clock)
    first, later = source.splits(1)
    reader.assign([(first, None)], more=True, backlog=False)
    statuses = []
    reader.poll(10)
    statuses.append(reader.status)
    reader.assign([(later, None)], more=True, backlog=False, late={later.id})
    for _ in range(4):
        reader.poll(10)
        clock.advance(SECOND)
        statuses.append(reader.status)
    assert [status.watermark for status in statuses] == [50, 50, 60, 60, 60]
    assert reader.active_watermarks == [90, 55]


def test_a_late_split_that_was_read_before_a_restart_holds_the_watermark_immediately() -> None:
    source = ScriptedSource([batch(1, watermark=50)], [empty_batch()])
    reader = SourceReader(step_of(source), ManualClock())
    first, later = source.splits(1)
    reader.assign([(first, 0), (later, 0)], more=True, backlog=False, late={later.id})
    reader.poll(10)
    reader.poll(10)
    assert reader.status == CollectionStatus(MIN_MICROS)


def test_the_watermark_waits_for_the_backlog_and_is_idle_when_nothing_is_left_to_read() -> None:
    source = ScriptedSource([batch(1, watermark=50, end=True)], [batch(2, watermark=40, end=True)], bounded=True)
    reader = SourceReader(step_of(source), ManualClock())
    first, second = source.splits(1)
    reader.assign([(first, None)], more=True, backlog=True)
    reader.poll(10)
    assert (reader.status, reader.take_request()) == (CollectionStatus(MIN_MICROS), True)
    reader.assign([(second, None)], more=True, backlog=False)
    reader.poll(10)
    assert (reader.status, reader.next_poll) == (CollectionStatus(50), 0)
    reader.poll(10)
    assert reader.status == CollectionStatus(50, idle=True)
    assert (reader.next_poll, reader.take_request()) == (None, True)
    reader.assign([], more=False)
    assert reader.next_poll == 0
    reader.poll(10)
    assert reader.status.ended


def test_finished_splits_are_forgotten_when_a_checkpoint_has_recorded_them() -> None:
    source = ScriptedSource([batch(1, end=True)], [batch(2, end=True)], bounded=True)
    reader = reader_of(source)
    reader.poll(10)
    recorded = len(reader.finished)
    reader.poll(10)
    reader.forget_finished(recorded)
    assert reader.finished == ["1"]


class Endless(tg.io.Reader[int]):
    def __init__(self) -> None:
        self.at = 0

    def read(self, limit: int) -> tg.io.Batch:
        self.at += limit
        return batch(*range(self.at - limit, self.at))

    def position(self) -> Any:
        return self.at


class EndlessSource(ScriptedSource):
    def reader(self, split: tg.io.Split, position: Any = None) -> tg.io.Reader[int]:
        return Endless()


@pytest.mark.parametrize(
    ("rate", "tasks", "readers", "expected"),
    [(100.0, 1, None, 1000), (100.0, 4, None, 250), (100.0, 4, 2, 500), (0.5, 1, 1, 5)],
)
def test_a_step_reads_no_more_elements_than_its_rate_limit_allows(
    rate: float, tasks: int, readers: int | None, expected: int
) -> None:
    clock = ManualClock()
    source = EndlessSource([], [])
    step = SourceStep("Reading", Where("page.py", 1), source, bounded=False, rate_limit=rate)
    reader = SourceReader(step, clock, tasks=tasks)
    reader.assign([(split, None) for split in source.splits(1)], more=False, tasks=readers)
    tasks = readers or tasks
    count = polls = 0
    while clock.monotonic() < 10 * SECOND:
        block = reader.poll(4096)
        count += 0 if block is None else len(block)
        assert count <= rate / tasks * clock.monotonic() / SECOND + 1
        assert reader.next_poll is not None
        clock.advance(max(0, reader.next_poll - clock.monotonic()))
        polls += 1
    assert abs(count - expected) <= max(2, rate / tasks / 10)
    assert polls < 500


def fail() -> None:
    raise OSError("no more")
