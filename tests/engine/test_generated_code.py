"""The generated code of element-wise and stateful steps, compared with golden files.

After an intended change, `python -m tests.engine.test_generated_code` rewrites the files: review the diff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.operator_driver import context
from tidegate.runners.engine.elementwise.codegen import generate as generate_loop
from tidegate.runners.engine.elementwise.fused_node import Link, load_link
from tidegate.runners.engine.elementwise.shape import Shape
from tidegate.runners.engine.grouping.batch_table import Grouping
from tidegate.runners.engine.loops.form import Form, written
from tidegate.runners.engine.loops.inlining import Inlining
from tidegate.runners.engine.loops.loop_tree import printed
from tidegate.runners.engine.stateful.codegen import Declarations, generate_callback, generate_process
from tidegate.sdk.portable.model import AssignWindows, CombinePerKey, GroupByKey, ParDo

DIRECTORY = Path(__file__).parent / "generated"
ONE = tg.Create([("a", 1)])
UNKNOWN: list[Any] = [id]
TEN = tg.FixedWindows(10)
LIMIT = 2


TOTAL = tg.CombiningStateSpec("total", sum)
FRESH = tg.ValueStateSpec("fresh", ttl=60)
FLUSH = tg.EventTimer("flush")


class Counted(tg.DoFn):
    """Counts the elements of each key, and reports the count after a while."""

    def process(
        self,
        element: Any,
        total: Any = tg.DoFn.StateParam(TOTAL),
        fresh: Any = tg.DoFn.StateParam(FRESH),
        flush: Any = tg.DoFn.TimerParam(FLUSH),
    ) -> Iterator[Any]:
        total.add(element[1])
        fresh.write(element)
        flush.set(10)
        yield element[0]

    @tg.on_timer(FLUSH)
    def report(self, key: Any = tg.DoFn.KeyParam, total: Any = tg.DoFn.StateParam(TOTAL)) -> Iterator[Any]:
        yield key, total.read()


def links_of(make: Callable[[tg.Pipeline], Any]) -> tuple[Any, tuple[Link, ...]]:
    """The pipeline that `make` writes, and its element-wise steps."""
    pipeline = tg.Pipeline()
    _ = make(pipeline)
    sealed = pipeline.sealed()
    return sealed, tuple(load_link(node, sealed) for node in sealed.nodes if isinstance(node, (AssignWindows, ParDo)))


def text_of(form: Form) -> str:
    """Generated code with, beside each line that runs a step, that step's number and the local of its input."""
    text, lines = written(form)
    rows = []
    for n, line in enumerate(text.splitlines(), 1):
        link, local = lines.get(n, (None, ""))
        rows.append(line if link is None else f"{line:<88}  # {link} {local}".rstrip())
    return "\n".join(rows) + "\n"


def anything(x: Any) -> Any:
    return UNKNOWN[0](x)


def doubled(x: Any) -> Any:
    return x * LIMIT


def scaled(n: int) -> Any:
    return lambda v1: v1 % n in (0, len(str(v1)))


def spread(x: Any, other: Any = (1, 2)) -> Any:
    return [(x, y, other) for y in x if y > LIMIT]


def stamped(x: Any, at: Any = tg.DoFn.TimestampParam) -> Any:
    return (x, at, at)


def event(x: Any) -> Any:
    return tg.TimestampedValue((x[0], x[1]), x[2] / 1000)


def pair(x: Any) -> Any:
    return (x, {x: [x]})


def plain(p: tg.Pipeline) -> Any:
    return p | ONE | tg.Map(lambda x: x) | tg.Filter(bool) | tg.FlatMap(lambda x: [x])


def windowed(p: tg.Pipeline) -> Any:
    return p | ONE | tg.WindowInto(tg.SlidingWindows(4, 2)) | "again" >> tg.WindowInto(TEN) | tg.Map(lambda x: x)


