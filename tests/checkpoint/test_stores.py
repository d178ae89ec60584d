"""Stores of checkpoints write files completely or not at all, and let exactly one writer create a file."""

from __future__ import annotations

import errno
import multiprocessing
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.checkpoint.storage.object_store import FsspecStorage
from tidegate.runners.streaming.checkpoint.savepoint_copy import copy_savepoint
from tidegate.sdk.errors import OptionsError, RunError


@pytest.fixture(params=["folder", "file url", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    match request.param:
        case "folder":
            return open_storage(str(tmp_path / "new" / "folder"))
        case "file url":
            return open_storage((tmp_path / "new" / "folder").as_uri())
        case _:
            pytest.importorskip("fsspec")
            return FsspecStorage(f"memory://{uuid.uuid4().hex}/inner")


def test_a_written_file_is_read_and_can_be_replaced(storage: Storage) -> None:
    storage.write("chk-1/a", b"one")
    storage.write("chk-1/a", b"two")
    assert storage.read("chk-1/a") == b"two"


def test_a_file_stored_from_a_path_can_be_opened_and_read_twice(storage: Storage, tmp_path: Path) -> None:
    data = bytes(range(256)) * (100 << 10)  # longer than what is retained in memory
    (tmp_path / "local").write_bytes(data)
    storage.put_file("staged/1/a", tmp_path / "local")
    with storage.open("staged/1/a") as file:
        assert file.read() == data
        file.seek(0)
        assert file.read(3) == data[:3]
    with pytest.raises(FileNotFoundError):
        storage.open("staged/1/b")


def test_a_name_is_created_once(storage: Storage) -> None:
    assert storage.create("epochs/1", b"mine")
    assert not storage.create("epochs/1", b"theirs")
    assert storage.read("epochs/1") == b"mine"
    assert storage.list("epochs") == ["epochs/1"]


def test_a_file_that_was_put_can_be_read_and_synced(storage: Storage) -> None:
    storage.put("chk-1/deep/a", b"one")
    storage.put("chk-1/b", b"two")
    assert (storage.read("chk-1/deep/a"), storage.read("chk-1/b")) == (b"one", b"two")
    storage.sync(["chk-1/deep/a", "chk-1/b"])
    assert storage.list("") == ["chk-1/b", "chk-1/deep/a"]


def test_sync_flushes_the_files_and_every_folder_up_to_the_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    flushed: list[str] = []

    def flush(descriptor: int) -> None:
        flushed.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))

    monkeypatch.setattr(os, "fsync", flush)
    storage.put("chk-1/a", b"one")
    storage.put("chk-1/b", b"two")
    assert flushed == []
    storage.sync(["chk-1/a", "chk-1/b"])
    assert flushed[:2] == ["chk-1/a", "chk-1/b"]
    assert sorted(flushed[2:]) == [".", "chk-1"]


def test_a_missing_file_cannot_be_synced(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LocalStorage(tmp_path).sync(["chk-1/a"])


def test_the_error_of_a_sync_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("chk-1/a", b"one")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="chk-1/a"):
        storage.sync(["chk-1/a"])


