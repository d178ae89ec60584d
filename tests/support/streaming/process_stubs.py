"""Stub coordinators and workers of a few lines, for tests of the job's process and its workers' processes.

A script of its own: `python process_stubs.py DESCRIPTOR NAME`.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from socket import socket
from typing import Any

from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Plan
from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import Settings
from tidegate.runners.streaming.network.framing import CONTROL, Link
from tidegate.runners.streaming.process.job_process import JobProcess
from tidegate.runners.streaming.process.main import first_message
from tidegate.runners.streaming.process.run_directory import run_directory
from tidegate.runners.streaming.process.worker_process import ProcessServices
from tidegate.runners.streaming.protocol import coordinator_io, worker_messages
from tidegate.runners.streaming.protocol.client_messages import Submit
from tidegate.runners.streaming.protocol.coordinator_io import Action, CoordinatorEvent
from tidegate.runners.streaming.protocol.stream_items import Item
from tidegate.runners.streaming.worker.environment import WorkerServices
from tidegate.sdk.data.block import Block
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import Environment, Pipeline


def submitted(directory: str, workers: int = 2) -> Submit:
    """A job without steps."""
    plan = Plan(Pipeline((), (), Environment("3.11", "0")), (), (), ())
    return Submit(Job("job", "run", plan, Settings(workers, False, True)), directory)


class ReportingCoordinator:
    """Starts workers once and reports their messages; the job finishes when every worker has ended its task."""

    def __init__(self, job: Job) -> None:
        self.workers = job.settings.workers
        self.attempt = 1
        self.ended: set[int] = set()
        self.gone = 0

    def next_wake(self) -> int | None:
        return None

    def handle(self, event: CoordinatorEvent, now: int) -> list[Action]:
        match event:
            case coordinator_io.Begin():
                return [coordinator_io.StartWorkers(self.attempt)]
            case coordinator_io.FromWorker(worker=worker, message=worker_messages.TaskEnded()):
                self.ended.add(worker)
                return self.finish() if len(self.ended) == self.workers else []
            case coordinator_io.FromWorker(worker=worker, attempt=attempt, message=worker_messages.Ready()):
                return [coordinator_io.Report("running", f"worker {worker} of attempt {attempt} is ready")]
            case coordinator_io.FromWorker(worker=worker, message=worker_messages.Decline(reason=reason)):
                return [coordinator_io.Report("running", f"worker {worker}: {reason}")]
            case coordinator_io.FromWorker(message=worker_messages.TaskFailed(error=error)):
                return [coordinator_io.Finish("failed", error)]
            case coordinator_io.WorkerGone():
                return self.lost(event)
            case coordinator_io.CancelJob():
                return [coordinator_io.Finish("cancelled")]
        return []

    def lost(self, event: coordinator_io.WorkerGone) -> list[Action]:
        report = coordinator_io.Report("running", f"worker {event.worker}: {event.reason}")
        return [report, coordinator_io.Finish("stopped")]

    def finish(self) -> list[Action]:
        cancels = [coordinator_io.Send(worker, worker_messages.Cancel()) for worker in range(self.workers)]
        return [*cancels, coordinator_io.StopWorkers(0.2), coordinator_io.Finish("finished")]


class RestartingCoordinator(ReportingCoordinator):
    """Restarts all workers when one has died, at most twice."""

    def lost(self, event: coordinator_io.WorkerGone) -> list[Action]:
        self.attempt += 1
        if self.attempt > 3:
            return [coordinator_io.Finish("stopped")]
        return [
            coordinator_io.Report("restarting", f"worker {event.worker}: {event.reason}"),
            coordinator_io.StartWorkers(self.attempt),
        ]


class FloodingCoordinator(ReportingCoordinator):
    """Sends more progress reports than the sockets buffer for a client that does not read."""

    def handle(self, event: CoordinatorEvent, now: int) -> list[Action]:
        actions = super().handle(event, now)
        match event:
            case coordinator_io.FromWorker(message=worker_messages.Decline(reason=number)):
                status = worker_messages.TaskStatus(TaskId(0, 0), int(number), 0, 0.0, 0.0, 0.0, 0, "running")
                return [coordinator_io.Progress((status,) * 2000, MetricCells())]
        return actions


def wait_at_gate(folder: Path) -> None:
    """Signal arrival through the named pipe `reached` of this folder, and wait until the pipe `gate` is opened."""
    for pipe, mode in (("reached", "wb"), ("gate", "rb")):
        with open(folder / pipe, mode):
            pass


class GatedStorage(LocalStorage):
    """Waits at a gate before it creates a file."""

    def create(self, name: str, data: bytes) -> bool:
        wait_at_gate(self.root.parent)
        return super().create(name, data)


class UnreachableStorage(LocalStorage):
    """The second and third fencing checks fail, as if the storage were unreachable; the third waits at a gate first."""

    checks = 0

    def fenced(self) -> str:
        self.checks += 1
        if self.checks == 3:
            wait_at_gate(self.root.parent)
        if self.checks in (2, 3):
            raise ConnectionError("nobody there")
        return ""


class RetryingCoordinator(ReportingCoordinator):
    """Requests two aborts that need ownership of the directory; restarts the workers if ownership can't be checked."""

    storage = UnreachableStorage
    ready = 0

    def handle(self, event: CoordinatorEvent, now: int) -> list[Action]:
        actions = super().handle(event, now)
        match event:
            case coordinator_io.FromWorker(attempt=attempt, message=worker_messages.Ready()):
                self.ready += 1
                if self.ready == self.workers:
                    actions += [
                        coordinator_io.Send(0, worker_messages.AbortOutput(step, ("run",))) for step in range(2)
                    ]
                elif attempt == 2 and self.ready == 2 * self.workers:
                    actions += self.finish()
            case coordinator_io.Unreachable(error=error):
                self.attempt += 1
                actions += [coordinator_io.StartWorkers(self.attempt), coordinator_io.Report("restarting", error)]
        return actions


class StoringCoordinator(ReportingCoordinator):
    """Stores a manifest once its workers are ready; reports savepoint requests; restarts workers on a stop request."""

    storage = GatedStorage
    stored = False
    ready = 0

    def handle(self, event: CoordinatorEvent, now: int) -> list[Action]:
        actions = super().handle(event, now)
        match event:
            case coordinator_io.FromWorker(message=worker_messages.Ready()):
                self.ready += 1
                if self.ready == self.workers:
                    actions.append(coordinator_io.Store(7, "chk-7/manifest.json", b"{}"))
            case coordinator_io.TakeSavepoint(directory=directory):
                actions.append(coordinator_io.Report("running", f"received {directory}"))
            case coordinator_io.StopJob():
                self.attempt += 1
                actions.append(coordinator_io.StartWorkers(self.attempt))
            case coordinator_io.Stored(error=error):
                actions.append(coordinator_io.Report("running", f"stored: {error or 'well'}"))
                self.stored = True
                if self.attempt == 1:
                    actions += self.finish()
        if self.stored and self.ready == 2 * self.workers:
            actions += self.finish()
        return actions


class FaultyCoordinator(ReportingCoordinator):
    def handle(self, event: CoordinatorEvent, now: int) -> list[Action]:
        raise ZeroDivisionError("of the coordinator's own")


class IdleWorker:
    """A worker without work; the base class of the others."""

    def __init__(self, job: Job, index: int, attempt: int, services: WorkerServices) -> None:
        self.job = job
        self.index = index
        self.attempt = attempt
        self.services = services
        self.closed = False
        self.begun = False

    def on_message(self, message: worker_messages.ToWorker) -> None:
        self.closed = isinstance(message, worker_messages.Cancel)

    def on_items(self, channel: ChannelId, items: Sequence[Item]) -> None:
        raise AssertionError("no other worker sends")

    def on_credit(self, channel: ChannelId, credit: int) -> None:
        raise AssertionError("no other worker sends")

    def next_wake(self) -> int | None:
        return None

    def work(self) -> bool:
        if not self.begun:
            self.begun = True
            self.begin()
        elif not self.unsent():
            self.go_on()
        return self.unsent()

    def unsent(self) -> bool:
        assert isinstance(self.services, ProcessServices)
        return self.services.control.waiting

    def begin(self) -> None:
        return

    def go_on(self) -> None:
        """Continue after all earlier messages have been sent."""

    def close(self) -> None:
        return

    def report(self, text: str) -> None:
        self.services.report(worker_messages.Decline(0, TaskId(0, self.index), text))

    def end(self) -> None:
        self.services.report(worker_messages.TaskEnded(TaskId(0, self.index)))


class SignalHandlingWorker(IdleWorker):
    """Reports each signal that it handles."""

    def begin(self) -> None:
        signal.signal(signal.SIGUSR1, self.on_signal)

    def on_signal(self, *_: object) -> None:
        assert isinstance(self.services, ProcessServices)
        self.report("handled a signal")
        self.services.control.push()  # the loop goes on waiting


