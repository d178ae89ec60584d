"""The watermark of a feedback loop: the minimum over its inputs and over what is under way, as its heads report it.

Each head reports, as it sends a mark, the earliest timestamp among its backlog, what has entered the body since its
last mark, and what the last mark has met on its way. So when all have reported the same number, nothing earlier than
the least of these is under way, and nothing earlier will be: it would be made of something that some report has. Where
nothing at all is under way and the inputs have ended, the watermark is at the end of time. What that causes in the body
is ahead of the next mark; when this has been round without meeting anything, the loop is over.

>>> from tidegate.sdk.time import MIN_MICROS
>>> time = LoopWatermark(loop=3, heads=1)
>>> def report(number, low, watermark, ended=False):
...     status = CollectionStatus(watermark, ended=ended)
...     return time.report(LoopReport(3, 0, number, low, (("0", status),), False, MAX_MICROS)).status
>>> report(1, MIN_MICROS, 10).watermark == MIN_MICROS, report(2, 4, 10).watermark, report(3, NOTHING, 10).watermark
(True, 4, 10)
>>> [report(number, NOTHING, MAX_MICROS, ended=True).ended for number in (4, 5, 6)]
[False, False, True]
"""

from __future__ import annotations

from typing import Final

from tidegate.runners.engine.iteration.backlog import NOTHING
from tidegate.runners.engine.time.watermarks import CollectionStatus, MinWatermark
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.worker_messages import BeginMark, LoopReport, LoopTime, ToWorker
from tidegate.sdk.time import MAX_MICROS


class LoopWatermark:
    """The watermark of one loop in one attempt. `heads`: how many tasks have a head."""

    def __init__(self, loop: int, heads: int) -> None:
        self.loop = loop
        self.number = 0
        """The last mark that all heads have reported."""
        self.quiet_marks = 0
        """At how many marks in a row nothing was under way or changed."""
        self.clock = MAX_MICROS
        """When the next timer in the loop fires (µs)."""
        self._heads = heads
        self._reports: dict[int, LoopReport] = {}
        self._inputs = MinWatermark()
        self._status = CollectionStatus()
        self._at_end: int | None = None
        """The mark at which the watermark came to the end of time."""

    @property
    def over(self) -> bool:
        """Whether the inputs have ended, and nothing is under way."""
        return self._status.ended

    @property
    def begun(self) -> bool:
        """Whether some head has sent the next mark."""
        return bool(self._reports)

    def report(self, report: LoopReport) -> LoopTime | None:
        """What all heads are to be told, if this is the last of their reports of a mark."""
        self._reports[report.head] = report
        if len(self._reports) < self._heads:
            return None
        reports, self._reports = self._reports, {}
        self.number = report.number
        self.clock = min(each.clock for each in reports.values())
        if self.number == 1:  # nothing has been round yet that would have met what is under way
            return LoopTime(self.loop, 1, self._status, settled=False)
        inputs = {name: status for _, each in sorted(reports.items()) for name, status in each.inputs}
        low = min(each.low for each in reports.values())
        before, self._status = self._status, self._status_of(self._inputs.of(inputs), low)
        moved = self._status != before or any(each.moved for each in reports.values())
        self.quiet_marks = 0 if moved else self.quiet_marks + 1
        beside = any(not status.ended for name, status in inputs.items() if not name.isdecimal())
        settled = low == NOTHING and not beside and (self._at_end is None or self.over)
        return LoopTime(self.loop, self.number, self._status, settled)

    def _status_of(self, inputs: CollectionStatus, low: int) -> CollectionStatus:
        if self.over:
            return self._status
        watermark = max(self._status.watermark, min(inputs.watermark, low, MAX_MICROS))
        nothing = low == NOTHING
        if not (inputs.ended and nothing):
            return CollectionStatus(watermark, idle=inputs.idle and nothing)
        if self._at_end is None:
            self._at_end = self.number
        return CollectionStatus(watermark, ended=self.number >= self._at_end + 2)


class LoopTimes:
    """The watermarks of all feedback loops of a job. Its methods return messages to all workers."""

    def __init__(self, job: Job) -> None:
        topology = job.topology
        self._loops = {
            loop.head: LoopWatermark(loop.head, topology.parallelism(job.plan.steps[loop.head].stage))
            for loop in job.loops
        }

    def report(self, report: LoopReport) -> list[ToWorker]:
        """A head has sent a mark: the others are to send theirs, or all have."""
        loop = self._loops[report.loop]
        begun = loop.begun
        answer = loop.report(report)
        if answer is not None:
            return [answer] if begun else [BeginMark(report.loop, report.number), answer]
        return [] if begun else [BeginMark(report.loop, report.number)]

    @property
    def live(self) -> bool:
        """Whether there are loops that are not over."""
        return any(not loop.over for loop in self._loops.values())

    @property
    def quiescent(self) -> bool:
        """Whether all loops have been at rest since `reset_quiescence`, for at least two whole marks."""
        return all(loop.over or loop.quiet_marks > _QUIET for loop in self._loops.values())

    @property
    def next_clock(self) -> int | None:
        """When the next timer in a loop fires (µs); None: never."""
        clock = min((loop.clock for loop in self._loops.values() if not loop.over), default=MAX_MICROS)
        return clock if clock < MAX_MICROS else None

    def reset_quiescence(self) -> None:
        """Forget for how long the loops have been at rest."""
        for loop in self._loops.values():
            loop.quiet_marks = 0

    def next_marks(self) -> list[ToWorker]:
        """Let marks go round, of which the heads may have no need."""
        waiting = [loop for loop in self._loops.values() if not (loop.over or loop.begun)]
        return [BeginMark(loop.loop, loop.number + 1) for loop in waiting]


_QUIET: Final = 2
"""One mark may have been on its way already, so two more have gone round."""
