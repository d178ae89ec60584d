"""A checkpoint directory of which a part can't be read is refused, and nothing in it is changed.

Where the tests run as root, whom no file mode stops, a child process becomes another user first.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.streaming.checkpoint.test_recovery import Count, checkpointed, stateful, with_checkpoints_in
from tests.support.streaming.coordinator_harness import CoordinatorHarness, actions_of_type, make_job
from tidegate.runners.checkpoint.catalog import latest
from tidegate.runners.checkpoint.manifest import ManifestError
from tidegate.runners.checkpoint.manifest_json import dumps
from tidegate.runners.checkpoint.matching import ResumeError
from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.checkpoint.storage.object_store import FsspecStorage
from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened, open_job
from tidegate.runners.streaming.checkpoint.ownership import Ownership
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.coordinator_io import Delete, Fenced, Store, Stored, Unreachable
from tidegate.runners.streaming.storage.background import outcome
from tidegate.sdk.errors import RunError

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user can reach as well."""
    path_of_folder = Path(tempfile.mkdtemp(prefix="checkpoints-"))
    path_of_folder.chmod(0o777)
    yield path_of_folder
    for path in (path_of_folder, *path_of_folder.rglob("*")):
        path.chmod(0o700)
    shutil.rmtree(path_of_folder)


def give_away(folder: Path) -> None:
    """Make the other user the owner of everything in the folder, so that only file modes deny access."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)


def as_nobody(call: Callable[[], object]) -> str:
    """The error that a user other than root gets, or "" if there is none."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            try:
                call()
            except Exception as error:
                os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        error_text = answer.read()
    os.waitpid(pid, 0)
    return error_text


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def resumed_job(folder: Path) -> Job:
    """A job that has resumed once from its checkpoint."""
    job = make_job(stateful(Count()))
    checkpointed(replace(job, id="first", run="first"), folder)
    open_job(with_checkpoints_in(replace(job, id="second"), folder), folder / "unused", "test")
    return job


@pytest.mark.parametrize(
    "name", ["", "epochs", "epochs/000002.base", "chk-000001", "chk-000001/manifest.json", "job.json"]
)
def test_an_unreadable_file_is_named_and_nothing_is_changed(folder: Path, name: str) -> None:
    job = with_checkpoints_in(resumed_job(folder), folder)
    before = contents(folder)
    give_away(folder)
    (folder / name).chmod(0)
    error = as_nobody(lambda: open_job(job, folder / "unused", "test"))
    (folder / name).chmod(0o700)
    assert "Permission denied" in error
    assert str(folder / name) in error
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["chk-000001", "chk-000001/manifest.json"])
def test_an_unreadable_checkpoint_is_not_skipped_for_an_older_one(folder: Path, name: str) -> None:
    job = resumed_job(folder)
    older = LocalStorage(folder).read("chk-000001/manifest.json")
    shutil.copytree(folder / "chk-000001", folder / "chk-000002")
    (folder / "chk-000002" / "manifest.json").write_bytes(older)
    give_away(folder)
    newer = folder / name.replace("1", "2")
    newer.chmod(0)
    assert str(newer) in as_nobody(lambda: open_job(with_checkpoints_in(job, folder), folder / "unused", "test"))


def test_an_unreadable_savepoint_is_refused_by_name(folder: Path) -> None:
    job = resumed_job(folder)
    give_away(folder)
    (folder / "chk-000001").chmod(0)
    later = replace(job, settings=replace(job.settings, from_savepoint=str(folder)))
    error = as_nobody(lambda: open_job(later, folder / "run", "test"))
    assert error == (f"RunError: the savepoint in {folder} can't be read: Permission denied: {folder / 'chk-000001'}")


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no further file."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_directory_is_not_taken_for_empty_when_no_more_files_can_be_opened(tmp_path: Path) -> None:
    job = resumed_job(tmp_path)
    before = contents(tmp_path)
    with no_more_files(), pytest.raises(RunError, match=f"Too many open files: {tmp_path}"):
        open_job(with_checkpoints_in(job, tmp_path), tmp_path / "unused", "test")
    assert contents(tmp_path) == before


def test_a_checkpoint_behind_a_symbolic_link_is_found(tmp_path: Path) -> None:
    resumed_job(tmp_path / "here")
    (tmp_path / "here" / "chk-000001").rename(tmp_path / "elsewhere")
    (tmp_path / "here" / "chk-000001").symlink_to(tmp_path / "elsewhere")
    manifest, _ = latest(LocalStorage(tmp_path / "here"), thorough=True)
    assert manifest is not None


