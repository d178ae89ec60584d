"""`tg.combiners`: the usual aggregates, over a whole collection (`Globally`), `PerKey`, or `PerElement`.

For bounded input in the global window, a `Globally` form emits a result even if there are no elements, unless it is
used `.without_defaults()`. Otherwise windows without elements emit nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil
from typing import Any, TypeVar

from tidegate.sdk.authoring.combine import (
    CombineFn,
    CountFn,
    ListFn,
    SetFn,
    SingleInputTupleCombineFn,
    TupleCombineFn,
)
from tidegate.sdk.authoring.dofn import DoFn, refuse_injection
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import CombineGlobally, CombinePerElement, CombinePerKey, Map
from tidegate.sdk.steps.transform import Transform
from tidegate.sdk.time import Timestamp
from tidegate.sdk.user_code.validation import positive_count
from tidegate.transforms.combining.exact_sum import ExactSumFn
from tidegate.transforms.combining.sketches import ApproximateQuantilesFn, ApproximateUniqueFn, SampleFn
from tidegate.transforms.elementwise import titled

__all__ = [
    "ApproximateQuantiles",
    "ApproximateQuantilesFn",
    "ApproximateUnique",
    "ApproximateUniqueFn",
    "Count",
    "CountFn",
    "DictFn",
    "ExactSum",
    "ExactSumFn",
    "Latest",
    "LatestFn",
    "ListFn",
    "Mean",
    "MeanFn",
    "Sample",
    "SampleFn",
    "SetFn",
    "SingleInputTupleCombineFn",
    "ToDict",
    "ToList",
    "ToSet",
    "Top",
    "TopFn",
    "TupleCombineFn",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

Key = Callable[[Any], Any]


def _globally(fn: CombineFn[Any, Any, R], title: str, name: str | None) -> CombineGlobally[R]:
    """Combine all elements. The default for no elements is emitted only where a window can be known to be empty."""
    step = titled(CombineGlobally(fn, name=name), title)
    step.defaults = "where_known"
    return step


class Count:
    """The number of elements."""

    @staticmethod
    def Globally(*, name: str | None = None) -> CombineGlobally[int]:
        """One number; 0 for no elements."""
        return _globally(CountFn(), "Count.Globally", name)

    @staticmethod
    def PerKey(*, name: str | None = None) -> CombinePerKey[int]:
        """`(key, number of values)`."""
        return titled(CombinePerKey(CountFn(), name=name), "Count.PerKey")

    @staticmethod
    def PerElement(*, name: str | None = None) -> CombinePerElement[int]:
        """`(element, number of occurrences)`."""
        return titled(CombinePerElement(CountFn(), name=name), "Count.PerElement")


class MeanFn(CombineFn[Any, tuple[Any, int], float]):
    """The arithmetic mean; NaN for no elements."""

    def create_accumulator(self) -> tuple[Any, int]:
        return 0, 0

    def add_input(self, accumulator: tuple[Any, int], element: Any) -> tuple[Any, int]:
        total, count = accumulator
        return total + element, count + 1

    def merge_accumulators(self, accumulators: Iterable[tuple[Any, int]]) -> tuple[Any, int]:
        totals, counts = zip(*accumulators, strict=True)
        return sum(totals), sum(counts)

    def extract_output(self, accumulator: tuple[Any, int]) -> float:
        total, count = accumulator
        return total / count if count else float("nan")


class Mean:
    """The arithmetic mean of numbers."""

    @staticmethod
    def Globally(*, name: str | None = None) -> CombineGlobally[float]:
        """One number; NaN for no elements."""
        return _globally(MeanFn(), "Mean.Globally", name)

    @staticmethod
    def PerKey(*, name: str | None = None) -> CombinePerKey[float]:
        """`(key, mean of its values)`."""
        return titled(CombinePerKey(MeanFn(), name=name), "Mean.PerKey")


class ExactSum:
    """The sum of numbers as a float that doesn't depend on the order of additions."""

    @staticmethod
    def Globally(*, name: str | None = None) -> CombineGlobally[float]:
        """One number; 0.0 for no elements."""
        return _globally(ExactSumFn(), "ExactSum.Globally", name)

    @staticmethod
    def PerKey(*, name: str | None = None) -> CombinePerKey[float]:
        """`(key, sum of its values)`."""
        return titled(CombinePerKey(ExactSumFn(), name=name), "ExactSum.PerKey")


