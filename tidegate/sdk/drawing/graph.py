"""Graphs of pipelines as data, and their text forms for Mermaid and Graphviz.

`graph_of` converts a portable pipeline to a `Graph`, with composites as groups; the planner converts a plan, with its
regions, stages and exchanges. `svg.py` and `html.py` draw any Graph. Nothing here unpickles anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from tidegate.sdk.errors import counted, visible
from tidegate.sdk.portable.integrity import inner_collections, with_bodies
from tidegate.sdk.portable.model import (
    AssignWindows,
    Collection,
    CombinePerKey,
    Create,
    Feedback,
    GroupByKey,
    Iterate,
    Node,
    ParDo,
    Pipeline,
    Read,
    Relate,
    TestStream,
    Write,
    side_inputs,
)
from tidegate.sdk.relational.relations import Compute, described, shown
from tidegate.sdk.time import Duration, Timestamp
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.windowing.strategy import GLOBAL_DEFAULT, WindowingStrategy

Look: TypeAlias = Literal["source", "step", "windows", "grouping", "wiring", "sink"]
"""The kind of a box, which determines its colour."""


@dataclass(frozen=True, slots=True)
class Box:
    """A node. `note` is its second line; `facts` are its tooltip; `group` is the id of its group."""

    id: str
    title: str
    note: str
    look: Look
    facts: tuple[tuple[str, str], ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A collapsible frame around boxes and other groups; `parent` is "" at the top level."""

    id: str
    title: str
    parent: str = ""
    kind: Literal["composite", "region", "stage", "step"] = "composite"


@dataclass(frozen=True, slots=True)
class Link:
    """An arrow between boxes, with a `label`; a `bold` one is an exchange, a `dashed` one a side input."""

    source: str
    target: str
    label: str = ""
    bold: bool = False
    dashed: bool = False
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph. A group comes before the groups inside it, and no group is empty; boxes are in the pipeline's order."""

    title: str
    boxes: tuple[Box, ...]
    groups: tuple[Group, ...]
    links: tuple[Link, ...]


def graph_of(pipeline: Pipeline) -> Graph:
    """The graph of a pipeline, with its composites and loops as groups.

    In a loop's group, a box for each loop variable stands for its elements as a round finds them; an arrow back to it
    comes from what the round leaves.
    """
    groups: dict[str, Group] = {}
    boxes = []
    nodes = tuple(with_bodies(pipeline.nodes))
    whole = replace(pipeline, collections=(*pipeline.collections, *inner_collections(pipeline.nodes)))
    rounds = {node.label: f" ({note})" for node in nodes if (note := _loop_note(node))}

    def group_of(composite: str) -> str:
        parent = ""
        for path in composite_paths(composite):
            groups.setdefault(path, Group(path, path[len(parent) :].lstrip("/") + rounds.get(path, ""), parent))
            parent = path
        return parent

    for node in nodes:
        match node:
            case Iterate():
                group = group_of(node.label)
                boxes += [
                    _variable_box(whole, node, each.before, each.name or "each round", group) for each in node.variables
                ]
            case Feedback():
                boxes.append(_variable_box(whole, node, node.before, "input and feedback", group_of(node.label)))
            case _:
                boxes.append(box_of(whole, node, node.label, group_of(node.composite)))
    return Graph(pipeline.name, tuple(boxes), tuple(groups.values()), tuple(_links(whole, nodes)))


def describe_rounds(loop: Iterate) -> str:
    """How many rounds a loop has: `at most 100 rounds`."""
    return f"{'at most ' if loop.has_condition else ''}{counted(loop.rounds, 'round')}"


def describe_feedback(loop: Feedback) -> str:
    """What bounds a loop without rounds: `feedback, at most 20 hops`."""
    return "feedback" + ("" if loop.max_hops is None else f", at most {counted(loop.max_hops, 'hop')}")


def _loop_note(node: Node) -> str:
    match node:
        case Iterate():
            return describe_rounds(node)
        case Feedback():
            return describe_feedback(node)
        case _:
            return ""


def _variable_box(pipeline: Pipeline, loop: Iterate | Feedback, before: str, title: str, group: str) -> Box:
    facts = (("loop", loop.label), *collection_facts(pipeline.collection(before)))
    return Box(before, title, _loop_note(loop), "wiring", facts, group)


