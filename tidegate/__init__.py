"""Tidegate: pipelines of windows, triggers and state, written once, run in memory, as a stream, or on Spark.

`import tidegate as tg` is all an author needs; everything public has its name here.
"""

from tidegate._version import __version__
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
from tidegate.sdk.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Duration, Timestamp
from tidegate.sdk.values import TaggedOutput, TimestampedValue, WindowedValue
