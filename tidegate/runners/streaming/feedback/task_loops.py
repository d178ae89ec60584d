"""What one task does for feedback loops: it drives the heads that it has, and passes marks on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.engine.operator_graph import Graph, state_name
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.exchange.stream_partitioner import Partitioner
from tidegate.runners.plan import Edge
from tidegate.runners.streaming.feedback.channel import FeedbackChannel
from tidegate.runners.streaming.feedback.head import LoopHead
from tidegate.runners.streaming.feedback.loop_part import LoopPart
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.network.channels import OutputChannel
from tidegate.runners.streaming.protocol.stream_items import Barrier, Hops, LoopMark
from tidegate.runners.streaming.protocol.worker_messages import BeginMark, LoopReport, LoopTime
from tidegate.sdk.data.block import Block


class Barriers(Protocol):
    """The barriers of the task."""

    @property
    def current(self) -> Barrier | None:
        """The one that is on its way, behind input that is to be taken."""


class TaskLoops:
    """The loops of one task; without any, all methods do nothing. `feedback`: the channels that lead back to its heads;
    `inputs`: its other channels; `report` tells the coordinator."""

    def __init__(
        self,
        job: Job,
        task: TaskId,
        context: Context,
        graph: Graph,
        inputs: Mapping[ChannelId, object],
        feedback: Mapping[ChannelId, FeedbackChannel],
        outputs: Mapping[ChannelId, OutputChannel],
        report: Callable[[LoopReport], None],
        barriers: Barriers,
    ) -> None:
        self._plan = job.plan
        self._graph = graph
        self._report = report
        self._barriers = barriers
        self._parts: dict[int, LoopPart] = {}
        self._heads: dict[int, LoopHead] = {}
        self._answers: list[tuple[LoopHead, LoopTime]] = []
        self.turn = True
        """Whether what has been fed back goes before new input."""
        self.hops = 0
        """How often the elements have gone round that cause what the task emits now."""
        self._hops: dict[ChannelId, int] = {}
        """How often the next elements of each channel have gone round, in loops that count it."""
        self._sent: dict[Edge, int] = {}
        """The same of what was sent last on each edge."""
        self._counting = job.counting
        operators = graph.operators()
        here = {step.id for step in job.plan.stage_steps(task.stage)}
        for loop in job.loops:
            steps = here & loop.steps
            if not steps:
                continue
            self._parts[loop.head] = LoopPart(
                loop,
                str(task),
                [operators[state_name(job.plan.steps[step])] for step in loop.body if step in steps],
                loop.entering(steps),
                {id: 0 for id in inputs if loop.has(job.plan.edges[id.edge])},
                [channel for id, channel in outputs.items() if loop.has(job.plan.edges[id.edge])],
            )
            if loop.head in steps:
                back = [channel for id, channel in feedback.items() if job.plan.edges[id.edge].target == loop.head]
                tasks = job.topology.parallelism(task.stage)
                self._heads[loop.head] = LoopHead(loop, task.index, tasks, context, back)

    def __bool__(self) -> bool:
        return bool(self._parts)

    # -- from the coordinator

    def begin(self, message: BeginMark) -> None:
        """Let the next mark go round."""
        if (part := self._parts.get(message.loop)) is not None:
            part.begun = message.number
        if (head := self._heads.get(message.loop)) is not None:
            head.ask(message.number)

    def receive_time(self, message: LoopTime) -> None:
        """The coordinator has answered the heads."""
        if (head := self._heads.get(message.loop)) is not None:
            self._answers.append((head, message))

    # -- items of the channels

    def delivering(self, channel: ChannelId, block: Block) -> Iterator[None]:
        """Give the elements of a channel to the step that it leads to."""
        edge = self._plan.edges[channel.edge]
        for part in self._parts.values():
            part.take(block)
        yield from self.counting(self._hops.get(channel, 0))
        if (head := self._heads.get(edge.target)) is not None:
            yield from head.entering(block, self._graph)
        else:
            yield from self._graph.delivering(edge, block)

    def receive(self, channel: ChannelId, event: LoopMark | Hops) -> None:
        """A mark has come, or elements that have gone round more or less often follow."""
        match event:
            case LoopMark(loop=loop):
                self._parts[loop].add(channel, event)
            case Hops(number=number):
                self._hops[channel] = number

    def end(self, channel: ChannelId) -> None:
        """A channel has ended."""
        for part in self._parts.values():
            part.end(channel)

    def updating(self, collection: str, status: CollectionStatus) -> Iterator[None]:
        """Update the status of a collection that comes from outside the task."""
        yield from self.apart(self._graph.updating(collection, status))
        for head in self._heads.values():
            if collection in head.loop.input:
                yield from head.input_changed(self._graph)

    # -- work

    def next(self, now: int, *, blocked: bool) -> Iterator[None] | None:
        """What is to be done before input is read: pass on statuses and marks, send marks, and let what has been fed
        back take its turn, unless the graph is `blocked`. None: nothing now."""
        if self._graph.paused:
            return None
        if self._answers:
            answered, time = self._answers.pop(0)
            return self.apart(answered.advance(time, self._graph))
        for step, part in self._parts.items():
            head = self._heads.get(step)
            if head is None:
                if part.due:
                    return part.passing(self._graph)
            elif (at := head.next_mark(self._graph)) is not None and at <= now:
                return self._sending(head, part, now)
        return self.emitting() if self.turn and not blocked else None

    def holds(self, channel: ChannelId) -> bool:
        """Whether no elements of a channel are taken for now: the backlog is large, or calls are in flight of elements
        that have gone round more or less often."""
        head = self._heads.get(self._plan.edges[channel.edge].target)
        if head is not None and head.is_closed and self._barriers.current is None:
            return True
        return self._waits(self._hops.get(channel, 0))

    def _waits(self, hops: int) -> bool:
        return bool(self._counting) and hops != self.hops and self._graph.pending

    def next_wakes(self) -> list[int]:
        """When (µs of the monotonic clock) to send marks."""
        return [at for head in self._heads.values() if (at := head.next_mark(self._graph)) is not None]

    def emitting(self) -> Iterator[None] | None:
        """Let elements that have been fed back go round again; None if there are none."""
        for head in self._heads.values():
            if len(head.backlog) and not self._waits(head.backlog.next_hops):
                self.turn = False
                return self._emitting(head)
        return None

    def _emitting(self, head: LoopHead) -> Iterator[None]:
        hops, block = head.take()
        self._parts[head.loop.head].take(block)
        yield from self.counting(hops)
        yield from head.emitting((hops, block), self._graph)

    # -- how often elements go round

    def counting(self, hops: int) -> Iterator[None]:
        """What follows is caused by elements that have gone round so often: end the bundles of others."""
        if self._counting and hops != self.hops:
            yield from self._graph.ending_bundles()
            self.hops = hops

    def apart(self, event: Iterator[None]) -> Iterator[None]:
        """An event that no element causes, but time: what it emits counts from 0."""
        if not self._counting or not self.hops:
            return event
        return self._apart(event)

    def _apart(self, event: Iterator[None]) -> Iterator[None]:
        yield from self._graph.ending_bundles()
        hops, self.hops = self.hops, 0
        yield from event
        yield from self._graph.ending_bundles()
        self.hops = hops

    def before_write(self, partitioner: Partitioner, block: Block) -> None:
        """Say how often the elements have gone round that are about to be sent. RunError for some that were made
        earlier than those they can be made of."""
        edge = partitioner.edge
        for part in self._parts.values():
            if part.loop.has(edge):
                part.check(block, self._graph.status(edge.collection).watermark)
        if edge in self._counting and self._sent.get(edge, 0) != self.hops:
            self._sent[edge] = self.hops
            for channel in partitioner.targets:
                assert isinstance(channel, OutputChannel)
                channel.event(Hops(self.hops))

    def passed_quiescence(self) -> bool:
        """Whether a loop was not at rest since the last call."""
        moved = any(head.moved for head in self._heads.values())
        for head in self._heads.values():
            head.moved = False
        return moved

    @property
    def over(self) -> bool:
        """Whether all loops are over whose heads the task has."""
        return all(head.over for head in self._heads.values())

    # -- state

    def operators(self) -> dict[str, Operator]:
        """The heads of loops that are not over, by the name under which their state is stored."""
        return {head.loop.node.label: head for head in self._heads.values() if not head.over}

    def pass_checkpoint(self, checkpoint: int) -> None:
        """The snapshot of a checkpoint has been taken, or it was aborted: what followed its barrier goes round."""
        for head in self._heads.values():
            head.pass_checkpoint(checkpoint)

    def recorded(self) -> dict[FeedbackChannel, str]:
        """The channels on which elements may be under way that belong to a checkpoint of now, with the head's name."""
        return {
            channel: head.loop.node.label
            for head in self._heads.values()
            if not head.over
            for channel in head.channels.values()
            if not channel.ended
        }

    def restore(self, fed_back: Iterable[tuple[str, int, Block]], hops: int) -> None:
        """Add what had been under way when a snapshot was taken to the backlogs; the elements whose calls were in
        flight had gone round `hops` times."""
        self.hops = hops
        heads = {head.loop.node.label: head for head in self._heads.values()}
        for name, hops_of_block, block in fed_back:
            if name in heads:  # else the step is gone, as --allow_dropped_state has allowed
                heads[name].add(block, hops_of_block)

    def close(self) -> None:
        """Remove what is on disk."""
        for head in self._heads.values():
            head.close()

    def _sending(self, head: LoopHead, part: LoopPart, now: int) -> Iterator[None]:
        yield from self._graph.ending_bundles()
        report = head.send(self._graph, now)
        part.send(report.number, (), self._graph)
        self._report(report)
