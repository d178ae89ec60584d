"""The functions of random pipelines: a fixed table of named functions, so that a description is plain data.

Elements are of three kinds: `int`, `pair` (two ints) and `group` (an int, and ints in no defined order).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import tidegate as tg

Kind = Literal["int", "pair", "group"]
Form = Literal["map", "flat_map", "filter", "map_tuple", "flat_map_tuple", "par_do"]


@dataclass(frozen=True)
class Fn:
    """An element-wise step: its transform, the kinds of its input and output, and its parameters.

    `code` is the function, or the class of a DoFn. `params` are the DoFn parameters by keyword. `tags` are further
    outputs. `buffers`: a DoFn that emits each element unchanged from `finish_bundle`.
    """

    form: Form
    input: Kind
    output: Kind
    code: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    raises: bool = False
    buffers: bool = False


# -- ints


def increment(x: int) -> int:
    return x + 1


def keep(x: int) -> int:
    return x


def halve(x: int) -> int:
    return x // 2


def squeeze(x: int) -> int:
    return x * x % 101


def add(x: int, n: int, times: int = 1) -> int:
    return x + n * times


def is_even(x: int) -> bool:
    return x % 2 == 0


def above(x: int, least: int) -> bool:
    return x > least


def both(x: int) -> list[int]:
    return [x, -x]


def few(x: int) -> range:
    return range(x % 3)


def odd_or_nothing(x: int) -> list[int] | None:
    return [x] if x % 2 else None


def generated(x: int) -> Iterator[int]:
    for n in range(abs(x) % 4):
        yield x + n


def by_rest(x: int) -> tuple[int, int]:
    return x % 3, x


def to_pairs(x: int) -> list[tuple[int, int]]:
    return [(x % 2, x), (x % 5, 1)]


def stamp(x: int) -> Any:
    return tg.TimestampedValue(x + 1, x % 23)


def sometimes_stamp(x: int) -> Any:
    return tg.TimestampedValue(x, x % 17 - 5) if x % 3 == 0 else x


def stamp_some(x: int) -> Iterator[Any]:
    yield x
    if x % 2:
        yield tg.TimestampedValue(x * 2, abs(x) % 31)
        yield x * 3


def with_time(x: int, at: Any = tg.DoFn.TimestampParam) -> int:
    return int(x + at.micros // 1_000_000 % 7)


def with_window(x: int, window: Any = tg.DoFn.WindowParam) -> int:
    return int(x + tg.Timestamp.of(window.end).micros // 1_000_000 % 11)


def with_pane(x: int, pane: Any = tg.DoFn.PaneInfoParam) -> int:
    return x + (100 if pane.timing is tg.Timing.ON_TIME else 0)


def in_odd_window(x: int, window: Any = tg.DoFn.WindowParam) -> bool:
    return bool(tg.Timestamp.of(window.end).micros // 1_000_000 % 2)


def restamp_in_window(x: int, window: Any = tg.DoFn.WindowParam) -> Any:
    return tg.TimestampedValue(x, tg.Timestamp.of(window.end).micros // 1_000_000 % 29)


def fragile(x: int) -> int:
    if x % 4 == 1:
        raise ValueError(f"{x} is refused")
    return x + 7


def fragile_items(x: int) -> Iterator[int]:
    yield x
    if x % 3 == 1:
        raise ValueError(f"{x} is refused")
    yield x + 5


def fragile_test(x: int) -> bool:
    if x % 5 == 2:
        raise ValueError(f"{x} is refused")
    return x % 2 == 0


def fragile_stamps(x: int) -> Any:
    if x % 4 == 3:
        raise ValueError(f"{x} is refused")
    return tg.TimestampedValue(x, x % 13)


class Countdown(tg.DoFn):
    def process(self, element: int, step: int = 1) -> Iterator[int]:
        yield from range(min(element, 6), 0, -step)


class LifeCycle(tg.DoFn):
    """Fails unless its life cycle methods are called in order."""

    def setup(self) -> None:
        self.base: int | None = 3
        self.bundles = 0

    def start_bundle(self) -> None:
        assert self.bundles == 0
        self.bundles += 1

    def process(self, element: int) -> list[int]:
        assert self.bundles == 1
        assert self.base is not None
        return [element + self.base]

    def finish_bundle(self) -> None:
        self.bundles -= 1

    def teardown(self) -> None:
        assert self.base is not None
        self.base = None


class Buffer(tg.DoFn):
    """Emits every element, in its window and pane, when its bundle ends."""

    def start_bundle(self) -> None:
        self.buffered: list[Any] = []

    def process(
        self,
        element: int,
        at: Any = tg.DoFn.TimestampParam,
        window: Any = tg.DoFn.WindowParam,
        pane: Any = tg.DoFn.PaneInfoParam,
    ) -> None:
        self.buffered.append(tg.WindowedValue(element, at, (window,), pane))

    def finish_bundle(self) -> Iterable[Any]:
        elements, self.buffered = self.buffered, []
        return elements


class Sort(tg.DoFn):
    """Three outputs: even numbers, odd ones, and copies of the multiples of five with new timestamps."""

    def process(self, element: int) -> Iterator[Any]:
        yield element if element % 2 == 0 else tg.TaggedOutput("odd", element)
        if element % 5 == 0:
            yield tg.TaggedOutput("fifth", tg.TimestampedValue(element, abs(element) % 19))


def sorted_out(x: int) -> Any:
    return tg.TaggedOutput("small", x) if abs(x) < 5 else x


class FragileSort(tg.DoFn):
    def process(self, element: int) -> Iterator[Any]:
        yield tg.TaggedOutput("odd", element) if element % 2 else element
        if element % 7 == 3:
            raise ValueError(f"{element} is refused")


# -- pairs and groups


def raise_value(key: int, value: int) -> tuple[int, int]:
    return key, value + 1


def total_of(key: int, value: int, weight: int) -> int:
    return key * weight + value


def spread(key: int, value: int) -> list[tuple[int, int]]:
    return [(key, value), (value % 4, key)]


def swap(pair: tuple[int, int]) -> tuple[int, int]:
    return pair[1] % 5, pair[0]


def has_positive(pair: tuple[int, int]) -> bool:
    return pair[1] > 0


def stamp_pair(pair: tuple[int, int]) -> Any:
    return tg.TimestampedValue(pair, pair[1] % 27)


def sum_of_group(group: tuple[int, Iterable[int]]) -> tuple[int, int]:
    return group[0], sum(group[1])


def size_of_group(group: tuple[int, Iterable[int]]) -> int:
    return sum(1 for _ in group[1])


def ungrouped(group: tuple[int, Iterable[int]]) -> Iterator[tuple[int, int]]:
    for value in group[1]:
        yield group[0], value


def is_small_group(group: tuple[int, Iterable[int]]) -> bool:
    return sum(1 for _ in group[1]) < 4


TIME, WINDOW, PANE = ("at", "timestamp"), ("window", "window"), ("pane", "pane")

FUNCTIONS: dict[str, Fn] = {
    "increment": Fn("map", "int", "int", increment),
    "keep": Fn("map", "int", "int", keep),
    "halve": Fn("map", "int", "int", halve),
    "squeeze": Fn("map", "int", "int", squeeze),
    "add": Fn("map", "int", "int", add, (5,), (("times", 2),)),
    "is_even": Fn("filter", "int", "int", is_even),
    "above": Fn("filter", "int", "int", above, (2,)),
    "both": Fn("flat_map", "int", "int", both),
    "few": Fn("flat_map", "int", "int", few),
    "odd_or_nothing": Fn("flat_map", "int", "int", odd_or_nothing),
    "generated": Fn("flat_map", "int", "int", generated),
    "by_rest": Fn("map", "int", "pair", by_rest),
    "to_pairs": Fn("flat_map", "int", "pair", to_pairs),
    "stamp": Fn("map", "int", "int", stamp),
    "sometimes_stamp": Fn("map", "int", "int", sometimes_stamp),
    "stamp_some": Fn("flat_map", "int", "int", stamp_some),
    "with_time": Fn("map", "int", "int", with_time, params=(TIME,)),
    "with_window": Fn("map", "int", "int", with_window, params=(WINDOW,)),
    "with_pane": Fn("map", "int", "int", with_pane, params=(PANE,)),
    "in_odd_window": Fn("filter", "int", "int", in_odd_window, params=(WINDOW,)),
    "restamp_in_window": Fn("map", "int", "int", restamp_in_window, params=(WINDOW,)),
    "fragile": Fn("map", "int", "int", fragile, raises=True),
    "fragile_items": Fn("flat_map", "int", "int", fragile_items, raises=True),
    "fragile_test": Fn("filter", "int", "int", fragile_test, raises=True),
    "fragile_stamps": Fn("map", "int", "int", fragile_stamps, raises=True),
    "countdown": Fn("par_do", "int", "int", Countdown, (2,)),
    "opened": Fn("par_do", "int", "int", LifeCycle),
    "buffer": Fn("par_do", "int", "int", Buffer, params=(TIME, WINDOW, PANE), buffers=True),
    "sort": Fn("par_do", "int", "int", Sort, tags=("odd", "fifth")),
    "sorted_out": Fn("map", "int", "int", sorted_out, tags=("small",)),
    "fragile_sort": Fn("par_do", "int", "int", FragileSort, tags=("odd",), raises=True),
    "raise_value": Fn("map_tuple", "pair", "pair", raise_value),
    "total_of": Fn("map_tuple", "pair", "int", total_of, (3,)),
    "spread": Fn("flat_map_tuple", "pair", "pair", spread),
    "swap": Fn("map", "pair", "pair", swap),
    "has_positive": Fn("filter", "pair", "pair", has_positive),
    "stamp_pair": Fn("map", "pair", "pair", stamp_pair),
    "sum_of_group": Fn("map", "group", "pair", sum_of_group),
    "size_of_group": Fn("map", "group", "int", size_of_group),
    "ungrouped": Fn("flat_map", "group", "pair", ungrouped),
    "is_small_group": Fn("filter", "group", "group", is_small_group),
}


class SumOfSquares(tg.CombineFn[int, list[int], int]):
    """A CombineFn that defines every method and changes its accumulator in place."""

    def setup(self) -> None:
        self.ready = True

    def create_accumulator(self) -> list[int]:
        assert self.ready
        return []

    def add_input(self, accumulator: list[int], element: int) -> list[int]:
        accumulator.append(element * element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[int]]) -> list[int]:
        return [sum(map(sum, accumulators))]

    def compact(self, accumulator: list[int]) -> list[int]:
        return [sum(accumulator)]

    def extract_output(self, accumulator: list[int]) -> int:
        return sum(accumulator)


def middle(values: list[int]) -> int:
    """A plain callable, a median, which can't be combined from parts."""
    return sorted(values)[len(values) // 2]


def greatest_even(values: list[int]) -> int:
    """The greatest value rounded down to an even number; associative, so it may be applied to its own results."""
    return max(value - value % 2 for value in values)


@dataclass(frozen=True)
class Combiner:
    """A combiner, and its meaning for a list; `empty` is its result for no input, if it has one."""

    make: Callable[[], Any]
    meaning: Callable[[list[int]], Any]
    empty: tuple[Any, ...] = ()
    output: Literal["int", "list"] = "int"


COMBINERS: dict[str, Combiner] = {
    "sum": Combiner(lambda: sum, sum, (0,)),
    "len": Combiner(lambda: len, len, (0,)),
    "min": Combiner(lambda: min, min),
    "max": Combiner(lambda: max, max),
    "any": Combiner(lambda: any, any, (False,)),
    "list": Combiner(lambda: list, sorted, ([],), "list"),
    "tuple": Combiner(lambda: tuple, sorted, ([],), "list"),
    "set": Combiner(lambda: set, lambda values: sorted(set(values)), ([],), "list"),
    "squares": Combiner(SumOfSquares, lambda values: sum(value * value for value in values), (0,)),
    "middle": Combiner(lambda: middle, middle),
    "greatest_even": Combiner(lambda: tg.associative(greatest_even), greatest_even),
}
