"""The files of one task in a savepoint: it writes its own, and reads those that it is restored from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

from tidegate.runners.checkpoint.parts import StateHandle
from tidegate.runners.checkpoint.restoring import TaskRestore, operator_states, restored_state
from tidegate.runners.checkpoint.state_files import StateFile, UnpicklableState, frames, snapshots_of, write_to
from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.runners.checkpoint.task_state import TaskState, dumps
from tidegate.runners.engine.operator import Operator
from tidegate.runners.engine.operator_graph import Graph, resume, state_name
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Step
from tidegate.runners.spark.streaming.job import StreamJob
from tidegate.sdk.errors import RunError, TidegateError, access_failure
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS


def by_stage(steps: Iterable[Step]) -> dict[int, list[Step]]:
    """The steps of a task, by stage."""
    stages: dict[int, list[Step]] = {}
    for step in steps:
        stages.setdefault(step.stage, []).append(step)
    return stages


def write_state(
    job: StreamJob, level: int, index: int, steps: Iterable[Step], graph: Graph, clock: int, scratch: Path
) -> dict[int, StateHandle]:
    """Write all state of a task to the savepoint of the job; returns its files, by stage.

    The names of the files are this attempt's own, so that a batch may run twice. `scratch`: a local folder, in which a
    file is written before it is stored. RunError if the storage can't be written.
    """
    assert job.savepoint is not None
    url, folder = job.savepoint.url, job.savepoint.folder
    attempt = os.urandom(4).hex()
    handles = {}
    try:
        storage = open_storage(url)
        for stage, of_stage in by_stage(steps).items():
            names = list(map(state_name, of_stage))
            operators = {name: each for name, each in graph.operators().items() if name in names}
            standings = {name: each for name, each in graph.step_statuses().items() if name in names}
            prefix = f"{folder}/{level}.{stage}.{index}.{attempt}"
            own = dumps(TaskState(standings, clock=clock))
            storage.put(f"{prefix}.task", own)
            files = [(f"{prefix}.task", len(own), crc32(own))]
            if (stored := _store_operators(storage, f"{prefix}.state", operators, scratch / str(stage))) is not None:
                files.append(stored)
            storage.sync([name for name, _, _ in files])
            handles[stage] = StateHandle(tuple(files))
    except TidegateError:
        raise
    except Exception as error:  # of a remote store, whatever its client raises
        raise RunError(f"the savepoint in {url} can't be written: {access_failure(error)}") from error
    return handles


def ended_stages(steps: Iterable[Step], graph: Graph) -> frozenset[int]:
    """The stages of a task whose sources and operators have all ended."""
    statuses = graph.step_statuses()

    def has_ended(step: Step) -> bool:
        if step.is_source:
            return all(graph.status(collection).ended for collection in step.outputs)
        return step.is_sink or statuses[state_name(step)].ended

    return frozenset(stage for stage, of_stage in by_stage(steps).items() if all(map(has_ended, of_stage)))


def _store_operators(storage: Storage, name: str, operators: Mapping[str, Operator], scratch: Path) -> StateFile | None:
    """Store the state of operators in one file; None if they have none."""
    snapshots = snapshots_of(operators, dict.fromkeys(operators))
    first = next(snapshots, None)
    if first is None:
        return None
    size = check = 0
    try:
        with scratch.open("wb") as file:

            def write(data: bytes) -> None:
                nonlocal size, check
                size += len(data)
                check = crc32(data, check)
                file.write(data)

            write_to(write, frames(chain([first], snapshots), list(operators)))
        storage.put_file(name, scratch)
    except UnpicklableState as error:
        raise RunError(f"the state of step {error.name!r} can't be pickled for a savepoint: {error.why}") from error
    finally:
        scratch.unlink(missing_ok=True)
    return name, size, check


def read_state(job: StreamJob, level: int, index: int, steps: Iterable[Step], graph: Graph) -> int:
    """Restore the steps of a task that begins from a savepoint; returns the processing time (µs) that it had reached.

    RunError if a file can't be read.
    """
    assert job.restored is not None
    states: dict[str, Any] = {}
    standings: dict[str, CollectionStatus] = {}
    clock = MIN_MICROS
    live = graph.operators()
    for stage, of_stage in by_stage(steps).items():
        names = [name for name in map(state_name, of_stage) if name in live]
        if stage in job.restored.ended:
            standings.update(dict.fromkeys(names, CollectionStatus(MAX_MICROS, ended=True)))
            continue
        parts = job.restored.parts.get((level, stage, index), ())
        if not parts:
            continue
        storage = open_storage(job.restored.url)
        parallelism = job.levels.tasks(of_stage[0], job.tasks)
        restore: TaskRestore = restored_state(
            parts, index, parallelism, job.max_parallelism, storage.read, redistributed=lambda parts: {}
        )
        states.update(operator_states(restore.parts, storage.read, restore.keeps, names))
        standings.update({name: status for name, status in restore.state.standings.items() if name in names})
        clock = max(clock, restore.state.clock)
    if standings:
        graph.restore(states)
        resume(graph, standings)
    return clock
