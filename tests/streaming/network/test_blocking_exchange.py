"""Results kept between regions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.model.topology import ChannelId
from tidegate.runners.streaming.network.blocking_exchange import (
    SubpartitionReader,
    SubpartitionWriter,
    subpartition_file,
)
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import RunError

ID = ChannelId(3, 1, 0)


def written(directory: Path, blocks: list[Block], attempt: int = 1) -> SubpartitionWriter:
    writer = SubpartitionWriter(directory, ID, attempt)
    for block in blocks:
        writer.write(block)
    return writer


def all_of(directory: Path) -> list[object]:
    reader = SubpartitionReader(directory, ID)
    taken: list[object] = []
    while reader.ready:
        item = reader.take()
        taken += item.values if isinstance(item, Block) else [item]
    return taken


def test_a_finished_subpartition_is_read_back_and_then_ends(tmp_path: Path) -> None:
    written(tmp_path, [Block([1, 2], [10, 20]), Block([("k", 3)])]).finish()
    assert all_of(tmp_path) == [1, 2, ("k", 3), CollectionStatus(ended=True)]


def test_nothing_written_is_nothing_read(tmp_path: Path) -> None:
    written(tmp_path, []).finish()
    assert list(tmp_path.iterdir()) == []
    assert all_of(tmp_path) == [CollectionStatus(ended=True)]


def test_a_run_that_is_not_finished_is_not_found(tmp_path: Path) -> None:
    writer = written(tmp_path, [Block([1])])
    assert all_of(tmp_path) == [CollectionStatus(ended=True)]
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_the_attempt_that_finishes_is_the_one_that_counts(tmp_path: Path) -> None:
    given_up = written(tmp_path, [Block([1])], attempt=1)
    written(tmp_path, [Block([2])], attempt=2).finish()
    assert all_of(tmp_path) == [2, CollectionStatus(ended=True)]
    given_up.abandon()


@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    written(tmp_path, [Block(list(range(100)))]).finish()
    path = tmp_path / subpartition_file(ID)
    data = bytearray(path.read_bytes())
    if damage == "torn":
        del data[-5:]
    else:
        data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunError, match="is damaged"):
        all_of(tmp_path)


def test_a_state_that_has_read_it_already_skips_it(tmp_path: Path) -> None:
    written(tmp_path, [Block([1])]).finish()
    reader = SubpartitionReader(tmp_path, ID)
    reader.skip()
    assert reader.take() == CollectionStatus(ended=True)
