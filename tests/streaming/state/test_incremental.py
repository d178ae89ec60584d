"""On which files a checkpoint builds, also if tasks learn late which earlier ones have completed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate.runners.checkpoint.parts import StateHandle
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.operator import Operator
from tidegate.runners.engine.state.keyed_state import KeyedState, Touched
from tidegate.runners.streaming.checkpoint.tracker import CheckpointRequest, CheckpointTracker
from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.runners.streaming.protocol.worker_messages import Acknowledge
from tidegate.runners.streaming.state.incremental import IncrementalChain
from tidegate.runners.streaming.state.writers import worth_a_fork

TASK = TaskId(0, 0)


class Untouched(Operator):
    """An operator with state that has not changed."""

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        return KeyedState()

    def touched(self) -> Touched:
        return []


OPERATORS: Mapping[str, Operator] = {"step": Untouched()}


def test_writing_all_state_can_be_postponed_but_not_forever() -> None:
    chain = IncrementalChain(full_every=2)
    written = []
    for checkpoint in range(1, 20):
        _, base = chain.since(checkpoint, OPERATORS, whole=False, postpone=checkpoint > 1)
        written.append("changes" if base else "all")
        chain.stored(checkpoint, (("file", 1000, 1), *base))
        chain.completed(checkpoint)
    assert written == ["all", *["changes"] * 7, "all", *["changes"] * 7, "all", *["changes"] * 2]


@given(
    st.lists(st.tuples(st.sampled_from(["complete", "abort", "savepoint"]), st.integers(0, 3)), max_size=30),
    st.integers(2, 5),
)
def test_no_checkpoint_builds_on_files_that_may_have_been_deleted(
    rounds: list[tuple[str, int]], full_every: int
) -> None:
    """A task learns late, and one by one, which checkpoints have completed."""
    checkpoints = CheckpointTracker(CheckpointSettings(tolerated_failures=1000))
    changes = IncrementalChain(full_every)
    existing: set[str] = set()
    unreported: list[int] = []
    for action, reports in rounds:
        number = checkpoints.begin(
            CheckpointRequest("savepoint", "/saved") if action == "savepoint" else CheckpointRequest("regular"),
            [TASK],
            0,
        ).number
        for complete in unreported[:reports]:
            changes.completed(complete)
        del unreported[:reports]
        written_file = (f"chk-{number:06}/data", 1, 1)
        _, base = changes.since(number, OPERATORS, whole=action == "savepoint")
        chain = (written_file, *base)
        existing.add(written_file[0])
        if action != "savepoint":
            changes.stored(number, chain)
        checkpoints.acknowledge(Acknowledge(number, TASK, StateHandle(chain)))
        if action == "abort":
            checkpoints.abort(0)
            continue
        existing -= set(checkpoints.complete([name for name, _, _ in chain], 0))
        assert {name for name, _, _ in chain} <= existing
        unreported.append(number)


def test_no_state_is_requested_of_operators_without_state() -> None:
    changes = IncrementalChain(2)
    operators: Mapping[str, Operator] = {"map": Operator(), "state": Untouched()}
    whole, _ = changes.since(1, operators, whole=True)
    first, _ = changes.since(2, operators, whole=False)
    assert whole == first == {"map": [], "state": None}
    assert not worth_a_fork({"map": Operator()}, {"map": first["map"]})
    assert worth_a_fork(operators, first)


class ChangingKey(Untouched):
    """An operator in which one key changes per checkpoint."""

    def touched(self) -> Touched:
        return [[object()]]


def open_checkpoints(changes: IncrementalChain) -> int:
    """The number of checkpoints whose changes are remembered."""
    return len(changes._open)


def test_no_checkpoints_of_a_task_without_state_are_remembered() -> None:
    changes = IncrementalChain(full_every=3)
    for checkpoint in range(1, 100):
        assert changes.since(checkpoint, {"map": Operator()}, whole=False) == ({"map": []}, ())
        changes.completed(checkpoint)
        assert open_checkpoints(changes) == 0


def test_all_state_is_written_and_no_changes_are_remembered_after_many_consecutive_failures() -> None:
    changes = IncrementalChain(full_every=3)
    operators: Mapping[str, Operator] = {"step": ChangingKey()}
    changes.since(1, operators, whole=False)
    changes.stored(1, (("1", 100, 0),))
    changes.completed(1)
    found = []
    for checkpoint in range(2, 100):
        keys, base = changes.since(checkpoint, operators, whole=False)
        changes.stored(checkpoint, ((f"{checkpoint}", 1, 0), *base))
        found.append("all" if keys["step"] is None else len(keys["step"]))
        assert bool(base) == (keys["step"] is not None)
    assert found == [1, 2, 3, 4, 5, 6, 7, 8, *["all"] * 90]
    assert open_checkpoints(changes) == 0
    changes.completed(99)
    keys, base = changes.since(100, operators, whole=False)
    assert (len(keys["step"] or ()), base) == (1, (("99", 1, 0),))


def files_until_next_full_checkpoint(base: int, change: int) -> int:
    """The number of files that a state is built from before all state is written again."""
    changes = IncrementalChain(full_every=5)
    keys, chain = changes.since(1, OPERATORS, whole=False)
    size = base
    for checkpoint in range(2, 100):
        changes.stored(checkpoint - 1, ((f"{checkpoint - 1}", size, 0), *chain))
        changes.completed(checkpoint - 1)
        keys, chain = changes.since(checkpoint, OPERATORS, whole=False)
        if keys == {"step": None}:
            assert chain == ()
            return checkpoint - 1
        size = change
    raise AssertionError("all state is never written again")


def test_all_state_is_written_again_when_the_changes_are_four_times_as_large() -> None:
    assert files_until_next_full_checkpoint(base=1000, change=1000) == 5
    assert files_until_next_full_checkpoint(base=1000, change=500) == 9
    assert files_until_next_full_checkpoint(base=1000, change=250) == 17


def test_no_state_is_built_from_more_than_four_times_full_every_files() -> None:
    assert files_until_next_full_checkpoint(base=1_000_000, change=1) == 20
