"""Transforms that route, deduplicate or batch elements: Partition, Tee, Distinct and BatchElements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import Any, Concatenate, TypeVar, overload

from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.data.values import TaggedOutput, WindowedValue
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.portable.model import Form
from tidegate.sdk.primitives import CombinePerElement, ParDo
from tidegate.sdk.primitives.elementwise import E
from tidegate.sdk.steps.transform import PTransform, Transform
from tidegate.sdk.typehints.signatures import FnTypes
from tidegate.sdk.user_code.user_fn import name_of
from tidegate.sdk.user_code.validation import positive_count
from tidegate.transforms.elementwise import Keys, Wrapping

T = TypeVar("T")


class Partition(PTransform[PCollection[E], tuple[PCollection[E], ...]]):
    """Split a collection into `n`: an element goes to number `fn(element, n, *args, **kwargs)`, from 0 to n-1.

    Any other number raises an error that names the element.
    """

    @overload
    def __init__(self, fn: Callable[[E, int], int], n: int, *, name: str | None = None) -> None: ...
    @overload
    def __init__(
        self, fn: Callable[Concatenate[E, int, ...], int], n: int, *args: Any, name: str | None = None, **kwargs: Any
    ) -> None: ...
    def __init__(self, fn: Any, n: int, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        self.route = _Route(fn, (positive_count("Partition", "n", n), *args), kwargs, None)
        self.route.tags = tuple(str(number) for number in range(1, n))
        self.route.main_tag = "0"
        self.label = name

    def default_label(self) -> str:
        return f"Partition({name_of(self.route.inner)})"

    def expand(self, input: PCollection[E]) -> tuple[PCollection[E], ...]:
        routed = self.route.expand(input)
        return tuple(routed) if self.route.tags else (routed,)


def routed(element: Any, fn: Callable[..., int], n: int, *args: Any, **kwargs: Any) -> Any:
    """The element, tagged with the number of its partition; untagged for number 0, the main output."""
    result = fn(element, n, *args, **kwargs)
    try:
        number = index(result)
    except TypeError:
        number = -1
    if not 0 <= number < n:
        raise ValueError(
            f"{name_of(fn)} returned partition {shorten(result, 40)} for {shorten(element, 60)}: "
            f"it must be an integer from 0 to {n - 1}"
        )
    return TaggedOutput(str(number), element) if number else element


class _Route(Wrapping[Any, Any]):
    form: Form = "map"

    wrapper = staticmethod(routed)

    def expand(self, input: PCollection[Any]) -> Any:
        outputs = super().expand(input)
        for part in outputs if self.tags else ():
            input.pipeline.retype(part, input.element_type)
        return outputs

    def gives(self, signature: FnTypes, element_type: Any) -> Any:
        return element_type


class Tee(PTransform[PCollection[T], PCollection[T]]):
    """Apply each of `transforms`, such as a write or a log, to the collection and return the collection itself."""

    def __init__(self, *transforms: Callable[[PCollection[T]], Any] | PTransform[PCollection[T], Any]) -> None:
        if not transforms:
            raise BuildError("Tee takes at least one transform to apply to the collection")
        self.transforms = transforms

    def expand(self, input: PCollection[T]) -> PCollection[T]:
        for transform in self.transforms:
            input.pipeline.apply(transform, input)
        return input


class Distinct(Transform):
    """Each distinct element once per window. Elements are compared as keys are, so `1` and `1.0` are equal."""

    def __init__(self, *, name: str | None = None) -> None:
        self.label = name

    def __call__(self, pcoll: PCollection[T]) -> PCollection[T]:
        result: PCollection[T] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[T]) -> PCollection[T]:
        return input | CombinePerElement(len, name="Count") | Keys()


class BatchElements(Transform):
    """Lists of at most `max_batch_size` elements of one window, in order, stamped with the window's end.

    A batch never spans bundles, so no element waits and no clock is involved. All batches are full except the last two
    of each window in a bundle, which divide the remaining elements between them. So if `min_batch_size` is at most half
    of the maximum, a batch is smaller only where the bundle has fewer elements.
    """

    def __init__(self, min_batch_size: int = 1, max_batch_size: int = 1000, *, name: str | None = None) -> None:
        self.least = positive_count("BatchElements", "min_batch_size", min_batch_size)
        self.most = positive_count("BatchElements", "max_batch_size", max_batch_size)
        if self.least > self.most:
            raise BuildError(f"BatchElements: min_batch_size ({self.least}) is above max_batch_size ({self.most})")
        self.label = name

    def __call__(self, pcoll: PCollection[T]) -> PCollection[list[T]]:
        result: PCollection[list[T]] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[T]) -> PCollection[list[T]]:
        batches: ParDo[Any, Any] = ParDo(Batching(self.least, self.most))
        return batches.with_output_types(list.__class_getitem__(input.element_type)).expand(input)  # type: ignore[no-any-return]


class Batching(DoFn):
    """Buffers elements by window until they fill a batch and leave enough for one of the minimum size."""

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most
        self._waiting: dict[Any, list[Any]] = {}

    def start_bundle(self) -> None:
        self._waiting = {}

    def process(self, element: Any, window: Any = DoFn.WindowParam) -> Iterable[WindowedValue[list[Any]]] | None:
        batch = self._waiting.get(window)
        if batch is None:
            batch = self._waiting[window] = []
        batch.append(element)
        if len(batch) < self.most + self.least:
            return None
        self._waiting[window] = batch[self.most :]
        return (_in_window(batch[: self.most], window),)

    def finish_bundle(self) -> Iterable[WindowedValue[list[Any]]]:
        for window, batch in self._waiting.items():
            if len(batch) > self.most:
                half = (len(batch) + 1) // 2
                yield _in_window(batch[:half], window)
                batch = batch[half:]
            yield _in_window(batch, window)
        self._waiting = {}


def _in_window(batch: list[Any], window: Any) -> WindowedValue[list[Any]]:
    return WindowedValue(batch, window.max_timestamp(), (window,))
