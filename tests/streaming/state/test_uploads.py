"""Checkpoints in a store that takes its time: the stream goes on meanwhile, and no checkpoint counts before its files
are there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.coordinator_harness import make_job
from tests.support.streaming.counting_job import windowed_counts
from tests.support.streaming.isolated_worker import IsolatedWorker
from tidegate.runners.streaming.protocol.worker_messages import (
    Acknowledge,
    AssignSplits,
    Cancel,
    CheckpointAborted,
    CheckpointCompleted,
    Decline,
    Deploy,
    Heartbeat,
    ListSplits,
    SplitsListed,
    TaskFailed,
    TriggerBarrier,
)
from tidegate.runners.streaming.state import uploads
from tidegate.runners.streaming.state.uploads import UploadingFileStore
from tidegate.runners.streaming.storage.background import Background
from tidegate.runners.streaming.worker.worker import Worker
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.time import SECOND

PATIENCE = 60.0


@dataclass
class Slow:
    """A store in which an upload stands still until the test lets it go on."""

    files: dict[str, bytes] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    error: Exception | None = None
    open: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)

    def put(self, name: str, data: bytes) -> None:
        self.begun.append(name)
        self.reached.set()
        assert self.open.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        self.files[name] = data

    def put_file(self, name: str, path: Path) -> None:
        self.put(name, path.read_bytes())

    def delete(self, name: str) -> None:
        del self.files[name]


class Remote(IsolatedWorker):
    """The world of a worker whose checkpoints are in such a store."""

    def __init__(self, folder: Path, *, room: int | None = None) -> None:
        super().__init__(folder)
        self.slow = Slow()
        self.woken = threading.Event()
        self.storage = self.slow
        self.background = Background(self.woken.set)
        self.files = UploadingFileStore(self.slow, self.background, lambda: folder, room=room)  # type: ignore[arg-type]

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.reported if isinstance(message, kind)]

    def acknowledged(self, checkpoint: int) -> list[Acknowledge]:
        return [ack for ack in self.of(Acknowledge) if ack.checkpoint == checkpoint]


class Working:
    """A worker that reads, counts and takes checkpoints, one round after another."""

    def __init__(self, world: Remote, write: Callable[[tg.Pipeline], Any] = windowed_counts) -> None:
        self.world = world
        self.job = make_job(write, workers=1)
        self.tasks = [task for region in range(len(self.job.plan.regions)) for task in self.job.topology.tasks(region)]
        self.worker = Worker(self.job, 0, 1, world)  # type: ignore[arg-type]
        self.worker.on_message(Deploy(0, tuple(self.tasks)))
        (source,) = [step for step in self.job.plan.steps if step.is_source]
        self.worker.on_message(ListSplits(source.id, 2))
        (listed,) = world.of(SplitsListed)
        (reads,) = [task for task in self.tasks if task.stage == source.stage]
        self.worker.on_message(AssignSplits(reads, source.id, listed.splits, more=False))

    def work(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.worker.work()
            self.world.clock.advance(SECOND // 100)

    def until(self, reached: Callable[[], Any]) -> None:
        """Work until something holds."""
        for _ in range(20_000):
            if reached():
                return
            self.work()
            self.world.woken.wait(0.001)
        raise AssertionError("that never happens")

    def blocked(self, checkpoint: int) -> None:
        """Trigger a checkpoint; its first upload stands still."""
        self.worker.on_message(TriggerBarrier(checkpoint, "checkpoint"))
        self.until(self.world.slow.reached.is_set)

    @property
    def given(self) -> int:
        """How many elements its steps have given so far."""
        return sum(n for key, n in self.metrics.counters.items() if key.name == "elements_out")

    @property
    def metrics(self) -> MetricCells:
        return self.world.of(Heartbeat)[-1].metrics if self.world.of(Heartbeat) else MetricCells()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Remote]:
    made = Remote(tmp_path)
    yield made
    made.slow.open.set()
    made.background.join(PATIENCE)


def test_elements_and_heartbeats_go_on_while_an_upload_stands_still(world: Remote) -> None:
    working = Working(world)
    working.blocked(1)
    beats, given = len(world.of(Heartbeat)), working.given
    working.work(500)
    assert len(world.of(Heartbeat)) >= beats + 5
    assert working.given > given + 100
    assert (world.of(Acknowledge), len(world.slow.begun)) == ([], 1)
    world.slow.open.set()
    working.until(lambda: len(world.acknowledged(1)) == len(working.tasks))
    named = [name for ack in world.of(Acknowledge) for name, _, _ in ack.handle.files]
    assert sorted(named) == sorted(world.slow.files)
    assert not world.of(TaskFailed)


def test_a_checkpoint_is_given_up_and_the_next_one_taken_while_an_upload_of_it_stands_still(world: Remote) -> None:
    working = Working(world)
    working.blocked(1)
    first = world.slow.begun[0]
    working.worker.on_message(CheckpointAborted(1))
    assert {(told.checkpoint, told.reason) for told in world.of(Decline)} == {(1, "aborted")}
    working.worker.on_message(TriggerBarrier(2, "checkpoint"))
    working.work(100)
    assert world.slow.begun == [first]
    world.slow.open.set()
    working.until(lambda: len(world.acknowledged(2)) == len(working.tasks))
    assert [name for name in world.slow.begun if name.startswith("chk-000001/")] == [first]
    assert sorted(world.slow.files) == sorted(name for ack in world.acknowledged(2) for name, _, _ in ack.handle.files)
    assert world.acknowledged(1) == []


def test_a_checkpoint_that_ousts_another_is_taken_while_an_upload_stands_still(world: Remote) -> None:
    working = Working(world)
    working.blocked(1)
    working.until(lambda: len(world.background._queue) == len(working.tasks))
    working.worker.on_message(TriggerBarrier(2, "checkpoint"))
    working.until(lambda: len(world.of(Decline)) == len(working.tasks))
    world.slow.open.set()
    working.until(lambda: len(world.acknowledged(2)) == len(working.tasks))
    working.worker.on_message(CheckpointCompleted(2))
    working.worker.on_message(TriggerBarrier(3, "savepoint"))
    working.until(lambda: len(world.acknowledged(3)) == len(working.tasks))
    assert not [name for name in world.slow.files if name.startswith("chk-000001/")]


@pytest.mark.parametrize("error", [OSError(28, "no room there"), ValueError("the client's own kind")])
def test_an_upload_that_fails_fails_its_checkpoint_by_name_and_not_the_task(world: Remote, error: Exception) -> None:
    working = Working(world)
    world.slow.error = error
    working.blocked(1)
    world.slow.open.set()
    working.until(lambda: len(world.of(Decline)) == len(working.tasks))
    for told in world.of(Decline):
        assert told.checkpoint == 1
        assert f"its state can't be stored: chk-000001/{told.task}.1." in told.reason
        assert f"could not be uploaded: {type(error).__name__}: {error}" in told.reason
    assert (world.of(TaskFailed), world.of(Acknowledge)) == ([], [])
    world.slow.error = None
    working.worker.on_message(TriggerBarrier(2, "checkpoint"))
    working.until(lambda: len(world.acknowledged(2)) == len(working.tasks))


def test_a_worker_closes_while_an_upload_stands_still(world: Remote) -> None:
    working = Working(world)
    working.blocked(1)
    working.worker.on_message(Cancel())
    assert working.worker.closed
    assert len(world.slow.begun) == 1
    world.slow.open.set()
    world.background.join(PATIENCE)
    assert (len(world.slow.begun), world.slow.files) == (1, {})


def test_a_worker_that_only_waits_for_an_upload_is_not_woken_to_look(world: Remote) -> None:
    """It is told when the upload is over."""
    working = Working(world, lambda p: p | "one" >> tg.PeriodicImpulse(3600.0) | "out" >> tg.Map(str))
    working.work(5)
    working.blocked(1)
    working.until(lambda: len(world.background._queue) == len(working.tasks))
    heartbeat = int(working.job.settings.heartbeat * SECOND)
    working.work()
    assert working.worker.next_wake() - world.clock.now() > heartbeat // 2
    world.woken.clear()
    world.slow.open.set()
    assert world.woken.wait(PATIENCE)


def test_what_waits_beyond_the_room_in_memory_waits_on_the_local_disk(tmp_path: Path) -> None:
    world = Remote(tmp_path / "parts", room=10)
    (tmp_path / "parts").mkdir()
    one = world.files.put("chk-1/one", b"1" * 10)
    assert world.slow.reached.wait(PATIENCE)
    other = world.files.put("chk-1/other", b"2" * 10)
    third = world.files.put("chk-1/third", b"3" * 10)
    assert sorted(path.read_bytes() for path in (tmp_path / "parts").iterdir()) == [b"2" * 10, b"3" * 10]
    third.abandon()
    assert [path.read_bytes() for path in (tmp_path / "parts").iterdir()] == [b"2" * 10]
    world.slow.open.set()
    world.background.join(PATIENCE)
    assert (one.poll()[0], other.poll()[0], third.poll()) == ("chk-1/one", "chk-1/other", None)
    assert world.slow.files == {"chk-1/one": b"1" * 10, "chk-1/other": b"2" * 10}
    assert list((tmp_path / "parts").iterdir()) == []
    world.slow.reached.clear()
    world.files.put("chk-1/again", b"4" * 10)  # what has been uploaded takes no room
    assert list((tmp_path / "parts").iterdir()) == []
    world.background.join(PATIENCE)


def test_a_long_file_is_measured_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from zlib import crc32

    monkeypatch.setattr(uploads, "_PIECE", 7)
    (tmp_path / "file").write_bytes(bytes(range(100)))
    assert uploads.measured(tmp_path / "file") == (100, crc32(bytes(range(100))))
