"""Tidegate: pipelines of windows, triggers and state, written once, run in memory, as a stream, or on Spark.

`import tidegate as tg` is all an author needs; everything public has its name here.
"""

from typing import TYPE_CHECKING, Any

from tidegate._version import __version__
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
from tidegate.sdk.metrics import Metrics
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
from tidegate.sdk.runner import PipelineResult, PipelineState, Runner
from tidegate.sdk.steps.applied_function import ptransform_fn
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Duration, Timestamp
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
from tidegate.transforms.rows.select import Select
from tidegate.transforms.waiting import WaitOn

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
    from tidegate.sdk.interactive.show import show
    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.options.option_types import DurationOption, SizeOption
    from tidegate.sdk.relational import functions as fn
    from tidegate.sdk.relational.authoring import Expression, col, lit
    from tidegate.sdk.relational.failures import ExpressionError
    from tidegate.sql.sql import Sql
    from tidegate.sql.steps.user_functions import udf
    from tidegate.transforms.calls.async_function import AsyncFunction
    from tidegate.transforms.calls.async_map import AsyncMap
    from tidegate.transforms.calls.lookup_join import LookupJoin
    from tidegate.transforms.calls.settings import Cache, Retry
    from tidegate.transforms.rows.dataframes import ToDataFrame

_provide_interactive(_load_interactive)

_LAZY = {
    "AsyncFunction": "tidegate.transforms.calls.async_function",
    "AsyncMap": "tidegate.transforms.calls.async_map",
    "Cache": "tidegate.transforms.calls.settings",
    "DurationOption": "tidegate.sdk.options.model",
    "Expression": "tidegate.sdk.relational.authoring",
    "ExpressionError": "tidegate.sdk.relational.failures",
    "LookupJoin": "tidegate.transforms.calls.lookup_join",
    "PipelineOptions": "tidegate.sdk.options.model",
    "Retry": "tidegate.transforms.calls.settings",
    "SizeOption": "tidegate.sdk.options.model",
    "Sql": "tidegate.sql.sql",
    "ToDataFrame": "tidegate.transforms.rows.dataframes",
    "WriteToArrow": "tidegate.io",
    "WriteToAvro": "tidegate.io",
    "WriteToCsv": "tidegate.io",
    "WriteToDelta": "tidegate.io",
    "WriteToJson": "tidegate.io",
    "WriteToParquet": "tidegate.io",
    "col": "tidegate.sdk.relational.authoring",
    "lit": "tidegate.sdk.relational.authoring",
    "show": "tidegate.sdk.interactive.show",
    "udf": "tidegate.sql.steps.user_functions",
    "ReadFromArrow": "tidegate.io.formats.reading",
    "ReadFromAvro": "tidegate.io.formats.reading",
    "ReadFromCsv": "tidegate.io.formats.reading",
    "ReadFromDelta": "tidegate.io.delta.reading",
    "ReadFromJson": "tidegate.io.formats.reading",
    "ReadFromParquet": "tidegate.io.formats.reading",
}
"""Names whose modules are heavy (pydantic), or seldom needed, imported when they are first asked for."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "io":
        return import_module("tidegate.io")
    if name == "fn":
        return import_module("tidegate.sdk.relational.functions")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    from tidegate.sdk import beam_names

    io = [] if name.startswith("_") else [f"tg.io.{each}" for each in import_module("tidegate.io").__all__]
    elsewhere = [*io, *(f"tg.combiners.{each}" for each in combiners.__all__)]
    raise beam_names.no_such("tidegate", "tg", name, beam_names.TG | beam_names.IO_AT_TOP, __all__, elsewhere)


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
