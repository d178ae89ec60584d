"""Names from Apache Beam that differ here: using one raises an error with ours. docs/from_beam.md has the table.

For a name in no table, the error suggests the most similar name that exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidegate.sdk.errors import MissingAttribute

TG: Final = {
    "WindowFn": "`tg.WindowAssigner` is the base of window assigners of your own",
    "NonMergingWindowFn": "`tg.WindowAssigner` is the base of window assigners of your own",
    "window": "windows are in `tg` itself: `tg.FixedWindows`, `tg.Sessions`, `tg.TimestampedValue`",
    "trigger": "triggers are in `tg` itself: `tg.AfterWatermark`, `tg.AfterCount`, `tg.Repeatedly`",
    "pvalue": "views and tags are in `tg` itself: `tg.AsList`, `tg.AsDict`, `tg.AsSingleton`, `tg.TaggedOutput`",
    "Always": "`tg.Repeatedly(tg.AfterCount(1))` fires at every element",
    "AccumulationMode": "write `tg.ACCUMULATING` or `tg.DISCARDING`",
    "OUTPUT_AT_EOW": "write `tg.TimestampCombiner.END_OF_WINDOW`",
    "ReadModifyWriteStateSpec": "`tg.ValueStateSpec` is a cell of one value",
    "CombiningValueStateSpec": "`tg.CombiningStateSpec` is a cell that combines what is added",
    "TimerSpec": "a timer's domain is its class: `tg.EventTimer(name)` or `tg.ProcessingTimer(name)`",
    "TimeDomain": "a timer's domain is its class: `tg.EventTimer(name)` or `tg.ProcessingTimer(name)`",
    "RemoveDuplicates": "`tg.Distinct` drops elements that have occurred before",
    "FlattenWith": "give all collections to one `tg.Flatten()`: `(a, b) | tg.Flatten()`",
    "PartitionFn": "`tg.Partition` takes a function",
    "ApproximateUnique": "it is among the combiners: `tg.combiners.ApproximateUnique`",
    "ApproximateQuantiles": "it is among the combiners: `tg.combiners.ApproximateQuantiles`",
    "coders": "a class gets its coder by `tg.register_coder`; `tg.Coder` is the base of your own",
    "metrics": "counters, gauges and distributions are made by `tg.Metrics`",
    "options": "subclass `tg.PipelineOptions`, and read a command line by `tg.PipelineOptions.from_args()`",
    "DirectRunner": 'a runner is chosen by its name: `tg.Pipeline(runner="direct")`, or `--runner direct`',
    "typehints": "annotate your functions with Python's own types; steps infer theirs from them",
    "utils": "times are in `tg` itself: `tg.Timestamp`, `tg.Duration`",
    "RestrictionProvider": "there are no splittable DoFns: write a source, and read it by `tg.Read`",
    "RunInference": "load the model in `setup()` of a `tg.DoFn`, and let `tg.BatchElements` make its batches",
    "ExternalTransform": "there are no transforms of other languages: `tg.PTransform` is the base of your own",
    "Managed": "there are no managed connectors: `tg.io` has the connectors, `tg.Read` takes a source of your own",
}
"""Of `beam` itself, and of its modules, whose names stand in `tg`."""

_READ: Final = "`tg.io.ReadFromSpark` reads what Spark can; anything else is a source of your own for `tg.Read`"
_WRITE: Final = "`tg.io.WriteToSpark` writes what Spark can; anything else is a sink of your own for `tg.Write`"

IO: Final = {
    "ReadFromBigQuery": _READ,
    "WriteToBigQuery": _WRITE,
    "ReadFromJdbc": _READ,
    "WriteToJdbc": _WRITE,
    "ReadFromPubSub": "a live stream of messages is a source of your own for `tg.Read`",
    "WriteToPubSub": "a topic is a sink of your own for `tg.Write`",
    "ReadFromKafka": "a live stream of messages is a source of your own for `tg.Read`",
    "WriteToKafka": "a topic is a sink of your own for `tg.Write`",
    "ReadFromTFRecord": "any other file is a source of your own for `tg.Read`",
    "WriteToTFRecord": "any other file is a sink of your own for `tg.Write`",
    "Read": "it is in `tg` itself: `tg.Read`",
    "Write": "it is in `tg` itself: `tg.Write`",
    "fileio": "`tg.io` has `MatchFiles` and `ReadMatches`; `tg.io.WriteToText` names files by destination and window",
    "iobase": "`tg.io.Source` is the base of sources for `tg.Read`, `tg.io.Sink` that of sinks for `tg.Write`",
}
"""Of `beam.io`."""

IO_AT_TOP: Final = {name: advice for name, advice in IO.items() if name.startswith(("ReadFrom", "WriteTo", "ReadAll"))}
"""The connectors among them, asked of `tg` itself."""

COMBINERS: Final = {
    "CountCombineFn": "`tg.combiners.CountFn`",
    "MeanCombineFn": "`tg.combiners.MeanFn`",
    "TopCombineFn": "`tg.combiners.TopFn`",
    "SampleCombineFn": "`tg.combiners.SampleFn`",
    "LatestCombineFn": "`tg.combiners.LatestFn`",
    "ToListCombineFn": "`tg.combiners.ListFn`",
    "ToDictCombineFn": "`tg.combiners.DictFn`",
    "ToSetCombineFn": "`tg.combiners.SetFn`",
}
"""Of `beam.combiners`."""

DOFN: Final = {
    "DynamicTimerTagParam": "`tg.DoFn.TimerTagParam` gives the tag of the timer that fired",
    "SideInputParam": "side inputs are arguments of the step: `tg.ParDo(fn, tg.AsList(side))`",
    "WatermarkEstimatorParam": "a source reports its watermark itself; `tg.DoFn.WatermarkParam` injects the current "
    "one",
    "BundleFinalizerParam": "do it in `finish_bundle`, or in a sink's commit, which follows a checkpoint",
    "RestrictionParam": "there are no splittable DoFns: write a source, and read it by `tg.Read`",
    "SetupContextParam": "make what the work needs in `setup()` of the `tg.DoFn`",
    "unbounded_per_element": "there are no splittable DoFns: write a source, and read it by `tg.Read`",
}
"""Of `beam.DoFn`."""

TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "beam": TG,
    "beam.io": IO,
    "beam.combiners": COMBINERS,
    "beam.DoFn": DOFN,
}


def no_such(
    owner: str, prefix: str, name: str, table: Mapping[str, str], known: Iterable[str], elsewhere: Iterable[str] = ()
) -> AttributeError:
    """`tidegate has no ReadFromKafka; …`: what Beam's name is here, or the nearest of the `known` ones.

    `prefix` is how authors write the owner (`tg.io`); names `elsewhere` are written out in full.
    """
    if name.startswith("_"):
        return MissingAttribute(f"module {owner!r} has no attribute {name!r}")
    advice = table.get(name, "").replace("`", "")
    if not advice:
        import difflib

        full = {each: f"{prefix}.{each}" for each in known} | {each.rpartition(".")[2]: each for each in elsewhere}
        near = difflib.get_close_matches(name, full, n=1, cutoff=0.7) or _but_for_case(name, full)
        advice = f"did you mean {full[near[0]]}?" if near else ""
    if not advice:
        return MissingAttribute(f"{owner} has no {name}")
    # CPython appends a suggestion to an AttributeError without an object; `obj=None` prevents that.
    return MissingAttribute(f"{owner} has no {name}; {advice}", obj=None)


def _but_for_case(name: str, names: Iterable[str]) -> list[str]:
    plain = name.lower().replace("_", "")
    return [each for each in names if each.lower().replace("_", "") == plain]
