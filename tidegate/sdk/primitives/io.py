"""Reading and writing: Create, Read and Write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypedDict, TypeVar, cast, overload

from tidegate.sdk.connectors.sinks import Sink
from tidegate.sdk.connectors.sources import Source
from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.values import Values
from tidegate.sdk.secrets.redaction import redacted
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import Duration, DurationLike, TimestampLike
from tidegate.sdk.typehints import hints
from tidegate.sdk.user_code.user_fn import UserFn

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Create(PTransform[Pipeline, PCollection[T]]):
    """The elements of an iterable, in its order, or the items of a dict. A `TimestampedValue` sets its timestamp."""

    @overload
    def __init__(self: Create[tuple[K, V]], values: Mapping[K, V], *, name: str | None = None) -> None: ...
    @overload
    def __init__(self, values: Iterable[TimestampedValue[T]], *, name: str | None = None) -> None: ...
    @overload
    def __init__(self, values: Iterable[T], *, name: str | None = None) -> None: ...
    def __init__(self, values: Any, *, name: str | None = None) -> None:
        if isinstance(values, (str, bytes)):
            raise BuildError(f"Create takes an iterable of elements, not one {type(values).__name__}: put it in a list")
        if not isinstance(values, Iterable):
            raise BuildError(f"Create takes an iterable of elements, not {type(values).__name__}")
        self.values: Any = (
            list(values.items())
            if isinstance(values, Mapping)
            else values
            if isinstance(values, (list, tuple, range))
            else list(values)
        )
        self.label = name

    def expand(self, input: Pipeline) -> PCollection[T]:
        if not isinstance(input, Pipeline):
            raise BuildError("Create begins a pipeline: write `pipeline | tg.Create(...)`")
        hint = self.output_type
        if hint is None:
            hint = hints.union([_plain_type(value) for value in self.values[:100]]) if len(self.values) else Any
        out = input.collection(element_type=hint)
        input.add(portable.Create, [out], values=Values(self.values, len(self.values)))
        return out


def _plain_type(value: Any) -> Any:
    if isinstance(value, TimestampedValue):
        value = value.value
    if type(value) is tuple and len(value) <= 8:
        return tuple[tuple(_plain_type(item) for item in value)] if value else tuple[()]  # type: ignore[misc]
    return type(value)


class ReadOptions(TypedDict, total=False):
    """The keyword arguments of `Read` that transforms which read a source of their own pass on."""

    timestamp: Callable[[Any], TimestampLike] | None
    out_of_orderness: DurationLike
    ingestion_time: bool
    idle_after: DurationLike | None
    rate_limit: float | None


DEFAULTS: Final[ReadOptions] = {
    "timestamp": None,
    "out_of_orderness": 0,
    "ingestion_time": False,
    "idle_after": None,
    "rate_limit": None,
}
"""The defaults of `ReadOptions`, which are those of `Read`."""


def read_options(options: ReadOptions) -> ReadOptions:
    """Those of a transform's keyword arguments that `Read` takes."""
    return cast(ReadOptions, {name: value for name, value in options.items() if name in ReadOptions.__annotations__})


class Read(PTransform[Pipeline, PCollection[T]]):
    """The elements of a `Source`.

    `timestamp` returns the event time of an element; the watermark is the greatest event time so far minus
    `out_of_orderness`. With `ingestion_time`, elements get the time at which they are read instead. A split that
    yields nothing for `idle_after` of processing time is idle: it does not hold back the watermark. `rate_limit` is the
    greatest number of elements per second that all tasks of the step read together.
    """

    def __init__(
        self,
        source: Source[T],
        *,
        timestamp: Callable[[T], TimestampLike] | None = None,
        out_of_orderness: DurationLike = 0,
        ingestion_time: bool = False,
        idle_after: DurationLike | None = None,
        rate_limit: float | None = None,
        name: str | None = None,
    ) -> None:
        if timestamp is not None and not callable(timestamp):
            field = timestamp if isinstance(timestamp, str) and timestamp.isidentifier() else "at"
            raise BuildError(
                f"Read: timestamp is a function of an element, as in lambda row: row.{field}, not {shorten(timestamp)}"
            )
        if timestamp is not None and ingestion_time:
            raise BuildError("Read: timestamp and ingestion_time can't be combined: choose one")
        if Duration.of(out_of_orderness).micros < 0:
            raise BuildError(f"Read: out_of_orderness must not be negative, but is {out_of_orderness!r}")
        if Duration.of(out_of_orderness).micros and timestamp is None:
            raise BuildError(
                f"Read: out_of_orderness={out_of_orderness!r} says how late the times of timestamp= may be, and there "
                "is no timestamp=: add a function of an element, as in timestamp=lambda line: ..."
            )
        if idle_after is not None and Duration.of(idle_after).micros <= 0:
            raise BuildError(f"Read: idle_after must be positive, but is {idle_after!r}")
        if rate_limit is not None and not 0 < rate_limit < float("inf"):
            raise BuildError(f"Read: rate_limit must be a positive number of elements per second, not {rate_limit!r}")
        self.source = source
        self.label = name
        self.rate_limit = None if rate_limit is None else float(rate_limit)
        self.stamping = None
        if timestamp is not None or ingestion_time or idle_after is not None:
            self.stamping = portable.Stamping(
                None if timestamp is None else UserFn.of(timestamp),
                ingestion_time,
                Duration.of(out_of_orderness),
                None if idle_after is None else Duration.of(idle_after),
            )

    def default_label(self) -> str:
        return f"Read({redacted(self.source.name)})"

    def expand(self, input: Pipeline) -> PCollection[T]:
        if not isinstance(input, Pipeline):
            raise BuildError("Read begins a pipeline: write `pipeline | tg.Read(...)`")
        self.source.check()
        out = input.collection(element_type=self.output_type or self.source.element_type, bounded=self.source.bounded)
        input.add(
            portable.Read,
            [out],
            source=UserFn.of(self.source, redacted(self.source.name)),
            name=redacted(self.source.name),
            bounded=self.source.bounded,
            stamping=self.stamping,
            forks_safely=self.source.forks_safely,
            replayable=self.source.replayable,
            rate_limit=self.rate_limit,
            discovers=type(self.source).enumerator is not Source.enumerator,
            divides=type(self.source).split_again is not Source.split_again,
            takes_columns=self.output_type is None and self.source.takes_columns,
            takes_conditions=self.source.takes_conditions,
        )
        return out


class Write(PTransform[PCollection[Any], None]):
    """Writes all elements to a `Sink`; `shards` is the number of parallel write attempts (0: the runner decides)."""

    def __init__(self, sink: Sink[Any], *, shards: int = 0, name: str | None = None) -> None:
        self.sink = sink
        self.shards = shards
        self.label = name

    def default_label(self) -> str:
        return f"Write({redacted(self.sink.name)})"

    def expand(self, input: PCollection[Any]) -> None:
        if self.sink.commit_by not in ("job", "task"):
            raise BuildError(f'{self.sink.name}: commit_by must be "job" or "task", but is {self.sink.commit_by!r}')
        self.sink.check()
        if (written := self.sink.writes()) is not None:
            input.pipeline.claim(written, self.sink.name)
        input.pipeline.add(
            portable.Write,
            [],
            [input.id],
            sink=UserFn.of(self.sink, redacted(self.sink.name)),
            name=redacted(self.sink.name),
            delivery=self.sink.delivery,
            shards=self.shards,
            commit_by=self.sink.commit_by,
            forks_safely=self.sink.forks_safely,
        )
