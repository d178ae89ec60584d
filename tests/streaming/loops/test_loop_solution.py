"""What is stored of a solution: what rounds have replaced, or all if that is as much; of failed rounds nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.iteration.solution import in_window
from tidegate.runners.planner import Traits, plan
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import Settings
from tidegate.runners.streaming.network.blocking_exchange import SubpartitionWriter
from tidegate.runners.streaming.rounds.loop_solution import LoopSolution, update_of
from tidegate.sdk.data.block import Pairs
from tidegate.sdk.errors import RunError
from tidegate.sdk.windowing.window import GLOBAL_WINDOW

START = dict.fromkeys(range(10), 100)


@pytest.fixture
def part(tmp_path: Path) -> Callable[[], LoopSolution]:
    """Makes the part of a new worker, of a loop that begins with START."""
    p = tg.Pipeline()
    start = p | tg.Create([(1, 1)]).with_output_types(tuple[int, int])
    _ = (start, start) | tg.IterateDelta(lambda _, work: work, merge=min) | tg.Map(print)
    planned = plan(p.sealed(), Traits(parallel=True, blocking=True, parallel_loops=True))
    job = Job("job", "run", planned, Settings(workers=1, streaming=False, batch=True))
    update = update_of(job, planned.loops[0])
    assert update is not None
    channels = job.topology.channels_into(TaskId(update.stage, 0))
    (channel,) = (id for id in channels if planned.edges[id.edge].turn == "solution")
    writer = SubpartitionWriter(tmp_path, channel, 1)
    writer.write(in_window(Pairs(list(START), list(START.values())), GLOBAL_WINDOW))
    writer.finish()
    return lambda: LoopSolution(job, update, 0, tmp_path, 1 << 20, lambda: tmp_path / "spilled")


def run(part: LoopSolution, round: int, updates: dict[int, int], *, ends: bool = True) -> None:
    """A round that updates the part, and may fail before its end."""
    part.begin(round)
    part.begin_update()
    for _ in part.part.update(in_window(Pairs(list(updates), list(updates.values())), GLOBAL_WINDOW)):
        pass
    if ends:
        part.part.end_round()


def left(part: LoopSolution, rounds: int) -> dict[int, int]:
    return {key: value for block in part.left(rounds) for key, value in block.values}


def logs(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.glob("solution-*")}


def test_a_failed_round_begins_with_what_the_one_before_has_left(part: Callable[[], LoopSolution]) -> None:
    one = part()
    run(one, 1, {1: 50})
    run(one, 2, {2: 40, 1: 30})
    one.close()
    failed = part()
    run(failed, 2, {3: 1})  # the coordinator doesn't know that round 2 was over
    failed.close()
    other = part()
    other.begin(3)
    assert other.part.tables[GLOBAL_WINDOW] == START | {1: 50, 3: 1}
    assert left(part(), 2) == START | {1: 50, 3: 1}
    assert left(part(), 1) == START | {1: 50}


def test_what_a_region_has_updated_that_is_done_stays_when_its_round_begins_again(
    part: Callable[[], LoopSolution],
) -> None:
    one = part()
    run(one, 1, {1: 50})
    run(one, 2, {2: 40})
    one.close()
    other = part()
    other.begin(2)  # only a later region of the round runs again, which does not update
    assert other.part.tables[GLOBAL_WINDOW] == START | {1: 50}
    other.begin(3)
    assert other.part.tables[GLOBAL_WINDOW] == START | {1: 50, 2: 40}
    other.begin_update()
    other.part.end_round()
    assert left(other, 3) == START | {1: 50, 2: 40}


def test_a_frame_that_was_being_written_is_cut_off(part: Callable[[], LoopSolution], tmp_path: Path) -> None:
    one = part()
    run(one, 1, {1: 50})
    run(one, 2, {2: 40})
    one.close()
    (name,) = logs(tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[:-3])
    other = part()
    run(other, 2, {5: 5})
    assert left(other, 2) == START | {1: 50, 5: 5}


def test_damage_is_reported(part: Callable[[], LoopSolution], tmp_path: Path) -> None:
    one = part()
    run(one, 1, {1: 50})
    one.close()
    (name,) = logs(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(RunError, match="is damaged: checksum mismatch"):
        part().begin(2)


def test_what_is_stored_follows_what_has_changed(part: Callable[[], LoopSolution], tmp_path: Path) -> None:
    one, expected = part(), dict(START)
    sizes = []
    for round in range(1, 60):
        update = {round % 10: 100 - round}
        expected |= update
        run(one, round, update)
        files = logs(tmp_path)
        assert len(files) == 1
        sizes.append(max(files.values()))
    assert max(sizes) < 13 * sizes[0]  # ten keys, and as many updates
    one.close()
    assert left(part(), 59) == expected
