"""A combiner of values that are computed from elements, for groupings that have to see the elements themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidegate.sdk.authoring.combine import CallableFn, CombineFn, ListFn, TupleFn, WithArguments


class OfElements(WithArguments):
    """Applies `value` to each element before combining it, so that the grouping sees, and drops if late, the elements.

    If the inner combiner needs all values at once, the elements are buffered, and converted when it is called.
    """

    def __init__(self, inner: CombineFn[Any, Any, Any], value: Callable[[Any], Any]) -> None:
        super().__init__(inner, (), {})
        self.value = value
        self._gathers = type(inner) in (ListFn, TupleFn, CallableFn)

    def create_accumulator(self) -> Any:
        return [] if self._gathers else self.inner.create_accumulator()

    def add_input(self, accumulator: Any, element: Any) -> Any:
        if self._gathers:
            accumulator.append(element)
            return accumulator
        return self.inner.add_input(accumulator, self.value(element))

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        return (ListFn() if self._gathers else self.inner).merge_accumulators(accumulators)

    def compact(self, accumulator: Any) -> Any:
        return accumulator if self._gathers else self.inner.compact(accumulator)

    def extract_output(self, accumulator: Any) -> Any:
        return self.inner.extract_output(list(map(self.value, accumulator)) if self._gathers else accumulator)
