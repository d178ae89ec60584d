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


def elsewhere() -> Any:
    """A collection of another pipeline, which has the id of one of the pipeline with the loop."""
    return tg.Pipeline() | "numbers" >> tg.Create([3])


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
    "a body of two variables": (
        lambda p, x: (x, x) | tg.Iterate(lambda a, b: (b, a), rounds=2),
        "a body is called with what Iterate is applied to, several collections being one tuple or dict, and "
        "<lambda>(a, b) can't be called so: missing a required argument: 'b'",
    ),
    "a condition of one argument": (
        iterate(plus_one, until=lambda new: new),
        "until is called with what a round takes and what it returns, and <lambda> can't be called so: it takes one "
        "argument",
    ),
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
    "which of a tuple": (
        lambda p, x: (x, x) | tg.Iterate(lambda both: both, until=tg.Settled(of=0)),
        "Settled(of=0): there is no such loop variable; there are '1', '2'",
    ),
    "a class": (iterate(plus_one, until=tg.Empty), "tg.Empty is a class: write until=tg.Empty()"),
    "no result": (
        lambda p, x: x | tg.Iterate(lambda n: tg.Round(plus_one(n), out={"all": n}), rounds=1) | tg.Map(str),
        "the body of this loop returns a Round, so it has several results: write loop.result | …, or "
        "loop.out['all'] | …",
    ),
    "a distance": (lambda p, x: tg.Settled(by=-1), "Settled(by=…) takes a distance of at least 0, not -1"),
    "a name twice": (
        lambda p, x: {"a": x} | tg.Iterate(lambda of: tg.Round(of, out={"a": of["a"]}), rounds=1),
        "out can't be named 'a', which is the name of a loop variable",
    ),
    "the name of the result": (
        iterate(lambda x: tg.Round(x, out={"main": x})),
        "out can't be named 'main', which is the name of the result of a loop with one variable",
    ),
    "a number as a name": (
        iterate(lambda x: tg.Round(x, out={1: x, "1": x})),
        "the names in out are non-empty strings, not 1",
    ),
    "a number beside variables of a tuple": (
        lambda p, x: (x, x) | tg.Iterate(lambda both: tg.Round(both, out={1: both[0]}), rounds=2),
        "the names in out are non-empty strings, not 1",
    ),
    "no name": (
        iterate(lambda x: tg.Round(x, out={"": x})),
        "the names in out are non-empty strings, not ''",
    ),
    "numbers as variables": (
        lambda p, x: {1: x, "1": x} | tg.Iterate(lambda both: both, rounds=2),
        "the names of loop variables are non-empty strings, not 1",
    ),
    "another name returned": (
        lambda p, x: {"1": x} | tg.Iterate(lambda of: {1: of["1"]}, rounds=2),
        "<lambda> must return what the next round takes, the loop variables 1, and returned {1: <PCollection "
        "'Iterate:1~before' of int: bounded>}",
    ),
    "a round of the body": (
        iterate(lambda x, number=tg.DoFn.RoundParam: x),
        "<lambda>: parameter 'number' asks for tg.DoFn.RoundParam, and a body is called while the pipeline is built: "
        "ask for it in the functions of its steps",
    ),
    "a round of the end": (
        iterate(plus_one, until=lambda old, new, number=tg.DoFn.RoundParam: new),
        "<lambda>: parameter 'number' asks for tg.DoFn.RoundParam, and until is called while the pipeline is built: "
        "ask for it in the functions of its steps",
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
    "until from a stream": (
        lambda p, x: _deciding_from_a_stream(p, x),
        "until and again need bounded input: on unbounded input no round ever has all of its elements, so it can't be "
        "decided whether another follows. Give only rounds, at most 64",
    ),
    "until of another pipeline": (
        iterate(plus_one, until=lambda before, after: elsewhere()),
        "<PCollection 'numbers' of int: bounded> belongs to another pipeline than the loop",
    ),
    "again of another pipeline": (
        iterate(lambda x: tg.Round(plus_one(x), again=elsewhere())),
        "<PCollection 'numbers' of int: bounded> belongs to another pipeline than the loop",
    ),
    "out of another pipeline": (
        iterate(lambda x: tg.Round(plus_one(x), out={"all": elsewhere()})),
        "<PCollection 'numbers' of int: bounded> belongs to another pipeline than the loop",
    ),
    "a variable of another pipeline": (
        lambda p, x: (x, x) | tg.Iterate(lambda both: (plus_one(both[0]), elsewhere()), rounds=1),
        "<PCollection 'numbers' of int: bounded> belongs to another pipeline than the loop",
    ),
    "many rounds of a stream": (
        lambda p, x: p | TestStream() | tg.Iterate(plus_one, rounds=65),
        "on unbounded input a loop has at most 64 rounds, not 65",
    ),
}


