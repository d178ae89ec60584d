"""Advice for common mistakes: methods that collections have in other libraries, objects after `|` that are no steps."""

from __future__ import annotations

import difflib
import functools
import sys
from collections.abc import Iterable, Mapping
from types import GeneratorType, UnionType
from typing import Any, Final

from tidegate.sdk.authoring.combine import CombineFn
from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.authoring.side_inputs import SideInput
from tidegate.sdk.connectors.sinks import Sink
from tidegate.sdk.connectors.sources import Source
from tidegate.sdk.errors import MissingAttribute
from tidegate.sdk.user_code.user_fn import name_of
from tidegate.sdk.windowing.assigners import Assigner, WindowAssigner
from tidegate.sdk.windowing.evictors import AnyEvictor, Evictor
from tidegate.sdk.windowing.presets import Preset
from tidegate.sdk.windowing.triggers import Trigger

_SHOW: Final = "tg.show(pcoll, n=3)"
_HEAD: Final = "pcoll.head(3)"
_COLLECT: Final = "pcoll.collect()"
_GROUP: Final = "pcoll | tg.GroupByKey(), or tg.GroupBy(...)"
_COUNT: Final = "pcoll | tg.combiners.Count.Globally(), or len(pcoll.collect())"

COLLECTION_METHODS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("show", "display", "print", "pprint"), _SHOW),
    **dict.fromkeys(("take", "first", "limit", "peek", "iloc", "sample"), _HEAD),
    **dict.fromkeys(("to_list", "tolist", "toList", "compute", "to_pandas", "toPandas", "values"), _COLLECT),
    **dict.fromkeys(("map", "apply", "foreach", "for_each", "transform", "pipe"), "pcoll | tg.Map(f)"),
    **dict.fromkeys(("flat_map", "flatMap", "flatmap", "explode"), "pcoll | tg.FlatMap(f)"),
    **dict.fromkeys(("filter", "where", "query"), "pcoll | tg.Filter(f)"),
    **dict.fromkeys(("group_by", "groupBy", "groupby", "group_by_key", "groupByKey", "key_by", "keyBy"), _GROUP),
    **dict.fromkeys(("reduce", "fold", "aggregate", "agg", "sum", "min", "max"), "pcoll | tg.CombineGlobally(sum)"),
    **dict.fromkeys(("reduce_by_key", "reduceByKey"), "pcoll | tg.CombinePerKey(sum)"),
    **dict.fromkeys(("count", "size", "shape"), _COUNT),
    "mean": "pcoll | tg.combiners.Mean.Globally()",
    **dict.fromkeys(("distinct", "unique", "drop_duplicates"), "pcoll | tg.Distinct()"),
    **dict.fromkeys(("union", "concat", "merge"), "(a, b) | tg.Flatten()"),
    "join": "tg.Join(...) or tg.CoGroupByKey()",
    **dict.fromkeys(("repartition", "rebalance", "shuffle"), "pcoll | tg.Reshuffle()"),
    "window": "pcoll | tg.WindowInto(tg.FixedWindows(60))",
    "select": "pcoll | tg.Select(...)",
    **dict.fromkeys(("write", "save", "to_csv", "saveAsTextFile"), "pcoll | tg.io.WriteToText(...)"),
    "run": "pcoll.pipeline.run()",
}
"""Methods that collections, streams and data frames have in other libraries, with what to write here."""

PIPELINE_METHODS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("show", "display", "print"), 'tg.show(p), or tg.show(p["label"], n=3) for the output of one step'),
    **dict.fromkeys(("head", "take", "first"), 'p["label"].head(3), for the output of the step of that label'),
    "collect": 'p["label"].collect(), for the output of the step of that label',
    **dict.fromkeys(("wait_until_finish", "metrics", "state", "cancel", "stop"), "p.run(), whose result has it"),
    **dict.fromkeys(("execute", "start", "submit"), "p.run()"),
}
"""The same for methods of a pipeline."""


