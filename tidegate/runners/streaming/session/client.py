"""The client's side of a session: its requests and answers, its files, and the connection to it.

A session is a process that outlives its clients and runs the jobs that they submit. It listens in the user's private
directory (see `endpoint`), and starts a process for each job as a client would. If that process dies, the job continues
in a new one from its last checkpoint. When the session ends, its jobs end; if it is killed, the next session of its
name continues them.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import secrets
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from tidegate.runners.plan import Plan
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import Settings
from tidegate.runners.streaming.network.framing import CONTROL, Link, WireError, unpickled
from tidegate.runners.streaming.protocol.client_messages import FromClient, Submit, ToClient
from tidegate.runners.streaming.protocol.coordinator_io import (
    CancelJob,
    CheckpointReport,
    JobState,
    StopJob,
    TakeSavepoint,
)
from tidegate.runners.streaming.protocol.worker_messages import TaskStatus
from tidegate.runners.streaming.session.endpoint import EndpointError, connect, private_directory
from tidegate.runners.streaming.session.names import DEFAULT
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import Pipeline
from tidegate.sdk.private_files import owner_only

LONGEST_REQUEST: Final = 1 << 30
"""The largest request, in bytes: a pipeline with the elements of its `Create`s."""
LISTENING: Final = "listening"
"""The report of a session's process that it listens."""


# -- requests


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Run a job. Its modules are imported from the client's `paths`, and relative file names resolved against `cwd`."""

    submitted: Submit
    paths: tuple[str, ...]
    cwd: str


@dataclass(frozen=True, slots=True)
class ListJobs:
    """All jobs, the latest last: a tuple of `JobInfo`."""


@dataclass(frozen=True, slots=True)
class ShowJob:
    """The state of a job: its `JobInfo`."""

    id: str


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A request to a job. The answer is its `JobInfo`, followed by the job's messages until it has ended."""

    id: str
    event: FromClient


@dataclass(frozen=True, slots=True)
class EndSession:
    """End all jobs and the session, which closes the connection instead of answering."""


Request: TypeAlias = SubmitJob | ListJobs | ShowJob | JobRequest | EndSession


def invalid_reason(request: object) -> str:
    """Why a request is malformed; "" if it is well-formed.

    Requests are forwarded to the processes of jobs, and name files, so the session validates them first.
    """
    match request:
        case ListJobs() | EndSession() | ShowJob(id=str()):
            return ""
        case JobRequest(id=str(), event=CancelJob() | TakeSavepoint(directory=str())):
            return ""
        case JobRequest(id=str(), event=StopJob(drain=bool(), savepoint=None | str())):
            return ""
        case SubmitJob(submitted=Submit(job=Job(id=str(id)) as job, directory=str()), paths=tuple(paths), cwd=str()):
            planned = isinstance(job.plan, Plan) and isinstance(job.plan.pipeline, Pipeline)
            if not (planned and isinstance(job.settings, Settings) and all(isinstance(path, str) for path in paths)):
                return "the submitted job is not a planned pipeline with its settings"
            return "" if _ID.fullmatch(id) else f"a job's id must consist of letters, digits, - and _, unlike {id!r}"
        case SubmitJob() | ShowJob() | JobRequest():
            return f"a {type(request).__name__} can't have these fields"
    return f"a session has no request of the class {type(request).__name__}"


_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a request that can't be met."""

    reason: str


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The state of a job, with the latest lines of its `reports`. Times are in seconds since 1970."""

    id: str
    name: str
    state: JobState
    workers: int
    started: float
    ended: float | None
    error: str
    restarts: int
    checkpoint: CheckpointReport | None
    checkpoint_dir: str | None
    tasks: tuple[TaskStatus, ...]
    steps: tuple[tuple[int, str], ...]
    """The steps' stages and labels."""
    metrics: MetricCells
    reports: tuple[str, ...]
    log: str


