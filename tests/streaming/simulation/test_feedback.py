"""A feedback loop in the simulated world: each element comes round once, and windows behind the loop are complete.

As in `test_simulation`, further tests introduce deliberate faults, and check that the simulation detects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.streaming.simulation.harness import Mutation, as_seeded, failures, first_violation
from tests.streaming.simulation.running import simulate
from tests.streaming.simulation.world import Simulation
from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.iteration.backlog import NOTHING, Backlog, BacklogSnapshot, Entry
from tidegate.runners.streaming.feedback import head as heads
from tidegate.runners.streaming.feedback.channel import FeedbackChannel
from tidegate.runners.streaming.feedback.head import LoopHead
from tidegate.runners.streaming.feedback.loop_part import LoopPart
from tidegate.runners.streaming.feedback.task_loops import TaskLoops
from tidegate.runners.streaming.network.channels import OutputChannel
from tidegate.runners.streaming.protocol.stream_items import Event, Item, LoopMark
from tidegate.runners.streaming.protocol.worker_messages import LoopReport
from tidegate.runners.streaming.worker.task_snapshot import TaskSnapshot
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import MAX_MICROS

COMMAND = "tests.streaming.simulation --loop"
CHUNKS = 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_elements_go_round_exactly_once_under_any_faults(chunk: int, pytestconfig: pytest.Config) -> None:
    seeds = range(chunk, pytestconfig.getoption("--feedback-seeds"), CHUNKS)
    failed = failures(seeds, partial(simulate, loop=True), COMMAND)
    assert not failed, "\n".join(failed)


def test_a_schedule_that_once_revealed_a_bug() -> None:
    """More heads resume than there were, some of whose inputs had ended: a head of which only an ended one's state was
    read took its snapshot ahead of its input."""
    assert failures([3065], partial(simulate, loop=True), COMMAND) == []


def grant_when_taken(patch: pytest.MonkeyPatch) -> None:
    """The channels back to the head have ordinary credit, granted when the head gives the elements to the body."""
    owed: dict[Any, int] = {}
    put, take = FeedbackChannel.put, LoopHead.take

    def without_credit(self: FeedbackChannel, items: Iterable[Item]) -> None:
        grant, self._grant = self._grant, lambda credit: owed.update({self.id: owed.get(self.id, 0) + credit})
        try:
            put(self, items)
        finally:
            self._grant = grant

    def granting(self: LoopHead) -> Entry:
        taken = take(self)
        if not len(self.backlog):
            for channel in self.channels.values():
                if credit := owed.pop(channel.id, 0):
                    channel._grant(credit)
        return taken

    patch.setattr(FeedbackChannel, "put", without_credit)
    patch.setattr(LoopHead, "take", granting)


def let_marks_overtake(patch: pytest.MonkeyPatch) -> None:
    """A mark overtakes the blocks that wait to be sent."""
    event = OutputChannel.event

    def overtaking(self: OutputChannel, item: Event) -> None:
        if not isinstance(item, LoopMark):
            event(self, item)
            return
        self._queue.appendleft(item)
        self.pump()

    patch.setattr(OutputChannel, "event", overtaking)


def record_nothing(patch: pytest.MonkeyPatch) -> None:
    """What comes round ahead of a barrier is not part of the checkpoint."""

    def forget(self: FeedbackChannel, checkpoint: int, note: Any, done: Callable[[], None]) -> None:
        done()

    patch.setattr(FeedbackChannel, "record_feedback", forget)


def stop_recording_a_channel_too_early(patch: pytest.MonkeyPatch) -> None:
    """A head's recording is complete when the barrier is missing on one more of its channels."""
    record = FeedbackChannel.record_feedback
    channels: dict[str, set[ChannelId]] = {}

    def early(self: FeedbackChannel, checkpoint: int, note: Any, done: Any) -> None:
        snapshot: TaskSnapshot = done.func.__self__
        recorded = channels.setdefault(snapshot.name, set())
        recorded.add(self.id)

        def noting(block: Block, hops: int) -> None:
            if snapshot.missing & recorded:
                note(block, hops)

        def ended() -> None:
            done()
            if len(snapshot.missing & recorded) == 1:
                snapshot.missing -= recorded

        record(self, checkpoint, noting, ended)

    patch.setattr(FeedbackChannel, "record_feedback", early)