def no_attribute(instance: object, name: str, methods: Mapping[str, str]) -> AttributeError:
    """`a PCollection has no take; write pcoll.head(3)`; for a name not in `methods`, Python's own message."""
    kind = type(instance).__name__
    # CPython appends a suggestion of its own to an AttributeError with an object, at a prompt, but not in a notebook;
    # `obj=None` prevents that.
    if name in methods:
        return MissingAttribute(f"a {kind} has no {name}; write {methods[name]}", obj=None)
    meant = similar(name, (known for known in dir(type(instance)) if not known.startswith("_")))
    hint = f". Did you mean: {meant!r}?" if meant else ""
    return MissingAttribute(f"{kind!r} object has no attribute {name!r}{hint}", name=name, obj=None)


def similar(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that was probably meant by `name`."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return near[0] if near else None


def instead_of_step(applied: Any) -> str | None:
    """Why an object after `|` is not a step, and what to write; None if it may be a function of a collection."""
    kind = applied if isinstance(applied, type) else type(applied)
    made = f"{kind.__name__}(...)"
    for base, what, advice in _PARTS:
        if issubclass(kind, base):
            return f"{kind.__name__} is {what}, not a step: write {advice.format(made)}"
    if isinstance(applied, (list, tuple, set, frozenset, dict, range)):
        return f"{kind.__name__} is data, not a step: write p | tg.Create(...)"
    if callable(applied) and _is_standard(applied):
        name = name_of(applied)
        other = _OF_ALL.get(name, "")
        return (
            f"{name} is not a step: it would be called once, with the collection. To call it with each element, write "
            f"tg.Map({name})" + (other and f"; {other.format(name)}")
        )
    return None


_PARTS: Final[tuple[tuple[type | UnionType, str, str], ...]] = (
    (DoFn, "a DoFn", "tg.ParDo({})"),
    (CombineFn, "a combiner", "tg.CombineGlobally({0}) or tg.CombinePerKey({0})"),
    (Assigner | Preset | WindowAssigner, "a window assigner", "tg.WindowInto({})"),
    (Trigger, "a trigger", "tg.WindowInto(tg.GlobalWindows(), trigger={}, accumulation_mode=tg.DISCARDING)"),
    (AnyEvictor | Evictor, "an evictor", "tg.WindowInto(..., evictor={})"),
    (Source, "a source", "p | tg.Read({})"),
    (Sink, "a sink", "tg.Write({})"),
    (SideInput, "a side input", "tg.Map(f, tg.AsList(pcoll)), for one"),
)

_OF_ALL: Final[Mapping[str, str]] = {
    **dict.fromkeys(("sum", "min", "max", "any", "all"), "for one result of all elements, tg.CombineGlobally({})"),
    "len": "to count the elements, tg.combiners.Count.Globally()",
    **dict.fromkeys(("list", "tuple", "set", "sorted"), "for the elements in your own program, pcoll.collect()"),
    "print": "to look at the first elements, tg.show(pcoll)",
}


def _is_standard(function: Any) -> bool:
    """Whether the function comes with Python, so that it can't be meant for collections."""
    while isinstance(function, functools.partial):
        function = function.func
    module = getattr(function, "__module__", None)
    if module is None:  # a method of a built-in type: `str.upper`, or bound, `found.append`
        home = getattr(function, "__objclass__", None) or type(getattr(function, "__self__", None))
        module = home.__module__
    return str(module).partition(".")[0] in sys.stdlib_module_names


def per_element(function: Any) -> str:
    """Advice for a function after `|` that was meant to be called with each element."""
    name = name_of(function).replace("<lambda>", "lambda x: …")
    return f"A function after | is called once, with the collection; to call it with each element, write tg.Map({name})"


def wrong_result(function: Any, result: Any) -> str | None:
    """The error message for a function after `|` that returned a value without applying a step; None if `result` may be
    intended."""
    if not _is_value(result):
        return None
    name = name_of(function).replace("<lambda>", "lambda x: …")
    if isinstance(result, GeneratorType):
        step, returned = "FlatMap", "a generator"
    else:
        step, returned = "Map", f"{type(result).__name__}"
    return (
        f"{name} was called once, with the collection, and returned {returned} without applying a step. To call it "
        f"with each element, write tg.{step}({name})"
    )


def _is_value(result: Any) -> bool:
    match result:
        case str() | bytes() | int() | float() | complex() | GeneratorType():
            return True
        case Mapping():
            return any(map(_is_value, result.values()))
        case tuple() | list() | set() | frozenset():
            return any(map(_is_value, result))
        case _:
            return False
