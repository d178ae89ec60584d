"""The sinks of a run: all are prepared, and then committed, once all input has been processed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.runners.engine.errors.attribution import quietly
from tidegate.runners.engine.sinks import writer
from tidegate.runners.engine.sinks.staged_files import remove_local_files
from tidegate.runners.plan import Step
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import Write


class CommittingWriter(writer.SinkWriter):
    """Writes to one sink, with one attempt per shard, and commits or aborts the sink's output."""

    def __init__(self, step: Step, run_id: str) -> None:
        assert isinstance(step.tail, Write)
        super().__init__(step, run_id, range(max(1, step.tail.shards)), always=True)
        self._prepared: tuple[Committable, ...] = ()

    def prepare(self, *, last: bool) -> tuple[Committable, ...]:
        """The committables. Files that they stage stay where the attempts left them until `commit` or `abort`."""
        prepared = super().prepare(last=last)
        self._prepared += prepared
        return prepared

    def commit(self, committables: Sequence[Committable]) -> MetricCells:
        """Make the output visible. Returns the metrics of what was written."""
        written = writer.commit_output(self.node, self.sink, self.run, list(committables))
        remove_local_files(self._prepared)
        return written

    def abort(self) -> None:
        """Remove the output of a failed run; errors of the sink are ignored."""
        self.abandon()
        quietly(lambda: self.sink.abort(self.run))
        remove_local_files(self._prepared)


def commit_all(sinks: Iterable[CommittingWriter], metrics: MetricCells) -> None:
    """Prepare every sink, then commit every sink, so that a failure to prepare leaves all of them unchanged. Adds the
    sinks' metrics to `metrics`."""
    prepared = [(sink, sink.prepare(last=True)) for sink in sinks]
    for sink, committables in prepared:
        metrics.merge(sink.commit(committables))