def test_files_in_a_folder_are_private_to_the_user_under_any_umask(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    before = os.umask(0)
    try:
        storage.write("chk-1/written", b"state")
        storage.put("chk-1/put", b"state" * 100_000)
        storage.create("epochs/1", b"mine")
    finally:
        os.umask(before)
    assert {name: (tmp_path / name).stat().st_mode & 0o777 for name in storage.list("")} == {
        "chk-1/written": 0o600,
        "chk-1/put": 0o600,
        "epochs/1": 0o600,
    }


def test_all_files_under_a_folder_are_listed_with_their_full_names(storage: Storage) -> None:
    for name in ("job.json", "chk-1/a", "chk-1/deep/b", "chk-2/c"):
        storage.write(name, b"")
    assert storage.list("chk-1") == ["chk-1/a", "chk-1/deep/b"]
    assert storage.list("") == ["chk-1/a", "chk-1/deep/b", "chk-2/c", "job.json"]
    assert storage.list("chk-3") == []


def test_an_empty_store_lists_nothing(storage: Storage) -> None:
    assert storage.list("") == []


def test_a_file_can_be_deleted_twice(storage: Storage) -> None:
    storage.write("chk-1/a", b"")
    storage.delete("chk-1/a")
    storage.delete("chk-1/a")
    assert storage.list("") == []
    with pytest.raises(FileNotFoundError):
        storage.read("chk-1/a")


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside", "a/../../b", ""])
def test_a_name_outside_of_the_store_is_refused(storage: Storage, name: str) -> None:
    with pytest.raises(ValueError, match="not a name within"):
        storage.write(name, b"")


def test_a_folder_is_removed_with_its_last_file_and_created_with_its_first(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.write("chk-1/a", b"")
    storage.delete("chk-1/a")
    assert not (tmp_path / "chk-1").exists()
    storage.write("chk-1/b", b"again")
    assert storage.read("chk-1/b") == b"again"


def test_a_failed_write_leaves_the_previous_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    storage.write("a", b"complete")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        storage.write("a", b"another")
    with pytest.raises(OSError, match="no space"):
        storage.create("b", b"another")
    monkeypatch.undo()
    assert storage.read("a") == b"complete"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_system_without_links_creates_once_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refused)
    storage = LocalStorage(tmp_path)
    assert storage.create("epochs/1", b"mine")
    assert not storage.create("epochs/1", b"theirs")
    assert storage.read("epochs/1") == b"mine"
    assert storage.list("") == ["epochs/1"]


def _claim(folder: str, barrier: Any, created: Any, content: bytes) -> None:
    storage = LocalStorage(Path(folder))
    barrier.wait()
    for number in range(50):
        if storage.create(f"epochs/{number}", content):
            created.put((number, content))


def test_exactly_one_of_several_processes_that_create_a_name_succeeds(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier, created = context.Barrier(3), context.Queue()
    processes = [
        context.Process(target=_claim, args=(str(tmp_path), barrier, created, f"process {n}".encode()))
        for n in range(3)
    ]
    for process in processes:
        process.start()
    winners = dict(created.get(timeout=60) for _ in range(50))
    for process in processes:
        process.join()
    assert created.empty()
    storage = LocalStorage(tmp_path)
    assert {number: storage.read(f"epochs/{number}") for number in range(50)} == winners


@pytest.mark.parametrize("url", ["ftp://host/path", "http://host/path", "zip://x.zip", "memory://x"])
def test_a_store_with_neither_rename_nor_conditional_put_is_refused_by_name(url: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(OptionsError, match=r"can't be kept at|not installed"):
        open_storage(url)


def test_an_unknown_store_is_refused() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(OptionsError, match="can't be kept at unheard-of://x"):
        FsspecStorage("unheard-of://x")


def test_a_savepoint_is_copied_with_its_files_and_the_manifest_last(tmp_path: Path) -> None:
    from tests.checkpoint.test_manifest import store_checkpoint
    from tidegate.runners.checkpoint.catalog import latest
    from tidegate.runners.checkpoint.manifest_json import dumps

    source, target = LocalStorage(tmp_path / "source"), LocalStorage(tmp_path / "target")
    made = store_checkpoint(source, 4)
    assert list(copy_savepoint(source, target, made.name, dumps(made))) == [
        None for _ in made.files()
    ]  # a step for each
    assert latest(target, thorough=True) == (made, [])
    source.write("chk-000004/1.0.1.state", b"shor")
    with pytest.raises(RunError, match="damaged"):
        list(copy_savepoint(source, LocalStorage(tmp_path / "third"), made.name, dumps(made)))
    assert LocalStorage(tmp_path / "third").list("") == []
