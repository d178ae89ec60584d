"""The storage requests of a job: copying a savepoint doesn't delay any others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.streaming.coordinator_harness import CoordinatorHarness, make_job
from tests.support.streaming.counting_job import windowed_counts
from tidegate.runners.checkpoint.parts import StateHandle
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened
from tidegate.runners.streaming.process.job_storage import JobStorage
from tidegate.runners.streaming.protocol.coordinator_io import Delete, Store, Stored, TakeSavepoint
from tidegate.runners.streaming.protocol.worker_messages import Acknowledge

LONG = 60.0


class BlockedStorage(LocalStorage):
    """A folder in which reading blocks until the test opens it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.reached, self.open = threading.Event(), threading.Event()

    def read(self, name: str) -> bytes:
        self.reached.set()
        assert self.open.wait(LONG)
        return super().read(name)


class StorageClient:
    """A job's storage, and its answers so far."""

    def __init__(self, root: Path) -> None:
        self.blocked = BlockedStorage(root / "checkpoints")
        self.wakeup = threading.Event()
        self.answers: list[Any] = []
        opened = Opened(make_job(windowed_counts), storage=self.blocked)
        self.storage = JobStorage(opened, self.wakeup.set)

    def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            assert self.wakeup.wait(LONG), "nothing has happened"
            self.wakeup.clear()
            self.storage.take()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[StorageClient]:
    made = StorageClient(tmp_path)
    yield made
    made.blocked.open.set()
    made.storage.close()


def copy_of_a_savepoint(client: StorageClient, target: Path) -> Store:
    """The action that a coordinator returns for a complete savepoint."""
    harness = CoordinatorHarness(make_job(windowed_counts, workers=1))
    harness.ready()
    harness.handle(TakeSavepoint(str(target)))
    for task in harness.tasks():
        name = f"chk-000001/{task}.1.state"
        client.blocked.write(name, b"")
        harness.from_worker(0, Acknowledge(1, task, StateHandle(((name, 0, 0),))))
    (copy,) = [each for each in harness.handle(Stored(1)) if isinstance(each, Store)]
    assert copy.directory == str(target)
    return copy


def test_commits_restarts_and_checkpoints_do_not_wait_while_a_savepoint_is_copied(
    client: StorageClient, tmp_path: Path
) -> None:
    copy = copy_of_a_savepoint(client, tmp_path / "saved")
    client.storage.store(copy, client.answers.append)
    assert client.blocked.reached.wait(LONG)
    client.blocked.write("chk-000002/left", b"")
    client.storage.unless_fenced(client.answers.append)
    client.storage.delete(Delete(folders=("chk-000002",)))
    client.storage.store(
        replace(copy, checkpoint=3, name="chk-000003/manifest.json", directory=None), client.answers.append
    )
    client.until(lambda: len(client.answers) == 2)
    assert client.answers == [None, Stored(3)]
    assert client.blocked.list("chk-000002") == []
    assert not client.storage.halt(), "no process is forked while one of its threads reads"
    client.blocked.open.set()
    client.until(client.storage.halt)
    client.storage.resume()
    client.until(lambda: len(client.answers) == 3)
    assert client.answers[-1] == Stored(1)
    assert LocalStorage(tmp_path / "saved").list("")[-1] == copy.name
