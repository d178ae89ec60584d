"""The session's process: it lets clients in, starts a job's process for each job, and tells how they are doing.

One thread, one loop. No code of the author's runs here, and nothing is unpickled of whom has not been let in.
"""

from __future__ import annotations

import json
import os
import pickle
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tidegate.runners.streaming.client.job_client import Job
from tidegate.runners.streaming.network.framing import CONTROL, Link, WireError, pair, unpickled
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.protocol.client_messages import ToClient
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport
from tidegate.runners.streaming.session.client import (
    LISTENING,
    LONGEST_REQUEST,
    EndSession,
    JobInfo,
    ListJobs,
    Place,
    Refused,
    ShowJob,
    SubmitJob,
    TellJob,
    fault_of,
)
from tidegate.runners.streaming.session.endpoint import (
    PATIENCE,
    Doorkeeper,
    EndpointError,
    check_peer,
    listen,
    listen_on_port,
)
from tidegate.runners.streaming.session.job_log import JobLog, append
from tidegate.runners.streaming.session.journal import Kept, logs_of
from tidegate.sdk.private_files import owner_only

MOST_ENDED: Final = 100
"""So many jobs that have ended are remembered."""
REPORTS: Final = 50
MOST_UNREAD: Final = 16 << 20
"""Bytes that a client may leave unread; when there are more answers, it is let go of."""
SESSION_LOG: Final = "session.log"
"""Where a session says what concerns none of its jobs, in the folder of their logs."""
MOST_KNOCKING: Final = 64
"""So many may be at the door at once; when there is one more, who has been there longest is turned away."""


@dataclass(eq=False, slots=True)
class _Client:
    """Somebody who has been let in."""

    link: Link
    follows: set[str] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class _Knocking:
    """Somebody who has yet to say who it is."""

    sock: socket.socket
    door: Doorkeeper
    since: float


