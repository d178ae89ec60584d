"""What a checkpoint says of the steps of a plan: which keep state, of which types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tidegate.runners.engine.operator_graph import state_name
from tidegate.runners.plan import Plan, Step
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey, Node, ParDo, TestStream, side_inputs

Role: TypeAlias = Literal["source", "stateful", "sink", "plain"]
_LIVE: Final = ("source", "stateful", "sink")


@dataclass(frozen=True, slots=True)
class StepFacts:
    """A step as far as its state goes: `name` is what tasks keep it under; `state` says of which types it is."""

    name: str
    label: str
    kind: str
    role: Role
    state: str
    stage: int


def step_facts(plan: Plan) -> tuple[StepFacts, ...]:
    """The facts of every step."""
    return tuple(_facts(step) for step in plan.steps)


def keeps_something(facts: StepFacts) -> bool:
    """Whether anything of the step is in a checkpoint."""
    return facts.role in _LIVE


def numbered(step: Step) -> bool:
    """Whether the name that a step's state is kept under moves when the script changes."""
    return step.tail.numbered


def deals_splits(step: Step) -> bool:
    """Whether a step reads splits, which are listed and dealt out: any source but a test's script."""
    return step.is_source and not isinstance(step.head, TestStream)


def is_live(step: Step, plan: Plan) -> bool:
    """Whether a step reads splits without end."""
    return deals_splits(step) and not all(plan.pipeline.collection(out.collection).bounded for out in step.head.outputs)


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
    """The types of a step's state, for people and for comparing; "" if it keeps none."""
    parts = [part for node in step.nodes for part in _sides(node)]
    match step.tail:
        case ParDo() as node if node.stateful:
            cells = ", ".join(f"{spec.name}: {spec.cell}" for spec in sorted(node.states, key=lambda s: s.name))
            timers = ", ".join(f"{spec.name}: {spec.domain}" for spec in sorted(node.timers, key=lambda t: t.name))
            parts.append(f"cells ({cells})" + (f", timers ({timers})" if timers else ""))
        case GroupByKey():
            parts.append(f"groups by {step.path}")
        case CombinePerKey(name=name):
            parts.append(f"{step.phase} of {name} by {step.path}")
        case _:
            pass
    return ", ".join(parts)


def _sides(node: Node) -> list[str]:
    return [f"side input {number} of {node.label!r} as {ref.view}" for number, ref in enumerate(side_inputs(node))]
