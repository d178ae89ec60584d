"""The session's process: it authenticates clients, starts a process for each job, and reports on the jobs.

One thread runs an event loop. None of the author's code runs here, and nothing is unpickled from a client before it is
authenticated.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from tidegate.runners.streaming.client.job_client import JobClient
from tidegate.runners.streaming.network.event_loop import EventLoop
from tidegate.runners.streaming.network.framing import CONTROL, Link, WireError, unpickled
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.protocol.client_messages import ToClient
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport
from tidegate.runners.streaming.session.client import (
    LISTENING,
    LONGEST_REQUEST,
    EndSession,
    JobInfo,
    JobRequest,
    ListJobs,
    Refused,
    SessionFiles,
    ShowJob,
    SubmitJob,
    invalid_reason,
)
from tidegate.runners.streaming.session.endpoint import (
    HANDSHAKE_TIMEOUT,
    EndpointError,
    Handshake,
    check_peer,
    listen,
    listen_on_port,
)
from tidegate.runners.streaming.session.job_log import JobLog, append
from tidegate.runners.streaming.session.journal import Journal, logs_of
from tidegate.sdk.private_files import owner_only

MAX_ENDED: Final = 100
"""How many jobs that have ended stay listed."""
MAX_REPORTS: Final = 50
"""How many of a job's latest reports are shown."""
MAX_UNREAD: Final = 16 << 20
"""Bytes of answers that a client may leave unread; one that leaves more is disconnected."""
SESSION_LOG: Final = "session.log"
"""The name of the session's own log, in the folder of its jobs' logs."""
MAX_PENDING: Final = 64
"""How many handshakes may be pending at once; for another connection, the oldest is rejected."""


@dataclass(eq=False, slots=True)
class _Client:
    """An authenticated client."""

    link: Link
    follows: set[str] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class _PendingConnection:
    """A connection whose handshake is not finished."""

    sock: socket.socket
    handshake: Handshake
    since: float


class _SessionJob:
    """A job of the session."""

    def __init__(self, request: SubmitJob, log: Path, publish: Callable[[ToClient], None]) -> None:
        self.started = time.time()
        self.ended: float | None = None
        self.checkpoint: CheckpointReport | None = None
        self.reports: deque[str] = deque(maxlen=MAX_REPORTS)
        self.log = log
        self._job_log = JobLog(request.submitted.job, log)
        self._publish = publish
        self.job = JobClient(
            request.submitted,
            on_report=self._handle,
            paths=request.paths,
            cwd=request.cwd,
            output=self.log,
            remove=_remove_in_background,
        )
        self.watched = self.job.link

    def _handle(self, message: ToClient) -> None:
        match message:
            case coordinator_io.Report(text=text) if text:
                self.reports.append(text)
            case coordinator_io.CheckpointReport(error=""):
                self.checkpoint = message
            case coordinator_io.Finish():
                self.ended = time.time()
        self._job_log.write(message, self.job.error if self.ended else None)
        self._publish(message)

    def report(self, text: str) -> None:
        """Log and publish a line of the session about the job."""
        self._handle(coordinator_io.Report(self.job.state, text))

    def info(self) -> JobInfo:
        """The current state of the job."""
        job = self.job.submitted.job
        steps = tuple((step.stage, step.label) for step in job.plan.steps)
        return JobInfo(
            id=job.id,
            name=job.plan.pipeline.name,
            state=self.job.state,
            workers=job.settings.workers,
            started=self.started,
            ended=self.ended,
            error=str(self.job.error) if self.job.error is not None else "",
            restarts=self.job.restarts,
            checkpoint=self.checkpoint,
            checkpoint_dir=job.settings.checkpoints.directory,
            tasks=self.job.tasks,
            steps=steps,
            metrics=self.job.metrics,
            reports=tuple(self.reports),
            log=str(self.log),
        )


