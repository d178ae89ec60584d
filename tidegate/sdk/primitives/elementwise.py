"""Steps that call a function for each element: ParDo, Map and the like, with tagged outputs and dead letters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, Protocol, TypeVar, overload

from tidegate.sdk.authoring.dofn import Call, DoFn, bind, bind_method, check_life_cycle
from tidegate.sdk.authoring.side_inputs import MISSING
from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.errors import BuildError, TypeCheckError, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.portable import model as portable
from tidegate.sdk.primitives.exception_handling import DEAD_LETTER, Handled
from tidegate.sdk.primitives.multi_output import MultiOutput
from tidegate.sdk.steps.purity import are_pure
from tidegate.sdk.steps.transform import PTransform, Transform
from tidegate.sdk.typehints import compatibility, hints, signatures
from tidegate.sdk.user_code.bytecode import emits_plain
from tidegate.sdk.user_code.user_fn import UserFn, name_of
from tidegate.sdk.user_code.validation import refuse_generator
from tidegate.sdk.windowing.strategy import why_not_side_input, why_not_stateful

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from tidegate.sdk.relational.authoring import Expression

    # For a lambda under a label (`"even" >> tg.Filter(lambda n: …)`) mypy has no collection to infer the parameter
    # from; the default makes it Any instead of Never, which no value fits.
    E = TypeVarWithDefault("E", bound=Any, default=Any)
    R = TypeVarWithDefault("R", default=Any)
else:
    E = TypeVar("E", bound=Any)
    R = TypeVar("R")
"""The type of elements that a function takes. Pyright doesn't infer types of lambdas to the right of `|`; the bound
makes it use Any for the lambda's parameter, instead of an object without attributes."""
T = TypeVar("T")
Made = TypeVar("Made", covariant=True)


