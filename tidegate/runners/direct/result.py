"""The result of an unbounded run on the direct runner, which continues in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from tidegate.runners.completion import Latch
from tidegate.runners.engine.time.clock import Clock
from tidegate.sdk.errors import UnsupportedError
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey, MetricResults
from tidegate.sdk.runner import PipelineResult, PipelineState
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, SECOND, Timestamp


class BackgroundRun(PipelineResult):
    """An unbounded run in its own thread. Ctrl-C in `wait_until_finish` cancels it cleanly."""

    def __init__(
        self,
        work: Callable[[], None],
        stop: threading.Event,
        metrics: MetricCells,
        clock: Clock,
        watermarks: Callable[[], Mapping[str, int]],
    ) -> None:
        self._stop = stop
        self._metrics = metrics
        self._clock = clock
        self._watermarks = watermarks
        self._state = PipelineState.RUNNING
        self._error: BaseException | None = None
        self._cancelled = False
        self._finished = Latch()
        threading.Thread(target=self._work, args=(work,), name="tidegate-direct", daemon=True).start()

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error
            self._state = PipelineState.FAILED
        else:
            self._state = PipelineState.CANCELLED if self._cancelled else PipelineState.DONE
        finally:
            self._finished.open()

    @property
    def state(self) -> PipelineState:
        return self._state

    def wait_until_finish(self, timeout: float | None = None) -> PipelineState:
        try:
            self._finished.wait(timeout)
        except KeyboardInterrupt:
            return self.cancel()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._state

    def cancel(self) -> PipelineState:
        if not self._state.ended:
            self._cancelled = True
            self._stop.set()
            self._finished.wait()
        return self.wait_until_finish()

    def stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        if drain or savepoint is not None:
            what = "drain" if drain else "take savepoints"
            raise UnsupportedError(f"runs on the direct runner don't {what}: use --runner streaming")
        self._stop.set()

    def metrics(self) -> MetricResults:
        """The metrics so far. Each step that has a watermark also has the gauges `watermark` (a Timestamp) and
        `watermark_lag` (seconds behind the clock)."""
        counted, now = self._metrics, self._clock.now()
        gauges = dict(counted.gauges)
        for label, watermark in self._watermarks().items():
            if MIN_MICROS < watermark < MAX_MICROS:
                gauges[MetricKey(label, ENGINE, "watermark")] = Timestamp.of_micros(watermark)
                gauges[MetricKey(label, ENGINE, "watermark_lag")] = (now - watermark) / SECOND
        return MetricResults(MetricCells(counted.counters, counted.distributions, gauges, counted.string_sets))
