"""Describes how Spark will run a plan: its actions, levels, shuffles, persisted elements and side inputs.

The text follows from the plan alone: no source is opened and no side input is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tidegate.runners.plan import Edge, Plan, Step
from tidegate.runners.spark.plan.levels import Levels, assign_levels, shuffles
from tidegate.runners.spark.streaming.levels import assign_levels as stream_levels
from tidegate.runners.spark.streaming.levels import discovers
from tidegate.sdk.errors import visible
from tidegate.sdk.portable.model import Create, SideInputRef, side_inputs

if TYPE_CHECKING:
    from tidegate.runners.spark.plan.options import SparkOptions


def explain(plan: Plan, options: SparkOptions) -> str:
    """The description, which depends on the plan and the flags only."""
    levels = assign_levels(plan)
    between = levels.count - len(levels.starts)
    lines = [
        f"On Spark: {_count(len(levels.starts), 'action')}, {_count(levels.count, 'level')}, "
        f"{_count(between, 'shuffle')}, {_partitions(options)}"
    ]
    for action, start in enumerate(levels.starts):
        end = levels.end(action)
        lines += ["", f"Action {action}{_purpose(plan, levels, action)}"]
        for level in range(start, end):
            lines += [f"  {line}" for line in _level(plan, levels, level, start)]
    lines += _relations(plan)
    sides = list(_sides(plan))
    if sides:
        lines += ["", "Side inputs", *(f"  {line}" for line in sides)]
    return "\n".join(map(visible, lines)) + "\n"


def explain_stream(plan: Plan, options: SparkOptions) -> str:
    """The description of an unbounded pipeline: the levels that each batch passes through."""
    levels = stream_levels(plan)
    lines = [
        f"On Spark, a stream in batches: {_count(levels.count, 'level')} of {_partitions(options)}, "
        f"a batch every {options.spark_trigger_interval}"
    ]
    for level in range(levels.count):
        lines += ["", f"Level {level}, a stateful operator"]
        if level < levels.sources:
            found = [step for step in plan.steps if discovers(step)]
            lines.append(f"  · discovers the splits of {_labels(found)}, in one task")
        for step in levels.steps(plan, level, 0):
            single = " in one task" if step.stage in levels.single else ""
            lines.append(f"  [{step.id}] {' + '.join(node.label for node in step.nodes)}{_phase(step)}{single}")
    return "\n".join(map(visible, lines)) + "\n"


def _purpose(plan: Plan, levels: Levels, action: int) -> str:
    """Why there is an action beside the last one."""
    loop = levels.loop(levels.starts[action])
    if loop is not None:
        return f", again in each round of {loop.label!r}"
    if levels.end(action) == levels.count:
        return ""
    sides = any(edge.side is not None and _action_of(levels, edge.source) == action for edge in plan.edges)
    return ", which computes side inputs" if sides else ", which computes what loops read"


def _relations(plan: Plan) -> Iterator[str]:
    """The steps of expressions and SQL that Spark computes itself, and the others, with the reason."""
    native = [decision.step for decision in plan.decisions if decision.choice == "native"]
    others = [decision for decision in plan.decisions if decision.choice == "workers"]
    if native:
        yield from ("", "Native on Spark: Catalyst computes these, without Python", *(f"  {step}" for step in native))
    if others:
        yield from ("", "In workers, not native", *(f"  {each.step}: {each.reason}" for each in others))


def _partitions(options: SparkOptions) -> str:
    if options.spark_partitions:
        return f"{_count(options.spark_partitions, 'partition')} (--spark_partitions)"
    return "as many partitions as Spark runs tasks at once"


def _level(plan: Plan, levels: Levels, level: int, start: int) -> Iterator[str]:
    tasks = "one task" if level in levels.gathered else "a task for each partition"
    if level > start:
        yield "══ shuffle: rows of blocks, by target partition, sorted"
    elif action := levels.action(level):
        inputs = [
            edge
            for edge in plan.edges
            if levels.persisted(edge) and _action_of(levels, edge.target) == action and not levels.is_constant(edge)
        ]
        if any(edge.turn == "back" for edge in inputs):
            yield (
                f"══ in round 1 persisted elements of {_sources(plan, inputs, 'start')}; after that what the round "
                f"before has left, those of {_sources(plan, inputs, 'back')}"
            )
        elif inputs:
            exchange = "shuffled by key" if any(shuffles(edge) for edge in inputs) else "in place"
            yield f"══ persisted elements of {_labels(plan.steps[edge.source] for edge in inputs)}, {exchange}"
    constants = [edge for edge in plan.edges if levels.is_constant(edge) and levels.of_step[edge.target] == level]
    if constants:
        makers = _labels(plan.steps[edge.source] for edge in constants)
        yield f"══ with the same elements in all rounds, shuffled once: those of {makers}"
    yield f"Level {level}, {tasks}"
    steps = levels.steps(plan, level)
    for step in steps:
        yield f"  [{step.id}] {' + '.join(node.label for node in step.nodes)}{_phase(step)}"
    leaving = [
        edge
        for edge in plan.edges
        if edge.turn in ("back", "last", "all") and edge.side is None and levels.of_step[edge.source] == level
    ]
    if leaving:
        yield f"  · checkpointed after each round: {_labels(plan.steps[edge.source] for edge in leaving)}"
    persisted = [
        edge
        for edge in plan.edges
        if levels.persisted(edge) and edge not in leaving and levels.of_step[edge.source] == level
    ]
    if persisted:
        later = sorted({_action_of(levels, edge.target) for edge in persisted})
        yield (
            f"  · persisted for action {' and '.join(map(str, later))}, freed at the end: "
            f"{_labels(plan.steps[edge.source] for edge in persisted)}"
        )
    side_edges = [edge for edge in plan.edges if edge.side is not None and levels.of_step[edge.source] == level]
    collections = {edge.collection for edge in side_edges}
    computed = [step for step in steps if collections.intersection(step.outputs) and not isinstance(step.head, Create)]
    if computed:
        yield f"  · to the driver, which groups it as a side input: {_labels(computed)}"
    passing = [
        edge
        for edge in plan.edges
        if edge.side is None
        and levels.of_step[edge.source] < level < levels.of_step[edge.target]
        and not levels.persisted(edge)
    ]
    if passing:
        yield f"  · pass through: {_labels(plan.steps[edge.source] for edge in passing)}"


def _sources(plan: Plan, edges: Iterable[Edge], turn: str) -> str:
    """The steps whose elements a loop reads in its first round ("start"), or in others ("back")."""
    return _labels(plan.steps[edge.source] for edge in edges if edge.turn == turn) or "none"


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
        yield "· sent in the closure up to a total of 1 MB, else as a file that each worker opens once"
    if any(ref.view in ("dict", "multimap") for step in plan.steps for node in step.nodes for ref in side_inputs(node)):
        yield "· a dict or multimap above 8 MB is a memory-mapped file; workers load only the values they look up"


def _origin(plan: Plan, ref: SideInputRef) -> str:
    producer = next((step for step in plan.steps if ref.collection in step.outputs), None)
    if producer is not None and isinstance(producer.head, Create):
        return f"{ref.collection!r}, {_count(producer.head.values.count, 'element')} from the driver"
    return f"{ref.collection!r}, computed"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
