"""CoGroupByKey: group several keyed collections by key."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, overload

from tidegate.sdk.authoring.combine import CoGroupFn
from tidegate.sdk.errors import BuildError, TypeCheckError
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.portable.model import MAIN
from tidegate.sdk.primitives import CombinePerKey, Flatten, Map, MultiOutput, pair_type
from tidegate.sdk.steps.transform import Transform, pipeline_of
from tidegate.sdk.typehints.compatibility import clash, kv_of
from tidegate.sdk.typehints.hints import names_apart, type_name, union
from tidegate.sdk.windowing.strategy import compatible
from tidegate.transforms.functions import tagged, untagged

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


class CoGroupByKey(Transform):
    """Group several collections by key (and window), with one list of values for each collection.

    `{"users": users, "orders": orders} | CoGroupByKey()` emits `(key, {"users": [...], "orders": [...]})`, and
    `(users, orders) | CoGroupByKey()` emits `(key, ([...], [...]))`. The list of a collection in which the key doesn't
    occur is empty. The lists of one key have to fit into memory. Raises BuildError if the windows or triggers of the
    collections differ, and TypeCheckError if keys of their types can never be equal.
    """

    late_tag: str | None = None
    needs: tuple[int, ...] = ()
    """The collections without whose values nobody looks at a group, so that it need not be emitted."""

    def __init__(self, *, name: str | None = None) -> None:
        self.label = name

    @overload
    def __ror__(self, pcolls: Mapping[str, PCollection[tuple[K, V]]]) -> PCollection[tuple[K, dict[str, list[V]]]]: ...
    @overload
    def __ror__(self, pcolls: tuple[PCollection[tuple[K, A]]]) -> PCollection[tuple[K, tuple[list[A]]]]: ...
    @overload
    def __ror__(
        self, pcolls: tuple[PCollection[tuple[K, A]], PCollection[tuple[K, B]]]
    ) -> PCollection[tuple[K, tuple[list[A], list[B]]]]: ...
    @overload
    def __ror__(
        self, pcolls: tuple[PCollection[tuple[K, A]], PCollection[tuple[K, B]], PCollection[tuple[K, C]]]
    ) -> PCollection[tuple[K, tuple[list[A], list[B], list[C]]]]: ...
    @overload
    def __ror__(
        self,
        pcolls: tuple[
            PCollection[tuple[K, A]], PCollection[tuple[K, B]], PCollection[tuple[K, C]], PCollection[tuple[K, D]]
        ],
    ) -> PCollection[tuple[K, tuple[list[A], list[B], list[C], list[D]]]]: ...
    @overload
    def __ror__(
        self, pcolls: list[PCollection[tuple[K, V]]] | tuple[PCollection[tuple[K, V]], ...]
    ) -> PCollection[tuple[K, tuple[list[V], ...]]]: ...
    def __ror__(self, pcolls: Any) -> Any:
        return pipeline_of(pcolls, self).apply(self, pcolls)

    def with_late_data(self, tag: str) -> CoGroupByKey:
        """Return `out.main` and `out.<tag>`: the pairs (of any collection) that were too late for all their windows."""
        if not isinstance(tag, str) or not tag or tag == MAIN:
            raise BuildError(f"with_late_data takes a tag other than {MAIN!r}, not {tag!r}")
        other = copy.copy(self)
        other.late_tag = tag
        return other

    def expand(self, input: Any) -> Any:
        if isinstance(input, (PCollection, Pipeline)):
            raise BuildError(
                "CoGroupByKey takes several collections: write `(a, b) | tg.CoGroupByKey()`, or a dict of them"
            )
        tags = tuple(input) if isinstance(input, Mapping) else None
        parts = list(input.values() if isinstance(input, Mapping) else input)
        names = [repr(tag) for tag in tags] if tags is not None else [f"number {at}" for at in range(len(parts))]
        if tags is not None and not all(isinstance(tag, str) for tag in tags):
            raise BuildError(f"CoGroupByKey takes a dict whose keys are strings, not {', '.join(names)}")
        for part, name in zip(parts, names, strict=True):
            _check(parts[0], names[0], part, name)
        check_keys("CoGroupByKey", parts, names)
        combine = CombinePerKey(CoGroupFn(len(parts), tags), name="Group")
        combine.needs = self.needs
        combine = combine.with_output_types(_result_type(parts, tags))
        marked = tuple(
            part | Map(tagged, at, name=f"Tag({tags[at] if tags is not None else at})") for at, part in enumerate(parts)
        )
        if self.late_tag is None:
            return marked | Flatten() | combine
        grouped = marked | Flatten() | combine.with_late_data(self.late_tag)
        late = grouped[self.late_tag] | Map(untagged, name="Late")
        return MultiOutput({MAIN: grouped[MAIN], self.late_tag: late})


def _check(first: PCollection[Any], first_name: str, part: PCollection[Any], name: str) -> None:
    reason = clash(part.element_type, tuple[Any, Any]) if part.pipeline.checks_types else None
    if reason:
        actual = type_name(part.element_type)
        raise TypeCheckError(f"CoGroupByKey takes pairs (key, value), but collection {name} holds {actual}: {reason}")
    reason = compatible(first.windowing, part.windowing)
    if reason:
        raise BuildError(f"collections {first_name} and {name} can't be grouped together: {reason}")


def check_keys(owner: str, parts: Sequence[PCollection[Any]], names: Sequence[str]) -> None:
    """Raise TypeCheckError if no key of one of the collections can ever equal a key of the others, by their types.

    Types that are unknown, or that may overlap, pass.
    """
    if len(parts) < 2 or not parts[0].pipeline.checks_types:
        return
    keys = [kv_of(part.element_type)[0] for part in parts]
    for at, key in enumerate(keys):
        others = [other for number, other in enumerate(keys) if number != at]
        if any(clash(key, other) is None or clash(other, key) is None for other in others):
            continue
        one, other = sorted((at, 1 if at == 0 else 0))
        left, right = names_apart(keys[one], keys[other])
        raise TypeCheckError(
            f"{owner}: the keys of collection {names[one]}, from {parts[one].id!r}, are {left}, and those of "
            f"collection {names[other]}, from {parts[other].id!r}, are {right}: they can never be equal. "
            "Convert the keys of one first, as in `tg.MapTuple(lambda key, value: (str(key), value))`; if one of the "
            "types is wrong, add .with_output_types(...) to the step that produces it"
        )


def _result_type(parts: Iterable[PCollection[Any]], tags: tuple[str, ...] | None) -> Any:
    pairs = [kv_of(part.element_type) for part in parts]
    key = union([key for key, _ in pairs])
    lists = [list.__class_getitem__(value) for _, value in pairs]
    values = tuple.__class_getitem__(tuple(lists)) if tags is None else dict.__class_getitem__((str, union(lists)))
    return pair_type(key, values)
