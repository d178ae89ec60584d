"""The job's process and its workers: real processes, real sockets, real signals."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.streaming.child_processes import child_pids
from tests.support.streaming.process_stubs import submitted
from tidegate.runners.engine.errors.transport import unpacked
from tidegate.runners.streaming.network.framing import CONTROL, Link, pair
from tidegate.runners.streaming.protocol import coordinator_io

LONG = 60.0


class Started:
    """A job's process with stub workers. All its processes inherit the write end of `alive`."""

    def __init__(
        self, tmp_path: Path, worker: str, coordinator: str = "ReportingCoordinator", workers: int = 2
    ) -> None:
        ours, theirs = pair()
        self.alive, write_end = os.pipe()
        self.directory = tmp_path / "run"
        command = [sys.executable, str(Path(__file__).parents[2] / "support" / "streaming" / "process_stubs.py")]
        self.process = subprocess.Popen(
            [*command, str(theirs.fileno()), coordinator, worker],
            pass_fds=[theirs.fileno(), write_end],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        os.close(write_end)
        theirs.close()
        self.link = Link(ours)
        self.link.post(CONTROL, [pickle.dumps(submitted(str(self.directory), workers))])
        self.link.wait_until_sent()

    def send(self, event: Any) -> None:
        """Send an event as the client."""
        self.link.post(CONTROL, [pickle.dumps(event)])
        self.link.wait_until_sent()

    def messages(self) -> Iterator[Any]:
        """The job's messages until it closes the connection."""
        while not self.link.closed:
            assert self.link.wait(LONG), "the job sends nothing"
            for _, body, _ in self.link.receive():
                yield pickle.loads(body)

    def ended(self) -> tuple[list[str], coordinator_io.Finish]:
        """All reports, and how the job ended."""
        *reports, finish = self.messages()
        return [report.text for report in reports], finish

    def wait_until_all_exit(self) -> None:
        assert os.read(self.alive, 1) == b""

    def close(self) -> None:
        self.link.close()
        self.wait_until_all_exit()
        os.close(self.alive)
        assert self.process.stdout is not None
        self.process.stdout.close()
        if self.process.wait() >= 0:  # a killed process leaves the directory to its client
            assert not self.directory.exists()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    jobs: list[Started] = []

    def make(*args: Any, **kwargs: Any) -> Started:
        jobs.append(Started(tmp_path, *args, **kwargs))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_workers_exchange_more_than_sockets_buffer_and_receive_it_in_order(start: Any, workers: int) -> None:
    reports, finish = start("RingWorker", workers=workers).ended()
    assert finish == coordinator_io.Finish("finished")
    expected = [f"worker {n} of attempt 1 is ready" for n in range(workers)]
    expected += [f"worker {n}: in order: True" for n in range(workers)]
    assert sorted(reports) == sorted(expected)


def test_the_output_of_workers_is_written_before_the_client_receives_the_end(start: Any) -> None:
    job = start("PrintingWorker")
    job.ended()
    os.set_blocking(job.process.stdout.fileno(), False)
    printed = os.read(job.process.stdout.fileno(), 1000).decode()
    assert printed.replace("\n", "") in ("worker 0 printsworker 1 prints", "worker 1 printsworker 0 prints")


def test_a_killed_worker_is_noticed_and_its_last_message_is_received(start: Any) -> None:
    reports, finish = start("SelfKillingWorker").ended()
    assert finish == coordinator_io.Finish("stopped")
    assert "worker 1: last words" in reports
    assert reports[-1].startswith("worker 1: killed by SIGKILL")


@pytest.mark.parametrize(
    ("worker", "why"),
    [
        ("InvalidFrameWorker", "a frame has the unknown kind 110"),
        ("WrongMessageWorker", "of the class CancelJob is not allowed here"),
    ],
)
def test_a_worker_that_sends_an_invalid_message_is_killed_and_the_job_reports_why(
    start: Any, worker: str, why: str
) -> None:
    reports, finish = start(worker).ended()
    assert finish == coordinator_io.Finish("stopped")
    assert "worker 1: last words" in reports
    assert reports[-1].startswith("worker 1: it was killed because it sent an invalid message: ")
    assert why in reports[-1]


def test_a_workers_exit_is_reported_after_all_its_messages(start: Any) -> None:
    reports, _ = start("ExitingWorker").ended()
    assert [text.rstrip("!") for text in reports if text.startswith("worker 1:")] == [
        "worker 1: last words",
        "worker 1: its process ended with exit code 3",
    ]


def test_an_exception_of_a_worker_outside_its_tasks_fails_the_job(start: Any) -> None:
    _, finish = start("RaisingWorker").ended()
    assert finish.state == "failed"
    assert "KeyError: 'of the worker's own'" in str(unpacked(finish.error)).replace('"', "'")


def test_a_new_attempt_begins_once_all_workers_of_the_previous_one_have_exited(start: Any) -> None:
    reports, finish = start("BlockedWorker", "RestartingCoordinator").ended()
    assert finish == coordinator_io.Finish("stopped")
    assert [text for text in reports if "exit code" in text] == ["worker 1: its process ended with exit code 3"] * 2


def test_a_worker_that_does_not_close_is_killed(start: Any) -> None:
    _, finish = start("UnresponsiveWorker").ended()
    assert finish == coordinator_io.Finish("finished")


def test_the_job_ends_with_its_client(start: Any) -> None:
    job = start("IdleWorker")
    both = list(itertools.islice(job.messages(), 2))
    assert [report.state for report in both] == ["running"] * 2
    job.link.close()
    job.wait_until_all_exit()
    assert job.process.wait() == 0


def test_workers_end_when_the_job_process_is_killed(start: Any, tmp_path: Path) -> None:
    job = start("IdleWorker")
    next(job.messages())
    job.process.send_signal(signal.SIGKILL)
    job.wait_until_all_exit()


def test_only_the_client_reacts_to_ctrl_c(start: Any) -> None:
    _, finish = start("InterruptingWorker").ended()
    assert finish == coordinator_io.Finish("finished")


def test_workers_share_a_private_directory_that_is_removed_after_the_run(start: Any) -> None:
    job = start("DirectoryWorker")
    reports, _ = job.ended()
    directories = {text.partition(": ")[2] for text in reports if "0o" in text}
    assert directories == {f"0o700 {job.directory}"}
    assert not job.directory.exists()


def test_a_client_that_reads_slowly_skips_outdated_progress_and_receives_the_end(start: Any) -> None:
    job = start("ChattyWorker", "FloodingCoordinator")
    progress = []
    finish = None
    for message in job.messages():
        match message:
            case coordinator_io.Progress(tasks=tasks):
                progress.append(tasks[0].records_in)
            case coordinator_io.Finish():
                finish = message
    assert finish == coordinator_io.Finish("finished")
    assert progress == sorted(progress)
    assert progress[-1] == 299


def test_a_fault_of_the_coordinator_ends_the_job_with_an_error(start: Any) -> None:
    job = start("IdleWorker", "FaultyCoordinator")
    job.wait_until_all_exit()
    assert job.process.wait() != 0


class Gate:
    """The gate at which a `GatedStorage` storage of a job waits."""

    def __init__(self, folder: Path) -> None:
        self._reached, self._gate = folder / "reached", folder / "gate"
        os.mkfifo(self._reached)
        os.mkfifo(self._gate)

    def wait_until_reached(self) -> None:
        with open(self._reached, "rb") as pipe:
            pipe.read()

    def open(self) -> None:
        with open(self._gate, "wb"):
            pass


def reported(messages: Iterator[Any]) -> str:
    return str(next(messages).text)


def test_messages_of_client_and_workers_are_handled_while_a_manifest_is_stored(start: Any, tmp_path: Path) -> None:
    gate, job = Gate(tmp_path), start("SignalHandlingWorker", "StoringCoordinator")
    messages = job.messages()
    assert sorted([reported(messages), reported(messages)]) == [f"worker {n} of attempt 1 is ready" for n in range(2)]
    gate.wait_until_reached()
    job.send(coordinator_io.TakeSavepoint("the client"))
    assert reported(messages) == "received the client"
    (victim, _) = child_pids(job.process.pid)
    os.kill(victim, signal.SIGUSR1)
    assert reported(messages).endswith(": handled a signal")
    gate.open()
    assert reported(messages) == "stored: well"
    assert list(messages) == [coordinator_io.Finish("finished")]
    assert (tmp_path / "kept" / "chk-7" / "manifest.json").read_bytes() == b"{}"


def test_workers_are_forked_only_while_no_other_thread_runs(start: Any, tmp_path: Path) -> None:
    gate, job = Gate(tmp_path), start("IdleWorker", "StoringCoordinator")
    messages = job.messages()
    for _ in range(2):
        reported(messages)
    gate.wait_until_reached()
    job.send(coordinator_io.StopJob())
    job.send(coordinator_io.TakeSavepoint("a later savepoint"))
    assert reported(messages) == "received a later savepoint"
    assert child_pids(job.process.pid) == []
    gate.open()
    reports = [message.text for message in messages if isinstance(message, coordinator_io.Report)]
    assert sorted(reports) == ["stored: well", *(f"worker {n} of attempt 2 is ready" for n in range(2))]


def test_an_unreachable_storage_in_one_attempt_does_not_end_the_next(start: Any, tmp_path: Path) -> None:
    gate, job = Gate(tmp_path), start("IdleWorker", "RetryingCoordinator")
    messages = job.messages()
    for _ in range(2):
        reported(messages)
    assert "nobody there" in reported(messages)
    gate.wait_until_reached()
    gate.open()
    reports = [message.text for message in messages if isinstance(message, coordinator_io.Report)]
    assert sorted(reports) == [f"worker {n} of attempt 2 is ready" for n in range(2)]


def test_a_job_ends_though_its_storage_does_not_answer(start: Any, tmp_path: Path) -> None:
    gate, job = Gate(tmp_path), start("IdleWorker", "StoringCoordinator")
    messages = job.messages()
    for _ in range(2):
        reported(messages)
    gate.wait_until_reached()
    job.send(coordinator_io.CancelJob())
    assert list(messages) == [coordinator_io.Finish("cancelled")]
    assert job.process.wait() == 0
    assert not (tmp_path / "kept" / "chk-7").exists()


SIGNAL_DURING_FORK = """
import os, signal
import tidegate as tg

me = os.getpid()

def interrupt():
    if os.getpid() == me:
        os.kill(me, signal.SIGTERM)

def end(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGTERM, end)
p = tg.Pipeline(options=["--runner", "streaming", "--workers", "1", "--run_for", "60"])
p | tg.PeriodicImpulse(0.01) | tg.Map(lambda tick: None)
os.register_at_fork(after_in_parent=interrupt)
try:
    p.run().wait_until_finish()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_signal_during_the_fork_of_the_jobs_process_interrupts_the_client_afterwards(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SIGNAL_DURING_FORK)
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        timeout=LONG,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("interrupted\n", "", 0)


def test_a_forked_jobs_processes_do_not_inherit_blocked_signals(tmp_path: Path) -> None:
    mask = tmp_path / "mask"
    script = (
        "import signal\nimport tidegate as tg\n"
        "p = tg.Pipeline(options=['--runner', 'streaming', '--workers', '1'])\n"
        "def masked(n):\n    return sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
        f"p | tg.Create([1]) | tg.Map(masked) | tg.Map(lambda blocked: open({str(mask)!r}, 'w').write(str(blocked)))\n"
        "p.run()\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
    )
    (tmp_path / "script.py").write_text(script)
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        timeout=LONG,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    assert (ran.stdout, mask.read_text()) == ("set()\n", "[]"), ran.stderr
