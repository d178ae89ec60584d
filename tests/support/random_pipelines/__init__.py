"""Random pipelines and what they mean: for properties of one runner, and for comparing runners with each other.

@given(pipelines())
def test_…(description):
    assert outcome(description, run(description, runner, options)) == expected(description)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import tidegate as tg
from tests.support.random_pipelines.build import build
from tests.support.random_pipelines.describe import Description, Shape, Step, pipelines
from tests.support.random_pipelines.evaluate import Element, evaluate
from tests.support.run_and_collect import Collected, collect

__all__ = [
    "Description",
    "Element",
    "Shape",
    "Step",
    "build",
    "evaluate",
    "expected",
    "outcome",
    "pipelines",
    "run",
    "run_together",
]

Outcome = dict[str, Counter[Any]]
"""The elements of each collection that is read, with the number of occurrences in each window."""


def run(description: Description, runner: str | tg.Runner | None = None, options: Any = None) -> Collected:
    """Run a description and collect the elements of the collections that it reads."""

    def read(pipeline: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        made = build(description, pipeline)
        return {str(number): made[number] for number in description.read}

    return collect(read, runner, options)


def run_together(
    descriptions: Sequence[Description], runner: str | tg.Runner | None = None, options: Any = None
) -> list[Collected]:
    """Run descriptions as independent parts of one pipeline."""

    def read(pipeline: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        named = {}
        for at, description in enumerate(descriptions):
            made = build(description, pipeline, f"{at}/")
            named |= {f"{at}/{number}": made[number] for number in description.read}
        return named

    found = collect(read, runner, options)
    return [
        Collected({str(number): found.seen[f"{at}/{number}"] for number in description.read}, found.result)
        for at, description in enumerate(descriptions)
    ]


def expected(description: Description) -> Outcome:
    """The results that the model computes."""
    made = evaluate(description)
    return {
        str(number): Counter(
            (_comparable(element.value, description.shapes[number]), element.micros, window, element.pane)
            for element in made[number]
            for window in element.windows
        )
        for number in description.read
    }


def outcome(description: Description, found: Collected) -> Outcome:
    """The results of a run, in the same form."""
    return {
        name: Counter(
            (_comparable(seen.value, description.shapes[int(name)]), seen.micros, seen.window, seen.pane)
            for seen in elements
        )
        for name, elements in found.seen.items()
    }


def _comparable(value: Any, shape: Shape) -> Any:
    """A value in its form for comparison: the values of a group are sorted, since their order is undefined."""
    return (value[0], tuple(sorted(value[1]))) if shape.kind == "group" else value
