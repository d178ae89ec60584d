"""Batches of tasks in a worker: from rows and state to rows and state, by tasks that live on in the process."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from tidegate.runners.spark.plan.failures import worker_failure
from tidegate.runners.spark.streaming.job import StreamJob
from tidegate.runners.spark.streaming.rows import REPORT, TICK, Row
from tidegate.runners.spark.streaming.state_log import Head, Piece, Store, read_log, save
from tidegate.runners.spark.streaming.task import StreamTask
from tidegate.sdk import moved
from tidegate.sdk.data.coders import install
from tidegate.sdk.errors import RunError
from tidegate.sdk.secrets.registry import install_secrets
from tidegate.sdk.user_code.sealing import install_classes


class LiveTasks:
    """Tasks with the token of the state that they are in.

    Spark may run a task in any worker, and a batch again, so a task in memory may be behind its state or ahead of it.
    Only one whose token is that of the state in the store is used; any other is closed, and restored from the store.
    A task that did not run in the last batch of this process has gone to another one, and is closed, too.
    """

    def __init__(self, make: Callable[[StreamJob, int, int], StreamTask] = StreamTask) -> None:
        self._make = make
        self._tasks: dict[tuple[str, int, int], tuple[str, StreamTask]] = {}
        self._now: int | None = None
        """The instant (µs) of the batch, which tells it from others."""
        self._ran: set[tuple[str, int, int]] = set()
        """The tasks that have run in this batch."""

    def run(self, job: StreamJob, level: int, index: int, store: Store, rows: Iterable[Row], now: int) -> list[Row]:
        """Run a batch of a task, and save its state. Returns the rows that it has sent."""
        key = (job.query, level, index)
        if now != self._now:
            self._abandon_stale()
            self._now = now
        self._ran.add(key)
        head = store.head()
        token, task = self._tasks.pop(key, ("", None))
        if task is not None and (head is None or head.token != token):
            task.abandon()
            task = None
        if task is None:
            task = self._opened(job, level, index, head, store, now)
        try:
            sent = task.run(rows, now)
            saved = save(store, head, task.operators(), task.progress())
        except BaseException:
            task.abandon()
            raise
        self._tasks[key] = saved.token, task
        return sent

    def _abandon_stale(self) -> None:
        """Drop the tasks that have not run in the batch that is over."""
        ran, self._ran = self._ran, set()
        for key in self._tasks.keys() - ran:
            _, task = self._tasks.pop(key)
            task.abandon()

    def _opened(self, job: StreamJob, level: int, index: int, head: Head | None, store: Store, now: int) -> StreamTask:
        task = self._make(_with_own_functions(job), level, index)
        try:
            if head is None:
                task.open(now)
            else:
                task.open(now, read_log(store), moved.loads(head.progress))
            for operator in task.operators().values():
                operator.touched()  # begins to record what changes from here on
        except BaseException:
            task.abandon()
            raise
        return task

    def forget(self) -> None:
        """Drop all tasks, which were those of an earlier query."""
        tasks, self._tasks = self._tasks, {}
        for _, task in tasks.values():
            task.abandon()

    def close(self) -> None:
        """Close all tasks, which runs the author's tear-down."""
        tasks, self._tasks = self._tasks, {}
        for _, task in tasks.values():
            task.close()


def _with_own_functions(job: StreamJob) -> StreamJob:
    """The job with functions and DoFns of its own: the tasks of a process are set up and torn down one by one."""
    return replace(job, plan=pickle.loads(pickle.dumps(job.plan, 5)))


LIVE_TASKS: Final = LiveTasks()
"""Those of this process."""


class SparkStore:
    """The state of one Spark key: a value and a list."""

    def __init__(self, head: Any, log: Any) -> None:
        self._head = head
        self._log = log

    def head(self) -> Head | None:
        found = self._head.get()
        return None if found is None else Head(found[0], found[1], found[2], bytes(found[3]))

    def pieces(self) -> Iterable[Piece]:
        return (Piece(last, bytes(data)) for last, data in self._log.get())

    def save(self, head: Head, pieces: list[Piece], *, anew: bool) -> None:
        if anew:
            self._log.clear()
        if pieces:
            self._log.appendList([tuple(piece) for piece in pieces])
        self._head.update((head.token, head.whole, head.changes, head.progress))


def run_level(payload: bytes, level: int, key: int, head: Any, log: Any, rows: Iterable[Any]) -> Iterator[Any]:
    """Run a batch of the task with this Spark key. Yields rows for Spark, addressed by keys."""
    from pyspark.sql import Row as SparkRow

    try:
        job = _loaded(payload)
        index = job.keys.index(key)
        received = [Row._make((index, *each[1:6], bytes(each[6]))) for each in rows]
        ticks = [row for row in received if row.kind == TICK]
        if len(ticks) != 1:
            raise RunError(f"Spark sent {len(ticks)} ticks to task {index} of level {level} in a batch")
        now = int(ticks[0].data)
        others = [row for row in received if row.kind != TICK]
        sent = LIVE_TASKS.run(job, level, index, SparkStore(head, log), others, now)
    except Exception as error:
        raise worker_failure(error) from None
    if level < job.levels.count - 1:
        sent.append(Row(index, TICK, 0, 0, 0, 0, ticks[0].data))
    else:
        assert all(row.kind == REPORT for row in sent)
    make = SparkRow("target", "kind", "edge", "src", "seq", "left", "data")
    for row in sent:
        yield make(job.keys[row.target], *row[1:])


def _loaded(payload: bytes) -> StreamJob:
    """The job, unpickled once for each process."""
    digest = hashlib.sha256(payload).digest()
    if digest not in _jobs:
        job: StreamJob = pickle.loads(payload)
        _jobs.clear()
        LIVE_TASKS.forget()
        install_secrets(dict(job.secrets))
        install_classes(job.plan.pipeline.classes)
        install(tuple((cls.load(), coder.load()) for cls, coder in job.plan.pipeline.coders))
        _jobs[digest] = job
    return _jobs[digest]


_jobs: Final[dict[bytes, StreamJob]] = {}
"""The job that this process has run last."""
