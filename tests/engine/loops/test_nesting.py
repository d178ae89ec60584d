"""Long chains of steps whose loops nest: Python compiles at most 20 blocks in each other."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine.function_calls import function_calls
from tidegate.runners.plan import MAX_NESTED_LOOPS
from tidegate.runners.planner import Traits, plan
from tidegate.testing import TestPipeline, assert_that

ELEMENTS = [tg.TimestampedValue(n, n) for n in range(40)]
SEEN = tg.CombiningStateSpec("seen", sum)
SLIDING = tg.SlidingWindows(20, 10)


def once(x: Any) -> Iterator[Any]:
    for y in (x,):
        if y is not None:
            yield y


def deeply(x: Any) -> Iterator[Any]:
    for a in (x,):
        while a is not None:
            for b in [a]:
                if b is not None:
                    yield b
            break


def listed(x: Any) -> Iterable[Any]:
    return [x, x][:1]


def found(x: Any) -> Iterable[Any]:
    for y in (x, x):
        for z in (y, None):
            if z is not None:
                return [z]
    return None  # type: ignore[return-value]


def windowed(x: Any, window: Any = tg.DoFn.WindowParam) -> Any:
    return x if window is not None else None


def windowed_once(x: Any, window: Any = tg.DoFn.WindowParam) -> Iterator[Any]:
    if window is not None:
        yield x


def looping(depth: int, *inside: str) -> str:
    """Lines of a function that do something in nested loops: 19 is as many as Python compiles in one function."""
    lines = [f"{' ' * n}for x in (x,):\n" for n in range(1, depth + 1)]
    return "".join([*lines, *(f"{' ' * (depth + 1)}{line}\n" for line in inside)])


def compiled(name: str, text: str) -> Any:
    """What a text defines. The text is found as that of a notebook's cell is."""
    file = f"<nested {name} {len(linecache.cache)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    namespace: dict[str, Any] = {"tg": tg, "SEEN": SEEN}
    exec(compile(text, file, "exec"), namespace)
    return namespace[name]


def nested(depth: int) -> Any:
    return compiled("nested", f"def nested(x):\n{looping(depth, 'return x')}")


def stateful(depth: int) -> Any:
    loops = looping(depth, "if seen.read() >= 0:", " yield x").replace("\n", "\n ")
    return compiled(
        "Nested", f"class Nested(tg.DoFn):\n def process(self, x, seen=tg.DoFn.StateParam(SEEN)):\n {loops}"
    )


class OneWindow(tg.WindowAssigner):
    """Assigns one window to each element; the engine can't know that there is only one."""

    def assign(self, timestamp: tg.Timestamp, element: Any) -> Iterable[tg.BoundedWindow]:
        return (tg.IntervalWindow(0, 1000),)


def letters(pcoll: Any) -> Any:
    good, _ = pcoll | "caught" >> tg.FlatMap(listed).with_exception_handling()
    better, _ = good | "caught, too" >> tg.Map(nested(3)).with_exception_handling()
    return better


CHAINS: dict[str, tuple[Callable[[], Any], int]] = {
    "flat": (lambda: tg.FlatMap(listed), 25),
    "found": (lambda: tg.FlatMap(found), 25),
    "generators": (lambda: tg.FlatMap(once), 25),
    "nested generators": (lambda: tg.FlatMap(deeply), 10),
    "windowed": (lambda: tg.Map(windowed), 25),
    "windowed generators": (lambda: tg.FlatMap(windowed_once), 12),
    "nested": (lambda: tg.Map(nested(19)), 2),
    "windows": (lambda: tg.WindowInto(OneWindow()), 25),
}
ENDS: dict[str, Callable[[Any], Any]] = {
    "map": lambda chain: chain | "end" >> tg.Map(nested(9)),
    "group": lambda chain: (
        chain | tg.WithKeys(0) | "last" >> tg.WindowInto(SLIDING) | tg.GroupByKey() | tg.FlatMap(lambda each: each[1])
    ),
    "letters": letters,
    "state": lambda chain: chain | tg.WithKeys(0) | tg.ParDo(stateful(14)()) | tg.Values(),
}


def chained(pcoll: Any, name: str) -> Any:
    step, length = CHAINS[name]
    for number in range(length):
        pcoll = pcoll | f"step {number}" >> step()
    return pcoll


def values_of(name: str, end: str, windows: Any, **options: str) -> list[Any]:
    """What a chain emits for each of its elements, once for each of the windows that an element is in at the end."""
    collected: list[Any] = []
    with TestPipeline("direct", options) as pipeline:
        chain = chained(pipeline | tg.Create(ELEMENTS) | tg.WindowInto(windows), name)
        numbers = ENDS[end](chain) | "all" >> tg.WindowInto(tg.GlobalWindows())
        assert_that(numbers, lambda values: collected.extend(values))
    return collected


@pytest.mark.parametrize("inline", ["off", "on"])
@pytest.mark.parametrize("windows", [tg.GlobalWindows(), SLIDING], ids=["one window", "several"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", CHAINS)
def test_chains_run_however_deeply_their_loops_nest(name: str, end: str, windows: Any, inline: str) -> None:
    times = (2 if windows is SLIDING else 1) * (2 if end == "group" else 1)
    found = values_of(name, end, windows, inline=inline, checks="off")
    assert sorted(found) == sorted([*range(40)] * times)


@pytest.mark.parametrize("name", CHAINS)
def test_checked_loops_nest_no_deeper(name: str) -> None:
    assert sorted(values_of(name, "letters", SLIDING, inline="always", checks="all")) == sorted([*range(40)] * 2)


def test_functions_whose_loops_would_be_nested_too_deeply_are_called_and_it_is_said() -> None:
    pipeline = tg.Pipeline()
    _ = chained(pipeline | tg.Create([1]), "nested generators")
    planned = plan(pipeline.sealed(), Traits(parallel=False))
    reasons = [call.reason for call in function_calls(planned, pipeline.options)]
    assert reasons[:2] == ["", ""]
    assert f"nested too deeply (more than {MAX_NESTED_LOOPS})" in reasons[-1]


def test_a_chain_of_many_flat_steps_becomes_two_loops() -> None:
    pipeline = tg.Pipeline()
    _ = chained(pipeline | tg.Create([1]), "flat")
    planned = plan(pipeline.sealed(), Traits(parallel=False))
    assert [len(step.nodes) for step in planned.steps] == [1, MAX_NESTED_LOOPS, 25 - MAX_NESTED_LOOPS]
    (decision,) = (each for each in planned.decisions if each.choice == "begins another loop")
    assert decision.step == f"step {MAX_NESTED_LOOPS}"
