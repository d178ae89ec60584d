"""A session: jobs that run without the client that submitted them, and the commands that manage them."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

import tidegate as tg
from tests.support.streaming.child_processes import wait_for_exit
from tests.support.streaming.counting_job import job_options, windowed_counts
from tidegate.cli import app
from tidegate.runners.streaming.network.framing import CONTROL, Link, unpickled
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.runner import StreamingRunner
from tidegate.runners.streaming.session.client import (
    JobInfo,
    JobRequest,
    ListJobs,
    Refused,
    Session,
    SessionFiles,
    ShowJob,
    SubmitJob,
    open_session,
    start_session,
)
from tidegate.runners.streaming.session.endpoint import EndpointError, connect
from tidegate.runners.streaming.session.server import MAX_PENDING, MAX_UNREAD, SESSION_LOG
from tidegate.sdk.errors import RunError
from tidegate.sdk.runner import PipelineState

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(scope="module")
def session_files() -> Iterator[SessionFiles]:
    """A session for all tests here, with a port."""
    with tempfile.TemporaryDirectory(prefix="tg") as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", directory)
        patch.setenv("TMPDIR", directory)
        files = SessionFiles("tests")
        start_session(files, port=0)
        yield files
        with open_session("tests") as session:
            session.end()
        assert sorted(path.name for path in Path(directory, "tidegate").iterdir()) == []


@pytest.fixture
def session(session_files: SessionFiles) -> Iterator[Session]:
    with open_session(session_files.name) as connection:
        yield connection


def submit_detached(*flags: str) -> Any:
    """An unbounded job, submitted as by a script."""
    p = tg.Pipeline(options=job_options("--detach", "--session=tests", "--checkpoint_interval=50ms", *flags))
    windowed_counts(p)
    return p.run()


def submit_detached_bounded(fifo: Path) -> Any:
    """A bounded job that waits for a writer of a pipe, which never comes."""
    os.mkfifo(fifo)
    p = tg.Pipeline(options=job_options("--detach", "--session=fragile"))
    _ = p | tg.Create([str(fifo)]) | tg.Map(lambda path: Path(path).read_text())
    return p.run()


def follow_until(id: str, condition: Any, event: Any = None, *, name: str = "tests") -> JobInfo:
    """Receive the messages of a job until one fulfils a condition."""
    with open_session(name) as session:
        for message in session.send_and_follow(id, event or coordinator_io.TakeSavepoint("/nowhere/at/all")):
            if condition(message):
                break
        else:
            raise AssertionError("the job has ended before")
    with open_session(name) as session:
        return session.info(id)


def is_checkpoint(message: Any) -> bool:
    return isinstance(message, coordinator_io.CheckpointReport) and not message.error


def test_a_detached_job_runs_in_the_session_and_can_be_cancelled(session_files: SessionFiles) -> None:
    result = submit_detached()
    assert result.wait_until_finish() is PipelineState.RUNNING
    follow_until(result.id, lambda message: isinstance(message, coordinator_io.Progress) and message.metrics.counters)
    assert result.metrics().counter("elements_out", step="numbers") > 0
    assert result.cancel() is PipelineState.CANCELLED
    assert result.state is PipelineState.CANCELLED


def test_jobs_are_listed_with_their_state_and_checkpoints(session: Session, tmp_path: Path) -> None:
    result = submit_detached(f"--checkpoint_dir={tmp_path / 'checkpoints'}")
    info = follow_until(result.id, is_checkpoint)
    assert info.state == "running"
    assert info.checkpoint is not None
    assert info.checkpoint_dir == str(tmp_path / "checkpoints")
    assert result.id in [job.id for job in session.jobs()]
    assert session.info(result.id[:8]).id == result.id
    result.cancel()
    assert session.info(result.id).ended is not None


def test_a_stopped_job_resumes_from_its_last_checkpoint(session: Session, tmp_path: Path) -> None:
    first = submit_detached(f"--checkpoint_dir={tmp_path / 'checkpoints'}")
    follow_until(first.id, is_checkpoint)
    *_, last = session.send_and_follow(first.id, coordinator_io.StopJob())
    assert last == coordinator_io.Finish("stopped")
    second = submit_detached(f"--checkpoint_dir={tmp_path / 'checkpoints'}")
    info = follow_until(second.id, lambda message: isinstance(message, coordinator_io.Progress))
    assert any("resuming from checkpoint" in text for text in info.reports)
    second.cancel()


def test_a_savepoint_is_written_to_the_requested_folder_and_the_job_continues(session: Session, tmp_path: Path) -> None:
    result = submit_detached()
    report = session.savepoint(result.id, str(tmp_path / "savepoint"))
    assert report.savepoint == str(tmp_path / "savepoint")
    assert list((tmp_path / "savepoint").rglob("manifest.json"))
    assert result.state is PipelineState.RUNNING
    with pytest.raises(RunError, match="failed"), open_session("tests") as other:
        other.savepoint(result.id, "/proc/no/savepoint/here")
    result.cancel()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_job_whose_process_is_killed_resumes_in_a_new_one(
    session_files: SessionFiles, session: Session, tmp_path: Path
) -> None:
    result = submit_detached(f"--checkpoint_dir={tmp_path / 'checkpoints'}")
    follow_until(result.id, is_checkpoint)
    pid = session_files.described()["pid"]
    (job,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    messages = session.send_and_follow(result.id, coordinator_io.TakeSavepoint("/nowhere/at/all"))
    next(messages)
    os.kill(job, signal.SIGKILL)
    for message in messages:
        if isinstance(message, coordinator_io.Report) and "resuming from checkpoint" in message.text:
            break
    info = follow_until(result.id, is_checkpoint)
    assert info.restarts == 1
    result.cancel()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open")
def test_jobs_of_a_killed_session_resume_in_the_next_session_of_its_name(
    session_files: SessionFiles, tmp_path: Path
) -> None:
    fragile = SessionFiles("fragile")
    start_session(fragile)
    resumable = submit_detached(f"--checkpoint_dir={tmp_path / 'checkpoints'}", "--session=fragile")
    lost = submit_detached("--session=fragile")
    bounded = submit_detached_bounded(tmp_path / "fifo")
    cancelled = submit_detached(f"--checkpoint_dir={tmp_path / 'cancelled'}", "--session=fragile")
    cancelled.cancel()
    before = follow_until(resumable.id, is_checkpoint, name="fragile")
    assert before.checkpoint is not None
    pid = fragile.described()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for_exit([pid])
    start_session(fragile)
    try:
        after = follow_until(resumable.id, is_checkpoint, name="fragile")
        assert after.checkpoint is not None
        assert after.checkpoint.checkpoint > before.checkpoint.checkpoint
        assert after.restarts == 1
        assert any("resuming from checkpoint" in text for text in after.reports)
        with open_session("fragile") as session:
            assert [job.id for job in session.jobs()] == [lost.id, bounded.id, resumable.id]
            assert "no --checkpoint_dir from which it could continue: submit it again" in session.info(lost.id).error
            assert "a bounded job keeps no checkpoints" in session.info(bounded.id).error
            with pytest.raises(RunError, match="is over: failed"):
                list(session.send_and_follow(lost.id, coordinator_io.StopJob()))
        shown = command("jobs", "show", lost.id, "--session=fragile")
        assert "submit it again" in shown
        assert f"{lost.id}.log" in shown
        logs = command("jobs", "logs", resumable.id, "--session=fragile")
        assert "its session was killed; a new session continues it from its last checkpoint\n" in logs
    finally:
        with open_session("fragile") as session:
            session.end()
    start_session(fragile)
    with open_session("fragile") as session:
        assert session.jobs() == ()
        session.end()


def test_the_output_of_a_job_is_in_its_log_among_its_reports(session: Session, tmp_path: Path) -> None:
    p = tg.Pipeline()
    _ = p | tg.Create(["printed"]) | tg.Map(print)
    submitted = StreamingRunner().submission(p.sealed(), job_options())
    info = session.submit(submitted, tuple(sys.path), str(tmp_path))
    with open_session("tests") as other, suppress(RunError):  # the job may have finished by now
        list(other.send_and_follow(info.id, coordinator_io.TakeSavepoint("/nowhere/at/all")))
    log = Path(session.info(info.id).log)
    printed = [line for line in log.read_text().splitlines() if f" tidegate job={info.id}" not in line]
    assert (printed, stat.S_IMODE(log.stat().st_mode)) == (["printed"], 0o600)
    assert session.info(info.id).state == "finished"


def test_an_unknown_job_is_refused_by_name(session: Session) -> None:
    with pytest.raises(RunError, match="no job begins with nothing"):
        session.info("nothing")


def test_a_finished_job_refuses_requests(session: Session) -> None:
    result = submit_detached()
    result.cancel()
    with pytest.raises(RunError, match="is over: cancelled"):
        list(session.send_and_follow(result.id, coordinator_io.StopJob()))


def test_the_port_is_open_only_to_clients_with_the_token(session_files: SessionFiles) -> None:
    port = session_files.described()["port"]
    assert [
        stat.S_IMODE(path.stat().st_mode) for path in (session_files.token, session_files.about, session_files.socket)
    ] == [0o600] * 3
    with Session(port, session_files.token.read_bytes()) as session:
        assert isinstance(session.jobs(), tuple)
    with pytest.raises(EndpointError, match="does not accept"):
        Session(port, b"guessed")


def test_a_silent_connection_does_not_block_other_clients(session_files: SessionFiles) -> None:
    with socket.create_connection(("127.0.0.1", session_files.described()["port"])), open_session("tests") as session:
        assert isinstance(session.jobs(), tuple)


def test_a_second_session_of_the_same_name_is_refused_and_the_first_one_keeps_running(
    session_files: SessionFiles,
) -> None:
    with pytest.raises(EndpointError, match="another session"):
        start_session(session_files)
    with open_session("tests") as session:
        assert isinstance(session.jobs(), tuple)


def test_the_error_without_a_session_says_how_to_start_one(session_files: SessionFiles) -> None:
    with pytest.raises(EndpointError, match="tidegate cluster start --name elsewhere"):
        open_session("elsewhere")


def test_a_name_that_is_a_path_is_refused() -> None:
    with pytest.raises(EndpointError, match="letters, digits"):
        SessionFiles("../elsewhere")


def command(*args: str) -> str:
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_session_is_started_inspected_and_stopped_by_commands(session_files: SessionFiles) -> None:
    assert "runs as process" in command("cluster", "start", "--name", "other")
    assert "0 running jobs, 0 ended" in command("cluster", "status", "--name", "other")
    assert "has ended" in command("cluster", "stop", "--name", "other")
    failed = CliRunner().invoke(app, ["cluster", "status", "--name", "other"])
    assert failed.exit_code == 1
    assert "cluster start --name other" in failed.output


def test_jobs_are_listed_shown_saved_and_stopped_by_commands(session_files: SessionFiles, tmp_path: Path) -> None:
    in_session = "--session=tests"
    result = submit_detached(f"--checkpoint_dir={tmp_path / 'checkpoints'}")
    follow_until(result.id, is_checkpoint)
    follow_until(result.id, lambda message: isinstance(message, coordinator_io.Progress) and len(message.tasks) == 4)
    header, *rows = command("jobs", "list", in_session).splitlines()
    assert header.split() == ["ID", "STATE", "FOR", "LAST", "CHECKPOINT", "NAME"]
    (row,) = [row for row in rows if row.startswith(result.id)]
    assert row[header.index("STATE") :].startswith("running ")
    assert row[header.index("LAST") :].startswith("checkpoint ")
    assert row[header.index("NAME") :] == "pipeline"
    shown = command("jobs", "show", result.id, in_session)
    assert "task 0.0" in shown
    assert f"checkpoints in {tmp_path / 'checkpoints'}: checkpoint" in shown
    facts = json.loads(command("jobs", "show", result.id, in_session, "--json"))
    assert facts["state"] == "running"
    assert any(counter["step"] == "numbers" for counter in facts["counters"])
    assert str(tmp_path / "saved") in command("jobs", "savepoint", result.id, str(tmp_path / "saved"), in_session)
    assert command("jobs", "stop", result.id, in_session) == f"job {result.id}: stopped\n"
    assert "stopped" in command("jobs", "list", in_session)
    logs = command("jobs", "logs", result.id[:-1], in_session)
    assert f"tidegate job={result.id} checkpoint=" in logs
    assert f"is in {tmp_path / 'saved'}" in logs
    assert logs.endswith(f" tidegate job={result.id}: stopped\n")
    assert command("jobs", "logs", result.id, in_session, "--lines=1") == logs.splitlines(keepends=True)[-1]


def test_stopping_a_job_without_checkpoint_directory_needs_a_savepoint_or_a_drain(
    session_files: SessionFiles, tmp_path: Path
) -> None:
    result = submit_detached()
    refused = CliRunner().invoke(app, ["jobs", "stop", result.id, "--session=tests"])
    assert refused.exit_code == 2
    assert "add --savepoint DIR to save its state there, or --drain to end it without" in refused.output
    assert result.state is PipelineState.RUNNING
    saved = tmp_path / "saved"
    printed = command("jobs", "stop", result.id, "--session=tests", "--savepoint", os.path.relpath(saved))
    assert printed == f"job {result.id}: stopped\n"
    assert list(saved.glob("chk-*/manifest.json"))


# --- Requests of an authenticated client ----------------------------------------------------------------------------


def answers(session_files: SessionFiles, sent: bytes) -> list[Any]:
    """The session's response to a client that sends these bytes."""
    with connect(session_files.socket, b"") as sock:
        with suppress(OSError):  # the session may disconnect before all of it has been sent
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
        link = Link(sock)
        found = []
        while not link.closed:
            link.wait(None)
            found += [unpickled(kind, body, object) for kind, body, _ in link.receive()]
        return found


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack("<B3xI", kind, len(body)) + body


