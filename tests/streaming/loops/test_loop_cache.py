"""What a task in the body of a loop keeps in memory from round to round."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.streaming.rounds.loop_cache import LoopCache
from tidegate.sdk.data.block import Block

CHANNEL = ChannelId(1, 0, 0)


@pytest.mark.parametrize(("budget", "regions", "reads"), [(100_000, 1, 1), (100, 1, 3), (100_000, 1_000, 3)])
def test_blocks_are_read_again_only_if_they_exceed_their_budget(budget: int, regions: int, reads: int) -> None:
    cache = LoopCache(regions)
    begun = 0

    def stored() -> Iterator[Block]:
        nonlocal begun
        begun += 1
        yield Block([1, 2])
        yield Block(["three", "four"])
        yield Block([5])

    for _ in range(3):
        blocks = cache.kept_blocks(CHANNEL, stored(), budget)
        assert [value for block in blocks for value in block.values] == [1, 2, "three", "four", 5]
    assert begun == reads


def test_blocks_that_were_not_read_to_their_end_are_read_again() -> None:
    cache = LoopCache()
    assert next(cache.kept_blocks(CHANNEL, iter([Block([1]), Block([2])]), 100_000)).values == [1]
    again = cache.kept_blocks(CHANNEL, iter([Block([1]), Block([2])]), 100_000)
    assert [value for block in again for value in block.values] == [1, 2]
