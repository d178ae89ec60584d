"""Divides a pipeline into fused steps, stages and regions.

A combine is lifted: its first part is fused with the chain before the exchange.

>>> import tidegate as tg
>>> p = tg.Pipeline()
>>> words = p | tg.Create(["a", "b", "a"])
>>> _ = words | tg.Map(lambda word: (word, 1)) | "sum" >> tg.CombinePerKey(sum)
>>> plan = cut(p.portable(), Traits(parallel=True, blocking=True))
>>> for step in plan.steps:
...     print(step.stage, [node.label for node in step.nodes], step.phase)
0 ['Create'] None
0 ['Map(<lambda>)', 'sum'] parts
1 ['sum'] merge
>>> [edge.exchange.routing for edge in plan.edges if edge.exchange], plan.regions
(['hash'], ((0,), (1,)))
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidegate.runners.plan import (
    MAX_NESTED_LOOPS,
    Decision,
    Edge,
    Exchange,
    Mode,
    Path,
    Phase,
    Plan,
    Step,
    nested_loops,
)
from tidegate.runners.planner import rules
from tidegate.runners.planner.rewrite import emitted_as
from tidegate.sdk.errors import counted
from tidegate.sdk.portable.async_calls import AsyncCalls
from tidegate.sdk.portable.model import (
    CombinePerKey,
    Create,
    Feedback,
    Flatten,
    GroupByKey,
    Iterate,
    Lookup,
    Node,
    ParDo,
    Pipeline,
    Read,
    Reshuffle,
    TestStream,
    Write,
    side_inputs,
)


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a runner that the planner takes into account.

    parallel: a stage runs as several tasks, so keyed steps need an exchange. streaming: bounded input is processed as a
    stream. blocking: exchanges of bounded data are materialised. drops_unread: nodes whose results no node reads are
    dropped. parallel_loops: it can run regions again, so that all tasks run the rounds of loops over bounded data.
    costly_rounds: such a round costs much more than one within a task.
    """

    parallel: bool
    streaming: bool = False
    blocking: bool = False
    drops_unread: bool = True
    parallel_loops: bool = False
    costly_rounds: bool = False


@dataclass(slots=True)
class _Cut:
    pipeline: Pipeline
    traits: Traits
    read_apart: frozenset[str]
    """The collections that are read as side inputs, or outside the pipeline."""
    partitioned: frozenset[str] = frozenset()
    """The collections of sources that are partitioned by key."""
    steps: list[Step] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    made_by: dict[str, int] = field(default_factory=dict)
    stages: int = 0

    def decide(self, node: Node, choice: str, reason: str) -> None:
        self.decisions.append(Decision(node.label, choice, reason))


def cut(
    pipeline: Pipeline,
    traits: Traits,
    dropped: tuple[Node, ...] = (),
    results: frozenset[str] = frozenset(),
    partitioned: frozenset[str] = frozenset(),
) -> Plan:
    """Plan a pipeline: fuse chains, lift combines, insert exchanges, and divide the steps into stages and regions.

    The collections `results` are read by something that is no part of the pipeline. `partitioned` are those of sources
    that are partitioned by key.
    """
    side_read = frozenset(ref.collection for node in pipeline.nodes for ref in side_inputs(node))
    heads = [node for node in pipeline.nodes if isinstance(node, Feedback)]
    fed_back = frozenset(part for head in heads for part in emitted_as(pipeline, head.after))
    state = _Cut(pipeline, traits, side_read | results | fed_back, partitioned)
    for node in dropped:
        state.decide(node, "dropped", "nothing reads its result")
    fused: set[str] = set()
    for node in pipeline.nodes:
        if node.label in fused or isinstance(node, Flatten):
            continue
        chain = _chain(state, node)
        fused.update(part.label for part in chain)
        if len(chain) > 1:
            state.decide(chain[-1], f"fused {len(chain)} steps into one loop", "each has only one reader")
        _place(state, chain)
    for head in heads:
        target = state.made_by[head.before]
        around = Exchange("forward", "pipelined", "what is fed back") if traits.parallel else None
        for part in emitted_as(pipeline, head.after):
            state.edges.append(Edge(part, state.made_by[part], target, around))
    regions = _regions(state)
    return Plan(pipeline, tuple(state.steps), tuple(state.edges), regions, tuple(state.decisions), results=results)


