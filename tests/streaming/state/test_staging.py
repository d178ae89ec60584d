"""Staged files are stored in the background, and output waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import pytest

from tidegate.runners.checkpoint.state_files import StateFile
from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.checkpoint.storage.object_store import FsspecStorage
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.sinks.staged_files import InStorage, openable, stored_as, stored_files
from tidegate.runners.streaming.protocol.worker_messages import Prepared
from tidegate.runners.streaming.state.staged_output import StagedOutput
from tidegate.runners.streaming.state.staging import StagedFileStore
from tidegate.runners.streaming.storage.background import Background
from tidegate.sdk.connectors.sinks import Committable, StagedFile
from tidegate.sdk.errors import WriteError


@pytest.fixture(params=["local", "remote"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path / "storage") if request.param == "local" else FsspecStorage(f"memory://{tmp_path}")


def stored(storage: Storage, name: str, file: StagedFile, at_once: int = 0) -> StateFile:
    """Store a file in a background thread, and wait for it."""
    woken = threading.Event()
    root = storage.root if isinstance(storage, LocalStorage) else None
    pending = StagedFileStore(storage, root, Background(woken.set), at_once=at_once).put(name, file)
    while (file_ := pending.poll()) is None:
        assert woken.wait(60)
    return file_


def test_bytes_and_local_files_are_stored_with_checksums_and_local_files_are_removed(
    storage: Storage, tmp_path: Path
) -> None:
    (tmp_path / "local").write_bytes(b"12345")
    assert stored(storage, "staged/1/a", StagedFile.of_path("rows", tmp_path / "local")) == (
        "staged/1/a",
        5,
        crc32(b"12345"),
    )
    assert not (tmp_path / "local").exists()
    for name, at_once in (("staged/1/b", 0), ("staged/1/c", 100)):
        assert stored(storage, name, StagedFile.of_bytes("rows", b"abc"), at_once) == (name, 3, crc32(b"abc"))
    assert storage.list("staged") == ["staged/1/a", "staged/1/b", "staged/1/c"]


def at_commit(storage: Storage, data: bytes) -> StagedFile:
    committable = Committable((0, 1), None, (StagedFile.of_bytes("rows", data),))
    file = stored(storage, "staged/1/a", committable.files[0])
    (opened,) = openable([stored_as(committable, [file])], storage.open)
    assert stored_files([opened]) == [file]
    return opened.files[0]


def test_a_stored_file_is_opened_at_the_commit_and_refused_if_it_is_damaged_or_missing(storage: Storage) -> None:
    file = at_commit(storage, b"abc")
    with file.open() as opened:
        assert opened.read() == b"abc"
    storage.write("staged/1/a", b"abd")
    with pytest.raises(WriteError, match=r"staged/1/a is damaged: it has 3 bytes with the checksum .*, not 3 bytes"):
        file.open()
    storage.write("staged/1/a", b"ab")
    with pytest.raises(WriteError, match=r"it has 2 bytes"):
        file.open()
    storage.delete("staged/1/a")
    with pytest.raises(WriteError, match=r"staged/1/a is missing, and the output in it is lost"):
        file.open()


class SlowFiles:
    """Files that are stored when the test says so, or refused."""

    def __init__(self) -> None:
        self.pending: dict[str, SlowFile] = {}
        self.refuses = False

    def put(self, name: str, file: StagedFile) -> SlowFile:
        if self.refuses:
            raise OSError("the disk is full")
        self.pending[name] = SlowFile((name, file.size, 0))
        return self.pending[name]

    def open(self, name: str) -> BinaryIO:
        raise NotImplementedError


class SlowFile:
    def __init__(self, file: StateFile) -> None:
        self.file = file
        self.stored: bool | OSError = False
        self.abandoned = False

    def poll(self) -> StateFile | None:
        if isinstance(self.stored, OSError):
            raise self.stored
        return self.file if self.stored else None

    def abandon(self) -> None:
        self.abandoned = True


def prepared(*names: str, sequence: int = 1) -> Prepared:
    files = tuple(StagedFile.of_bytes(name, name.encode()) for name in names)
    return Prepared("sink", (Committable((0, sequence), None, files),))


@pytest.fixture
def make() -> Callable[[SlowFiles], StagedOutput]:
    return lambda files: StagedOutput(files, 7, TaskId(2, 0))


def names_in(parts: tuple[Prepared, ...]) -> list[Any]:
    return [(file.name, file.content) for part in parts for each in part.committables for file in each.files]


def test_output_is_reported_once_all_its_files_are_stored_if_need_be_with_a_later_checkpoint(make: Any) -> None:
    files = SlowFiles()
    output = make(files)
    output.add([prepared("a", "b"), Prepared("other", ())])
    assert not output.poll()
    assert output.take() == (Prepared("other", ()),)  # the checkpoint is aborted
    files.pending["staged/7/2.0.1"].stored = True
    output.add([prepared("c", sequence=2)])
    files.pending["staged/7/2.0.3"].stored = True
    assert not output.poll()
    files.pending["staged/7/2.0.2"].stored = True
    assert output.poll()
    assert names_in(output.take()) == [
        (name, InStorage((f"staged/7/2.0.{n}", 1, 0))) for n, name in enumerate("abc", start=1)
    ]
    assert output.take() == ()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_file_that_cannot_be_stored_is_stored_with_the_next_checkpoint(make: Any, at_once: bool) -> None:
    files = SlowFiles()
    output = make(files)
    files.refuses = at_once
    output.add([prepared("a")])
    if not at_once:
        files.pending["staged/7/2.0.1"].stored = OSError("the disk is full")
    with pytest.raises(OSError, match="the disk is full"):
        output.poll()
    assert output.take() == ()
    files.refuses = False
    output.add([])
    files.pending["staged/7/2.0.1"].stored = True
    assert output.poll()
    assert names_in(output.take()) == [("a", InStorage(("staged/7/2.0.1", 1, 0)))]


def test_a_failing_task_abandons_pending_files_and_removes_local_ones(make: Any, tmp_path: Path) -> None:
    files = SlowFiles()
    output = make(files)
    (tmp_path / "local").write_bytes(b"x")
    committable = Committable((0, 1), None, (StagedFile.of_path("rows", tmp_path / "local"),))
    output.add([Prepared("sink", (committable,))])
    output.abandon()
    assert files.pending["staged/7/2.0.1"].abandoned
    assert not (tmp_path / "local").exists()
