"""A checkpoint directory that can't be read whole is refused, and nothing in it is changed.

Where the tests run as root, for whom no mode is an obstacle, a child gives that up before it looks.
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

from tests.streaming.checkpoint.test_recovery import Count, checkpointed, kept, stateful
from tests.support.streaming.coordinator_harness import CoordinatorHarness, actions_of_type, make_job
from tidegate.runners.streaming.checkpoint.catalog import latest
from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened, open_job
from tidegate.runners.streaming.checkpoint.manifest import ManifestError
from tidegate.runners.streaming.checkpoint.ownership import Ownership
from tidegate.runners.streaming.checkpoint.recovery import ResumeError
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.coordinator_io import Delete, Fenced, Store, Stored, Unreachable
from tidegate.runners.streaming.storage.background import outcome
from tidegate.runners.streaming.storage.factory import open_storage
from tidegate.runners.streaming.storage.local import LocalStorage
from tidegate.runners.streaming.storage.object_store import FsspecStorage
from tidegate.sdk.errors import RunError

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user can reach, too."""
    place = Path(tempfile.mkdtemp(prefix="checkpoints-"))
    place.chmod(0o777)
    yield place
    for path in (place, *place.rglob("*")):
        path.chmod(0o700)
    shutil.rmtree(place)


def given_away(folder: Path) -> None:
    """All of it is the other user's, so that only its modes keep him from it."""
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


def at_work(folder: Path) -> Job:
    """A job that has gone on once, from a checkpoint it had."""
    job = make_job(stateful(Count()))
    checkpointed(replace(job, id="first", run="first"), folder)
    open_job(kept(replace(job, id="second"), folder), folder / "unused", "test")
    return job


@pytest.mark.parametrize(
    "name", ["", "epochs", "epochs/000002.base", "chk-000001", "chk-000001/manifest.json", "job.json"]
)
def test_what_may_not_be_read_is_refused_by_name_and_left_alone(folder: Path, name: str) -> None:
    job = kept(at_work(folder), folder)
    before = contents(folder)
    given_away(folder)
    (folder / name).chmod(0)
    error = as_nobody(lambda: open_job(job, folder / "unused", "test"))
    (folder / name).chmod(0o700)
    assert "Permission denied" in error
    assert str(folder / name) in error
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["chk-000001", "chk-000001/manifest.json"])
def test_a_newer_checkpoint_that_may_not_be_read_is_not_passed_over_for_an_older_one(folder: Path, name: str) -> None:
    job = at_work(folder)
    older = LocalStorage(folder).read("chk-000001/manifest.json")
    shutil.copytree(folder / "chk-000001", folder / "chk-000002")
    (folder / "chk-000002" / "manifest.json").write_bytes(older)
    given_away(folder)
    newer = folder / name.replace("1", "2")
    newer.chmod(0)
    assert str(newer) in as_nobody(lambda: open_job(kept(job, folder), folder / "unused", "test"))


def test_a_savepoint_that_may_not_be_read_is_refused_by_name(folder: Path) -> None:
    job = at_work(folder)
    given_away(folder)
    (folder / "chk-000001").chmod(0)
    later = replace(job, settings=replace(job.settings, from_savepoint=str(folder)))
    error = as_nobody(lambda: open_job(later, folder / "run", "test"))
    assert error == (f"RunError: the savepoint in {folder} can't be read: Permission denied: {folder / 'chk-000001'}")