def _chain(state: _Cut, head: Node) -> tuple[Node, ...]:
    """The node, with the nodes behind it that are fused with it."""
    chain = [head]
    loops = nested_loops(head)
    while rules.element_wise(chain[-1]):
        last = chain[-1]
        if any(list(state.pipeline.consumers(out.collection)) for out in last.outputs[1:]):
            break
        if any(out.collection in state.read_apart for out in last.outputs):
            break
        readers = list(state.pipeline.consumers(last.output()))
        if len(readers) != 1 or isinstance(readers[0], Flatten):
            break
        reader = readers[0]
        if side_inputs(reader):
            break
        loops += nested_loops(reader)
        if rules.element_wise(reader):
            if loops > MAX_NESTED_LOOPS:
                state.decide(
                    reader, "begins another loop", f"the one before nests {loops - nested_loops(reader)} loops"
                )
                break
            chain.append(reader)
            continue
        if _absorbs(state, chain, reader):
            chain.append(reader)
        break
    return tuple(chain)


def _absorbs(state: _Cut, chain: list[Node], reader: Node) -> bool:
    """Whether a grouping is fused with the chain before it: no exchange between, and tables that the loop can fill.

    A step with several results per element fills tables that can be spilled meanwhile. Elements that are counted stay
    apart from it, since a block of them is counted at once.
    """
    match reader:
        case GroupByKey():
            counts = False
        case CombinePerKey(key=key):
            if key == "none":
                return False
            counts = key == "element"
        case _:
            return False
    if not all(rules.may_fold(node) for node in chain):
        return False
    if state.traits.parallel and not (isinstance(reader, CombinePerKey) and _lifts(state, reader)[0]):
        return False
    path, _ = _path(state, reader)
    if all(rules.at_most_one(node) for node in chain):
        return path in ("table", "window_major")
    return path == "table" and not counts


def _path(state: _Cut, node: GroupByKey | CombinePerKey) -> tuple[Path, str]:
    source = state.pipeline.collection(node.inputs[0])
    return rules.grouping_path(
        source.windowing, node.late_tag, bounded=source.bounded, streaming=state.traits.streaming
    )


def _place(state: _Cut, chain: tuple[Node, ...]) -> None:
    """Add the steps of a chain, with their edges and exchanges."""
    head, tail = chain[0], chain[-1]
    path: Path | None = None
    phase: Phase | None = None
    ordered = False
    match tail:
        case GroupByKey() | CombinePerKey():
            path, why = _path(state, tail)
            state.decide(tail, f"grouped by the {path} path", why)
            phase = "whole"
            source = state.pipeline.collection(tail.inputs[0])
            ordered = source.bounded and not state.traits.streaming and rules.order_shows(tail, source.windowing)
        case ParDo() if tail.stateful:
            source = state.pipeline.collection(tail.inputs[0])
            ordered = source.bounded and not state.traits.streaming
        case ParDo(calls=AsyncCalls() as calls):
            beside = "an event loop awaits them" if calls.awaits else "threads make them"
            state.decide(tail, "calls beside the stream", f"{beside}, {rules.describe_calls(calls)}")
        case Feedback():
            state.decide(tail, f"takes {tail.after} again", "each element fed back comes round once")
        case Iterate():
            state.decide(tail, "runs its rounds when its input has ended", "a round is bounded input to the body")
        case _:
            pass
    if isinstance(tail, CombinePerKey) and _lift(state, tail):
        _place_lifted(state, chain, tail, path)
        return
    exchange, inputs = _exchange(state, head), _inputs(state, head)
    stay = frozenset[str]() if exchange is None else _staying(state, head, inputs)
    _add(state, Step(len(state.steps), chain, 0, phase, path, ordered), inputs, exchange, stay)


def _lift(state: _Cut, node: CombinePerKey) -> bool:
    allowed, why = _lifts(state, node)
    if why:
        state.decide(node, why[0], why[1])
    return allowed


def _lifts(state: _Cut, node: CombinePerKey) -> tuple[bool, tuple[str, str] | None]:
    """Whether parts are combined before the exchange; and the decision with its reason, if there was a choice."""
    source = state.pipeline.collection(node.inputs[0])
    if node.key == "first" and _partitioned_by(state, node.inputs[0]) is not None:
        return False, None
    if not state.traits.parallel:
        return False, ("combined once", "one process: there is no exchange to save")
    allowed, why = rules.lift(node, source.windowing, bounded=source.bounded and not state.traits.streaming)
    return allowed, ("combined in parts before the exchange" if allowed else "combined after the exchange", why)


def _place_lifted(state: _Cut, chain: tuple[Node, ...], node: CombinePerKey, path: Path | None) -> None:
    parts = Step(len(state.steps), chain, 0, "parts", path)
    _add(state, parts, _inputs(state, chain[0]), None)
    merge = Step(len(state.steps), (replace(node, fn=node.fn.another()),), 0, "merge", path)  # perhaps beside the parts
    exchange = Exchange("hash" if node.key != "none" else "gather", _mode(state, node), "parts of one key meet")
    _add(state, merge, [(parts.outputs[0], parts.id)], exchange)


