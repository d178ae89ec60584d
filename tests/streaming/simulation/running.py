"""One simulation from one seed, which also determines its size, its parallelism and its settings."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

from tests.streaming.simulation.feedback import LoopChecker, build_loop
from tests.streaming.simulation.outside import Outside
from tests.streaming.simulation.pipeline import NumbersChecker, build
from tests.streaming.simulation.world import NAME, Faults, Simulation
from tidegate.runners.checkpoint import state_files
from tidegate.runners.plan import Plan
from tidegate.runners.planner import Traits, plan
from tidegate.runners.streaming.checkpoint import epoch_fencing
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import CheckpointSettings, RestartSettings, Settings
from tidegate.runners.streaming.state import memory, writers

DIRECTORY = "simulated"
KEYS = 7


def simulate(
    seed: int,
    history: list[str] | None = None,
    *,
    faults: Faults | None = None,
    mutate: Callable[[Simulation], None] = lambda simulation: None,
    loop: bool = False,
) -> Simulation:
    """Run a simulation. `history` receives its log; `mutate` introduces a deliberate fault; `loop`: of a pipeline whose
    elements go round.

    Raises InvariantViolation.
    """
    chance = random.Random(seed ^ 0x5EED)
    partitions = chance.choice([1, 2, 3])
    numbers = partitions * chance.choice([20, 60, 120])
    unaligned = chance.random() < 0.4
    settings = Settings(
        workers=chance.choice([1, 2, 2, 3]),
        streaming=True,
        batch=False,
        block_size=chance.choice([1, 3, 8]),
        buffer_timeout=chance.choice([0.0, 0.005, 0.1]),
        credit=chance.choice([1, 2, 8]),
        max_parallelism=16,
        heartbeat=0.5,
        checkpoints=CheckpointSettings(
            directory=DIRECTORY,
            interval=chance.choice([0.05, 0.2, 1.0]),
            timeout=chance.choice([0.5, 60.0]),
            tolerated_failures=chance.choice([0, 3]),
            retained=chance.choice([1, 3]),
            mode="unaligned" if unaligned else "aligned",
            alignment_timeout=chance.choice([None, 0.02]),
        ),
        restart=RestartSettings(attempts=20, delay=0.05, most_delay=0.2),
    )
    # A generator of its own, so that other choices of a seed don't depend on it.
    discovers = partitions > 1 and random.Random(seed ^ 0xD15C).random() < 0.3
    if loop:  # in which each number multiplies
        numbers = partitions * (numbers // partitions // 4)
        discovers, pipeline = False, planned_loop(numbers, partitions, timers=seed % 2 == 0)
    else:
        pipeline = planned(numbers, partitions, discovers=discovers)
    job = Job("simulated", "run", pipeline, settings)
    outside = Outside(numbers, partitions, discovers)
    checker = (LoopChecker if loop else NumbersChecker)(outside, KEYS)
    simulation = Simulation(seed, job, outside, checker, faults or Faults(), uploads=seed % 3 == 0)
    with ExitStack() as replaced:
        replaced.enter_context(patch.object(epoch_fencing, "open_storage", simulation.disk_of))
        if seed % 4 == 1:  # state is copied and written a key at a time
            for module, name, n in ((memory, "AT_ONCE", 0), (state_files, "PIECE", 1), (writers, "PIECE", 1)):
                replaced.enter_context(patch.object(module, name, n))
        if history is not None:
            replaced.callback(lambda: history.extend(simulation.history))
        mutate(simulation)
        simulation.run()
    return simulation


@functools.cache
def planned(numbers: int, partitions: int, *, discovers: bool = False) -> Plan:
    """The plan of the simulated pipeline: the same for all seeds of a size."""
    pipeline = build(NAME, numbers, partitions, KEYS, discovers=discovers).sealed(values=True)
    return plan(replace(pipeline), Traits(parallel=True, streaming=True))


@functools.cache
def planned_loop(numbers: int, partitions: int, *, timers: bool) -> Plan:
    """The same of the pipeline with a loop."""
    pipeline = build_loop(NAME, numbers, partitions, KEYS, timers=timers).sealed(values=True)
    return plan(replace(pipeline), Traits(parallel=True, streaming=True))
