"""Joins of two keyed collections: by key and window, or by key and event-time interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.sdk.authoring.dofn import DoFn, on_timer
from tidegate.sdk.authoring.state import EventTimer, OrderedListStateSpec
from tidegate.sdk.data.values import TimestampedValue, WindowedValue
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import FlatMap, Flatten, Map, ParDo, WindowInto
from tidegate.sdk.steps.transform import Transform
from tidegate.sdk.time import Duration, DurationLike, Timestamp
from tidegate.sdk.windowing.assigners import GlobalWindows, may_give_several
from tidegate.sdk.windowing.window import GLOBAL_WINDOW
from tidegate.transforms.grouping.cogroup import CoGroupByKey, check_keys

if TYPE_CHECKING:
    from tidegate.transforms.grouping.join_on import JoinOn

T = TypeVar("T")


def _inner(group: tuple[Any, tuple[list[Any], list[Any]]]) -> Iterator[tuple[Any, tuple[Any, Any]]]:
    key, (lefts, rights) = group
    for left in lefts:
        for right in rights:
            yield key, (left, right)


def _left(group: tuple[Any, tuple[list[Any], list[Any]]]) -> Iterator[tuple[Any, tuple[Any, Any]]]:
    key, (lefts, rights) = group
    return _inner((key, (lefts, rights or [None])))


def _right(group: tuple[Any, tuple[list[Any], list[Any]]]) -> Iterator[tuple[Any, tuple[Any, Any]]]:
    key, (lefts, rights) = group
    return _inner((key, (lefts or [None], rights)))


def _full(group: tuple[Any, tuple[list[Any], list[Any]]]) -> Iterator[tuple[Any, tuple[Any, Any]]]:
    key, (lefts, rights) = group
    return _inner((key, (lefts or [None], rights or [None])))


class _Join(Transform):
    def __init__(
        self, other: PCollection[Any], pairs: Any, kind: str, needs: tuple[int, ...], name: str | None
    ) -> None:
        self.other = other
        self.pairs = pairs
        self.kind = kind
        self.needs = needs
        self.label = name

    def default_label(self) -> str:
        return f"Join.{self.kind}"

    def __call__(self, pcoll: PCollection[Any]) -> PCollection[tuple[Any, tuple[Any, Any]]]:
        result: PCollection[tuple[Any, tuple[Any, Any]]] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[Any]) -> Any:
        check_keys(f"Join.{self.kind}", (input, self.other), ("'left'", "'right'"))
        grouping = CoGroupByKey(name="Group")
        grouping.needs = self.needs
        grouped = (input, self.other) | grouping
        return grouped | FlatMap(self.pairs, name="Pairs")


class Join:
    """`left | Join.inner(right)`: `(key, (left value, right value))` for each pair of values of a key and window.

    `left`, `right` and `full` put None in place of a missing partner. Both collections must have the same windowing.
    `on` joins by columns instead, and makes rows of the columns of both.
    """

    @staticmethod
    def on(
        other: PCollection[Any],
        *keys: Any,
        how: str = "inner",
        within: Any = None,
        where: Any = None,
        suffix: str | None = None,
        name: str | None = None,
    ) -> JoinOn:
        """Join by columns: `orders | Join.on(users, ("user", "name"))` gives rows of the columns of both sides.

        A key is the name of a column of both sides, which is one column of the rows, or a pair of a name or expression
        for the left side and one for the right side. NULL equals no key. `how` is "inner", "left", "right", "full",
        or "semi" and "anti", which emit the left elements that have a partner, or have none. `where`, an expression
        over the columns of the rows, has to be true of a pair. Columns of the right side whose names the left one has,
        too, get the `suffix`.

        Elements are joined with those of the same window; with `within` (s), collections in the global window are
        joined by their timestamps: the right one minus the left one is from -within to within, or within the pair
        given. Raises BuildError if the columns or windows don't fit.
        """
        from tidegate.transforms.grouping.join_on import JoinOn

        return JoinOn(other, keys, how, within, where, suffix, name)

    @staticmethod
    def inner(other: PCollection[Any], *, name: str | None = None) -> _Join:
        """Only keys that both collections have."""
        return _Join(other, _inner, "inner", (0, 1), name)

    @staticmethod
    def left(other: PCollection[Any], *, name: str | None = None) -> _Join:
        """Every value of the left collection."""
        return _Join(other, _left, "left", (0,), name)

    @staticmethod
    def right(other: PCollection[Any], *, name: str | None = None) -> _Join:
        """Every value of the right collection."""
        return _Join(other, _right, "right", (1,), name)

    @staticmethod
    def full(other: PCollection[Any], *, name: str | None = None) -> _Join:
        """Every value of both collections."""
        return _Join(other, _full, "full", (), name)


_LEFTS = OrderedListStateSpec("lefts")
_RIGHTS = OrderedListStateSpec("rights")
_CLEAN = EventTimer("clean")


class _Near(DoFn):
    """Buffers each side's values until the watermark shows that no partner can arrive any more."""

    def __init__(self, lower: Duration, upper: Duration) -> None:
        self.lower = lower
        self.upper = upper

    def process(
        self,
        element: tuple[Any, tuple[bool, Any]],
        at: Any = DoFn.TimestampParam,
        lefts: Any = DoFn.StateParam(_LEFTS),
        rights: Any = DoFn.StateParam(_RIGHTS),
        clean: Any = DoFn.TimerParam(_CLEAN),
    ) -> Iterable[TimestampedValue[tuple[Any, tuple[Any, Any]]]]:
        key, (is_left, value) = element
        if is_left:
            lefts.add(at, value)
            for other, right in rights.read_range(at + self.lower, _after(at + self.upper)):
                yield TimestampedValue((key, (value, right)), max(at, other))
            last = at + self.upper
        else:
            rights.add(at, value)
            for other, left in lefts.read_range(at - self.upper, _after(at - self.lower)):
                yield TimestampedValue((key, (left, value)), max(at, other))
            last = at - self.lower
        expiry = _after(max(at, last))
        clean.set(expiry, tag=str(expiry.micros))

    @on_timer(_CLEAN)
    def cleaned(
        self,
        now: Any = DoFn.TimestampParam,
        lefts: Any = DoFn.StateParam(_LEFTS),
        rights: Any = DoFn.StateParam(_RIGHTS),
    ) -> None:
        lefts.clear_range(_BEGINNING, now - self.upper)
        rights.clear_range(_BEGINNING, now + self.lower)


