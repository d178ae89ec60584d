"""Functions for timestamps whose expression stands in a loop: nothing but speed can show it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine.sources.created import Created
from tidegate.runners.engine.sources.timestamps import TimestampFunction
from tidegate.sdk.user_code.user_fn import UserFn

N = 5000
SCALE = 1000


def divided(field: int) -> Callable[[Any], Any]:
    return lambda element: element[field] / SCALE


def found(n: Any, by: int = 7) -> Any:
    return sum([k for k in (n, by) if k])


def branches(n: Any) -> Any:
    if n % 2:
        return n
    return n + 0.5


INLINED: dict[str, tuple[Callable[[Any], Any], Callable[[int], Any]]] = {
    "a captured variable and a global": (divided(1), lambda n: (n, n + 1)),
    "a default": (found, lambda n: n),
}
CALLED: dict[str, tuple[Callable[[Any], Any], Callable[[int], Any]]] = {
    "statements": (branches, lambda n: n),
    "a frame": (lambda n: len(sys._getframe().f_code.co_name) + n, lambda n: n),
    "C": (float, lambda n: n),
}


def must_not_be_called(element: Any) -> Any:
    raise AssertionError(element)


@pytest.mark.parametrize("name", [*INLINED, *CALLED])
def test_timestamps_are_those_of_the_function(name: str) -> None:
    fn, element = (INLINED | CALLED)[name]
    elements = [element(n) for n in range(N)]
    made = TimestampFunction(UserFn.of(fn), inline=True)
    expected = [fn(each) for each in elements]
    assert [*made.of(elements[:3]), *made.of(elements[3:])] == expected
    if name in INLINED:
        made.call = must_not_be_called
        assert made.of(elements) == expected


def test_a_profiler_sees_the_calls() -> None:
    made = TimestampFunction(UserFn.of(divided(0)), inline=True)
    assert made.of([(n,) for n in range(N)])[5] == 0.005
    made.call = must_not_be_called
    before = sys.getprofile()
    sys.setprofile(lambda *event: None)
    try:
        with pytest.raises(AssertionError):
            made.of([(1,)] * N)
    finally:
        sys.setprofile(before)


def test_functions_are_called_with_inline_off() -> None:
    made = TimestampFunction(UserFn.of(divided(0)), inline=False)
    made.call = must_not_be_called
    with pytest.raises(AssertionError):
        made.of([(1,)] * N)


def stops(n: int) -> float:
    return next(iter([] if n == N - 2 else [n]))


@pytest.mark.parametrize("fn", [lambda n: 1 / (n - N + 2), stops], ids=["fails", "stops"])
def test_an_error_is_that_of_the_call(fn: Callable[[int], float]) -> None:
    messages = []
    for inline in ("off", "on"):
        pipeline = tg.Pipeline("direct", {"inline": inline})
        _ = pipeline | "read" >> tg.Read(Created(range(N)), timestamp=fn) | tg.Map(str)
        with pytest.raises(tg.UserCodeError, match=f"element: {N - 2}") as caught:
            pipeline.run()
        assert caught.value.__cause__ is not None
        trace = caught.value.__cause__.__traceback__
        messages.append((str(caught.value), trace and trace.tb_frame.f_code.co_name))
    assert messages[0] == messages[1]
