"""Alignment of sources: a split that is ahead in event time waits for those of its own and of other workers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

import tidegate as tg
from tests.support.streaming.coordinator_harness import CoordinatorHarness, count_words_to_text, make_job, messages_sent
from tidegate.runners.streaming.protocol.worker_messages import Heartbeat, PeerWatermark
from tidegate.runners.streaming.worker.watermark_alignment import WatermarkAlignment
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.time import MIN_MICROS, SECOND
from tidegate.testing import TestPipeline


def test_a_split_waits_for_slower_splits_of_its_worker() -> None:
    alignment = WatermarkAlignment(5, 2)
    alignment.update_peers(None)
    alignment.add_source(lambda: [10, 30])
    alignment.add_source(list)
    assert alignment.min_watermark == 10
    assert alignment.max_watermark == 15


def test_a_split_waits_for_slower_splits_of_other_workers() -> None:
    alignment = WatermarkAlignment(5, 1)
    alignment.add_source(lambda: [10, 30])
    alignment.update_peers(2)
    assert alignment.max_watermark == 7


def test_no_split_advances_before_the_watermark_of_the_peers_is_known() -> None:
    alignment = WatermarkAlignment(5, 1)
    alignment.add_source(lambda: [10])
    assert alignment.max_watermark is not None
    assert alignment.max_watermark < 10


def test_alignment_waits_for_a_source_that_has_not_been_added_yet() -> None:
    alignment = WatermarkAlignment(5, 2)
    alignment.update_peers(None)
    alignment.add_source(lambda: [10])
    assert alignment.min_watermark == MIN_MICROS


def test_idle_sources_are_not_waited_for() -> None:
    alignment = WatermarkAlignment(5, 1)
    alignment.update_peers(None)
    alignment.add_source(list)
    assert alignment.min_watermark is None
    assert alignment.max_watermark is None


def test_a_worker_receives_the_minimum_watermark_of_its_peers() -> None:
    harness = CoordinatorHarness(make_job(count_words_to_text(), workers=3, drift=5))
    harness.ready()
    responses = [
        harness.from_worker(worker, Heartbeat((), MetricCells(), min_watermark=watermark))
        for worker, watermark in ((0, 30), (1, 20), (2, None))
    ]
    responses.append(harness.from_worker(0, Heartbeat((), MetricCells(), min_watermark=40)))
    assert [messages_sent(actions, PeerWatermark) for actions in responses] == [
        [PeerWatermark(MIN_MICROS)],
        [PeerWatermark(MIN_MICROS)],
        [PeerWatermark(20)],
        [PeerWatermark(20)],
    ]


STEP = {"slow": 1, "fast": 100}
"""Seconds of event time between consecutive elements."""


@dataclass(frozen=True)
class Clocks(Source[tuple[str, int]]):
    """Two unbounded splits whose event time advances at different rates; the slow one has 200 elements per second."""

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> list[Split]:
        return [Split(name) for name in STEP]

    def reader(self, split: Split, position: Position = None) -> Reader[tuple[str, int]]:
        return _Clock(split.id, position or 0)


class _Clock(Reader[tuple[str, int]]):
    def __init__(self, name: str, at: int) -> None:
        self._name = name
        self._at = at
        self._waited = True

    def read(self, limit: int) -> Batch:
        self._waited = not self._waited
        if not self._waited:
            return Batch(Block([], []), wait=0.005 if self._name == "slow" else 0.0)
        self._at += STEP[self._name]
        micros = self._at * SECOND
        return Batch(Block([(self._name, self._at)], micros), watermark=micros)

    def position(self) -> Position:
        return self._at


def progress(tmp_path: Path, *flags: str) -> dict[str, int]:
    """The event time (seconds) that each split reaches in one second, or in longer if a busy machine needs it."""
    for seconds in (1, 4, 16, 64):
        found = progress_in(seconds, tmp_path / str(seconds), *flags)
        if all(found.values()):
            break
    return found


def progress_in(seconds: int, folder: Path, *flags: str) -> dict[str, int]:
    """The event time (seconds) that each split reaches in a run of `seconds` seconds."""
    folder.mkdir()
    p = TestPipeline(options=["--runner", "streaming", "--run_for", str(seconds), *flags])
    lines = p | tg.Read(Clocks()) | tg.MapTuple(lambda name, at: f"{name} {at}")
    _ = lines | tg.io.WriteToText(str(folder / "out"))
    p.run()
    found = dict.fromkeys(STEP, 0)
    for path in folder.glob("out*"):
        for line in path.read_text().splitlines():
            name, at = line.split()
            found[name] = max(found[name], int(at))
    return found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_fast_split_stays_within_the_allowed_drift(workers: str, tmp_path: Path) -> None:
    found = progress(tmp_path, "--workers", workers, "--watermark_drift", "60")
    assert found["slow"] > 0
    assert STEP["fast"] <= found["fast"] <= found["slow"] + 60 + STEP["fast"]
