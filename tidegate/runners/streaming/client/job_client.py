"""The client's side of a job: it starts the job's process, submits, and follows what that tells.

The process is forked where that is safe (see `forking`), else started anew. Both ends of the one socket between them
are theirs alone. If either process dies, the other notices, for the socket closes.
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
from tidegate.runners.streaming.client.metrics import Observed
from tidegate.runners.streaming.model.exit_status import signal_name
from tidegate.runners.streaming.model.fork_safety import can_fork
from tidegate.runners.streaming.network.framing import CONTROL, Link, WireError, pair, unpickled
from tidegate.runners.streaming.process.fork import Forked, fork_job
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.protocol.client_messages import FromClient, Submit, ToClient
from tidegate.runners.streaming.protocol.coordinator_io import CancelJob, JobState, StopJob, TakeSavepoint
from tidegate.runners.streaming.protocol.worker_messages import TaskStatus
from tidegate.sdk.errors import RunError, TidegateError
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.private_files import owner_only

if TYPE_CHECKING:
    from subprocess import Popen

    from tidegate.runners.streaming.process.fork_server import Born, Nursery

_ENTRY: Final = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from tidegate.runners.streaming.process.main import main; main(int(sys.argv.pop(1)))"
)
ENDED: Final = frozenset({"finished", "failed", "cancelled", "stopped"})


class Job:
    """A job in a process of its own, as far as it has been heard of.

    `hear` takes what has come; whoever waits calls it until `ended`. `on_report` is called with each message. `paths`
    and `cwd` are where its modules and relative file names are found; what is printed goes to the
    end of the file `output`, or if there is none where this process prints.

    A job that keeps checkpoints and whose process dies goes on in a new one, over another `link`.

    `remove` deletes the directory of a process that has ended, where that could not do so itself.

    `travelling` makes ready to leave this process what is `submitted` with its values live; None: it is so already.
    """

    def __init__(
        self,
        submitted: Submit,
        *,
        travelling: Callable[[Submit], Submit] | None = None,
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
        self._observed = Observed(submitted.job.plan)
        self._travelling = travelling
        self.on_report = on_report
        self._paths = list(sys.path) if paths is None else list(paths)
        self._cwd = cwd
        self._output = output
        self._remove = remove or partial(shutil.rmtree, ignore_errors=True)
        self._deaths = 0
        self._left: list[str] = []  # directories of processes that have died
        self._end: CancelJob | StopJob | None = None
        self._finish: coordinator_io.Finish | None = None  # heard; the process that said it has yet to end
        self._savepoints: list[str] = []  # asked for, and not heard of
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._process: Popen[bytes] | Born | Forked
        if self._travelling is not None and not _Warm.wanted and can_fork():
            from tidegate.runners.streaming.process.main import run_job  # has the worker imported, once for all jobs

            ours, theirs = pair()
            with theirs, _ends_held_back():
                self._process, self.link = fork_job(self.submitted, theirs, run_job), Link(ours)
        else:
            if self._travelling is not None:
                self.submitted, self._travelling = self._travelling(self.submitted), None
            self._process, self.link = _started(self._paths, self._cwd, self._output)
            self.link.post(CONTROL, [pickle.dumps(self.submitted, 5)])
        if self._end is not None:
            self.link.post(CONTROL, [pickle.dumps(self._end, 5)])
        self.link.push()

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state in ENDED

    def ask(self, event: FromClient) -> None:
        """Tell the job; any thread may. That it is to end is told to the process that takes a dead one's place, too."""
        with self._lock:
            if isinstance(event, TakeSavepoint):
                self._savepoints.append(event.directory)
            else:
                self._end = event
            self.link.post(CONTROL, [pickle.dumps(event, 5)])
            self.link.push()

    def wait(self, timeout: float | None = None) -> bool:
        """Hear the job until it has ended, at most `timeout` seconds; whether it has."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.ended:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self.link.wait(left)
            self.hear()
        return True

    def hear(self) -> None:
        """Take what has come, without waiting. A job has ended when its process has: until then it clears up."""
        told: list[ToClient] = []
        with self._lock:
            self.link.push()
            fault = self._receive(told)
        for message in told:
            if isinstance(message, coordinator_io.Finish):
                self._finish = message
            else:
                self._take(message)
        if fault:
            self._put_down()
        if self.link.closed and not self.ended:
            if self._finish is not None:
                self._process.wait()  # the system closes its end of the link when nothing of it runs any more
                self._take(self._finish)
            else:
                self._died(fault)

    def _receive(self, told: list[ToClient]) -> str:
        """Add what has come; returns what is wrong with what came behind it, after which the link is dropped."""
        try:
            while True:
                before = len(told)
                for kind, body, _ in self.link.receive():
                    told.append(unpickled(kind, body, ToClient))
                if len(told) == before or not self.link.closed:  # else it may have said more before it closed
                    return ""
        except WireError as error:
            self.link.drop()
            return f"killed because what it sent can't be understood: {error}"

    def close(self) -> None:
        """Let go of a job: one that goes on ends, since nobody hears it any more."""
        self.link.close()
        self._process.wait()
        for directory in (*self._left, self.submitted.directory):
            self._remove(directory)

    def kill(self) -> None:
        """End the job's process at once, and let go of it."""
        self._put_down()
        self.close()

    def _put_down(self) -> None:
        """A job's process ends when its client leaves; one whose pid can't be another's by now is not asked."""
        from subprocess import Popen

        self.link.close()
        if isinstance(self._process, Popen):
            self._process.kill()

    def _take(self, message: ToClient) -> None:
        self._observed.take(message, time.time())
        if isinstance(message, coordinator_io.CheckpointReport) and message.savepoint in self._savepoints:
            self._savepoints.remove(message.savepoint)
        match message:
            case coordinator_io.Report(state=state):
                self.state = state
            case coordinator_io.CheckpointReport(error=""):
                self._deaths = 0
            case coordinator_io.Progress(tasks=tasks, metrics=metrics):
                self.tasks = tasks
                self._observed.add_to(metrics)
                self._count(metrics)
            case coordinator_io.Finish(state=state, error=error):
                self._observed.add_to(self.metrics)
                if error is not None:
                    self.error = unpacked(error)
                self.state = state
        if self.on_report is not None:
            self.on_report(message)

    def _count(self, metrics: MetricCells) -> None:
        """All metrics so far take the place of those before, in the same cells: others look at them."""
        for name in ("counters", "distributions", "gauges", "string_sets"):
            cells: dict[Any, Any] = getattr(self.metrics, name)
            now: dict[Any, Any] = getattr(metrics, name)
            cells.update(now)
            for key in cells.keys() - now.keys():  # counted by what has been undone
                del cells[key]

    def _died(self, fault: str) -> None:
        code = self._process.wait()
        cause = fault or (f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}")
        self.link.close()
        settings = self.submitted.job.settings
        self._deaths += 1
        if settings.checkpoints.directory is not None and self._deaths <= settings.restart.attempts:
            self.restarts += 1
            with self._lock:
                self._left.append(self.submitted.directory)
                self._remove(self.submitted.directory)  # as far as its workers have ended
                self.submitted = self.submitted.elsewhere()
            self._start()
            self._take(coordinator_io.Report("restarting", f"the job's process has died ({cause}); a new one goes on"))
            for directory in list(self._savepoints):
                why = "the job's process has died meanwhile"
                self._take(coordinator_io.CheckpointReport(0, 0.0, 0, 0.0, 0.0, why, directory))
            return
        self.error = RunError(f"the job's process has died ({cause}), and its workers with it")
        self._take(coordinator_io.Finish("failed"))


@contextmanager
def _ends_held_back() -> Iterator[None]:
    """Inside, Ctrl-C and SIGTERM wait. In the midst of a fork, what their handlers raise would be lost among what runs
    after it, of which the locks that are let go there may then stay held."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Warm:
    """Whether this process keeps a nursery, and which."""

    wanted = False
    nursery: Nursery | None = None


def keep_warm() -> None:
    """From now on fork jobs' processes from one that has the engine imported: for those who run many, as tests do."""
    if not _Warm.wanted:
        import atexit

        _Warm.wanted = True
        atexit.register(_cool_down)


def _cool_down() -> None:
    if _Warm.nursery is not None:
        _Warm.nursery.close()


def _started(paths: list[str], cwd: str | None, output: Path | None) -> tuple[Popen[bytes] | Born, Link]:
    """A new job process, and this end of the socket to it."""
    import subprocess

    ours, theirs = pair()
    if _Warm.wanted and output is None:
        from tidegate.runners.streaming.process.fork_server import Nursery

        if _Warm.nursery is None or not _Warm.nursery.alive:
            _Warm.nursery = Nursery()
        with theirs:
            return _Warm.nursery.birth(theirs, 1, 2, paths, cwd), Link(ours)
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
