"""Combiners: a CombineFn may combine parts of its input in any grouping; a plain callable is called once per pane.

`as_combine_fn` converts an author's combiner (a CombineFn, a built-in such as `sum`, a plain callable) to a CombineFn:

>>> combiner = as_combine_fn((sum, max))
>>> parts = [combiner.create_accumulator(), combiner.create_accumulator()]
>>> parts[0] = combiner.add_input(combiner.add_input(parts[0], 3), 5)
>>> parts[1] = combiner.add_input(parts[1], 4)
>>> combiner.extract_output(combiner.merge_accumulators(parts))
(12, 5)
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sized
from typing import Any, ClassVar, Final, Generic, TypeVar, overload

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.user_code.user_fn import name_of
from tidegate.sdk.user_code.validation import required_arguments

A = TypeVar("A")
I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741
T = TypeVar("T")


class CombineFn(Generic[I, A, O]):
    """Subclass and override `create_accumulator`, `add_input`, `merge_accumulators` and `extract_output`.

    `compact` may shrink an accumulator before it is sent to another worker. `setup` and `teardown` run once per worker.
    Set `has_identity = False` if there is no meaningful result for no input (as for min and max).
    """

    has_identity: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True
    """Whether parts of the input may be combined before the rest; False only for plain callables."""
    __tidegate_calls__: ClassVar[str] = "add_input"

    def setup(self) -> None:
        """Called once, before the first input."""

    def create_accumulator(self) -> A:
        """Return an accumulator of no input."""
        raise NotImplementedError(f"{type(self).__name__}.create_accumulator is missing")

    def add_input(self, accumulator: A, element: I) -> A:
        """Return the accumulator with one more input; it may be modified in place and returned."""
        raise NotImplementedError(f"{type(self).__name__}.add_input is missing")

    def merge_accumulators(self, accumulators: Iterable[A]) -> A:
        """Return an accumulator of the inputs of all; the first may be modified in place and returned."""
        raise NotImplementedError(f"{type(self).__name__}.merge_accumulators is missing")

    def compact(self, accumulator: A) -> A:
        """Return an equivalent, smaller accumulator."""
        return accumulator

    def extract_output(self, accumulator: A) -> O:
        """Return the result."""
        raise NotImplementedError(f"{type(self).__name__}.extract_output is missing")

    def teardown(self) -> None:
        """Called once, after the last result."""

    def apply(self, elements: Iterable[I]) -> O:
        """Return the result for `elements`."""
        accumulator = self.create_accumulator()
        add = self.add_input
        for element in elements:
            accumulator = add(accumulator, element)
        return self.extract_output(accumulator)


class Fold(CombineFn[T, Any, T]):
    """A combiner whose accumulator is the result so far. The engine generates inline code for the known ones."""

    has_identity = False
    in_parts = True

    def create_accumulator(self) -> Any:
        return NOTHING

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        merged: Any = NOTHING
        for accumulator in accumulators:
            if accumulator is not NOTHING:
                merged = accumulator if merged is NOTHING else self.add_input(merged, accumulator)
        return merged

    def extract_output(self, accumulator: Any) -> T:
        if accumulator is NOTHING:
            raise ValueError(f"{type(self).__name__} of no elements has no value")
        return accumulator  # type: ignore[no-any-return]


class _Nothing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "NOTHING"

    def __reduce__(self) -> str:
        return "NOTHING"


NOTHING: Final = _Nothing()
"""The accumulator of no input, for combiners without an identity."""


class SumFn(Fold[Any]):
    """`sum`: the sum, starting at 0."""

    has_identity = True

    def create_accumulator(self) -> Any:
        return 0

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        return sum(accumulators)

    def apply(self, elements: Iterable[Any]) -> Any:
        return sum(elements)


class MinFn(Fold[Any]):
    """`min`: the least input, the first of equal ones."""

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return element if accumulator is NOTHING or element < accumulator else accumulator

    def apply(self, elements: Iterable[Any]) -> Any:
        return min(elements)


class MaxFn(Fold[Any]):
    """`max`: the greatest input, the first of equal ones."""

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return element if accumulator is NOTHING or element > accumulator else accumulator

    def apply(self, elements: Iterable[Any]) -> Any:
        return max(elements)


class AnyFn(CombineFn[Any, bool, bool]):
    """`any`: whether any input is true."""

    def create_accumulator(self) -> bool:
        return False

    def add_input(self, accumulator: bool, element: Any) -> bool:
        return accumulator or bool(element)

    def merge_accumulators(self, accumulators: Iterable[bool]) -> bool:
        return any(accumulators)

    def extract_output(self, accumulator: bool) -> bool:
        return accumulator

    def apply(self, elements: Iterable[Any]) -> bool:
        return any(elements)


class AllFn(CombineFn[Any, bool, bool]):
    """`all`: whether every input is true."""

    def create_accumulator(self) -> bool:
        return True

    def add_input(self, accumulator: bool, element: Any) -> bool:
        return accumulator and bool(element)

    def merge_accumulators(self, accumulators: Iterable[bool]) -> bool:
        return all(accumulators)

    def extract_output(self, accumulator: bool) -> bool:
        return accumulator

    def apply(self, elements: Iterable[Any]) -> bool:
        return all(elements)


class CountFn(CombineFn[Any, int, int]):
    """`len`: the number of inputs."""

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, element: Any) -> int:
        return accumulator + 1

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator

    def apply(self, elements: Iterable[Any]) -> int:
        return len(elements) if isinstance(elements, Sized) else sum(1 for _ in elements)


class Gather(CombineFn[Any, list[Any], O]):
    """A combiner whose accumulator is the list of all its inputs, in order of arrival."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, accumulator: list[Any], element: Any) -> list[Any]:
        accumulator.append(element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        merged: list[Any] = []
        for accumulator in accumulators:
            merged += accumulator
        return merged

    def apply(self, elements: Iterable[Any]) -> O:
        return self.extract_output(list(elements))


class ListFn(Gather[list[Any]]):
    """`list`: all inputs, in order of arrival."""

    def extract_output(self, accumulator: list[Any]) -> list[Any]:
        return accumulator


class TupleFn(Gather[tuple[Any, ...]]):
    """`tuple`: all inputs, in order of arrival."""

    def extract_output(self, accumulator: list[Any]) -> tuple[Any, ...]:
        return tuple(accumulator)


class SetFn(CombineFn[Any, set[Any], set[Any]]):
    """`set`: the distinct inputs."""

    def create_accumulator(self) -> set[Any]:
        return set()

    def add_input(self, accumulator: set[Any], element: Any) -> set[Any]:
        accumulator.add(element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[set[Any]]) -> set[Any]:
        return set().union(*accumulators)

    def extract_output(self, accumulator: set[Any]) -> set[Any]:
        return accumulator

    def apply(self, elements: Iterable[Any]) -> set[Any]:
        return set(elements)


class CallableFn(Gather[Any]):
    """A plain callable, called once per pane with all values, never with its own results."""

    has_identity = False
    in_parts = False

    def __init__(self, fn: Callable[[list[Any]], Any]) -> None:
        self.fn = fn

    def extract_output(self, accumulator: list[Any]) -> Any:
        return self.fn(accumulator)


class AssociativeFn(CombineFn[Any, list[Any], Any]):
    """A callable of many values that may be applied to its own results: `fn([fn([a, b]), c]) == fn([a, b, c])`."""

    has_identity = False
    batch: ClassVar[int] = 100

    def __init__(self, fn: Callable[[list[Any]], Any]) -> None:
        self.fn = fn

    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, accumulator: list[Any], element: Any) -> list[Any]:
        accumulator.append(element)
        return accumulator if len(accumulator) < self.batch else [self.fn(accumulator)]

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        return self.compact([value for accumulator in accumulators for value in accumulator])

    def compact(self, accumulator: list[Any]) -> list[Any]:
        return accumulator if len(accumulator) < 2 else [self.fn(accumulator)]

    def extract_output(self, accumulator: list[Any]) -> Any:
        return self.fn(accumulator)


