"""Tidegate: pipelines of windows, triggers and state, written once, run in memory, as a stream, or on Spark.

`import tidegate as tg` is all an author needs; everything public has its name here. Only names that functions use for
each element, and errors, are imported with the package. The others are imported when they are first asked for, so that
a program waits for no part that it does not use.
"""

from typing import TYPE_CHECKING, Any

from tidegate._version import __version__
from tidegate.sdk.data.panes import PaneInfo, Timing
from tidegate.sdk.data.row import Row
from tidegate.sdk.data.values import TaggedOutput, TimestampedValue, WindowedValue
from tidegate.sdk.errors import (
    BuildError,
    CheckError,
    KeyEncodingError,
    LoadError,
    OptionsError,
    PicklingError,
    ReadError,
    RunError,
    SqlError,
    TidegateError,
    TidegateWarning,
    TypeCheckError,
    UnsupportedError,
    UserCodeError,
    WriteError,
)
from tidegate.sdk.interactive import load as _load_interactive
from tidegate.sdk.interactive_hook import provide_interactive as _provide_interactive
from tidegate.sdk.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Duration, Timestamp

if TYPE_CHECKING:
    from tidegate import io
    from tidegate.io import WriteToArrow, WriteToAvro, WriteToCsv, WriteToDelta, WriteToJson, WriteToParquet
    from tidegate.io.delta.reading import ReadFromDelta
    from tidegate.io.formats.reading import (
        ReadFromArrow,
        ReadFromAvro,
        ReadFromCsv,
        ReadFromJson,
        ReadFromParquet,
    )
    from tidegate.sdk.authoring.combine import CombineFn, SingleInputTupleCombineFn, TupleCombineFn, associative
    from tidegate.sdk.authoring.dofn import DoFn, on_timer, on_window_expiration
    from tidegate.sdk.authoring.side_inputs import AsDict, AsIter, AsList, AsMultiMap, AsSingleton
    from tidegate.sdk.authoring.state import (
        BagState,
        BagStateSpec,
        CombiningState,
        CombiningStateSpec,
        EventTimer,
        MapState,
        MapStateSpec,
        OrderedListState,
        OrderedListStateSpec,
        ProcessingTimer,
        SetState,
        SetStateSpec,
        Timer,
        ValueState,
        ValueStateSpec,
    )
    from tidegate.sdk.data.coders import Coder, PickleCoder, register_coder
    from tidegate.sdk.interactive.show import show
    from tidegate.sdk.metrics import Metrics
    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.options.option_types import DurationOption, SizeOption
    from tidegate.sdk.pipeline import PCollection, Pipeline
    from tidegate.sdk.primitives import (
        CombineGlobally,
        CombinePerElement,
        CombinePerKey,
        Create,
        Filter,
        FlatMap,
        FlatMapTuple,
        Flatten,
        GroupByKey,
        Map,
        MapTuple,
        MultiOutput,
        ParDo,
        Read,
        Reshuffle,
        WindowInto,
        Write,
    )
    from tidegate.sdk.primitives.feedback import Feedback
    from tidegate.sdk.primitives.iteration import Iterate, IterateResult, Round
    from tidegate.sdk.primitives.iteration_delta import IterateDelta, Solution
    from tidegate.sdk.relational import functions as fn
    from tidegate.sdk.relational.authoring import Expression, col, lit
    from tidegate.sdk.relational.failures import ExpressionError
    from tidegate.sdk.runner import PipelineResult, PipelineState, Runner
    from tidegate.sdk.steps.applied_function import ptransform_fn
    from tidegate.sdk.steps.transform import PTransform
    from tidegate.sdk.windowing.assigners import (
        CumulativeWindows,
        FixedWindows,
        GlobalWindows,
        Sessions,
        SlidingWindows,
        WindowAssigner,
    )
    from tidegate.sdk.windowing.calendar import CalendarWindows
    from tidegate.sdk.windowing.evictors import Evictor, KeepLast, KeepRecent, KeepWithinDelta
    from tidegate.sdk.windowing.presets import (
        CountWindows,
        DeltaWindows,
        LandmarkWindows,
        PunctuationWindows,
        SlidingCountWindows,
    )
    from tidegate.sdk.windowing.strategy import ACCUMULATING, DISCARDING, TimestampCombiner
    from tidegate.sdk.windowing.triggers import (
        AfterAll,
        AfterAny,
        AfterCount,
        AfterDelta,
        AfterEach,
        AfterElement,
        AfterProcessingTime,
        AfterWatermark,
        DefaultTrigger,
        EveryEventTime,
        EveryProcessingTime,
        Never,
        OrFinally,
        Repeatedly,
    )
    from tidegate.sdk.windowing.window import BoundedWindow, GlobalWindow, IntervalWindow
    from tidegate.sql.sql import Sql
    from tidegate.sql.steps.user_functions import udf
    from tidegate.transforms.calls.async_function import AsyncFunction
    from tidegate.transforms.calls.async_map import AsyncMap
    from tidegate.transforms.calls.lookup_join import LookupJoin
    from tidegate.transforms.calls.settings import Cache, Retry
    from tidegate.transforms.combining import combiners
    from tidegate.transforms.debugging import LogElements
    from tidegate.transforms.elementwise import (
        CombineValues,
        FlatMapValues,
        Impulse,
        Keys,
        KvSwap,
        MapValues,
        ToString,
        Values,
        WithKeys,
    )
    from tidegate.transforms.flow import BatchElements, Distinct, Partition, Tee
    from tidegate.transforms.grouping.batches import GroupIntoBatches
    from tidegate.transforms.grouping.cogroup import CoGroupByKey
    from tidegate.transforms.grouping.deduplicate import Deduplicate, DeduplicatePerKey
    from tidegate.transforms.grouping.group_by import GroupBy
    from tidegate.transforms.grouping.join import IntervalJoin, Join
    from tidegate.transforms.grouping.top_n import TopN
    from tidegate.transforms.iteration import Empty, Settled
    from tidegate.transforms.periodic import PeriodicImpulse, PeriodicSequence
    from tidegate.transforms.regex import Regex
    from tidegate.transforms.reify import Reify
    from tidegate.transforms.rows.dataframes import ToDataFrame
    from tidegate.transforms.rows.select import Select
    from tidegate.transforms.waiting import WaitOn