_BEGINNING = Timestamp(micros=-(2**63))


def _after(at: Timestamp) -> Timestamp:
    return at + Duration(micros=1)


class IntervalJoin(Transform):
    """`left | IntervalJoin(right, lower, upper)`: pairs of a key with `lower <= right time - left time <= upper`.

    Bounds are inclusive; `IntervalJoin(right, within=d)` means from -d to d. Emits `(key, (left, right))` in the global
    window, with the later of the two timestamps. A value is buffered until the watermark shows that no partner can
    arrive any more.
    """

    def __init__(
        self,
        other: PCollection[Any],
        lower: DurationLike | None = None,
        upper: DurationLike | None = None,
        *,
        within: DurationLike | None = None,
        name: str | None = None,
    ) -> None:
        if within is not None and (lower is not None or upper is not None):
            raise BuildError("IntervalJoin takes lower and upper, or within, not both")
        if within is not None:
            lower, upper = Duration(micros=-Duration.of(within).micros), within
        if lower is None or upper is None:
            raise BuildError("IntervalJoin needs lower and upper, or within")
        self.lower, self.upper = Duration.of(lower), Duration.of(upper)
        if self.upper < self.lower:
            raise BuildError(f"IntervalJoin: lower ({self.lower}) must not be above upper ({self.upper})")
        self.other = other
        self.label = name

    def __call__(self, pcoll: PCollection[Any]) -> PCollection[tuple[Any, tuple[Any, Any]]]:
        result: PCollection[tuple[Any, tuple[Any, Any]]] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[Any]) -> Any:
        check_keys("IntervalJoin", (input, self.other), ("'left'", "'right'"))
        lefts = _in_the_global_window(input, "Left window") | Map(_as_left, name="Left")
        rights = _in_the_global_window(self.other, "Right window") | Map(_as_right, name="Right")
        both = (lefts, rights) | Flatten()
        return both | ParDo(_Near(self.lower, self.upper), name="Near")


def _in_the_global_window(pcoll: PCollection[T], name: str) -> PCollection[T]:
    """Each element once, however many windows it is in."""
    if may_give_several(pcoll.windowing.assigner):
        pcoll = pcoll | Map(_in_one_window, name=f"{name}, once")
    return pcoll | WindowInto(GlobalWindows(), name=name)


def _in_one_window(element: T, at: Any = DoFn.TimestampParam) -> Any:
    return WindowedValue(element, at, (GLOBAL_WINDOW,))


def _as_left(pair: tuple[Any, Any]) -> tuple[Any, tuple[bool, Any]]:
    return (pair[0], (True, pair[1]))


def _as_right(pair: tuple[Any, Any]) -> tuple[Any, tuple[bool, Any]]:
    return (pair[0], (False, pair[1]))
