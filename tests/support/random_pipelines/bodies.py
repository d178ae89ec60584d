"""Random bodies of loops, as data that both an Iterate and its unrolling are built from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from hypothesis import strategies as st

import tidegate as tg

Body: TypeAlias = tuple[tuple[str, int], ...]
"""Steps, each with a small number that it uses."""

STEPS = (
    "add", "keep", "twice", "sum", "group", "join", "join with itself", "look up", "count", "merge", "window", "stamp",
    "state", "distinct", "shuffle", "loop", "swap", "inner join", "outer join", "split", "spread", "join three",
    "sessions", "round", "return the other variable", "return what it takes",
)  # fmt: skip

MULTIPLYING = ("twice", "merge", "join with itself", "inner join", "outer join", "spread", "join three")

FORMS = ("one variable", "two variables", "with what each round gives")
"""What a loop has besides its body."""


def bodies() -> st.SearchStrategy[Body]:
    """Bodies of one to four steps, with at most one that multiplies elements."""
    steps = st.tuples(st.sampled_from(STEPS), st.integers(0, 3))
    return st.lists(steps, min_size=1, max_size=4).map(_with_few_copies)


def inputs() -> st.SearchStrategy[list[tuple[int, tuple[int, int]]]]:
    """Elements: timestamps (s), with pairs of a key and a value."""
    return st.lists(st.tuples(st.integers(0, 25), st.tuples(st.integers(0, 3), st.integers(0, 9))), max_size=6)


def multiplies(body: Iterable[tuple[str, int]]) -> bool:
    """Whether one of the steps multiplies elements."""
    return any(step in MULTIPLYING for step, _ in body)


def _with_few_copies(steps: list[tuple[str, int]]) -> Body:
    kept: list[tuple[str, int]] = []
    for step in steps:
        if step[0] not in MULTIPLYING or not multiplies(kept):
            kept.append(step)
    return tuple(kept)


def apply(pcoll: Any, body: Body, constant: Any, depth: int = 0, turn: int | None = None) -> Any:
    """Apply the steps of a body to a keyed collection. `turn` is the number of the round, where it is known here."""
    for number, (step, n) in enumerate(body):
        pcoll = pcoll | f"{number} {step}" >> tg.ptransform_fn(_step)(step, n, constant, depth, turn)
    return pcoll


def iterated(pcoll: Any, body: Body, constant: Any, rounds: int, form: str = FORMS[0]) -> Any:
    """The body in an Iterate."""
    match form:
        case "two variables":
            other = constant | tg.WindowInto(pcoll.windowing.assigner)
            return (
                (pcoll, other) | tg.Iterate(lambda both: _both(both, body, constant, None), rounds=rounds) | _Marked()
            )
        case "with what each round gives":
            made = pcoll | tg.Iterate(lambda before: _given(apply(before, body, constant)), rounds=rounds)
            return (made.result, made.out["given"]) | _Marked()
    return pcoll | tg.Iterate(lambda before: apply(before, body, constant), rounds=rounds)


def unrolled(pcoll: Any, body: Body, constant: Any, rounds: int, form: str = FORMS[0]) -> Any:
    """The body applied by hand."""
    both, given = (pcoll, constant | tg.WindowInto(pcoll.windowing.assigner)), []
    for turn in range(1, rounds + 1):
        if form == "two variables":
            both = both | f"round {turn}" >> tg.ptransform_fn(_both)(body, constant, turn)
            continue
        pcoll = pcoll | f"round {turn}" >> tg.ptransform_fn(apply)(body, constant, 0, turn)
        given.append(pcoll)
    match form:
        case "two variables":
            return both | _Marked()
        case "with what each round gives":
            none = pcoll | "none" >> tg.Filter(lambda _: False)
            return (pcoll, (*given, none) | "given" >> tg.Flatten()) | _Marked()
    return pcoll


def _both(both: Any, body: Body, constant: Any, turn: int | None) -> Any:
    """Two variables, of which each is made of both."""
    one, other = both
    joined = one | "joined" >> tg.Join.left(other | tg.CombinePerKey(max))
    return (
        joined | tg.MapValues(lambda vw: (vw[0] + (vw[1] or 0)) % 11).with_output_types(tuple[int, int]),
        other | "body" >> tg.ptransform_fn(apply)(body, constant, 0, turn),
    )


def _given(made: Any) -> tg.Round[Any]:
    return tg.Round(made, out={"given": made})


class _Marked(tg.PTransform):
    """Two collections in one, by the number of the collection."""

    def expand(self, both: Any) -> Any:
        marked = [part | f"mark {at}" >> tg.Map(lambda pair, at: (at, pair), at) for at, part in enumerate(both)]
        return tuple(marked) | tg.Flatten()


def _step(pcoll: Any, step: str, n: int, constant: Any, depth: int, turn: int | None) -> Any:
    pairs = tuple[int, int]
    match step:
        case "spread":
            return pcoll | tg.FlatMap(_spread, n).with_output_types(pairs) | tg.CombinePerKey((sum, min, max, sum)[n])
        case "join three":
            windowed = constant | tg.WindowInto(pcoll.windowing.assigner)
            other = pcoll | "other" >> tg.Map(lambda pair: (pair[1] % 4, pair[0])).with_output_types(pairs)
            three = (
                (pcoll, windowed, other),
                (windowed, pcoll, windowed),
                (other, windowed, pcoll),
                (windowed, windowed, other),
            )
            joined = three[n] | tg.CoGroupByKey()
            return joined | tg.MapValues(lambda found: sum(map(sum, found)) % 13).with_output_types(pairs)
        case "sessions":
            before = pcoll.windowing.assigner
            sessions = pcoll | tg.WindowInto(tg.Sessions(2 + n)) | tg.CombinePerKey(sum)
            return sessions | tg.MapValues(lambda v: v % 7) | tg.WindowInto(before)
        case "round" if turn is None:
            return pcoll | tg.Map(_in_round, tg.DoFn.RoundParam).with_output_types(pairs)
        case "round":
            return pcoll | tg.Map(_in_round, turn).with_output_types(pairs)
        case "add":
            return pcoll | tg.MapTuple(lambda k, v: (k, (v + n) % 11)).with_output_types(pairs)
        case "keep":
            return pcoll | tg.Filter(lambda pair: pair[1] % 4 != n)
        case "twice":
            return pcoll | tg.FlatMap(lambda pair: [pair, (pair[0], (pair[1] + n) % 5)]).with_output_types(pairs)
        case "sum":
            return pcoll | tg.CombinePerKey(sum) | tg.MapValues(lambda v: v % 13)
        case "group":
            return pcoll | tg.GroupByKey() | tg.MapValues(lambda vs: (sum(vs) + n) % 13).with_output_types(pairs)
        case "join":
            windowed = constant | tg.WindowInto(pcoll.windowing.assigner)
            return (pcoll, windowed) | tg.CoGroupByKey() | tg.FlatMap(_sides).with_output_types(pairs)
        case "inner join":
            windowed = constant | tg.WindowInto(pcoll.windowing.assigner)
            joined = pcoll | tg.Join.inner(windowed) if n % 2 else windowed | tg.Join.inner(pcoll)
            return joined | tg.MapValues(lambda vw: (vw[0] * 3 + vw[1]) % 11).with_output_types(pairs)
        case "outer join":
            windowed = constant | tg.WindowInto(pcoll.windowing.assigner)
            join = (tg.Join.left, tg.Join.right, tg.Join.full)[n % 3]
            return (
                pcoll | join(windowed) | tg.MapValues(lambda vw: sum(v or 0 for v in vw) % 11).with_output_types(pairs)
            )
        case "join with itself":
            # Without equal pairs, of which there would be the square in each round.
            few = pcoll | tg.Distinct()
            return few | tg.Join.inner(few) | tg.MapValues(lambda vw: max(vw)).with_output_types(pairs)
        case "look up":
            found = tg.AsDict(constant | tg.WindowInto(tg.GlobalWindows()) | tg.CombinePerKey(max))
            return pcoll | tg.Map(_looked_up, found).with_output_types(pairs)
        case "count":
            total = pcoll | tg.WindowInto(tg.GlobalWindows()) | tg.combiners.Count.Globally()
            return pcoll | tg.Map(_counted, tg.AsSingleton(total)).with_output_types(pairs)
        case "merge":
            return (pcoll, constant | tg.WindowInto(pcoll.windowing.assigner)) | tg.Flatten()
        case "window":
            before = pcoll.windowing.assigner
            windowed = pcoll | tg.WindowInto(tg.FixedWindows(5 + n)) | tg.CombinePerKey(max)
            return windowed | tg.WindowInto(before)
        case "stamp":
            return pcoll | tg.Map(lambda pair: tg.TimestampedValue(pair, 7.0 * pair[1] + n)).with_output_types(pairs)
        case "state":
            return pcoll | tg.ParDo(CountOfKey()).with_output_types(pairs)
        case "distinct":
            return pcoll | tg.Distinct()
        case "split":
            parts = pcoll | tg.ParDo(Split(n)).with_outputs("rest", main="chosen")
            return parts.rest | tg.Map(lambda pair: pair).with_output_types(pairs) if n else parts.rest
        case "shuffle":
            return pcoll | tg.Reshuffle()
        case "loop":
            if depth:
                return pcoll
            inner = (("add", n), ("sum", 0))
            return pcoll | tg.Iterate(lambda before: apply(before, inner, constant, 1), rounds=n)
        case "swap":
            other = constant | tg.WindowInto(pcoll.windowing.assigner)
            return ((pcoll, other) | tg.Iterate(lambda both: (both[1], both[0]), rounds=n))[0]
        case "return the other variable":
            other = constant | tg.WindowInto(pcoll.windowing.assigner)
            return ((pcoll, other) | tg.Iterate(lambda both: (both[1], both[1]), rounds=n))[0]
        case "return what it takes":
            return pcoll | tg.Iterate(lambda before: before, rounds=n)
    raise AssertionError(step)


def _spread(pair: tuple[int, int], n: int) -> Iterator[tuple[int, int]]:
    key, value = pair
    yield key, n
    for other in [key, value % 3, n]:
        yield other, value


def _in_round(pair: tuple[int, int], turn: int = 0) -> tuple[int, int]:
    return pair[0], (pair[1] + turn) % 11


class CountOfKey(tg.DoFn):
    """Replaces values by numbers from 1, for each key."""

    seen = tg.ValueStateSpec("seen")

    def process(self, element: tuple[int, int], seen: Any = tg.DoFn.StateParam(seen)) -> Iterator[tuple[int, int]]:
        seen.write((seen.read() or 0) + 1)
        yield element[0], seen.read()


class Split(tg.DoFn):
    """Emits the pairs whose values have the remainder `n` on the main output, and the others as `rest`."""

    def __init__(self, n: int) -> None:
        self.n = n

    def process(self, element: tuple[int, int]) -> Iterator[Any]:
        yield element if element[1] % 4 == self.n else tg.TaggedOutput("rest", element)


def _sides(grouped: tuple[int, tuple[list[int], list[int]]]) -> Iterable[tuple[int, int]]:
    key, (own, constant) = grouped
    return [(key, (value + len(constant)) % 11) for value in own]


def _looked_up(pair: tuple[int, int], found: dict[int, int]) -> tuple[int, int]:
    return pair[0], (pair[1] + found.get(pair[0], 0)) % 11


def _counted(pair: tuple[int, int], total: int) -> tuple[int, int]:
    return pair[0], (pair[1] + total) % 11
