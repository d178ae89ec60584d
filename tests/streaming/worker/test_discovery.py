"""A streaming job whose splits are discovered while it runs: coordinator, worker and checkpoints in one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import tidegate as tg
from tests.support.growing_folder import END, WAIT, GrowingFolder, add_file
from tests.support.streaming.in_process_job import ONE_WORKER, InProcessJob
from tests.support.streaming.inline_work import InlineWork
from tidegate.cli.state import state
from tidegate.runners.checkpoint.catalog import latest
from tidegate.runners.checkpoint.manifest import Manifest
from tidegate.runners.checkpoint.parts import EnumeratorState
from tidegate.runners.engine.time.clock import ManualClock
from tidegate.runners.plan import Step
from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.runners.streaming.protocol.worker_messages import ListSplits, SplitsDiscovered, SplitsListed
from tidegate.runners.streaming.worker.split_enumeration import SplitEnumeration
from tidegate.sdk.errors import ReadError

SETTINGS = replace(ONE_WORKER, checkpoints=CheckpointSettings(interval=0.5))


def job_over(folder: Path, output: Path, source: tg.io.Source[str] | None = None) -> InProcessJob:
    pipeline = tg.Pipeline()
    lines = pipeline | "lines" >> tg.Read(source or GrowingFolder(str(folder)))
    _ = lines | "write" >> tg.io.WriteToText(f"{output}/part")
    return InProcessJob(pipeline, output, SETTINGS)


def crash(job: InProcessJob) -> None:
    """Lose the worker, but not the descriptors that a real process would have closed by dying."""
    lost = job.worker
    assert lost is not None
    job.crash()
    for task in lost._order:
        task.abandon()


def output_lines(output: Path) -> list[str]:
    return sorted(line for path in output.glob("part-*") for line in path.read_text().splitlines())


def lines_of(name: str, count: int = 5) -> list[str]:
    return [f"{name}-{n}" for n in range(count)]


def manifest_of(job: InProcessJob) -> Manifest:
    manifest, damaged = latest(job.storage)
    assert manifest is not None
    assert damaged == []
    return manifest


def test_splits_that_appear_while_the_job_runs_are_read_once_also_after_crashes(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    job = job_over(folder, tmp_path / "out")
    job.advance(1)
    names = [f"file-{n:02}" for n in range(12)]
    for n, name in enumerate(names):
        add_file(folder, name, lines_of(name))
        job.advance(0.3)
        if n % 3 == 2:
            crash(job)
            job.advance(10)
    add_file(folder, END, [])
    job.advance(60)
    assert job.finish is not None
    assert job.finish.state == "finished"
    assert output_lines(tmp_path / "out") == sorted(line for name in names for line in lines_of(name))


def test_a_manifest_does_not_grow_with_the_number_of_splits_read(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    job = job_over(folder, tmp_path / "out")
    for n in range(60):
        add_file(folder, f"file-{n:02}", lines_of(f"{n}", 1))
        job.advance(0.1)
    job.advance(2)
    manifest = manifest_of(job)
    assert manifest.lists == {"lines": ()}
    assert manifest.finished == {"lines": 60}
    assert manifest.enumerators == {"lines": EnumeratorState("file-59", backlog=False)}
    assert [part for task in manifest.tasks for part in task.splits if part.finished or part.current] == []
    printed = CliRunner().invoke(state, [str(tmp_path / "out" / "checkpoints")])
    assert "lines: 60 of 60 splits are finished, 0 in progress" in printed.output
    assert 'its enumerator looks for more splits, from "file-59"' in printed.output
    assert job.worker is not None
    readers = [source.reader for task in job.worker._order for source in task.sources._sources.values()]
    assert [reader.finished for reader in readers] == [[]]


def test_a_split_whose_position_is_lost_fails_the_job_instead_of_being_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    add_file(folder, "long", [*lines_of("long"), WAIT])
    job = job_over(folder, tmp_path / "out")
    job.advance(2)
    assert [part.current for task in manifest_of(job).tasks for part in task.splits] == [(("long", 5),)]
    add_file(folder, ".gone-long", [])
    crash(job)
    with pytest.raises(AssertionError, match=r"(?s)long: line \d+ is not there any more.*in step 'lines'"):
        job.advance(5)


def test_the_error_of_an_enumerator_fails_the_job_and_names_the_step(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"(?s)FileNotFoundError.*in step 'lines', applied at .*test_discovery.py"):
        job_over(tmp_path / "nowhere", tmp_path / "out").advance(1)


# -- the enumeration of one source


class Listing(tg.io.Source[str]):
    """A source that overrides `enumerator` but returns none."""

    def splits(self, desired: int) -> list[tg.io.Split]:
        return [tg.io.Split(f"{n}") for n in range(desired)]

    def enumerator(self, state: tg.io.Position = None) -> tg.io.SplitEnumerator | None:
        return None

    def reader(self, split: tg.io.Split, position: tg.io.Position = None) -> tg.io.Reader[str]:
        raise AssertionError


def step_of(source: tg.io.Source[str], folder: Path) -> Step:
    job = job_over(folder, folder / "out", source)
    return next(step for step in job.job.plan.steps if step.is_source)


def enumeration(source: tg.io.Source[str], folder: Path, message: ListSplits, clock: ManualClock) -> SplitEnumeration:
    return SplitEnumeration(step_of(source, folder), message, InlineWork(), clock)


def test_a_source_that_returns_no_enumerator_lists_its_splits(tmp_path: Path) -> None:
    enumerating = enumeration(Listing(), tmp_path, ListSplits(0, 3), ManualClock())
    assert enumerating.poll() is None
    listed = enumerating.poll()
    assert isinstance(listed, SplitsListed)
    assert [split.id for split in listed.splits] == ["0", "1", "2"]
    assert (enumerating.poll(), enumerating.next_wake()) == (None, None)


def test_a_look_that_finds_no_splits_is_repeated_later_and_not_reported(tmp_path: Path) -> None:
    clock = ManualClock()
    folder = tmp_path / "in"
    folder.mkdir()
    enumerating = enumeration(GrowingFolder(str(folder)), folder, ListSplits(0, 3), clock)
    enumerating.poll()
    first = enumerating.poll()
    assert first == SplitsDiscovered(0, (), EnumeratorState("", backlog=False))
    enumerating.discover()
    assert enumerating.next_wake() == 10_000
    clock.advance(10_000)
    assert (enumerating.poll(), enumerating.poll(), enumerating.next_wake()) == (None, None, 20_000)
    add_file(folder, "a", ["line"])
    clock.advance(10_000)
    enumerating.poll()
    late = enumerating.poll()
    assert isinstance(late, SplitsDiscovered)
    assert [(split.id, split.late, split.bounded) for split in late.splits] == [("a", True, True)]
    assert late.enumerator == EnumeratorState("a", backlog=False)
    clock.advance(10_000)
    assert (enumerating.poll(), enumerating.next_wake()) == (None, None)


@pytest.mark.parametrize(
    ("message", "enumerated", "reason"),
    [
        (ListSplits(0, 1, listed=True), True, "it has an enumerator now"),
        (ListSplits(0, 1, EnumeratorState("a")), False, "the source has no enumerator now"),
    ],
)
def test_a_source_that_has_gained_or_lost_its_enumerator_since_the_checkpoint_is_refused(
    tmp_path: Path, message: ListSplits, enumerated: bool, reason: str
) -> None:
    source = GrowingFolder(str(tmp_path)) if enumerated else Listing()
    enumerating = enumeration(source, tmp_path, message, ManualClock())
    enumerating.discover()
    enumerating.poll()
    with pytest.raises(ReadError, match=rf"(?s){reason}.*in step 'lines'"):
        enumerating.poll()


def test_a_resumed_job_looks_for_splits_only_on_request(tmp_path: Path) -> None:
    add_file(tmp_path, "a", ["line"])
    add_file(tmp_path, "b", ["line"])
    message = ListSplits(0, 1, EnumeratorState("a", backlog=False))
    enumerating = enumeration(GrowingFolder(str(tmp_path)), tmp_path, message, ManualClock())
    assert (enumerating.poll(), enumerating.next_wake()) == (None, None)
    enumerating.discover()
    enumerating.poll()
    late = enumerating.poll()
    assert isinstance(late, SplitsDiscovered)
    assert [split.id for split in late.splits] == ["b"]