def encoded(request: object) -> bytes:
    return frame(CONTROL, pickle.dumps(request))


HOSTILE = {
    "an announcement of 8 GiB": frame(CONTROL | 0x80, (8 << 30).to_bytes(8, "little")),
    "a frame of three bytes": frame(CONTROL, b"abc"),
    "an announcement of three bytes": frame(CONTROL | 0x80, b"abc"),
    "no frame": b"GET / HTTP/1.1\r\n\r\n",
    "a channel's items": frame(2, bytes(100)),
}


@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_client_that_sends_an_invalid_request_is_disconnected_and_no_other(
    session_files: SessionFiles, sent: bytes
) -> None:
    result = submit_detached()
    with open_session("tests") as other:
        assert other.info(result.id).id == result.id
        (refused,) = answers(session_files, sent + encoded(ListJobs()))  # nothing after it is read
        assert isinstance(refused, Refused)
        assert other.info(result.id).id == result.id
    assert result.state is PipelineState.RUNNING
    result.cancel()


def test_a_client_that_reads_no_answers_is_disconnected_and_the_log_says_so(session_files: SessionFiles) -> None:
    result = submit_detached()
    (answer,) = answers(session_files, encoded(ListJobs()))
    enough = 2 * MAX_UNREAD // len(pickle.dumps(answer, 5))
    with connect(session_files.socket, b"") as sock:
        with suppress(OSError):  # the session disconnects before all of it has been sent
            sock.sendall(encoded(ListJobs()) * enough)
            sock.shutdown(socket.SHUT_WR)
        with open_session("tests") as other:
            logs = Path(other.info(result.id).log).parent
        link = Link(sock)
        received = 0
        while not link.closed:
            link.wait(None)
            received += sum(1 for _ in link.receive())
        assert received < enough
    (line,) = (logs / SESSION_LOG).read_text().splitlines()
    assert "a client was disconnected: it had left 16," in line
    result.cancel()