def box_of(pipeline: Pipeline, node: Node, id: str, group: str, more: tuple[tuple[str, str], ...] = ()) -> Box:
    """A node's box, with `more` facts after the node's own."""
    label = shown_label(node)
    title = label.removeprefix(node.composite).lstrip("/") if node.composite else label
    facts = (("step", node.label), *_facts(pipeline, node), ("applied at", str(node.where)), *more)
    return Box(id, title, _note(pipeline, node), _look(node), facts, group)


def shown_label(node: Node) -> str:
    """A node's label, in which a lambda that an automatic label names has its expression: `Map(x + 1)`."""
    match node:
        case ParDo(fn=fn) | CombinePerKey(fn=fn) if fn.shown != fn.name:
            own = node.label.removeprefix(node.composite)
            return node.label.removesuffix(own) + own.replace("(<lambda>)", f"({fn.shown})")
    return node.label


def composite_paths(composite: str) -> Iterator[str]:
    """`A`, `A/B`, `A/B/C` of `A/B/C`; a slash in parentheses, as in `Read(/a/b)`, is part of a name."""
    depth = 0
    for position, letter in enumerate(composite):
        depth += (letter in "([") - (letter in ")]")
        if letter == "/" and depth == 0 and position:
            yield composite[:position]
    if composite:
        yield composite


def _links(pipeline: Pipeline, nodes: Sequence[Node]) -> Iterator[Link]:
    makers = _makers(nodes)
    for node in nodes:
        match node:
            case Iterate():
                circles = [(each.start, each.before, each.after, "next round") for each in node.variables]
            case Feedback():
                circles = [(node.inputs[0], node.before, node.after, "fed back")]
            case _:
                circles = []
        for start, before, after, again in circles:
            facts = collection_facts(pipeline.collection(before))
            maker, label = makers[start]
            yield Link(maker, before, label, facts=facts)
            maker, label = makers[after]
            yield Link(maker, before, f"{label}, {again}" if label else again, facts=facts)
        if circles:
            continue
        for used in node.inputs:
            maker, label = makers[used]
            yield Link(maker, node.label, label, facts=collection_facts(pipeline.collection(used)))
        for ref in side_inputs(node):
            maker, _ = makers[ref.collection]
            facts = collection_facts(pipeline.collection(ref.collection))
            yield Link(maker, node.label, f"side input ({ref.view})", dashed=True, facts=facts)


def _makers(nodes: Sequence[Node]) -> dict[str, tuple[str, str]]:
    """For each collection the box that it comes from, and the tag of the output unless it is the main one."""
    makers: dict[str, tuple[str, str]] = {}
    for node in nodes:
        if not isinstance(node, Iterate | Feedback):
            for out in node.outputs:
                makers[out.collection] = node.label, out.tag if out.collection != node.output() else ""
    loops = [node for node in nodes if isinstance(node, Iterate | Feedback)]
    for loop in loops:
        befores = [loop.before] if isinstance(loop, Feedback) else [each.before for each in loop.variables]
        makers.update((before, (before, "")) for before in befores)
    for loop in reversed(loops):  # an inner loop before the one whose body it is in
        if isinstance(loop, Feedback):
            too_far = () if loop.max_hops is None else (loop.before,)
            leaving = (*loop.gives, *too_far)
        else:
            leaving = (*(variable.after for variable in loop.variables), *loop.gives)
        makers.update((out.collection, makers[id]) for out, id in zip(loop.outputs, leaving, strict=True))
    return makers


def _look(node: Node) -> Look:
    match node:
        case Create() | Read() | TestStream():
            return "source"
        case ParDo():
            return "step"
        case AssignWindows():
            return "windows"
        case GroupByKey() | CombinePerKey():
            return "grouping"
        case Relate(relation=relation):
            return "step" if isinstance(relation, Compute) else "grouping"
        case Write():
            return "sink"
        case _:
            return "wiring"


def _note(pipeline: Pipeline, node: Node) -> str:
    match node:
        case Read(replayable=False):
            return "at most once"
        case Write(delivery=delivery):
            return delivery.replace("_", " ")
        case AssignWindows(windowing=windowing):
            return describe(windowing.assigner)
        case Relate(relation=relation):
            what = described(relation, None)
            return what if len(what) <= 80 else f"{what[:79]}…"
        case _ if node.outputs:
            name = pipeline.collection(node.output()).element_type.name
            return f"→ {name}" if name != "Any" else ""
    return ""


