"""The reader protocol of a minimal source, and the order of committables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink, in_order
from tidegate.sdk.connectors.sources import Reader, SimpleSource, Split
from tidegate.sdk.errors import WriteError


@dataclass(frozen=True)
class Squares(SimpleSource[int]):
    count: int
    closed: list[int]

    def generate(self, split: Split, position: Any) -> Iterator[tuple[int, int]]:
        try:
            for n in range(position or 0, self.count):
                yield n + 1, n * n
        finally:
            self.closed.append(1)


def drain(reader: Reader[Any], limit: int = 3) -> list[Any]:
    values: list[Any] = []
    while True:
        batch = reader.read(limit)
        assert len(batch.block) <= limit
        values += batch.block.values
        if batch.end:
            return values


def test_a_generator_is_a_source_that_resumes_after_any_element() -> None:
    source = Squares(7, [])
    [split] = source.splits(4)
    expected = [n * n for n in range(7)]
    assert drain(source.reader(split)) == expected
    for count in range(1, 8):
        first = source.reader(split)
        assert list(first.read(count).block.values) == expected[:count]
        position = json.loads(json.dumps(first.position()))
        assert drain(source.reader(split, position)) == expected[count:]


def test_a_reader_that_has_not_read_yet_is_at_the_position_it_resumed_from() -> None:
    source = Squares(7, [])
    [split] = source.splits(1)
    assert source.reader(split).position() is None
    assert source.reader(split, 5).position() == 5


def test_closing_a_reader_ends_its_generator() -> None:
    source = Squares(7, [])
    reader = source.reader(Split("all"))
    reader.read(2)
    reader.close()
    assert source.closed == [1]


def test_committables_are_ordered_by_task_and_replays_are_dropped() -> None:
    late, early = Committable((10, 0), "b"), Committable((2, 1), "a")
    assert in_order([late, early, late]) == [early, late]


def test_two_attempts_of_one_task_in_a_commit_are_refused() -> None:
    with pytest.raises(WriteError, match="piece 0 of writing task 3 is in one commit twice, from two attempts"):
        in_order([Committable((3, 0), "one"), Committable((3, 0), "other")])


def test_a_sink_that_prepares_committables_must_have_a_commit() -> None:
    class WithoutCommit(Sink[int]):
        def attempt(self, run: str, task: int) -> Attempt[int]:
            raise AssertionError

    sink = WithoutCommit()
    assert sink.delivery == "at_least_once"
    sink.commit("run", [])
    with pytest.raises(NotImplementedError, match="WithoutCommit prepares committables but has no commit"):
        sink.commit("run", [Committable((0, 0), None)])