class TopFn(CombineFn[T, list[T], list[T]]):
    """The `n` greatest by `key`, greatest first, or with `reverse` the `n` least. Equal elements keep their order."""

    def __init__(self, n: int, key: Key | None = None, reverse: bool = False) -> None:
        refuse_injection(key, "it is called with an element only: put it into the elements by a tg.Map in front")
        self.n = positive_count("Top", "n", n)
        self.key = key
        self.reverse = reverse

    def create_accumulator(self) -> list[T]:
        return []

    def add_input(self, accumulator: list[T], element: T) -> list[T]:
        accumulator.append(element)
        if len(accumulator) >= 4 * self.n + 64:
            self.compact(accumulator)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[T]]) -> list[T]:
        merged: list[T] = []
        for accumulator in accumulators:
            merged += accumulator
        return self.compact(merged)

    def compact(self, accumulator: list[T]) -> list[T]:
        accumulator.sort(key=self.key, reverse=not self.reverse)
        del accumulator[self.n :]
        return accumulator

    def extract_output(self, accumulator: list[T]) -> list[T]:
        return self.compact(accumulator)[:]


class Top:
    """The greatest or least elements, by `<` of themselves or of `key(element)`, the most extreme first.

    Pairs are compared by their first items first: for pairs `(word, count)`, `Top.Of(10)` returns the words that come
    last in the alphabet, and `Top.Of(10, key=lambda pair: pair[1])` those with the highest counts.
    """

    @staticmethod
    def Of(
        n: int, key: Key | None = None, reverse: bool = False, *, name: str | None = None
    ) -> CombineGlobally[list[Any]]:
        """One list of the `n` greatest elements, or with `reverse` of the `n` least."""
        return _globally(TopFn[Any](n, key, reverse), f"Top.Of({n})", name)

    @staticmethod
    def PerKey(
        n: int, key: Key | None = None, reverse: bool = False, *, name: str | None = None
    ) -> CombinePerKey[list[Any]]:
        """`(key, the n greatest of its values)`, or with `reverse` the least."""
        return titled(CombinePerKey(TopFn[Any](n, key, reverse), name=name), f"Top.PerKey({n})")

    @staticmethod
    def Largest(n: int, *, name: str | None = None) -> CombineGlobally[list[Any]]:
        """One list of the `n` greatest."""
        return titled(Top.Of(n, name=name), f"Top.Largest({n})")

    @staticmethod
    def Smallest(n: int, *, name: str | None = None) -> CombineGlobally[list[Any]]:
        """One list of the `n` least."""
        return titled(Top.Of(n, reverse=True, name=name), f"Top.Smallest({n})")

    @staticmethod
    def LargestPerKey(n: int, *, name: str | None = None) -> CombinePerKey[list[Any]]:
        """`(key, the n greatest of its values)`."""
        return titled(Top.PerKey(n, name=name), f"Top.LargestPerKey({n})")

    @staticmethod
    def SmallestPerKey(n: int, *, name: str | None = None) -> CombinePerKey[list[Any]]:
        """`(key, the n least of its values)`."""
        return titled(Top.PerKey(n, reverse=True, name=name), f"Top.SmallestPerKey({n})")


class Sample:
    """A random sample without replacement.

    The sample depends on `seed`, on the elements, and on how the runner divides them before combining. So repeating a
    run draws the same sample, and another runner may draw another, equally fair one.
    """

    @staticmethod
    def FixedSizeGlobally(n: int, *, seed: int = 0, name: str | None = None) -> CombineGlobally[list[Any]]:
        """One list of `n` elements, or of all if there are fewer, in no particular order."""
        fn = SampleFn[Any](positive_count("Sample", "n", n), seed)
        return _globally(fn, f"Sample.FixedSizeGlobally({n})", name)

    @staticmethod
    def FixedSizePerKey(n: int, *, seed: int = 0, name: str | None = None) -> CombinePerKey[list[Any]]:
        """`(key, n of its values)`."""
        fn = SampleFn[Any](positive_count("Sample", "n", n), seed)
        return titled(CombinePerKey(fn, name=name), f"Sample.FixedSizePerKey({n})")


