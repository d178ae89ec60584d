"""The output of epochs: what tasks have prepared is stored with an epoch, and committed once that is final."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from tidegate.runners.engine.sinks.writer import commit_output, remove_output
from tidegate.runners.spark.streaming.driver.checkpoint import Checkpoint
from tidegate.runners.spark.streaming.job import StreamJob, TaskReport
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import Write

_committing: Final = threading.Lock()


class EpochOutput:
    """The output of a job's sinks in a checkpoint. The metrics of final epochs are merged into `metrics`.

    `check_owner` raises if another process runs on the checkpoint by now.
    """

    def __init__(
        self, job: StreamJob, checkpoint: Checkpoint, check_owner: Callable[[], None], metrics: MetricCells
    ) -> None:
        self._run = job.run
        self._sinks = {step.id: step.tail for step in job.plan.steps if isinstance(step.tail, Write)}
        self._checkpoint = checkpoint
        self._check_owner = check_owner
        self._metrics = metrics
        self._reported: dict[int, MetricCells] = {}
        """The metrics of the epochs that are not final yet."""

    def prepare(self, epoch: int, reports: Iterable[TaskReport]) -> None:
        """Store what is to be committed once the epoch is final, in place of what a failed attempt of it has stored."""
        self._check_owner()
        committables: dict[int, list[Committable]] = {}
        metrics = MetricCells()
        for report in reports:
            metrics.merge(report.metrics)
            for id, prepared in report.committables.items():
                committables.setdefault(id, []).extend(prepared)
        if committables:
            self._checkpoint.store(epoch, committables)
        else:
            self._checkpoint.discard(epoch)
        self._reported[epoch] = metrics

    def commit_final(self) -> None:
        """Commit the output of the epochs that have become final, in order."""
        with _committing:
            for epoch in self._checkpoint.outstanding():
                self._check_owner()
                for id, committables in self._checkpoint.committables(epoch).items():
                    node = self._sinks[id]
                    self._metrics.merge(commit_output(node, node.sink.load(), self._run, committables, epoch))
                self._checkpoint.committed(epoch)
            for epoch in sorted(self._reported):
                if self._checkpoint.is_final(epoch):
                    self._metrics.merge(self._reported.pop(epoch))

    def remove_uncommitted(self) -> None:
        """Remove output that was never committed, such as that of tasks that Spark has run twice."""
        for node in self._sinks.values():
            remove_output(node, [self._run])
