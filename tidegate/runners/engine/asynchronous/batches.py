"""Collects the arguments of single calls into lists, for a function that answers many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tidegate.sdk.errors import RunError, counted, shorten


class Batches:
    """Calls `call` with lists of at most `size` arguments, of which the first has waited for at most `wait` seconds.

    It returns a mapping from arguments to results, in which those without a result may be missing, or a sequence with a
    result for each argument. Belongs to one event loop.
    """

    def __init__(self, size: int, wait: float, call: Callable[[list[Any]], Awaitable[Any]]) -> None:
        self._size = size
        self._wait = wait
        self._call = call
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def result(self, argument: Any) -> Any:
        """The result for one argument; raises the error of its batch."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((argument, future))
        if len(self._waiting) >= self._size:
            self._begin()
        elif self._timer is None:
            self._timer = loop.call_later(self._wait, self._begin)
        return await future

    async def close(self) -> None:
        """Cancel the calls."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._waiting = self._waiting, []
        task = asyncio.get_running_loop().create_task(self._run(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, batch: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        arguments = [argument for argument, _ in batch]
        try:
            results = _by_argument(arguments, await self._call(arguments))
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)


def _by_argument(arguments: list[Any], results: Any) -> Sequence[Any]:
    """The result for each argument. RunError if the function's result has none for each."""
    match results:
        case Mapping():
            return [results.get(argument) for argument in arguments]
        case str() | bytes():
            pass
        case Sequence() if len(results) == len(arguments):
            return results
    found = counted(len(results), "result") if isinstance(results, Sequence) else shorten(results, 60)
    raise RunError(
        f"the function was called with a list of {counted(len(arguments), 'key')} and returned {found}: with batch=, "
        "it must return a mapping from keys to what was found, or a list with one entry for each key"
    )
