"""The operator of steps that call out: up to `capacity` elements at a time, beside the stream.

The elements whose results have not been emitted are its state; a restored operator calls the function for them again.
Snapshots never wait for calls. While `capacity` elements are on their way, further ones wait here, at most those of the
block that was being processed: the operator is blocked, and the runner feeds it no more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.asynchronous.call_queue import CallQueue, Entry
from tidegate.runners.engine.asynchronous.caller import Caller, LoopCaller
from tidegate.runners.engine.asynchronous.outcomes import Completed, Outcome, SetupFailed
from tidegate.runners.engine.asynchronous.result_cache import ResultCache
from tidegate.runners.engine.asynchronous.snapshot import AsyncSnapshot
from tidegate.runners.engine.elementwise.chain import Chain
from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.errors.attribution import rethrow, user_error
from tidegate.runners.engine.operator import AwaitingOperator, Context, Emitted
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.data.block import Block, Each, PanesColumn, Same, WindowsColumn
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.async_calls import AsyncCalls
from tidegate.sdk.portable.model import ParDo
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.user_code.user_fn import UserFn

CALLS_IN_FLIGHT: Final = "calls_in_flight"
"""The engine's counter of the calls that have begun and not ended."""
CACHE_HITS: Final = "cache_hits"
"""The engine's counter of elements whose result was in the cache, or came from the call for another element."""

MakeCaller: TypeAlias = Callable[[Any, AsyncCalls, str, Callable[[], None]], Caller]
"""Makes the caller of a function, from its settings, the step's label, and what wakes the runner."""

_NO_ELEMENTS: Final = Block(())
_EVERYTHING: Final = "elements"
"""The only key of the state, which is always written as a whole."""


@dataclass(slots=True)
class _Call:
    """A call in flight, the elements that wait for it, and their key in the cache."""

    entries: list[Entry] = field(default_factory=list)
    key: Any = None


