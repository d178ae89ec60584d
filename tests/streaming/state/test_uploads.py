"""Checkpoints in a slow store: the stream continues during uploads, and no checkpoint is acknowledged before its files
are stored."""

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

LONG = 60.0


@dataclass
class BlockedStore:
    """A store whose uploads block until the test opens it."""

    files: dict[str, bytes] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    error: Exception | None = None
    open: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)

    def put(self, name: str, data: bytes) -> None:
        self.begun.append(name)
        self.reached.set()
        assert self.open.wait(LONG)
        if self.error is not None:
            raise self.error
        self.files[name] = data

    def put_file(self, name: str, path: Path) -> None:
        self.put(name, path.read_bytes())

    def delete(self, name: str) -> None:
        del self.files[name]


class RemoteServices(IsolatedWorker):
    """The services of a worker whose checkpoints are in such a store."""

    def __init__(self, folder: Path, *, room: int | None = None) -> None:
        super().__init__(folder)
        self.remote = BlockedStore()
        self.woken = threading.Event()
        self.storage = self.remote
        self.background = Background(self.woken.set)
        self.files = UploadingFileStore(self.remote, self.background, lambda: folder, room=room)  # type: ignore[arg-type]

    def reports_of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.reported if isinstance(message, kind)]

    def acknowledged(self, checkpoint: int) -> list[Acknowledge]:
        return [ack for ack in self.reports_of(Acknowledge) if ack.checkpoint == checkpoint]