class ExitOnUnpickling:
    """Exits from the process that unpickles it, unless that is prevented."""

    def __reduce__(self) -> Any:
        return sys.exit, (7,)


def test_a_request_with_wrong_fields_is_refused_and_its_client_stays_connected(
    session_files: SessionFiles, session: Session
) -> None:
    p = tg.Pipeline()
    _ = p | tg.Create([1]) | tg.Map(print)
    valid = SubmitJob(StreamingRunner().submission(p.sealed(), job_options()), ("/",), "/")
    job = valid.submitted.job
    invalid: list[Any] = [
        17,
        None,
        Refused("no, you"),
        ExitOnUnpickling(),
        ShowJob(17),  # type: ignore[arg-type]
        ShowJob([]),  # type: ignore[arg-type]
        JobRequest("a", 17),  # type: ignore[arg-type]
        JobRequest("a", coordinator_io.TakeSavepoint(17)),  # type: ignore[arg-type]
        SubmitJob(17, (), "/"),  # type: ignore[arg-type]
        replace(valid, cwd=None),  # type: ignore[arg-type]
        replace(valid, paths=(17,)),  # type: ignore[arg-type]
        replace(valid, submitted=replace(valid.submitted, directory=None)),  # type: ignore[arg-type]
        *(
            replace(valid, submitted=replace(valid.submitted, job=replace(job, **part)))
            for part in (
                {"id": "../../elsewhere"},
                {"id": ""},
                {"plan": None},
                {"settings": 17},
                {"plan": replace(job.plan, steps=17)},  # type: ignore[arg-type]
                {"plan": replace(job.plan, pipeline=None)},  # type: ignore[arg-type]
            )
        ),
    ]
    before = session.jobs()
    found = answers(session_files, b"".join(map(encoded, [*invalid, ListJobs()])))
    assert [type(answer) for answer in found] == [Refused] * len(invalid) + [tuple]
    assert [job.id for job in session.jobs()] == [job.id for job in before]
    logs = Path(session_files.described()["logs"])
    assert not list(logs.parent.rglob("*.job"))