class AsyncOperator(AwaitingOperator):
    """An AsyncMap. `link` is its node with the loaded function; `exits` is as for a `Chain`."""

    def __init__(
        self,
        link: Link,
        context: Context,
        main: str,
        *,
        exits: Mapping[tuple[str, str], str],
        make_caller: MakeCaller = LoopCaller,
    ) -> None:
        assert isinstance(link.node, ParDo)
        assert link.node.calls is not None
        calls = link.node.calls
        self.link = link
        self.main = main
        self._context = context
        self._calls = calls
        self._key, self._join = _loaded(calls.key), _loaded(calls.join)
        self._cache: ResultCache | None = None
        if calls.cache is not None:
            ttl = calls.cache.ttl
            self._cache = ResultCache(calls.cache.size, None if ttl is None else ttl.micros)
        self._woken = threading.Event()
        """Set by the caller if the runner has no loop."""
        self._caller = make_caller(link.fn, calls, link.label, context.wake or self._woken.set)
        self._queue = CallQueue(ordered=calls.ordered)
        self._unissued: deque[Entry] = deque()
        """Elements for which no call has begun, since there is no room."""
        self._issued = 0
        """How many elements of the queue have a call or an outcome."""
        self._by_id: dict[int, _Call] = {}
        self._by_key: dict[Any, _Call] = {}
        self._ids = count()
        self._published: object = self._queue.first
        """The segment whose watermark the steps behind this one know, so that its results may be emitted."""
        self._clock = MIN_MICROS
        self._touched = True
        self._outcomes: deque[Outcome] = deque()
        guarded = link.guarded or self._join is not None
        plain = replace(link, fn=self._next_result, params=(Param("element"),), consts=(), dofn=None, guarded=guarded)
        self._results = Chain((plain,), context, main, exits=exits)
        """The loop over elements with an outcome, which handles results and errors as those of any other step."""

    # -- events

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        while self.blocked:
            yield from self._emit_published()
            if not self.blocked or self._queue.first is not self._published or self._context.must_buffer():
                break
            yield from self._wait()
        self._accept(block)
        self._issue()

    def on_results(self) -> Iterator[Emitted]:
        self._published = self._queue.first
        yield from self._emit_published()

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        self._queue.advance(micros)
        return self._results.on_watermark(micros)

    def finish_bundle(self) -> Iterator[Emitted]:
        if self._context.wake is None:
            while self.pending:
                yield from self.on_results()
                if self.pending and not self.has_results:
                    yield from self._wait()
        yield from self._results.finish_bundle()

    def finish(self) -> Iterator[Emitted]:
        yield from self.finish_bundle()

    def hold(self) -> int:
        self._published = self._queue.first  # the runner is about to publish this watermark
        return self._queue.hold()

    def under_way(self) -> int:
        return min(self._queue.low(), MAX_MICROS - 1) if self.pending else MAX_MICROS

    def close(self) -> None:
        try:
            self._caller.close()
        except Exception as error:
            rethrow(user_error(error, step=self.link.label, where=self.link.where, method="teardown"))
        finally:
            self._results.close()

    @property
    def pending(self) -> bool:
        return len(self._queue) > 0

    @property
    def blocked(self) -> bool:
        return bool(self._unissued)

    @property
    def has_results(self) -> bool:
        return self._caller.has_items or self._queue.ready

    # -- calls

    def _accept(self, block: Block) -> None:
        self._touched = self._touched or len(block) > 0
        columns = zip(block.values, block.timestamp_column(), block.window_list(), block.pane_list(), strict=True)
        for value, micros, windows, pane in columns:
            entry = Entry(value, micros, windows, pane)
            self._queue.add(entry)
            self._unissued.append(entry)

    def _issue(self) -> None:
        """Begin calls while there is room."""
        begun: list[tuple[int, Any]] = []
        while self._unissued and self._issued < self._calls.capacity:
            self._issued += 1
            entry = self._unissued.popleft()
            try:
                self._begin(entry, begun)
            except Exception as error:  # of the author's function for keys, or of an unhashable key
                self._queue.complete(entry, Outcome(error=error))
        if begun:
            self._context.count(self.link.label, CALLS_IN_FLIGHT, len(begun))
            self._caller.submit(begun)

    def _begin(self, entry: Entry, begun: list[tuple[int, Any]]) -> None:
        key = entry.value if self._key is None else self._key(entry.value)
        argument = key if self._calls.by_key else entry.value
        if self._cache is not None:
            cached = self._cache.get(key, self._now())
            if cached is not None:
                self._context.count(self.link.label, CACHE_HITS)
                self._queue.complete(entry, Outcome(*cached))
                return
            same = self._by_key.get(key)
            if same is not None:
                self._context.count(self.link.label, CACHE_HITS)
                same.entries.append(entry)
                return
        id = next(self._ids)
        call = self._by_id[id] = _Call([entry], key)
        if self._cache is not None:
            self._by_key[key] = call
        begun.append((id, argument))

    def _now(self) -> int:
        return self._clock if self._clock > MIN_MICROS else self._context.now()

    def _collect(self) -> None:
        """Record what the caller has reported."""
        for item in self._caller.take():
            match item:
                case MetricCells():
                    # A copy, because a thread whose call has timed out may still update them.
                    self._context.metrics.merge(item.copy())
                case SetupFailed(error=error):
                    rethrow(user_error(error, step=self.link.label, where=self.link.where, method="setup"))
                case Completed(id=id, outcome=outcome):
                    self._complete(self._by_id.pop(id), outcome)

    def _complete(self, call: _Call, outcome: Outcome) -> None:
        self._context.count(self.link.label, CALLS_IN_FLIGHT, -1)
        if self._cache is not None:
            del self._by_key[call.key]
            if outcome.error is None:
                self._cache.put(call.key, outcome.value, self._now())
        for entry in call.entries:
            self._queue.complete(entry, outcome)

    def _wait(self) -> Iterator[Emitted]:
        """Return control to the runner until there are results, or wait for them if it has no loop."""
        if self._context.wake is not None:
            yield self.main, _NO_ELEMENTS
            return
        while not self.has_results:
            self._woken.wait()
            self._woken.clear()

    # -- results

    def _emit_published(self) -> Iterator[Emitted]:
        """Emit the results before the next watermark, and begin other calls."""
        self._collect()
        while self._queue.first is self._published and self._queue.ready:
            entries = self._queue.take()
            self._issued -= len(entries)
            self._touched = True
            self._issue()  # before the output: a runner may suspend a blocked operator until calls return
            yield from self._emit(entries)

    def _emit(self, entries: list[Entry]) -> Iterator[Emitted]:
        for start in range(0, len(entries), self._context.block_size):
            part = entries[start : start + self._context.block_size]
            self._outcomes.clear()
            self._outcomes.extend(entry.outcome for entry in part if entry.outcome is not None)
            windows, panes = _columns(part)
            block = Block([entry.value for entry in part], [entry.micros for entry in part], windows, panes)
            yield from self._results.process(block, self.main)

    def _next_result(self, element: Any) -> Any:
        """The result of the next element, in the loop over elements with an outcome."""
        found = self._outcomes.popleft().result()
        return found if self._join is None else self._join(element, found)

    # -- state

    def snapshot(self, keys: Collection[Any] | None = None) -> AsyncSnapshot | None:
        if keys is not None and _EVERYTHING not in keys:
            return None
        waiting = [
            (watermark, entry.value, entry.micros, entry.windows, entry.pane)
            for watermark, entry in self._queue.entries()
        ]
        return AsyncSnapshot(waiting, self._queue.watermark, len(self._by_id))

    def restore(self, state: AsyncSnapshot) -> None:
        last = MIN_MICROS
        for watermark, *columns in state.elements:
            if watermark > last:
                self._queue.advance(watermark)
                last = watermark
            entry = Entry(*columns)
            self._queue.add(entry)
            self._unissued.append(entry)
        self._queue.advance(max(last, state.watermark))
        self._published = self._queue.first
        self._context.count(self.link.label, CALLS_IN_FLIGHT, -state.in_flight)
        self._issue()

    def touched(self) -> list[Collection[Any]] | None:
        touched, self._touched = self._touched, False
        return [[_EVERYTHING]] if touched else []


class ClockedAsyncOperator(AsyncOperator):
    """An operator whose cache has a time-to-live."""

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        self._clock = micros
        return iter(())


def _loaded(fn: UserFn | None) -> Any:
    return None if fn is None else fn.load()


def _columns(entries: Iterable[Entry]) -> tuple[WindowsColumn, PanesColumn]:
    """The windows and panes of elements, as one entry each if all are equal."""
    windows = [entry.windows for entry in entries]
    panes = [entry.pane for entry in entries]
    same_windows = all(each is windows[0] for each in windows)
    same_panes = all(each is panes[0] for each in panes)
    return Same(windows[0]) if same_windows else Each(windows), panes[0] if same_panes else panes
