"""The transforms that become nodes; everything else is a composite of these."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Concatenate, Generic, NoReturn, Protocol, Self, TypeVar, overload

from tidegate.sdk import hints, signatures, types
from tidegate.sdk.analysis import emits_plain
from tidegate.sdk.combine import CallableFn, CombineFn, as_combine_fn, combiner_name
from tidegate.sdk.dofn import Call, DoFn, bind, bind_method
from tidegate.sdk.errors import BuildError, TypeCheckError
from tidegate.sdk.functions import UserFn, name_of
from tidegate.sdk.pipeline import PCollection, Pipeline, PTransform, Transform, pipeline_of
from tidegate.sdk.portable import pipeline as portable
from tidegate.sdk.sideinputs import MISSING
from tidegate.sdk.sinks import Sink
from tidegate.sdk.sources import Source
from tidegate.sdk.time import Duration, DurationLike, TimestampLike
from tidegate.sdk.values import TimestampedValue
from tidegate.sdk.windowing import WindowingStrategy, after_grouping, build_strategy, compatible

E = TypeVar("E", bound=Any)
"""An element that a function takes. Its bound makes pyright, which types no lambda to the right of `|`, take the
lambda's parameter for Any; left unbound it would be an object without attributes."""
T = TypeVar("T")
R = TypeVar("R")
Made = TypeVar("Made", covariant=True)
K = TypeVar("K")
V = TypeVar("V")


class Create(PTransform[Pipeline, PCollection[T]]):
    """The elements of an iterable, in its order; the pairs of a dict. `TimestampedValue`s bring their times."""

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
        input.add(portable.Create, [out], values=portable.Values(self.values, len(self.values)))
        return out


def _plain_type(value: Any) -> Any:
    if isinstance(value, TimestampedValue):
        value = value.value
    if type(value) is tuple and len(value) <= 8:
        return tuple[tuple(_plain_type(item) for item in value)] if value else tuple[()]  # type: ignore[misc]
    return type(value)


class Read(PTransform[Pipeline, PCollection[T]]):
    """The elements of a `Source`.

    `timestamp` stamps each element with its event time, which lets the watermark follow at `out_of_orderness` behind
    the greatest seen. `ingestion_time` stamps with the clock on entry instead. A split that gives nothing for
    `idle_after` of processing time holds back nobody's watermark.
    """

    def __init__(
        self,
        source: Source[T],
        *,
        timestamp: Callable[[T], TimestampLike] | None = None,
        out_of_orderness: DurationLike = 0,
        ingestion_time: bool = False,
        idle_after: DurationLike | None = None,
        name: str | None = None,
    ) -> None:
        if timestamp is not None and ingestion_time:
            raise BuildError("Read: elements are stamped by a function or on entry, not both")
        if Duration.of(out_of_orderness).micros < 0:
            raise BuildError(f"Read: out_of_orderness can't be negative, and is {out_of_orderness!r}")
        if idle_after is not None and Duration.of(idle_after).micros <= 0:
            raise BuildError(f"Read: idle_after must be positive, and is {idle_after!r}")
        self.source = source
        self.label = name
        self.stamping = None
        if timestamp is not None or ingestion_time or idle_after is not None:
            self.stamping = portable.Stamping(
                None if timestamp is None else UserFn.of(timestamp),
                ingestion_time,
                Duration.of(out_of_orderness),
                None if idle_after is None else Duration.of(idle_after),
            )

    def default_label(self) -> str:
        return f"Read({self.source.name})"

    def expand(self, input: Pipeline) -> PCollection[T]:
        if not isinstance(input, Pipeline):
            raise BuildError("Read begins a pipeline: write `pipeline | tg.Read(...)`")
        self.source.check()
        out = input.collection(element_type=self.output_type or self.source.element_type, bounded=self.source.bounded)
        input.add(
            portable.Read,
            [out],
            source=UserFn.of(self.source, self.source.name),
            name=self.source.name,
            bounded=self.source.bounded,
            stamping=self.stamping,
        )
        return out