class PairwiseFn(Fold[Any]):
    """A function of two values that may be applied in any grouping: `fn(fn(a, b), c) == fn(a, fn(b, c))`."""

    __tidegate_calls__ = "fn"

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self.fn = fn

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return element if accumulator is NOTHING else self.fn(accumulator, element)


class TupleCombineFn(CombineFn[Any, list[Any], tuple[Any, ...]]):
    """Several combiners, one for each field of the inputs, which are tuples; returns a tuple of their results."""

    on_fields: ClassVar[bool] = True

    def __init__(self, *combiners: Any) -> None:
        if not combiners:
            raise BuildError("a tuple of combiners must not be empty")
        self.combiners: tuple[CombineFn[Any, Any, Any], ...] = tuple(as_combine_fn(c) for c in combiners)
        self.has_identity = all(c.has_identity for c in self.combiners)  # type: ignore[misc]
        self.in_parts = all(c.in_parts for c in self.combiners)  # type: ignore[misc]

    def with_common_input(self) -> SingleInputTupleCombineFn:
        """The same combiners, each applied to all inputs."""
        return SingleInputTupleCombineFn(*self.combiners)

    def setup(self) -> None:
        for combiner in self.combiners:
            combiner.setup()

    def create_accumulator(self) -> list[Any]:
        return [combiner.create_accumulator() for combiner in self.combiners]

    def add_input(self, accumulator: list[Any], element: Any) -> list[Any]:
        return [c.add_input(a, e) for c, a, e in zip(self.combiners, accumulator, element, strict=True)]

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        columns = zip(*accumulators, strict=True)
        return [c.merge_accumulators(column) for c, column in zip(self.combiners, columns, strict=True)]

    def compact(self, accumulator: list[Any]) -> list[Any]:
        return [c.compact(a) for c, a in zip(self.combiners, accumulator, strict=True)]

    def extract_output(self, accumulator: list[Any]) -> tuple[Any, ...]:
        return tuple([c.extract_output(a) for c, a in zip(self.combiners, accumulator, strict=True)])

    def teardown(self) -> None:
        for combiner in self.combiners:
            combiner.teardown()