def unsure(p: tg.Pipeline) -> Any:
    return p | ONE | tg.Map(anything) | tg.FlatMap(anything) | "last" >> tg.Map(anything)


def letters(p: tg.Pipeline) -> Any:
    good, _ = p | ONE | tg.FlatMap(lambda x: [x]).with_exception_handling()
    better, _ = good | "again" >> tg.Map(lambda x: x).with_exception_handling()
    return better


def timed_letters(p: tg.Pipeline) -> Any:
    good, _ = p | ONE | tg.Map(stamped) | tg.Map(lambda x: x + 1).with_exception_handling()
    return good


def grouped(p: tg.Pipeline) -> Any:
    return p | ONE | tg.WindowInto(TEN) | tg.Map(lambda x: x) | tg.CombinePerKey(sum)


def unpacked(p: tg.Pipeline) -> Any:
    return p | ONE | tg.WindowInto(TEN) | tg.GroupByKey()


def several(p: tg.Pipeline) -> Any:
    return p | ONE | tg.FlatMap(lambda x: [x]) | tg.Filter(bool) | tg.CombinePerKey(sum)


def listed(p: tg.Pipeline) -> Any:
    return p | ONE | tg.Map(lambda x: x) | tg.GroupByKey()


LOOPS: dict[str, tuple[Callable[[tg.Pipeline], Any], Shape, str | None]] = {
    "plain": (plain, Shape(), None),
    "plain_timed": (plain, Shape(timed=True, times_by_index=True), None),
    "plain_checked": (
        plain,
        Shape(timed=True, indexed=True, windows="each", checked=True, typed=True),
        None,
    ),
    "windows": (windowed, Shape(timed=True, windows="derived", in_several=True), None),
    "any_results": (unsure, Shape(timed=True, times_by_index=True), None),
    "stamped_results": (unsure, Shape(timed=True, windows="same", stamps=frozenset({0, 2})), None),
    "dead_letters": (letters, Shape(timed=True), None),
    "dead_letters_checked": (letters, Shape(checked=True), None),
    "fold_single": (grouped, Shape(timed=True, windows="derived"), "single"),
    "fold_multi": (grouped, Shape(timed=True, windows="each", indexed=True), "multi"),
    "fold_lists": (listed, Shape(), "global"),
    "fold_unpacked": (unpacked, Shape(timed=True, times_by_index=True, windows="derived", column="list"), "inside"),
    "fold_pairs": (lambda p: p | ONE | tg.GroupByKey(), Shape(column="pairs"), "global"),
    "fold_raw": (lambda p: p | ONE | tg.CombinePerKey(max), Shape(column="list", raw=True), "same"),
    "fold_several": (several, Shape(timed=True, windows="derived"), "single"),
}


def graded(name: str, points: int) -> tuple[str, str]:
    for limit, grade in ((90, "A"), (80, "B")):
        if points >= limit:
            return name, grade
    name += "?"
    return name, "F"


def sized(pair: tuple[str, str]) -> Any:
    size = len(pair[0])
    return tg.TaggedOutput("large", size) if size > 9 else size


def known(pair: tuple[str, int]) -> bool:
    return bool(pair[0])


def odd(pair: tuple[str, int]) -> Iterator[tuple[str, int]]:
    name, count = pair
    for number in range(count):
        if number % 2:
            yield name, number


def shared(pair: tuple[str, int]) -> Iterator[tuple[str, float]]:
    name, count = pair
    yield name, 0.0
    share = 1 / count
    for letter in name:
        yield letter, share


