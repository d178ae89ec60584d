"""The sinks of a run on the driver: one commit per sink, and the clean-up after failed runs."""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import quietly
from tidegate.runners.engine.sinks.writer import commit_output
from tidegate.runners.plan import Step
from tidegate.runners.spark.task_io.staging import in_folder, remove_folder
from tidegate.sdk.connectors.sinks import Committable, Sink
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import Write


class SinkCommit:
    """Commits what the tasks prepared for one sink, once all tasks have succeeded.

    `staging` is the folder of the files that the sink stages. `noted` is set once the commit log has an entry for this
    commit. From then on the output is never aborted: a later run completes the commit if this one does not.
    """

    staging: Path | None = None
    """None in entries of the commit log by earlier versions."""

    def __init__(self, step: Step, run_id: str, staging: Path) -> None:
        node = step.tail
        assert isinstance(node, Write)
        self._node = node
        self._run_id = run_id
        self.staging = staging
        self.committables: list[Committable] = []
        self.noted = False
        self._done = False

    def commit(self) -> MetricCells:
        """Make the output visible. Returns the metrics of what was written."""
        committables = self.committables if self.staging is None else in_folder(self.committables, self.staging)
        written = commit_output(self._node, self._sink(), self._run_id, committables)
        self._done = True
        return written

    def abort(self) -> None:
        """Remove what this run wrote but did not commit, such as the files of failed and speculative tasks."""
        if self.noted and not self._done:
            return
        quietly(lambda: self._sink().abort(self._run_id))
        if self.staging is not None:
            remove_folder(self.staging)

    def _sink(self) -> Sink[Any]:
        sink: Sink[Any] = self._node.sink.load()
        return sink


_failed: Final[list[SinkCommit]] = []


def abort_later(sinks: Iterable[SinkCommit]) -> None:
    """Abort these sinks again at the next run or at exit, because the last tasks of a failed run may still write."""
    _failed.extend(sinks)


@atexit.register
def abort_leftovers() -> None:
    """Remove what tasks of failed runs have written since the first abort."""
    while _failed:
        _failed.pop().abort()