class SingleInputTupleCombineFn(TupleCombineFn):
    """Several combiners, each applied to all inputs; returns a tuple of their results. `(sum, len)` is converted to
    it."""

    on_fields = False

    def add_input(self, accumulator: list[Any], element: Any) -> list[Any]:
        return [c.add_input(a, element) for c, a in zip(self.combiners, accumulator, strict=True)]


class CoGroupFn(CombineFn[tuple[int, Any], tuple[list[Any], ...], Any]):
    """Groups inputs `(number, value)` by the number of their collection: a tuple of `size` lists of values.

    With `tags` the result is a dict of the lists instead. Combining in parts would not shrink the data.
    """

    in_parts = False

    def __init__(self, size: int, tags: tuple[str, ...] | None = None) -> None:
        self.size = size
        self.tags = tags

    def create_accumulator(self) -> tuple[list[Any], ...]:
        return tuple([[] for _ in range(self.size)])

    def add_input(self, accumulator: tuple[list[Any], ...], element: tuple[int, Any]) -> tuple[list[Any], ...]:
        number, value = element
        accumulator[number].append(value)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[tuple[list[Any], ...]]) -> tuple[list[Any], ...]:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            for all_values, values in zip(merged, accumulator, strict=True):
                all_values += values
        return merged

    def extract_output(self, accumulator: tuple[list[Any], ...]) -> Any:
        return accumulator if self.tags is None else dict(zip(self.tags, accumulator))


_BUILTINS: Final[dict[Any, type[CombineFn[Any, Any, Any]]]] = {
    sum: SumFn,
    min: MinFn,
    max: MaxFn,
    any: AnyFn,
    all: AllFn,
    len: CountFn,
    list: ListFn,
    tuple: TupleFn,
    set: SetFn,
}


