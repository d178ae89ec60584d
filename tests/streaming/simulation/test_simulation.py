"""The engine in a simulated world: whatever is killed, cut off, hung or damaged, everything comes once and in order.

A seed that fails is named with the command that shows it again. The tests of the tests break the engine on purpose,
each in one way that has cost some stream processor its guarantees, and see that the simulation tells.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.streaming.simulation.pipeline import Broken
from tests.streaming.simulation.running import simulate
from tests.streaming.simulation.world import Simulation, WorkerProcess
from tidegate.runners.engine.state.keyed_state import KeyedState
from tidegate.runners.engine.time.clock import SystemClock
from tidegate.runners.streaming.checkpoint import epoch_fencing
from tidegate.runners.streaming.checkpoint.commit_queue import CommitQueue
from tidegate.runners.streaming.checkpoint.tracker import CheckpointTracker
from tidegate.runners.streaming.coordinator.deployment import Deployment
from tidegate.runners.streaming.network.channels import InputChannel
from tidegate.runners.streaming.protocol.worker_messages import Prepared, SplitProgress
from tidegate.runners.streaming.state import memory
from tidegate.runners.streaming.state.incremental import IncrementalChain
from tidegate.runners.streaming.state.restore import TaskRestore
from tidegate.runners.streaming.state.staged_output import StagedOutput
from tidegate.runners.streaming.state.uploads import StoredFile
from tidegate.runners.streaming.worker import task_checkpointer, worker
from tidegate.runners.streaming.worker.barrier_alignment import BarrierAlignment
from tidegate.runners.streaming.worker.source_driver import SourceDriver
from tidegate.runners.streaming.worker.task import Task
from tidegate.runners.streaming.worker.task_outputs import TaskOutputs
from tidegate.sdk.portable.model import Write

CHUNKS = 20
ENOUGH = 200
"""Seeds within which each mutation is found out."""
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_happens_everything_comes_once_and_in_order(chunk: int, pytestconfig: pytest.Config) -> None:
    seeds = pytestconfig.getoption("--simulation-seeds")
    failed = []
    for seed in range(chunk, seeds, CHUNKS):
        try:
            simulate(seed)
        except Exception as error:
            failed.append(f"python -m tests.streaming.simulation --seed {seed} -v  # {type(error).__name__}: {error}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("seed", [21374, 23086])
def test_schedules_that_once_showed_a_fault(seed: int) -> None:
    """A coordinator taken for dead aborts output beside its successor; a task's input ends between the first barrier
    and the word that the checkpoint is given up, for which no other comes."""
    simulate(seed)


Mutation = Callable[[pytest.MonkeyPatch], None]


def skip_alignment(patch: pytest.MonkeyPatch) -> None:
    """The barrier on one channel is enough."""
    patch.setattr(BarrierAlignment, "aligned", property(lambda self: self.started))
    patch.setattr(BarrierAlignment, "missing", property(lambda self: frozenset()))


def acknowledge_before_writing(patch: pytest.MonkeyPatch) -> None:
    """State is on its way to the disk when the coordinator hears that it is there."""

    def store(self: WorkerProcess, name: str, state: bytes) -> StoredFile:
        self.storage.put(name, state[: len(state) // 2])
        self.simulation.after(300_000, lambda: self.do(lambda: self.storage.put(name, state)))
        return StoredFile((name, len(state), crc32(state)))

    patch.setattr(WorkerProcess, "store", store)


def leave_it_to_the_system(patch: pytest.MonkeyPatch) -> None:
    """A manifest is in place while what it names may still be lost with the power."""
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


def forget_timers(patch: pytest.MonkeyPatch) -> None:
    """What is restored is not all that was saved."""
    read = vars(memory)["read_states"]

    def forgetful(*given: Any) -> dict[str, Any]:
        return {name: _without_timers(kept) for name, kept in read(*given).items()}

    patch.setattr(memory, "read_states", forgetful)


def _without_timers(kept: Any) -> Any:
    if not isinstance(kept, KeyedState):
        return kept
    tables: Mapping[str, Any] = {name: table for name, table in kept.tables.items() if "timers" not in name}
    return replace(kept, tables=dict(tables))


def forget_elements_under_way(patch: pytest.MonkeyPatch) -> None:
    """Blocks that an unaligned barrier has overtaken are not restored."""
    restored = vars(worker)["restored_state"]

    def forgetful(*given: Any) -> TaskRestore:
        restoring: TaskRestore = restored(*given)
        return replace(restoring, state=replace(restoring.state, outgoing={}, incoming={}))

    patch.setattr(worker, "restored_state", forgetful)


def share_accumulators(patch: pytest.MonkeyPatch) -> None:
    """A merge changes what a checkpoint is yet to write."""
    patch.setattr(task_checkpointer, "copied", lambda block: block)


def forget_what_had_changed(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint has only what changed since the one before, also where that was given up."""
    since = IncrementalChain.since

    def forgetful(self: IncrementalChain, *given: Any, whole: bool) -> Any:
        self._open.clear()
        return since(self, *given, whole=whole)

    patch.setattr(IncrementalChain, "since", forgetful)


