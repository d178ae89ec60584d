"""The backlog of a loop is a queue, whatever of it is on disk."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from tidegate.runners.engine.iteration import backlog as module
from tidegate.runners.engine.iteration.backlog import NOTHING, Backlog, BacklogSnapshot
from tidegate.runners.engine.rescale import overlaid
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
            found = [(hops, value) for hops, columns in backlog.stored() for value in columns[0]]
            assert found == [(hops, value) for hops, value, _ in queue]
    assert spilled == (budget < 1_000_000)
    backlog.clear()
    assert (len(backlog), list(tmp_path.iterdir())) == (0, [])


def test_a_snapshot_is_read_a_piece_at_a_time_whatever_becomes_of_the_backlog(tmp_path: Path) -> None:
    backlog = Backlog(2_000, lambda: tmp_path)
    for serial in range(300):
        backlog.add(Block([serial], serial), serial % 3)
    backlog.take(1)
    names = {path.name for path in tmp_path.iterdir()}
    snapshot = BacklogSnapshot(backlog.stored(), 7, 1)
    while len(backlog):
        backlog.take(50)
    backlog.add(Block([1000], 0), 0)
    pieces = list(snapshot.pieces(16))
    assert max(count for _, count in pieces) == 16
    restored: Any = None
    for piece, _ in pieces:
        restored = overlaid(restored, pickle.loads(pickle.dumps(piece)))
    assert [(hops, *columns[0]) for hops, columns in restored.blocks] == [
        (serial % 3, serial) for serial in range(1, 300)
    ]
    assert (restored.watermark, restored.task) == (7, 1)
    assert names == {path.name for path in tmp_path.iterdir()} != set()
    del snapshot
    assert not any(tmp_path.iterdir())


def test_an_empty_backlog_has_a_snapshot() -> None:
    [(piece, count)] = BacklogSnapshot(Backlog(1, Path).stored(), 7, 1).pieces(16)
    assert isinstance(piece, BacklogSnapshot)
    assert (list(piece.blocks), piece.watermark, count) == ([], 7, 0)


def test_blocks_are_joined_that_have_gone_round_equally_often() -> None:
    backlog = Backlog(1_000_000, Path)
    for hops, text in ((1, "ab"), (1, "c"), (1, "def"), (2, "g")):
        backlog.add(Block(list(text), 0), hops)
    taken = [backlog.take(4) for _ in range(3)]
    assert [(hops, "".join(block.values)) for hops, block in taken] == [(1, "abc"), (1, "def"), (2, "g")]