class Write(PTransform[PCollection[Any], None]):
    """All elements into a `Sink`; `shards` fixes how many attempts write at once (0: the runner decides)."""

    def __init__(self, sink: Sink[Any], *, shards: int = 0, name: str | None = None) -> None:
        self.sink = sink
        self.shards = shards
        self.label = name

    def default_label(self) -> str:
        return f"Write({self.sink.name})"

    def expand(self, input: PCollection[Any]) -> None:
        self.sink.check()
        input.pipeline.add(
            portable.Write,
            [],
            [input.id],
            sink=UserFn.of(self.sink, self.sink.name),
            name=self.sink.name,
            delivery=self.sink.delivery,
            shards=self.shards,
        )


class MultiOutput:
    """The outputs of a step with several: `out.tag`, `out["tag"]`; iterating gives the main one first."""

    def __init__(self, outputs: dict[str, PCollection[Any]]) -> None:
        self._outputs = outputs

    def __getattr__(self, tag: str) -> PCollection[Any]:
        if tag.startswith("__"):
            raise AttributeError(tag)
        return self[tag]

    def __getitem__(self, tag: str | None) -> PCollection[Any]:
        if tag is None:
            return next(iter(self._outputs.values()))
        try:
            return self._outputs[tag]
        except KeyError:
            raise BuildError(f"there is no output {tag!r} here; there are: {', '.join(self._outputs)}") from None

    def __iter__(self) -> Iterator[PCollection[Any]]:
        return iter(self._outputs.values())

    def __repr__(self) -> str:
        return f"MultiOutput({', '.join(self._outputs)})"


class ElementStep(Transform, Generic[E, R]):
    """A function of the author's once per element: what `ParDo`, `Map`, `MapValues` and their kin share."""

    form: portable.Form
    title: str = ""
    """The automatic label, where the names of class and function would not say what the step is."""

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str | None) -> None:
        if not isinstance(fn, DoFn) and not callable(fn):
            raise BuildError(f"{type(self).__name__} takes a function, not {fn!r}")
        self.fn = fn
        self.args = args
        self.kwargs = dict(kwargs)
        self.label = name
        self.tags: tuple[str, ...] = ()
        self.main_tag = portable.MAIN
        self.dead_letters: portable.DeadLetters | None = None
        self.keeps_key = False

    def default_label(self) -> str:
        return self.title or f"{type(self).__name__}({name_of(self.fn)})"

    def with_outputs(self, *tags: str, main: str = portable.MAIN) -> PTransform[PCollection[E], MultiOutput]:
        """Declare further outputs: `TaggedOutput(tag, value)` goes to `out.tag`, everything else to `out[main]`."""
        bad = [tag for tag in tags if not isinstance(tag, str) or not tag]
        if bad or len({*tags, main}) != len(tags) + 1:
            raise BuildError(f"output tags are distinct non-empty strings, not {(main, *tags)!r}")
        tagged: Any = copy.copy(self)
        tagged.tags = tags
        tagged.main_tag = main
        return tagged  # type: ignore[no-any-return]

    def with_exception_handling(
        self,
        *,
        exc_class: type[BaseException] | tuple[type[BaseException], ...] = Exception,
        partial: bool = False,
        threshold: float = 1.0,
        tag: str = "bad",
    ) -> PTransform[PCollection[E], tuple[PCollection[R], PCollection[Any]]]:
        """Give `(good, bad)`: elements whose function raised `exc_class` go to `bad` with what was raised.

        bad = `(element, (exception type name, repr, traceback lines))`. With `partial` what a failing element had
        emitted stays. A bundle in which more than the share `threshold` of elements failed fails the run.
        """
        if not 0.0 <= threshold <= 1.0:
            raise BuildError(f"threshold is a share from 0 to 1, not {threshold!r}")
        handled: Any = copy.copy(self)
        handled.dead_letters = portable.DeadLetters(
            tag, None if exc_class is Exception else UserFn.of(exc_class, "exc_class"), partial, threshold
        )
        return handled  # type: ignore[no-any-return]

    def expand(self, input: PCollection[E]) -> Any:
        if not isinstance(input, PCollection):
            raise BuildError(f"{type(self).__name__} applies to a PCollection, not to {type(input).__name__}")
        pipeline = input.pipeline
        out_type = self.element_types(input)
        main = pipeline.collection(element_type=out_type, windowing=input.windowing, bounded=input.is_bounded)
        main.tag = self.main_tag
        outputs = [main] + [
            pipeline.collection(tag, windowing=input.windowing, bounded=input.is_bounded) for tag in self.tags
        ]
        dead = self.dead_letters
        if dead:
            outputs.append(pipeline.collection(dead.tag, windowing=input.windowing, bounded=input.is_bounded))
        call, fields = self.call_fields()
        side_inputs, bounded = _side_refs(call, pipeline)
        if not bounded:
            for out in outputs:
                out.is_bounded = input.is_bounded
        pipeline.add(
            portable.ParDo,
            outputs,
            [input.id],
            fn=UserFn.of(self.fn),
            form=self.form,
            params=call.params,
            consts=UserFn.of(call.consts, "extra arguments") if call.consts else None,
            side_inputs=side_inputs,
            states=call.states,
            timers=call.timers,
            dead_letters=dead,
            keeps_key=self.keeps_key,
            emits="plain" if emits_plain(self.fn, self.form) else "any",
            **fields,
        )
        good: Any = outputs[0]
        if self.tags:
            good = MultiOutput({out.tag: out for out in outputs[: 1 + len(self.tags)]})
        return (good, outputs[-1]) if dead else good

    def call_fields(self) -> tuple[Call, dict[str, Any]]:
        """The bound call, and the node's further fields."""
        return bind(self.fn, self.args, self.kwargs), {}

    def element_types(self, input: PCollection[E]) -> Any:
        """Check what comes in against what the function takes; return what it gives."""
        signature = signatures.signature_of(self.fn.process if isinstance(self.fn, DoFn) else self.fn)
        wanted = self.input_type if self.input_type is not None else self.takes(signature)
        self.check_input(input.element_type, wanted, self.default_label())
        if self.output_type is not None:
            return self.output_type
        return hints.substitute(self.gives(signature, input.element_type), types.bind(wanted, input.element_type))

    def takes(self, signature: signatures.FnTypes) -> Any:
        """The type of element the function takes."""
        return signature.parameters[0] if signature.parameters else Any

    def gives(self, signature: signatures.FnTypes, element_type: Any) -> Any:
        """The type of element the step gives."""
        return unwrapped(signature.result)


