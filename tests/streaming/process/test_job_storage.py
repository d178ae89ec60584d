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
from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened
from tidegate.runners.streaming.process.job_storage import JobStorage
from tidegate.runners.streaming.protocol.coordinator_io import Delete, Store, Stored, TakeSavepoint
from tidegate.runners.streaming.protocol.worker_messages import Acknowledge, StateHandle
from tidegate.runners.streaming.storage.local import LocalStorage

PATIENCE = 60.0


class SlowToRead(LocalStorage):
    """A folder in which reading stands still until the test lets it go on."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.reached, self.open = threading.Event(), threading.Event()

    def read(self, name: str) -> bytes:
        self.reached.set()
        assert self.open.wait(PATIENCE)
        return super().read(name)


class Asking:
    """A job's storage, and what has been heard of what was asked of it."""

    def __init__(self, root: Path) -> None:
        self.slow = SlowToRead(root / "checkpoints")
        self.news = threading.Event()
        self.heard: list[Any] = []
        opened = Opened(make_job(windowed_counts), storage=self.slow)
        self.storage = JobStorage(opened, self.news.set)

    def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            assert self.news.wait(PATIENCE), "there is no news"
            self.news.clear()
            self.storage.take()


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    made = Asking(tmp_path)
    yield made
    made.slow.open.set()
    made.storage.close()


def copy_of_a_savepoint(asking: Asking, target: Path) -> Store:
    """The action that a coordinator returns for a complete savepoint."""
    harness = CoordinatorHarness(make_job(windowed_counts, workers=1))
    harness.ready()
    harness.handle(TakeSavepoint(str(target)))
    for task in harness.tasks():
        name = f"chk-000001/{task}.1.state"
        asking.slow.write(name, b"")
        harness.from_worker(0, Acknowledge(1, task, StateHandle(((name, 0, 0),))))
    (copy,) = [each for each in harness.handle(Stored(1)) if isinstance(each, Store)]
    assert copy.directory == str(target)
    return copy


def test_commits_restarts_and_checkpoints_do_not_wait_for_a_savepoint_that_is_copied(
    asking: Asking, tmp_path: Path
) -> None:
    copy = copy_of_a_savepoint(asking, tmp_path / "saved")
    asking.storage.store(copy, asking.heard.append)
    assert asking.slow.reached.wait(PATIENCE)
    asking.slow.write("chk-000002/left", b"")
    asking.storage.unless_fenced(asking.heard.append)
    asking.storage.delete(Delete(folders=("chk-000002",)))
    asking.storage.store(
        replace(copy, checkpoint=3, name="chk-000003/manifest.json", directory=None), asking.heard.append
    )
    asking.until(lambda: len(asking.heard) == 2)
    assert asking.heard == [None, Stored(3)]
    assert asking.slow.list("chk-000002") == []
    assert not asking.storage.halt(), "a process is not forked while a thread of it reads"
    asking.slow.open.set()
    asking.until(asking.storage.halt)
    asking.storage.resume()
    asking.until(lambda: len(asking.heard) == 3)
    assert asking.heard[-1] == Stored(1)
    assert LocalStorage(tmp_path / "saved").list("")[-1] == copy.name
