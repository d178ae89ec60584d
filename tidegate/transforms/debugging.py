"""LogElements: print or log each element on its way through."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Map
from tidegate.sdk.steps.transform import Transform

T = TypeVar("T")


class LogElements(Transform):
    """Print each element, or log it if `level` is given (`logging.INFO`, …), and emit it unchanged.

    `prefix` comes before the element; its timestamp, window and pane follow it if `with_timestamp`, `with_window` and
    `with_pane` ask for them. With the window, an element in several windows is logged, and emitted, once for each.
    Lines go to standard output, or to the logger `tidegate.elements`, of the process that runs the step.
    """

    def __init__(
        self,
        prefix: str = "",
        *,
        with_timestamp: bool = False,
        with_window: bool = False,
        with_pane: bool = False,
        level: int | None = None,
        name: str | None = None,
    ) -> None:
        self.prefix = prefix
        self.level = level
        self.metadata: dict[str, Any] = {}
        if with_timestamp:
            self.metadata["timestamp"] = DoFn.TimestampParam
        if with_window:
            self.metadata["window"] = DoFn.WindowParam
        if with_pane:
            self.metadata["pane"] = DoFn.PaneInfoParam
        self.label = name

    def __call__(self, pcoll: PCollection[T]) -> PCollection[T]:
        result: PCollection[T] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[T]) -> PCollection[T]:
        step: Map[T, T] = Map(logged, self.prefix, self.level, **self.metadata)
        step.keeps_key = True
        return step.expand(input)  # type: ignore[no-any-return]


def logged(element: T, prefix: str, level: int | None, **metadata: Any) -> T:
    """Write the element's line and return the element."""
    line = f"{prefix}{element}" + "".join([f", {name}={value!r}" for name, value in metadata.items()])
    if level is None:
        sys.stdout.write(line + "\n")
    else:
        import logging

        logging.getLogger("tidegate.elements").log(level, "%s", line)
    return element
