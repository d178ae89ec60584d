"""Reify: make the timestamp, window and pane of an element part of its value."""

from __future__ import annotations

from typing import Any

from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Map
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import Timestamp


def _timestamp(element: Any, timestamp: Any = DoFn.TimestampParam) -> tuple[Any, Timestamp]:
    return element, timestamp


def _window(
    element: Any,
    timestamp: Any = DoFn.TimestampParam,
    window: Any = DoFn.WindowParam,
    pane: Any = DoFn.PaneInfoParam,
) -> tuple[Any, Timestamp, Any, PaneInfo]:
    return element, timestamp, window, pane


def _timestamp_in_value(pair: Any, timestamp: Any = DoFn.TimestampParam) -> tuple[Any, tuple[Any, Timestamp]]:
    return pair[0], (pair[1], timestamp)


def _window_in_value(
    pair: Any,
    timestamp: Any = DoFn.TimestampParam,
    window: Any = DoFn.WindowParam,
    pane: Any = DoFn.PaneInfoParam,
) -> tuple[Any, tuple[Any, Timestamp, Any, PaneInfo]]:
    return pair[0], (pair[1], timestamp, window, pane)


class Reify:
    """`Reify.Timestamp()` and its siblings. Results are plain tuples, which compare and serialize like any value."""

    class Timestamp(PTransform[PCollection[Any], PCollection[Any]]):
        """`element` becomes `(element, timestamp)`."""

        def expand(self, input: PCollection[Any]) -> PCollection[Any]:
            return input | Map(_timestamp, name="Map")

    class Window(PTransform[PCollection[Any], PCollection[Any]]):
        """`element` becomes `(element, timestamp, window, pane)`, once per window it is in."""

        def expand(self, input: PCollection[Any]) -> PCollection[Any]:
            return input | Map(_window, name="Map")

    class TimestampInValue(PTransform[PCollection[Any], PCollection[Any]]):
        """`(key, value)` becomes `(key, (value, timestamp))`."""

        def expand(self, input: PCollection[Any]) -> PCollection[Any]:
            return input | Map(_timestamp_in_value, name="Map")

    class WindowInValue(PTransform[PCollection[Any], PCollection[Any]]):
        """`(key, value)` becomes `(key, (value, timestamp, window, pane))`, once per window it is in."""

        def expand(self, input: PCollection[Any]) -> PCollection[Any]:
            return input | Map(_window_in_value, name="Map")