class ElementStep(Transform, Generic[E, R]):
    """A step that calls a function for each element: the base of `ParDo`, `Map`, `MapValues` and the like."""

    form: portable.Form
    title: str = ""
    """The automatic label, for steps that class and function name don't describe."""
    awaits = False
    """Whether the step awaits coroutine functions."""

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str | None) -> None:
        if not isinstance(fn, DoFn) and not callable(fn):
            raise BuildError(f"{type(self).__name__} takes a function, not {fn!r}")
        code = getattr(fn.process if isinstance(fn, DoFn) else fn, "__code__", None)
        flags = CO_ASYNC_GENERATOR if self.awaits else CO_COROUTINE | CO_ASYNC_GENERATOR
        if code is not None and code.co_flags & flags:
            advice = "" if code.co_flags & CO_ASYNC_GENERATOR else ". tg.AsyncMap does"
            what = f"{type(self).__name__} takes an ordinary function"
            raise BuildError(f"{what}: {name_of(fn)} is async, and nothing awaits it{advice}")
        if self.form in ("map", "map_tuple", "filter"):
            refuse_generator(type(self).__name__, fn)
        owner = getattr(fn, "__self__", None)
        if isinstance(owner, (list, dict, set)):
            raise BuildError(
                f"{type(self).__name__} can't take {name_of(fn)} of a {type(owner).__name__} of yours: functions "
                "are pickled by value, so a copy would be filled. "
                "Write the elements out, or use tidegate.testing.assert_that"
            )
        self.fn = fn
        self.args = args
        self.kwargs = dict(kwargs)
        self.label = name
        self.tags: tuple[str, ...] = ()
        self.main_tag = portable.MAIN
        self.dead_letters: portable.DeadLetters | None = None
        self.keeps_key = False
        self.stamps_by: str | None = None

    def default_label(self) -> str:
        return self.title or f"{type(self).__name__}({name_of(self.fn)})"

    def with_outputs(self, *tags: str, main: str = portable.MAIN) -> PTransform[PCollection[E], MultiOutput]:
        """Declare further outputs: a `TaggedOutput(tag, value)` goes to `out.tag`, other results go to `out[main]`."""
        bad = [tag for tag in (main, *tags) if not isinstance(tag, str) or not tag]
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
        """Return `(good, bad)`: elements for which the function raises `exc_class` go to `bad`, the dead letters.

        A dead letter is `(element, (exception type name, repr, traceback lines))`. With `partial`, results that a
        failing element had emitted before are not dropped. The run fails if more than the fraction `threshold` of a
        bundle's elements fail.
        """
        if not 0.0 <= threshold <= 1.0:
            raise BuildError(f"threshold is a fraction from 0 to 1, not {threshold!r}")
        classes = exc_class if isinstance(exc_class, tuple) else (exc_class,)
        if not classes or not all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in classes):
            raise BuildError(f"exc_class is an exception class, or a tuple of them, not {exc_class!r}")
        if not isinstance(tag, str) or not tag:
            raise BuildError(f"tag, the name of the output for dead letters, is a non-empty string, not {shorten(tag)}")
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
            if dead.tag in (self.main_tag, *self.tags):
                raise BuildError(f"two outputs are named {dead.tag!r}: name that of the dead letters with tag=…")
            outputs.append(
                pipeline.collection(
                    dead.tag, element_type=DEAD_LETTER, windowing=input.windowing, bounded=input.is_bounded
                )
            )
        call, fields = self.call_fields()
        if call.states or call.timers or fields.get("callbacks"):
            refuse(why_not_stateful(input.windowing))
            require_pairs(input, f"{self.default_label()} has state or timers for each key, so it")
        elif "key" in call.kinds():
            require_pairs(input, f"{self.default_label()} asks for the key of its elements, so it")
        side_inputs, bounded = side_refs(call, pipeline)
        for out in outputs:
            out.is_bounded = input.is_bounded and bounded
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
            stamps_by=self.stamps_by,
            pure=are_pure(),
            emits="plain" if emits_plain(self.fn, self.form) else "any",
            **fields,
        )
        good: Any = outputs[0]
        if self.tags:
            good = MultiOutput({out.tag: out for out in outputs[: 1 + len(self.tags)]})
        return Handled.of(good, outputs[-1], pipeline.step) if dead else good

    def call_fields(self) -> tuple[Call, dict[str, Any]]:
        """The bound call, and the node's further fields."""
        call = bind(self.fn, self.args, self.kwargs)
        if call.timers or "tag" in call.kinds():
            raise BuildError(f"{name_of(self.fn)} is a plain function: timers need a DoFn with an @on_timer method")
        return call, {}

    def element_types(self, input: PCollection[E]) -> Any:
        """Check the type of input elements against that of the function's parameter; return the output type."""
        signature = signatures.signature_of(self.fn.process if isinstance(self.fn, DoFn) else self.fn)
        wanted = self.input_type if self.input_type is not None else self.takes(signature)
        if input.pipeline.checks_types:
            self.check_input(input.element_type, wanted, self.default_label())
        if self.form in portable.FLAT_FORMS and input.pipeline.checks_types:
            unfit = compatibility.unfit_as_several(signature.result)
            if unfit:
                raise BuildError(
                    f"{self.default_label()} emits the items of what {name_of(self.fn)} returns, which is a "
                    f"{hints.type_name(signature.result)}: {unfit}"
                )
        if self.output_type is not None:
            return self.output_type
        bound = compatibility.bind(wanted, input.element_type)
        return hints.substitute(self.gives(signature, input.element_type), bound)

    def takes(self, signature: signatures.FnTypes) -> Any:
        """The type of element the function takes."""
        return signature.parameters[0] if signature.parameters else Any

    def gives(self, signature: signatures.FnTypes, element_type: Any) -> Any:
        """The type of element the step emits."""
        return unwrapped(signature.result)


class ElementWise(ElementStep[E, R], PTransform[PCollection[E], PCollection[R]]):
    """An `ElementStep` with type parameters, so that type checkers infer `pcoll | Map(f)` from `f`."""

    def __ror__(self, inputs: tuple[Any, ...] | list[Any] | dict[str, Any]) -> NoReturn:
        """Refuse `(a, b) | Map(f)`. With a wider type here, type checkers would accept any `pcoll | Map(wrong)`."""
        if isinstance(inputs, Handled):
            inputs.refuse()
        raise BuildError(f"{self.default_label()} takes one PCollection: write `(a, b) | tg.Flatten() | ...`")


