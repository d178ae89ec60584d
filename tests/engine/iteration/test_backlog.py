"""The backlog of a loop is a queue, whatever of it is on disk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tidegate.runners.engine.iteration import backlog as module
from tidegate.runners.engine.iteration.backlog import NOTHING, Backlog
from tidegate.sdk.data.block import Block


@pytest.mark.parametrize("budget", [1, 2_000, 1_000_000])
@pytest.mark.parametrize("file_size", [100, 1 << 20])
def test_a_backlog_is_a_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int, file_size: int) -> None:
    monkeypatch.setattr(module, "_FILE_SIZE", file_size)
    chance = random.Random(budget + file_size)
    backlog = Backlog(budget, lambda: tmp_path)
    queue: list[tuple[int, int, int]] = []
    spilled = False
    for serial in range(400):
        if chance.random() < 0.75 or not queue:
            times, hops = [chance.randrange(100) for _ in range(chance.randrange(1, 5))], chance.randrange(2)
            backlog.add(Block([serial] * len(times), times), hops)
            queue += [(hops, serial, at) for at in times]
        else:
            assert backlog.next_hops == queue[0][0]
            hops, block = backlog.take(6)
            taken = [(hops, value, at) for value, at in zip(block.values, block.timestamp_column(), strict=True)]
            assert taken == queue[: len(taken)]
            del queue[: len(taken)]
        spilled = spilled or any(tmp_path.iterdir())
        assert len(backlog) == len(queue)
        assert backlog.low == min((at for _, _, at in queue), default=NOTHING)
        if serial % 50 == 0:
            found = [(hops, value) for hops, block in backlog.entries() for value in block.values]
            assert found == [(hops, value) for hops, value, _ in queue]
    assert spilled == (budget < 1_000_000)
    backlog.clear()
    assert (len(backlog), list(tmp_path.iterdir())) == (0, [])


def test_blocks_are_joined_that_have_gone_round_equally_often() -> None:
    backlog = Backlog(1_000_000, Path)
    for hops, text in ((1, "ab"), (1, "c"), (1, "def"), (2, "g")):
        backlog.add(Block(list(text), 0), hops)
    taken = [backlog.take(4) for _ in range(3)]
    assert [(hops, "".join(block.values)) for hops, block in taken] == [(1, "abc"), (1, "def"), (2, "g")]
