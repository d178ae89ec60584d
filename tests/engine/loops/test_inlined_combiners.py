"""Combiners whose text stands in the loop of a grouping: nothing but speed can show it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.runners.engine.loops.inlining import INLINED
from tidegate.sdk.errors import TidegateError

NOTED: list[str] = []
"""The results of a run, and its side effects. Functions that have been pickled import this module to write here."""

LIMIT = 3


class Tried(tg.CombineFn[Any, Any, Any]):
    """A combiner of numbers; subclasses override `add_input`."""

    def create_accumulator(self) -> Any:
        return 0

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        return sum(accumulators)

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


class OneReturn(Tried):
    def add_input(self, accumulator: Any, element: Any) -> Any:
        """Documented."""
        return accumulator + element * LIMIT


class Scaled(Tried):
    def __init__(self, factor: int) -> None:
        self.factor = factor
        self.calls = 0

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return accumulator + element * self.factor


class Counting(Scaled):
    """Has state of its own."""

    def add_input(self, accumulator: Any, element: Any) -> Any:
        self.calls += 1
        return accumulator + element * self.calls


class CountAndSum(Tried):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add_input(self, accumulator: Any, element: Any) -> Any:
        count, total = accumulator
        return count + 1, total + element

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        counts, totals = zip(*accumulators, strict=True)
        return sum(counts), sum(totals)


class InPlace(Tried):
    def create_accumulator(self) -> Any:
        return [0, 0]

    def add_input(self, accumulator: Any, element: Any) -> Any:
        accumulator[0] += 1
        accumulator[1] += element
        return accumulator


class BeginsAnew(InPlace):
    """Returns another accumulator for some elements."""

    def add_input(self, accumulator: Any, element: Any) -> Any:
        if element % 3 == 0:
            return [100, element]
        accumulator[0] += 1
        return accumulator


class FailsInPlace(InPlace):
    def add_input(self, accumulator: Any, element: Any) -> Any:
        accumulator[0] += 1 // (element - 5)
        return accumulator


class AssignsParameters(Tried):
    def add_input(self, accumulator: Any, element: Any) -> Any:
        element = element + 1
        accumulator += 10 // element
        return accumulator


class Branches(Tried):
    def add_input(self, accumulator: Any, element: Any) -> Any:
        if element % 2:
            return accumulator
        if element > 100:
            raise ValueError(element)
        return accumulator + element


class ReturnsNothingAtTheEnd(Tried):
    def create_accumulator(self) -> Any:
        return None

    def add_input(self, accumulator: Any, element: Any) -> Any:  # noqa: RET503
        if accumulator is None:
            return [element]
        if element % 2:
            for x in accumulator:
                if x > 2:
                    return [*accumulator, x]

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        return list(accumulators)


class PrivateNames(Tried):
    __factor = 3

    def add_input(self, accumulator: Any, element: Any) -> Any:
        __sum = accumulator + self.__factor * element
        return __sum + 1


class Comprehension(Tried):
    """Has variables with the names of those of the loop."""

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return sum([x + k + element for k in (1, 2) for x in (accumulator, k)])


class Fails(Tried):
    def add_input(self, accumulator: Any, element: Any) -> Any:
        return accumulator + 1 // (element - 5)


class FailsToBegin(Tried):
    def create_accumulator(self) -> Any:
        return 1 // 0

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return accumulator + element


class Stops(Tried):
    def add_input(self, accumulator: Any, element: Any) -> Any:
        return next(iter([] if element > 5 else [accumulator + element]))


class Nothing(Tried):
    def add_input(self, accumulator: Any, element: Any) -> Any:
        return None

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        return None


class Forgets(Tried):
    """Has None as an accumulator, which is not the one that a key begins with."""

    def create_accumulator(self) -> Any:
        return 100

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return None if element == 3 else (accumulator or 0) + 1


class Defaults(Tried):
    def add_input(self, accumulator: Any, element: Any, more: Any = (1, 2)) -> Any:
        return accumulator + element + more[0]


class Stamps(Tried):
    """Returns a wrapper, which means nothing in an accumulator."""

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return tg.TimestampedValue(element, 5)

    def extract_output(self, accumulator: Any) -> Any:
        return repr(accumulator)


class Notes(Tried):
    def add_input(self, accumulator: Any, element: Any) -> Any:
        return accumulator + _noted(element)


def _noted(x: Any) -> Any:
    from tests.engine.loops import test_inlined_combiners

    test_inlined_combiners.NOTED.append(f"input {x!r}")
    return x


def made_here() -> Any:
    """A combiner of a local class, which captures a variable, and changes a global that it reads."""
    captured = 7

    class Local(Tried):
        def add_input(self, accumulator: Any, element: Any) -> Any:
            return accumulator + element * captured

    return Local()


INLINED_COMBINERS: dict[str, Callable[[], Any]] = {
    "one return": OneReturn,
    "an attribute": lambda: Scaled(4),
    "state of its own": lambda: Counting(2),
    "unpacking": CountAndSum,
    "in place": InPlace,
    "begins anew": BeginsAnew,
    "a failure in place": FailsInPlace,
    "assigned parameters": AssignsParameters,
    "branches": Branches,
    "nothing at the end": ReturnsNothingAtTheEnd,
    "private names": PrivateNames,
    "a comprehension": Comprehension,
    "a failure": Fails,
    "no accumulator": FailsToBegin,
    "StopIteration": Stops,
    "None": Nothing,
    "None once": Forgets,
    "a default": Defaults,
    "a wrapper": Stamps,
    "side effects": Notes,
    "a local class": made_here,
    "two values": lambda: tg.associative(lambda a, b: a * 2 + b),
    "two values of which one fails": lambda: tg.associative(lambda a, b: a + 1 // (b - 7)),
}


class UsesSuper(OneReturn):
    def add_input(self, accumulator: Any, element: Any) -> Any:
        return super().add_input(accumulator, element)


class UsesFrame(Tried):
    def add_input(self, accumulator: Any, element: Any) -> Any:
        return accumulator + len(sys._getframe().f_code.co_name)


class AnyArguments(Tried):
    def add_input(self, accumulator: Any, *elements: Any) -> Any:
        return accumulator + elements[0]


class Replaced(Tried):
    def __init__(self) -> None:
        self.add_input = max  # type: ignore[method-assign, assignment]


class WithExtra(Tried):
    def create_accumulator(self, by: int = 0) -> Any:
        return 0

    def add_input(self, accumulator: Any, element: Any, by: int = 0) -> Any:
        return accumulator + by

    def merge_accumulators(self, accumulators: Iterable[Any], by: int = 0) -> Any:
        return sum(accumulators)

    def extract_output(self, accumulator: Any, by: int = 0) -> Any:
        return accumulator


CALLED_COMBINERS: dict[str, Callable[[], Any]] = {
    "super": UsesSuper,
    "a frame": UsesFrame,
    "any number of arguments": AnyArguments,
    "C": lambda: tg.associative(max),
    "an attribute instead of the method": Replaced,
    "a list of all values": lambda: lambda values: len(values),
    "a builtin": lambda: sum,
}
WINDOWS = {"none": None, "fixed": tg.FixedWindows(2), "sliding": tg.SlidingWindows(4, 2)}


def combined(
    inline: str,
    write: Callable[[Any], Any],
    windows: Any = None,
    values: Iterable[Any] = range(10),
    checks: str = "off",
) -> tuple[Any, int]:
    """What a run shows, and how many elements the combiner was inlined for."""
    pipeline = tg.Pipeline(options={"inline": inline, "checks": checks, "type_check": "off"})
    made = pipeline | tg.Create([tg.TimestampedValue((x % 3, x), x) for x in values])
    if windows is not None:
        made = made | tg.WindowInto(windows)
    write(made) | "note" >> tg.Map(_note)
    NOTED.clear()
    try:
        metrics = pipeline.run().metrics()
    except TidegateError as error:
        return (str(error), traceback.format_exception(error.__cause__), list(NOTED)), 0
    counters = {each.key: each.value for each in metrics.query() if each.key.name != INLINED}
    inlined = sum(each.value for each in metrics.query(INLINED) if each.key.step == "fold")
    return (sorted(NOTED), counters), inlined


def _note(x: Any, window: Any = tg.DoFn.WindowParam) -> None:
    from tests.engine.loops import test_inlined_combiners

    test_inlined_combiners.NOTED.append(f"{x!r} in {window}")


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("name", INLINED_COMBINERS)
def test_an_inlined_combiner_is_the_combiner(name: str, windows: str) -> None:
    def write(p: Any) -> Any:
        return p | "fold" >> tg.CombinePerKey(INLINED_COMBINERS[name]())

    called, none = combined("off", write, WINDOWS[windows])
    inlined, some = combined("on", write, WINDOWS[windows])
    assert inlined == called
    assert none == 0
    assert len(called) == 3 or some == 10  # a run that fails reports no metrics


@pytest.mark.parametrize("inline", ["off", "on"])
def test_an_accumulator_that_is_none_is_one(inline: str) -> None:
    (noted, _), _ = combined(inline, lambda p: p | "fold" >> tg.CombinePerKey(Forgets()))
    assert [note.split(" in ")[0] for note in noted] == ["(0, 2)", "(1, 103)", "(2, 103)"]


@pytest.mark.parametrize("name", INLINED_COMBINERS)
def test_a_combiner_inlined_in_checked_loops_is_the_combiner(name: str) -> None:
    def write(p: Any) -> Any:
        return p | "fold" >> tg.CombinePerKey(INLINED_COMBINERS[name]())

    called, none = combined("off", write, checks="all")
    inlined, some = combined("always", write, checks="all")
    assert inlined == called
    assert none == 0
    assert len(called) == 3 or some == 10


@pytest.mark.parametrize(
    "stamped", [[], [0], [1], [8191], [8192], [4097, 4098, 9999], range(4096, 8192), range(10_000)]
)
@pytest.mark.parametrize("inline", ["off", "on", "always"])
def test_each_element_counts_once_whichever_have_timestamps(stamped: Sequence[int], inline: str) -> None:
    values = [(x % 7, x) for x in range(10_000)]
    pipeline = tg.Pipeline(options={"inline": inline, "checks": "off"})
    elements = [tg.TimestampedValue(value, x) if x in stamped else value for x, value in enumerate(values)]
    pairs = pipeline | tg.Create(elements)
    pairs | "fold" >> tg.CombinePerKey(CountAndSum()) | "note" >> tg.Map(_note)
    pairs | tg.GroupByKey() | tg.MapTuple(lambda k, xs: (k, (len(xs), sum(xs)))) | "also" >> tg.Map(_note)
    NOTED.clear()
    metrics = pipeline.run().metrics()
    of_key = [range(k, 10_000, 7) for k in range(7)]
    expected = [f"{(k, (len(xs), sum(xs)))!r} in {tg.GlobalWindow()}" for k, xs in enumerate(of_key)]
    assert [*expected, *expected] == NOTED
    inlined = sum(each.value for each in metrics.query(INLINED) if each.key.step == "fold")
    assert inlined == (0 if inline == "off" else 10_000)


@pytest.mark.parametrize("name", CALLED_COMBINERS)
def test_a_combiner_is_called_if_a_loop_could_be_seen(name: str) -> None:
    def write(p: Any) -> Any:
        return p | "fold" >> tg.CombinePerKey(CALLED_COMBINERS[name]())

    assert combined("on", write) == combined("off", write)
    assert combined("on", write)[1] == 0


def test_a_combiner_with_extra_arguments_is_called() -> None:
    def write(p: Any) -> Any:
        return p | "fold" >> tg.CombinePerKey(WithExtra(), by=5)

    called, inlined = combined("off", write), combined("on", write)
    assert inlined == called
    assert "(0, 20)" in called[0][0][0]


def test_a_failing_combiner_names_method_element_line_and_caret() -> None:
    (text, lines, _), _ = combined("on", lambda p: p | "fold" >> tg.CombinePerKey(Fails()))
    assert "ZeroDivisionError" in text
    assert "while calling Fails.add_input" in text
    assert "element: (2, 5)" in text
    assert "in add_input" in lines[1]
    assert "return accumulator + 1 // (element - 5)" in lines[1]
    assert lines[1].rstrip().endswith("  ~~^^~~~~~~~~~~~~~~")


@given(
    st.lists(st.integers(-5, 12), min_size=1, max_size=12),
    st.sampled_from(sorted(INLINED_COMBINERS)),
    st.sampled_from(sorted(WINDOWS)),
)
def test_random_inputs_combine_alike_called_and_inlined(values: list[int], name: str, windows: str) -> None:
    def write(p: Any) -> Any:
        pairs = p | "pair" >> tg.Map(lambda pair: (pair[0], pair[1]))
        return pairs | "fold" >> tg.CombinePerKey(INLINED_COMBINERS[name]())

    called, inlined = (combined(inline, write, WINDOWS[windows], values)[0] for inline in ("off", "always"))
    assert inlined == called