_provide_interactive(_load_interactive)

_NAMES = {
    "tidegate.io": "WriteToArrow WriteToAvro WriteToCsv WriteToDelta WriteToJson WriteToParquet",
    "tidegate.io.delta.reading": "ReadFromDelta",
    "tidegate.io.formats.reading": "ReadFromArrow ReadFromAvro ReadFromCsv ReadFromJson ReadFromParquet",
    "tidegate.sdk.authoring.combine": "CombineFn SingleInputTupleCombineFn TupleCombineFn associative",
    "tidegate.sdk.authoring.dofn": "DoFn on_timer on_window_expiration",
    "tidegate.sdk.authoring.side_inputs": "AsDict AsIter AsList AsMultiMap AsSingleton",
    "tidegate.sdk.authoring.state": (
        "BagState BagStateSpec CombiningState CombiningStateSpec EventTimer MapState MapStateSpec "
        "OrderedListState OrderedListStateSpec ProcessingTimer SetState SetStateSpec Timer ValueState "
        "ValueStateSpec"
    ),
    "tidegate.sdk.data.coders": "Coder PickleCoder register_coder",
    "tidegate.sdk.interactive.show": "show",
    "tidegate.sdk.metrics": "Metrics",
    "tidegate.sdk.options.model": "PipelineOptions",
    "tidegate.sdk.options.option_types": "DurationOption SizeOption",
    "tidegate.sdk.pipeline": "PCollection Pipeline",
    "tidegate.sdk.primitives": (
        "CombineGlobally CombinePerElement CombinePerKey Create Filter FlatMap FlatMapTuple Flatten "
        "GroupByKey Map MapTuple MultiOutput ParDo Read Reshuffle WindowInto Write"
    ),
    "tidegate.sdk.primitives.feedback": "Feedback",
    "tidegate.sdk.primitives.iteration": "Iterate IterateResult Round",
    "tidegate.sdk.primitives.iteration_delta": "IterateDelta Solution",
    "tidegate.sdk.relational.authoring": "Expression col lit",
    "tidegate.sdk.relational.failures": "ExpressionError",
    "tidegate.sdk.runner": "PipelineResult PipelineState Runner",
    "tidegate.sdk.steps.applied_function": "ptransform_fn",
    "tidegate.sdk.steps.transform": "PTransform",
    "tidegate.sdk.windowing.assigners": (
        "CumulativeWindows FixedWindows GlobalWindows Sessions SlidingWindows WindowAssigner"
    ),
    "tidegate.sdk.windowing.calendar": "CalendarWindows",
    "tidegate.sdk.windowing.evictors": "Evictor KeepLast KeepRecent KeepWithinDelta",
    "tidegate.sdk.windowing.presets": (
        "CountWindows DeltaWindows LandmarkWindows PunctuationWindows SlidingCountWindows"
    ),
    "tidegate.sdk.windowing.strategy": "ACCUMULATING DISCARDING TimestampCombiner",
    "tidegate.sdk.windowing.triggers": (
        "AfterAll AfterAny AfterCount AfterDelta AfterEach AfterElement AfterProcessingTime AfterWatermark "
        "DefaultTrigger EveryEventTime EveryProcessingTime Never OrFinally Repeatedly"
    ),
    "tidegate.sdk.windowing.window": "BoundedWindow GlobalWindow IntervalWindow",
    "tidegate.sql.sql": "Sql",
    "tidegate.sql.steps.user_functions": "udf",
    "tidegate.transforms.calls.async_function": "AsyncFunction",
    "tidegate.transforms.calls.async_map": "AsyncMap",
    "tidegate.transforms.calls.lookup_join": "LookupJoin",
    "tidegate.transforms.calls.settings": "Cache Retry",
    "tidegate.transforms.debugging": "LogElements",
    "tidegate.transforms.elementwise": (
        "CombineValues FlatMapValues Impulse Keys KvSwap MapValues ToString Values WithKeys"
    ),
    "tidegate.transforms.flow": "BatchElements Distinct Partition Tee",
    "tidegate.transforms.grouping.batches": "GroupIntoBatches",
    "tidegate.transforms.grouping.cogroup": "CoGroupByKey",
    "tidegate.transforms.grouping.deduplicate": "Deduplicate DeduplicatePerKey",
    "tidegate.transforms.grouping.group_by": "GroupBy",
    "tidegate.transforms.grouping.join": "IntervalJoin Join",
    "tidegate.transforms.grouping.top_n": "TopN",
    "tidegate.transforms.iteration": "Empty Settled",
    "tidegate.transforms.periodic": "PeriodicImpulse PeriodicSequence",
    "tidegate.transforms.regex": "Regex",
    "tidegate.transforms.reify": "Reify",
    "tidegate.transforms.rows.dataframes": "ToDataFrame",
    "tidegate.transforms.rows.select": "Select",
    "tidegate.transforms.waiting": "WaitOn",
}
"""The names that each module defines, separated by spaces."""

_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
"""The module of each name that is imported when it is first asked for."""

_WHOLE_MODULES = {
    "combiners": "tidegate.transforms.combining.combiners",
    "fn": "tidegate.sdk.relational.functions",
    "io": "tidegate.io",
}
"""The names that are modules."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _WHOLE_MODULES:
        found: Any = import_module(_WHOLE_MODULES[name])
    elif name in _MODULES:
        found = getattr(import_module(_MODULES[name]), name)
    else:
        raise _no_such(name)
    globals()[name] = found
    return found


def _no_such(name: str) -> AttributeError:
    """The error for a name that is not here: where it is, or what it is called."""
    from tidegate import io
    from tidegate.sdk import beam_names
    from tidegate.transforms.combining import combiners

    in_io = [] if name.startswith("_") else [f"tg.io.{each}" for each in io.__all__]
    elsewhere = [*in_io, *(f"tg.combiners.{each}" for each in combiners.__all__)]
    return beam_names.no_such("tidegate", "tg", name, beam_names.TG | beam_names.IO_AT_TOP, __all__, elsewhere)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "io",
    "col",
    "lit",
    "fn",
    "Expression",
    "ExpressionError",
    "DurationOption",
    "PipelineOptions",
    "SizeOption",
    "Sql",
    "udf",
    "WriteToArrow",
    "WriteToAvro",
    "WriteToCsv",
    "WriteToDelta",
    "WriteToJson",
    "WriteToParquet",
    "show",
    "ReadFromArrow",
    "ReadFromAvro",
    "ReadFromCsv",
    "ReadFromDelta",
    "ReadFromJson",
    "ReadFromParquet",
    "__version__",
    "Coder",
    "PickleCoder",
    "register_coder",
    "AsyncFunction",
    "AsyncMap",
    "Cache",
    "LookupJoin",
    "Retry",
    "CombineFn",
    "SingleInputTupleCombineFn",
    "TupleCombineFn",
    "associative",
    "DoFn",
    "on_timer",
    "on_window_expiration",
    "BuildError",
    "CheckError",
    "KeyEncodingError",
    "LoadError",
    "OptionsError",
    "PicklingError",
    "ReadError",
    "RunError",
    "SqlError",
    "TidegateError",
    "TidegateWarning",
    "TypeCheckError",
    "UnsupportedError",
    "UserCodeError",
    "WriteError",
    "Evictor",
    "KeepLast",
    "KeepRecent",
    "KeepWithinDelta",
    "Metrics",
    "PaneInfo",
    "Timing",
    "PCollection",
    "Pipeline",
    "PTransform",
    "ptransform_fn",
    "CombineGlobally",
    "CombinePerElement",
    "CombinePerKey",
    "Create",
    "Filter",
    "FlatMap",
    "FlatMapTuple",
    "Flatten",
    "GroupByKey",
    "Map",
    "MapTuple",
    "MultiOutput",
    "ParDo",
    "Read",
    "Reshuffle",
    "WindowInto",
    "Write",
    "PipelineResult",
    "PipelineState",
    "Runner",
    "AsDict",
    "AsIter",
    "AsList",
    "AsMultiMap",
    "AsSingleton",
    "BagState",
    "BagStateSpec",
    "CombiningState",
    "CombiningStateSpec",
    "EventTimer",
    "MapState",
    "MapStateSpec",
    "OrderedListState",
    "OrderedListStateSpec",
    "ProcessingTimer",
    "SetState",
    "SetStateSpec",
    "Timer",
    "ValueState",
    "ValueStateSpec",
    "MAX_TIMESTAMP",
    "MIN_TIMESTAMP",
    "Duration",
    "Timestamp",
    "AfterAll",
    "AfterAny",
    "AfterCount",
    "AfterDelta",
    "AfterEach",
    "AfterElement",
    "AfterProcessingTime",
    "AfterWatermark",
    "DefaultTrigger",
    "EveryEventTime",
    "EveryProcessingTime",
    "Never",
    "OrFinally",
    "Repeatedly",
    "CountWindows",
    "DeltaWindows",
    "LandmarkWindows",
    "PunctuationWindows",
    "SlidingCountWindows",
    "TaggedOutput",
    "TimestampedValue",
    "WindowedValue",
    "ACCUMULATING",
    "DISCARDING",
    "TimestampCombiner",
    "BoundedWindow",
    "GlobalWindow",
    "IntervalWindow",
    "CalendarWindows",
    "CumulativeWindows",
    "FixedWindows",
    "GlobalWindows",
    "Sessions",
    "SlidingWindows",
    "WindowAssigner",
    "combiners",
    "CoGroupByKey",
    "LogElements",
    "CombineValues",
    "FlatMapValues",
    "Impulse",
    "Keys",
    "KvSwap",
    "MapValues",
    "ToDataFrame",
    "ToString",
    "TopN",
    "Values",
    "WithKeys",
    "BatchElements",
    "Distinct",
    "Partition",
    "Tee",
    "GroupBy",
    "Regex",
    "Row",
    "Select",
    "GroupIntoBatches",
    "Deduplicate",
    "DeduplicatePerKey",
    "IntervalJoin",
    "Join",
    "PeriodicImpulse",
    "PeriodicSequence",
    "Reify",
    "WaitOn",
    "Empty",
    "Feedback",
    "Iterate",
    "IterateDelta",
    "IterateResult",
    "Round",
    "Settled",
    "Solution",
]
