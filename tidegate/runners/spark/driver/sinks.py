"""The sinks of a run on the driver: one commit for each, and the clean-up after failed runs."""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import quietly
from tidegate.runners.engine.sinks.writer import commit_output
from tidegate.runners.plan import Step
from tidegate.sdk.connectors.sinks import Committable, Sink
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import Write


class SinkCommit:
    """One sink on the driver: what the tasks prepared is committed when all have succeeded.

    `noted`: a manifest says that it is to be committed. Then it will be, by a later run if not by this one.
    """

    def __init__(self, step: Step, run_id: str) -> None:
        node = step.tail
        assert isinstance(node, Write)
        self._node = node
        self._run_id = run_id
        self.committables: list[Committable] = []
        self.noted = False
        self._done = False

    def commit(self) -> MetricCells:
        """Make everything visible, and return what was written as metrics."""
        written = commit_output(self._node, self._sink(), self._run_id, self.committables)
        self._done = True
        return written

    def abort(self) -> None:
        """Remove what this run wrote and will not commit: strays of failed and of speculative tasks."""
        if self.noted and not self._done:
            return
        quietly(lambda: self._sink().abort(self._run_id))

    def _sink(self) -> Sink[Any]:
        sink: Sink[Any] = self._node.sink.load()
        return sink


_failed: Final[list[SinkCommit]] = []


def abort_later(sinks: Iterable[SinkCommit]) -> None:
    """Sweep a failed run's sinks once more at the next run, or at exit: its last tasks may write on for a while."""
    _failed.extend(sinks)


@atexit.register
def abort_leftovers() -> None:
    """Sweep what runs that failed have left since."""
    while _failed:
        _failed.pop().abort()