def test_requests_to_a_running_job_are_validated_before_they_are_forwarded(session_files: SessionFiles) -> None:
    result = submit_detached()
    invalid = [17, coordinator_io.Begin(), coordinator_io.StopJob("no"), coordinator_io.TakeSavepoint(None)]  # type: ignore[arg-type]
    found = answers(session_files, b"".join(encoded(JobRequest(result.id, event)) for event in invalid))  # type: ignore[arg-type]
    assert found == [Refused("a JobRequest can't have these fields")] * 4
    assert result.state is PipelineState.RUNNING
    assert result.cancel() is PipelineState.CANCELLED


requests = st.one_of(
    st.builds(frame, st.integers(0, 255), st.binary(max_size=60)),
    st.builds(lambda kind, length: struct.pack("<B3xI", kind, length), st.integers(0, 255), st.integers(0, 2**32 - 1)),
    st.builds(lambda size: frame(CONTROL | 0x80, size.to_bytes(8, "little")), st.integers(0, 2**64 - 1)),
    st.builds(lambda id: encoded(ShowJob(id)), st.none() | st.integers() | st.text(max_size=5)),
    st.builds(lambda value: encoded(value), st.none() | st.integers() | st.text(max_size=5)),
    st.builds(lambda data, at: frame(CONTROL, data[:at]), st.just(pickle.dumps(ListJobs())), st.integers(0, 40)),
    st.binary(max_size=60),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(requests, max_size=5).map(b"".join))