def _deciding_from_a_stream(p: tg.Pipeline, x: Any) -> Any:
    stream = p | TestStream()
    return x | tg.Iterate(plus_one, until=lambda before, after: stream)


def _written(x: Any) -> Any:
    _ = x | tg.Map(str) | tg.io.WriteToText("numbers")
    return x


@pytest.mark.parametrize("name", CASES)
def test_a_loop_is_refused(name: str) -> None:
    build, message = CASES[name]
    found = refusal(build)
    assert found == message


def test_numbers_without_keys_do_not_settle() -> None:
    message = refusal(iterate(plus_one, until=tg.Settled(by=1)), kind=tg.TypeCheckError)
    assert message.startswith("tg.Settled takes pairs (key, value), but its input holds int")


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


@pytest.mark.parametrize("loop", [tg.Iterate, tg.Feedback])
@pytest.mark.parametrize("look", [lambda x: x.head(3), lambda x: (x | tg.Map(str)).collect(run_for=1)])
def test_a_body_can_t_look_at_what_its_rounds_have(loop: Any, look: Any) -> None:
    def body(x: Any) -> Any:
        return look(x)

    ends = {"rounds": 2} if loop is tg.Iterate else {}
    assert "exists only in the rounds of a loop, and nothing runs while the loop's body is called" in refusal(
        lambda p, x: x | loop(body, **ends)
    )


def test_a_body_can_look_at_what_is_outside() -> None:
    seen = []

    def body(x: Any) -> Any:
        seen.append(numbers.collect(runner="direct"))
        return x

    numbers = tg.Pipeline() | tg.Create([1, 2])
    _ = numbers | tg.Iterate(body, rounds=2)
    assert seen == [[1, 2]]


def test_a_refused_loop_leaves_nothing_in_the_pipeline() -> None:
    p = tg.Pipeline()
    numbers = p | tg.Create([1])
    with pytest.raises(tg.BuildError):
        _ = numbers | "loop" >> tg.Iterate(lambda x: (plus_one(x), x), rounds=1)
    assert [node.label for node in p.portable().nodes] == ["Create"]
    assert [collection.id for collection in p.portable().collections] == ["Create"]
    assert (numbers | "loop" >> tg.Iterate(plus_one, rounds=2)).collect() == [3]


def delta(body: Any, start: Any = None, **arguments: Any) -> Callable[[tg.Pipeline, Any], object]:
    def build(p: tg.Pipeline, numbers: Any) -> object:
        pairs = numbers | "pairs" >> tg.Map(lambda n: (n, n)).with_output_types(tuple[int, int])
        return ((pairs, pairs) if start is None else start(pairs)) | tg.IterateDelta(body, **arguments)

    return build


def windowed(windows: Any) -> Callable[[Any], Any]:
    return lambda pairs: (pairs | windows, pairs)


