"""Rows have a size that Spark supports, for elements of any length, and arrive at the right partition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.spark.worker.test_task import work_of
from tidegate.runners.plan import Edge, Exchange
from tidegate.runners.planner import Traits, plan
from tidegate.runners.spark.shuffle import row_codec
from tidegate.runners.spark.shuffle.partitioner import Partitioner
from tidegate.runners.spark.shuffle.row_codec import (
    RESULT,
    OutgoingRows,
    decode_result,
    encode_result,
    read_rows,
    reassembled,
    record_batch,
)
from tidegate.runners.spark.side_inputs.broadcast import SideInputWriter
from tidegate.runners.spark.worker.task import LevelTask
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import RunError

MB = 1 << 20


def router(out: OutgoingRows, routing: Any = "hash") -> Partitioner:
    p = tg.Pipeline()
    _ = p | tg.Create([(1, 2)]) | tg.CombinePerKey(sum) | tg.Map(print)
    planned = plan(p.portable(), Traits(parallel=True, blocking=True))
    edge = next(e for e in planned.edges if e.exchange is not None)
    return Partitioner(
        planned, Edge(edge.collection, edge.source, edge.target, Exchange(routing, "blocking", "")), 5, 0, 0, 2, out
    )


def test_rows_stay_short_if_long_elements_follow_short_ones() -> None:
    out = OutgoingRows()
    routing = router(out)
    routing.write(Block([(n, "short") for n in range(4_000)]))
    for _ in range(20):
        routing.write(Block([(n, str(n) * 25_000) for n in range(200)]))
    routing.close()
    sizes = [len(data) for *_, data in read_rows(out.batches())]
    assert sum(sizes) > 200 * MB
    assert max(sizes) < 64 * MB
    assert len(sizes) > 6


def test_batches_have_about_the_requested_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_codec, "BATCH_BYTES", 1_000)
    out = OutgoingRows()
    for seq in range(10):
        out.send(0, 1, 0, seq, bytes(400))
    assert [batch.num_rows for batch in out.batches()] == [3, 3, 3, 1]
    assert list(out.batches()) == []


def test_the_pieces_of_a_long_result_may_arrive_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_codec, "MAX_ROW_BYTES", 100)
    out = OutgoingRows()
    next_seq = out.send(0, RESULT, 3, 0, encode_result("side", "x" * 950))
    out.send(0, RESULT, 3, next_seq, encode_result("side", "short"))
    out.send(0, RESULT, 2, 0, encode_result("side", "first"))
    found = [(src, seq, remaining, bytes(data)) for _, _, src, seq, remaining, data in read_rows(out.batches())]
    assert len(found) == next_seq + 2 > 10
    assert [decode_result(data) for data in reassembled(reversed(found))] == [
        ("side", "first"), ("side", "x" * 950), ("side", "short"),
    ]  # fmt: skip


def test_long_elements_of_a_side_input_are_sent_in_more_rows() -> None:
    p = tg.Pipeline()
    elements = p | tg.Create([1])
    _ = p | "main" >> tg.Create([1]) | tg.Map(lambda x, side: x, tg.AsList(elements))
    planned = plan(p.portable(), Traits(parallel=True, blocking=True))
    sent: list[int] = []
    aside = SideInputWriter("Create", planned.steps[0], 0, lambda kind, value: sent.append(len(value[3])))
    for _ in range(100):
        aside.write(Block(["x" * 50_000 for _ in range(20)]))
    aside.close()
    assert sum(sent) > 90 * MB
    assert max(sent) < 16 * MB


def test_results_of_one_element_are_sent_before_it_has_emitted_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only some of the results are in memory at a time."""
    monkeypatch.setattr(row_codec, "BATCH_BYTES", MB)

    def much(_: int, log: str) -> Iterator[str]:
        for n in range(50):
            Path(log).write_text(str(n))
            yield from (f"{n} {m} {'x' * 1_000}" for m in range(1_000))

    log = tmp_path / "log"
    spec = work_of(lambda p: p | tg.Create([1]) | tg.FlatMap(much, str(log)) | tg.Reshuffle() | tg.Map(print), 2)
    batches = LevelTask(spec, "run", 0, 0).run(iter(()))
    size = next(batches).nbytes
    assert int(log.read_text()) < 25
    assert sum((batch.nbytes for batch in batches), size) > 50 * MB * 0.95


def test_a_row_in_the_wrong_partition_is_refused() -> None:
    spec = work_of(lambda p: p | tg.Create([(1, 2)]) | tg.GroupByKey() | tg.Map(print), 2)
    (batch,) = [
        row
        for batch in LevelTask(spec, "run", 0, 0).run(iter(()))
        for row in batch.to_pylist()
        if row["edge"] != RESULT
    ]  # fmt: skip
    row = tuple(batch[name] for name in row_codec.COLUMNS)
    here = batch["target"]
    assert list(LevelTask(spec, "run", 1, here).run(iter([record_batch([row])])))  # type: ignore[list-item]
    with pytest.raises(RunError, match=f"sent a row for partition {here} to partition {1 - here}"):
        list(LevelTask(spec, "run", 1, 1 - here).run(iter([record_batch([row])])))  # type: ignore[list-item]
