"""How far a job's live sources have come, so that none gets too far ahead of another (`--watermark_drift`).

What has got ahead waits unread, rather than as state of whoever waits for the others. A worker sees its own splits; of
the other workers' the coordinator tells it the least watermark, as often as it hears from it. What it is told may be
out of date, and then is too little: whoever is ahead waits somewhat longer, and never too short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.step_state import is_live
from tidegate.sdk.time import MIN_MICROS


def pace_of(job: Job, index: int) -> Pace | None:
    """Of the worker of this number; None for a job whose sources get as far as they can."""
    if job.settings.drift is None:
        return None
    own = [step for step in job.plan.steps if is_live(step, job.plan) and index < job.layout.parallelism(step.stage)]
    return Pace(job.settings.drift, len(own))


class Pace:
    """Of one worker's `sources`, so many. `drift`: how many µs of event time a split may be ahead of any other of the
    job.
    """

    def __init__(self, drift: int, sources: int) -> None:
        self._drift = drift
        self._sources = sources
        self._own: list[Callable[[], Iterable[int]]] = []
        self._others: int | None = MIN_MICROS  # until the first report, each split gives a block at most

    def join(self, watermarks: Callable[[], Iterable[int]]) -> None:
        """A source, by the watermarks of its splits that are not idle."""
        self._own.append(watermarks)

    def hear(self, watermark: int | None) -> None:
        """The minimum watermark of the other workers; None where none of them reads a split that is not idle."""
        self._others = watermark

    @property
    def least(self) -> int | None:
        """The least watermark of this worker's splits, None if it has none that is not idle. While a source is yet to
        come, it may be anywhere."""
        if len(self._own) < self._sources:
            return MIN_MICROS
        return min((watermark for watermarks in self._own for watermark in watermarks()), default=None)

    @property
    def limit(self) -> int | None:
        """The watermark beyond which a split is to wait; None: none is."""
        least = [at for at in (self.least, self._others) if at is not None]
        return min(least) + self._drift if least else None