class RingWorker(IdleWorker):
    """Sends the next worker more than a socket buffers, grants credit for received blocks, and reports their order."""

    blocks = 100

    def begin(self) -> None:
        self.received: list[int] = []
        self.credit = 0
        to = (self.index + 1) % self.job.settings.workers
        for n in range(self.blocks):
            self.services.send(
                to, ChannelId(7, self.index, to), [Block([n] * 5000), CollectionStatus(n)], flush=n % 2 == 0
            )

    def on_items(self, channel: ChannelId, items: Sequence[Item]) -> None:
        block, mark = items
        assert isinstance(block, Block)
        assert mark == CollectionStatus(block.values[0])
        self.received.append(block.values[0])
        self.services.grant(channel.source, channel, 1)
        self.report_when_done()

    def on_credit(self, channel: ChannelId, credit: int) -> None:
        assert channel.edge == 7
        self.credit += credit
        self.report_when_done()

    def report_when_done(self) -> None:
        if len(self.received) == self.credit == self.blocks:
            self.report(f"in order: {self.received == list(range(self.blocks))}")
            self.end()


class ChattyWorker(IdleWorker):
    def begin(self) -> None:
        if self.index == 0:
            for n in range(300):
                self.report(str(n))
        self.end()


class PrintingWorker(IdleWorker):
    def begin(self) -> None:
        print(f"worker {self.index} prints", end="\n" if self.index else "")  # also without an end of line
        self.end()


class SelfKillingWorker(IdleWorker):
    def begin(self) -> None:
        self.report("last words")

    def go_on(self) -> None:
        if self.index == 1:
            os.kill(os.getpid(), signal.SIGKILL)


class InvalidFrameWorker(IdleWorker):
    """Sends bytes that are not a frame; its subclass sends a message that only clients may send."""

    def begin(self) -> None:
        if self.index == 1:
            self.report("last words")

    def go_on(self) -> None:
        assert isinstance(self.services, ProcessServices)
        if self.index == 1:
            sock = socket(fileno=os.dup(self.services.control.fileno()))
            sock.setblocking(True)
            with sock:
                sock.sendall(self.invalid_bytes())
            signal.pause()

    def invalid_bytes(self) -> bytes:
        return b"no frame at all!"


class WrongMessageWorker(InvalidFrameWorker):
    def invalid_bytes(self) -> bytes:
        body = pickle.dumps(coordinator_io.CancelJob())
        return struct.pack("<B3xI", CONTROL, len(body)) + body


class ExitingWorker(IdleWorker):
    def begin(self) -> None:
        if self.index == 1:
            self.report("last words" + "!" * (4 << 20))

    def go_on(self) -> None:
        if self.index == 1:
            os._exit(3)


class RaisingWorker(IdleWorker):
    def begin(self) -> None:
        if self.index == 1:
            raise KeyError("of the worker's own")


class UnresponsiveWorker(IdleWorker):
    """Ends its task and ignores every message, including the request to close."""

    def begin(self) -> None:
        self.end()

    def on_message(self, message: worker_messages.ToWorker) -> None:
        return


class BlockedWorker(IdleWorker):
    """Worker 0 blocks in a call that never returns; worker 1's process exits."""

    def begin(self) -> None:
        if self.index == 1:
            os._exit(3)
        signal.pause()


class InterruptingWorker(IdleWorker):
    """Sends itself and the job's process SIGINT, as Ctrl-C in a terminal does."""

    def begin(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getppid(), signal.SIGINT)
        self.end()


class DirectoryWorker(IdleWorker):
    """Writes to the run's directory and reports its mode and path."""

    def begin(self) -> None:
        directory = self.services.directory()
        (directory / f"from-{self.index}").write_text("kept")
        self.report(f"{oct(directory.stat().st_mode & 0o777)} {directory}")
        self.end()


def main() -> None:
    coordinator, worker = globals()[sys.argv[2]], globals()[sys.argv[3]]
    client = Link(socket(fileno=int(sys.argv[1])))
    submitted: Any = first_message(client)
    with run_directory(submitted.directory) as directory:
        storage = getattr(coordinator, "storage", None)
        opened_storage = storage and storage(directory.parent / "kept")
        opened = Opened(submitted.job, storage=opened_storage, fenced=getattr(opened_storage, "fenced", lambda: ""))
        JobProcess(opened, directory, coordinator(submitted.job), client, worker).run()


if __name__ == "__main__":
    main()
