"""Simulated rounds of loops that all workers run: worlds from a seed in which workers die, and what must hold in them.

A bulk loop and one with a solution run over the same numbers, each with a constant that is kept, a side input, and what
leaves it in each round. The files between regions and rounds are real; a worker that dies leaves what it has written.
"""

from __future__ import annotations

import builtins
import functools
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tidegate as tg
from tests.streaming.simulation.checking import InvariantViolation
from tests.streaming.simulation.outside import Checked, Outside, outside_of
from tests.streaming.simulation.world import NAME, Faults, Simulation, WorkerProcess
from tidegate.runners.plan import Plan
from tidegate.runners.planner import Traits, plan
from tidegate.runners.streaming.coordinator.coordinator import Coordinator
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import CheckpointSettings, RestartSettings, Settings
from tidegate.runners.streaming.network import blocking_exchange
from tidegate.runners.streaming.network.blocking_exchange import SubpartitionWriter
from tidegate.runners.streaming.protocol.coordinator_io import Progress
from tidegate.runners.streaming.protocol.worker_messages import Deploy, ToWorker
from tidegate.runners.streaming.rounds import solution_log
from tidegate.runners.streaming.rounds.solution_log import SolutionLog
from tidegate.runners.streaming.worker.worker import Worker
from tidegate.sdk.metrics import MetricCells

PAIRS = tuple[int, int]
ROUNDS = 5
FAULTS = Faults(kills=5, crashes=0, crash_points=120, hangs=0, usurpers=0, damages=0, savepoints=0, stops=0)


# -- the pipeline, and what it gives


def neighbours(vertices: int) -> list[tuple[int, int]]:
    """The edges of a graph, both ways: two rings with some chords."""
    half = vertices // 2
    rings = [(n, first + (n + 1 - first) % half) for first in (0, half) for n in range(first, first + half)]
    chords = [(n, n + 3) for n in range(0, half - 3, 4)]
    return [edge for a, b in rings + chords for edge in ((a, b), (b, a))]


def build(vertices: int) -> tg.Pipeline:
    """A sum over neighbours in bulk, and components by a loop with a solution."""
    p = tg.Pipeline()
    edges = p | "edges" >> tg.Create(neighbours(vertices)).with_output_types(PAIRS)
    start = p | "start" >> tg.Create([(n, n) for n in range(vertices)]).with_output_types(PAIRS)

    def bulk(values: Any) -> Any:
        total = tg.AsSingleton(values | "all" >> tg.combiners.Count.Globally())
        told = values | tg.Join.inner(edges) | "tell" >> tg.MapTuple(told_to).with_output_types(PAIRS)
        new = told | "sum" >> tg.CombinePerKey(sum) | "less" >> tg.MapValues(lambda n: n % 97).with_output_types(PAIRS)
        seen = edges | "count" >> tg.Map(lambda edge, n: edge[0] * n, total) | "total" >> tg.CombineGlobally(sum)
        return tg.Round(new, out={"seen": seen | "of round" >> tg.Map(in_round)})

    def delta(known: tg.Solution[int, int], changed: Any) -> Any:
        told = changed | tg.Join.inner(edges) | "tell" >> tg.MapTuple(told_to).with_output_types(PAIRS)
        count = tg.AsSingleton(told | "all" >> tg.combiners.Count.Globally())
        asked = start | "count" >> tg.Map(lambda pair, n: (pair[0], n), count).with_output_types(PAIRS)
        return tg.Round(told, out={"known": asked | known.lookup() | "of round" >> tg.Map(in_round)})

    sums = start | "bulk" >> tg.Iterate(bulk, rounds=ROUNDS)
    labels = (start, start) | "delta" >> tg.IterateDelta(delta, merge=min)
    for name, result in (
        ("sums", sums.result),
        ("seen", sums.out["seen"]),
        ("labels", labels.result),
        ("known", labels.out["known"]),
    ):
        records = result | f"as {name}" >> tg.Map(lambda value, name=name: (name, value))
        _ = records | name >> tg.Write(Checked(NAME, stages=True))
    return p


def told_to(key: int, both: tuple[int, int]) -> PAIRS:  # type: ignore[valid-type]
    outside_of(NAME).crash_point("tell")
    return both[1], both[0]


def in_round(value: Any, number: int = tg.DoFn.RoundParam) -> Any:
    outside_of(NAME).crash_point("in a round")
    return number, value


@functools.cache
def expected(vertices: int) -> tuple[Counter[Any], dict[tuple[str, str], int]]:
    """All records, each of which is to be written once; and the metrics of the loops."""
    edges = neighbours(vertices)
    records: list[Any] = []
    values = {n: n for n in range(vertices)}
    for number in range(1, ROUNDS + 1):
        records.append(("seen", (number, sum(a * len(values) for a, _ in edges))))
        told = [(b, values[a]) for a, b in edges]
        values = {n: sum(value for key, value in told if key == n) % 97 for n in range(vertices)}
    records += [("sums", pair) for pair in values.items()]
    labels = {n: n for n in range(vertices)}
    changed, rounds, fed_back = dict(labels), 0, 0
    while changed:
        rounds += 1
        messages = [(b, changed[a]) for a, b in edges if a in changed]
        records += [("known", (rounds, (n, (len(messages), label)))) for n, label in labels.items()]
        new = dict(labels)
        for key, label in messages:
            new[key] = min(new[key], label)
        changed = {n: label for n, label in new.items() if labels[n] != label}
        fed_back += len(changed)
        labels = new
    records += [("labels", pair) for pair in labels.items()]
    metrics = {("bulk", "rounds"): ROUNDS, ("bulk", "fed_back"): ROUNDS * vertices}
    metrics |= {("delta", "rounds"): rounds, ("delta", "fed_back"): fed_back}
    return Counter(records), metrics


