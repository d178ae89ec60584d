"""The model: evaluates a description with lists alone. Slow, short, and independent of the engine."""

# ruff: noqa: E731
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import tidegate as tg
from tests.support.random_pipelines.describe import Description, Step, Windows
from tests.support.random_pipelines.functions import COMBINERS, FUNCTIONS, Fn
from tests.support.random_pipelines.ordered import STRATEGIES, fold, panes
from tidegate.sdk.data.panes import NO_PANE
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow

ONLY = tg.PaneInfo(True, True, tg.Timing.ON_TIME, 0, 0)
SECOND = 1_000_000


@dataclass(frozen=True)
class Element:
    """An element with its timestamp (µs), windows and pane."""

    value: Any
    micros: int = MIN_MICROS
    windows: tuple[Any, ...] = (GLOBAL_WINDOW,)
    pane: tg.PaneInfo = NO_PANE


def evaluate(description: Description) -> list[list[Element]]:
    """The elements of every collection, in no defined order."""
    made: list[list[Element]] = []
    for step in description.steps:
        shapes = [description.shapes[source] for source in step.inputs]
        made += _step(step, [made[source] for source in step.inputs], shapes[0].windows if shapes else ("global",))
    return made


def windows_at(windows: Windows, micros: int) -> tuple[Any, ...]:
    """The windows of a timestamp, found by trying every possible start."""
    match windows:
        case ("global",):
            return (GLOBAL_WINDOW,)
        case ("fixed", size, offset):
            period = size
        case ("sliding", size, period, offset):
            pass
        case ("sessions", gap):
            end = min(MAX_MICROS, micros + gap * SECOND)
            return (IntervalWindow.of_micros(micros, end),)
    size, period, offset = size * SECOND, period * SECOND, offset * SECOND
    latest = micros - (micros - offset) % period
    starts = [
        start for start in range(latest - size // period * period - period, latest + 1, period) if start + size > micros
    ]
    clamp = lambda t: max(MIN_MICROS, min(MAX_MICROS, t))
    return tuple(IntervalWindow.of_micros(clamp(start), clamp(start + size)) for start in starts)


def _step(step: Step, inputs: list[list[Element]], windows: Windows) -> list[list[Element]]:
    match step.op:
        case "create":
            return [[Element(v) if at is None else Element(v, at * SECOND) for v, at in step.values]]
        case "apply":
            return _element_wise(FUNCTIONS[step.name], step.handling, inputs[0], windows)
        case "window":
            moved = [replace(e, windows=windows_at(step.windows, e.micros)) for e in inputs[0] for _ in e.windows]
            return [[element for element in moved if element.windows]]
        case "reshuffle":
            return [inputs[0]]
        case "flatten":
            return [[element for part in inputs for element in part]]
        case "panes":
            fired = list(_panes(step.name, _stamped(inputs[0], windows)))
            return [fired, [replace(element, windows=(GLOBAL_WINDOW,)) for element in fired]]
        case "state":
            return [list(_folded(_stamped(inputs[0], windows), step.windows))]
        case "group":
            return [_grouped(inputs[0], lambda value: value, sorted, windows)]
        case "combine":
            return [_grouped(inputs[0], lambda value: value, COMBINERS[step.name].meaning, windows)]
        case "combine_per_element":
            return [_grouped(inputs[0], lambda value: (value, value), COMBINERS[step.name].meaning, windows)]
        case "combine_globally":
            combiner = COMBINERS[step.name]
            found = _grouped(inputs[0], lambda value: (None, value), combiner.meaning, windows)
            if not found and windows == ("global",):
                return [[Element(empty, MAX_MICROS - 1, pane=ONLY) for empty in combiner.empty]]
            return [[replace(element, value=element.value[1]) for element in found]]


def _grouped(elements: list[Element], pair: Any, meaning: Any, windows: Windows) -> list[Element]:
    return [
        Element((key, meaning(values)), tg.Timestamp.of(window.end).micros - 1, (window,), ONLY)
        for (key, window), values in _tables(elements, pair, windows).items()
    ]


def _tables(elements: list[Element], pair: Any, windows: Windows) -> dict[tuple[Any, Any], list[Any]]:
    """The values of each key and window."""
    of_key: dict[Any, dict[Any, list[Any]]] = {}
    for element in elements:
        key, value = pair(element.value)
        for window in element.windows:
            of_key.setdefault(key, {}).setdefault(window, []).append(value)
    tables: dict[tuple[Any, Any], list[Any]] = {}
    for key, of_window in of_key.items():
        merged = _merged(of_window) if windows[0] == "sessions" else {window: window for window in of_window}
        for window, values in of_window.items():
            tables.setdefault((key, merged[window]), []).extend(values)
    return tables


def _merged(windows: Iterable[Any]) -> dict[Any, Any]:
    """Map each window to its session: the span of the overlapping windows."""
    spans: list[list[Any]] = []
    for window in sorted(windows, key=lambda window: window.start):
        if spans and window.start < max(part.end for part in spans[-1]):
            spans[-1].append(window)
        else:
            spans.append([window])
    ends = lambda span: (span[0].start.micros, max(part.end for part in span).micros)
    return {part: IntervalWindow.of_micros(*ends(span)) for span in spans for part in span}


def _stamped(elements: list[Element], windows: Windows) -> list[Element]:
    """The elements after `ordered.small_in_time`: each occurs once for every window of its new timestamp."""
    return [
        element
        for element in elements
        for _ in (element.windows if windows[0] == "merged" else windows_at(windows, element.value[1] % 97 * SECOND))
    ]


def _in_order(elements: list[Element], windows: Windows) -> dict[tuple[Any, Any], list[int]]:
    """The values after `ordered.small_in_time`, by key and window, in the order of their timestamps."""
    tables: dict[tuple[Any, Any], list[int]] = {}
    for value, key in sorted((element.value[1] % 97, element.value[0]) for element in elements):
        for window in windows_at(windows, value * SECOND):
            tables.setdefault((key, window), []).append(value)
    return tables


def _panes(name: str, elements: list[Element]) -> Iterator[Element]:
    strategy = STRATEGIES[name]
    for (key, window), values in _in_order(elements, strategy.windows).items():
        end = tg.Timestamp.of(window.end).micros - 1
        for pane in panes(strategy, values):
            at = pane.newest * SECOND if strategy.latest and pane.newest is not None else end
            yield Element((key, pane.values), at, (window,), pane.info)


def _folded(elements: list[Element], windows: Windows) -> Iterator[Element]:
    for (key, window), values in _in_order(elements, windows).items():
        end = tg.Timestamp.of(window.end).micros - 1
        for result in (reduce(fold, values, 0), len(values)):
            yield Element((key, result), end, (window,))


def _element_wise(fn: Fn, handling: str | None, elements: list[Element], windows: Windows) -> list[list[Element]]:
    outputs: dict[str, list[Element]] = {tag: [] for tag in ("main", *fn.tags, *(["bad"] if handling else []))}
    sees_window = any(kind == "window" for _, kind in fn.params)
    for element in elements:
        for part in [replace(element, windows=(w,)) for w in element.windows] if sees_window else [element]:
            results: list[Any] = []
            try:
                for result in _results(fn, part):
                    results.append(result)
            except ValueError:
                outputs["bad"].append(part)
                if handling == "whole":
                    continue
            for result in results:
                tag, made = "main", part
                if type(result) is tg.TaggedOutput:
                    tag, result = result.tag, result.value
                if type(result) is tg.TimestampedValue:
                    again = part.windows if windows[0] == "merged" else windows_at(windows, result.micros)
                    made = replace(part, micros=result.micros, windows=again)
                    result = result.value
                if made.windows:
                    outputs[tag].append(replace(made, value=result))
    return list(outputs.values())


def _results(fn: Fn, element: Element) -> Iterator[Any]:
    if fn.buffers:
        yield element.value
        return
    parameters = {"timestamp": tg.Timestamp(micros=element.micros), "window": element.windows[0], "pane": element.pane}
    kwargs = dict(fn.kwargs) | {name: parameters[kind] for name, kind in fn.params}
    args = (*(element.value if fn.form.endswith("_tuple") else (element.value,)), *fn.args)
    if fn.form == "par_do":
        dofn = fn.code()
        dofn.setup()
        dofn.start_bundle()
        yield from dofn.process(*args, **kwargs) or ()
        return
    result = fn.code(*args, **kwargs)
    match fn.form:
        case "map" | "map_tuple":
            yield result
        case "filter":
            if result:
                yield element.value
        case _:
            yield from result or ()
