"""What one head had fed back stays together, in order, when the number of tasks changes."""

from __future__ import annotations

from zlib import crc32

import pytest

from tidegate.runners.checkpoint.parts import StateHandle, StoredState
from tidegate.runners.checkpoint.restoring import operator_states, restored_state
from tidegate.runners.checkpoint.state_files import StateFile, frames, write_to
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.checkpoint.task_state import TaskState, dumps
from tidegate.runners.engine.iteration.backlog import Backlog, BacklogSnapshot
from tidegate.sdk.data.block import Block

HEAD = "loop"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (2, 3, [["0a", "0b"], ["1a", "1b"], []]),
        (3, 2, [["0a", "0b"], ["1a", "2a", "1b", "2b"]]),
        (3, 1, [["0a", "1a", "2a", "0b", "1b", "2b"]]),
    ],
)
def test_a_backlog_and_what_was_recorded_behind_it_go_to_one_task(
    old: int, new: int, expected: list[list[str]]
) -> None:
    files: dict[str, bytes] = {}

    def stored(name: str, data: bytes) -> StateFile:
        files[name] = data
        return name, len(data), crc32(data)

    parts = []
    for index in range(old):
        backlog = Backlog(1_000_000, lambda: pytest.fail("nothing is spilled"))
        backlog.add(Block([f"{index}a"], 0), 1)
        operators = bytearray()
        snapshot = BacklogSnapshot(backlog.stored(), 0, index)
        write_to(operators.extend, frames([(HEAD, snapshot)], [HEAD]))
        state = TaskState({}, fed_back=((HEAD, 1, Block([f"{index}b"], 0)),))
        handle = StateHandle((stored(f"{index}", dumps(state)), stored(f"{index}.data", bytes(operators))))
        parts.append(StoredState(TaskId(1, index), old, handle))

    found = []
    for index in range(new):
        task = restored_state(parts, index, new, 16, files.__getitem__, redistributed=lambda parts: {})
        head = operator_states(task.parts, files.__getitem__, task.keeps, [HEAD]).get(HEAD)
        waiting = [] if head is None else [value for _, columns in head.blocks for value in columns[0]]
        found.append(waiting + [value for _, _, block in task.state.fed_back for value in block.values])
    assert found == expected