class RoundsChecker:
    """Checks the output of the whole run, which is committed at its end."""

    def __init__(self, outside: Outside, vertices: int) -> None:
        self._outside = outside
        self._vertices = vertices
        self.metrics = MetricCells()
        """Those that were reported last."""

    def check(self) -> None:
        return

    def finish(self, *, drained: bool) -> None:
        records, metrics = expected(self._vertices)
        found = Counter(record for _, some in self._outside.committed for record in some)
        if found != records:
            raise InvariantViolation(f"too many: {found - records}; missing: {records - found}")
        for (step, name), count in metrics.items():
            counted = sum(n for key, n in self.metrics.counters.items() if (key.step, key.name) == (step, name))
            if counted != count:
                raise InvariantViolation(f"{name} of {step} is {counted}, not {count}")


# -- the world


class RoundsWorker(Worker):
    """A worker in which channels that have ended begin anew in the next round."""

    def on_message(self, message: ToWorker) -> None:
        process = self.services
        assert isinstance(process, WorkerProcess)
        if isinstance(message, Deploy):
            process.statuses = {id: status for id, status in process.statuses.items() if not status.ended}
        super().on_message(message)


def simulate_rounds(seed: int, history: list[str] | None = None) -> Simulation:
    """Run a simulation. `history` receives its log. Raises InvariantViolation."""
    chance = random.Random(seed ^ 0x100B)
    vertices = chance.choice([8, 12, 20])
    workers = chance.choice([1, 2, 2, 3])
    settings = Settings(
        workers=workers,
        streaming=False,
        batch=True,
        block_size=chance.choice([1, 3, 8]),
        memory_budget=chance.choice([workers, 20_000, 1 << 24]),
        credit=chance.choice([1, 2, 8]),
        max_parallelism=16,
        heartbeat=0.5,
        checkpoints=CheckpointSettings(directory="not used"),
        restart=RestartSettings(attempts=30, delay=0.05, most_delay=0.2),
    )
    job = Job("rounds", "run", planned(vertices), settings)
    outside = Outside(0, 1)
    simulation = Simulation(seed, job, outside, 0, FAULTS)
    simulation._again = True  # a bounded job leaves no record of its end
    checker = RoundsChecker(outside, vertices)
    simulation.checker = checker  # type: ignore[assignment]
    with ExitStack() as replaced:
        directory = Path(replaced.enter_context(tempfile.TemporaryDirectory()))
        for each in _files_that_outlive_workers(simulation, replaced):
            replaced.enter_context(each)

        def make_worker(job: Job, index: int, attempt: int, process: WorkerProcess) -> Worker:
            process.directory = lambda: directory  # type: ignore[method-assign]
            return RoundsWorker(job, index, attempt, process)

        class Observed(Coordinator):
            def handle(self, event: Any, now: int) -> Any:
                actions = super().handle(event, now)
                for action in actions:
                    if isinstance(action, Progress):
                        checker.metrics = action.metrics
                return actions

        simulation.make_worker = make_worker
        simulation.make_coordinator = functools.partial(Observed, wall=simulation.wall)
        if history is not None:
            replaced.callback(lambda: history.extend(simulation.history))
        simulation.run()
    return simulation


def _files_that_outlive_workers(simulation: Simulation, opened: ExitStack) -> Iterator[Any]:
    """What workers write is on disk at once, and they may die before and after they complete it.

    `opened` closes the files of workers that have died, as the system does when a process ends.
    """

    def unbuffered(path: Any, mode: str, **given: Any) -> Any:
        return opened.enter_context(builtins.open(path, mode, **given, **({"buffering": 0} if mode == "ab" else {})))

    for module in (solution_log, blocking_exchange):
        yield patch.object(module, "open", unbuffered, create=True)
    for owner, name in ((SolutionLog, "append"), (SolutionLog, "flush"), (SubpartitionWriter, "finish")):
        done = getattr(owner, name)

        def complete(self: Any, *given: Any, name: str = name, done: Callable[..., Any] = done) -> Any:
            simulation.crash_point(f"before {name}")
            result = done(self, *given)
            simulation.crash_point(f"after {name}")
            return result

        yield patch.object(owner, name, complete)


@functools.cache
def planned(vertices: int) -> Plan:
    """The plan of the simulated pipeline: the same for all seeds of a size."""
    return plan(build(vertices).sealed(values=True), Traits(parallel=True, parallel_loops=True))