# -- the place of a session


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """The files of a session of this user."""

    name: str

    def __post_init__(self) -> None:
        if not self.name or not self.name.replace("-", "").replace("_", "").isalnum():
            raise EndpointError(f"a session's name must consist of letters, digits, - and _, unlike {self.name!r}")

    @property
    def socket(self) -> Path:
        """The socket on which it listens."""
        return private_directory() / f"{self.name}.sock"

    @property
    def about(self) -> Path:
        """A JSON object: `pid`, and `port` if it has one."""
        return private_directory() / f"{self.name}.json"

    @property
    def token(self) -> Path:
        """The secret that a client must know to connect to the port."""
        return private_directory() / f"{self.name}.token"

    def new_token(self) -> bytes:
        """Create a new token, which only this user can read."""
        token = secrets.token_hex(32)
        self.token.unlink(missing_ok=True)
        with open(self.token, "x", opener=owner_only) as file:
            file.write(token)
        return token.encode()

    def remove(self) -> None:
        """Remove all files after the end of the session."""
        for path in (self.socket, self.about, self.token):
            path.unlink(missing_ok=True)

    def described(self) -> dict[str, Any]:
        """The content of `about`; {} if there is none."""
        try:
            found = json.loads(self.about.read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


class Session:
    """A connection to a session, for one request at a time. EndpointError if no session answers."""

    def __init__(self, place: Path | int, token: bytes = b"") -> None:
        self._link = Link(connect(place, token))
        self._received: deque[Any] = deque()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def ask(self, request: Request) -> Any:
        """Send a request; returns the answer. RunError if it is refused, EndpointError if the session ends."""
        data = pickle.dumps(request, 5)
        if len(data) > LONGEST_REQUEST:
            raise RunError(
                f"a session accepts requests of at most {LONGEST_REQUEST >> 20} MiB, not {len(data) >> 20}: "
                "read the elements of large Creates from files, or run the pipeline without --detach"
            )
        self._link.post(CONTROL, [data])
        self._link.wait_until_sent()
        answer = next(self._messages(), None)
        if answer is None:
            raise EndpointError("the session has ended")
        if isinstance(answer, Refused):
            raise RunError(answer.reason)
        return answer

    def end(self) -> None:
        """End the session, and wait until it has."""
        self._link.post(CONTROL, [pickle.dumps(EndSession(), 5)])
        self._link.wait_until_sent()
        for _ in self._messages():
            continue

    def submit(self, submitted: Submit, paths: tuple[str, ...], cwd: str) -> JobInfo:
        """Run a job."""
        answer: JobInfo = self.ask(SubmitJob(submitted, paths, cwd))
        return answer

    def jobs(self) -> tuple[JobInfo, ...]:
        """All jobs, the latest last."""
        answer: tuple[JobInfo, ...] = self.ask(ListJobs())
        return answer

    def info(self, id: str) -> JobInfo:
        """The state of a job."""
        answer: JobInfo = self.ask(ShowJob(id))
        return answer

    def send_and_follow(self, id: str, event: FromClient) -> Iterator[ToClient]:
        """Send a request to a job, and iterate over its messages until it has ended."""
        self.ask(JobRequest(id, event))
        yield from self._messages()

    def savepoint(self, id: str, directory: str) -> CheckpointReport:
        """Make a job take a savepoint, and wait until it is complete. RunError if it fails."""
        for message in self.send_and_follow(id, TakeSavepoint(directory)):
            match message:
                case CheckpointReport(savepoint=savepoint) as report if savepoint == directory:
                    if report.error:
                        raise RunError(f"the savepoint in {directory} failed: {report.error}")
                    return report
        raise RunError(f"job {id} ended before its savepoint was complete")

    def _messages(self) -> Iterator[Any]:
        while self._received or not self._link.closed:
            if self._received:
                yield self._received.popleft()
                continue
            self._link.wait(None)
            try:
                for kind, body, _ in self._link.receive():
                    self._received.append(unpickled(kind, body, object))
            except WireError as error:
                self._link.drop()
                raise EndpointError(f"the session sent an invalid message: {error}") from error


def open_session(name: str = DEFAULT) -> Session:
    """Connect to the session of that name. If none runs, the EndpointError says how to start one."""
    place = SessionFiles(name)
    try:
        return Session(place.socket)
    except EndpointError as error:
        option = "" if name == DEFAULT else f" --name {name}"
        raise EndpointError(f"{error}\n  `tidegate cluster start{option}` starts a session") from None


def start_session(place: SessionFiles, port: int | None = None) -> None:
    """Start a session in the background, and wait until it listens. EndpointError if it can't."""
    import subprocess
    import sys

    reader, writer = os.pipe()
    entry = f"import sys; sys.path[:] = sys.argv[1:]; from {__package__}.server import main; "
    with open(reader) as report:
        starter = subprocess.Popen(
            [sys.executable, "-c", f"{entry}main({place.name!r}, {writer}, {port})", *sys.path],
            pass_fds=[writer],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        os.close(writer)
        starter.wait()
        reported = report.read()
    if reported != LISTENING:
        raise EndpointError(reported or "the session's process died before it listened")
