"""Joins with what is the same in all rounds, which make pairs without groups where they can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine import operator_graph
from tidegate.runners.engine.factory import build
from tidegate.runners.engine.iteration.kept_join import JoinInput, KeptJoin
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.plan import Plan, Step
from tidegate.sdk.errors import TidegateError

START = [(1, 10), (4, 40), (1, 5)]
LINKS = [(0, 2), (1, 2), (1, 3), (2, 3), (3, 4), (7, 7)]

Body = Callable[[Any, Any], Any]


def moved(pair: tuple[Any, Any]) -> tuple[int, int]:
    key, (one, other) = pair
    return ((one or 0) + (other or 0)) % 5, key + 1


def moving(joined: Any) -> Any:
    return joined | tg.Map(moved).with_output_types(tuple[int, int])


def in_a_row(before: Any, links: Any) -> Any:
    """Two joins, of which the second reads what the loop of the first emits."""
    return moving(moving(before | "first" >> tg.Join.inner(links)) | "second" >> tg.Join.left(links))


def read_twice(before: Any, links: Any) -> Any:
    """The groups of the join are read by its pairs, and its pairs by two steps."""
    joined = before | tg.Join.inner(links)
    return (moving(joined), joined | "keys" >> tg.Map(lambda pair: (pair[0], 1))) | tg.Flatten()


WITHOUT_GROUPS: dict[str, Body] = {
    "inner": lambda before, links: moving(before | tg.Join.inner(links)),
    "left": lambda before, links: moving(before | tg.Join.left(links)),
    "inner, the constant first": lambda before, links: moving(links | tg.Join.inner(before)),
    "right, the constant first": lambda before, links: moving(links | tg.Join.right(before)),
    "behind a step": lambda before, links: moving(before | tg.MapValues(lambda n: n + 1) | tg.Join.inner(links)),
    "before a grouping": lambda before, links: moving(before | tg.Join.left(links)) | tg.CombinePerKey(max),
    "two in a row": in_a_row,
    "read twice": read_twice,
}


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many blocks the operators of joins with kept tables have received."""
    counts: Counter[str] = Counter()

    def counting(kind: type[Operator]) -> None:
        process = kind.process

        def counted(self: Any, block: Any, collection: str) -> Iterator[Emitted]:
            counts[kind.__name__] += 1
            return process(self, block, collection)

        monkeypatch.setattr(kind, "process", counted)

    counting(JoinInput)
    counting(KeptJoin)
    return counts


def results(step: Body, *, looped: bool, start: Any = START, windows: float = 0, checks: str = "sample") -> list[Any]:
    """What three rounds of the step give, as a loop or one after the other."""
    p = tg.Pipeline(options=["--checks", checks])
    links = p | "links" >> tg.Create(LINKS).with_output_types(tuple[int, int])
    pairs = p | "start" >> tg.Create(start).with_output_types(tuple[int, int])
    if windows:
        links, pairs = (
            each | f"window {n}" >> tg.WindowInto(tg.FixedWindows(windows)) for n, each in enumerate((links, pairs))
        )
    if looped:
        return sorted((pairs | "loop" >> tg.Iterate(lambda before: step(before, links), rounds=3)).collect())
    for turn in range(3):
        pairs = pairs | f"round {turn}" >> tg.ptransform_fn(step)(links)
    return sorted(pairs.collect())


@pytest.mark.parametrize("checks", ["off", "all"])
@pytest.mark.parametrize("kind", WITHOUT_GROUPS)
def test_a_join_in_the_global_window_makes_no_groups(kind: str, checks: str, met: Counter[str]) -> None:
    step = WITHOUT_GROUPS[kind]
    found = results(step, looped=True, checks=checks)
    assert found == results(step, looped=False)
    assert found
    assert (met["JoinInput"] > 0, met["KeptJoin"]) == (True, 0)


def test_a_join_in_other_windows_makes_groups(met: Counter[str]) -> None:
    step = WITHOUT_GROUPS["inner"]
    start = [tg.TimestampedValue(pair, 1) for pair in START]
    assert results(step, looped=True, start=start, windows=10) == results(step, looped=False, start=start, windows=10)
    assert (met["JoinInput"], met["KeptJoin"] > 0) == (0, True)


def test_a_grouping_of_what_changes_numbers_values_in_its_own_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[list[str]] = []

    def building(step: Step, plan: Plan, context: Context, **others: Any) -> Operator:
        if context.tables.kept:
            built.append([node.label.rsplit("/", 1)[-1] for node in step.nodes])
        return build(step, plan, context, **others)

    def summed(before: Any, links: Any) -> Any:
        groups = (before, links) | tg.CoGroupByKey()
        return groups | tg.Map(lambda group: (group[0], sum(map(sum, group[1])))).with_output_types(tuple[int, int])

    monkeypatch.setattr(operator_graph, "build", building)
    assert results(summed, looped=True) == results(summed, looped=False)
    assert [labels for labels in built if "Tag(0)" in labels] == [["Tag(0)", "Group"]] * 3


@pytest.mark.parametrize(
    "element",
    [5, (1, 2, 3), ([], 1), (1.5, 2), (object(), 1)],
    ids=["no tuple", "three items", "a list as key", "a float as key", "an object as key"],
)
@pytest.mark.parametrize("checks", ["off", "sample"])
def test_what_cannot_be_joined_fails_as_outside_of_a_loop(element: Any, checks: str) -> None:
    def spoiled(before: Any, links: Any) -> Any:
        bad = before | tg.Map(lambda pair: element if pair[0] == 4 else pair)
        return moving(bad | tg.Join.left(links))

    def failure(*, looped: bool) -> tuple[type[BaseException], str] | None:
        try:
            results(spoiled, looped=looped, checks=checks)
        except TidegateError as error:
            return type(error), (error.step or "").split("/", 1)[1]
        return None

    assert failure(looped=True) == failure(looped=False)
