"""A step whose function returns one value as its results, such as a str, is refused at whatever element it does so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest

import tidegate as tg
from tidegate.testing import TestPipeline, assert_that, equal_to

SEEN = tg.CombiningStateSpec("seen", sum)
DUE = tg.EventTimer("due")
TO_TEXT = {"bytes": str.encode, "dict": lambda text: {text: 1}, "str": str}


def results(n: int, kind: str, at: int) -> Iterable[str]:
    """None, a tuple or a list, and from the element `at` on one value."""
    if n < at:
        return cast(Iterable[str], (None, (str(n),), [str(n)])[n % 3])
    return cast(Iterable[str], cast(Any, TO_TEXT[kind])(str(n)))


class Process(tg.DoFn):
    """Returns its results."""

    def process(self, n: int, kind: str, at: int) -> Any:
        return results(n, kind, at)


class Stateful(tg.DoFn):
    """Returns its results, and has state."""

    def process(self, pair: tuple[int, int], kind: str, at: int, seen: Any = tg.DoFn.StateParam(SEEN)) -> Any:
        seen.add(1)
        return results(pair[1], kind, at)


class Timed(tg.DoFn):
    """Returns one value from a callback."""

    def process(self, pair: tuple[int, int], due: Any = tg.DoFn.TimerParam(DUE)) -> None:
        due.set(10)

    @tg.on_timer(DUE)
    def report(self, key: Any = tg.DoFn.KeyParam) -> Any:
        return {"key": key}


class Bundled(tg.DoFn):
    """Returns one value at the end of a bundle."""

    def process(self, n: int) -> None: ...

    def finish_bundle(self) -> Any:
        return {"last": 1}


class Yields(tg.DoFn):
    """Yields dicts, each of which is a result."""

    def process(self, n: int) -> Iterator[dict[str, int]]:
        yield {"n": n}


STEPS = {
    "plain": lambda kind, at: tg.FlatMap(results, kind, at),
    "inlined": lambda kind, at: tg.FlatMap(lambda n: cast(Any, TO_TEXT[kind])(str(n)) if n >= at else [n]),
    "caught": lambda kind, at: tg.FlatMap(results, kind, at).with_exception_handling(),
    "partial": lambda kind, at: tg.FlatMap(results, kind, at).with_exception_handling(partial=True),
    "process": lambda kind, at: tg.ParDo(Process(), kind, at),
    "stateful": lambda kind, at: tg.ParDo(Stateful(), kind, at),
}


def failure(step: Any, elements: Iterable[Any], **options: Any) -> str:
    pipeline = tg.Pipeline("direct", options)
    _ = pipeline | tg.Create(elements) | "step" >> step
    with pytest.raises(tg.UserCodeError, match="in step 'step'") as caught:
        pipeline.run()
    return str(caught.value)


@pytest.mark.parametrize("kind", TO_TEXT)
@pytest.mark.parametrize("at", [20, 2500])
@pytest.mark.parametrize("name", STEPS)
def test_one_value_that_a_step_returns_after_many_elements_is_refused(name: str, at: int, kind: str) -> None:
    """The first elements are checked by another loop, and the first few of them are a part of their own."""
    elements = [(n % 7, n) for n in range(3000)] if name == "stateful" else range(3000)
    message = failure(STEPS[name](kind, at), elements)
    assert f"returned the {kind} " in message
    assert f"element: {(at % 7, at) if name == 'stateful' else at}" in message


@pytest.mark.parametrize("inline", ["on", "off", "always"])
def test_it_is_refused_however_the_function_is_run(inline: str) -> None:
    assert "returned the str '2500'" in failure(STEPS["inlined"]("str", 2500), range(3000), inline=inline)


@pytest.mark.parametrize("checks", ["off", "all"])
def test_one_value_that_a_callback_returns_is_refused(checks: str) -> None:
    assert "while calling report" in (message := failure(tg.ParDo(Timed()), [(1, 1)], checks=checks))
    assert "returned the dict {'key': 1}" in message


def test_one_value_that_the_end_of_a_bundle_returns_is_refused() -> None:
    assert "while calling finish_bundle" in (message := failure(tg.ParDo(Bundled()), [1]))
    assert "returned the dict {'last': 1}" in message


def test_one_value_that_a_step_yields_is_a_result() -> None:
    with TestPipeline() as pipeline:
        numbers = pipeline | tg.Create(range(2000)) | tg.ParDo(Yields()) | tg.Map(lambda each: each["n"])
        assert_that(numbers | tg.CombineGlobally(sum), equal_to([1999000]))