def _facts(pipeline: Pipeline, node: Node) -> Iterator[tuple[str, str]]:
    yield "kind", type(node).__name__
    match node:
        case Create(values=values):
            yield "elements", f"{values.count:,}"
        case Read(name=name):
            yield "source", name
            if not node.replayable:
                yield "delivery", "at most once"
        case Relate(relation=relation):
            yield "computes", shown(relation)
        case ParDo() | CombinePerKey():
            yield "function", node.fn.shown + (f", defined at {node.fn.where}" if node.fn.where else "")
        case Write():
            yield "sink", node.name
            yield "delivery", node.delivery.replace("_", " ")
            if node.shards:
                yield "shards", str(node.shards)
    match node:
        case ParDo():
            if node.states:
                yield "state", ", ".join(f"{spec.name} ({spec.cell})" for spec in node.states)
            if node.timers:
                yield "timers", ", ".join(f"{spec.name} ({spec.domain} time)" for spec in node.timers)
            if node.calls:
                order = "in order" if node.calls.ordered else "unordered"
                yield "calls out", f"up to {node.calls.capacity:,} at a time, {order}"
            if node.dead_letters:
                yield "dead letters", f"to output {node.dead_letters.tag!r}"
        case Iterate():
            yield "rounds", describe_rounds(node)
        case Feedback():
            yield "takes", f"its input and {node.after}"
        case CombinePerKey(in_parts=in_parts, key=key):
            yield "combines", {"first": "per key", "element": "per element", "none": "globally"}[key]
            yield "in parts", "yes" if in_parts else "no"
    for out in node.outputs:
        prefix = "" if len(node.outputs) == 1 else f"{out.tag}: "
        for name, value in collection_facts(pipeline.collection(out.collection)):
            yield prefix + name, value


def collection_facts(collection: Collection) -> tuple[tuple[str, str], ...]:
    """A collection's element type, its windowing unless it is the default, and whether it is bounded."""
    facts = [("elements are", collection.element_type.name)]
    if collection.schema is not None:
        facts.append(("columns", str(collection.schema)))
    if collection.windowing != GLOBAL_DEFAULT:
        facts.append(("windowing", describe_windowing(collection.windowing)))
    facts.append(("bounded", "yes" if collection.bounded else "no"))
    return tuple(facts)


def describe_windowing(windowing: WindowingStrategy) -> str:
    """A windowing strategy on one line: `FixedWindows(60s), AfterWatermark(), discarding`."""
    parts = [describe(windowing.assigner), describe(windowing.trigger), describe(windowing.accumulation)]
    if windowing.evictor is not None:
        parts.append(describe(windowing.evictor))
    if windowing.allowed_lateness.micros:
        parts.append(f"lateness {describe(windowing.allowed_lateness)}")
    return ", ".join(parts)


def describe(value: Any) -> str:
    """An assigner, trigger or similar, as an author writes it: `Sessions(600s)`, `Repeatedly(AfterCount(3))`."""
    match value:
        case UserFn():
            return value.name
        case Duration() | Timestamp():
            return repr(value).partition("(")[2][:-1]
        case Enum():
            return str(value.value)
        case tuple():
            return ", ".join(describe(part) for part in value)
    if is_dataclass(value):
        arguments: list[str] = []
        for f in fields(value):
            part = getattr(value, f.name)
            if f.name == "kind" or part == f.default:
                continue
            arguments.append(describe(part) if not arguments or f.name == "parts" else f"{f.name}={describe(part)}")
        return f"{type(value).__name__}({', '.join(arguments)})"
    return repr(value)


# --- text forms ----------------------------------------------------------------------------------------------------

COLOURS: Final[dict[Look, str]] = {
    "source": "#2f9e6e",
    "step": "#3b78d8",
    "windows": "#8a5bd6",
    "grouping": "#d9822b",
    "wiring": "#7a8699",
    "sink": "#c2476b",
}


