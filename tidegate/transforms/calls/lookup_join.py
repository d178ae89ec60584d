"""LookupJoin: elements joined with what a function finds for their keys outside the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidegate.sdk.authoring.dofn import refuse_injection
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.portable.async_calls import BatchSettings
from tidegate.sdk.primitives import pair_type
from tidegate.sdk.primitives.elementwise import E, unwrapped
from tidegate.sdk.time import DurationLike
from tidegate.sdk.typehints import compatibility, hints, signatures
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.transforms.calls.async_map import CallingStep
from tidegate.transforms.calls.settings import Cache, Retry, length


def with_found(element: Any, found: Any) -> tuple[Any, Any]:
    """The pair of an element and what was found for it: what a lookup join emits by default."""
    return element, found


class LookupJoin(CallingStep[E, Any]):
    """Emits `join(element, lookup(key(element)))` for each element; by default the pair of the element and what was
    found.

    `lookup` is a function of a key, which is called beside the stream as by `AsyncMap`, with the same arguments; it
    returns None for a key that is not found. With `batch=(size, wait)` it is called with a list of up to `size` keys,
    of which the first has waited for `wait` at most, and returns a mapping from keys to what was found, or a list with
    an entry for each key.
    """

    def __init__(
        self,
        lookup: Any,
        *,
        key: Callable[[E], Any],
        join: Callable[[E, Any], Any] | None = None,
        batch: tuple[int, DurationLike] | None = None,
        capacity: int | None = None,
        timeout: DurationLike | None = 60,
        ordered: bool = True,
        retry: Retry | None = None,
        cache: Cache | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            lookup, capacity=capacity, timeout=timeout, ordered=ordered, retry=retry, cache=cache, key=key, name=name
        )
        if key is None:
            raise BuildError("LookupJoin: key is a function of the element, and not None")
        if join is not None and not callable(join):
            raise BuildError(f"LookupJoin: join is a function of the element and what was found, and not {join!r}")
        refuse_injection(join, "it is called with an element and what was found only")
        self.join = join or with_found
        self.batch = None if batch is None else _batch(batch, self.calls.capacity)
        self.calls = replace(self.calls, by_key=True, join=UserFn.of(self.join), batch=self.batch)

    def element_types(self, input: PCollection[E]) -> Any:
        signature = signatures.signature_of(self.key)
        wanted = self.input_type if self.input_type is not None else self.takes(signature)
        if input.pipeline.checks_types:
            self.check_input(input.element_type, wanted, self.default_label())
        if self.output_type is not None:
            return self.output_type
        if self.join is with_found:
            found = Any if self.batch is not None else self.gives(signatures.signature_of(self.fn), Any)
            return pair_type(input.element_type, found)
        bound = compatibility.bind(wanted, input.element_type)
        return hints.substitute(unwrapped(signatures.signature_of(self.join).result), bound)


def _batch(batch: Any, capacity: int) -> BatchSettings:
    match batch:
        case (int() as size, wait) if not isinstance(size, bool) and size >= 1:
            pass
        case _:
            raise BuildError(f"LookupJoin: batch is (greatest number of keys, longest wait), and not {batch!r}")
    if size > capacity:
        raise BuildError(
            f"LookupJoin: a batch of {size} keys is never full, since capacity={capacity} elements are on their way at "
            "a time: raise the capacity"
        )
    return BatchSettings(size, length("LookupJoin", "the wait of batch", wait))