class BusyWorker:
    """A worker that reads, counts and takes checkpoints, turn by turn."""

    def __init__(self, services: RemoteServices, write: Callable[[tg.Pipeline], Any] = windowed_counts) -> None:
        self.services = services
        self.job = make_job(write, workers=1)
        self.tasks = [task for region in range(len(self.job.plan.regions)) for task in self.job.topology.tasks(region)]
        self.worker = Worker(self.job, 0, 1, services)  # type: ignore[arg-type]
        self.worker.on_message(Deploy(0, tuple(self.tasks)))
        (source,) = [step for step in self.job.plan.steps if step.is_source]
        self.worker.on_message(ListSplits(source.id, 2))
        (listed,) = services.reports_of(SplitsListed)
        (reads,) = [task for task in self.tasks if task.stage == source.stage]
        self.worker.on_message(AssignSplits(reads, source.id, listed.splits, more=False))

    def work(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.worker.work()
            self.services.clock.advance(SECOND // 100)

    def until(self, condition: Callable[[], Any]) -> None:
        """Work until a condition holds."""
        for _ in range(20_000):
            if condition():
                return
            self.work()
            self.services.woken.wait(0.001)
        raise AssertionError("the condition never holds")

    def block_upload(self, checkpoint: int) -> None:
        """Trigger a checkpoint, and wait until its first upload blocks."""
        self.worker.on_message(TriggerBarrier(checkpoint, "checkpoint"))
        self.until(self.services.remote.reached.is_set)

    @property
    def emitted(self) -> int:
        """The number of elements that its steps have emitted so far."""
        return sum(n for key, n in self.metrics.counters.items() if key.name == "elements_out")

    @property
    def metrics(self) -> MetricCells:
        return self.services.reports_of(Heartbeat)[-1].metrics if self.services.reports_of(Heartbeat) else MetricCells()


@pytest.fixture
def services(tmp_path: Path) -> Iterator[RemoteServices]:
    made = RemoteServices(tmp_path)
    yield made
    made.remote.open.set()
    made.background.join(LONG)


def test_elements_and_heartbeats_continue_while_an_upload_blocks(services: RemoteServices) -> None:
    busy = BusyWorker(services)
    busy.block_upload(1)
    heartbeats, emitted = len(services.reports_of(Heartbeat)), busy.emitted
    busy.work(500)
    assert len(services.reports_of(Heartbeat)) >= heartbeats + 5
    assert busy.emitted > emitted + 100
    assert (services.reports_of(Acknowledge), len(services.remote.begun)) == ([], 1)
    services.remote.open.set()
    busy.until(lambda: len(services.acknowledged(1)) == len(busy.tasks))
    acknowledged_files = [name for ack in services.reports_of(Acknowledge) for name, _, _ in ack.handle.files]
    assert sorted(acknowledged_files) == sorted(services.remote.files)
    assert not services.reports_of(TaskFailed)


def test_a_checkpoint_is_aborted_and_the_next_one_taken_while_an_upload_blocks(services: RemoteServices) -> None:
    busy = BusyWorker(services)
    busy.block_upload(1)
    first = services.remote.begun[0]
    busy.worker.on_message(CheckpointAborted(1))
    assert {(decline.checkpoint, decline.reason) for decline in services.reports_of(Decline)} == {(1, "aborted")}
    busy.worker.on_message(TriggerBarrier(2, "checkpoint"))
    busy.work(100)
    assert services.remote.begun == [first]
    services.remote.open.set()
    busy.until(lambda: len(services.acknowledged(2)) == len(busy.tasks))
    assert [name for name in services.remote.begun if name.startswith("chk-000001/")] == [first]
    assert sorted(services.remote.files) == sorted(
        name for ack in services.acknowledged(2) for name, _, _ in ack.handle.files
    )
    assert services.acknowledged(1) == []


def test_a_checkpoint_that_supersedes_another_is_taken_while_an_upload_blocks(services: RemoteServices) -> None:
    busy = BusyWorker(services)
    busy.block_upload(1)
    busy.until(lambda: len(services.background._queue) == len(busy.tasks))
    busy.worker.on_message(TriggerBarrier(2, "checkpoint"))
    busy.until(lambda: len(services.reports_of(Decline)) == len(busy.tasks))
    services.remote.open.set()
    busy.until(lambda: len(services.acknowledged(2)) == len(busy.tasks))
    busy.worker.on_message(CheckpointCompleted(2))
    busy.worker.on_message(TriggerBarrier(3, "savepoint"))
    busy.until(lambda: len(services.acknowledged(3)) == len(busy.tasks))
    assert not [name for name in services.remote.files if name.startswith("chk-000001/")]


@pytest.mark.parametrize("error", [OSError(28, "no room there"), ValueError("the client's own kind")])
def test_a_failed_upload_fails_the_checkpoint_and_not_the_task(services: RemoteServices, error: Exception) -> None:
    busy = BusyWorker(services)
    services.remote.error = error
    busy.block_upload(1)
    services.remote.open.set()
    busy.until(lambda: len(services.reports_of(Decline)) == len(busy.tasks))
    for decline in services.reports_of(Decline):
        assert decline.checkpoint == 1
        assert f"its state can't be stored: chk-000001/{decline.task}.1." in decline.reason
        assert f"could not be uploaded: {type(error).__name__}: {error}" in decline.reason
    assert (services.reports_of(TaskFailed), services.reports_of(Acknowledge)) == ([], [])
    services.remote.error = None
    busy.worker.on_message(TriggerBarrier(2, "checkpoint"))
    busy.until(lambda: len(services.acknowledged(2)) == len(busy.tasks))


def test_a_worker_closes_while_an_upload_blocks(services: RemoteServices) -> None:
    busy = BusyWorker(services)
    busy.block_upload(1)
    busy.worker.on_message(Cancel())
    assert busy.worker.closed
    assert len(services.remote.begun) == 1
    services.remote.open.set()
    services.background.join(LONG)
    assert (len(services.remote.begun), services.remote.files) == (1, {})


def test_a_worker_that_waits_for_an_upload_does_not_poll(services: RemoteServices) -> None:
    """It is woken when the upload ends."""
    busy = BusyWorker(services, lambda p: p | "one" >> tg.PeriodicImpulse(3600.0) | "out" >> tg.Map(str))
    busy.work(5)
    busy.block_upload(1)
    busy.until(lambda: len(services.background._queue) == len(busy.tasks))
    heartbeat = int(busy.job.settings.heartbeat * SECOND)
    busy.work()
    assert busy.worker.next_wake() - services.clock.now() > heartbeat // 2
    services.woken.clear()
    services.remote.open.set()
    assert services.woken.wait(LONG)


def test_files_that_exceed_the_memory_for_uploads_wait_on_the_local_disk(tmp_path: Path) -> None:
    services = RemoteServices(tmp_path / "parts", room=10)
    (tmp_path / "parts").mkdir()
    one = services.files.put("chk-1/one", b"1" * 10)
    assert services.remote.reached.wait(LONG)
    other = services.files.put("chk-1/other", b"2" * 10)
    third = services.files.put("chk-1/third", b"3" * 10)
    assert sorted(path.read_bytes() for path in (tmp_path / "parts").iterdir()) == [b"2" * 10, b"3" * 10]
    third.abandon()
    assert [path.read_bytes() for path in (tmp_path / "parts").iterdir()] == [b"2" * 10]
    services.remote.open.set()
    services.background.join(LONG)
    assert (one.poll()[0], other.poll()[0], third.poll()) == ("chk-1/one", "chk-1/other", None)
    assert services.remote.files == {"chk-1/one": b"1" * 10, "chk-1/other": b"2" * 10}
    assert list((tmp_path / "parts").iterdir()) == []
    services.remote.reached.clear()
    services.files.put("chk-1/again", b"4" * 10)  # uploaded files no longer take up memory
    assert list((tmp_path / "parts").iterdir()) == []
    services.background.join(LONG)


def test_a_long_file_is_measured_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from zlib import crc32

    monkeypatch.setattr(uploads, "_PIECE", 7)
    (tmp_path / "file").write_bytes(bytes(range(100)))
    assert uploads.measured(tmp_path / "file") == (100, crc32(bytes(range(100))))
