"""Loops that are refused when they are built, each with its message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import TestStream


def refusal(build: Callable[[tg.Pipeline, Any], object], *, kind: type[Exception] = tg.BuildError) -> str:
    """The first line of the error that a loop over numbers is refused with."""
    p = tg.Pipeline()
    numbers = p | "numbers" >> tg.Create([1, 2])
    with pytest.raises(kind) as caught:
        build(p, numbers)
    return str(caught.value).splitlines()[0]


def plus_one(x: Any) -> Any:
    return x | tg.Map(lambda n: n + 1)


def iterate(body: Any, **arguments: Any) -> Callable[[tg.Pipeline, Any], object]:
    return lambda p, x: x | tg.Iterate(body, **{"rounds": 2, **arguments})


CASES: dict[str, tuple[Callable[[tg.Pipeline, Any], object], str]] = {
    "no end": (
        iterate(plus_one, rounds=None),
        "this loop would never end: give rounds=…, until=…, or both, or return tg.Round(new, again=…)",
    ),
    "less than no rounds": (iterate(plus_one, rounds=-1), "rounds is at least 0, not -1"),
    "rounds of a kind": (iterate(plus_one, rounds=2.0), "rounds is a number, not 2.0"),
    "strict without condition": (
        iterate(plus_one, strict=True),
        "strict fails loops whose condition is not met in time, and this one has none: give until=…",
    ),
    "no function": (iterate(3), "Iterate takes a function of a PCollection, not 3"),
    "no collection": (
        iterate(lambda x: 3),
        "<lambda> must return what the next round takes, a PCollection, and returned 3",
    ),
    "another number of variables": (
        iterate(lambda x: (x, x)),
        "<lambda> must return what the next round takes, a PCollection, and returned (<PCollection "
        "'Iterate~before' of int: bounded>, <PCollection 'Iterate~before' of int: bounded>)",
    ),
    "too few variables": (
        lambda p, x: (x, x) | tg.Iterate(lambda both: both[0], rounds=1),
        "<lambda> must return what the next round takes, the loop variables 1, 2, and returned a PCollection",
    ),
    "nothing of the round": (
        lambda p, x: x | tg.Iterate(lambda before: x | tg.Map(lambda n: n + 1), rounds=1),
        "what the body returns does not come from what it takes, so no round would differ from another",
    ),
    "other windows": (
        iterate(lambda x: x | tg.WindowInto(tg.FixedWindows(3))),
        "the body returns other windows than it takes, so no other round can follow: their windows differ: "
        "GlobalWindows() and FixedWindows(size=Duration(3s), offset=Duration(0s)). Apply the same WindowInto to both",
    ),
    "a sink": (
        iterate(lambda x: _written(x)),
        "'Iterate/WriteToText/Write' writes in the body of a loop: write what the loop gives, or what its rounds put "
        "in tg.Round(new, out={...})",
    ),
    "a source": (
        lambda p, x: x | tg.Iterate(lambda before: (before, p | tg.io.ReadFromText("*.txt")) | tg.Flatten(), rounds=1),
        "'Iterate/ReadFromText/Read' reads in the body of a loop: read in front of it. A body can use every collection "
        "of the pipeline, and finds the same elements in all rounds",
    ),
    "until of a kind": (
        iterate(plus_one, until=3),
        "until is tg.Settled(by=…), tg.Empty() or a function of what a round takes and what it returns, not 3",
    ),
    "which variable": (
        lambda p, x: {"a": x, "b": x} | tg.Iterate(lambda both: both, until=tg.Empty()),
        "Empty looks at one loop variable: say which, as in of='a'; there are 'a', 'b'",
    ),
    "no such variable": (
        lambda p, x: {"a": x, "b": x} | tg.Iterate(lambda both: both, until=tg.Empty(of="c")),
        "Empty(of='c'): there is no such loop variable; there are 'a', 'b'",
    ),
    "a distance": (lambda p, x: tg.Settled(by=-1), "Settled(by=…) takes a distance of at least 0, not -1"),
    "a name twice": (
        lambda p, x: {"a": x} | tg.Iterate(lambda of: tg.Round(of, out={"a": of["a"]}), rounds=1),
        "out can't be named 'a', which is the name of a loop variable",
    ),
    "again of a kind": (iterate(lambda x: tg.Round(x, again=3)), "again of a loop is a PCollection, not 3"),
    "a round without loop": (
        lambda p, x: x | tg.Map(lambda n, r=tg.DoFn.RoundParam: n),
        "tg.DoFn.RoundParam is the number of a loop's round, and this step is in no loop: apply it in the body of a "
        "tg.Iterate",
    ),
    "until of a stream": (
        lambda p, x: p | TestStream() | tg.Iterate(plus_one, until=tg.Empty()),
        "until and again need bounded input: on unbounded input no round ever has all of its elements, so it can't be "
        "decided whether another follows. Give only rounds, at most 64",
    ),
    "many rounds of a stream": (
        lambda p, x: p | TestStream() | tg.Iterate(plus_one, rounds=65),
        "on unbounded input a loop has at most 64 rounds, not 65",
    ),
}


def _written(x: Any) -> Any:
    _ = x | tg.Map(str) | tg.io.WriteToText("numbers")
    return x


@pytest.mark.parametrize("name", CASES)
def test_a_loop_is_refused(name: str) -> None:
    build, message = CASES[name]
    found = refusal(build)
    assert found == message


def test_a_body_that_returns_another_type_is_refused() -> None:
    message = refusal(iterate(lambda x: x | tg.Map(str)), kind=tg.TypeCheckError)
    assert message.startswith(
        "the body returns str and takes int, so no other round can follow: str given where int is"
    )


def test_a_collection_of_a_body_can_t_be_used_outside() -> None:
    inner: list[Any] = []

    def step(x: Any) -> Any:
        inner.append(x | "inner" >> tg.Map(lambda n: n + 1))
        return inner[0]

    def build(p: tg.Pipeline, x: Any) -> object:
        _ = x | tg.Iterate(step, rounds=1)
        return inner[0] | tg.Map(str)

    assert refusal(build) == (
        "PCollection('Iterate/inner') exists only in the rounds of 'Iterate', and can't be used outside. To get what "
        "all rounds put in it, return it from the body: tg.Round(new, out={...})"
    )
    with pytest.raises(tg.BuildError, match="exists only in the rounds of 'Iterate'"):
        inner[0].collect()


def test_a_refused_loop_leaves_nothing_in_the_pipeline() -> None:
    p = tg.Pipeline()
    numbers = p | tg.Create([1])
    with pytest.raises(tg.BuildError):
        _ = numbers | "loop" >> tg.Iterate(lambda x: (plus_one(x), x), rounds=1)
    assert [node.label for node in p.portable().nodes] == ["Create"]
    assert [collection.id for collection in p.portable().collections] == ["Create"]
    assert (numbers | "loop" >> tg.Iterate(plus_one, rounds=2)).collect() == [3]
