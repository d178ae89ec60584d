"""The results that a region stores for the regions after it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.network.blocking_exchange import (
    SubpartitionReader,
    SubpartitionWriter,
    subpartition_file,
)
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import RunError

ID = ChannelId(3, 1, 0)


def write_blocks(directory: Path, blocks: list[Block], attempt: int = 1) -> SubpartitionWriter:
    writer = SubpartitionWriter(directory, ID, attempt)
    for block in blocks:
        writer.write(block)
    return writer


def read_all(directory: Path) -> list[object]:
    reader = SubpartitionReader(directory, ID)
    taken: list[object] = []
    while reader.ready:
        item = reader.take()
        taken += item.values if isinstance(item, Block) else [item]
    return taken


def test_a_finished_subpartition_is_read_back_and_then_ends(tmp_path: Path) -> None:
    write_blocks(tmp_path, [Block([1, 2], [10, 20]), Block([("k", 3)])]).finish()
    assert read_all(tmp_path) == [1, 2, ("k", 3), CollectionStatus(ended=True)]


def test_an_empty_subpartition_has_no_file_and_ends_at_once(tmp_path: Path) -> None:
    write_blocks(tmp_path, []).finish()
    assert list(tmp_path.iterdir()) == []
    assert read_all(tmp_path) == [CollectionStatus(ended=True)]


def test_an_attempt_without_elements_removes_those_of_the_attempt_before(tmp_path: Path) -> None:
    write_blocks(tmp_path, [Block([1])]).finish()
    write_blocks(tmp_path, [], attempt=2).finish()
    assert read_all(tmp_path) == [CollectionStatus(ended=True)]


def test_what_several_rounds_have_written_is_read_in_their_order(tmp_path: Path) -> None:
    for round in (3, 1):
        writer = SubpartitionWriter(tmp_path, ID, 1, round)
        writer.write(Block([f"round {round}"]))
        writer.finish()
    reader = SubpartitionReader(tmp_path, ChannelId(9, 1, 0), ID, rounds=(1, 2, 3))
    assert [value for block in reader.blocks() for value in block.values] == ["round 1", "round 3"]


def test_an_unfinished_subpartition_is_not_read(tmp_path: Path) -> None:
    writer = write_blocks(tmp_path, [Block([1])])
    assert read_all(tmp_path) == [CollectionStatus(ended=True)]
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_the_subpartition_of_the_attempt_that_finished_is_read(tmp_path: Path) -> None:
    abandoned = write_blocks(tmp_path, [Block([1])], attempt=1)
    write_blocks(tmp_path, [Block([2])], attempt=2).finish()
    assert read_all(tmp_path) == [2, CollectionStatus(ended=True)]
    abandoned.abandon()


@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_a_damaged_subpartition_is_refused(tmp_path: Path, damage: str) -> None:
    write_blocks(tmp_path, [Block(list(range(100)))]).finish()
    path = tmp_path / subpartition_file(ID)
    data = bytearray(path.read_bytes())
    if damage == "torn":
        del data[-5:]
    else:
        data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunError, match="is damaged"):
        read_all(tmp_path)


def test_a_restored_task_skips_a_subpartition_that_it_has_read(tmp_path: Path) -> None:
    write_blocks(tmp_path, [Block([1])]).finish()
    reader = SubpartitionReader(tmp_path, ID)
    reader.skip()
    assert reader.take() == CollectionStatus(ended=True)


def test_what_all_tasks_read_is_stored_once(tmp_path: Path) -> None:
    def with_files(_: int, numbers: list[int]) -> tuple[int, str]:
        return sum(numbers), " ".join(sorted(path.name for path in tmp_path.rglob("run-*")))

    p = tg.Pipeline(options=["--runner", "streaming", "--workers", "2", "--temp_dir", str(tmp_path)])
    numbers = p | "numbers" >> tg.Create(range(5000))  # which both tasks read, a part each
    shown = p | tg.Create(range(3000)) | tg.Reshuffle() | tg.Map(with_files, tg.AsList(numbers))
    (result,) = set(shown.collect(limit=None))
    assert result == (sum(range(5000)), "run-2.0.0 run-2.1.0")
