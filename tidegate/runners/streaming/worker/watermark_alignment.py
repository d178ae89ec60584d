"""Watermark alignment of a job's live sources: no split is read too far ahead of another (`--watermark_drift`).

A split that is ahead stays unread, so its elements don't pile up in the state of operators that wait for the others. A
worker knows its own splits; the coordinator sends it the minimum watermark of the other workers with every heartbeat.
That minimum may be out of date, and then it is too low: a split that is ahead waits a little longer than necessary,
and never too short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.step_state import is_live
from tidegate.sdk.time import MIN_MICROS


def watermark_alignment_of(job: Job, index: int) -> WatermarkAlignment | None:
    """The alignment of the worker with this index; None for a job that doesn't align its sources."""
    if job.settings.drift is None:
        return None
    own = [step for step in job.plan.steps if is_live(step, job.plan) and index < job.topology.parallelism(step.stage)]
    return WatermarkAlignment(job.settings.drift, len(own))


class WatermarkAlignment:
    """One worker's part. `drift`: how far (µs of event time) a split may be ahead of any other split of the job;
    `sources`: how many sources this worker will read.

    >>> alignment = WatermarkAlignment(drift=5, sources=1)
    >>> alignment.add_source(lambda: [10, 30])  # the watermarks of two splits
    >>> alignment.hear(7)  # another worker has come no further
    >>> alignment.max_watermark
    12
    """

    def __init__(self, drift: int, sources: int) -> None:
        self._drift = drift
        self._sources = sources
        self._added: list[Callable[[], Iterable[int]]] = []
        self._others: int | None = MIN_MICROS  # until the first report, each split gives a block at most

    def add_source(self, watermarks: Callable[[], Iterable[int]]) -> None:
        """Add a source, given a function that returns the watermarks of its splits that are not idle."""
        self._added.append(watermarks)

    def hear(self, watermark: int | None) -> None:
        """The minimum watermark of the other workers; None where none of them reads a split that is not idle."""
        self._others = watermark

    @property
    def min_watermark(self) -> int | None:
        """The minimum watermark of this worker's splits, None if all of them are idle. A source that has not been
        added yet may have any watermark."""
        if len(self._added) < self._sources:
            return MIN_MICROS
        return min((watermark for watermarks in self._added for watermark in watermarks()), default=None)

    @property
    def max_watermark(self) -> int | None:
        """The watermark beyond which a split must wait; None: no split has to wait."""
        minima = [watermark for watermark in (self.min_watermark, self._others) if watermark is not None]
        return min(minima) + self._drift if minima else None