class LatestFn(CombineFn[tuple[Timestamp, T], Any, Any]):
    """Of `(timestamp, element)` pairs, the element with the greatest timestamp (the last of several); else None."""

    def create_accumulator(self) -> Any:
        return None

    def add_input(self, accumulator: Any, element: tuple[Timestamp, T]) -> Any:
        return element if accumulator is None or accumulator[0] <= element[0] else accumulator

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        latest = None
        for accumulator in accumulators:
            if accumulator is not None:
                latest = self.add_input(latest, accumulator)
        return latest

    def extract_output(self, accumulator: Any) -> Any:
        return None if accumulator is None else accumulator[1]


def timed(element: T, timestamp: Any = DoFn.TimestampParam) -> tuple[Timestamp, T]:
    """`(timestamp, element)`."""
    return timestamp, element


def timed_value(pair: tuple[K, V], timestamp: Any = DoFn.TimestampParam) -> tuple[K, tuple[Timestamp, V]]:
    """`(key, (timestamp, value))`."""
    key, value = pair
    return key, (timestamp, value)


class _LatestGlobally(Transform):
    defaults = True

    def without_defaults(self) -> _LatestGlobally:
        """Emit nothing for no input."""
        other = _LatestGlobally()
        other.label, other.defaults = self.label, False
        return other

    def default_label(self) -> str:
        return "Latest.Globally"

    def __call__(self, pcoll: PCollection[T]) -> PCollection[T]:
        result: PCollection[T] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[T]) -> PCollection[T]:
        combine = _globally(LatestFn[T](), "Latest", None)
        combine = combine if self.defaults else combine.without_defaults()
        return input | Map(timed, name="Timestamp") | combine.with_output_types(input.element_type)


class _LatestPerKey(Transform):
    def default_label(self) -> str:
        return "Latest.PerKey"

    def __call__(self, pcoll: PCollection[tuple[K, V]]) -> PCollection[tuple[K, V]]:
        result: PCollection[tuple[K, V]] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[Any]) -> PCollection[Any]:
        combine: CombinePerKey[Any] = CombinePerKey(LatestFn[Any]()).with_output_types(input.element_type)
        return input | Map(timed_value, name="Timestamp") | combine


class Latest:
    """The element with the greatest timestamp; of several such, the last to arrive."""

    @staticmethod
    def Globally(*, name: str | None = None) -> _LatestGlobally:
        """One element; None if there are none."""
        latest = _LatestGlobally()
        latest.label = name
        return latest

    @staticmethod
    def PerKey(*, name: str | None = None) -> _LatestPerKey:
        """`(key, its latest value)`."""
        latest = _LatestPerKey()
        latest.label = name
        return latest


def _approximate_unique(size: int | None, error: float | None) -> ApproximateUniqueFn:
    if (size is None) == (error is None):
        raise BuildError("ApproximateUnique takes either size or error")
    if error is not None:
        if not 0.01 <= error <= 0.5:
            raise BuildError(f"ApproximateUnique: error must be from 0.01 to 0.5, not {shorten(error)}")
        size = ceil(4 / error**2)
    size = positive_count("ApproximateUnique", "size", size)
    if size < 16:
        raise BuildError(f"ApproximateUnique: size must be at least 16, not {size}")
    return ApproximateUniqueFn(size)


