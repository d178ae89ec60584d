"""WaitOn: hold back elements until other collections have finished their windows."""

from __future__ import annotations

from typing import Any

from tidegate.sdk.authoring.side_inputs import AsIter
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Filter, Map
from tidegate.sdk.steps.transform import PTransform


class WaitOn(PTransform[PCollection[Any], PCollection[Any]]):
    """The same elements, each emitted once every one of `signals` has finished the element's window."""

    def __init__(self, *signals: PCollection[Any], name: str | None = None) -> None:
        if not signals:
            raise BuildError("WaitOn needs at least one collection to wait for")
        self.signals = signals
        self.label = name

    def expand(self, input: PCollection[Any]) -> PCollection[Any]:
        waits = [
            AsIter(signal | Filter(_nothing, name=f"Signal {number}")) for number, signal in enumerate(self.signals, 1)
        ]
        return input | Map(_first, *waits, name="Wait").with_output_types(input.element_type)


def _nothing(element: Any) -> bool:
    return False


def _first(element: Any, *signals: Any) -> Any:
    return element