def unwrapped(hint: Any) -> Any:
    """The element type of a result: T for `TimestampedValue[T]`, Any for a tagged or windowed result."""
    from tidegate.sdk.data.values import SPECIAL

    origin = getattr(hint, "__origin__", hint)
    if origin is TimestampedValue:
        return next(iter(getattr(hint, "__args__", ())), Any)
    return Any if origin in SPECIAL or _mentions(hint, SPECIAL) else hint


def _mentions(hint: Any, classes: frozenset[Any]) -> bool:
    return any(getattr(part, "__origin__", part) in classes for part in getattr(hint, "__args__", ()))


def require_pairs(input: PCollection[Any], what: str) -> None:
    """Raise TypeCheckError if the elements of a collection can't be pairs, which `what` takes."""
    reason = compatibility.clash(input.element_type, tuple[Any, Any]) if input.pipeline.checks_types else None
    if reason:
        raise TypeCheckError(
            f"{what} takes pairs (key, value), but its input holds {hints.type_name(input.element_type)}: {reason}. "
            "tg.WithKeys(fn) makes pairs, with the key that fn returns for an element"
        )


def refuse(reason: str | None) -> None:
    """Raise BuildError with this reason, unless it is None."""
    if reason:
        raise BuildError(reason)


def side_refs(call: Call, pipeline: Pipeline) -> tuple[tuple[portable.SideInputRef, ...], bool]:
    """The side inputs of a call as data, and whether all of them are bounded."""
    refs = []
    bounded = True
    for side in call.sides:
        pcoll = side.pcoll
        if not isinstance(pcoll, PCollection):
            raise BuildError(f"a side input is a view of a PCollection, not of {type(pcoll).__name__}")
        if pcoll.pipeline is not pipeline:
            raise BuildError("a side input must belong to the same pipeline")
        refuse(why_not_side_input(pcoll.windowing))
        default = None if side.default is MISSING else UserFn.of((side.default,), "the default of a side input")
        refs.append(portable.SideInputRef(pcoll.id, side.view, default))
        bounded = bounded and pcoll.is_bounded
    return tuple(refs), bounded


class _Processes(Protocol[Made]):
    """A DoFn, typed by the results of its `process`."""

    @property
    def process(self) -> Callable[..., Iterable[Made] | None]: ...


class ParDo(ElementWise[E, R]):
    """Calls a DoFn for each element, with any number of results. A plain function is called as by `FlatMap`."""

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
            from tidegate.sdk import advice

            misspelt = advice.similar("process", vars(type(fn)))
            hint = f": rename {misspelt} to process" if misspelt else ""
            raise BuildError(f"{type(fn).__name__} has no process method{hint}")

    def call_fields(self) -> tuple[Call, dict[str, Any]]:
        if not isinstance(self.fn, DoFn):
            return super().call_fields()
        check_life_cycle(self.fn)
        call = bind(self.fn.process, self.args, self.kwargs)
        if "tag" in call.kinds():
            raise BuildError(f"{type(self.fn).__name__}.process: only a timer's method can ask for its tag")
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
        for specs in (states, timers):
            names = [spec.name for spec in specs]
            for name in names:
                if names.count(name) > 1:
                    raise BuildError(f"{kind.__name__} declares {name!r} twice, with different specs")
        known = {spec.name for spec in timers}
        for spec in timers:
            if not any(callback.timer == spec.name for callback in callbacks):
                raise BuildError(f"{kind.__name__} sets the timer {spec.name!r} but has no @on_timer method for it")
        for callback in callbacks:
            if callback.timer is not None and callback.timer not in known:
                method = f"{kind.__name__}.{callback.method}"
                raise BuildError(f"{method} handles the timer {callback.timer!r}, which no method sets")
        hooks = kind.start_bundle is not DoFn.start_bundle or kind.finish_bundle is not DoFn.finish_bundle
        merged = Call(call.params, call.consts, call.sides, tuple(states), tuple(timers))
        return merged, {"callbacks": tuple(callbacks), "bundle_hooks": hooks}

    def gives(self, signature: signatures.FnTypes, element_type: Any) -> Any:
        return unwrapped(compatibility.element_of_iterable(signature.result))


