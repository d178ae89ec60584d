"""Methods whose text stands in a loop: those of DoFns, and those of other objects."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.engine.loops import test_inlined_combiners
from tidegate.runners.engine.loops.inlining import INLINED
from tidegate.sdk.errors import TidegateError


class Yields(tg.DoFn):
    """Has state of its own, which the other methods change."""

    def setup(self) -> None:
        self.seen = 100

    def start_bundle(self) -> None:
        self.seen += 1

    def process(self, x: Any) -> Iterator[Any]:
        self.seen += x
        if x % 3:
            yield x, self.seen


class Returns(tg.DoFn):
    __each = 2

    def process(self, x: Any) -> Any:
        self.last = [x] * self.__each
        return self.last


class WithParameters(tg.DoFn):
    def process(self, x: Any, t: Any = tg.DoFn.TimestampParam, more: int = 3) -> Iterator[Any]:
        yield x, float(t), more, type(self).__name__


class AssignsSelf(tg.DoFn):
    def process(self, x: Any) -> Any:
        before = type(self).__name__
        self = x
        return [(before, self)]


class Tagged(tg.DoFn):
    def process(self, x: Any) -> Iterator[Any]:
        yield x if x % 2 else tg.TimestampedValue(x, 7)


class Fails(tg.DoFn):
    def process(self, x: Any) -> Iterator[Any]:
        yield 1 // (x - 5)


class CallsItself(tg.DoFn):
    def process(self, x: Any) -> Any:
        return [x] if x < 2 else [y + 1 for y in self.process(x - 2)]


class CallsAnother(tg.DoFn):
    def twice(self, x: Any) -> Any:
        return x // (x - 8) * 2

    def process(self, x: Any) -> Any:
        return [self.twice(x)]


class Helper:
    factor = 5

    def times(self, x: Any) -> Any:
        return x * self.factor

    def plus(self, x: Any, y: Any) -> Any:
        return x + y + self.factor


class WithSuper(Returns):
    def process(self, x: Any) -> Any:
        return super().process(x)


class OfClass:
    factor = 5

    @classmethod
    def times(cls, x: Any) -> Any:
        return x * cls.factor


class Replaced(tg.DoFn):
    def __init__(self) -> None:
        self.process = divmod_of_two  # type: ignore[method-assign]

    def process(self, x: Any) -> Any:
        raise AssertionError(x)


def divmod_of_two(x: Any) -> Any:
    return divmod(x, 2)


INLINED_STEPS: dict[str, Callable[[], Any]] = {
    "yields": lambda: tg.ParDo(Yields()),
    "returns": lambda: tg.ParDo(Returns()),
    "parameters": lambda: tg.ParDo(WithParameters()),
    "assigns self": lambda: tg.ParDo(AssignsSelf()),
    "stamps": lambda: tg.ParDo(Tagged()),
    "fails": lambda: tg.ParDo(Fails()),
    "calls itself": lambda: tg.ParDo(CallsItself()),
    "calls another method": lambda: tg.ParDo(CallsAnother()),
    "a bound method": lambda: tg.Map(Helper().times),
}
CALLED_STEPS: dict[str, Callable[[], Any]] = {
    "super": lambda: tg.ParDo(WithSuper()),
    "a method of a class": lambda: tg.Map(OfClass.times),
    "items of a tuple": lambda: tg.MapTuple(Helper().plus),
}


def shown(inline: str, made: Any, checks: str, *, pairs: bool = False) -> tuple[Any, int]:
    """The results and metrics of a run, or its error; and how many elements the step was inlined for."""
    pipeline = tg.Pipeline(options={"inline": inline, "checks": checks, "type_check": "off"})
    values = pipeline | tg.Create([tg.TimestampedValue((x, x) if pairs else x, x) for x in range(10)])
    values | "step" >> made | "note" >> tg.Map(_note)
    noted = test_inlined_combiners.NOTED
    noted.clear()
    try:
        metrics = pipeline.run().metrics()
    except TidegateError as error:
        return (str(error), traceback.format_exception(error.__cause__), list(noted)), 0
    counters = {each.key: each.value for each in metrics.query() if each.key.name != INLINED}
    inlined = sum(each.value for each in metrics.query(INLINED) if each.key.step == "step")
    return (list(noted), counters), inlined


def _note(x: Any, t: Any = tg.DoFn.TimestampParam) -> None:
    from tests.engine.loops import test_inlined_combiners

    test_inlined_combiners.NOTED.append(f"{x!r} at {t}")


@pytest.mark.parametrize(("inline", "checks"), [("on", "off"), ("always", "all")])
@pytest.mark.parametrize("name", INLINED_STEPS)
def test_an_inlined_method_is_the_method(name: str, inline: str, checks: str) -> None:
    called, none = shown("off", INLINED_STEPS[name](), checks)
    inlined, some = shown(inline, INLINED_STEPS[name](), checks)
    assert inlined == called
    assert none == 0
    assert len(called) == 3 or some == 10


@pytest.mark.parametrize("name", CALLED_STEPS)
def test_a_method_is_called_if_a_loop_could_be_seen(name: str) -> None:
    called, inlined = (
        shown(inline, CALLED_STEPS[name](), "off", pairs=name == "items of a tuple") for inline in ("off", "always")
    )
    assert inlined == called
    assert len(called[0]) == 2


def test_a_function_that_replaces_the_method_of_an_object_is_what_runs() -> None:
    called, _ = shown("off", tg.ParDo(Replaced()), "off")
    assert shown("on", tg.ParDo(Replaced()), "off")[0] == called
    assert [line.partition(" at ")[0] for line in called[0]][:4] == ["0", "0", "0", "1"]
