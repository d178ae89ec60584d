"""The facts about a plan's steps that a checkpoint records: which of them keep state, and of which types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tidegate.runners.engine.operator_graph import state_name
from tidegate.runners.plan import Plan, Step
from tidegate.sdk.portable.async_calls import AsyncCalls
from tidegate.sdk.portable.model import (
    CombinePerKey,
    Feedback,
    GroupByKey,
    Iterate,
    Node,
    ParDo,
    TestStream,
    side_inputs,
)

Role: TypeAlias = Literal["source", "stateful", "sink", "plain"]
_LIVE: Final = ("source", "stateful", "sink")
_KEYS: Final = re.compile(r"; keys .*?(?P<path> by [a-z_]+)?$", re.DOTALL)
"""The keys and the columns of a relational step, at the end of the description of its state."""
_COMBINED: Final = re.compile(r" of (AggregateFn|FirstFn)\(.*\) by ", re.DOTALL)
"""What a relational step combines, within the description of its state."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """The facts about a step's state. `name`: the name under which tasks store the state; `state`: its types."""

    name: str
    label: str
    kind: str
    role: Role
    state: str
    stage: int


def step_facts(plan: Plan) -> tuple[StepFacts, ...]:
    """The facts of every step."""
    return tuple(_facts(step) for step in plan.steps)


def has_checkpointed_state(facts: StepFacts) -> bool:
    """Return whether a checkpoint holds anything of the step."""
    return facts.role in _LIVE


def has_same_state(step: StepFacts, saved: StepFacts) -> bool:
    """Return whether a step can read the state that was saved.

    Combiners of relational steps were saved without their keys, and before that without what they combine, so that any
    fits which has the name.
    """
    without_keys = _KEYS.sub(r"\g<path>", step.state)
    fitting = (step.state, without_keys, _COMBINED.sub(r" of \1 by ", without_keys))
    return (step.kind, step.role) == (saved.kind, saved.role) and saved.state in fitting


def numbered(step: Step) -> bool:
    """Return whether the step's label was numbered automatically, so that it may change when the script does."""
    return step.tail.numbered


def reads_splits(step: Step) -> bool:
    """Return whether a step reads splits, which are listed and assigned: true of any source except a test stream."""
    return step.is_source and not isinstance(step.head, TestStream)


def is_live(step: Step, plan: Plan) -> bool:
    """Return whether a step reads unbounded splits."""
    return reads_splits(step) and not all(plan.pipeline.collection(out.collection).bounded for out in step.head.outputs)


def _facts(step: Step) -> StepFacts:
    tail = step.tail
    state = _state(step)
    role: Role = "plain"
    if step.is_source:
        role = "source"
    elif step.is_sink:
        role = "sink"
    elif state:
        role = "stateful"
    return StepFacts(state_name(step), step.label, tail.kind, role, state, step.stage)


def _state(step: Step) -> str:
    """Describe the types of a step's state, for people and for comparison; "" if the step keeps none."""
    parts = [part for node in step.nodes for part in _sides(node)]
    match step.tail:
        case ParDo() as node if node.stateful:
            cells = ", ".join(f"{spec.name}: {spec.cell}" for spec in sorted(node.states, key=lambda s: s.name))
            timers = ", ".join(f"{spec.name}: {spec.domain}" for spec in sorted(node.timers, key=lambda t: t.name))
            parts.append(f"cells ({cells})" + (f", timers ({timers})" if timers else "") + node.state_of)
        case ParDo(calls=AsyncCalls()):
            parts.append("elements with calls in flight")
        case GroupByKey():
            parts.append(f"groups by {step.path}")
        case CombinePerKey(name=name):
            parts.append(f"{step.phase} of {name} by {step.path}")
        case Iterate() as node:
            starts = [variable.start for variable in node.variables]
            named = (f"{each.name}: {each.start!r}" if each.name else repr(each.start) for each in node.variables)
            read = [repr(collection) for collection in node.inputs if collection not in starts]
            parts.append(f"a loop over {', '.join(named)}" + (f", which reads {', '.join(read)}" if read else ""))
        case Feedback() as node:
            parts.append(f"what is fed back as {node.after!r}")
        case _:
            pass
    return ", ".join(parts)


def _sides(node: Node) -> list[str]:
    return [f"side input {number} of {node.label!r} as {ref.view}" for number, ref in enumerate(side_inputs(node))]
