"""Explains a plan: as text for `tidegate explain`, and as a graph of regions, stages and steps for drawing."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.runners.plan import RELATION, Edge, Loop, Plan, SolutionUpdate, Step
from tidegate.sdk.drawing.graph import (
    Box,
    Graph,
    Group,
    Link,
    box_of,
    collection_facts,
    describe_feedback,
    describe_rounds,
    describe_windowing,
    shown_label,
)
from tidegate.sdk.errors import counted, visible
from tidegate.sdk.portable.async_calls import AsyncCalls
from tidegate.sdk.portable.integrity import with_bodies
from tidegate.sdk.portable.model import (
    AssignWindows,
    CombinePerKey,
    Create,
    Feedback,
    GroupByKey,
    Iterate,
    Lookup,
    Node,
    ParDo,
    Pipeline,
    Read,
    TestStream,
    Write,
    side_inputs,
)
from tidegate.sdk.relational.expressions import text
from tidegate.sdk.windowing.assigners import is_global_assigner
from tidegate.sdk.windowing.strategy import can_fire_twice


def explain(plan: Plan) -> str:
    """The regions, stages, steps and exchanges of a plan, with the planner's reasons, as deterministic text.

    Warns of sinks that may write an element twice, and of panes that a second grouping would count again.
    """
    lines = [f"Plan of {plan.pipeline.name!r}: {_counts(plan)}"]
    for number, stages in enumerate(plan.regions):
        lines += ["", f"Region {number}{_region_note(plan, stages)}"]
        for stage in stages:
            lines.append(f"  Stage {stage}")
            for step in plan.stage_steps(stage):
                lines += [f"    {line}" for line in _step_lines(plan, step)]
    for loop in plan.loops:
        lines += ["", *_loop_lines(loop, plan)]
    dropped = [decision for decision in plan.decisions if decision.choice == "dropped"]
    if dropped:
        lines += ["", "Dropped"]
        lines += [f"  {decision.step}: {decision.reason}" for decision in dropped]
    warned = list(warnings(plan))
    if warned:
        lines += ["", "Mind"]
        lines += [f"  - {warning}" for warning in warned]
    return "\n".join(map(visible, lines)) + "\n"


def _loop_lines(loop: Loop, plan: Plan) -> Iterator[str]:
    """A loop: what runs once, what its rounds read and, unless the plan around it has them, its steps."""
    node = loop.node
    where = f"in all tasks, {_listed('region', list(loop.regions))}" if loop.regions else "all in one task"
    yield f"Loop {node.label}: {describe_rounds(node)}, {where}"
    read = {step.head.output() for step in loop.plan.steps if step.is_source}
    solutions = [variable.name or variable.start for variable in node.variables if variable.form == "solution"]
    changed = [variable.name or variable.start for variable in node.variables if variable.form != "solution"]
    for title, labels in (
        ("runs once, before round 1", [*_in_front(loop, plan)]),
        ("kept for all rounds", [id for id in node.inputs if id in read]),
        (f"updated by each round, a table {'in parts, one in each task' if loop.regions else 'in memory'}", solutions),
        ("changed by each round", changed),
        ("over when this is empty", [variable.name for variable in node.variables if variable.drives]),
        ("another round while none of these is empty", list(node.again)),
        ("over when this is not empty", [node.until] if node.until is not None else []),
    ):
        if labels:
            yield f"  {title}: {', '.join(labels)}"
    yield f"  Each round: {counted(_exchanges_of_round(loop, plan), 'exchange')} between processes"
    if loop.regions:
        return
    for step in loop.plan.steps:
        if step.is_source:
            what = "kept" if step.head.output() in node.inputs else "as the round finds it"
            yield f"    [{step.id}] {step.label}, {what}"
        else:
            yield from (f"    {line}" for line in _step_lines(loop.plan, step, local=True))
    for inner in loop.plan.loops:
        yield from (f"    {line}" for line in _loop_lines(inner, loop.plan))


def _in_front(loop: Loop, plan: Plan) -> Iterator[str]:
    """The steps that the loop's body applies, and that are not repeated with it. If a round of another loop runs them,
    they are in the body of that one."""
    label = loop.node.label
    repeated = {label, *(each.label for each in with_bodies(loop.node.body))}
    for each in with_bodies(plan.pipeline.nodes):
        if _is_part_of(each.composite, label) and each.label not in repeated:
            yield each.label


def _is_part_of(composite: str, path: str) -> bool:
    """Whether a composite is the step with that label path, or within it."""
    return composite == path or composite.startswith(f"{path}/")


def _exchanges_of_round(loop: Loop, plan: Plan) -> int:
    """How many exchanges between processes each round has. What goes straight on to the same task counts as none."""
    body = {step.id for region in loop.regions for step in plan.steps_of(plan.regions[region])}
    crossing = {
        (edge.received, edge.target, edge.side)
        for edge in plan.edges
        if {edge.source, edge.target} <= body and edge.exchange is not None and edge.exchange.routing != "forward"
    }
    return len(crossing)


def warnings(plan: Plan) -> Iterator[str]:
    """Warnings about a valid plan whose results may surprise the author."""
    pipeline = plan.pipeline
    for node in pipeline.nodes:
        match node:
            case Read(replayable=False):
                yield f"{node.label!r} {node.delivery_note}"
            case Write(delivery="at_least_once"):
                yield f"{node.label!r} delivers at least once: after a failure it may write elements again"
            case GroupByKey() | CombinePerKey():
                for before in _groupings_before(plan, node.inputs[0]):
                    upstream = pipeline.collection(before.inputs[0]).windowing
                    if upstream.accumulation.value == "accumulating" and can_fire_twice(upstream):
                        yield (
                            f"{node.label!r} groups the panes of {before.label!r}, which accumulate and may fire more "
                            "than once: values are counted again with every pane"
                        )


def left_out(pipeline: Pipeline, plan: Plan) -> Iterator[str]:
    """Warnings about steps of the author of which no part runs; `pipeline` has all nodes, the plan those that run."""
    reasons = {each.step: each.reason for each in plan.decisions if each.choice == "dropped"}
    composites = {node.composite for node in pipeline.nodes} - {""}

    def applied(node: Node) -> str:
        around = [each for each in composites if f"{node.composite}/".startswith(f"{each}/")]
        return min(around, key=len, default=node.label)

    running = {applied(node) for node in pipeline.nodes if node.label not in reasons}
    dropped = {applied(node): reasons[node.label] for node in pipeline.nodes if node.label in reasons}
    for step, reason in dropped.items():
        if step not in running:
            yield f"{step!r} is left out: {reason}"


def _groupings_before(plan: Plan, collection: str) -> Iterator[GroupByKey | CombinePerKey]:
    """The nearest upstream groupings whose panes reach a collection, perhaps mapped or assigned to other windows."""
    node = plan.pipeline.producer(collection)
    if isinstance(node, (GroupByKey, CombinePerKey)):
        yield node
        return
    for used in dict.fromkeys(node.inputs):
        yield from _groupings_before(plan, used)


# --- text ----------------------------------------------------------------------------------------------------------


def _counts(plan: Plan) -> str:
    exchanges = {(edge.collection, edge.target, edge.side) for edge in plan.edges if edge.exchange}
    stages = sum(len(region) for region in plan.regions)
    return ", ".join(
        counted(count, noun)
        for count, noun in (
            (len(plan.regions), "region"),
            (stages, "stage"),
            (len(plan.steps), "step"),
            (len(exchanges), "exchange"),
        )
    )


def _region_note(plan: Plan, stages: tuple[int, ...]) -> str:
    before = sorted(
        {
            plan.region_of(plan.steps[edge.source].stage)
            for edge in plan.edges
            if plan.steps[edge.target].stage in stages and plan.steps[edge.source].stage not in stages
        }
    )
    starts = f", starts when {_listed('region', before)} {'is' if len(before) == 1 else 'are'} done" if before else ""
    loop = plan.loop_of(stages[0])
    return starts if loop is None else f"{starts}, and runs again in each round of {loop.node.label}"


def _listed(noun: str, numbers: list[int]) -> str:
    return f"{noun}{'' if len(numbers) == 1 else 's'} {' and '.join(map(str, numbers))}"


def _step_lines(plan: Plan, step: Step, *, local: bool = False) -> Iterator[str]:
    """A step, with the edges into it; `local`: one task runs it with the steps around it, without any exchange."""
    for edge in _incoming(plan, step):
        yield _edge_line(plan, edge, local=local)
    yield f"[{step.id}] {_heading(step)}"
    for node in step.nodes:
        yield f"      {node.label}{_node_note(plan, node)}"
    reasons = dict.fromkeys(
        f"{decision.choice}: {decision.reason}"
        for node in step.nodes
        for decision in plan.decisions
        if decision.step == node.label and decision.choice not in ("dropped", RELATION)
    )
    for reason in reasons:
        yield f"      · {reason}"
    if step.in_time_order:
        yield "      · each key's elements in timestamp order: the input is bounded, and their order can show"


def _incoming(plan: Plan, step: Step) -> list[Edge]:
    return sorted(
        plan.inputs(step.id), key=lambda edge: (edge.side is not None, edge.side or 0, edge.node, edge.source)
    )


def _edge_line(plan: Plan, edge: Edge, *, local: bool) -> str:
    source = f"[{edge.source}]"
    tag = next(
        (
            out.tag
            for node in plan.steps[edge.source].nodes
            for out in node.outputs[1:]
            if out.collection == edge.collection
        ),
        None,
    )
    output = f", output {tag!r}" if tag else ""
    if plan.feeds_back(edge):
        return f"↑ fed back from {source}{output}"
    what = f"side input {edge.side} of {edge.node!r}" if edge.side is not None else ""
    exchange = edge.exchange
    if local or exchange is None:
        return f"│ from {source}{output}{': ' if what else ''}{what}"
    when = {
        "start": "in round 1 ",
        "back": "in other rounds what the one before has left ",
        "last": "what the last round has left ",
        "all": "what all rounds have left ",
        "solution": "the solution ",
    }.get(edge.turn or "", "")
    how = f"{exchange.routing} exchange, {exchange.mode} ({exchange.reason})"
    return f"╪ from {source}{output}: {what}{': ' if what else ''}{when and f'{when}by '}{how}"


def _heading(step: Step) -> str:
    match step.tail:
        case Create() | Read() | TestStream() as node:
            return f"read, {type(node).__name__}"
        case Write():
            return "write"
        case GroupByKey():
            return f"group, {step.path} path"
        case CombinePerKey():
            return {
                "parts": "combine in parts",
                "merge": f"merge the parts, {step.path} path",
            }.get(step.phase or "", f"combine, {step.path} path")
        case Iterate():
            return "loop"
        case Feedback():
            return "take the input and what is fed back"
        case SolutionUpdate():
            return "update the solution"
        case Lookup():
            return "look up in the solution"
        case ParDo() as node if node.stateful:
            return "stateful step"
        case ParDo(calls=AsyncCalls()):
            return "calls out"
    return f"{len(step.nodes)} steps in one loop" if len(step.nodes) > 1 else "step"


def _node_note(plan: Plan, node: Node) -> str:
    notes = [f"{node.where}"]
    relation = next((each.reason for each in plan.decisions if (each.step, each.choice) == (node.label, RELATION)), "")
    if relation:
        return "   " + "; ".join([relation, *notes])
    match node:
        case Create(values=values):
            notes.insert(0, f"{values.count:,} element{'' if values.count == 1 else 's'}")
        case Read():
            delivery = "" if node.replayable else ", at_most_once"
            notes.insert(0, f"{node.name}, {'bounded' if node.bounded else 'unbounded'}{delivery}")
            notes[1:1] = [*_read_of(node)]
        case ParDo(fn=fn) if fn.shown != fn.name:
            notes.insert(0, fn.shown)
        case AssignWindows(windowing=windowing):
            notes.insert(0, describe_windowing(windowing))
        case Iterate():
            notes.insert(0, describe_rounds(node))
        case Feedback():
            notes.insert(0, describe_feedback(node))
        case Write():
            notes.insert(0, f"{node.name}, {node.delivery}")
        case GroupByKey() | CombinePerKey():
            windowing = plan.pipeline.collection(node.inputs[0]).windowing
            if not is_global_assigner(windowing.assigner):
                notes.insert(0, describe_windowing(windowing))
    return "   " + "; ".join(notes)


def _read_of(node: Read) -> Iterator[str]:
    """What a reader reads of its data, if not all."""
    if node.columns is not None:
        yield f"only {', '.join(node.columns)}"
    if node.conditions:
        yield f"no rows but where {' & '.join(f'({text(each)})' for each in node.conditions)}"


# --- graph ---------------------------------------------------------------------------------------------------------


def graph_of_plan(plan: Plan) -> Graph:
    """The plan as a graph to draw: regions contain stages, stages contain steps; exchanges are bold links."""
    groups: list[Group] = []
    boxes: list[Box] = []
    for number, stages in enumerate(plan.regions):
        groups.append(Group(f"region {number}", f"Region {number}", kind="region"))
        groups += [Group(f"stage {stage}", f"Stage {stage}", f"region {number}", "stage") for stage in stages]
    links: list[Link] = []
    for step in plan.steps:
        parent = f"stage {step.stage}"
        if len(step.nodes) > 1:
            groups.append(Group(f"step {step.id}", f"Step {step.id}: {_heading(step)}", parent, "step"))
            parent = f"step {step.id}"
        for position, node in enumerate(step.nodes):
            decided = tuple((d.choice, d.reason) for d in plan.decisions if d.step == node.label)
            box = box_of(
                plan.pipeline, node, _box_id(step, node), parent, (("step of the plan", str(step.id)), *decided)
            )
            boxes.append(_full_title(box, node, step))
            if position:
                links.append(Link(_box_id(step, step.nodes[position - 1]), _box_id(step, node)))
    links += [_link(plan, edge) for edge in plan.edges]
    return Graph(plan.pipeline.name, tuple(boxes), tuple(groups), tuple(links))


def _full_title(box: Box, node: Node, step: Step) -> Box:
    """The box with its full label, since composites are not drawn, and with the phase of a combine."""
    phase = {"parts": " (parts)", "merge": " (merge)"}.get(step.phase or "", "")
    return Box(box.id, shown_label(node) + phase, box.note, box.look, box.facts, box.group)


def _link(plan: Plan, edge: Edge) -> Link:
    source, target = plan.steps[edge.source], plan.steps[edge.target]
    maker = next(
        (node for node in source.nodes if any(out.collection == edge.collection for out in node.outputs)), source.tail
    )
    if edge.side is None:
        reader = target.head
    else:
        reader = next(node for node in target.nodes if node.label == edge.node and side_inputs(node))
    # The output of a partial combine is not a collection of the pipeline.
    known = any(collection.id == edge.collection for collection in plan.pipeline.collections)
    facts = collection_facts(plan.pipeline.collection(edge.collection)) if known else ()
    label, bold = "", False
    if edge.exchange is not None:
        label, bold = f"{edge.exchange.routing}, {edge.exchange.mode}", True
        facts = (
            ("routing", edge.exchange.routing),
            ("mode", edge.exchange.mode),
            ("because", edge.exchange.reason),
            *facts,
        )
    return Link(_box_id(source, maker), _box_id(target, reader), label, bold, edge.side is not None, facts)


def _box_id(step: Step, node: Node) -> str:
    return f"{step.id} {node.label}"
