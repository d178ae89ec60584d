"""LogElements: see what passes by."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Map
from tidegate.sdk.steps.transform import Transform

T = TypeVar("T")


class LogElements(Transform):
    """The same collection; each element is printed, or logged if `level` is given (`logging.INFO`, …).

    `prefix` goes before each. With `with_timestamp`, `with_window` or `with_pane` these follow; with the window, an
    element in several windows is logged, and passed on, once for each. Lines go to standard output, or to the logger
    `tidegate.elements`, of whatever process runs the step.
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
        self.asked: dict[str, Any] = {}
        if with_timestamp:
            self.asked["timestamp"] = DoFn.TimestampParam
        if with_window:
            self.asked["window"] = DoFn.WindowParam
        if with_pane:
            self.asked["pane"] = DoFn.PaneInfoParam
        self.label = name

    def __call__(self, pcoll: PCollection[T]) -> PCollection[T]:
        result: PCollection[T] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[T]) -> PCollection[T]:
        step: Map[T, T] = Map(logged, self.prefix, self.level, **self.asked)
        step.keeps_key = True
        return step.expand(input)  # type: ignore[no-any-return]


def logged(element: T, prefix: str, level: int | None, **asked: Any) -> T:
    """The element, once its line is out."""
    line = f"{prefix}{element}" + "".join([f", {name}={value!r}" for name, value in asked.items()])
    if level is None:
        sys.stdout.write(line + "\n")
    else:
        import logging

        logging.getLogger("tidegate.elements").log(level, "%s", line)
    return element