def _inputs(state: _Cut, node: Node) -> list[tuple[str, int]]:
    """The collections that a node reads, with the steps that emit them. A Flatten is replaced by its inputs."""
    found: list[tuple[str, int]] = []

    def walk(collection: str) -> None:
        producer = state.pipeline.producer(collection)
        if isinstance(producer, Flatten):
            for part in producer.inputs:
                walk(part)
        else:
            found.append((collection, state.made_by[collection]))

    is_kept = isinstance(node, Lookup) and state.traits.parallel  # each task has its part of the solution
    for used in node.inputs[:1] if is_kept else node.inputs:
        walk(used)
    return found


def _partitioned_by(state: _Cut, collection: str) -> str | None:
    return rules.partitioned_by_key(state.pipeline, collection, state.partitioned)


def _exchange(state: _Cut, node: Node) -> Exchange | None:
    """The exchange that a node needs before it, if any."""
    match node:
        case Reshuffle():
            return Exchange("rebalance", _mode(state, node), "a Reshuffle was asked for")
        case Feedback() if state.traits.parallel:
            return Exchange("forward", _mode(state, node), "the loop takes its input while its backlog is small")
        case Iterate() if state.traits.parallel:
            bounded = all(state.pipeline.collection(used).bounded for used in node.inputs)
            mode: Mode = "blocking" if state.traits.parallel_loops and bounded else _mode(state, node)
            return Exchange("gather", mode, "one task runs all rounds")
        case Write(shards=shards) if shards and state.traits.parallel:
            return Exchange(
                "gather" if shards == 1 else "rebalance",
                _mode(state, node),
                counted(shards, "shard was asked for", "shards were asked for"),
            )
        case Lookup() if not state.traits.parallel:
            return None
        case _ if not rules.needs_key(node):
            return None
    if isinstance(node, CombinePerKey) and node.key == "none":
        return Exchange("gather", _mode(state, node), "one result over all elements")
    before = _partitioned_by(state, node.inputs[0])
    if before is not None and not (isinstance(node, CombinePerKey) and node.key == "element"):
        state.decide(node, "no exchange", f"{before!r} has partitioned its input by the same key")
        return None
    return Exchange("hash", _mode(state, node), "equal keys meet")


def _staying(state: _Cut, node: Node, inputs: list[tuple[str, int]]) -> frozenset[str]:
    """Of a keyed node's inputs those that need no exchange although others do, since their sources are partitioned."""
    if not state.partitioned or not rules.needs_key(node) or (isinstance(node, CombinePerKey) and node.key != "first"):
        return frozenset()
    stay = frozenset(collection for collection, _ in inputs if _partitioned_by(state, collection) is not None)
    stages = {state.steps[source].stage for collection, source in inputs if collection in stay}
    others = {state.steps[source].stage for collection, source in inputs if collection not in stay}
    if any(_reaches(state, a, b) for a in stages for b in (*others, *(stages - {a}))):
        return frozenset()
    return stay


def _mode(state: _Cut, node: Node) -> Mode:
    bounded = all(state.pipeline.collection(used).bounded for used in node.inputs)
    return "blocking" if state.traits.blocking and bounded and not state.traits.streaming else "pipelined"


def _add(
    state: _Cut,
    step: Step,
    inputs: list[tuple[str, int]],
    exchange: Exchange | None,
    stay: frozenset[str] = frozenset(),
) -> None:
    """Add a step with its edges. The inputs `stay` don't cross the exchange."""
    sides = [
        (part, source, number, node.label)
        for node in step.nodes
        for number, ref in enumerate(side_inputs(node))
        for part, source in _inputs_of_collection(state, ref.collection)
    ]
    side_stages = {state.steps[source].stage for _, source, _, _ in sides}
    staying = {state.steps[source].stage for collection, source in inputs if collection in stay}
    if _wait(state, staying, side_stages):
        stay, staying = frozenset(), set()
    sources = staying or {state.steps[source].stage for _, source in inputs}
    if exchange is None and state.traits.parallel and _wait(state, sources, side_stages):
        exchange = Exchange("forward", _mode(state, step.head), "one input depends on the stage of another")
    if isinstance(step.head, (Create, Read, TestStream)) or (exchange is not None and not stay):
        state.stages += 1
        stage = state.stages - 1
    elif len(sources) == 1:
        (stage,) = sources
    else:
        stage = _join(state, sources)
    state.steps.append(replace(step, stage=stage))
    for collection, source in inputs:
        state.edges.append(Edge(collection, source, step.id, None if collection in stay else exchange))
    for collection, source, number, label in sides:
        broadcast = Exchange(
            "broadcast", "blocking" if state.pipeline.collection(collection).bounded else "pipelined", "a side input"
        )
        state.edges.append(Edge(collection, source, step.id, broadcast, side=number, node=label))
    for node in step.nodes:
        for out in node.outputs:
            state.made_by[out.collection] = step.id


