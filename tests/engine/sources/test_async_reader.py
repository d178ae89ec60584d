"""Asynchronous readers run on a separate loop, never block the engine, and lose no element when resumed."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine.event_loop import suspended_loop
from tidegate.runners.engine.sources.async_reader import AsyncReaderAdapter
from tidegate.runners.engine.sources.source_step import SourceStep
from tidegate.runners.engine.sources.split_reader import SplitReader
from tidegate.runners.engine.time.clock import SystemClock
from tidegate.sdk.user_code.frames import Where

TIMEOUT = 60.0


class Counting(tg.io.AsyncReader[int]):
    """Counts to `stop`, one number per batch; waits before numbers above `allowed`."""

    def __init__(self, stop: int, number: int = 0, allowed: int | None = None) -> None:
        self.stop = stop
        self.number = number
        self.allowed = allowed
        self.closed = 0
        self.cancelled = False
        self.threads: set[int] = set()

    async def read(self, limit: int) -> tg.io.Batch:
        self.threads.add(threading.get_ident())
        try:
            while self.allowed is not None and self.number >= self.allowed:
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        self.number += 1
        return tg.io.Batch(tg.io.Block.of([self.number]), end=self.number == self.stop)

    def position(self) -> tg.io.Position:
        return self.number

    async def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed += 1


class Source(tg.io.Source[int]):
    def __init__(self, reader: tg.io.AsyncReader[int]) -> None:
        self.made = reader

    def splits(self, desired: int) -> list[tg.io.Split]:
        return [tg.io.Split("all")]

    def reader(self, split: tg.io.Split, position: tg.io.Position = None) -> tg.io.AsyncReader[int]:
        return self.made


def read_next(reader: AsyncReaderAdapter) -> Any:
    """The next batch with elements."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        batch = reader.read(10)
        assert isinstance(batch.block, tg.io.Block)
        if len(batch.block):
            return batch
        reader.wait(1.0)
        assert time.monotonic() < deadline


def test_the_position_is_that_of_the_last_batch_returned_while_the_next_is_prefetched() -> None:
    author = Counting(10)
    reader = AsyncReaderAdapter(author, None)
    assert reader.position() is None
    assert read_next(reader).block.values == [1]
    reader.wait(TIMEOUT)
    assert (author.number, reader.position()) == (2, 1)
    reader.close()


def test_a_waiting_read_does_not_block_and_wakes_the_engine_when_it_completes() -> None:
    woken = threading.Event()
    author = Counting(10, allowed=0)
    reader = AsyncReaderAdapter(author, None, woken.set)
    batch = reader.read(10)
    assert (len(batch.block), batch.wait > 0, reader.ready) == (0, True, False)
    author.allowed = 1
    assert woken.wait(TIMEOUT)
    assert reader.ready
    assert read_next(reader).block.values == [1]
    reader.close()


def test_all_readers_share_one_thread_that_ends_with_the_last_reader() -> None:
    threads = threading.active_count()
    authors = [Counting(5), Counting(5)]
    readers = [AsyncReaderAdapter(author, None) for author in authors]
    for reader in readers:
        read_next(reader)
    assert threading.active_count() == threads + 1
    for reader in readers:
        reader.close()
    assert threading.active_count() == threads
    assert authors[0].threads == authors[1].threads != {threading.get_ident()}
    assert [author.closed for author in authors] == [1, 1]


def test_a_waiting_read_is_cancelled_when_the_reader_is_closed() -> None:
    author = Counting(5, allowed=0)
    reader = AsyncReaderAdapter(author, None)
    reader.read(10)
    deadline = time.monotonic() + TIMEOUT
    while not author.threads:
        assert time.monotonic() < deadline
    reader.close()
    assert (author.cancelled, author.closed) == (True, 1)


def test_the_thread_of_readers_ends_for_a_fork_and_reading_continues_after_it() -> None:
    threads = threading.active_count()
    author = Counting(10, allowed=1)
    reader = AsyncReaderAdapter(author, None)
    read_next(reader)
    with suspended_loop(TIMEOUT):
        assert threading.active_count() == threads
        author.allowed = None
    assert read_next(reader).block.values == [2]
    reader.close()


class Failing(Counting):
    async def read(self, limit: int) -> tg.io.Batch:
        raise OSError("connection lost")


def test_an_error_of_an_asynchronous_reader_names_the_step() -> None:
    author = Failing(5)
    step = SourceStep("Reading", Where("page.py", 1), Source(author))
    with pytest.raises(tg.UserCodeError, match=r"(?s)connection lost.*in step 'Reading', applied at page.py:1"):
        list(SplitReader(step, tg.io.Split("all"), SystemClock()).blocks(10))
    assert author.closed == 1


def test_a_split_is_read_to_its_end() -> None:
    step = SourceStep("Reading", Where("page.py", 1), Source(Counting(50)))
    blocks = SplitReader(step, tg.io.Split("all"), SystemClock()).blocks(10)
    assert [value for block in blocks for value in block.values] == list(range(1, 51))