@contextmanager
def no_more_files() -> Iterator[None]:
    """Inside, this process can open none."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_who_can_open_no_more_files_does_not_take_a_directory_for_empty(tmp_path: Path) -> None:
    job = at_work(tmp_path)
    before = contents(tmp_path)
    with no_more_files(), pytest.raises(RunError, match=f"Too many open files: {tmp_path}"):
        open_job(kept(job, tmp_path), tmp_path / "unused", "test")
    assert contents(tmp_path) == before


def test_a_folder_behind_a_link_is_looked_into(tmp_path: Path) -> None:
    at_work(tmp_path / "here")
    (tmp_path / "here" / "chk-000001").rename(tmp_path / "elsewhere")
    (tmp_path / "here" / "chk-000001").symlink_to(tmp_path / "elsewhere")
    manifest, _ = latest(LocalStorage(tmp_path / "here"), thorough=True)
    assert manifest is not None


def test_a_store_that_can_not_be_listed_is_not_empty() -> None:
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


# -- a job that is known no more


def test_checkpoints_without_a_record_are_refused_and_left_alone(tmp_path: Path) -> None:
    job = at_work(tmp_path)
    (tmp_path / "job.json").unlink()
    before = contents(tmp_path)
    with pytest.raises(ManifestError, match=r"has checkpoints \(chk-000001\), but no job.json") as raised:
        open_job(kept(job, tmp_path), tmp_path / "unused", "test")
    assert "--begin_anew --discard_state" in str(raised.value)
    assert contents(tmp_path) == before


def test_so_are_epochs_that_went_on_from_a_checkpoint(tmp_path: Path) -> None:
    job = at_work(tmp_path)
    (tmp_path / "job.json").unlink()
    shutil.rmtree(tmp_path / "chk-000001")
    with pytest.raises(ManifestError, match=r"has epochs/000002.base, of a run that resumed"):
        open_job(kept(job, tmp_path), tmp_path / "unused", "test")


def test_a_process_that_died_before_it_did_anything_is_no_job(tmp_path: Path) -> None:
    LocalStorage(tmp_path).create("epochs/000001", b"{}")
    opened = open_job(kept(make_job(stateful(Count())), tmp_path), tmp_path / "unused", "test")
    assert (opened.resume, opened.epoch) == (None, 2)


def test_state_is_given_up_by_both_flags_alone(tmp_path: Path) -> None:
    job = at_work(tmp_path)
    job = replace(job, settings=replace(job.settings, begin_anew=True))
    with pytest.raises(ResumeError, match=r"has not finished.*--begin_anew --discard_state discards its state"):
        open_job(kept(job, tmp_path), tmp_path / "unused", "test")
    given_up = replace(job, id="third", run="third", settings=replace(job.settings, discard_state=True))
    opened = open_job(kept(given_up, tmp_path), tmp_path / "unused", "test")
    assert (opened.resume, opened.job.run) == (None, "third")
    assert (tmp_path / "chk-000001" / "manifest.json").exists()  # until there is another
    assert latest(LocalStorage(tmp_path)) == (None, [])  # but nobody goes on from it
    again = open_job(kept(given_up, tmp_path), tmp_path / "unused", "test")
    assert (again.resume, again.job.run) == (None, "third")
    harness = CoordinatorHarness(again.job, again.resume, again.epoch, again.first, again.leftovers)
    harness.ready()
    harness.wait(10)
    harness.acknowledge(again.first)
    (delete,) = actions_of_type(harness.handle(Stored(again.first)), Delete)
    assert again.first > 1
    assert delete.names[0] == "chk-000001/manifest.json"


# -- whose it is, while a job is at work


def owned(folder: Path) -> tuple[Opened, Ownership]:
    opened = open_job(kept(make_job(stateful(Count())), folder), folder / "unused", "test")
    return opened, Ownership(opened, open_storage)


def test_who_can_not_see_the_epochs_changes_nothing(tmp_path: Path) -> None:
    _, ownership = owned(tmp_path)
    (tmp_path / "chk-000001").mkdir()
    (tmp_path / "chk-000001" / "0.0.1.data").touch()
    with no_more_files():
        assert ownership.lost() == Unreachable(f"Too many open files: {tmp_path / 'epochs'}")
        outcome(ownership.delete(Delete(("chk-000001/0.0.1.data",), ("chk-000001",))))
    assert (tmp_path / "chk-000001" / "0.0.1.data").exists()
    outcome(ownership.delete(Delete((), ("chk-000001",))))
    assert not (tmp_path / "chk-000001").exists()


def test_what_the_next_process_has_written_meanwhile_is_not_removed_with_a_failed_checkpoint(tmp_path: Path) -> None:
    """It takes the next number after the last manifest, as the failed checkpoints of the one before did."""
    _, ownership = owned(tmp_path)
    storage = LocalStorage(tmp_path)
    for number in (1, 2):
        storage.write(f"chk-00000{number}/0.0.1.data", b"failed")
    removing = ownership.delete(Delete(folders=("chk-000001", "chk-000002")))
    next(removing)
    storage.create("epochs/000002", b"{}")
    storage.write("chk-000002/0.0.1000001.data", b"the next process's own")
    outcome(removing)
    assert storage.list("chk-000002")[-1] == "chk-000002/0.0.1000001.data"


def test_a_run_whose_epoch_is_gone_does_not_know_that_it_is_still_its(tmp_path: Path) -> None:
    _, ownership = owned(tmp_path)
    (tmp_path / "epochs").rename(tmp_path / "elsewhere")
    assert "epochs/000001, by which this run owns the checkpoints" in str(ownership.lost())


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_manifest_that_another_has_written_is_left_alone(tmp_path: Path, taken_over: bool) -> None:
    """It ends this run if the other has taken over. One that was fenced off before costs only the checkpoint."""
    _, ownership = owned(tmp_path)
    if taken_over:
        LocalStorage(tmp_path).create("epochs/000002", b"{}")
    LocalStorage(tmp_path).write("chk-000001/manifest.json", b"another's")
    answer = outcome(ownership.store(Store(1, "chk-000001/manifest.json", b"own")))
    if taken_over:
        assert isinstance(answer, Fenced)
    else:
        assert answer == Stored(1, "another process of the job has written chk-000001/manifest.json", in_place=False)
    assert LocalStorage(tmp_path).read("chk-000001/manifest.json") == b"another's"


def test_a_manifest_that_was_stored_twice_by_a_client_that_tries_again_is_in_place(tmp_path: Path) -> None:
    _, ownership = owned(tmp_path)
    LocalStorage(tmp_path).write("chk-000001/manifest.json", b"own")
    assert outcome(ownership.store(Store(1, "chk-000001/manifest.json", b"own"))) == Stored(1)


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_manifest_is_withdrawn_when_it_is_known_that_nobody_has_gone_on_from_it(
    tmp_path: Path, taken_over: bool
) -> None:
    _, ownership = owned(tmp_path)
    manifest = tmp_path / "chk-000001" / "manifest.json"
    LocalStorage(tmp_path).write("chk-000001/manifest.json", b"own")
    with no_more_files():
        ownership.withdraw("chk-000001/manifest.json")
    assert manifest.exists()
    if taken_over:
        LocalStorage(tmp_path).create("epochs/000002", b"{}")
    lost = ownership.lost()
    assert isinstance(lost, Fenced) == manifest.exists() == taken_over


def test_a_run_that_was_fenced_off_does_not_record_that_it_is_over(tmp_path: Path) -> None:
    _, ownership = owned(tmp_path)
    before = (tmp_path / "job.json").read_bytes()
    LocalStorage(tmp_path).create("epochs/000002", b"{}")
    assert isinstance(outcome(ownership.store(Store(0, "job.json", b"over"))), Fenced)
    assert (tmp_path / "job.json").read_bytes() == before
