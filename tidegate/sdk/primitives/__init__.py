"""The primitive transforms, which become nodes of the portable pipeline; all others are composites of these."""

from tidegate.sdk.primitives.elementwise import (
    ElementStep,
    ElementWise,
    Filter,
    FlatMap,
    FlatMapTuple,
    Map,
    MapTuple,
    ParDo,
)
from tidegate.sdk.primitives.grouping import (
    CombineGlobally,
    CombinePerElement,
    CombinePerKey,
    GroupByKey,
    checked_combiner,
    combined_type,
    pair_type,
)
from tidegate.sdk.primitives.io import Create, Read, ReadOptions, Write, read_options
from tidegate.sdk.primitives.multi_output import MultiOutput
from tidegate.sdk.primitives.shaping import Flatten, Reshuffle, WindowInto

__all__ = [
    "CombineGlobally",
    "CombinePerElement",
    "CombinePerKey",
    "Create",
    "ElementStep",
    "ElementWise",
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
    "ReadOptions",
    "Reshuffle",
    "WindowInto",
    "Write",
    "checked_combiner",
    "combined_type",
    "pair_type",
    "read_options",
]