def leave_out_the_backlog(patch: pytest.MonkeyPatch) -> None:
    """What waits in the backlog does not count as under way."""
    patch.setattr(Backlog, "low", property(lambda self: NOTHING))


def leave_out_what_entered(patch: pytest.MonkeyPatch) -> None:
    """What has entered since the last mark does not count as under way."""
    patch.setattr(LoopHead, "_entered", property(lambda self: NOTHING, lambda self, value: None), raising=False)


def leave_out_timers(patch: pytest.MonkeyPatch) -> None:
    """What waits for timers in the body does not count as under way."""
    send = LoopPart.send

    def without(self: LoopPart, *given: Any) -> None:
        self.operators = ()
        send(self, *given)

    patch.setattr(LoopPart, "send", without)


def trust_the_first_mark(patch: pytest.MonkeyPatch) -> None:
    """A restored loop counts as empty until a mark has gone round."""
    patch.setattr(heads, "MIN_MICROS", MAX_MICROS)
    report = heads.LoopReport

    def later(loop: int, head: int, number: int, *others: Any) -> LoopReport:
        return report(loop, head, number + 1, *others)

    patch.setattr(heads, "LoopReport", later)


def lose_the_backlog(patch: pytest.MonkeyPatch) -> None:
    """The backlog is not part of a snapshot."""
    snapshot = LoopHead.snapshot

    def empty(self: LoopHead, keys: Any = None) -> BacklogSnapshot:
        return replace(snapshot(self, keys), blocks=[])

    patch.setattr(LoopHead, "snapshot", empty)


def pass_marks_at_the_first(patch: pytest.MonkeyPatch) -> None:
    """A mark is passed on when it has come on one channel."""
    patch.setattr(LoopPart, "_next", property(lambda self: max(self.arrived.values(), default=self.begun)))


def restore_twice(patch: pytest.MonkeyPatch) -> None:
    """What was recorded is restored twice."""
    restore = TaskLoops.restore

    def twice(self: TaskLoops, fed_back: Any, hops: int) -> None:
        restore(self, fed_back, hops)
        restore(self, fed_back, hops)

    patch.setattr(TaskLoops, "restore", twice)


def with_a_credit_of_one(simulation: Simulation) -> None:
    """Each channel has room for one block of one element; a run that takes this long is in a deadlock."""
    settings = replace(simulation.job.settings, credit=1, block_size=1)
    simulation.job = replace(simulation.job, settings=settings)
    vars(simulation)["run"] = partial(simulation.run, max_events=40_000)


def with_frequent_checkpoints(simulation: Simulation) -> None:
    """Many checkpoints are taken."""
    settings = simulation.job.settings
    frequent = replace(settings.checkpoints, interval=0.05, tolerated_failures=1000)
    simulation.job = replace(simulation.job, settings=replace(settings, checkpoints=frequent))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("mutation", "mutate"),
    [
        pytest.param(grant_when_taken, with_a_credit_of_one, id="grant-when-taken"),
        pytest.param(let_marks_overtake, as_seeded, id="let-marks-overtake"),
        pytest.param(record_nothing, as_seeded, id="record-nothing"),
        pytest.param(leave_out_the_backlog, with_a_credit_of_one, id="leave-out-the-backlog"),
        pytest.param(leave_out_what_entered, as_seeded, id="leave-out-what-entered"),
        pytest.param(leave_out_timers, as_seeded, id="leave-out-timers"),
        pytest.param(trust_the_first_mark, as_seeded, id="trust-the-first-mark"),
        pytest.param(lose_the_backlog, as_seeded, id="lose-the-backlog"),
        pytest.param(pass_marks_at_the_first, as_seeded, id="pass-marks-at-the-first"),
        pytest.param(restore_twice, as_seeded, id="restore-twice"),
        pytest.param(
            stop_recording_a_channel_too_early, with_frequent_checkpoints, id="stop-recording-a-channel-too-early"
        ),
    ],
)
def test_a_deliberate_fault_of_loops_is_detected(
    mutation: Mutation, mutate: Callable[[Simulation], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    assert first_violation(partial(simulate, mutate=mutate, loop=True)) is not None


def test_no_loop_deadlocks_with_a_credit_of_one() -> None:
    assert failures(range(3), partial(simulate, mutate=with_a_credit_of_one, loop=True), COMMAND) == []
