"""Builds a real pipeline from a description."""

from __future__ import annotations

from typing import Any

import tidegate as tg
from tests.support.random_pipelines.describe import Description, Step, Windows
from tests.support.random_pipelines.functions import COMBINERS, FUNCTIONS, Fn
from tests.support.random_pipelines.ordered import STRATEGIES, FoldInOrder, small_in_time


def build(description: Description, pipeline: tg.Pipeline, prefix: str = "") -> list[tg.PCollection[Any]]:
    """Build a description on `pipeline` and return its collections by number. Step n is labelled `{prefix}n`."""
    made: list[tg.PCollection[Any]] = []
    for number, step in enumerate(description.steps):
        inputs = [made[source] for source in step.inputs]
        made += _apply(step, f"{prefix}{number}", pipeline, inputs)
    return made


def assigner(windows: Windows) -> Any:
    """The assigner for a description of windows."""
    match windows:
        case ("global",):
            return tg.GlobalWindows()
        case ("fixed", size, offset):
            return tg.FixedWindows(size, offset)
        case ("sliding", size, period, offset):
            return tg.SlidingWindows(size, period, offset)
        case ("sessions", gap):
            return tg.Sessions(gap)
    raise AssertionError(windows)


def _apply(step: Step, label: str, pipeline: tg.Pipeline, inputs: list[Any]) -> list[Any]:
    match step.op:
        case "create":
            values = [value if at is None else tg.TimestampedValue(value, at) for value, at in step.values]
            return [pipeline | label >> tg.Create(values)]
        case "apply":
            return _element_wise(FUNCTIONS[step.name], step.handling, label, inputs[0])
        case "window":
            return [inputs[0] | label >> tg.WindowInto(assigner(step.windows))]
        case "group":
            return [inputs[0] | label >> tg.GroupByKey()]
        case "combine":
            return [inputs[0] | label >> tg.CombinePerKey(COMBINERS[step.name].make())]
        case "combine_globally":
            combine = tg.CombineGlobally(COMBINERS[step.name].make())
            defaults = isinstance(inputs[0].windowing.assigner, tg.GlobalWindows)
            return [inputs[0] | label >> (combine if defaults else combine.without_defaults())]
        case "combine_per_element":
            return [inputs[0] | label >> tg.CombinePerElement(COMBINERS[step.name].make())]
        case "reshuffle":
            return [inputs[0] | label >> tg.Reshuffle()]
        case "flatten":
            return [tuple(inputs) | label >> tg.Flatten()]
        case "panes":
            stamped = inputs[0] | f"{label} stamp" >> tg.Map(small_in_time)
            panes = stamped | f"{label} windows" >> STRATEGIES[step.name].into() | label >> tg.GroupByKey()
            return [panes, panes | f"{label} global" >> tg.WindowInto(tg.GlobalWindows())]
        case "state":
            stamped = inputs[0] | f"{label} stamp" >> tg.Map(small_in_time)
            return [
                stamped | f"{label} windows" >> tg.WindowInto(assigner(step.windows)) | label >> tg.ParDo(FoldInOrder())
            ]


_TRANSFORMS = {
    "map": tg.Map,
    "flat_map": tg.FlatMap,
    "filter": tg.Filter,
    "map_tuple": tg.MapTuple,
    "flat_map_tuple": tg.FlatMapTuple,
    "par_do": tg.ParDo,
}


def checked_element(letter: Any) -> Any:
    """The element of a dead letter, whose error is checked."""
    element, (kind, text, lines) = letter
    assert (kind, text) == ("ValueError", f"ValueError('{element} is refused')")
    assert lines[-1] == f"ValueError: {element} is refused"
    return element


def _element_wise(fn: Fn, handling: str | None, label: str, source: Any) -> list[Any]:
    code = fn.code() if fn.form == "par_do" else fn.code
    transform: Any = _TRANSFORMS[fn.form](code, *fn.args, **dict(fn.kwargs))
    if fn.tags:
        transform = transform.with_outputs(*fn.tags)
    if handling is not None:
        transform = transform.with_exception_handling(partial=handling == "partial")
    made = source | label >> transform
    bad = []
    if handling is not None:
        made, letters = made
        bad = [letters | f"{label} letters" >> tg.Map(checked_element)]
    return [*(made if fn.tags else [made]), *bad]
