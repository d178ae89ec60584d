"""Runs calls on an event loop: with a timeout for each attempt, attempts that are repeated, and batches.

Everything here runs on the loop's thread, except plain functions, which run in threads of their own.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from typing import Any, Final

from tidegate.runners.engine.asynchronous.batches import Batches
from tidegate.runners.engine.asynchronous.outcomes import Completed, Item, Outcome, SetupFailed
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import (
    ENGINE,
    DistributionResult,
    MetricCells,
    MetricKey,
    collecting,
    in_step,
    merge_distributions,
)
from tidegate.sdk.portable.async_calls import AsyncCalls

CALLS: Final = "calls"
"""The engine's counter of attempts to call the function of an AsyncMap."""
FAILED_CALLS: Final = "calls_failed"
"""Calls whose last attempt failed."""
RETRIED_CALLS: Final = "calls_retried"
"""Attempts after the first."""
TIMED_OUT_CALLS: Final = "calls_timed_out"
"""Attempts that took longer than the timeout."""
CALL_SECONDS: Final = "call_seconds"
"""The engine's distribution of the time that an attempt takes."""


class CallRunner:
    """Runs the calls of one operator. `threads` run a plain function; None: `fn` is a coroutine function.

    `report` is called with each item on the loop's thread.
    """

    def __init__(
        self, fn: Any, calls: AsyncCalls, label: str, threads: Executor | None, report: Callable[[Item], None]
    ) -> None:
        self._fn = fn
        self._label = label
        self._threads = threads
        self._report = report
        self._timeout = None if calls.timeout is None else calls.timeout.seconds()
        self._retry = calls.retry
        on = calls.retry.on if calls.retry is not None else None
        self._retried: Any = Exception if on is None else on.load()
        self._batches: Batches | None = None
        if calls.batch is not None:
            self._batches = Batches(calls.batch.size, calls.batch.wait.seconds(), self._with_retries)
        self._setup: asyncio.Task[bool] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, calls: Iterable[tuple[int, Any]]) -> None:
        """Begin calls, each with its id and the argument of the function."""
        loop = asyncio.get_running_loop()
        if self._setup is None:
            self._setup = loop.create_task(self._set_up())
        for id, argument in calls:
            task = loop.create_task(self._run(id, argument))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel the calls in flight, and run the author's `teardown`."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._batches is not None:
            await self._batches.close()
        if self._setup is not None:
            self._setup.cancel()
            (succeeded,) = await asyncio.gather(self._setup, return_exceptions=True)
            if succeeded is True:
                await self._invoke(getattr(self._fn, "teardown", None))
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    async def _set_up(self) -> bool:
        try:
            await self._invoke(getattr(self._fn, "setup", None))
        except BaseException as error:
            self._report(SetupFailed(error))
            return False
        return True

    async def _run(self, id: int, argument: Any) -> None:
        assert self._setup is not None
        if not self._setup.done():
            await asyncio.wait([self._setup])
        if not self._setup.result():
            return
        try:
            call = self._with_retries if self._batches is None else self._batches.result
            outcome = Outcome(await call(argument))
        except BaseException as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            outcome = Outcome(error=_as_failure(error))
        self._report(Completed(id, outcome))

    async def _with_retries(self, argument: Any) -> Any:
        """The result of a call, after as many attempts as it needs; reports their metrics."""
        cells = MetricCells()
        attempts = 1 if self._retry is None else self._retry.attempts
        wait = 0.0 if self._retry is None else self._retry.backoff.seconds()
        try:
            with collecting(cells), in_step(self._label):
                while True:
                    attempts -= 1
                    try:
                        return await self._attempt(argument, cells)
                    except self._retried:
                        if not attempts:
                            raise
                    self._count(cells, RETRIED_CALLS)
                    await asyncio.sleep(wait)
                    if self._retry is not None:
                        wait = min(wait * self._retry.multiplier, self._retry.max_backoff.seconds())
        except BaseException:
            self._count(cells, FAILED_CALLS)
            raise
        finally:
            self._report(cells)

    async def _attempt(self, argument: Any, cells: MetricCells) -> Any:
        self._count(cells, CALLS)
        loop = asyncio.get_running_loop()
        began = loop.time()
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                return await self._invoke(self._fn, argument)
        except TimeoutError as error:
            if not limit.expired():
                raise  # the author's own
            self._count(cells, TIMED_OUT_CALLS)
            raise TimeoutError(f"the call took longer than the timeout of {self._timeout:g} s") from error
        finally:
            took = loop.time() - began
            key = MetricKey(self._label, ENGINE, CALL_SECONDS)
            before = cells.distributions.get(key, DistributionResult())
            cells.distributions[key] = merge_distributions(before, DistributionResult(1, took, took, took))

    async def _invoke(self, fn: Any, *arguments: Any) -> Any:
        """Call a function of the author's: in a thread unless the calls are coroutines. None is not called."""
        if fn is None:
            return None
        if self._threads is None:
            result = fn(*arguments)
        else:
            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            result = (await loop.run_in_executor(self._threads, context.run, _outcome_of, fn, arguments)).result()
        return await result if isinstance(result, Awaitable) else result

    def _count(self, cells: MetricCells, name: str) -> None:
        cells.count(MetricKey(self._label, ENGINE, name))


def _outcome_of(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Outcome:
    """The outcome of a call. As an exception of a future, a StopIteration would be lost."""
    try:
        return Outcome(fn(*arguments))
    except BaseException as error:
        return Outcome(error=error)


def _as_failure(error: BaseException) -> BaseException:
    """The error that fails the element: a cancellation is one of the author's own, since the engine asked for none."""
    if isinstance(error, asyncio.CancelledError):
        return RunError("the call was cancelled by its own code").with_traceback(error.__traceback__)
    return error