class _Running:
    """A job of the session."""

    def __init__(self, request: SubmitJob, log: Path, tell: Callable[[ToClient], None]) -> None:
        self.started = time.time()
        self.ended: float | None = None
        self.checkpoint: CheckpointReport | None = None
        self.reports: deque[str] = deque(maxlen=REPORTS)
        self.log = log
        self._lines = JobLog(request.submitted.job, log)
        self._tell = tell
        self.job = Job(
            request.submitted,
            on_report=self._heard,
            paths=request.paths,
            cwd=request.cwd,
            output=self.log,
            remove=_remove_beside,
        )
        self.watched = self.job.link

    def _heard(self, message: ToClient) -> None:
        match message:
            case coordinator_io.Report(text=text) if text:
                self.reports.append(text)
            case coordinator_io.CheckpointReport(error=""):
                self.checkpoint = message
            case coordinator_io.Finish():
                self.ended = time.time()
        self._lines.take(message, self.job.error if self.ended else None)
        self._tell(message)

    def report(self, text: str) -> None:
        """Something that the session has to say of the job."""
        self._heard(coordinator_io.Report(self.job.state, text))

    def info(self) -> JobInfo:
        """How it is doing."""
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
    """The session of a name; `serve` returns when it is told to end, or gets SIGTERM."""

    def __init__(self, place: Place, port: int | None = None) -> None:
        self._place = place
        self._selector = selectors.DefaultSelector()
        self._jobs: dict[str, _Running] = {}
        self._lost: dict[str, JobInfo] = {}
        self._clients: set[_Client] = set()
        self._knocking: set[_Knocking] = set()
        self._asked: dict[Link, int] = {}
        self._over = False
        self._listeners = {listen(place.socket): b""}
        self._logs = logs_of(place.name)
        self._kept = Kept(self._logs)
        about: dict[str, object] = {"pid": os.getpid(), "logs": str(self._logs)}
        if port is not None:
            listener = listen_on_port(port)
            self._listeners[listener] = place.new_token()
            about["port"] = listener.getsockname()[1]
        with open(place.about, "w", opener=owner_only) as file:
            json.dump(about, file)
        self._go_on()

    def serve(self) -> None:
        """Until it is told to end."""
        woken, waker = pair()
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno())
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(woken, selectors.EVENT_READ, self._end)
        for listener in self._listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, lambda listener=listener: self._knock(listener))
        try:
            while not self._over:
                for key, _ in self._selector.select(self._patience()):
                    key.data()
                self._settle()
        finally:
            for running in self._jobs.values():
                running.job.link.close()  # all at once: each may take a while to close
            for id, running in self._jobs.items():
                running.job.close()
                self._kept.drop(id)
            self._place.remove()

    def _end(self) -> None:
        self._over = True

    # -- letting in

    def _knock(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        try:
            if sock.family == socket.AF_UNIX:
                check_peer(sock)
            sock.setblocking(False)
            door = Doorkeeper(self._listeners[listener])
            sock.send(door.greeting())
        except (OSError, EndpointError):
            sock.close()
            return
        if len(self._knocking) >= MOST_KNOCKING:
            self._turn_away(min(self._knocking, key=lambda knocking: knocking.since))
        knocking = _Knocking(sock, door, time.monotonic())
        self._knocking.add(knocking)
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._introduced(knocking))

    def _introduced(self, knocking: _Knocking) -> None:
        try:
            data = knocking.sock.recv(knocking.door.wanted())
            answer = knocking.door.take(data)
            if answer:
                knocking.sock.send(answer)
        except OSError:
            data = b""
        if not data or knocking.door.verdict == "refused":
            self._turn_away(knocking)
        elif knocking.door.verdict == "welcome":
            self._knocking.remove(knocking)
            self._selector.unregister(knocking.sock)
            client = _Client(Link(knocking.sock, longest=LONGEST_REQUEST))
            self._clients.add(client)
            self._ask(client.link, lambda: self._hear(client))

    def _turn_away(self, knocking: _Knocking) -> None:
        self._knocking.remove(knocking)
        self._selector.unregister(knocking.sock)
        knocking.sock.close()

    # -- clients

    def _hear(self, client: _Client) -> None:
        """What one client sends that can't be understood, or met, ends no more than its own connection."""
        try:
            for kind, body, _ in client.link.receive():
                if client.link.closed:
                    return  # it has been let go of while what it had sent was being answered
                try:
                    answer = self._answer(client, unpickled(kind, body, object))
                except WireError:
                    raise
                except (Exception, SystemExit) as error:
                    answer = Refused(f"{type(error).__name__}: {error}")
                if answer is not None:
                    self._say(client, answer)
        except WireError as error:
            self._say(client, Refused(str(error)))
            client.link.push()
            client.link.drop()

    def _answer(self, client: _Client, request: object) -> object:
        if fault := fault_of(request):
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
                found = self._found(id)
                return found.info() if isinstance(found, _Running) else found
            case TellJob(id=id, event=event):
                found = self._found(id)
                if isinstance(found, Refused):
                    return found
                info = found.info() if isinstance(found, _Running) else found
                if not isinstance(found, _Running) or found.job.ended:
                    return Refused(f"job {id} is over: {info.state}")
                client.follows.add(info.id)
                found.job.ask(event)
                return info
        raise AssertionError(request)

    def _submit(self, request: SubmitJob) -> JobInfo | Refused:
        id = request.submitted.job.id
        if id in self._jobs:
            return Refused(f"there is a job {id} already")
        ended = [other for other, running in self._jobs.items() if running.job.ended]
        for other in ended[: max(0, len(ended) - MOST_ENDED)]:
            del self._jobs[other]
            self._kept.forget(other)
        try:
            self._kept.keep(request)
            return self._start(request).info()
        except Exception as error:
            self._kept.drop(id)
            return Refused(f"the job can't be started: {_in_words(error)}")

    def _start(self, request: SubmitJob) -> _Running:
        id = request.submitted.job.id
        running = _Running(request, self._kept.log(id), lambda message: self._told(id, message))
        try:
            running.info()
        except Exception:  # nothing can be said of it, to nobody who asks
            running.job.kill()
            raise
        self._jobs[id] = running
        self._ask(running.watched, lambda: self._follow(running))
        return running

    def _go_on(self) -> None:
        """With the jobs of a session of this name that has been killed: their processes have ended with it, or are
        about to, and find themselves fenced off. What had no checkpoints is lost."""
        for id, found in self._kept.found():
            if not isinstance(found, SubmitJob):
                self._lost[id] = self._kept.lost(id, found)
                continue
            submitted = found.submitted
            settings = submitted.job.settings
            if settings.batch or settings.checkpoints.directory is None:
                nothing = "a bounded job keeps no checkpoints" if settings.batch else "it had no --checkpoint_dir"
                why = f"and {nothing} from which it could go on: submit it again"
                self._lost[id] = self._kept.lost(id, why, submitted)
                continue
            try:
                running = self._start(replace(found, submitted=submitted.elsewhere()))
            except Exception as error:
                self._lost[id] = self._kept.lost(id, f"and it can't be started again: {_in_words(error)}", submitted)
                continue
            running.job.restarts += 1
            running.report("its session was killed; in a new one it goes on from its last checkpoint")
        for id in self._lost:
            self._kept.drop(id)

    def _found(self, id: str) -> _Running | JobInfo | Refused:
        """A job by its id, or a beginning of it that only one has."""
        known: dict[str, _Running | JobInfo] = {**self._lost, **self._jobs}
        fitting = [id] if id in known else [other for other in known if other.startswith(id)]
        if len(fitting) == 1:
            return known[fitting[0]]
        return Refused(f"{'several jobs begin' if fitting else 'no job begins'} with {id}")

    def _say(self, client: _Client, message: object) -> None:
        """Answer a client, or tell it what one of its jobs tells, unless it has left too much of that unread."""
        link = client.link
        if link.unsent > MOST_UNREAD:
            link.push()  # it may have been asking faster than it was answered
        if link.unsent > MOST_UNREAD:
            left = f"a client has been let go of: it had left {link.unsent:,} bytes of answers unread"
            append(self._logs / SESSION_LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {left}")
            link.drop()
            return
        link.post(CONTROL, [pickle.dumps(message, 5)])

    # -- jobs

    def _follow(self, running: _Running) -> None:
        job = running.job
        job.hear()
        if job.link is not running.watched:  # it goes on in another process
            self._forget(running.watched)
            running.watched = job.link
            self._ask(job.link, lambda: self._follow(running))
        if job.ended:
            self._forget(job.link)
            job.close()
            self._kept.drop(job.submitted.job.id)

    def _told(self, id: str, message: ToClient) -> None:
        """Pass on what a job tells. A follower that takes nothing is left without the news, not without the end."""
        for client in self._clients:
            if id in client.follows and not (isinstance(message, coordinator_io.Progress) and client.link.waiting):
                self._say(client, message)

    # -- the loop

    def _patience(self) -> float | None:
        if not self._knocking:
            return None
        return max(0.0, min(k.since for k in self._knocking) + PATIENCE - time.monotonic())

    def _settle(self) -> None:
        """After something has happened: send what is to be sent, and let go of who has left."""
        late = time.monotonic() - PATIENCE
        for knocking in [k for k in self._knocking if k.since <= late]:
            self._turn_away(knocking)
        for client in list(self._clients):
            client.link.push()
            over = any(id in self._jobs and self._jobs[id].job.ended for id in client.follows)
            if client.link.closed or (over and not client.link.waiting):
                self._clients.remove(client)
                self._forget(client.link)
                client.link.close()
            else:
                self._ask(client.link)
        for running in self._jobs.values():
            if not running.job.ended:
                self._ask(running.watched)

    def _ask(self, link: Link, call: Callable[[], None] | None = None) -> None:
        """Have the selector look at a link: at first for `call`, then for what is still to be sent as well."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.waiting else 0)
        if call is not None:
            self._selector.register(link, events, call)
        elif self._asked.get(link) != events:
            self._selector.modify(link, events, self._selector.get_key(link).data)
        self._asked[link] = events

    def _forget(self, link: Link) -> None:
        if self._asked.pop(link, 0):
            self._selector.unregister(link)


def _remove_beside(directory: str) -> None:
    """Delete a job's directory while the others' jobs go on: what a killed process has left may take long."""
    if os.path.lexists(directory):
        threading.Thread(target=shutil.rmtree, args=[directory, True]).start()


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


def main(name: str, descriptor: int, port: int | None) -> None:
    """A session's process; it says on the pipe `descriptor` that it listens, or why it does not.

    Who started it need not stay: it is not its child, and hears nothing of its terminal.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    with open(descriptor, "w") as told:
        try:
            dispatcher = Dispatcher(Place(name), port)
        except (EndpointError, OSError) as error:
            told.write(str(error))
            sys.exit(1)
        told.write(LISTENING)
    dispatcher.serve()
