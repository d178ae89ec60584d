"""The client's side of a job: it starts the job's process, submits the job, and receives its messages.

The process is forked where that is safe (see `process/fork.py`), and otherwise started as a new interpreter. A socket
pair connects the two. If either process dies, the other notices, because the socket closes.
"""

from __future__ import annotations

import pickle
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.runners.engine.errors.transport import unpacked
from tidegate.runners.streaming.client.metrics import MetricsObserver
from tidegate.runners.streaming.model.exit_status import signal_name
from tidegate.runners.streaming.model.fork_safety import can_fork
from tidegate.runners.streaming.network.framing import CONTROL, Link, WireError, pair, unpickled
from tidegate.runners.streaming.process.fork import ForkedJob, fork_job
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.protocol.client_messages import FromClient, Submit, ToClient
from tidegate.runners.streaming.protocol.coordinator_io import CancelJob, JobState, StopJob, TakeSavepoint
from tidegate.runners.streaming.protocol.worker_messages import TaskStatus
from tidegate.sdk.errors import RunError, TidegateError
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.private_files import owner_only

if TYPE_CHECKING:
    from subprocess import Popen

    from tidegate.runners.streaming.process.fork_server import ForkedProcess, ForkServer

_ENTRY: Final = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from tidegate.runners.streaming.process.main import main; main(int(sys.argv.pop(1)))"
)
ENDED: Final = frozenset({"finished", "failed", "cancelled", "stopped"})


