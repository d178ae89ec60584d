"""How Spark will run a plan, in words: actions, levels, shuffles, what is kept in between, where side inputs go.

Nothing is loaded or looked at: what follows from the plan alone is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tidegate.runners.plan import Plan, Step
from tidegate.runners.spark.plan.levels import Levels, assign_levels, shuffles
from tidegate.sdk.errors import visible
from tidegate.sdk.portable.model import Create, SideInputRef, side_inputs

if TYPE_CHECKING:
    from tidegate.runners.spark.plan.options import SparkOptions


def explain(plan: Plan, options: SparkOptions) -> str:
    """The same text for the same plan and flags."""
    levels = assign_levels(plan)
    between = levels.count - len(levels.starts)
    lines = [
        f"On Spark: {_count(len(levels.starts), 'action')}, {_count(levels.count, 'level')}, "
        f"{_count(between, 'shuffle')}, {_partitions(options)}"
    ]
    for action, start in enumerate(levels.starts):
        end = levels.starts[action + 1] if action + 1 < len(levels.starts) else levels.count
        lines += ["", f"Action {action}" + ("" if end == levels.count else ", of which side inputs are made")]
        for level in range(start, end):
            lines += [f"  {line}" for line in _level(plan, levels, level, start)]
    sides = list(_sides(plan))
    if sides:
        lines += ["", "Side inputs", *(f"  {line}" for line in sides)]
    return "\n".join(map(visible, lines)) + "\n"


def _partitions(options: SparkOptions) -> str:
    if options.spark_partitions:
        return f"{_count(options.spark_partitions, 'partition')} (--spark_partitions)"
    return "as many partitions as Spark runs tasks at once"


def _level(plan: Plan, levels: Levels, level: int, start: int) -> Iterator[str]:
    tasks = "one task" if level in levels.gathered else "a task for each partition"
    if level > start:
        yield "══ shuffle: rows of blocks, by target partition, sorted"
    elif action := levels.action(level):
        carried = [edge for edge in plan.edges if levels.kept(edge) and _action_of(levels, edge.target) == action]
        if carried:
            moved = "shuffled by key" if any(shuffles(edge) for edge in carried) else "where they are"
            yield f"══ kept elements of {_labels(plan.steps[edge.source] for edge in carried)}, {moved}"
    yield f"Level {level}, {tasks}"
    steps = levels.steps(plan, level)
    for step in steps:
        yield f"  [{step.id}] {' + '.join(node.label for node in step.nodes)}{_phase(step)}"
    kept = [edge for edge in plan.edges if levels.kept(edge) and levels.of_step[edge.source] == level]
    if kept:
        later = sorted({_action_of(levels, edge.target) for edge in kept})
        yield (
            f"  · persisted for action {' and '.join(map(str, later))}, freed at the end: "
            f"{_labels(plan.steps[edge.source] for edge in kept)}"
        )
    aside = {edge.collection for edge in plan.edges if edge.side is not None and levels.of_step[edge.source] == level}
    told = [step for step in steps if aside.intersection(step.outputs) and not isinstance(step.head, Create)]
    if told:
        yield f"  · to the driver, which groups it as a side input: {_labels(told)}"
    passing = [
        edge
        for edge in plan.edges
        if edge.side is None
        and levels.of_step[edge.source] < level < levels.of_step[edge.target]
        and not levels.kept(edge)
    ]
    if passing:
        yield f"  · pass through: {_labels(plan.steps[edge.source] for edge in passing)}"


def _action_of(levels: Levels, step: int) -> int:
    return levels.action(levels.of_step[step])


def _phase(step: Step) -> str:
    return {"parts": " (parts)", "merge": " (merge)"}.get(step.phase or "", "")


def _labels(steps: Iterable[Step]) -> str:
    return ", ".join(dict.fromkeys(repr(step.label) for step in steps))


def _sides(plan: Plan) -> Iterator[str]:
    seen = set()
    for step in plan.steps:
        for node in step.nodes:
            for number, ref in enumerate(side_inputs(node)):
                if (node.label, number) not in seen:
                    seen.add((node.label, number))
                    yield f"{number} of {node.label!r}: {ref.view} of {_origin(plan, ref)}"
    if seen:
        yield "· in the closure as long as all of them take up to 1 MB, else a file that each worker opens once"
    if any(ref.view in ("dict", "multimap") for step in plan.steps for node in step.nodes for ref in side_inputs(node)):
        yield "· a dict or multimap above 8 MB is a file that workers look into (mmap), and loads what is looked up"


def _origin(plan: Plan, ref: SideInputRef) -> str:
    made = next((step for step in plan.steps if ref.collection in step.outputs), None)
    if made is not None and isinstance(made.head, Create):
        return f"{ref.collection!r}, {_count(made.head.values.count, 'element')} that the driver has"
    return f"{ref.collection!r}, computed"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