INLINED: dict[str, tuple[Callable[[tg.Pipeline], Any], Shape, str | None]] = {
    "inlined": (lambda p: p | ONE | tg.Map(doubled) | tg.Filter(scaled(2)) | tg.FlatMap(spread), Shape(), None),
    "inlined_timed": (
        timed_letters,
        Shape(timed=True, indexed=True, windows="each", checked=True),
        None,
    ),
    "inlined_fold": (
        lambda p: p | ONE | tg.WindowInto(TEN) | tg.Map(pair) | tg.CombinePerKey(sum),
        Shape(timed=True, windows="derived"),
        "single",
    ),
}
INLINED["inlined_timestamps"] = (
    lambda p: p | ONE | tg.Map(event) | tg.WindowInto(TEN) | tg.CombinePerKey(sum),
    Shape(windows="same", stamps=frozenset({0})),
    "single",
)
INLINED["inlined_statements"] = (
    lambda p: p | ONE | tg.MapTuple(graded) | tg.Map(sized).with_outputs("large"),
    Shape(),
    None,
)
INLINED["inlined_generator"] = (lambda p: p | ONE | tg.FlatMap(odd) | tg.Filter(known), Shape(), None)
INLINED["inlined_fold_several"] = (lambda p: p | ONE | tg.FlatMap(shared) | tg.CombinePerKey(sum), Shape(), "global")
INLINED["inlined_fold_generator"] = (
    lambda p: p | ONE | tg.FlatMapTuple(lambda k, n: ((k + letter, n + 1) for letter in k)) | tg.GroupByKey(),
    Shape(),
    "same",
)
STATEFUL: dict[str, Shape] = {
    "stateful_one_window": Shape(timed=True),
    "stateful_single": Shape(timed=True, windows="derived", stamps=frozenset({0})),
    "stateful_each_checked": Shape(timed=True, windows="each", indexed=True, checked=True, typed=True),
}


def fold_of(sealed: Any, windows: str | None) -> Any:
    """The fold at the end of a pipeline, whose windows are found in this way; None if there is none."""
    if windows is None:
        return None
    node = sealed.nodes[-1]
    assert isinstance(node, (GroupByKey, CombinePerKey))
    return Grouping(node, "whole", context(), "main").fold(windows)  # type: ignore[arg-type]


def generated() -> Iterator[tuple[str, str]]:
    """Every case's name, and the code that is generated for it."""
    for name, (make, shape, windows) in LOOPS.items():
        sealed, links = links_of(make)
        yield name, text_of(generate_loop(links, shape, fold_of(sealed, windows)))
    for name, (make, shape, windows) in INLINED.items():
        sealed, links = links_of(make)
        bodies = Inlining(links).bodies
        inlined = shape._replace(inlined=frozenset(bodies))
        yield name, printed(generate_loop(links, inlined, fold_of(sealed, windows), bodies))
    _, (link,) = links_of(lambda p: p | ONE | tg.ParDo(Counted()))
    node = link.node
    assert isinstance(node, ParDo)
    declared = Declarations(("total", "fresh"), frozenset({"fresh"}), ("flush",), arrivals=False)
    for name, state_shape in STATEFUL.items():
        yield name, text_of(generate_process(link, declared, state_shape))
    for watched in (False, True):
        form = generate_callback(node.callbacks[0], declared, 0, watched=watched)
        yield f"callback{'_watched' * watched}", text_of(form)


@pytest.fixture(scope="module")
def codes() -> dict[str, str]:
    return dict(generated())


NAMES = [*LOOPS, *INLINED, *STATEFUL, "callback", "callback_watched"]


@pytest.mark.parametrize("name", NAMES)
def test_the_generated_code_equals_the_golden_file(name: str, codes: dict[str, str]) -> None:
    assert codes[name] == (DIRECTORY / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_all_generated_code_compiles(name: str, codes: dict[str, str]) -> None:
    assert "run" in compile(codes[name], name, "exec").co_names


def test_every_case_has_a_file_and_every_file_has_a_case(codes: dict[str, str]) -> None:
    assert sorted(codes) == sorted(NAMES) == sorted(path.stem for path in DIRECTORY.iterdir())


if __name__ == "__main__":
    for name, code in generated():
        (DIRECTORY / f"{name}.txt").write_text(code)