def test_a_session_survives_any_bytes_from_a_client(session_files: SessionFiles, sent: bytes) -> None:
    for answer in answers(session_files, sent):
        assert isinstance(answer, Refused)
    with open_session("tests") as other:
        assert isinstance(other.jobs(), tuple)


def test_a_request_that_is_too_long_is_refused_by_the_client(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.runners.streaming.session.client.LONGEST_REQUEST", 1 << 20)
    with pytest.raises(RunError, match="requests of at most 1 MiB, not 3: read the elements"):
        session.submit(bytes(3 << 20), (), "/")  # type: ignore[arg-type]
    assert isinstance(session.jobs(), tuple)


def test_many_silent_connections_do_not_block_other_clients(session_files: SessionFiles) -> None:
    with ExitStack() as open_sockets:
        for _ in range(2 * MAX_PENDING):
            open_sockets.enter_context(socket.socket(socket.AF_UNIX)).connect(str(session_files.socket))
        with open_session("tests") as session:
            assert isinstance(session.jobs(), tuple)
        pid = session_files.described()["pid"]
        assert len(os.listdir(f"/proc/{pid}/fd")) < MAX_PENDING + 40


def test_an_unreadable_journal_entry_becomes_a_failed_job_and_does_not_stop_a_session_from_starting(
    session_files: SessionFiles,
) -> None:
    broken = SessionFiles("broken")
    folder = Path(session_files.described()["logs"]).with_name("broken")
    folder.mkdir(mode=0o700)
    for name, content in {
        "empty": b"",
        "text": b"no pickle",
        "number": pickle.dumps(17),
        "parts": pickle.dumps(SubmitJob(17, (), "/")),  # type: ignore[arg-type]
    }.items():
        (folder / f"{name}.job").write_bytes(content)
    start_session(broken)
    with open_session("broken") as session:
        jobs = {job.id: (job.state, job.error) for job in session.jobs()}
        session.end()
    assert sorted(jobs) == ["empty", "number", "parts", "text"]
    for state, error in jobs.values():
        assert state == "failed"
        assert error.startswith("its session was killed, and its request can't be read: ")


def test_a_detached_job_has_the_values_of_its_secrets(session_files: SessionFiles, tmp_path: Path) -> None:
    fifo, secret = tmp_path / "fifo", SecretStr("harbour-master")
    os.mkfifo(fifo)
    p = tg.Pipeline(options=job_options("--detach", f"--session={session_files.name}"))
    _ = p | tg.Create([str(fifo)]) | tg.Map(lambda path: Path(path).write_text(secret.get_secret_value()))
    p.run()
    assert fifo.read_text() == "harbour-master"
