"""The sinks of a run: attempts that are prepared together, and committed when everything has succeeded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.runners.engine.errors.attribution import quietly
from tidegate.runners.engine.sinks import writer
from tidegate.runners.plan import Step
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import Write


class Writing(writer.SinkWriter):
    """One sink of the run. There are as many attempts as shards were asked for, fed in turn."""

    def __init__(self, step: Step, run_id: str) -> None:
        assert isinstance(step.tail, Write)
        super().__init__(step, run_id, range(max(1, step.tail.shards)), always=True)

    def commit(self, committables: Sequence[Committable]) -> MetricCells:
        """Make it visible; what was written, as metrics."""
        return writer.commit_output(self.node, self.sink, self.run, list(committables))

    def abort(self) -> None:
        """The run has failed: leave nothing behind, whatever that says."""
        self.abandon()
        quietly(lambda: self.sink.abort(self.run))


def commit_all(sinks: Iterable[Writing], metrics: MetricCells) -> None:
    """Prepare every sink before any is committed: one that can't be prepared leaves all unchanged. What was written is
    added to the metrics."""
    prepared = [(sink, sink.prepare(last=True)) for sink in sinks]
    for sink, committables in prepared:
        metrics.merge(sink.commit(committables))
