"""A job that resumes with more or fewer workers while windows are open and timers are pending."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.child_processes import EventPipe
from tests.support.streaming.exactly_once_pipeline import Record, Run, build_pipeline, check_exactly_once, read_records

FLAGS = ["--buffer_timeout", "0", "--checkpoint_interval", "0.1"]


@dataclass
class Phase:
    """One run of the job, with a folder for its output."""

    run: Run

    def execute(self, flags: list[str], savepoint: str | None) -> Any:
        """Run until some output has been committed, then stop with a savepoint, or drain; return the result."""
        Path(self.run.folder).mkdir()
        events = EventPipe(self.run.event_pipe)
        try:
            result: Any = build_pipeline(self.run, [*FLAGS, *flags]).run()
            events.watch("d", 3, fault=lambda: "" if result.state is tg.PipelineState.RUNNING else str(result.state))
            result.stop(drain=savepoint is None, savepoint=savepoint)
            assert result.wait_until_finish() is tg.PipelineState.DONE
            return result
        finally:
            events.close()

    def committed(self) -> Iterator[Record]:
        """The output of the verifying sink, sorted."""
        return read_records(sorted(Path(self.run.folder, "committed").iterdir()))

    def lines(self) -> Iterator[Record]:
        """The lines of the text files, sorted."""
        files = Path(self.run.folder, "text").glob("part-*")
        return read_records(sorted(files, key=lambda path: (int(path.name.split("-")[2]), path.name)))


LOADS = {"throttled": {"rate": 1000}, "backpressured": {"rate": 0, "slow": 0.001}}


BACKENDS = {
    "memory": ["memory", "memory", "memory"],
    "rocksdb between": ["memory", "rocksdb", "memory"],
    "memory between": ["rocksdb", "memory", "rocksdb"],
}


@pytest.mark.parametrize("backends", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize("load", LOADS)
def test_a_job_resumes_with_other_numbers_of_workers_and_another_backend(
    tmp_path: Path, load: str, backends: list[str]
) -> None:
    phases, savepoint, result = [], None, None
    for number, workers in enumerate([1, 3, 2]):
        phases.append(Phase(Run(str(tmp_path / f"phase-{number}"), **LOADS[load])))  # type: ignore[arg-type]
        flags = ["--workers", str(workers), "--state_backend", backends[number]]
        if savepoint is not None:
            flags += ["--from_savepoint", savepoint]
        savepoint = str(tmp_path / f"savepoint-{number}") if number < 2 else None
        result = phases[-1].execute(flags, savepoint)
    assert result is not None
    numbers = result.metrics().counter("elements_out", step="numbers")
    check_exactly_once(chain.from_iterable(phase.committed() for phase in phases), numbers)
    check_exactly_once(chain.from_iterable(phase.lines() for phase in phases), numbers)


def test_a_checkpoint_of_rocksdb_is_refused_by_a_run_in_memory(tmp_path: Path) -> None:
    directory = ["--workers", "1", "--checkpoint_dir", str(tmp_path / "checkpoints")]
    phase = Phase(Run(str(tmp_path / "phase"), rate=1000))
    Path(phase.run.folder).mkdir()
    events = EventPipe(phase.run.event_pipe)
    try:
        result: Any = build_pipeline(phase.run, [*FLAGS, *directory, "--state_backend", "rocksdb"]).run()
        events.watch("d", 2)
        result.cancel()
        result = build_pipeline(phase.run, [*FLAGS, *directory]).run()
        with pytest.raises(tg.TidegateError, match=r"was taken with --state_backend rocksdb.*from a savepoint"):
            result.wait_until_finish()
    finally:
        events.close()
