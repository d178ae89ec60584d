"""The job's process: it performs the coordinator's actions, and reports to the coordinator what happens.

One thread runs an event loop over the client, the workers (see `worker_pool`) and signals, until the coordinator's next
wakeup. Everything that waits for the storage runs beside the loop (see `job_storage`). While a job runs, none of the
author's code runs in this process: user functions stay pickled. Only a job that had finished before loads its sinks, to
remove late output.
"""

from __future__ import annotations

import pickle
import signal
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Protocol

from tidegate.runners.engine.time.clock import monotonic_micros
from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened
from tidegate.runners.streaming.network.event_loop import EventLoop
from tidegate.runners.streaming.network.framing import CONTROL, Link, unpickled
from tidegate.runners.streaming.process.job_storage import JobStorage
from tidegate.runners.streaming.process.metrics_file import MetricsFile
from tidegate.runners.streaming.process.worker_pool import ForkedWorker, WorkerPool
from tidegate.runners.streaming.process.worker_process import MakeTasks
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.protocol.client_messages import FromClient, ToClient
from tidegate.runners.streaming.protocol.coordinator_io import Action, CoordinatorEvent
from tidegate.runners.streaming.protocol.worker_messages import AbortOutput, Commit, ToWorker
from tidegate.sdk.time import SECOND


class CoordinatorProtocol(Protocol):
    """The decisions about a job (see `coordinator.Coordinator`)."""

    def handle(self, event: CoordinatorEvent, now: int) -> list[Action]: ...
    def next_wake(self) -> int | None: ...


class JobProcess:
    """A running job. `directory` is the run's working directory."""

    def __init__(
        self,
        opened: Opened,
        directory: Path,
        coordinator: CoordinatorProtocol,
        client: Link,
        make: MakeTasks,
    ) -> None:
        self._job = opened.job
        self._coordinator = coordinator
        self._client = client
        self._metrics: MetricsFile | None = None
        self._state: coordinator_io.JobState = "created"
        self._progress: coordinator_io.Progress | None = None
        """The latest progress, if it waits until the client has received the messages before it."""
        self._events: deque[CoordinatorEvent] = deque()
        self._finish: coordinator_io.Finish | None = None
        self._kill_at: float | None = None
        self._loop = EventLoop(self._handle_wake)
        self._storage = JobStorage(opened, self._loop.wake)
        self._workers = WorkerPool(
            opened, directory, make, self._loop, self._events.append, close_inherited=self._close_in_worker
        )
        self._starting: int | None = None
        """The attempt whose workers are to be forked once the storage allows it."""
        self._may_start = False

    def run(self) -> None:
        """Run the job until it is over. The workers' output is flushed before the client receives `Finish`."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client decides what Ctrl-C does to the job
        self._loop.wake_on_signal(signal.SIGCHLD)
        if (path := self._job.settings.metrics_file) is not None:
            self._metrics = MetricsFile(self._job, path)
        self._loop.register(self._client, self._receive_from_client)
        try:
            self._events.append(coordinator_io.Begin())
            self._receive_from_client()  # requests that arrived together with the job
            while True:
                self._handle_events()
                if self._start_if_allowed():
                    continue
                if self._finish is not None and not self._workers:
                    break
                self._wait()
        finally:
            self._workers.kill_and_reap()
            self._storage.close()
        if self._progress is not None:
            self._send_to_client(self._progress)
        self._publish(self._finish)
        self._client.wait_until_sent()

    # -- the coordinator's actions

    def _handle_events(self) -> None:
        while True:
            if self._events:
                event = self._events.popleft()
            elif (
                self._finish is None
                and (wake := self._coordinator.next_wake()) is not None
                and wake <= monotonic_micros()
            ):
                event = coordinator_io.Tick()
            else:
                return
            for action in self._coordinator.handle(event, monotonic_micros()):
                # After `Finish`, closing workers still report their last counts.
                if self._finish is None or isinstance(action, coordinator_io.Progress):
                    self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case coordinator_io.Send(worker=index, message=message):
                worker = self._workers.get(index)
                if worker is not None and isinstance(message, Commit | AbortOutput):
                    self._storage.unless_fenced(partial(self._send_if_owner, worker, message))
                elif worker is not None:
                    worker.send(message)
            case coordinator_io.StartWorkers(attempt=attempt):
                self._kill_at = None
                self._workers.kill_and_reap()
                self._starting, self._may_start = attempt, False
                self._storage.unless_fenced(partial(self._allow_start, attempt))
            case coordinator_io.StopWorkers(grace=grace):
                self._kill_at = time.monotonic() + grace
                self._cancel_start()
            case coordinator_io.Store():
                self._storage.store(action, self._events.append)
            case coordinator_io.Withdraw(name=name):
                self._storage.withdraw(name)
            case coordinator_io.Delete():
                self._storage.delete(action)
            case coordinator_io.Finish():
                self._finish = action
                self._cancel_start()
                if self._kill_at is None:
                    self._kill_at = time.monotonic()  # no grace was granted
            case _:
                self._publish(action)

    def _send_if_owner(self, worker: ForkedWorker, message: ToWorker, fault: CoordinatorEvent | None) -> None:
        """Send a commit or an abort, which only the owner of the checkpoint directory may, if the worker still runs."""
        needed = self._finish is None and self._workers.get(worker.index) is worker
        if self._is_owner(fault, needed=needed):
            worker.send(message)

    def _allow_start(self, attempt: int, fault: CoordinatorEvent | None) -> None:
        if self._is_owner(fault, needed=attempt == self._starting):
            self._may_start = True

    def _is_owner(self, fault: CoordinatorEvent | None, *, needed: bool) -> bool:
        """Whether to proceed now that the storage has answered; otherwise reports the fault. An unreachable storage
        fails only the attempt that asked: a later attempt asks again."""
        if fault is not None and (needed or isinstance(fault, coordinator_io.Fenced)):
            self._events.append(fault)
        return needed and fault is None

    # -- workers

    def _start_if_allowed(self) -> bool:
        """Fork the workers of the next attempt, if there is one and no other thread runs: a lock that a thread holds
        would stay locked in the children. Returns whether they have been forked."""
        if self._starting is not None and self._may_start and self._storage.halt():
            attempt, self._starting = self._starting, None
            self._workers.start(attempt)
            self._storage.resume()
            self._events.append(coordinator_io.WorkersStarted(attempt))
            return True
        return False

    def _cancel_start(self) -> None:
        """Report workers that have not been forked yet as ended."""
        if self._starting is not None:
            for index in range(self._job.settings.workers):
                self._events.append(coordinator_io.WorkerGone(index, self._starting, "it was never started"))
            self._starting = None
            self._storage.resume()

    def _close_in_worker(self) -> None:
        self._loop.close()
        self._client.close()

    # -- the client

    def _receive_from_client(self) -> None:
        for kind, body, _ in self._client.receive():
            self._events.append(unpickled(kind, body, FromClient))
        if self._client.closed:
            self._loop.unregister(self._client)
            self._events.append(coordinator_io.CancelJob())

    def _publish(self, message: ToClient) -> None:
        """Pass a message to the metrics file and the client. A slow client misses progress that is out of date."""
        if isinstance(message, coordinator_io.Report):
            self._state = message.state
        if self._metrics is not None and (fault := self._metrics.write(message)):
            self._send_to_client(coordinator_io.Report(self._state, fault))
        if isinstance(message, coordinator_io.Progress) and self._client.waiting:
            self._progress = message
        else:
            self._send_to_client(message)

    def _send_to_client(self, message: ToClient) -> None:
        self._client.post(CONTROL, [pickle.dumps(message, 5)])

    # -- the loop

    def _wait(self) -> None:
        """Wait until an event arrives or a deadline passes."""
        self._client.push()
        if self._progress is not None and not self._client.waiting:
            self._send_to_client(self._progress)
            self._progress = None
        self._loop.poll(self._timeout())
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            self._workers.kill()

    def _timeout(self) -> float | None:
        """Seconds until the next deadline."""
        timeouts = []
        if self._finish is None and (wake := self._coordinator.next_wake()) is not None:
            timeouts.append((wake - monotonic_micros()) / SECOND)
        if self._kill_at is not None:
            timeouts.append(self._kill_at - time.monotonic())
        return max(0.0, min(timeouts)) if timeouts else None

    def _handle_wake(self) -> None:
        """The storage has completed something, or a child has ended."""
        self._storage.take()
        self._workers.reap_ended()