class Dispatcher:
    """A session with its jobs and clients; `serve` returns at a client's request or on SIGTERM."""

    def __init__(self, place: SessionFiles, port: int | None = None) -> None:
        self._place = place
        self._loop = EventLoop(on_wake=self._end)
        self._jobs: dict[str, _SessionJob] = {}
        self._lost: dict[str, JobInfo] = {}
        self._clients: set[_Client] = set()
        self._pending: set[_PendingConnection] = set()
        self._over = False
        self._listeners = {listen(place.socket): b""}
        self._logs = logs_of(place.name)
        self._journal = Journal(self._logs)
        about: dict[str, object] = {"pid": os.getpid(), "logs": str(self._logs)}
        if port is not None:
            listener = listen_on_port(port)
            self._listeners[listener] = place.new_token()
            about["port"] = listener.getsockname()[1]
        with open(place.about, "w", opener=owner_only) as file:
            json.dump(about, file)
        self._resume_jobs()

    def serve(self) -> None:
        """Serve until a client ends the session, or SIGTERM arrives."""
        self._loop.wake_on_signal(signal.SIGTERM)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for listener in self._listeners:
            listener.setblocking(False)
            self._loop.register(listener, partial(self._accept, listener))
        try:
            while not self._over:
                self._loop.poll(self._handshake_timeout())
                self._reject_late()
                self._disconnect_clients()
        finally:
            for running in self._jobs.values():
                running.job.link.close()  # all jobs begin to end; each may take a while
            for id, running in self._jobs.items():
                running.job.close()
                self._journal.remove(id)
            self._place.remove()

    def _end(self) -> None:
        self._over = True

    # -- handshakes

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        try:
            if sock.family == socket.AF_UNIX:
                check_peer(sock)
            sock.setblocking(False)
            handshake = Handshake(self._listeners[listener])
            sock.send(handshake.greeting())
        except (OSError, EndpointError):
            sock.close()
            return
        if len(self._pending) >= MAX_PENDING:
            self._reject(min(self._pending, key=lambda pending: pending.since))
        pending = _PendingConnection(sock, handshake, time.monotonic())
        self._pending.add(pending)
        self._loop.register(sock, partial(self._shake_hands, pending))

    def _shake_hands(self, pending: _PendingConnection) -> None:
        try:
            data = pending.sock.recv(pending.handshake.missing())
            answer = pending.handshake.handle(data)
            if answer:
                pending.sock.send(answer)
        except OSError:
            data = b""
        if not data or pending.handshake.verdict == "refused":
            self._reject(pending)
        elif pending.handshake.verdict == "welcome":
            self._pending.remove(pending)
            self._loop.unregister(pending.sock)
            client = _Client(Link(pending.sock, longest=LONGEST_REQUEST))
            self._clients.add(client)
            self._loop.register(client.link, partial(self._receive, client))

    def _reject(self, pending: _PendingConnection) -> None:
        self._pending.remove(pending)
        self._loop.unregister(pending.sock)
        pending.sock.close()

    # -- clients

    def _receive(self, client: _Client) -> None:
        """Answer the requests of a client. One that sends invalid data is disconnected."""
        try:
            for kind, body, _ in client.link.receive():
                if client.link.closed:
                    return  # it was disconnected while its requests were answered
                try:
                    answer = self._answer(client, unpickled(kind, body, object))
                except WireError:
                    raise
                except (Exception, SystemExit) as error:
                    answer = Refused(f"{type(error).__name__}: {error}")
                if answer is not None:
                    self._send(client, answer)
        except WireError as error:
            self._send(client, Refused(str(error)))
            client.link.push()
            client.link.drop()

    def _answer(self, client: _Client, request: object) -> object:
        if fault := invalid_reason(request):
            return Refused(fault)
        match request:
            case SubmitJob():
                return self._submit(request)
            case ListJobs():
                return (*self._lost.values(), *(running.info() for running in self._jobs.values()))
            case EndSession():
                self._over = True
                return None
            case ShowJob(id=id):
                found = self._find(id)
                return found.info() if isinstance(found, _SessionJob) else found
            case JobRequest(id=id, event=event):
                found = self._find(id)
                if isinstance(found, Refused):
                    return found
                info = found.info() if isinstance(found, _SessionJob) else found
                if not isinstance(found, _SessionJob) or found.job.ended:
                    return Refused(f"job {id} is over: {info.state}")
                client.follows.add(info.id)
                found.job.send(event)
                return info
        raise AssertionError(request)

    def _submit(self, request: SubmitJob) -> JobInfo | Refused:
        id = request.submitted.job.id
        if id in self._jobs:
            return Refused(f"a job {id} exists already")
        ended = [other for other, running in self._jobs.items() if running.job.ended]
        for other in ended[: max(0, len(ended) - MAX_ENDED)]:
            del self._jobs[other]
            self._journal.remove_log(other)
        try:
            self._journal.add(request)
            return self._start(request).info()
        except Exception as error:
            self._journal.remove(id)
            return Refused(f"the job can't be started: {_described(error)}")

    def _start(self, request: SubmitJob) -> _SessionJob:
        id = request.submitted.job.id
        running = _SessionJob(request, self._journal.log(id), lambda message: self._publish(id, message))
        try:
            running.info()
        except Exception:  # a job that can't be described can't be listed
            running.job.kill()
            raise
        self._jobs[id] = running
        self._loop.register(running.watched, partial(self._follow, running))
        return running

    def _resume_jobs(self) -> None:
        """Continue the jobs of a killed session of this name, which processes that are still ending can no longer
        affect: they are fenced off. Jobs without checkpoints are lost."""
        for id, found in self._journal.requests():
            if not isinstance(found, SubmitJob):
                self._lost[id] = self._journal.lost(id, found)
                continue
            submitted = found.submitted
            settings = submitted.job.settings
            if settings.batch or settings.checkpoints.directory is None:
                missing = "a bounded job keeps no checkpoints" if settings.batch else "it had no --checkpoint_dir"
                why = f"and {missing} from which it could continue: submit it again"
                self._lost[id] = self._journal.lost(id, why, submitted)
                continue
            try:
                running = self._start(replace(found, submitted=submitted.in_new_directory()))
            except Exception as error:
                why = f"and it can't be restarted: {_described(error)}"
                self._lost[id] = self._journal.lost(id, why, submitted)
                continue
            running.job.count_restart()
            running.report("its session was killed; a new session continues it from its last checkpoint")
        for id in self._lost:
            self._journal.remove(id)

    def _find(self, id: str) -> _SessionJob | JobInfo | Refused:
        """A job by its id, or by an unambiguous prefix of it."""
        known: dict[str, _SessionJob | JobInfo] = {**self._lost, **self._jobs}
        fitting = [id] if id in known else [other for other in known if other.startswith(id)]
        if len(fitting) == 1:
            return known[fitting[0]]
        return Refused(f"{'several jobs begin' if fitting else 'no job begins'} with {id}")

    def _send(self, client: _Client, message: object) -> None:
        """Send an answer or a job's message to a client; disconnect it if it has left too much unread."""
        link = client.link
        if link.unsent > MAX_UNREAD:
            link.push()  # the answers of this round may not have been sent yet
        if link.unsent > MAX_UNREAD:
            text = f"a client was disconnected: it had left {link.unsent:,} bytes of answers unread"
            append(self._logs / SESSION_LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")
            link.drop()
            return
        link.post(CONTROL, [pickle.dumps(message, 5)])

    # -- jobs

    def _follow(self, running: _SessionJob) -> None:
        job = running.job
        job.receive()
        if job.link is not running.watched:  # it continues in another process
            self._loop.unregister(running.watched)
            running.watched = job.link
            self._loop.register(job.link, partial(self._follow, running))
        if job.ended:
            self._loop.unregister(job.link)
            job.close()
            self._journal.remove(job.submitted.job.id)

    def _publish(self, id: str, message: ToClient) -> None:
        """Send a job's message to the clients that follow it. A slow client misses progress, but no other message."""
        for client in self._clients:
            if id in client.follows and not (isinstance(message, coordinator_io.Progress) and client.link.waiting):
                self._send(client, message)

    # -- the loop

    def _handshake_timeout(self) -> float | None:
        """Seconds until the oldest handshake has taken too long."""
        if not self._pending:
            return None
        return max(0.0, min(pending.since for pending in self._pending) + HANDSHAKE_TIMEOUT - time.monotonic())

    def _reject_late(self) -> None:
        """Reject connections whose handshake takes too long."""
        latest = time.monotonic() - HANDSHAKE_TIMEOUT
        for pending in [pending for pending in self._pending if pending.since <= latest]:
            self._reject(pending)

    def _disconnect_clients(self) -> None:
        """Disconnect clients that have left, or that have received everything about a job that is over."""
        for client in list(self._clients):
            client.link.push()
            over = any(id in self._jobs and self._jobs[id].job.ended for id in client.follows)
            if client.link.closed or (over and not client.link.waiting):
                self._clients.remove(client)
                self._loop.unregister(client.link)
                client.link.close()


def _remove_in_background(directory: str) -> None:
    """Delete a job's directory in a thread, because a killed process may have left many files."""
    if os.path.lexists(directory):
        threading.Thread(target=shutil.rmtree, args=[directory, True]).start()


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


def main(name: str, descriptor: int, port: int | None) -> None:
    """Run a session's process, detached from the process that started it and from its terminal.

    It writes to the pipe `descriptor` once it listens, or why it can't.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    with open(descriptor, "w") as starter:
        try:
            dispatcher = Dispatcher(SessionFiles(name), port)
        except (EndpointError, OSError) as error:
            starter.write(str(error))
            sys.exit(1)
        starter.write(LISTENING)
    dispatcher.serve()