def test_a_store_that_cannot_be_listed_is_not_taken_for_empty() -> None:
    fsspec = pytest.importorskip("fsspec")
    from fsspec.implementations.memory import MemoryFileSystem

    class Forbidding(MemoryFileSystem):  # type: ignore[misc]
        """A store that fsspec walks, in which one folder may not be listed."""

        find = fsspec.AbstractFileSystem.find

        def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
            if path.rstrip("/").endswith("chk-000001"):
                raise PermissionError(13, "Permission denied", path)
            return super().ls(path, detail=detail, **kwargs)

    storage = FsspecStorage(f"memory://{uuid.uuid4().hex}")
    storage.write("chk-000001/manifest.json", b"")
    assert storage.list("") == ["chk-000001/manifest.json"]
    storage._fs = Forbidding()
    with pytest.raises(PermissionError, match="chk-000001"):
        storage.list("")


# -- directories without the record of their job


def test_checkpoints_without_a_record_are_refused_and_left_alone(tmp_path: Path) -> None:
    job = resumed_job(tmp_path)
    (tmp_path / "job.json").unlink()
    before = contents(tmp_path)
    with pytest.raises(ManifestError, match=r"has checkpoints \(chk-000001\), but no job.json") as raised:
        open_job(with_checkpoints_in(job, tmp_path), tmp_path / "unused", "test")
    assert "--begin_anew --discard_state" in str(raised.value)
    assert contents(tmp_path) == before


def test_epochs_of_a_resumed_run_without_a_record_are_refused(tmp_path: Path) -> None:
    job = resumed_job(tmp_path)
    (tmp_path / "job.json").unlink()
    shutil.rmtree(tmp_path / "chk-000001")
    with pytest.raises(ManifestError, match=r"has epochs/000002.base, of a run that resumed"):
        open_job(with_checkpoints_in(job, tmp_path), tmp_path / "unused", "test")


def test_an_epoch_without_a_checkpoint_does_not_count_as_a_job(tmp_path: Path) -> None:
    LocalStorage(tmp_path).create("epochs/000001", b"{}")
    opened = open_job(with_checkpoints_in(make_job(stateful(Count())), tmp_path), tmp_path / "unused", "test")
    assert (opened.resume, opened.epoch) == (None, 2)


def test_state_is_discarded_only_by_both_flags_together(tmp_path: Path) -> None:
    job = resumed_job(tmp_path)
    job = replace(job, settings=replace(job.settings, begin_anew=True))
    with pytest.raises(ResumeError, match=r"has not finished.*--begin_anew --discard_state discards its state"):
        open_job(with_checkpoints_in(job, tmp_path), tmp_path / "unused", "test")
    discarding = replace(job, id="third", run="third", settings=replace(job.settings, discard_state=True))
    opened = open_job(with_checkpoints_in(discarding, tmp_path), tmp_path / "unused", "test")
    assert (opened.resume, opened.job.run) == (None, "third")
    assert (tmp_path / "chk-000001" / "manifest.json").exists()  # until there is a later one
    assert latest(LocalStorage(tmp_path)) == (None, [])  # but no job resumes from it
    again = open_job(with_checkpoints_in(discarding, tmp_path), tmp_path / "unused", "test")
    assert (again.resume, again.job.run) == (None, "third")
    harness = CoordinatorHarness(again.job, again.resume, again.epoch, again.first, again.leftovers)
    harness.ready()
    harness.wait(10)
    harness.acknowledge(again.first)
    (delete,) = actions_of_type(harness.handle(Stored(again.first)), Delete)
    assert again.first > 1
    assert delete.names[0] == "chk-000001/manifest.json"


# -- ownership of the directory while a job runs


def own_directory(folder: Path) -> tuple[Opened, Ownership]:
    opened = open_job(with_checkpoints_in(make_job(stateful(Count())), folder), folder / "unused", "test")
    return opened, Ownership(opened, open_storage)


def test_nothing_is_deleted_while_the_epochs_cannot_be_read(tmp_path: Path) -> None:
    _, ownership = own_directory(tmp_path)
    (tmp_path / "chk-000001").mkdir()
    (tmp_path / "chk-000001" / "0.0.1.data").touch()
    with no_more_files():
        assert ownership.lost() == Unreachable(f"Too many open files: {tmp_path / 'epochs'}")
        outcome(ownership.delete(Delete(("chk-000001/0.0.1.data",), ("chk-000001",))))
    assert (tmp_path / "chk-000001" / "0.0.1.data").exists()
    outcome(ownership.delete(Delete((), ("chk-000001",))))
    assert not (tmp_path / "chk-000001").exists()