class ApproximateUnique:
    """An estimate of the number of distinct elements, from a sketch of their `size` smallest hashes.

    The result is exact up to `size` distinct elements. Beyond that, it is within the fraction `error` (2/√size) of the
    true number with 95 % confidence. Give either `size` or `error`. Elements are compared as keys are, so their types
    must be usable as keys.
    """

    @staticmethod
    def Globally(
        size: int | None = None, error: float | None = None, *, name: str | None = None
    ) -> CombineGlobally[int]:
        """One number."""
        return _globally(_approximate_unique(size, error), "ApproximateUnique.Globally", name)

    @staticmethod
    def PerKey(size: int | None = None, error: float | None = None, *, name: str | None = None) -> CombinePerKey[int]:
        """`(key, estimated number of distinct values)`."""
        return titled(CombinePerKey(_approximate_unique(size, error), name=name), "ApproximateUnique.PerKey")


def _approximate_quantiles(n: int, key: Key | None, reverse: bool, error: float | None) -> ApproximateQuantilesFn[Any]:
    if positive_count("ApproximateQuantiles", "num_quantiles", n) < 2:
        raise BuildError("ApproximateQuantiles: num_quantiles must be at least 2: the least and the greatest")
    error = min(0.01, 0.5 / n) if error is None else error
    if not 0 < error <= 0.5:
        raise BuildError(f"ApproximateQuantiles: error must be above 0 and at most 0.5, not {shorten(error)}")
    return ApproximateQuantilesFn(n, error, key, reverse)


class ApproximateQuantiles:
    """One list of `num_quantiles` elements, evenly spaced in rank from the least to the greatest.

    They are ordered by `<` of themselves or of `key(element)`; with `reverse` the greatest comes first. The first and
    the last are exact. The rank of each of the others is off by at most the fraction `error` of the number of elements
    (by default 0.01, or half of 1/num_quantiles if that is less) for up to 10^12 elements; in practice by far less. The
    list is empty if there are no elements.
    """

    @staticmethod
    def Globally(
        num_quantiles: int,
        key: Key | None = None,
        reverse: bool = False,
        *,
        error: float | None = None,
        name: str | None = None,
    ) -> CombineGlobally[list[Any]]:
        """One list."""
        fn = _approximate_quantiles(num_quantiles, key, reverse, error)
        return _globally(fn, "ApproximateQuantiles.Globally", name)

    @staticmethod
    def PerKey(
        num_quantiles: int,
        key: Key | None = None,
        reverse: bool = False,
        *,
        error: float | None = None,
        name: str | None = None,
    ) -> CombinePerKey[list[Any]]:
        """`(key, list)`."""
        fn = _approximate_quantiles(num_quantiles, key, reverse, error)
        return titled(CombinePerKey(fn, name=name), "ApproximateQuantiles.PerKey")


class ToList(CombineGlobally[list[Any]]):
    """One list of all elements."""

    title = "ToList"

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(ListFn(), name=name)

    def __call__(self, pcoll: PCollection[T]) -> PCollection[list[T]]:
        return super().__call__(pcoll)


class ToSet(CombineGlobally[set[Any]]):
    """One set of all elements."""

    title = "ToSet"

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(SetFn(), name=name)

    def __call__(self, pcoll: PCollection[T]) -> PCollection[set[T]]:
        return super().__call__(pcoll)


class DictFn(CombineFn[tuple[K, V], dict[K, V], dict[K, V]]):
    """A dict of all pairs; the last value of a key wins."""

    def create_accumulator(self) -> dict[K, V]:
        return {}

    def add_input(self, accumulator: dict[K, V], element: tuple[K, V]) -> dict[K, V]:
        key, value = element
        accumulator[key] = value
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[dict[K, V]]) -> dict[K, V]:
        merged: dict[K, V] = {}
        for accumulator in accumulators:
            merged.update(accumulator)
        return merged

    def extract_output(self, accumulator: dict[K, V]) -> dict[K, V]:
        return accumulator


class ToDict(CombineGlobally[dict[Any, Any]]):
    """One dict of all pairs; the last value of a key to arrive wins."""

    title = "ToDict"

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(DictFn[Any, Any](), name=name)

    def __call__(self, pcoll: PCollection[tuple[K, V]]) -> PCollection[dict[K, V]]:
        return super().__call__(pcoll)


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    from tidegate.sdk.beam_names import COMBINERS, no_such

    raise no_such("tidegate.combiners", "tg.combiners", name, COMBINERS, __all__)
