"""Dead letters of readers: the records that can't be made are an output of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tidegate.io.records.problems import BadRecord
from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.data.values import TaggedOutput
from tidegate.sdk.metrics import Metrics
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import ParDo
from tidegate.sdk.primitives.exception_handling import Handled
from tidegate.sdk.time import MIN_TIMESTAMP, TimestampLike


def good_and_bad(records: PCollection[Any], good_type: Any, step: str) -> Any:
    """The pair `(good, bad)` of what the reader of the step `step` has emitted."""
    outputs = records | "Divide" >> ParDo(_Divide()).with_outputs("bad", main="good")
    records.pipeline.retype(outputs.good, good_type)
    records.pipeline.retype(outputs.bad, BadRecord)
    return Handled.of(outputs.good, outputs.bad, step)


class _Divide(DoFn):
    """Emits dead letters to an output of their own, and counts them."""

    def __init__(self) -> None:
        self.bad_records = Metrics.counter("tidegate", "bad_records")

    def process(self, element: Any) -> Iterator[Any]:
        if type(element) is BadRecord:
            self.bad_records.inc()
            yield TaggedOutput("bad", element)
        else:
            yield element


class TimestampOfGood:
    """The author's event time. Dead letters have none: they get the minimum, which does not affect the watermark."""

    def __init__(self, timestamp: Callable[[Any], TimestampLike]) -> None:
        self._timestamp = timestamp

    def __call__(self, element: Any) -> TimestampLike:
        return MIN_TIMESTAMP if type(element) is BadRecord else self._timestamp(element)