class ElementWise(ElementStep[E, R], PTransform[PCollection[E], PCollection[R]]):
    """An `ElementStep` whose types show on the class, so that `pcoll | Map(f)` is inferred from `f`."""

    def __ror__(self, inputs: tuple[Any, ...] | list[Any] | dict[str, Any]) -> NoReturn:
        """Refuse `(a, b) | Map(f)`. A wider type here would accept any `pcoll | Map(wrong)` in the eyes of checkers."""
        raise BuildError(f"{self.default_label()} takes one PCollection: write `(a, b) | tg.Flatten() | ...`")


def unwrapped(hint: Any) -> Any:
    """The element type of a result annotated as `TimestampedValue[T]`: T. A tagged result may be anything."""
    from tidegate.sdk.values import SPECIAL

    origin = getattr(hint, "__origin__", hint)
    if origin is TimestampedValue:
        return next(iter(getattr(hint, "__args__", ())), Any)
    return Any if origin in SPECIAL or _mentions(hint, SPECIAL) else hint


def _mentions(hint: Any, classes: frozenset[Any]) -> bool:
    return any(getattr(part, "__origin__", part) in classes for part in getattr(hint, "__args__", ()))


def _side_refs(call: Call, pipeline: Pipeline) -> tuple[tuple[portable.SideInputRef, ...], bool]:
    refs = []
    bounded = True
    for side in call.sides:
        pcoll = side.pcoll
        if not isinstance(pcoll, PCollection):
            raise BuildError(f"a side input is a view of a PCollection, not of {type(pcoll).__name__}")
        if pcoll.pipeline is not pipeline:
            raise BuildError("a side input must belong to the same pipeline")
        default = None if side.default is MISSING else UserFn.of((side.default,), "the default of a side input")
        refs.append(portable.SideInputRef(pcoll.id, side.view, default))
        bounded = bounded and pcoll.is_bounded
    return tuple(refs), bounded


class _Processes(Protocol[Made]):
    """A DoFn, seen by what it gives."""

    @property
    def process(self) -> Callable[..., Iterable[Made] | None]: ...


