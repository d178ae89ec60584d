"""Steps that group elements: GroupByKey and the combining steps."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Generic, Literal, Self, TypeVar, overload

from tidegate.sdk.authoring.combine import (
    AssociativeFn,
    CallableFn,
    CoGroupFn,
    CombineFn,
    PairwiseFn,
    as_combine_fn,
    combiner_name,
    stands_for_builtin,
)
from tidegate.sdk.authoring.dofn import bind, called, refuse_injection, signature_or_none
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.portable import model as portable
from tidegate.sdk.primitives.elementwise import refuse, require_pairs, side_refs
from tidegate.sdk.primitives.multi_output import MultiOutput
from tidegate.sdk.steps.transform import Transform
from tidegate.sdk.typehints import compatibility, hints, signatures
from tidegate.sdk.user_code.keywords import near
from tidegate.sdk.user_code.user_fn import UserFn, name_of
from tidegate.sdk.user_code.validation import required_arguments
from tidegate.sdk.windowing.strategy import WindowingStrategy, after_grouping, why_not_unbounded_group

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")


class _Grouping(Transform):
    """The base of `GroupByKey` and the combining steps: the late-data output, and the windowing of the results."""

    late_tag: str | None = None
    title: str = ""

    def with_late_data(self, tag: str) -> Any:
        """Return `out.main` and `out.<tag>`: the elements that were too late for all their windows, with timestamps."""
        if not isinstance(tag, str) or not tag or tag == portable.MAIN:
            raise BuildError(f"with_late_data takes a tag other than {portable.MAIN!r}, not {tag!r}")
        tagged = copy.copy(self)
        tagged.late_tag = tag
        return tagged

    def outputs(self, input: PCollection[Any], hint: Any, late_hint: Any) -> tuple[list[PCollection[Any]], Any]:
        if not input.is_bounded:
            refuse(why_not_unbounded_group(input.windowing))
        pipeline = input.pipeline
        strategy: WindowingStrategy = after_grouping(input.windowing)
        main = pipeline.collection(element_type=self.output_type or hint, windowing=strategy, bounded=input.is_bounded)
        if self.late_tag is None:
            return [main], main
        late = pipeline.collection(self.late_tag, element_type=late_hint, bounded=input.is_bounded)
        return [main, late], MultiOutput({portable.MAIN: main, self.late_tag: late})

    def pairs(self, input: Any) -> tuple[Any, Any]:
        """The types of key and value of the input; TypeCheckError if its elements can't be pairs."""
        if not isinstance(input, PCollection):
            raise BuildError(f"{type(self).__name__} applies to a PCollection, not to {type(input).__name__}")
        require_pairs(input, self.default_label())
        return compatibility.kv_of(input.element_type) or (Any, Any)


class GroupByKey(_Grouping):
    """Groups values by key and window: `(key, iterable of values)`."""

    def __call__(self, pcoll: PCollection[tuple[K, V]]) -> PCollection[tuple[K, Iterable[V]]]:
        result: PCollection[tuple[K, Iterable[V]]] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[Any]) -> Any:
        key, value = self.pairs(input)
        outputs, result = self.outputs(input, pair_type(key, Iterable[value]), input.element_type)  # type: ignore[valid-type]
        input.pipeline.add(portable.GroupByKey, outputs, [input.id], late_tag=self.late_tag)
        return result


def check_takes_list(fn: CombineFn[Any, Any, Any], owner: str, written: str, *, further: int = 0) -> None:
    """Raise BuildError if a combiner is a function that takes more than a list of values and `further` arguments.
    `written` is what the author may write, with {} for an associative function."""
    match fn:
        case CallableFn(fn=plain) if required_arguments(plain) > 1 + further:
            associative = f"tg.associative({name_of(plain).replace('<lambda>', 'lambda a, b: …')})"
            raise BuildError(
                f"{owner} calls {name_of(plain)} with one argument, a list of all values, but it takes "
                f"{required_arguments(plain)}. If it combines two values, and may be applied to its own results, "
                f"write {written.format(associative)}"
            )


class _Combining(_Grouping, Generic[R]):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    needs: tuple[int, ...] = ()
    """Of which collections each group of a CoGroupByKey that somebody looks at has a value."""

    def __init__(self, fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        owner = type(self).__name__
        if isinstance(fn, Transform) or (isinstance(fn, type) and hasattr(fn, "PerKey")):
            inner = _combining_of(owner, fn)
            fn, args, kwargs = inner.fn, (*inner.args, *args), {**inner.kwargs, **kwargs}
        self.fn: CombineFn[Any, Any, Any] = checked_combiner(fn)
        check_takes_list(self.fn, owner, f"{owner}({{}})", further=len(args) + len(kwargs))
        require_arguments(owner, self.fn, args, kwargs)
        self.args = args
        self.kwargs = kwargs
        self.label = name

    def default_label(self) -> str:
        return self.title or f"{type(self).__name__}({combiner_name(self.fn)})"

    def fields(self, pipeline: Pipeline) -> dict[str, Any]:
        call = bind(None, self.args, self.kwargs, elements=0)
        side_inputs, _ = side_refs(call, pipeline)
        if {param.kind for param in call.params} - {"const", "side"}:
            raise BuildError(f"{self.default_label()}: a combiner takes constants and side inputs, not DoFn parameters")
        return {
            "fn": UserFn.of(self.fn, combiner_name(self.fn)),
            "name": combiner_name(self.fn),
            "in_parts": self.fn.in_parts,
            "has_identity": self.fn.has_identity,
            "params": call.params,
            "consts": UserFn.of(call.consts, "extra arguments") if call.consts else None,
            "side_inputs": side_inputs,
            "late_tag": self.late_tag,
            "cogroups": type(self.fn) is CoGroupFn,
            "needs": self.needs,
        }

    def result_type(self, value: Any) -> Any:
        """The type of the combiner's result for inputs of type `value`."""
        fn: Any = self.fn
        match fn:
            case CallableFn():
                return signatures.signature_of(fn.fn).result
            case _:
                return combined_type(fn, value)


def checked_combiner(combiner: Any) -> CombineFn[Any, Any, Any]:
    """The combiner as a CombineFn; BuildError if it is none, or asks for what belongs to an element."""
    fn = as_combine_fn(combiner)
    calls: list[Any]
    match fn:
        case CallableFn(fn=plain) | AssociativeFn(fn=plain) | PairwiseFn(fn=plain):
            calls = [plain]
        case _:
            calls = [fn.setup, fn.create_accumulator, fn.add_input, fn.merge_accumulators, fn.compact]
            calls += [fn.extract_output, fn.teardown]
    for call in calls:
        refuse_injection(call, "a combiner is called for many elements: put it into the elements by a tg.Map in front")
    return fn


def require_arguments(owner: str, fn: CombineFn[Any, Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise BuildError if a combining step has extra arguments that its combiner can't take."""
    if not (args or kwargs):
        return
    calls: list[tuple[Any, int]]
    match fn:
        case CallableFn(fn=plain) | AssociativeFn(fn=plain):
            calls = [(plain, 1)]
        case _:
            calls = [(fn.create_accumulator, 0), (fn.add_input, 2), (fn.merge_accumulators, 1), (fn.extract_output, 1)]
            if type(fn).compact is not CombineFn.compact:
                calls.append((fn.compact, 1))
    for call, given in calls:
        signature = signature_or_none(call)
        if signature is None:
            continue
        try:
            signature.bind(*([None] * given), *args, **kwargs)
        except TypeError as error:
            known = ["name", *list(signature.parameters)[given:]]
            for keyword in kwargs:
                if keyword not in known and (meant := near(keyword, known)):
                    raise BuildError(f"{owner} has no argument {keyword!r}; did you mean {meant!r}?") from None
            name = combiner_name(fn)
            what = f"{owner}({name}) has extra arguments ({len(args)} positional, {sorted(kwargs)})"
            if stands_for_builtin(fn):
                raise BuildError(
                    f"{what}, but the combiner that {name} stands for takes none. Write a function of all values: "
                    f"{owner}(lambda values: {name}(values, …))"
                ) from None
            raise BuildError(f"{what}, which {called(call, signature)} can't take: {error}") from None


def _combining_of(owner: str, given: Any) -> _Combining[Any]:
    """The combining step that was passed instead of a combiner, as in `CombinePerKey(Mean.PerKey())`."""
    if isinstance(given, type):
        try:
            given = given.PerKey()  # type: ignore[attr-defined]
        except TypeError:
            raise BuildError(f"{owner} takes a combiner: write {owner}({given.__name__}.PerKey(…))") from None
    if not isinstance(given, _Combining):
        raise BuildError(
            f"{owner} takes a combiner (a CombineFn, or a function of all values), but {given.default_label()} is a "
            "step: apply it to the collection with |"
        )
    return given


def pair_type(key: Any, value: Any) -> Any:
    """The type of pairs of a key and a value of these types."""
    return tuple.__class_getitem__((key, value))


def combined_type(fn: CombineFn[Any, Any, Any], value: Any) -> Any:
    """The result type that a CombineFn declares on `extract_output`, its type variables bound by `add_input`."""
    from tidegate.sdk.authoring.combine import CountFn, Fold, ListFn, SetFn

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
            return hints.substitute(result, compatibility.bind(taken[1], value) if len(taken) > 1 else {})


class CombinePerKey(_Combining[R]):
    """Combines the values of each key and window: `(key, result)`."""

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
    """Combines equal elements of each window: `(element, result)`; `CombinePerElement(len)` counts them."""

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
    """Combines all elements of each window.

    For an empty bounded collection in the global window, it emits the combiner's result for no values. For other
    windows, unbounded input, and combiners without such a result, use `without_defaults()`.
    """

    defaults: Literal["required", "where_known", "never"] = "required"
    """For empty input: emit the result for no values, which must be known; emit it if it is known; or emit nothing."""

    @overload
    def __init__(self, fn: CombineFn[Any, Any, R], *args: Any, name: str | None = None, **kwargs: Any) -> None: ...
    @overload
    def __init__(self: CombineGlobally[Any], fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None: ...
    def __init__(self, fn: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(fn, *args, name=name, **kwargs)

    def without_defaults(self) -> Self:
        """A copy that emits nothing for empty input."""
        other = copy.copy(self)
        other.defaults = "never"
        return other

    def __call__(self, pcoll: PCollection[Any]) -> PCollection[R]:
        result: PCollection[R] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[Any]) -> Any:
        from tidegate.sdk.windowing.strategy import is_global

        if not isinstance(input, PCollection):
            raise BuildError(f"CombineGlobally applies to a PCollection, not to {type(input).__name__}")
        known = input.is_bounded and is_global(input.windowing)
        if self.defaults == "required" and not known:
            raise BuildError(
                f"{self.default_label()} can't emit a result for empty windows"
                f" {'outside the global window' if input.is_bounded else 'on unbounded input'}: use .without_defaults()"
            )
        outputs, result = self.outputs(input, self.result_type(input.element_type), input.element_type)
        default = self.defaults != "never" and known and self.fn.has_identity
        input.pipeline.add(
            portable.CombinePerKey,
            outputs,
            [input.id],
            key="none",
            default=default,
            **self.fields(input.pipeline),
        )
        return result
