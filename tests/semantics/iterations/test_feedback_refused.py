"""Feedback loops that are refused when they are built, each with its message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg


def body(x: Any) -> Any:
    return tg.Round(x | "back" >> tg.Filter(bool), out=x)


def with_side_input(x: Any) -> Any:
    return tg.Round(x | "add" >> tg.Map(lambda n, of: n + len(of), tg.AsList(x)), out=x)


def feedback(function: Any, **arguments: Any) -> Callable[[Any], object]:
    return lambda x: x | "loop" >> tg.Feedback(function, **arguments)


CASES: dict[str, tuple[Callable[[Any], object], str]] = {
    "no function": (feedback(3), "Feedback takes a function of a PCollection, not 3"),
    "a body of two arguments": (
        feedback(lambda x, out: x),
        "a body is called with the collection that goes round, and <lambda>(x, out) can't be called so: missing a "
        "required argument: 'out'",
    ),
    "hops of a kind": (feedback(body, max_hops=2.0), "max_hops is a number, not 2.0"),
    "less than no hops": (feedback(body, max_hops=-1), "max_hops is at least 0, not -1"),
    "size of a kind": (
        feedback(body, max_backlog=None),
        'max_backlog is a number of bytes, such as "64MB", not None',
    ),
    "no size": (
        feedback(body, max_backlog="much"),
        "max_backlog: 'much' is not a size such as 512k, 256MB or 4GiB",
    ),
    "a number of rounds": (
        feedback(lambda x: tg.Round(x | "back" >> tg.Map(lambda n, r=tg.DoFn.RoundParam: n - r), out=x)),
        "'loop/back' takes tg.DoFn.RoundParam, the number of a round, and a Feedback has no rounds: count in the "
        "element how often it has gone round",
    ),
    "several collections": (
        lambda x: (x, x) | tg.Feedback(body),
        "Feedback applies to a PCollection, not to (<PCollection 'numbers' of int: bounded>, <PCollection 'numbers' "
        "of int: bounded>)",
    ),
    "no round": (
        feedback(lambda x: x),
        "<lambda> must return tg.Round(back, out=…), the collection that comes round again and what leaves the loop, "
        "and returned <PCollection 'loop~before' of int: unbounded>",
    ),
    "out of another pipeline": (
        feedback(lambda x: tg.Round(x | "back" >> tg.Map(lambda n: n), out=tg.Pipeline() | "loop" >> tg.Create([3]))),
        "<PCollection 'loop' of int: bounded> belongs to another pipeline than the loop",
    ),
    "nothing leaves": (
        feedback(lambda x: tg.Round(x)),
        "nothing leaves this loop: say what does, as in tg.Round(back, out=done)",
    ),
    "again": (
        feedback(lambda x: tg.Round(x, again=x, out=x)),
        "a Feedback has no rounds, so there is no `again`: it is over when its input has ended and nothing is under "
        "way. What is not to come round again, leave out of what is fed back",
    ),
    "the name of an output": (
        feedback(lambda x: tg.Round(x, out={"too_far": x})),
        "out can't be named 'too_far', the name of the output for max_hops",
    ),
    "numbers as names": (
        feedback(lambda x: tg.Round(x, out={1: x, 2: x})),
        "the names in out are non-empty strings, not 1, 2",
    ),
    "out of a kind": (feedback(lambda x: tg.Round(x, out=3)), "out of a loop is a PCollection, not 3"),
    "nothing of the input": (
        lambda x: x | tg.Feedback(lambda before: tg.Round(x, out=before)),
        "what is fed back does not come from what the body takes, so nothing would go round",
    ),
    "out of elsewhere": (
        lambda x: x | tg.Feedback(lambda before: tg.Round(before, out={"all": x})),
        "out['all'] does not come from what the body takes: use it outside the loop, where it is the same",
    ),
    "other windows": (
        feedback(lambda x: tg.Round(x | tg.WindowInto(tg.FixedWindows(3)), out=x)),
        "the body returns other windows than it takes, so no other round can follow: their windows differ: "
        "GlobalWindows() and FixedWindows(size=Duration(3s), offset=Duration(0s)). Apply the same WindowInto to both",
    ),
    "a side input of the loop": (
        feedback(with_side_input),
        "the side input 'loop~before' of 'loop/add' comes from the loop itself, whose elements would wait for one "
        "another: keep it in state, or take it from outside the loop",
    ),
    "a loop inside": (
        feedback(lambda x: tg.Round(x | tg.Iterate(lambda y: y | tg.Map(abs), rounds=2), out=x)),
        "'loop/Iterate' is a loop with rounds in the body of a Feedback: apply it outside",
    ),
    "inside a loop": (
        lambda x: x | "outer" >> tg.Iterate(lambda y: y | tg.Feedback(body), rounds=2),
        "a Feedback can't be in the body of another loop: apply it to what that loop gives, or feed back in the outer "
        "loop",
    ),
    "unnamed out of rounds": (
        lambda x: x | "outer" >> tg.Iterate(lambda y: tg.Round(y | tg.Map(abs), out=y), rounds=2),
        "out names what leaves the loop, as in out={\"name\": pcoll}: it is <PCollection 'outer~before' of int: "
        "bounded>",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_loop_that_cannot_be_is_refused(case: str) -> None:
    build, message = CASES[case]
    numbers = tg.Pipeline() | "numbers" >> tg.Create([1, 2])
    with pytest.raises(tg.BuildError) as caught:
        build(numbers)
    assert str(caught.value).splitlines()[0] == message


def test_what_is_fed_back_has_the_type_of_the_input() -> None:
    numbers = tg.Pipeline() | tg.Create([1, 2])
    with pytest.raises(tg.TypeCheckError, match=r"the body returns str and takes int"):
        _ = numbers | tg.Feedback(lambda x: tg.Round(x | tg.Map(str), out=x))
