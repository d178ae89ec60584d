"""When a checkpoint begins, completes or is aborted, and which files may be deleted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.runners.checkpoint.manifest import RetainedCheckpoint
from tidegate.runners.checkpoint.parts import StateHandle
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.streaming.checkpoint.tracker import CheckpointRequest, CheckpointTracker
from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.runners.streaming.protocol.worker_messages import Acknowledge, Decline, Prepared
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.time import SECOND

TASKS = [TaskId(stage, index) for stage in range(2) for index in range(2)]
REGULAR = CheckpointRequest("regular")


def ack(checkpoint: int, task: TaskId, *base: str, ended: bool = False) -> Acknowledge:
    names = (f"chk-{checkpoint:06}/{task}.state", *base)
    handle = StateHandle(tuple((name, 5, 1) for name in names))
    piece = Prepared("sink", (Committable((task.index, checkpoint), f"{checkpoint} {task}"),))
    return Acknowledge(checkpoint, task, handle, prepared=(piece,), ended=ended)


def complete_checkpoint(
    checkpoints: CheckpointTracker, now: int = 0, *base: str, wanted: CheckpointRequest = REGULAR
) -> tuple[str, ...]:
    """Complete a checkpoint, and return the files that may be deleted."""
    pending = checkpoints.begin(wanted, TASKS, now)
    for task in TASKS:
        checkpoints.acknowledge(ack(pending.number, task, *base))
    files = {name for done in pending.acks.values() for name, _, _ in done.handle.files} if pending.complete else set()  # type: ignore[union-attr]
    return checkpoints.complete({*files, f"chk-{pending.number:06}/manifest.json"}, now)


@given(st.permutations(TASKS), st.integers(0, 3))
def test_a_checkpoint_is_complete_with_the_last_acknowledgement_in_any_order(
    order: list[TaskId], repeated: int
) -> None:
    checkpoints = CheckpointTracker(CheckpointSettings())
    pending = checkpoints.begin(REGULAR, TASKS, 0)
    for task in order[:-1]:
        assert not checkpoints.acknowledge(ack(1, task))
    assert repeated == 3 or not checkpoints.acknowledge(ack(1, order[repeated]))
    assert checkpoints.acknowledge(ack(1, order[-1]))
    assert pending.size == 5 * len(TASKS)
    assert [piece.order[1] for part in checkpoints.prepared() for piece in part.committables] == [1] * len(TASKS)


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), max_size=6), st.data())
def test_prepared_output_is_in_exactly_one_complete_checkpoint(rounds: list[list[bool]], data: st.DataObject) -> None:
    """Checkpoints are aborted while acknowledgements are missing, which come later or never; the last completes."""
    checkpoints = CheckpointTracker(CheckpointSettings(tolerated_failures=100))
    committed: list[str] = []
    overdue: list[Acknowledge] = []
    for acknowledged in [*rounds, [True] * 4]:
        pending = checkpoints.begin(REGULAR, TASKS, 0)
        for late in overdue:
            if data.draw(st.booleans()):
                checkpoints.acknowledge(late)
            else:
                assert not checkpoints.decline(Decline(late.checkpoint, late.task, "no", late.prepared))
        overdue = []
        for task, in_time in zip(TASKS, acknowledged, strict=True):
            part = ack(pending.number, task)
            if in_time:
                checkpoints.acknowledge(part)
            else:
                overdue.append(part)
        if pending.complete:
            committed += [piece.payload for part in checkpoints.prepared() for piece in part.committables]
            checkpoints.complete((), 0)
        else:
            checkpoints.abort(0)
    numbers = range(1, len(rounds) + 2)
    assert sorted(committed) == sorted(f"{number} {task}" for number in numbers for task in TASKS)


def test_a_checkpoint_is_final_only_if_all_tasks_have_ended() -> None:
    for ended in ([True] * 4, [True, True, False, True]):
        checkpoints = CheckpointTracker(CheckpointSettings())
        pending = checkpoints.begin(REGULAR, TASKS, 0)
        for task, has_ended in zip(TASKS, ended, strict=True):
            checkpoints.acknowledge(ack(1, task, ended=has_ended))
        assert pending.final is all(ended)


def test_checkpoints_observe_the_interval_and_the_minimum_pause() -> None:
    checkpoints = CheckpointTracker(CheckpointSettings(interval=10.0, min_pause=8.0))
    checkpoints.enable(0)
    assert checkpoints.next_wake() == 10 * SECOND
    complete_checkpoint(checkpoints, 10 * SECOND)
    assert checkpoints.next_wake() == 20 * SECOND
    checkpoints.begin(REGULAR, TASKS, 20 * SECOND)
    checkpoints.abort(25 * SECOND)
    assert checkpoints.next_wake() == 33 * SECOND


def test_a_checkpoint_times_out_while_acknowledgements_are_missing_but_not_while_it_is_stored() -> None:
    checkpoints = CheckpointTracker(CheckpointSettings(timeout=5.0))
    pending = checkpoints.begin(REGULAR, TASKS, 0)
    assert checkpoints.next_wake() == 5 * SECOND
    assert not checkpoints.timed_out(5 * SECOND - 1)
    assert checkpoints.timed_out(5 * SECOND)
    pending.storing = True
    assert checkpoints.next_wake() is None
    assert not checkpoints.timed_out(5 * SECOND)


def test_consecutive_failures_are_tolerated_up_to_a_limit_and_savepoints_do_not_count() -> None:
    checkpoints = CheckpointTracker(CheckpointSettings(tolerated_failures=1))
    tolerated = []
    for wanted in (REGULAR, CheckpointRequest("savepoint", "/saved"), None, REGULAR, REGULAR):
        if wanted is None:
            complete_checkpoint(checkpoints)
            continue
        checkpoints.begin(wanted, TASKS, 0)
        tolerated.append(checkpoints.abort(0))
    assert tolerated == [True, True, True, False]


def test_the_configured_number_of_checkpoints_is_retained_and_manifests_are_deleted_first() -> None:
    checkpoints = CheckpointTracker(
        CheckpointSettings(retained=2),
        first=4,
        retained=[RetainedCheckpoint(3, frozenset({"chk-000003/manifest.json"}))],
    )
    assert complete_checkpoint(checkpoints) == ()
    assert complete_checkpoint(checkpoints) == ("chk-000003/manifest.json",)
    deletable = complete_checkpoint(checkpoints)
    assert deletable[0] == "chk-000004/manifest.json"
    assert len(deletable) == 1 + len(TASKS)


def test_a_file_is_retained_as_long_as_a_later_checkpoint_builds_on_it() -> None:
    checkpoints = CheckpointTracker(CheckpointSettings())
    complete_checkpoint(checkpoints)
    base = "chk-000001/0.0.state"
    assert base not in complete_checkpoint(checkpoints, 0, base)
    assert base not in complete_checkpoint(checkpoints, 0, base)
    assert base in complete_checkpoint(checkpoints)


def test_a_savepoint_deletes_no_file_that_later_checkpoints_may_build_on() -> None:
    checkpoints = CheckpointTracker(CheckpointSettings(tolerated_failures=9))
    saved = CheckpointRequest("savepoint", "/saved")
    complete_checkpoint(checkpoints)
    checkpoints.begin(REGULAR, TASKS, 0)
    checkpoints.acknowledge(ack(2, TASKS[0]))
    checkpoints.abort(0)
    assert complete_checkpoint(checkpoints, wanted=saved) == ()
    assert {name[:10] for name in complete_checkpoint(checkpoints, wanted=saved)} == {"chk-000003"}, (
        "nothing builds on a savepoint"
    )
    deletable = complete_checkpoint(checkpoints, 0, "chk-000001/0.0.state", "chk-000002/0.0.state")
    assert {name[:10] for name in deletable} == {"chk-000001", "chk-000004"}
    assert not {"chk-000001/0.0.state", "chk-000002/0.0.state"} & set(deletable)
    assert {"chk-000001/0.0.state", "chk-000002/0.0.state"} < set(complete_checkpoint(checkpoints))


def test_aborted_and_lost_checkpoints_are_listed_as_failed_until_one_is_complete() -> None:
    checkpoints = CheckpointTracker(CheckpointSettings(tolerated_failures=9))
    checkpoints.begin(REGULAR, TASKS, 0)
    checkpoints.acknowledge(ack(1, TASKS[0]))
    checkpoints.abort(0)
    assert checkpoints.failed == (1,)
    checkpoints.begin(REGULAR, TASKS, 0)
    checkpoints.disable()
    assert checkpoints.failed == (1, 2)
    complete_checkpoint(checkpoints)
    assert checkpoints.failed == ()


def test_leftovers_of_earlier_processes_are_deleted_when_the_first_checkpoint_is_complete() -> None:
    checkpoints = CheckpointTracker(CheckpointSettings(), 4, leftovers=["chk-000003/0.0.state", "chk-000003/.a.part"])
    assert complete_checkpoint(checkpoints) == ("chk-000003/.a.part", "chk-000003/0.0.state")


def test_prepared_output_of_an_attempt_is_dropped_when_the_attempt_ends() -> None:
    checkpoints = CheckpointTracker(CheckpointSettings(tolerated_failures=9))
    checkpoints.begin(REGULAR, TASKS, 0)
    checkpoints.acknowledge(ack(1, TASKS[0]))
    checkpoints.abort(0)
    checkpoints.disable()
    checkpoints.begin(REGULAR, TASKS, 0)
    assert checkpoints.prepared() == []