def readable(graph: Graph) -> Graph:
    """The graph with unprintable characters in its texts escaped; the first step of each form of drawing."""

    def readable_facts(facts: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((visible(name), visible(value)) for name, value in facts)

    return replace(
        graph,
        title=visible(graph.title),
        boxes=tuple(
            replace(box, title=visible(box.title), note=visible(box.note), facts=readable_facts(box.facts))
            for box in graph.boxes
        ),
        groups=tuple(replace(group, title=visible(group.title)) for group in graph.groups),
        links=tuple(replace(link, label=visible(link.label), facts=readable_facts(link.facts)) for link in graph.links),
    )


def mermaid(graph: Graph) -> str:
    """The graph as a Mermaid flowchart, which most code hosts render in a README."""
    graph = readable(graph)
    ids = _short_ids(graph)
    lines = ["flowchart TB"]

    def members(parent: str, indent: str) -> None:
        for group in graph.groups:
            if group.parent == parent:
                lines.append(f'{indent}subgraph {ids[group.id, "group"]}["{_mermaid_text(group.title)}"]')
                members(group.id, indent + "  ")
                lines.append(f"{indent}end")
        for box in graph.boxes:
            if box.group == parent:
                text = _mermaid_text(box.title) + (f"<br/><small>{_mermaid_text(box.note)}</small>" if box.note else "")
                left, right = {"source": ("([", "])"), "sink": ("[(", ")]")}.get(box.look, ("[", "]"))
                lines.append(f'{indent}{ids[box.id, "box"]}{left}"{text}"{right}:::{box.look}')

    members("", "  ")
    for link in graph.links:
        arrow = "==>" if link.bold else "-.->" if link.dashed else "-->"
        label = f'|"{_mermaid_text(link.label)}"|' if link.label else ""
        lines.append(f"  {ids[link.source, 'box']} {arrow}{label} {ids[link.target, 'box']}")
    for look, colour in COLOURS.items():
        if any(box.look == look for box in graph.boxes):
            lines.append(f"  classDef {look} stroke:{colour},stroke-width:2px")
    return "\n".join(lines) + "\n"


def dot(graph: Graph) -> str:
    """The graph in the DOT language of Graphviz."""
    graph = readable(graph)
    ids = _short_ids(graph)
    lines = [
        f"digraph {_dot_text(graph.title)} {{",
        '  graph [fontname="Helvetica", compound=true, color="#9aa5b1"];',
        '  node [fontname="Helvetica", shape=box, style="rounded,filled", fillcolor=white];',
        '  edge [fontname="Helvetica", fontsize=10];',
    ]

    def members(parent: str, indent: str) -> None:
        for group in graph.groups:
            if group.parent == parent:
                lines.append(f"{indent}subgraph cluster_{ids[group.id, 'group']} {{")
                lines.append(f"{indent}  label={_dot_text(group.title)};")
                members(group.id, indent + "  ")
                lines.append(f"{indent}}}")
        for box in graph.boxes:
            if box.group == parent:
                text = box.title + (f"\n{box.note}" if box.note else "")
                tip = "\n".join(f"{name}: {value}" for name, value in box.facts)
                lines.append(
                    f"{indent}{ids[box.id, 'box']} [label={_dot_text(text)}, "
                    f'color="{COLOURS[box.look]}", tooltip={_dot_text(tip)}];'
                )

    members("", "  ")
    for link in graph.links:
        traits = [f"label={_dot_text(link.label)}"] if link.label else []
        traits += ["style=bold"] if link.bold else ["style=dashed"] if link.dashed else []
        suffix = f" [{', '.join(traits)}]" if traits else ""
        lines.append(f"  {ids[link.source, 'box']} -> {ids[link.target, 'box']}{suffix};")
    return "\n".join([*lines, "}"]) + "\n"


def _short_ids(graph: Graph) -> dict[tuple[str, str], str]:
    """Ids that every tool accepts: n0, n1, … for boxes, g0, g1, … for groups."""
    boxes = {(box.id, "box"): f"n{number}" for number, box in enumerate(graph.boxes)}
    return boxes | {(group.id, "group"): f"g{number}" for number, group in enumerate(graph.groups)}


def _mermaid_text(text: str) -> str:
    escaped = {'"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "#": "#35;", "\n": " ", "`": "#96;", "\\": "#92;"}
    return "".join(escaped.get(letter, letter) for letter in text)


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