ANY = tg.Repeatedly(tg.AfterCount(1))
_RETURNS = "must return the updates of the solution, or a tuple of them and of the next workset, and returned"
_LOOKUPS = "a Solution can only be looked up: write `pairs | solution.lookup()`, which gives (key, (value, known))"
DELTA_CASES: dict[str, tuple[Callable[[tg.Pipeline, Any], object], str]] = {
    "a number as a name": (
        delta(lambda solution, work: tg.Round(work, out={1: work})),
        "the names in out are non-empty strings, not 1",
    ),
    "no function": (delta(3), "IterateDelta takes a function of a Solution and a PCollection, not 3"),
    "a body of one argument": (
        delta(lambda known: known),
        "a body is called with the Solution and the workset, and <lambda> can't be called so: it takes one argument",
    ),
    "less than no rounds": (delta(min, rounds=-1), "rounds is at least 0, not -1"),
    "rounds of a kind": (delta(min, rounds="2"), "rounds is a number, not '2'"),
    "changed of a kind": (delta(min, changed=0.1), "changed is a function of the old and the new value, not 0.1"),
    "a merge that can't be repeated": (
        delta(min, merge=len),
        "merge is applied to its own results, so it is min, max, sum or tg.associative(fn), not len",
    ),
    "a merge of all values": (
        delta(min, merge=sorted),
        "merge is applied to its own results, so it is min, max, sum or tg.associative(fn), not sorted",
    ),
    "nothing returned": (delta(lambda solution, work: None), f"<lambda> {_RETURNS} None"),
    "the solution returned": (
        delta(lambda solution, work: solution),
        f"<lambda> {_RETURNS} the Solution: {_LOOKUPS}",
    ),
    "again of another pipeline": (
        delta(lambda solution, work: tg.Round(work, again=elsewhere())),
        "<PCollection 'numbers' of int: bounded> belongs to another pipeline than the loop",
    ),
    "the solution read": (delta(lambda solution, work: solution | tg.Map(str)), _LOOKUPS),
    "a workset of another type": (
        delta(lambda solution, work: (work, work | tg.Map(str))),
        "the body returns str as workset and takes tuple[int, int], so no other round can follow: str given where "
        "tuple[int, int] is wanted. If the type of its last step is wrong, correct it with .with_output_types(...)",
    ),
    "no pairs": (
        delta(lambda solution, work: work | tg.Map(str)),
        "the solution takes pairs (key, value), but its input holds str: str given where tuple[Any, Any] is wanted. "
        "tg.WithKeys(fn) makes pairs, with the key that fn returns for an element",
    ),
    "other windows": (
        delta(
            lambda solution, work: work | "looked up" >> solution.lookup(),
            windowed(tg.WindowInto(tg.FixedWindows(10))),
        ),
        "the pairs are in other windows than the solution: GlobalWindows() and "
        "FixedWindows(size=Duration(10s), offset=Duration(0s)). Give both the same "
        "WindowInto",
    ),
    "windows that merge": (
        delta(min, windowed(tg.WindowInto(tg.Sessions(10)))),
        "the solution is in windows that merge, Sessions(gap=Duration(10s)), which a round would merge with "
        "others: apply another WindowInto",
    ),
    "several panes": (
        delta(
            min,
            windowed(
                tg.WindowInto(tg.FixedWindows(10), trigger=tg.Repeatedly(tg.AfterCount(1)), accumulation=tg.DISCARDING)
            ),
        ),
        "the solution's trigger can fire more than once for a window, so a key would have several values: apply "
        "WindowInto with the trigger tg.AfterWatermark() and no allowed lateness",
    ),
}


@pytest.mark.parametrize("case", DELTA_CASES)
def test_a_loop_with_a_solution_that_can_t_be_repeated_is_refused(case: str) -> None:
    build, message = DELTA_CASES[case]
    kind = tg.TypeCheckError if case in ("a workset of another type", "no pairs") else tg.BuildError
    assert refusal(build, kind=kind) == message


def test_a_solution_needs_bounded_input_and_a_pair() -> None:
    p = tg.Pipeline()
    stream = p | TestStream().with_output_types(tuple[int, int])
    with pytest.raises(tg.BuildError, match="IterateDelta needs bounded input: on unbounded input no round ever has"):
        _ = (stream, stream) | tg.IterateDelta(lambda solution, work: work)
    with pytest.raises(tg.BuildError, match=r"applies to a pair of PCollections, \(solution, workset\) \| tg.Iterate"):
        _ = (stream,) | "one" >> tg.IterateDelta(lambda solution, work: work)


def test_a_name_that_a_loop_lacks_is_refused_with_those_that_it_has() -> None:
    numbers = tg.Pipeline() | tg.Create([1])
    loop: Any = numbers | tg.Iterate(lambda before: tg.Round(before, out={"odd": before, "even": before}), rounds=1)
    with pytest.raises(tg.BuildError, match="the loop has no output 'od'; it has: odd, even"):
        loop.out["od"]
