"""Decides whether and when a failed job restarts, also while a remote system is unreachable.

The strategies are Flink's: exponential back-off, a fixed delay, a rate, none. With any of them the job fails at once if
user code raises the same error on the same element twice in succession, because it would raise it a third time, or if
a strict loop is over although its condition is not met.

While a system outside can't be reached, such as the object store of a source, a sink or the checkpoints, the job starts
again and again, however long that lasts: no number of attempts would be right. Only the strategy "none" fails at once.

>>> strategy = RestartStrategy(RestartSettings(attempts=2, delay=1.0), retry_user_errors=True)
>>> lost = Failure(b"", "worker 0 is gone")
>>> strategy.failed(lost, 0), strategy.failed(lost, 0)
(Restart(delay=1000000), Restart(delay=2000000))
>>> strategy.failed(lost, 0)
FailJob(reason='2 restarts have made no progress')
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidegate.runners.streaming.model.settings import RestartSettings
from tidegate.sdk.errors import counted
from tidegate.sdk.time import SECOND


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed: `error`, packed by `errors.transport.packed`, and `text` for people.

    `from_user`: a task raised the error, on `element` if on any; otherwise a worker was lost or a checkpoint failed.
    `outage`: a system outside can't be reached. `final`: a restart would end in the same way.
    """

    error: bytes
    text: str
    from_user: bool = False
    stage: int | None = None
    element: str = ""
    outage: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again, `delay` (µs) from now."""

    delay: int


@dataclass(frozen=True, slots=True)
class FailJob:
    """The job has failed. `reason`: why it is not restarted."""

    reason: str


RestartDecision: TypeAlias = Restart | FailJob


class RestartStrategy:
    """Decides after each failure whether the job restarts. `retry_user_errors` False: only lost workers and failed
    checkpoints are retried; an error that a task raised fails the job."""

    def __init__(self, settings: RestartSettings, *, retry_user_errors: bool) -> None:
        self._settings = settings
        self._retry_user_errors = retry_user_errors
        self._count = self._outages = 0
        self._recent: deque[int] = deque()
        self._last: tuple[int | None, str, bytes] | None = None

    def progressed(self) -> None:
        """A checkpoint is complete, or a region of a bounded job: count failures from zero again."""
        self._count = self._outages = 0

    def failed(self, failure: Failure, now: int) -> RestartDecision:
        """Decide whether the job restarts after this failure; `now` in µs."""
        if failure.final:
            return FailJob("a restart would end in the same way")
        if failure.outage and self._settings.strategy != "none":
            self._outages += 1
            delay = self._settings.delay * 2.0 ** min(self._outages - 1, 64)
            return Restart(round(min(delay, self._settings.most_delay, _OUTAGE_DELAY) * SECOND))
        if failure.from_user and not self._retry_user_errors:
            return FailJob("a bounded job does not restart after an error in user code")
        same = (failure.stage, failure.element, failure.error) if failure.from_user and failure.element else None
        if same is not None and same == self._last:
            return FailJob("the same error was raised again on the same element")
        self._last = same
        settings = self._settings
        match settings.strategy:
            case "none":
                return FailJob("the restart strategy is none")
            case "rate":
                return self._by_rate(now)
            case "fixed":
                return self._counted(settings.delay)
            case "exponential":
                return self._counted(min(settings.delay * 2.0 ** min(self._count, 64), settings.most_delay))

    def _counted(self, delay: float) -> RestartDecision:
        if self._count >= self._settings.attempts:
            return FailJob(f"{counted(self._count, 'restart has', 'restarts have')} made no progress")
        self._count += 1
        return Restart(round(delay * SECOND))

    def _by_rate(self, now: int) -> RestartDecision:
        settings = self._settings
        while self._recent and now - self._recent[0] >= settings.interval * SECOND:
            self._recent.popleft()
        if len(self._recent) >= settings.attempts:
            restarts = counted(len(self._recent), "restart is", "restarts are")
            return FailJob(f"at most {restarts} allowed within {settings.interval:g} s")
        self._recent.append(now)
        return Restart(round(settings.delay * SECOND))


_OUTAGE_DELAY: Final = 10.0
"""The longest delay before the next attempt to reach a system outside (s)."""
