"""The engine in a simulated world: output is exactly once and in order under kills, lost messages, hangs and damage.

A failing seed is reported with the command that repeats it. Further tests introduce deliberate faults into the engine,
each of a kind that has cost some stream processor its guarantees, and check that the simulation detects them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.streaming.simulation.harness import Mutation, as_seeded, failures, first_violation
from tests.streaming.simulation.running import simulate
from tests.streaming.simulation.world import Simulation, WorkerProcess
from tidegate.runners.checkpoint.parts import SplitProgress
from tidegate.runners.checkpoint.restoring import TaskRestore
from tidegate.runners.engine.state.keyed_state import KeyedState
from tidegate.runners.engine.time.clock import SystemClock
from tidegate.runners.streaming.checkpoint import epoch_fencing
from tidegate.runners.streaming.checkpoint.commit_queue import CommitQueue
from tidegate.runners.streaming.checkpoint.tracker import CheckpointTracker
from tidegate.runners.streaming.coordinator.deployment import Deployment
from tidegate.runners.streaming.network.channels import InputChannel
from tidegate.runners.streaming.protocol.worker_messages import Prepared
from tidegate.runners.streaming.state import memory
from tidegate.runners.streaming.state.incremental import IncrementalChain
from tidegate.runners.streaming.state.staged_output import StagedOutput
from tidegate.runners.streaming.state.uploads import StoredFile
from tidegate.runners.streaming.worker import task_checkpointer, worker
from tidegate.runners.streaming.worker.barrier_alignment import BarrierAlignment
from tidegate.runners.streaming.worker.source_driver import SourceDriver
from tidegate.runners.streaming.worker.task import Task
from tidegate.runners.streaming.worker.task_outputs import TaskOutputs
from tidegate.sdk.portable.model import Write

CHUNKS = 20
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_output_is_exactly_once_and_in_order_under_any_faults(chunk: int, pytestconfig: pytest.Config) -> None:
    seeds = range(chunk, pytestconfig.getoption("--simulation-seeds"), CHUNKS)
    failed = failures(seeds, simulate, "tests.streaming.simulation")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("seed", [21374, 23086])
def test_schedules_that_once_revealed_a_bug(seed: int) -> None:
    """A coordinator presumed dead aborts output at the same time as its successor; a task's input ends between the
    first barrier and the abort of a checkpoint, after which no other barrier arrives."""
    simulate(seed)


def skip_alignment(patch: pytest.MonkeyPatch) -> None:
    """A task takes its snapshot when the barrier has arrived on one channel."""
    patch.setattr(BarrierAlignment, "aligned", property(lambda self: self.started))
    patch.setattr(BarrierAlignment, "missing", property(lambda self: frozenset()))


def acknowledge_before_writing(patch: pytest.MonkeyPatch) -> None:
    """State is acknowledged before it is stored."""

    def store(self: WorkerProcess, name: str, state: bytes) -> StoredFile:
        self.storage.put(name, state[: len(state) // 2])
        self.simulation.after(300_000, lambda: self.do(lambda: self.storage.put(name, state)))
        return StoredFile((name, len(state), crc32(state)))

    patch.setattr(WorkerProcess, "store", store)


def skip_sync(patch: pytest.MonkeyPatch) -> None:
    """A manifest is written before the files that it lists are durable."""
    patch.setattr(CheckpointTracker, "new_files", lambda self, files: ())


def commit_early(patch: pytest.MonkeyPatch) -> None:
    """Output is visible as soon as it is prepared."""
    prepare = TaskOutputs.prepare

    def commit(self: TaskOutputs, *, last: bool) -> tuple[Prepared, ...]:
        prepared = prepare(self, last=last)
        for step, part in zip(self.sinks.values(), prepared, strict=True):
            node = step.step.tail
            assert isinstance(node, Write)
            node.sink.load().commit(step.run, part.committables, None)
        return prepared

    patch.setattr(TaskOutputs, "prepare", commit)


def lose_timers(patch: pytest.MonkeyPatch) -> None:
    """Timers are missing in restored state."""
    read = vars(memory)["operator_states"]

    def read_without_timers(*args: Any) -> dict[str, Any]:
        return {name: _without_timers(state) for name, state in read(*args).items()}

    patch.setattr(memory, "operator_states", read_without_timers)


def _without_timers(state: Any) -> Any:
    if not isinstance(state, KeyedState):
        return state
    tables: Mapping[str, Any] = {name: table for name, table in state.tables.items() if "timers" not in name}
    return replace(state, tables=dict(tables))


def lose_elements_in_flight(patch: pytest.MonkeyPatch) -> None:
    """Blocks that an unaligned barrier has overtaken are not restored."""
    restored = vars(worker)["task_restore"]

    def without_elements_in_flight(*args: Any) -> TaskRestore:
        restoring: TaskRestore = restored(*args)
        return replace(restoring, state=replace(restoring.state, outgoing={}, incoming={}))

    patch.setattr(worker, "task_restore", without_elements_in_flight)


def share_accumulators(patch: pytest.MonkeyPatch) -> None:
    """Merging accumulators changes a snapshot that has not been written yet."""
    patch.setattr(task_checkpointer, "copied", lambda block: block)


def lose_changes_of_aborted_checkpoints(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint has only the changes since the previous one, even if that was aborted."""
    since = IncrementalChain.since

    def incomplete(self: IncrementalChain, *given: Any, whole: bool) -> Any:
        self._open.clear()
        return since(self, *given, whole=whole)

    patch.setattr(IncrementalChain, "since", incomplete)