@overload
def associative(fn: Callable[[list[T]], T]) -> CombineFn[T, Any, T]: ...
@overload
def associative(fn: Callable[[T, T], T]) -> CombineFn[T, Any, T]: ...
def associative(fn: Any) -> CombineFn[Any, Any, Any]:
    """Declare that `fn` may combine parts of its input: either a function of many values that may be called with its
    own results, or a function of two values, such as `operator.mul`, with `fn(fn(a, b), c) == fn(a, fn(b, c))`."""
    if not callable(fn):
        raise BuildError(f"associative takes a function, not {shorten(fn)}")
    return PairwiseFn(fn) if required_arguments(fn) == 2 else AssociativeFn(fn)


def as_combine_fn(combiner: Any) -> CombineFn[Any, Any, Any]:
    """Convert `combiner` to a CombineFn; BuildError if it is not a combiner."""
    if isinstance(combiner, CombineFn):
        return combiner
    if isinstance(combiner, type) and issubclass(combiner, CombineFn):
        raise BuildError(f"{combiner.__name__} is a class: pass an instance, {combiner.__name__}()")
    if isinstance(combiner, tuple):
        return SingleInputTupleCombineFn(*combiner)
    try:
        builtin = _BUILTINS.get(combiner)
    except TypeError:
        builtin = None
    if builtin is not None:
        return builtin()
    if callable(combiner):
        return CallableFn(combiner)
    named = isinstance(combiner, str) and hasattr(builtins, combiner)
    hint = f": write {combiner}, without quotes" if named else ""
    raise BuildError(f"a combiner is a CombineFn or a callable over all values, not {type(combiner).__name__}{hint}")


def stands_for_builtin(fn: CombineFn[Any, Any, Any]) -> bool:
    """Whether `fn` is the combiner of a Python built-in, such as `max`."""
    return type(fn) in _BUILTINS.values()


def combiner_name(fn: CombineFn[Any, Any, Any]) -> str:
    """A name for labels: `sum`, `MeanFn`, or the name of the plain callable."""
    match fn:
        case CallableFn(fn=inner) | AssociativeFn(fn=inner) | PairwiseFn(fn=inner):
            return name_of(inner)
        case TupleCombineFn(combiners=combiners):
            return f"({', '.join(combiner_name(c) for c in combiners)})"
    for builtin, cls in _BUILTINS.items():
        if type(fn) is cls:
            return str(builtin.__name__)
    return type(fn).__name__


class WithArguments(CombineFn[Any, Any, Any]):
    """A combiner with the extra arguments of `CombinePerKey(fn, *args, **kwargs)`, which are passed to its methods."""

    def __init__(self, inner: CombineFn[Any, Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.inner = inner
        self.args = args
        self.kwargs = kwargs
        self.has_identity = inner.has_identity  # type: ignore[misc]
        self.in_parts = inner.in_parts  # type: ignore[misc]

    def setup(self) -> None:
        self.inner.setup()

    def create_accumulator(self) -> Any:
        if isinstance(self.inner, (CallableFn, AssociativeFn)):
            return self.inner.create_accumulator()
        return self.inner.create_accumulator(*self.args, **self.kwargs)

    def add_input(self, accumulator: Any, element: Any) -> Any:
        if isinstance(self.inner, (CallableFn, AssociativeFn)):
            accumulator.append(element)
            return accumulator
        return self.inner.add_input(accumulator, element, *self.args, **self.kwargs)

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        if isinstance(self.inner, (CallableFn, AssociativeFn)):
            return ListFn().merge_accumulators(accumulators)
        return self.inner.merge_accumulators(accumulators, *self.args, **self.kwargs)

    def compact(self, accumulator: Any) -> Any:
        if isinstance(self.inner, (CallableFn, AssociativeFn)) or type(self.inner).compact is CombineFn.compact:
            return accumulator
        return self.inner.compact(accumulator, *self.args, **self.kwargs)

    def extract_output(self, accumulator: Any) -> Any:
        if isinstance(self.inner, (CallableFn, AssociativeFn)):
            return self.inner.fn(accumulator, *self.args, **self.kwargs)
        return self.inner.extract_output(accumulator, *self.args, **self.kwargs)

    def teardown(self) -> None:
        self.inner.teardown()
