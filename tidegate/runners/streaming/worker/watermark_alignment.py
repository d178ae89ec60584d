"""Watermark alignment of a job's live sources: no split is read too far ahead of another (`--watermark_drift`).

A split that is ahead is not read, so its elements don't pile up in the state of operators that wait for the other
splits. A worker knows the watermarks of the splits that it reads; the coordinator sends it the minimum watermark of the
other workers with every heartbeat. An outdated minimum is too low, so a split may pause a little longer than
necessary, but never too briefly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidegate.runners.checkpoint.step_state import is_live
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.sdk.time import MIN_MICROS


def watermark_alignment_of(job: Job, index: int) -> WatermarkAlignment | None:
    """The alignment of the worker with this index; None if the job doesn't align its sources."""
    if job.settings.drift is None:
        return None
    live = [step for step in job.plan.steps if is_live(step, job.plan) and index < job.topology.parallelism(step.stage)]
    return WatermarkAlignment(job.settings.drift, len(live))


class WatermarkAlignment:
    """The alignment of one worker. `drift`: how far (µs of event time) a split may be ahead of any other split of the
    job; `sources`: how many sources this worker will read.

    >>> alignment = WatermarkAlignment(drift=5, sources=1)
    >>> alignment.add_source(lambda: [10, 30])  # the watermarks of two splits
    >>> alignment.update_peers(7)  # the minimum of another worker
    >>> alignment.max_watermark
    12
    """

    def __init__(self, drift: int, sources: int) -> None:
        self._drift = drift
        self._sources = sources
        self._added: list[Callable[[], Iterable[int]]] = []
        self._peers: int | None = MIN_MICROS  # until the first report, each split may read one block

    def add_source(self, watermarks: Callable[[], Iterable[int]]) -> None:
        """Add a source, given a function that returns the watermarks of its splits that are not idle."""
        self._added.append(watermarks)

    def update_peers(self, watermark: int | None) -> None:
        """Set the minimum watermark of the other workers; None if all their splits are idle."""
        self._peers = watermark

    @property
    def min_watermark(self) -> int | None:
        """The minimum watermark of this worker's splits; None if all are idle. It stays at the beginning of time until
        all sources have been added."""
        if len(self._added) < self._sources:
            return MIN_MICROS
        return min((watermark for watermarks in self._added for watermark in watermarks()), default=None)

    @property
    def max_watermark(self) -> int | None:
        """The watermark beyond which a split pauses; None if no split has to."""
        minima = [watermark for watermark in (self.min_watermark, self._peers) if watermark is not None]
        return min(minima) + self._drift if minima else None
