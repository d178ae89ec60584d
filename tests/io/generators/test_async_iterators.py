"""`FromAsyncIterator`: asynchronous iterators as live sources, resumed by the number of elements read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.io.generators.async_iterators import AsyncIteratorSource

ALL = [n * n for n in range(10)]


async def squares() -> AsyncIterator[int]:
    for n in range(10):
        await asyncio.sleep(0)
        yield n * n


async def squares_from(skip: int) -> AsyncIterator[int]:
    for n in range(skip, 10):
        yield n * n


async def read(source: AsyncIteratorSource, position: Any, limit: int, count: int | None) -> tuple[list[Any], Any]:
    """Read at least `count` elements, or all of them; return them with the reader's position."""
    reader = source.reader(source.splits(1)[0], position)
    found: list[Any] = []
    try:
        while count is None or len(found) < count:
            batch = await reader.read(limit)
            assert len(batch.block) <= limit
            found += batch.block.values  # type: ignore[union-attr]
            if batch.end:
                break
        return found, json.loads(json.dumps(reader.position()))
    finally:
        await reader.close()


@pytest.mark.parametrize("fn", [squares, squares_from])
@pytest.mark.parametrize("stopped_after", range(1, 11))
def test_a_reader_resumes_with_the_next_element(fn: Any, stopped_after: int) -> None:
    async def twice() -> list[Any]:
        source = AsyncIteratorSource(fn)
        first, position = await read(source, None, 1, stopped_after)
        return first + (await read(source, position, 3, None))[0]

    assert asyncio.run(twice()) == ALL


def test_an_iterator_that_became_shorter_is_refused_when_resuming() -> None:
    with pytest.raises(tg.io.PositionLost, match="squares yielded 10 elements, but 11 had been read before"):
        asyncio.run(read(AsyncIteratorSource(squares), 11, 1, None))


def test_an_error_of_the_iterator_is_raised_after_the_elements_yielded_before_it() -> None:
    async def failing() -> AsyncIterator[int]:
        yield 1
        raise ValueError("no more")

    async def both() -> None:
        source = AsyncIteratorSource(failing)
        assert await read(source, None, 1, 1) == ([1], 1)
        with pytest.raises(ValueError, match="no more"):
            await read(source, None, 1, None)

    asyncio.run(both())


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_an_asynchronous_iterator_is_read_to_its_end_on_runners_that_support_streams(runner: str) -> None:
    found = collect(lambda p: {"numbers": p | tg.io.FromAsyncIterator(squares)}, runner)
    assert found.values("numbers") == ALL


def test_a_value_that_is_no_function_is_refused() -> None:
    with pytest.raises(tg.BuildError, match="FromAsyncIterator needs a function that returns an asynchronous iterator"):
        tg.io.FromAsyncIterator(squares())  # type: ignore[arg-type]