def test_files_of_the_next_process_are_not_deleted_with_those_of_a_failed_checkpoint(tmp_path: Path) -> None:
    """The next process numbers its checkpoints from the last manifest on, as this one did its failed checkpoints."""
    _, ownership = own_directory(tmp_path)
    storage = LocalStorage(tmp_path)
    for number in (1, 2):
        storage.write(f"chk-00000{number}/0.0.1.data", b"failed")
    removing = ownership.delete(Delete(folders=("chk-000001", "chk-000002")))
    next(removing)
    storage.create("epochs/000002", b"{}")
    storage.write("chk-000002/0.0.1000001.data", b"the next process's own")
    outcome(removing)
    assert storage.list("chk-000002")[-1] == "chk-000002/0.0.1000001.data"


def test_a_run_whose_epoch_has_vanished_does_not_claim_ownership(tmp_path: Path) -> None:
    _, ownership = own_directory(tmp_path)
    (tmp_path / "epochs").rename(tmp_path / "elsewhere")
    assert "epochs/000001, by which this run owns the checkpoints" in str(ownership.lost())


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_manifest_of_another_process_is_left_alone(tmp_path: Path, taken_over: bool) -> None:
    """If the other process has taken over, this run ends. If it was itself fenced off, only the checkpoint fails."""
    _, ownership = own_directory(tmp_path)
    if taken_over:
        LocalStorage(tmp_path).create("epochs/000002", b"{}")
    LocalStorage(tmp_path).write("chk-000001/manifest.json", b"another's")
    answer = outcome(ownership.store(Store(1, "chk-000001/manifest.json", b"own")))
    if taken_over:
        assert isinstance(answer, Fenced)
    else:
        assert answer == Stored(1, "another process of the job has written chk-000001/manifest.json", in_place=False)
    assert LocalStorage(tmp_path).read("chk-000001/manifest.json") == b"another's"


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_savepoint_whose_files_another_process_has_removed_ends_this_run(tmp_path: Path, taken_over: bool) -> None:
    storage = checkpointed(make_job(stateful(Count())), tmp_path / "checkpoints")
    manifest, _ = latest(storage)
    assert manifest is not None
    ownership = Ownership(Opened(make_job(stateful(Count())), storage=storage, fenced=lambda: reason), open_storage)
    reason = "another run has taken over" if taken_over else ""
    missing = min(name for name, _, _ in manifest.files())
    storage.delete(missing)
    answer = outcome(
        ownership.store(Store(manifest.checkpoint, manifest.name, dumps(manifest), str(tmp_path / "saved")))
    )
    if taken_over:
        assert answer == Fenced(reason)
    else:
        assert isinstance(answer, Stored)
        assert missing in answer.error
    assert latest(LocalStorage(tmp_path / "saved")) == (None, [])


def test_storing_the_same_manifest_again_in_a_retry_succeeds(tmp_path: Path) -> None:
    _, ownership = own_directory(tmp_path)
    LocalStorage(tmp_path).write("chk-000001/manifest.json", b"own")
    assert outcome(ownership.store(Store(1, "chk-000001/manifest.json", b"own"))) == Stored(1)


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_manifest_is_withdrawn_only_once_it_is_certain_that_no_process_has_resumed_from_it(
    tmp_path: Path, taken_over: bool
) -> None:
    _, ownership = own_directory(tmp_path)
    manifest = tmp_path / "chk-000001" / "manifest.json"
    LocalStorage(tmp_path).write("chk-000001/manifest.json", b"own")
    with no_more_files():
        ownership.withdraw("chk-000001/manifest.json")
    assert manifest.exists()
    if taken_over:
        LocalStorage(tmp_path).create("epochs/000002", b"{}")
    lost = ownership.lost()
    assert isinstance(lost, Fenced) == manifest.exists() == taken_over


def test_a_fenced_off_run_does_not_record_its_end(tmp_path: Path) -> None:
    _, ownership = own_directory(tmp_path)
    before = (tmp_path / "job.json").read_bytes()
    LocalStorage(tmp_path).create("epochs/000002", b"{}")
    assert isinstance(outcome(ownership.store(Store(0, "job.json", b"over"))), Fenced)
    assert (tmp_path / "job.json").read_bytes() == before