def _inputs_of_collection(state: _Cut, collection: str) -> list[tuple[str, int]]:
    producer = state.pipeline.producer(collection)
    if isinstance(producer, Flatten):
        return [found for part in producer.inputs for found in _inputs_of_collection(state, part)]
    return [(collection, state.made_by[collection])]


def _wait(state: _Cut, mains: set[int], sides: set[int]) -> bool:
    """Whether the step can't run in the stages of its inputs, because one of these stages depends on another.

    The merged stage would depend on itself, so it could never start.
    """
    return any(side in mains or _reaches(state, main, side) for main in mains for side in sides) or any(
        _reaches(state, a, b) for a in mains for b in mains if a != b
    )


def _reaches(state: _Cut, start: int, end: int) -> bool:
    """Whether the stage `end` depends on `start`, directly or through others."""
    seen, todo = {start}, [start]
    while todo:
        stage = todo.pop()
        for edge in state.edges:
            target = state.steps[edge.target].stage
            if state.steps[edge.source].stage == stage and target not in seen:
                seen.add(target)
                todo.append(target)
    return end in seen


def _join(state: _Cut, stages: set[int]) -> int:
    """Merge stages, which are inputs of one step without an exchange."""
    into = min(stages)
    state.steps = [replace(step, stage=into) if step.stage in stages else step for step in state.steps]
    return into


def _regions(state: _Cut) -> tuple[tuple[int, ...], ...]:
    """The regions, in topological order. Stages that are connected by pipelined exchanges are in the same region.

    All stages of unbounded data are in one region, which comes last if nothing depends on it: a region starts when
    those before it are done, and unbounded data may never end. Regions that depend on one another in a cycle are
    merged, and the exchanges between them are pipelined. Such a cycle exists, for instance, if a side input and the
    main input come from one unbounded source.
    """
    region = {step.stage: step.stage for step in state.steps}
    ends = {edge: (state.steps[edge.source].stage, state.steps[edge.target].stage) for edge in state.edges}
    blocking = [ends[edge] for edge in state.edges if _blocks(edge)]
    for edge in state.edges:
        if not _blocks(edge):
            _merge(region, *ends[edge])
    live = sorted(step.stage for step in state.steps if _is_live(state, step))
    for stage in live[1:]:
        _merge(region, live[0], stage)
    while cycle := _cycle(region, blocking):
        _merge(region, *cycle)
    for at, edge in enumerate(state.edges):
        source, target = ends[edge]
        if edge.exchange is not None and _blocks(edge) and region[source] == region[target]:
            state.edges[at] = replace(edge, exchange=replace(edge.exchange, mode="pipelined"))
    groups: dict[int, list[int]] = {}
    for stage in sorted(region):
        groups.setdefault(region[stage], []).append(stage)
    in_order = sorted(groups, key=lambda group: bool(live) and group == region[live[0]])
    before = {group: {region[a] for a, b in blocking if region[b] == group} - {group} for group in groups}
    ordered: dict[int, tuple[int, ...]] = {}
    while len(ordered) < len(groups):
        ready = next(group for group in in_order if group not in ordered and before[group] <= ordered.keys())
        ordered[ready] = tuple(groups[ready])
    return tuple(ordered.values())


def _is_live(state: _Cut, step: Step) -> bool:
    """Whether a step emits unbounded data."""
    return not all(state.pipeline.collection(out.collection).bounded for out in step.head.outputs)


def _blocks(edge: Edge) -> bool:
    return edge.exchange is not None and edge.exchange.mode == "blocking"


def _merge(region: dict[int, int], a: int, b: int) -> None:
    """Merge the regions of two stages."""
    target, merged = sorted((region[a], region[b]))
    for stage, number in region.items():
        if number == merged:
            region[stage] = target


def _cycle(region: dict[int, int], feeds: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Two regions that depend on each other, directly or through others; None if there are none."""
    after: dict[int, set[int]] = {}
    for a, b in feeds:
        if region[a] != region[b]:
            after.setdefault(region[a], set()).add(region[b])

    def reached(start: int) -> set[int]:
        seen: set[int] = set()
        todo = [start]
        while todo:
            for group in after.get(todo.pop(), ()):
                if group not in seen:
                    seen.add(group)
                    todo.append(group)
        return seen

    for start in after:
        if start in (found := reached(start)):
            return start, next(other for other in found if other != start and start in reached(other))
    return None
