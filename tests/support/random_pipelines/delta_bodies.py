"""Random loops with a solution, which both an IterateDelta and an Iterate are built from."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

import tidegate as tg
from tests.support.random_pipelines.bodies import Body, apply, bodies, multiplies

PAIRS: Final = tuple[int, int]

MERGES: Final[dict[str, Any]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "product": tg.associative(operator.mul),
    "none": None,
}

_MERGED: Final[dict[str, Callable[[int, int], int]]] = {
    "min": min,
    "max": max,
    "sum": operator.add,
    "product": operator.mul,
    "none": lambda old, new: new,
}


@dataclass(frozen=True)
class DeltaBody:
    """The steps to the updates, those from there to the next workset (None: it is what the updates have changed), how
    the solution is looked up, how values are merged, and what counts as a change."""

    updates: Body
    following: Body | None
    looks_up: str
    merge: str
    changed_by: int | None


def delta_bodies() -> st.SearchStrategy[DeltaBody]:
    """Bodies of a few steps, with at most one that multiplies elements."""
    return st.builds(
        DeltaBody,
        bodies(),
        st.none() | bodies(),
        st.sampled_from(["no", "first", "out"]),
        st.sampled_from(sorted(MERGES)),
        st.sampled_from([None, None, 0, 2]),
    ).filter(lambda body: body.following is None or not (multiplies(body.updates) and multiplies(body.following)))


def by_delta(starts: Any, body: DeltaBody, constant: Any, rounds: int) -> Any:
    """The solution, and what rounds give, by an IterateDelta."""

    def step(solution: Any, work: Any) -> Any:
        return _turn(lambda pairs: pairs | solution.lookup(), work, body, constant)

    changed = None if body.changed_by is None else _Moved(body.changed_by)
    if body.merge == "none":
        starts = tuple(start | f"one value {at}" >> tg.CombinePerKey(max) for at, start in enumerate(starts))
    made = starts | tg.IterateDelta(step, rounds=rounds, merge=MERGES[body.merge], changed=changed)
    return _together(made.result, made.out["seen"])


def by_bulk(starts: Any, body: DeltaBody, constant: Any, rounds: int) -> Any:
    """The same by an Iterate over the solution and the workset."""
    one_value = tg.CombinePerKey(max if body.merge == "none" else MERGES[body.merge])
    solution = starts[0] | "one value" >> one_value
    work = starts[1] | "one value of work" >> tg.CombinePerKey(max) if body.merge == "none" else starts[1]

    def step(both: Any) -> Any:
        solution, work = both
        turn = _turn(lambda pairs: _looked_up(pairs, solution), work, body, constant)
        updates = turn.new if body.following is None else turn.new[0]
        if body.merge != "none":
            updates = updates | "one update" >> tg.CombinePerKey(MERGES[body.merge])
        merged = (solution, updates) | "merge" >> tg.CoGroupByKey() | "both" >> tg.Map(_merged, body)
        new = merged | "new" >> tg.Map(lambda found: (found[0], found[1])).with_output_types(PAIRS)
        if body.following is None:
            moved = merged | "moved" >> tg.Filter(operator.itemgetter(2))
            following = moved | "changes" >> tg.Map(lambda found: (found[0], found[1])).with_output_types(PAIRS)
        else:
            following = turn.new[1]
        return tg.Round((new, following), again=following, out=turn.out)

    made = (solution, work) | tg.Iterate(step, rounds=rounds)
    return _together(made.result[0], made.out["seen"])


def _turn(look_up: Callable[[Any], Any], work: Any, body: DeltaBody, constant: Any) -> Any:
    seen = work
    if body.looks_up != "no":
        found = work | "look up" >> tg.ptransform_fn(look_up)()
        seen = found | "known" >> tg.MapTuple(lambda k, both: (k, (both[0] + (both[1] or 0)) % 11)).with_output_types(
            PAIRS
        )
    base = seen if body.looks_up == "first" else work
    updates = base | "updates" >> tg.ptransform_fn(apply)(body.updates, constant)
    updates = updates | "bounded" >> tg.MapValues(lambda v: v % 13).with_output_types(PAIRS)
    if body.merge == "none":
        updates = updates | "one" >> tg.CombinePerKey(max)
    new = updates
    if body.following is not None:
        new = updates, updates | "following" >> tg.ptransform_fn(apply)(body.following, constant)
    return tg.Round(new, out={"seen": seen})


def _looked_up(pairs: Any, solution: Any) -> Any:
    timed = pairs | tg.Map(lambda pair, at=tg.DoFn.TimestampParam: (pair[0], (pair[1], at))).with_output_types(
        tuple[int, Any]
    )
    grouped = (timed, solution) | tg.CoGroupByKey()
    return grouped | tg.FlatMap(_known)


def _known(group: tuple[int, tuple[list[Any], list[int]]]) -> list[Any]:
    key, (values, known) = group
    return [tg.TimestampedValue((key, (value, known[0] if known else None)), at) for value, at in values]


def _merged(group: tuple[int, tuple[list[int], list[int]]], body: DeltaBody) -> tuple[int, int, bool]:
    """The key, its new value, and whether that is a change."""
    key, (olds, news) = group
    if not news:
        return key, olds[0], False
    if not olds:
        return key, news[0], True
    old, new = olds[0], _MERGED[body.merge](olds[0], news[0])
    return key, new, old != new if body.changed_by is None else _Moved(body.changed_by)(old, new)


@dataclass(frozen=True)
class _Moved:
    by: int

    def __call__(self, old: int, new: int) -> bool:
        return abs(old - new) > self.by


def _together(solution: Any, seen: Any) -> Any:
    """The solution, and what rounds have seen, of which the timestamps are those of lookups."""
    marked = solution | "solution" >> tg.Map(lambda pair: ("solution", pair))
    return (marked, seen | "seen" >> tg.Map(lambda pair: ("seen", pair))) | tg.Flatten()