class JobClient:
    """A job in a process of its own, and its state according to the messages received so far.

    Call `receive` until the job has `ended`; it handles the messages that have arrived, and passes each to `on_report`.
    The job imports modules from `paths`, and resolves relative file names against `cwd`. It appends its output to the
    file `output`, or prints where this process prints.

    If the process of a job with checkpoints dies, the job continues in a new process, over another `link`.

    `remove` deletes the directory of a process that died before deleting it.

    `serialize` converts a job that was `submitted` with live values; None if the values are serialized already.
    """

    def __init__(
        self,
        submitted: Submit,
        *,
        serialize: Callable[[Submit], Submit] | None = None,
        on_report: Callable[[ToClient], None] | None = None,
        paths: Sequence[str] | None = None,
        cwd: str | None = None,
        output: Path | None = None,
        remove: Callable[[str], None] | None = None,
    ) -> None:
        self.submitted = submitted
        self.state: JobState = "created"
        self.error: TidegateError | None = None
        self.metrics = MetricCells()
        self.tasks: tuple[TaskStatus, ...] = ()
        self.restarts = 0
        self._observer = MetricsObserver(submitted.job.plan)
        self._serialize = serialize
        self.on_report = on_report
        self._paths = list(sys.path) if paths is None else list(paths)
        self._cwd = cwd
        self._output = output
        self._remove = remove or partial(shutil.rmtree, ignore_errors=True)
        self._deaths = 0
        self._orphaned: list[str] = []  # directories of processes that died
        self._end: CancelJob | StopJob | None = None
        self._finish: coordinator_io.Finish | None = None  # received; the process has yet to end
        self._savepoints: list[str] = []  # requested, and not reported yet
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._process: Popen[bytes] | ForkedProcess | ForkedJob
        if self._serialize is not None and not _SharedForkServer.enabled and can_fork():
            from tidegate.runners.streaming.process.main import run_job  # also imports the worker, once for all jobs

            ours, theirs = pair()
            with theirs, _signals_blocked():
                self._process, self.link = fork_job(self.submitted, theirs, run_job), Link(ours)
        else:
            if self._serialize is not None:
                self.submitted, self._serialize = self._serialize(self.submitted), None
            self._process, self.link = _start_process(self._paths, self._cwd, self._output)
            self.link.post(CONTROL, [pickle.dumps(self.submitted, 5)])
        if self._end is not None:
            self.link.post(CONTROL, [pickle.dumps(self._end, 5)])
        self.link.push()

    @property
    def ended(self) -> bool:
        """Whether the job is over; it sends no more messages."""
        return self.state in ENDED

    def count_restart(self) -> None:
        """Count a restart that happened before: this job continues one whose process died."""
        self.restarts += 1

    def send(self, event: FromClient) -> None:
        """Send a request; any thread may call this. If the process dies, its replacement gets requests to end again."""
        with self._lock:
            if isinstance(event, TakeSavepoint):
                self._savepoints.append(event.directory)
            else:
                self._end = event
            self.link.post(CONTROL, [pickle.dumps(event, 5)])
            self.link.push()

    def wait(self, timeout: float | None = None) -> bool:
        """Receive messages until the job has ended, for at most `timeout` seconds. Returns whether it has."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.ended:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self.link.wait(left)
            self.receive()
        return True

    def receive(self) -> None:
        """Handle the messages that have arrived, without waiting. A job is over once its process has ended."""
        messages: list[ToClient] = []
        with self._lock:
            self.link.push()
            fault = self._receive(messages)
        for message in messages:
            if isinstance(message, coordinator_io.Finish):
                self._finish = message
            else:
                self._handle(message)
        if fault:
            self._terminate()
        if self.link.closed and not self.ended:
            if self._finish is not None:
                self._process.wait()  # it closed its end of the link by exiting
                self._handle(self._finish)
            else:
                self._handle_death(fault)

    def _receive(self, messages: list[ToClient]) -> str:
        """Append the messages that have arrived. Drops the link at the first invalid one; returns why it is invalid."""
        try:
            while True:
                before = len(messages)
                for kind, body, _ in self.link.receive():
                    messages.append(unpickled(kind, body, ToClient))
                if len(messages) == before or not self.link.closed:  # a closed link may have more to read
                    return ""
        except WireError as error:
            self.link.drop()
            return f"killed because it sent an invalid message: {error}"

    def close(self) -> None:
        """Close the connection. A job that is still running is cancelled."""
        self.link.close()
        self._process.wait()
        for directory in (*self._orphaned, self.submitted.directory):
            self._remove(directory)

    def kill(self) -> None:
        """Kill the job's process, and close the connection."""
        self._terminate()
        self.close()

    def _terminate(self) -> None:
        """End the job's process. Closing the link is enough if it works properly; a child is also killed."""
        from subprocess import Popen

        self.link.close()
        if isinstance(self._process, Popen):
            self._process.kill()

    def _handle(self, message: ToClient) -> None:
        self._observer.update(message, time.time())
        if isinstance(message, coordinator_io.CheckpointReport) and message.savepoint in self._savepoints:
            self._savepoints.remove(message.savepoint)
        match message:
            case coordinator_io.Report(state=state):
                self.state = state
            case coordinator_io.CheckpointReport(error=""):
                self._deaths = 0
            case coordinator_io.Progress(tasks=tasks, metrics=metrics):
                self.tasks = tasks
                self._observer.add_to(metrics)
                self._replace_metrics(metrics)
            case coordinator_io.Finish(state=state, error=error):
                self._observer.add_to(self.metrics)
                if error is not None:
                    self.error = unpacked(error)
                self.state = state
        if self.on_report is not None:
            self.on_report(message)

    def _replace_metrics(self, metrics: MetricCells) -> None:
        """Replace the metrics in place, because other objects refer to the same cells."""
        for name in ("counters", "distributions", "gauges", "string_sets"):
            cells: dict[Any, Any] = getattr(self.metrics, name)
            now: dict[Any, Any] = getattr(metrics, name)
            cells.update(now)
            for key in cells.keys() - now.keys():  # a restart has undone what they counted
                del cells[key]

    def _handle_death(self, fault: str) -> None:
        code = self._process.wait()
        cause = fault or (f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}")
        self.link.close()
        settings = self.submitted.job.settings
        self._deaths += 1
        if settings.checkpoints.directory is not None and self._deaths <= settings.restart.attempts:
            self.restarts += 1
            with self._lock:
                self._orphaned.append(self.submitted.directory)
                self._remove(self.submitted.directory)  # workers that still run may recreate files in it
                self.submitted = self.submitted.in_new_directory()
            self._start()
            text = f"the job's process has died ({cause}); a new one continues the job"
            self._handle(coordinator_io.Report("restarting", text))
            for directory in list(self._savepoints):
                why = "the job's process has died before the savepoint was complete"
                self._handle(coordinator_io.CheckpointReport(0, 0.0, 0, 0.0, 0.0, why, directory))
            return
        self.error = RunError(f"the job's process has died ({cause}), and its workers with it")
        self._handle(coordinator_io.Finish("failed"))


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM. An exception that their handlers raise during a fork would interrupt the callbacks that
    run after it, which release locks, and would be swallowed."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _SharedForkServer:
    """The fork server of this process, once it is enabled and has been started."""

    enabled = False
    server: ForkServer | None = None


def use_fork_server() -> None:
    """Start the processes of jobs by a fork server (see `process/fork_server.py`): for many short jobs, as in tests."""
    if not _SharedForkServer.enabled:
        import atexit

        _SharedForkServer.enabled = True
        atexit.register(_close_fork_server)


def _close_fork_server() -> None:
    if _SharedForkServer.server is not None:
        _SharedForkServer.server.close()


def _start_process(paths: list[str], cwd: str | None, output: Path | None) -> tuple[Popen[bytes] | ForkedProcess, Link]:
    """Start a job's process; returns it and this end of the socket to it."""
    import subprocess

    ours, theirs = pair()
    if _SharedForkServer.enabled and output is None:
        from tidegate.runners.streaming.process.fork_server import ForkServer

        if _SharedForkServer.server is None or not _SharedForkServer.server.alive:
            _SharedForkServer.server = ForkServer()
        with theirs:
            return _SharedForkServer.server.fork(theirs, 1, 2, paths, cwd), Link(ours)
    flags = ["-O"] * sys.flags.optimize + [f"-W{option}" for option in sys.warnoptions]
    with theirs, nullcontext() if output is None else open(output, "ab", opener=owner_only) as file:
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", _ENTRY, str(theirs.fileno()), *paths],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=cwd,
        )
    return process, Link(ours)