class ParDo(ElementWise[E, R]):
    """A DoFn once per element: zero, one or many results each. A plain function is taken as `FlatMap` takes it."""

    form: portable.Form = "process"

    @overload
    def __init__(
        self: ParDo[Any, R], fn: _Processes[TimestampedValue[R]], *args: Any, name: str | None = None, **kwargs: Any
    ) -> None: ...
    @overload
    def __init__(
        self: ParDo[Any, R], fn: _Processes[R], *args: Any, name: str | None = None, **kwargs: Any
    ) -> None: ...
    @overload
    def __init__(
        self, fn: Callable[Concatenate[E, ...], Iterable[R] | None], *args: Any, name: str | None = None, **kwargs: Any
    ) -> None: ...
    def __init__(self, fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        if isinstance(fn, type):
            raise BuildError(f"ParDo takes an instance: {fn.__name__}(), not the class {fn.__name__}")
        super().__init__(fn, args, kwargs, name)
        if not isinstance(fn, DoFn):
            self.form = "flat_map"
        elif type(fn).process is DoFn.process:
            raise BuildError(f"{type(fn).__name__} has no process method")

    def call_fields(self) -> tuple[Call, dict[str, Any]]:
        if not isinstance(self.fn, DoFn):
            return super().call_fields()
        call = bind(self.fn.process, self.args, self.kwargs)
        kind = type(self.fn)
        callbacks, states, timers = [], dict.fromkeys(call.states), dict.fromkeys(call.timers)
        for attribute in dir(kind):
            method = getattr(kind, attribute, None)
            timer = getattr(method, "__tidegate_timer__", None)
            if timer is None and not getattr(method, "__tidegate_expiration__", False):
                continue
            bound = bind_method(getattr(self.fn, attribute))
            states.update(dict.fromkeys(bound.states))
            timers.update(dict.fromkeys(bound.timers))
            callbacks.append(portable.Callback(attribute, timer, bound.params))
        known = {spec.name for spec in timers}
        for spec in timers:
            if not any(callback.timer == spec.name for callback in callbacks):
                raise BuildError(f"{kind.__name__} sets the timer {spec.name!r} but has no @on_timer method for it")
        for callback in callbacks:
            if callback.timer is not None and callback.timer not in known:
                method = f"{kind.__name__}.{callback.method}"
                raise BuildError(f"{method} waits for the timer {callback.timer!r}, which nothing sets")
        hooks = kind.start_bundle is not DoFn.start_bundle or kind.finish_bundle is not DoFn.finish_bundle
        merged = Call(call.params, call.consts, call.sides, tuple(states), tuple(timers))
        return merged, {"callbacks": tuple(callbacks), "bundle_hooks": hooks}

    def gives(self, signature: signatures.FnTypes, element_type: Any) -> Any:
        return unwrapped(types.element_of_iterable(signature.result))


class Map(ElementWise[E, R]):
    """`fn(element, *args, **kwargs)` once per element."""

    form = "map"

    @overload
    def __init__(self, fn: Callable[[E], TimestampedValue[R]], *, name: str | None = None) -> None: ...
    @overload
    def __init__(
        self, fn: Callable[Concatenate[E, ...], TimestampedValue[R]], *args: Any, name: str | None = None, **kwargs: Any
    ) -> None: ...
    @overload
    def __init__(self, fn: Callable[[E], R], *, name: str | None = None) -> None: ...
    @overload
    def __init__(
        self, fn: Callable[Concatenate[E, ...], R], *args: Any, name: str | None = None, **kwargs: Any
    ) -> None: ...
    def __init__(self, fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(fn, args, kwargs, name)


class FlatMap(ElementWise[E, R]):
    """All items of `fn(element, *args, **kwargs)`, an iterable or None."""

    form = "flat_map"

    @overload
    def __init__(self, fn: Callable[[E], Iterable[TimestampedValue[R]] | None], *, name: str | None = None) -> None: ...
    @overload
    def __init__(
        self,
        fn: Callable[Concatenate[E, ...], Iterable[TimestampedValue[R]] | None],
        *args: Any,
        name: str | None = None,
        **kwargs: Any,
    ) -> None: ...
    @overload
    def __init__(self, fn: Callable[[E], Iterable[R] | None], *, name: str | None = None) -> None: ...
    @overload
    def __init__(
        self, fn: Callable[Concatenate[E, ...], Iterable[R] | None], *args: Any, name: str | None = None, **kwargs: Any
    ) -> None: ...
    def __init__(self, fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(fn, args, kwargs, name)

    def gives(self, signature: signatures.FnTypes, element_type: Any) -> Any:
        return unwrapped(types.element_of_iterable(signature.result))


class Filter(ElementWise[E, E]):
    """Only the elements for which `fn(element, *args, **kwargs)` is true."""

    form = "filter"

    @overload
    def __init__(self, fn: Callable[[E], Any], *, name: str | None = None) -> None: ...
    @overload
    def __init__(
        self, fn: Callable[Concatenate[E, ...], Any], *args: Any, name: str | None = None, **kwargs: Any
    ) -> None: ...
    def __init__(self, fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(fn, args, kwargs, name)
        self.keeps_key = True

    def gives(self, signature: signatures.FnTypes, element_type: Any) -> Any:
        return element_type if element_type is not Any else self.takes(signature)


class MapTuple(ElementWise[E, R]):
    """`fn(*element, *args, **kwargs)` once per element, a tuple."""

    form: portable.Form = "map_tuple"

    def __init__(self, fn: Callable[..., R], *args: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(fn, args, kwargs, name)

    def call_fields(self) -> tuple[Call, dict[str, Any]]:
        return bind(self.fn, self.args, self.kwargs, elements=-1), {}

    def takes(self, signature: signatures.FnTypes) -> Any:
        return _tuple_of(signature, len(self.args))


class FlatMapTuple(MapTuple[E, R]):
    """All items of `fn(*element, *args, **kwargs)`."""

    form = "flat_map_tuple"

    def gives(self, signature: signatures.FnTypes, element_type: Any) -> Any:
        return unwrapped(types.element_of_iterable(signature.result))


def _tuple_of(signature: signatures.FnTypes, extra: int) -> Any:
    parameters = signature.parameters[: len(signature.parameters) - extra] if extra else signature.parameters
    if not parameters or all(p is Any for p in parameters):
        return Any
    return tuple[tuple(parameters)]  # type: ignore[misc]


class Flatten(Transform):
    """Several collections as one: `(a, b) | Flatten()`. Their assigners and triggers must be equal."""

    def __ror__(self, pcolls: Iterable[PCollection[T]]) -> PCollection[T]:
        parts = tuple(pcolls)
        result: PCollection[T] = pipeline_of(parts, self).apply(self, parts)
        return result

    def expand(self, input: tuple[PCollection[Any], ...]) -> PCollection[Any]:
        if isinstance(input, PCollection):
            raise BuildError("Flatten takes several collections: write `(a, b) | tg.Flatten()`")
        first, *rest = input
        for other in rest:
            reason = compatible(first.windowing, other.windowing)
            if reason:
                raise BuildError(f"{first!r} and {other!r} can't be flattened: {reason}")
        pipeline = first.pipeline
        out = pipeline.collection(
            element_type=self.output_type or hints.union([p.element_type for p in input]),
            windowing=first.windowing,
            bounded=all(p.is_bounded for p in input),
        )
        pipeline.add(portable.Flatten, [out], [p.id for p in input])
        return out


class Reshuffle(Transform):
    """The same elements, timestamps, windows and panes, spread anew; nothing fuses across it."""

    def __call__(self, pcoll: PCollection[T]) -> PCollection[T]:
        result: PCollection[T] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[T]) -> PCollection[T]:
        out = input.pipeline.collection(
            element_type=input.element_type, windowing=input.windowing, bounded=input.is_bounded
        )
        input.pipeline.add(portable.Reshuffle, [out], [input.id])
        return out


class WindowInto(Transform):
    """New windows, trigger, evictor and accumulation for what follows (SEMANTICS, Windows and Triggers)."""

    def __init__(
        self,
        assigner: Any,
        trigger: Any = None,
        evictor: Any = None,
        accumulation: Any = None,
        allowed_lateness: Any = None,
        timestamp_combiner: Any = None,
        *,
        name: str | None = None,
    ) -> None:
        self.assigner = assigner
        self.parts = {
            "trigger": trigger,
            "evictor": evictor,
            "accumulation": accumulation,
            "allowed_lateness": allowed_lateness,
            "timestamp_combiner": timestamp_combiner,
        }
        self.label = name

    def __call__(self, pcoll: PCollection[T]) -> PCollection[T]:
        result: PCollection[T] = pcoll.pipeline.apply(self, pcoll)
        return result

    def default_label(self) -> str:
        return f"WindowInto({type(self.assigner).__name__})"

    def expand(self, input: PCollection[T]) -> PCollection[T]:
        allow = input.pipeline.options.allow_unsafe_triggers
        strategy = build_strategy(self.assigner, **self.parts, inherited=input.windowing, allow_unsafe_triggers=allow)
        out = input.pipeline.collection(element_type=input.element_type, windowing=strategy, bounded=input.is_bounded)
        input.pipeline.add(portable.AssignWindows, [out], [input.id], windowing=strategy)
        return out


class _Grouping(Transform):
    """What `GroupByKey` and the combines share: late data, and the windowing after a grouping."""

    late_tag: str | None = None
    title: str = ""

    def with_late_data(self, tag: str) -> Any:
        """Give `out.main` and `out.<tag>`: elements that every window refused, with their timestamps."""
        if not isinstance(tag, str) or not tag or tag == portable.MAIN:
            raise BuildError(f"with_late_data takes a tag other than {portable.MAIN!r}, not {tag!r}")
        tagged = copy.copy(self)
        tagged.late_tag = tag
        return tagged

    def outputs(self, input: PCollection[Any], hint: Any, late_hint: Any) -> tuple[list[PCollection[Any]], Any]:
        pipeline = input.pipeline
        strategy: WindowingStrategy = after_grouping(input.windowing)
        main = pipeline.collection(element_type=self.output_type or hint, windowing=strategy, bounded=input.is_bounded)
        if self.late_tag is None:
            return [main], main
        late = pipeline.collection(self.late_tag, element_type=late_hint, bounded=input.is_bounded)
        return [main, late], MultiOutput({portable.MAIN: main, self.late_tag: late})

    def pairs(self, input: Any) -> tuple[Any, Any]:
        """The types of key and value that come in; TypeCheckError when they surely are no pairs."""
        if not isinstance(input, PCollection):
            raise BuildError(f"{type(self).__name__} applies to a PCollection, not to {type(input).__name__}")
        reason = types.clash(input.element_type, tuple[Any, Any])
        if reason:
            raise TypeCheckError(
                f"{self.default_label()} takes pairs (key, value), but its input holds "
                f"{hints.type_name(input.element_type)}: {reason}"
            )
        return types.kv_of(input.element_type) or (Any, Any)


class GroupByKey(_Grouping):
    """All values of each key (and window) together: `(key, iterable of values)`."""

    def __call__(self, pcoll: PCollection[tuple[K, V]]) -> PCollection[tuple[K, Iterable[V]]]:
        result: PCollection[tuple[K, Iterable[V]]] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[Any]) -> Any:
        key, value = self.pairs(input)
        outputs, result = self.outputs(input, pair_type(key, Iterable[value]), input.element_type)  # type: ignore[valid-type]
        input.pipeline.add(portable.GroupByKey, outputs, [input.id], late_tag=self.late_tag)
        return result


class _Combining(_Grouping, Generic[R]):
    def __init__(self, fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        self.fn: CombineFn[Any, Any, Any] = as_combine_fn(fn)
        self.args = args
        self.kwargs = kwargs
        self.label = name

    def default_label(self) -> str:
        return self.title or f"{type(self).__name__}({combiner_name(self.fn)})"

    def fields(self, pipeline: Pipeline) -> dict[str, Any]:
        call = bind(None, self.args, self.kwargs, elements=0)
        side_inputs, _ = _side_refs(call, pipeline)
        if {param.kind for param in call.params} - {"const", "side"}:
            raise BuildError(f"{self.default_label()}: a combiner takes constants and side inputs, no DoFn parameters")
        return {
            "fn": UserFn.of(self.fn, combiner_name(self.fn)),
            "name": combiner_name(self.fn),
            "in_parts": self.fn.in_parts,
            "has_identity": self.fn.has_identity,
            "params": call.params,
            "consts": UserFn.of(call.consts, "extra arguments") if call.consts else None,
            "side_inputs": side_inputs,
            "late_tag": self.late_tag,
        }

    def result_type(self, value: Any) -> Any:
        """What the combiner gives for inputs of type `value`."""
        fn: Any = self.fn
        match fn:
            case CallableFn():
                return signatures.signature_of(fn.fn).result
            case _:
                return combined_type(fn, value)


def pair_type(key: Any, value: Any) -> Any:
    """The type of pairs of these."""
    return tuple.__class_getitem__((key, value))


def combined_type(fn: CombineFn[Any, Any, Any], value: Any) -> Any:
    """The result type a CombineFn declares on `extract_output`, its variables told by what `add_input` takes."""
    from tidegate.sdk.combine import CountFn, Fold, ListFn, SetFn

    match fn:
        case CountFn():
            return int
        case Fold():
            return value
        case ListFn():
            return list[value]
        case SetFn():
            return set[value]
        case _:
            result = signatures.signature_of(fn.extract_output).result
            taken = signatures.signature_of(fn.add_input).parameters
            return hints.substitute(result, types.bind(taken[1], value) if len(taken) > 1 else {})


class CombinePerKey(_Combining[R]):
    """A combiner's result for each key (and window): `(key, result)`."""

    @overload
    def __init__(self, fn: CombineFn[Any, Any, R], *args: Any, name: str | None = None, **kwargs: Any) -> None: ...
    @overload
    def __init__(self: CombinePerKey[Any], fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None: ...
    def __init__(self, fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(fn, *args, name=name, **kwargs)

    def __call__(self, pcoll: PCollection[tuple[K, Any]]) -> PCollection[tuple[K, R]]:
        result: PCollection[tuple[K, R]] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[Any]) -> Any:
        key, value = self.pairs(input)
        outputs, result = self.outputs(input, pair_type(key, self.result_type(value)), input.element_type)
        input.pipeline.add(portable.CombinePerKey, outputs, [input.id], **self.fields(input.pipeline))
        return result


class CombinePerElement(_Combining[R]):
    """A combiner's result for each distinct element: `(element, result)`; `CombinePerElement(len)` counts them."""

    @overload
    def __init__(self, fn: CombineFn[Any, Any, R], *args: Any, name: str | None = None, **kwargs: Any) -> None: ...
    @overload
    def __init__(self: CombinePerElement[Any], fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None: ...
    def __init__(self, fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(fn, *args, name=name, **kwargs)

    def __call__(self, pcoll: PCollection[T]) -> PCollection[tuple[T, R]]:
        result: PCollection[tuple[T, R]] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[Any]) -> Any:
        element = input.element_type
        outputs, result = self.outputs(input, pair_type(element, self.result_type(element)), element)
        input.pipeline.add(portable.CombinePerKey, outputs, [input.id], key="element", **self.fields(input.pipeline))
        return result


class CombineGlobally(_Combining[R]):
    """A combiner's result over the whole collection (per window).

    For no input it emits the combiner's result of nothing, on bounded input in the global window only; elsewhere,
    and for combiners without such a result, say `without_defaults()`.
    """

    defaults: bool = True

    @overload
    def __init__(self, fn: CombineFn[Any, Any, R], *args: Any, name: str | None = None, **kwargs: Any) -> None: ...
    @overload
    def __init__(self: CombineGlobally[Any], fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None: ...
    def __init__(self, fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(fn, *args, name=name, **kwargs)

    def without_defaults(self) -> Self:
        """Emit nothing for no input."""
        other = copy.copy(self)
        other.defaults = False
        return other

    def __call__(self, pcoll: PCollection[Any]) -> PCollection[R]:
        result: PCollection[R] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[Any]) -> Any:
        from tidegate.sdk.windowing import is_global

        if not isinstance(input, PCollection):
            raise BuildError(f"CombineGlobally applies to a PCollection, not to {type(input).__name__}")
        if self.defaults and not (input.is_bounded and is_global(input.windowing)):
            raise BuildError(
                f"{self.default_label()} can't know what an empty window is"
                f" {'outside the global window' if input.is_bounded else 'on unbounded input'}: say .without_defaults()"
            )
        outputs, result = self.outputs(input, self.result_type(input.element_type), input.element_type)
        default = self.defaults and self.fn.has_identity
        input.pipeline.add(
            portable.CombinePerKey,
            outputs,
            [input.id],
            key="none",
            default=default,
            **self.fields(input.pipeline),
        )
        return result
