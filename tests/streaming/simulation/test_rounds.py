"""Rounds of loops that all workers run, in a simulated world: each counts once, whichever worker dies when.

Further tests introduce deliberate faults into what rounds are made of, and check that the simulation detects them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from tests.streaming.simulation.harness import Mutation, failures, first_violation
from tests.streaming.simulation.rounds import simulate_rounds
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.iteration.kept_solution import KeptSolution
from tidegate.runners.plan import Edge
from tidegate.runners.streaming.coordinator.workers import EndedTasks
from tidegate.runners.streaming.protocol.worker_messages import TaskEnded
from tidegate.runners.streaming.rounds import loop_cache
from tidegate.runners.streaming.rounds.loop_solution import LoopSolution
from tidegate.runners.streaming.rounds.solution_log import SolutionLog
from tidegate.runners.streaming.worker.task_environment import TaskEnvironment
from tidegate.sdk.data.block import Block

CHUNKS = 5


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_round_counts_once_whichever_worker_dies(chunk: int, pytestconfig: pytest.Config) -> None:
    seeds = range(chunk, pytestconfig.getoption("--round-seeds"), CHUNKS)
    failed = failures(seeds, simulate_rounds, "tests.streaming.simulation --rounds")
    assert not failed, "\n".join(failed)


def regroup_constants_from_a_stale_run(patch: pytest.MonkeyPatch) -> None:
    """After a failure, a task groups what is the same in all rounds from runs that are not complete."""
    blocks = vars(loop_cache)["_blocks"]
    grouped: set[Any] = set()

    def stale(job: Any, task: TaskId, *given: Any) -> Iterator[Block]:
        found: Iterator[Block] = blocks(job, task, *given)
        again = (task, given[0].label) in grouped
        grouped.add((task, given[0].label))
        return islice(found, 1) if again else found

    patch.setattr(loop_cache, "_blocks", stale)


def read_a_stale_run(patch: pytest.MonkeyPatch) -> None:
    """A round that begins again reads what the round before the last has left, if that is still there."""
    stored = TaskEnvironment.stored_rounds

    def stale(self: TaskEnvironment, edge: Edge) -> Any:
        rounds = stored(self, edge)
        return (self.round - 2,) if edge.turn == "back" and self.round > 2 and self.attempt > 1 else rounds

    patch.setattr(TaskEnvironment, "stored_rounds", stale)


def count_votes_twice(patch: pytest.MonkeyPatch) -> None:
    """What a task has emitted in a round that failed counts together with what it emits when it runs again."""
    add = EndedTasks.add

    def twice(self: EndedTasks, ended: TaskEnded) -> None:
        key = id(self), ended.task
        emitted = Counter(dict(ended.emitted)) + seen.get(key, Counter())
        seen[key] = Counter(dict(ended.emitted))
        add(self, replace(ended, emitted=tuple(emitted.items())))

    def forget(self: EndedTasks, tasks: Iterable[TaskId]) -> None:
        for task in (tasks := list(tasks)):
            seen.pop((id(self), task), None)
        end_round(self, tasks)

    seen: dict[Any, Counter[str]] = {}
    end_round = EndedTasks.end_round
    patch.setattr(EndedTasks, "add", twice)
    patch.setattr(EndedTasks, "end_round", forget)


def load_a_round_too_many(patch: pytest.MonkeyPatch) -> None:
    """After a failure, the solution is that of the round that failed, as far as it has got."""
    load = LoopSolution._load
    patch.setattr(LoopSolution, "_load", lambda self, done: load(self, done + 1 if done else done))


def load_a_round_too_few(patch: pytest.MonkeyPatch) -> None:
    """After a failure, the solution lacks what the last round that was over has replaced."""
    read = SolutionLog.read
    patch.setattr(SolutionLog, "read", lambda self, done: read(self, max(self.base, done - 1)))


def update_at_once(patch: pytest.MonkeyPatch) -> None:
    """What a round merges comes into force at its end, before all lookups of the round have been made."""
    end = KeptSolution.end_round

    def early(self: KeptSolution) -> None:
        end(self)
        self.next_round()

    patch.setattr(KeptSolution, "end_round", early)


def cut_off_what_is_done(patch: pytest.MonkeyPatch) -> None:
    """A round that begins again cuts off what it has updated, although the region that did so is done."""
    begin = LoopSolution.begin

    def cutting(self: LoopSolution, round: int) -> None:
        if round != self._round:
            begin(self, round)
            self.begin_update()

    patch.setattr(LoopSolution, "begin", cutting)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(each, id=each.__name__.replace("_", "-"))
        for each in (
            regroup_constants_from_a_stale_run,
            read_a_stale_run,
            count_votes_twice,
            load_a_round_too_many,
            load_a_round_too_few,
            update_at_once,
            cut_off_what_is_done,
        )
    ],
)
def test_a_deliberate_fault_in_rounds_is_detected(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    assert first_violation(simulate_rounds) is not None