class Map(ElementWise[E, R]):
    """Emits `fn(element, *args, **kwargs)` for each element."""

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
    """Emits all items of `fn(element, *args, **kwargs)`, an iterable or None, for each element."""

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
        return unwrapped(compatibility.element_of_iterable(signature.result))


class Filter(ElementWise[E, E]):
    """Emits the elements for which `fn(element, *args, **kwargs)` is true, or an expression: `tg.col("qty") > 10`.

    An expression is checked against the schema of the input; an element for which it is NULL is not emitted.
    """

    form = "filter"

    @overload
    def __init__(self, fn: Expression, *, name: str | None = None) -> None: ...
    @overload
    def __init__(self, fn: Callable[[E], Any], *, name: str | None = None) -> None: ...
    @overload
    def __init__(
        self, fn: Callable[Concatenate[E, ...], Any], *args: Any, name: str | None = None, **kwargs: Any
    ) -> None: ...
    def __init__(self, fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        self.expression: Expression | None = None
        if getattr(type(fn), "is_expression", False):
            from tidegate.sdk.relational.steps.predicate import Predicate

            if args or kwargs:
                raise BuildError("Filter: an expression takes no further arguments")
            self.expression = fn
            fn = Predicate.unbound(fn)
        super().__init__(fn, args, kwargs, name)
        self.keeps_key = True

    def default_label(self) -> str:
        if self.expression is None:
            return super().default_label()
        from tidegate.sdk.relational.expressions import column_names

        return f"Filter({', '.join(column_names(self.expression.tree))})"

    def expand(self, input: PCollection[E]) -> Any:
        if self.expression is None or not isinstance(input, PCollection):
            return super().expand(input)
        if self.tags or self.dead_letters:
            from tidegate.sdk.relational.steps.predicate import Predicate

            bound = copy.copy(self)
            bound.fn = Predicate.of(self.expression, input.element_type)
            bound.expression = None
            return bound.expand(input)
        from tidegate.sdk.primitives.relate import relate
        from tidegate.sdk.relational.relations import Compute

        return relate([input], Compute(where=self.expression.tree), element_type=self.element_types(input))[0]

    def gives(self, signature: signatures.FnTypes, element_type: Any) -> Any:
        return element_type if element_type is not Any else self.takes(signature)


class MapTuple(ElementWise[E, R]):
    """Emits `fn(*element, *args, **kwargs)` for each element, a tuple."""

    form: portable.Form = "map_tuple"

    def __init__(self, fn: Callable[..., R], *args: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(fn, args, kwargs, name)

    def call_fields(self) -> tuple[Call, dict[str, Any]]:
        return bind(self.fn, self.args, self.kwargs, elements=-1), {}

    def element_types(self, input: PCollection[E]) -> Any:
        result = super().element_types(input)
        given = input.element_type
        cls = hints.origin_of(given) or given
        if input.pipeline.checks_types and isinstance(cls, type) and issubclass(cls, tuple):
            items = hints.items_of(given)[0]
            if items is not None:
                bind(self.fn, self.args, self.kwargs, elements=len(items))  # refuses a wrong number of arguments
        return result

    def takes(self, signature: signatures.FnTypes) -> Any:
        return _tuple_of(signature, len(self.args)) if self._fills_all(signature) else Any

    def _fills_all(self, signature: signatures.FnTypes) -> bool:
        """Whether the items of the tuple and the extra positional arguments are all arguments of the function."""
        defaults = getattr(self.fn, "__defaults__", None) or getattr(self.fn, "__kwdefaults__", None)
        return not (self.kwargs or defaults) and len(signature.parameters) > len(self.args)


class FlatMapTuple(MapTuple[E, R]):
    """Emits all items of `fn(*element, *args, **kwargs)` for each element, a tuple."""

    form = "flat_map_tuple"

    def gives(self, signature: signatures.FnTypes, element_type: Any) -> Any:
        return unwrapped(compatibility.element_of_iterable(signature.result))


def _tuple_of(signature: signatures.FnTypes, extra: int) -> Any:
    parameters = signature.parameters[: len(signature.parameters) - extra] if extra else signature.parameters
    if not parameters or all(p is Any for p in parameters):
        return Any
    return tuple[tuple(parameters)]  # type: ignore[misc]
