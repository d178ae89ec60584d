"""Transforms of one element at a time: keys and values of pairs, conversion to text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Concatenate, Generic, TypeVar, overload

from tidegate.sdk.authoring.combine import NOTHING, CombineFn, combiner_name
from tidegate.sdk.authoring.dofn import Call, DoFn, Param, bind
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.portable.model import Form
from tidegate.sdk.primitives import Create, ElementStep, Map, checked_combiner, combined_type, pair_type
from tidegate.sdk.primitives.elementwise import E, R
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.typehints.compatibility import element_of_iterable, kv_of
from tidegate.sdk.typehints.signatures import FnTypes, signature_of
from tidegate.sdk.user_code.user_fn import name_of
from tidegate.sdk.user_code.validation import refuse_generator
from tidegate.transforms.functions import (
    key_of,
    swapped,
    takes_one,
    text_of,
    text_of_items,
    text_of_pair,
    value_of,
    with_computed_key,
    with_computed_key_from,
    with_each_value,
    with_each_value_from,
    with_key,
    with_mapped_value,
    with_mapped_value_from,
)

T = TypeVar("T")
K = TypeVar("K")


class Impulse(PTransform[Pipeline, PCollection[bytes]]):
    """A collection of one element, `b""`, for a pipeline to start from."""

    def __init__(self, *, name: str | None = None) -> None:
        self.label = name

    def expand(self, input: Pipeline) -> PCollection[bytes]:
        return Create([b""]).expand(input)


class Keys(ElementStep[Any, Any]):
    """The key of each pair."""

    form: Form = "map"
    title = "Keys"

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(key_of, (), {}, name)

    def __call__(self, pcoll: PCollection[tuple[K, Any]]) -> PCollection[K]:
        result: PCollection[K] = pcoll.pipeline.apply(self, pcoll)
        return result


class Values(ElementStep[Any, Any]):
    """The value of each pair."""

    form: Form = "map"
    title = "Values"

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(value_of, (), {}, name)

    def __call__(self, pcoll: PCollection[tuple[Any, T]]) -> PCollection[T]:
        result: PCollection[T] = pcoll.pipeline.apply(self, pcoll)
        return result


class KvSwap(ElementStep[Any, Any]):
    """Swap each pair: `(value, key)`."""

    form: Form = "map"
    title = "KvSwap"

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(swapped, (), {}, name)

    def __call__(self, pcoll: PCollection[tuple[K, T]]) -> PCollection[tuple[T, K]]:
        result: PCollection[tuple[T, K]] = pcoll.pipeline.apply(self, pcoll)
        return result


class Wrapping(ElementStep[E, R]):
    """A step that runs a function of the library, which calls the author's: `wrapper(element, fn, *args, **kwargs)`.

    The arguments are bound to the author's function, so that it can have side inputs and injected parameters like the
    function of any step. `simple` is the wrapper for the usual case, a function of the element alone: passing on empty
    arguments would cost 100 ns per element.
    """

    simple: Callable[..., Any]
    wrapper: Callable[..., Any]

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> None:
        if not callable(fn):
            raise BuildError(f"{type(self).__name__} takes a function, not {shorten(fn)}")
        kind = type(self)
        if self.form == "map":
            refuse_generator(kind.__name__, fn)
        only_element = not args and not kwargs and takes_one(fn)
        super().__init__(kind.simple if only_element else kind.wrapper, args, kwargs, name)
        self.inner = fn
        self.title = f"{type(self).__name__}({name_of(fn)})"

    def call_fields(self) -> tuple[Call, dict[str, Any]]:
        call = bind(self.inner, self.args, self.kwargs)
        element, *others = call.params
        inner = Param("const", None, str(len(call.consts)))
        return Call((element, inner, *others), (*call.consts, self.inner), call.sides), {}

    def takes(self, signature: FnTypes) -> Any:
        return super().takes(signature_of(self.inner))


class WithKeys(Wrapping[E, Any], Generic[E, R]):
    """`(key, element)`, where `key` is a function, called as `key(element, *args, **kwargs)`, or the key itself."""

    form: Form = "map"
    simple = staticmethod(with_computed_key)
    wrapper = staticmethod(with_computed_key_from)

    @overload
    def __init__(self, key: Callable[[E], R], *, name: str | None = None) -> None: ...
    @overload
    def __init__(
        self, key: Callable[Concatenate[E, ...], R], *args: Any, name: str | None = None, **kwargs: Any
    ) -> None: ...
    @overload
    def __init__(self, key: R, *, name: str | None = None) -> None: ...
    def __init__(self, key: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        if callable(key):
            super().__init__(key, args, kwargs, name)
        elif args or kwargs:
            raise BuildError(f"WithKeys takes further arguments only if the key is a function, not {shorten(key)}")
        else:
            ElementStep.__init__(self, with_key, (key,), {}, name)
            self.title = f"WithKeys({shorten(key, 40)})"
            self.inner = None

    def __call__(self, pcoll: PCollection[T]) -> PCollection[tuple[R, T]]:
        result: PCollection[tuple[R, T]] = pcoll.pipeline.apply(self, pcoll)
        return result

    def call_fields(self) -> tuple[Call, dict[str, Any]]:
        return super().call_fields() if self.inner is not None else ElementStep.call_fields(self)

    def takes(self, signature: FnTypes) -> Any:
        return Any if self.inner is None else super().takes(signature)

    def gives(self, signature: FnTypes, element_type: Any) -> Any:
        key = type(self.args[0]) if self.inner is None else signature_of(self.inner).result
        return pair_type(key, element_type)


class ValueStep(Wrapping[Any, Any], Generic[R]):
    """A step that changes only the values of pairs; elements that are partitioned by key remain so."""

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> None:
        super().__init__(fn, args, kwargs, name)
        self.keeps_key = True

    def __call__(self, pcoll: PCollection[tuple[K, Any]]) -> PCollection[tuple[K, R]]:
        result: PCollection[tuple[K, R]] = pcoll.pipeline.apply(self, pcoll)
        return result

    def takes(self, signature: FnTypes) -> Any:
        return pair_type(Any, super().takes(signature))

    def gives(self, signature: FnTypes, element_type: Any) -> Any:
        return pair_type(kv_of(element_type)[0], self.value_type(signature_of(self.inner).result))

    def value_type(self, result: Any) -> Any:
        """The type of the new values if the function returns `result`."""
        return result


class MapValues(ValueStep[R]):
    """`(key, fn(value, *args, **kwargs))` for each pair."""

    form: Form = "map"
    simple = staticmethod(with_mapped_value)
    wrapper = staticmethod(with_mapped_value_from)

    def __init__(self, fn: Callable[..., R], *args: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(fn, args, kwargs, name)


class FlatMapValues(ValueStep[R]):
    """`(key, item)` for each pair and each item of `fn(value, *args, **kwargs)`, an iterable or None."""

    form: Form = "flat_map"
    simple = staticmethod(with_each_value)
    wrapper = staticmethod(with_each_value_from)

    def __init__(
        self, fn: Callable[..., Iterable[R] | None], *args: Any, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(fn, args, kwargs, name)

    def value_type(self, result: Any) -> Any:
        return element_of_iterable(result)


class CombineValues(ElementStep[Any, Any], Generic[R]):
    """Combine the values of each group that a GroupByKey made: `(key, result)`.

    For a group without values, such as an empty on-time pane, the result is the combiner's result for no input; nothing
    is emitted if it has none, like `min`, `max` and plain callables.
    """

    form: Form = "process"

    @overload
    def __init__(self, fn: CombineFn[Any, Any, R], *, name: str | None = None) -> None: ...
    @overload
    def __init__(self: CombineValues[Any], fn: Any, *, name: str | None = None) -> None: ...
    def __init__(self, fn: Any, *, name: str | None = None) -> None:
        self.combiner = checked_combiner(fn)
        super().__init__(_CombineGroup(self.combiner), (), {}, name)
        self.title = f"CombineValues({combiner_name(self.combiner)})"
        self.keeps_key = True

    def __call__(self, pcoll: PCollection[tuple[K, Iterable[Any]]]) -> PCollection[tuple[K, R]]:
        result: PCollection[tuple[K, R]] = pcoll.pipeline.apply(self, pcoll)
        return result

    def gives(self, signature: FnTypes, element_type: Any) -> Any:
        key, values = kv_of(element_type)
        return pair_type(key, combined_type(self.combiner, element_of_iterable(values)))


class _CombineGroup(DoFn):
    def __init__(self, combiner: CombineFn[Any, Any, Any]) -> None:
        self.combiner = combiner

    def setup(self) -> None:
        self.combiner.setup()

    def process(self, element: tuple[Any, Iterable[Any]]) -> Iterable[Any]:
        key, values = element
        if not self.combiner.has_identity:
            # The on-time pane of a window may be empty; CombinePerKey emits nothing for it either.
            iterator = iter(values)
            first = next(iterator, NOTHING)
            if first is NOTHING:
                return ()
            if iterator is values:
                values = chain((first,), iterator)
        return ((key, self.combiner.apply(values)),)

    def teardown(self) -> None:
        self.combiner.teardown()


class ToString:
    """Convert elements to text."""

    @staticmethod
    def Element(*, name: str | None = None) -> Map[Any, str]:
        """`str(element)`."""
        return titled(Map(text_of, name=name), "ToString.Element")

    @staticmethod
    def Kvs(delimiter: str = ",", *, name: str | None = None) -> Map[tuple[Any, Any], str]:
        """The key and the value of each pair, with `delimiter` between them."""
        return titled(Map(text_of_pair, delimiter, name=name), "ToString.Kvs")

    @staticmethod
    def Iterables(delimiter: str = ",", *, name: str | None = None) -> Map[Iterable[Any], str]:
        """The items of each iterable, joined with `delimiter`."""
        return titled(Map(text_of_items, delimiter, name=name), "ToString.Iterables")


Titled = TypeVar("Titled", bound=Any)


def titled(step: Titled, title: str) -> Titled:
    """Set the step's automatic label, which may occur twice, unlike one given by the author; return the step."""
    step.title = title
    return step
