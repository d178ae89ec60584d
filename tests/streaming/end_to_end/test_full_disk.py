"""A full disk: the error says what could not be written, where, and what to do; nothing is lost silently.

A limit on the size of files stands for a full disk, and so does the device `/dev/full`; neither needs another user.
Tests of jobs that continue after a disk was full have a file system of their own, which they fill.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import signal
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import tidegate as tg
from tests.support.streaming.child_processes import TIMEOUT, child_pids
from tests.support.streaming.counting_job import ReportLog, follow_until, start_job, windowed_counts
from tests.support.streaming.killable_run import KillableRun
from tests.support.streaming.small_filesystem import SmallFilesystem
from tidegate.runners.checkpoint.state_files import END_SIZE, PIECE, Written, read_end
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.memory.external_sort import sorted_entries
from tidegate.runners.engine.memory.spill import Spill
from tidegate.runners.engine.side_inputs.operator import WaitingElements
from tidegate.runners.streaming.network.blocking_exchange import SubpartitionWriter
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport, Report
from tidegate.runners.streaming.state import writers
from tidegate.runners.streaming.state.backend import Capture
from tidegate.runners.streaming.state.uploads import DirectFileStore
from tidegate.runners.streaming.state.writers import ForkedWriter, IncrementalWriter
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.panes import NO_PANE
from tidegate.sdk.errors import RunError, write_failure
from tidegate.sdk.metrics import ENGINE, MetricKey
from tidegate.sdk.windowing.window import GLOBAL_WINDOW

ID = ChannelId(3, 1, 0)
LETTERS = "".join(chr(0x100 + n * 7919 % 0x5000) for n in range(20_000))


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let this process write no file larger than `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def limit(pids: Iterable[int], size: int | None) -> None:
    """Limit the size of the files of other processes; None: no limit."""
    for pid in pids:
        _, hard_limit = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard_limit if size is None else size, hard_limit))


# -- messages


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_the_message_of_a_full_disk_says_what_to_do(number: int) -> None:
    error = OSError(number, "it is full", "/there/file")
    assert (
        write_failure(error, "another --flag")
        == "it is full: /there/file; free some space there, or use another --flag"
    )


def test_the_message_of_a_failed_move_names_the_target() -> None:
    error = OSError(errno.ENOSPC, "it is full", "/here/file", None, "/there/file")
    assert write_failure(error, "another --flag").startswith("it is full: /there/file; ")


def test_other_errors_have_the_message_of_the_system() -> None:
    assert write_failure(OSError(errno.EACCES, "not yours", "/there"), "another --flag") == "not yours: /there"
    assert write_failure(OSError("no number"), "another --flag") == "no number"
    assert write_failure(TimeoutError("too late"), "another --flag") == "TimeoutError: too late"


# -- each writer


@pytest.mark.parametrize("create", [False, True])
def test_a_store_names_the_file_that_did_not_fit_and_removes_it(tmp_path: Path, create: bool) -> None:
    storage = LocalStorage(tmp_path)
    storage.write("chk-1/first", b"x")
    with file_size_limit(100), pytest.raises(OSError, match="File too large") as raised:
        (storage.create if create else storage.write)("chk-1/second", bytes(1000))
    assert raised.value.filename == str(tmp_path / "chk-1" / "second")
    assert [path.name for path in (tmp_path / "chk-1").iterdir()] == ["first"]


def child_that_writes_to(path: Path) -> ForkedWriter:
    return ForkedWriter({}, {}, path, "chk-1/0.0.1.data", DirectFileStore(LocalStorage(path.parent)))


def outcome(capture: Capture) -> Any:
    deadline = time.monotonic() + 60
    while (files := capture.poll()) is None:
        assert time.monotonic() < deadline
    return files


@pytest.mark.parametrize(("device", "number"), [("/dev/full", errno.ENOSPC), ("/dev/null", errno.EINVAL)])
def test_the_error_of_a_child_that_cannot_write_or_flush_has_the_cause(
    tmp_path: Path, device: str, number: int
) -> None:
    (tmp_path / "part").symlink_to(device)
    with pytest.raises(OSError, match=str(tmp_path / "part")) as raised:
        outcome(child_that_writes_to(tmp_path / "part"))
    assert raised.value.errno == number
    assert list(tmp_path.iterdir()) == []


def capture_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IncrementalWriter:
    """A capture of ten slices of 1,000 bytes, each of which is written to disk at once."""
    monkeypatch.setattr(writers, "_LONG_FILE", 1)
    slices = ((bytes(1000), PIECE) for _ in range(10))
    return IncrementalWriter(slices, "chk-1/0", DirectFileStore(LocalStorage(tmp_path), tmp_path, lambda: tmp_path))


def test_a_capture_is_written_to_disk_slice_by_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = capture_in_slices(tmp_path, monkeypatch)
    assert capture.poll() is None
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [1000]
    ((name, size, checksum),) = outcome(capture)
    data = (tmp_path / "chk-1" / "0").read_bytes()
    assert (name, size, checksum) == ("chk-1/0", len(data), crc32(data))
    assert data[:-END_SIZE] == bytes(10_000)
    assert read_end(data[-END_SIZE:]) == Written(crc32(bytes(10_000)), 10 * PIECE)
    assert [path.name for path in tmp_path.iterdir()] == ["chk-1"]


def test_an_abandoned_capture_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = capture_in_slices(tmp_path, monkeypatch)
    assert capture.poll() is None
    capture.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_capture_fails_when_its_file_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = capture_in_slices(tmp_path, monkeypatch)
    assert capture.poll() is None
    (part,) = tmp_path.iterdir()
    part.unlink()
    with pytest.raises(OSError, match=f"is gone: '{part}'"):
        outcome(capture)
    assert list(tmp_path.iterdir()) == []


def test_a_capture_on_a_full_disk_names_its_file_and_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = capture_in_slices(tmp_path, monkeypatch)
    with file_size_limit(2500), pytest.raises(OSError, match="File too large") as raised:
        outcome(capture)
    assert Path(raised.value.filename).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_the_error_of_a_killed_child_names_the_signal(tmp_path: Path) -> None:
    class Killed:
        def touched(self) -> None:
            return None

        def snapshot(self, keys: Any) -> Any:
            os.kill(os.getpid(), signal.SIGKILL)

    operators: Any = {"step": Killed()}
    child = ForkedWriter(operators, {"step": None}, tmp_path / "part", "x", DirectFileStore(LocalStorage(tmp_path)))
    with pytest.raises(OSError, match=f"{tmp_path / 'part'} failed: killed by SIGKILL: perhaps .* out of memory"):
        outcome(child)


def test_a_subpartition_on_a_full_disk_fails_with_its_path_and_the_flag(tmp_path: Path) -> None:
    (tmp_path / "run-3.1.0.1").symlink_to("/dev/full")
    writer = SubpartitionWriter(tmp_path, ID, 1)
    message = f"No space left on device: {tmp_path}/run-3.1.0.1; .* another --temp_dir"
    with pytest.raises(RunError, match=message):
        writer.write(Block([LETTERS]))
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_small_subpartition_on_a_full_disk_fails_when_it_is_finished(tmp_path: Path) -> None:
    (tmp_path / "run-3.1.0.1").symlink_to("/dev/full")
    writer = SubpartitionWriter(tmp_path, ID, 1)
    writer.write(Block(["little"]))
    with pytest.raises(RunError, match=f"No space left on device: {tmp_path}/run-3.1.0.1; "):
        writer.finish()
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def grouping(folder: Path) -> None:
    Spill(lambda: folder, True, min, 1_000).write(GLOBAL_WINDOW, {"a": [LETTERS]})


def waiting(folder: Path) -> None:
    WaitingElements(1, lambda: folder).add(GLOBAL_WINDOW, ([LETTERS], 0, NO_PANE), 0)


def sorting(folder: Path) -> None:
    list(sorted_entries(((n, LETTERS) for n in range(2)), lambda: folder))


@pytest.mark.parametrize("spill", [grouping, waiting, sorting])
def test_spilling_to_a_full_disk_fails_with_the_path_and_the_flag(
    tmp_path: Path, spill: Callable[[Path], None]
) -> None:
    with file_size_limit(1_000), pytest.raises(RunError, match=f"File too large: {tmp_path}/.*another --temp_dir"):
        spill(tmp_path)


# -- a job


class Running:
    """A stream that takes checkpoints, and tolerates any number of failures."""

    def __init__(self, folder: Path) -> None:
        p = tg.Pipeline()
        windowed_counts(p)
        self.log = ReportLog()
        flags = [f"--checkpoint_dir={folder}", "--checkpoint_interval=20ms", "--tolerated_failed_checkpoints=1000000"]
        self.job: Any = start_job(p, *flags, on_report=self.log)

    def wait_for_checkpoint(self) -> None:
        """Wait until another checkpoint has completed."""
        before = len(self.log.checkpoints)
        follow_until(self.job, lambda: len(self.log.checkpoints) > before)

    def wait_for_failure(self) -> str:
        """Wait until the next checkpoint has failed, and return the error."""
        before = len(self.log.all)

        def failed() -> list[str]:
            new = self.log.all[before:]
            return [report.error for report in new if isinstance(report, CheckpointReport) and report.error]

        follow_until(self.job, lambda: bool(failed()))
        return failed()[0]

    @property
    def restarted(self) -> bool:
        return any(isinstance(report, Report) and report.state == "restarting" for report in self.log.all)


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    running.wait_for_checkpoint()
    yield running
    running.job.close()


def test_a_checkpoint_whose_state_does_not_fit_fails_and_a_later_one_with_room_completes(
    stream: Running, tmp_path: Path
) -> None:
    workers = child_pids(stream.job._process.pid)
    limit(workers, 64)
    why = stream.wait_for_failure()
    assert "its state can't be stored: File too large: " in why
    assert str(tmp_path / "chk-") in why
    assert "another --checkpoint_dir" in why
    limit(workers, None)
    stream.wait_for_checkpoint()
    assert not stream.restarted
    failures = MetricKey("", ENGINE, "checkpoints_failed")
    follow_until(stream.job, lambda: stream.job.metrics.counters.get(failures, 0) > 0)


def test_a_checkpoint_whose_manifest_does_not_fit_fails_and_a_later_one_with_room_completes(
    stream: Running, tmp_path: Path
) -> None:
    limit([stream.job._process.pid], 64)
    why = stream.wait_for_failure()
    assert why.startswith(f"its manifest could not be stored: File too large: {tmp_path}/chk-")
    assert "/manifest.json; " in why
    limit([stream.job._process.pid], None)
    stream.wait_for_checkpoint()
    assert not stream.restarted


def test_partial_files_of_killed_workers_are_removed_by_the_next_attempt(tmp_path: Path) -> None:
    parts = tmp_path / "chk-parts"
    parts.mkdir()
    earlier, later = (
        [parts / f"1-chk-000007-0.0.{attempt}.{kind}" for kind in ("data", "state")] for attempt in (0, 999999)
    )
    for path in (*earlier, *later):
        path.write_bytes(b"a part")
    stream = Running(tmp_path)
    stream.wait_for_checkpoint()
    assert all(path.exists() for path in later)
    assert not any(path.exists() for path in earlier)
    stream.job.close()


def test_a_checkpoint_whose_files_cannot_be_created_fails(stream: Running, tmp_path: Path) -> None:
    parts = tmp_path / "chk-parts"  # the folder in which a worker's child writes a full snapshot
    while not parts.is_file():  # until the first full snapshot there is none, and a worker may create it again
        with contextlib.suppress(FileNotFoundError):
            parts.rename(tmp_path / f"parts-{uuid.uuid4()}")
        with contextlib.suppress(FileExistsError):
            parts.touch(exist_ok=False)
    why = stream.wait_for_failure()
    # "File exists" for a new checkpoint; "Not a directory" for one whose file was in the folder before; "No such file"
    # for one that creates its file between the rename and the touch above.
    assert re.search(
        rf"its state can't be stored: (File exists|Not a directory|No such file or directory): {re.escape(str(parts))}",
        why,
    )
    parts.unlink()
    stream.wait_for_checkpoint()
    assert not stream.restarted


@pytest.mark.parametrize("full", ["checkpoint_dir", "temp_dir"])
def test_a_job_on_rocksdb_recovers_from_a_full_disk(begin: type[KillableRun], disk: SmallFilesystem, full: str) -> None:
    flags = ["--state_backend=rocksdb", "--memory_budget=1", "--tolerated_failed_checkpoints=1000000"]
    victim = begin(*flags, f"--{full}={disk.path}", rate=500)
    victim.watch("d", 3)
    if full == "temp_dir":  # it has the store, which a failed flush breaks; that of the next attempt fails as well
        message, times = re.compile(r"state=restarting: .*No space left on device"), 2
    else:
        message, times = re.compile(r"its state can't be stored: No space left on device"), 1
    deadline = time.monotonic() + TIMEOUT
    while len(message.findall(victim.stderr)) < times:
        assert time.monotonic() < deadline, victim.stderr[-3000:]
        disk.fill()  # files that are deleted meanwhile make room
        victim.watch("rwpcmda")
    disk.make_room()
    victim.watch("d", 3)
    victim.check(victim.drain())
    assert bool(re.search(r"the store in \S+ has failed: .*No space left", victim.stderr)) == (full == "temp_dir")
