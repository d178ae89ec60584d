"""GroupIntoBatches: batches of a key's values, limited by count, by bytes and by waiting time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidegate.sdk.authoring.combine import SumFn
from tidegate.sdk.authoring.dofn import DoFn, on_timer, on_window_expiration
from tidegate.sdk.authoring.state import BagStateSpec, CombiningStateSpec, ProcessingTimer, ValueStateSpec
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import ParDo
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import Duration, DurationLike

_VALUES = BagStateSpec("values")
_COUNT = CombiningStateSpec("count", SumFn())
_BYTES = CombiningStateSpec("bytes", SumFn())
_KEY = ValueStateSpec("key")
_LIMIT = ProcessingTimer("limit")


def byte_size(value: Any) -> int:
    """The size of a value in bytes: of text in UTF-8, of bytes, or else of the value's pickle."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return len(value)
    import pickle

    return len(pickle.dumps(value, 5))


class _Batching(DoFn):
    def __init__(self, size: int | None, size_bytes: int | None, wait: Duration | None, measure: Any) -> None:
        self.size = size
        self.size_bytes = size_bytes
        self.wait = wait
        self.measure = measure

    def process(
        self,
        pair: tuple[Any, Any],
        now: Any = DoFn.ProcessingTimeParam,
        values: Any = DoFn.StateParam(_VALUES),
        count: Any = DoFn.StateParam(_COUNT),
        size: Any = DoFn.StateParam(_BYTES),
        key: Any = DoFn.StateParam(_KEY),
        limit: Any = DoFn.TimerParam(_LIMIT),
    ) -> Iterable[tuple[Any, list[Any]]]:
        value_bytes = self.measure(pair[1]) if self.size_bytes is not None else 0
        if self.size_bytes is not None and count.read() and size.read() + value_bytes > self.size_bytes:
            yield from self._flush(values, count, size, key)
            limit.clear()
        if not count.read():
            key.write(pair[0])
            if self.wait is not None:
                limit.set(now + self.wait)
        values.add(pair[1])
        count.add(1)
        size.add(value_bytes)
        full = self.size is not None and count.read() >= self.size
        if full or (self.size_bytes is not None and size.read() >= self.size_bytes):
            yield from self._flush(values, count, size, key)
            limit.clear()

    @on_timer(_LIMIT)
    def waited(
        self,
        values: Any = DoFn.StateParam(_VALUES),
        count: Any = DoFn.StateParam(_COUNT),
        size: Any = DoFn.StateParam(_BYTES),
        key: Any = DoFn.StateParam(_KEY),
    ) -> Iterable[tuple[Any, list[Any]]]:
        return self._flush(values, count, size, key)

    @on_window_expiration
    def expired(
        self,
        values: Any = DoFn.StateParam(_VALUES),
        count: Any = DoFn.StateParam(_COUNT),
        size: Any = DoFn.StateParam(_BYTES),
        key: Any = DoFn.StateParam(_KEY),
    ) -> Iterable[tuple[Any, list[Any]]]:
        return self._flush(values, count, size, key)

    @staticmethod
    def _flush(values: Any, count: Any, size: Any, key: Any) -> list[tuple[Any, list[Any]]]:
        batch = list(values.read())
        if not batch:
            return []
        batches = [(key.read(), batch)]
        for cell in (values, count, size, key):
            cell.clear()
        return batches


class GroupIntoBatches(PTransform[PCollection[Any], PCollection[Any]]):
    """Emit `(key, list of values)` each time a key (in a window) has buffered `batch_size` values or `batch_size_bytes`
    bytes, or its first value has waited for `max_buffering_duration` of processing time.

    The rest is emitted when the window expires. `element_size` measures a value in bytes (by default the length of text
    and bytes, and the size of the pickle of anything else). A value larger than the limit is a batch by itself.
    """

    def __init__(
        self,
        batch_size: int | None = None,
        *,
        batch_size_bytes: int | None = None,
        max_buffering_duration: DurationLike | None = None,
        element_size: Any = byte_size,
        name: str | None = None,
    ) -> None:
        if batch_size is None and batch_size_bytes is None:
            raise BuildError("GroupIntoBatches needs batch_size, batch_size_bytes, or both")
        for what, limit in (("batch_size", batch_size), ("batch_size_bytes", batch_size_bytes)):
            if limit is not None and limit < 1:
                raise BuildError(f"GroupIntoBatches: {what} must be at least 1, and is {limit!r}")
        wait = None if max_buffering_duration is None else Duration.of(max_buffering_duration)
        if wait is not None and wait.micros <= 0:
            raise BuildError(f"GroupIntoBatches: max_buffering_duration must be positive, and is {wait}")
        self.dofn = _Batching(batch_size, batch_size_bytes, wait, element_size)
        self.label = name

    def expand(self, input: PCollection[Any]) -> PCollection[Any]:
        return input | ParDo(self.dofn, name="Batch")
