"""Files that a failed checkpoint has uploaded are retained as long as a later checkpoint may refer to them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.engine.test_rescale import answer, by_key
from tests.streaming.state.test_backend import BackedStep, Kind, as_elements, awaited
from tests.support.streaming.coordinator_harness import CoordinatorHarness, make_job
from tests.support.streaming.counting_job import windowed_counts
from tidegate.runners.checkpoint.catalog import latest
from tidegate.runners.checkpoint.parts import StateHandle
from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.streaming.checkpoint.epoch_fencing import open_job
from tidegate.runners.streaming.checkpoint.ownership import Ownership
from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.runners.streaming.protocol.coordinator_io import Action, Delete, Store, TakeSavepoint
from tidegate.runners.streaming.protocol.worker_messages import Acknowledge, Decline
from tidegate.runners.streaming.storage.background import outcome


class Running:
    """A job with one stateful task, and the checkpoint directory that the job's process maintains."""

    def __init__(self, kind: Kind, root: Path) -> None:
        self.backed = BackedStep(kind, root)
        folder = str(self.backed.disk.root)
        settings = CheckpointSettings(directory=folder, interval=10, tolerated_failures=3)
        backend = "rocksdb" if "rocksdb" in kind else "memory"
        job = make_job(windowed_counts, workers=1, checkpoints=settings, state_backend=backend)
        opened = open_job(job, root / "unused", "test")
        self.ownership = Ownership(opened, open_storage)
        self.harness = CoordinatorHarness(opened.job, opened.resume, opened.epoch, opened.first, opened.leftovers)
        self.perform(self.harness.ready())
        self.task, *self.others = self.harness.tasks()

    def perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Store():
                    self.perform(self.harness.handle(outcome(self.ownership.store(action))))
                case Delete():
                    outcome(self.ownership.delete(action))

    def write(self, prefix: str) -> None:
        answer(self.backed.step, as_elements([(f"key {prefix} {n}", n, 0) for n in range(200)]))

    def captured(self, checkpoint: int, *, whole: bool = False) -> Acknowledge:
        list(self.backed.step.finish_bundle())
        name = f"chk-{checkpoint:06}/{self.task}.1"
        files = awaited(self.backed.backend.capture(checkpoint, f"{name}.data", whole=whole))
        self.backed.disk.write(f"{name}.state", b"")
        return Acknowledge(checkpoint, self.task, StateHandle(((f"{name}.state", 0, 0), *files)))

    def complete(self, ack: Acknowledge) -> None:
        self.perform(self.harness.from_worker(0, ack))
        for task in self.others:
            self.perform(self.harness.from_worker(0, Acknowledge(ack.checkpoint, task)))
        self.backed.backend.completed(ack.checkpoint)


@pytest.mark.parametrize("kind", ["uploaded", "rocksdb", "rocksdb uploaded"])
@pytest.mark.parametrize("savepoints", [0, 1, 2])
def test_files_uploaded_by_a_failed_checkpoint_survive_savepoints(kind: Kind, savepoints: int, tmp_path: Path) -> None:
    running = Running(kind, tmp_path)
    running.write("before")
    running.perform(running.harness.wait(10))
    running.complete(running.captured(1))
    running.write("in the failed one")
    running.perform(running.harness.wait(10))
    running.captured(2)
    running.perform(running.harness.from_worker(0, Decline(2, running.others[0], "no room")))
    for number in range(3, 3 + savepoints):
        running.perform(running.harness.handle(TakeSavepoint(str(tmp_path / f"saved {number}"))))
        running.complete(running.captured(number, whole=True))
    running.write("after")
    running.perform(running.harness.wait(10))
    running.complete(running.captured(3 + savepoints))
    storage = LocalStorage(running.backed.disk.root)
    manifest, damaged = latest(storage, thorough=True)
    assert manifest is not None
    assert (manifest.checkpoint, damaged) == (3 + savepoints, [])
    (files,) = [part.handle.files[1:] for part in manifest.tasks if part.handle is not None]
    restored = BackedStep(kind, tmp_path)
    restored.restore(files)
    assert by_key(answer(restored.step, None)) == by_key(answer(running.backed.step, None))
    checkpoint_files = {name for name in storage.list("") if name.startswith("chk-")}
    assert checkpoint_files == manifest.retained.files, "nothing else is left behind"