def lose_finished_splits(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint records only the splits that are being read."""
    progress = SourceDriver.progress

    def incomplete(self: SourceDriver, checkpoint: int) -> tuple[SplitProgress, ...]:
        return tuple(replace(each, finished=()) for each in progress(self, checkpoint))

    patch.setattr(SourceDriver, "progress", incomplete)


def lose_unassigned_splits(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint has the state of an enumerator, but not all splits that the enumerator has returned."""
    lists = Deployment.lists.fget
    assert lists is not None

    def incomplete(self: Deployment) -> dict[str, Any]:
        waiting = {split.id for assigner in self._splits.values() for split in assigner._unassigned}
        return {
            label: tuple(split for split in splits if split.id not in waiting) for label, splits in lists(self).items()
        }

    patch.setattr(Deployment, "lists", property(incomplete))


def skip_fencing(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that was presumed dead continues."""
    patch.setattr(epoch_fencing, "superseded", lambda *given: "")


def grant_excess_credit(patch: pytest.MonkeyPatch) -> None:
    """A receiver grants more credit than it has room for."""
    take = InputChannel.take

    def generous(self: InputChannel) -> Any:
        if self._owed == 0:
            self._owed = 1
        return take(self)

    patch.setattr(InputChannel, "take", generous)


def measure_by_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """Delays are measured by the wall clock, which may be set."""
    patch.setattr(SystemClock, "monotonic", lambda self: self._wall())


def poll_without_room(patch: pytest.MonkeyPatch) -> None:
    """A source is polled although there is no room for its elements."""
    next_wake = Task.next_wake

    def polling(self: Task) -> int | None:
        wake_times = [next_wake(self), *self.sources.poll_times()]
        return min((time for time in wake_times if time is not None), default=None)

    patch.setattr(Task, "next_wake", polling)


def lose_output_with_pending_files(patch: pytest.MonkeyPatch) -> None:
    """Output of an aborted checkpoint whose staged files are not stored yet is dropped."""
    take = StagedOutput.take

    def incomplete(self: StagedOutput) -> tuple[Prepared, ...]:
        taken = take(self)
        self._output.clear()
        return taken

    patch.setattr(StagedOutput, "take", incomplete)


def commit_after_first_task(patch: pytest.MonkeyPatch) -> None:
    """A sink's checkpoint counts as committed when one of its tasks has committed."""
    acknowledge = CommitQueue.acknowledge

    def sloppy(self: CommitQueue, step: int, checkpoint: int | None, task: int | None = None) -> bool:
        if self._sinks.get(step) and self._sinks[step][0].checkpoint == checkpoint:
            for other in list(self._sinks[step][0].by_task):
                acknowledge(self, step, checkpoint, other)
            return True
        return False

    patch.setattr(CommitQueue, "acknowledge", sloppy)


def with_frequent_aborts(simulation: Simulation) -> None:
    """Many checkpoints are aborted, and only one completed checkpoint is retained."""
    settings = simulation.job.settings
    frequent = replace(settings.checkpoints, interval=0.05, timeout=0.15, tolerated_failures=1000, retained=1)
    simulation.job = replace(simulation.job, settings=replace(settings, checkpoints=frequent))


@pytest.mark.parametrize(
    ("mutation", "mutate"),
    [
        pytest.param(skip_alignment, as_seeded, id="skip-alignment"),
        pytest.param(acknowledge_before_writing, as_seeded, id="acknowledge-before-writing"),
        pytest.param(skip_sync, as_seeded, id="skip-sync"),
        pytest.param(commit_early, as_seeded, id="commit-early"),
        pytest.param(lose_timers, as_seeded, id="lose-timers"),
        pytest.param(lose_elements_in_flight, as_seeded, id="lose-elements-in-flight"),
        pytest.param(share_accumulators, as_seeded, id="share-accumulators"),
        pytest.param(
            lose_changes_of_aborted_checkpoints, with_frequent_aborts, id="lose-changes-of-aborted-checkpoints"
        ),
        pytest.param(lose_finished_splits, as_seeded, id="lose-finished-splits"),
        pytest.param(lose_unassigned_splits, as_seeded, id="lose-unassigned-splits"),
        pytest.param(skip_fencing, as_seeded, id="skip-fencing"),
        pytest.param(grant_excess_credit, as_seeded, id="grant-excess-credit"),
        pytest.param(measure_by_wall_clock, as_seeded, id="measure-by-wall-clock"),
        pytest.param(lose_output_with_pending_files, with_frequent_aborts, id="lose-output-with-pending-files"),
        pytest.param(commit_after_first_task, as_seeded, id="commit-after-first-task"),
        pytest.param(poll_without_room, as_seeded, id="poll-without-room"),
    ],
)
def test_a_deliberate_fault_of_the_engine_is_detected(
    mutation: Mutation, mutate: Callable[[Simulation], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    assert first_violation(partial(simulate, mutate=mutate)) is not None


def test_a_seed_determines_all_events_under_any_hash_seed() -> None:
    seed = random.Random("tests").randrange(1000)
    logs = {log_of(seed, hash_seed) for hash_seed in ("1", "2")}
    assert len(logs) == 1
    assert "ended after" in logs.pop()


def log_of(seed: int, hash_seed: str) -> str:
    """The log of a seed, from a process with this hash seed."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.streaming.simulation", "--seed", str(seed), "--log"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout
