"""The result of an unbounded run on Spark, which continues in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tidegate.runners.completion import Latch
from tidegate.runners.spark.driver.progress import no_logged_exceptions
from tidegate.runners.spark.plan.failures import JobCancelled
from tidegate.runners.spark.streaming.driver.query import StreamQuery
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import MetricResults
from tidegate.sdk.runner import PipelineResult, PipelineState, StageProgress


class StreamResult(PipelineResult):
    """A query of this process. Ctrl-C in `wait_until_finish` stops it after the batch that is running; a second Ctrl-C
    cancels it. `close` is called when it is over."""

    def __init__(self, query: StreamQuery, run_for: float | None, close: Callable[[], None]) -> None:
        self._query = query
        self._over = Latch()
        self._state = PipelineState.RUNNING
        self._error: BaseException | None = None
        self._cancelled = False
        threading.Thread(target=self._work, args=(run_for, close), name="tidegate-spark-stream", daemon=True).start()

    def _work(self, run_for: float | None, close: Callable[[], None]) -> None:
        try:
            with no_logged_exceptions():
                try:
                    self._query.run(run_for)
                finally:
                    close()
        except JobCancelled:
            self._state = PipelineState.CANCELLED
        except BaseException as error:
            self._error = error
            self._state = PipelineState.FAILED
        else:
            self._state = PipelineState.CANCELLED if self._cancelled else PipelineState.DONE
        finally:
            self._over.open()

    @property
    def state(self) -> PipelineState:
        return self._state

    def wait_until_finish(self, timeout: float | None = None) -> PipelineState:
        try:
            self._over.wait(timeout)
        except KeyboardInterrupt:
            self._cancelled = True
            self._query.stop()
            try:
                self._over.wait()
            except KeyboardInterrupt:
                return self.cancel()
        if self._error is not None:
            raise self._error.with_traceback(None) from self._error.__cause__
        return self._state

    def stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        if savepoint is not None:
            self._query.save_at_end(savepoint)
        if drain:
            self._query.drain()
        else:
            self._query.stop()

    def savepoint(self, directory: str) -> None:
        """Take a savepoint in a folder or URL, and wait until it is complete. The query goes on after that, which takes
        as long as a start. RunError if it could not be taken."""
        error = self._query.savepoint(directory)
        if error is not None:
            raise RunError(f"the savepoint in {directory} failed: {error}") from error

    def cancel(self) -> PipelineState:
        if not self._state.ended:
            self._cancelled = True
            self._query.cancel()
            self._over.wait()
        return self.wait_until_finish()

    def metrics(self) -> MetricResults:
        return MetricResults(self._query.metrics.copy())

    def stages(self) -> list[StageProgress]:
        return self._query.progress.stages(time.time())