def forget_finished_splits(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint records only the splits that are being read."""
    progress = SourceDriver.progress

    def forgetful(self: SourceDriver, checkpoint: int) -> tuple[SplitProgress, ...]:
        return tuple(replace(each, finished=()) for each in progress(self, checkpoint))

    patch.setattr(SourceDriver, "progress", forgetful)


def forget_splits_that_wait(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint has the state of an enumerator, but not all splits that the enumerator has returned."""
    lists = Deployment.lists.fget
    assert lists is not None

    def forgetful(self: Deployment) -> dict[str, Any]:
        waiting = {split.id for assigner in self._splits.values() for split in assigner._unassigned}
        return {
            label: tuple(split for split in splits if split.id not in waiting) for label, splits in lists(self).items()
        }

    patch.setattr(Deployment, "lists", property(forgetful))


def fence_nobody(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that was taken for dead goes on."""
    patch.setattr(epoch_fencing, "superseded", lambda *given: "")


def grant_too_much(patch: pytest.MonkeyPatch) -> None:
    """A receiver asks for more than it has room for."""
    take = InputChannel.take

    def generous(self: InputChannel) -> Any:
        if self._owed == 0:
            self._owed = 1
        return take(self)

    patch.setattr(InputChannel, "take", generous)


def go_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """Who waits for a while waits until the clock shows that it is over."""
    patch.setattr(SystemClock, "monotonic", lambda self: self._wall())


def look_again_at_once(patch: pytest.MonkeyPatch) -> None:
    """A source is due while there is no room for what it gives."""
    next_wake = Task.next_wake

    def restless(self: Task) -> int | None:
        dues = [next_wake(self), *self.sources.poll_times()]
        return min((due for due in dues if due is not None), default=None)

    patch.setattr(Task, "next_wake", restless)


def forget_what_waits_for_its_files(patch: pytest.MonkeyPatch) -> None:
    """Output of an aborted checkpoint whose staged files are not stored yet is dropped."""
    take = StagedOutput.take

    def forgetful(self: StagedOutput) -> tuple[Prepared, ...]:
        taken = take(self)
        self._output.clear()
        return taken

    patch.setattr(StagedOutput, "take", forgetful)


def take_the_first_task_for_all(patch: pytest.MonkeyPatch) -> None:
    """A sink's checkpoint counts as committed when one of its tasks is."""
    acknowledge = CommitQueue.acknowledge

    def sloppy(self: CommitQueue, step: int, checkpoint: int | None, task: int | None = None) -> bool:
        if self._sinks.get(step) and self._sinks[step][0].checkpoint == checkpoint:
            for other in list(self._sinks[step][0].by_task):
                acknowledge(self, step, checkpoint, other)
            return True
        return False

    patch.setattr(CommitQueue, "acknowledge", sloppy)


def in_haste(simulation: Simulation) -> None:
    """Many checkpoints are given up, and only one that is complete is kept."""
    settings = simulation.job.settings
    hasty = replace(settings.checkpoints, interval=0.05, timeout=0.15, tolerated_failures=1000, retained=1)
    simulation.job = replace(simulation.job, settings=replace(settings, checkpoints=hasty))


def as_it_comes(simulation: Simulation) -> None:
    """As the seed says."""


@pytest.mark.parametrize(
    ("mutation", "how"),
    [
        pytest.param(skip_alignment, as_it_comes, id="skip-alignment"),
        pytest.param(acknowledge_before_writing, as_it_comes, id="acknowledge-before-writing"),
        pytest.param(leave_it_to_the_system, as_it_comes, id="leave-it-to-the-system"),
        pytest.param(commit_early, as_it_comes, id="commit-early"),
        pytest.param(forget_timers, as_it_comes, id="forget-timers"),
        pytest.param(forget_elements_under_way, as_it_comes, id="forget-elements-under-way"),
        pytest.param(share_accumulators, as_it_comes, id="share-accumulators"),
        pytest.param(forget_what_had_changed, in_haste, id="forget-what-had-changed"),
        pytest.param(forget_finished_splits, as_it_comes, id="forget-finished-splits"),
        pytest.param(forget_splits_that_wait, as_it_comes, id="forget-splits-that-wait"),
        pytest.param(fence_nobody, as_it_comes, id="fence-nobody"),
        pytest.param(grant_too_much, as_it_comes, id="grant-too-much"),
        pytest.param(go_by_the_wall_clock, as_it_comes, id="go-by-the-wall-clock"),
        pytest.param(forget_what_waits_for_its_files, in_haste, id="forget-what-waits-for-its-files"),
        pytest.param(take_the_first_task_for_all, as_it_comes, id="take-the-first-task-for-all"),
        pytest.param(look_again_at_once, as_it_comes, id="look-again-at-once"),
    ],
)
def test_an_engine_that_is_broken_on_purpose_is_found_out(
    mutation: Mutation, how: Callable[[Simulation], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    assert found_out(range(ENOUGH), how) is not None


def found_out(seeds: range, how: Callable[[Simulation], None]) -> int | None:
    """The first seed for which the simulation says that something is wrong."""
    for seed in seeds:
        try:
            simulate(seed, mutate=how)
        except Broken:
            return seed
    return None


def test_a_seed_says_what_happens_whatever_the_hashes_of_strings() -> None:
    seed = random.Random("tests").randrange(1000)
    told = {log_of(seed, hashes) for hashes in ("1", "2")}
    assert len(told) == 1
    assert "over after" in told.pop()


def log_of(seed: int, hashes: str) -> str:
    """What happened, in a process with these hashes."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.streaming.simulation", "--seed", str(seed), "--log"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hashes},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout
