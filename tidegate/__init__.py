"""Tidegate: pipelines of windows, triggers and state, written once, run in memory, as a stream, or on Spark.

`import tidegate as tg` is all an author needs; everything public has its name here.
"""

from tidegate._version import __version__
from tidegate.sdk.coders import Coder, PickleCoder, register_coder
from tidegate.sdk.combine import CombineFn, associative
from tidegate.sdk.dofn import DoFn, on_timer, on_window_expiration
from tidegate.sdk.errors import (
    BuildError,
    CheckError,
    KeyEncodingError,
    LoadError,
    OptionsError,
    PicklingError,
    ReadError,
    RunError,
    TidegateError,
    TypeCheckError,
    UnsupportedError,
    UserCodeError,
    WriteError,
)
from tidegate.sdk.evictors import Evictor, KeepLast, KeepRecent, KeepWithinDelta
from tidegate.sdk.metrics import Metrics
from tidegate.sdk.panes import PaneInfo, Timing
from tidegate.sdk.pipeline import PCollection, Pipeline, PTransform, ptransform_fn
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
from tidegate.sdk.runner import PipelineResult, PipelineState, Runner
from tidegate.sdk.sideinputs import AsDict, AsIter, AsList, AsMultiMap, AsSingleton
from tidegate.sdk.state import (
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
from tidegate.sdk.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Duration, Timestamp
from tidegate.sdk.triggers import (
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
from tidegate.sdk.presets import (
    CountWindows,
    DeltaWindows,
    LandmarkWindows,
    PunctuationWindows,
    SlidingCountWindows,
)
from tidegate.sdk.values import TaggedOutput, TimestampedValue, WindowedValue
from tidegate.sdk.windowing import ACCUMULATING, DISCARDING, TimestampCombiner
from tidegate.sdk.window_types import BoundedWindow, GlobalWindow, IntervalWindow
from tidegate.sdk.windows import (
    CalendarWindows,
    CumulativeWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    WindowAssigner,
)
