"""The checks of sources that run whole pipelines, on the runners that the author names."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.interactive.recorder import record, recorded
from tidegate.sdk.primitives import ParDo, Read
from tidegate.testing.conformance.gated_source import OPEN, FailOnce, GatedSource
from tidegate.testing.conformance.pipeline_runs import Run, folder, needs, pipeline_on, streaming_pipeline
from tidegate.testing.conformance.reading import SourceCase
from tidegate.testing.conformance.rules import NotApplicable, RuleBroken
from tidegate.testing.matchers import pair_up


def pipelines_read_everything(case: SourceCase) -> None:
    """A pipeline that reads the source returns each element once, on each of the chosen runners."""
    bounded = case.source().bounded
    for runner in needs(case.runners, *(("direct", "streaming", "spark") if bounded else ("direct", "streaming"))):
        found = _read_to_the_end(case, runner) if bounded else _read_live(case, runner)
        case.compare(found, f"a pipeline on the {runner} runner")


def pipelines_resume_after_failures(case: SourceCase) -> None:
    """A stream that fails in the middle, and is then stopped and resumed with more tasks, returns each element once."""
    needs(case.runners, "streaming")
    if not case.source().replayable:
        raise NotApplicable("replayable = False: elements can't be read a second time")
    with folder() as at:
        control, found = at / "control", at / "recorded"
        for each in (control, found):
            each.mkdir()
        run = _resumable(case, at, "first", 2)
        run.wait_until_paused(control, at / "first")
        run.fail_once(control)
        run.wait_until_paused(control, at / "first")
        run.stop(savepoint=at / "saved")
        (control / OPEN).touch()
        run = _resumable(case, at, "second", 3, f"--from_savepoint={at}/saved")
        how = "a stream that failed, was stopped, and was resumed with more tasks"
        try:
            run.wait_until(lambda: _complete(case, _values(found)), "all elements")
        except RuleBroken:
            case.compare(_values(found), how)
            raise
        run.stop(drain=True)
        case.compare(_values(found), how)


def _read_to_the_end(case: SourceCase, runner: str) -> list[Any]:
    with folder() as at:
        pipeline = pipeline_on(runner)
        record(pipeline | "read" >> Read(case.source()), at, per_window=False)
        Run(case.calls, f"a pipeline on the {runner} runner", pipeline).finish()
        return _values(at)


def _read_live(case: SourceCase, runner: str) -> list[Any]:
    with folder() as at:
        pipeline = pipeline_on(runner)
        _ = pipeline | "read" >> Read(case.source()) | "note" >> ParDo(_Note(str(at)))
        run = Run(case.calls, f"a pipeline on the {runner} runner", pipeline)
        run.wait_until(lambda: _complete(case, list(_noted(at))), "all elements")
        run.cancel()
        return list(_noted(at))


def _resumable(case: SourceCase, at: Path, name: str, workers: int, *flags: str) -> Run:
    pace = max(1, len(case.expected) // 8)
    pipeline = streaming_pipeline(at / name, workers, *flags)
    source = GatedSource(case.source(), str(at / "control"), pace)
    elements = pipeline | "read" >> Read(source) | "fail" >> ParDo(FailOnce(str(at / "control")))
    record(elements, at / "recorded", per_window=False)
    return Run(case.calls, f"the {name} stream", pipeline)


def _complete(case: SourceCase, found: list[Any]) -> bool:
    return len(found) >= len(case.expected) and not pair_up(case.expected, found)[0]


def _values(directory: Path) -> list[Any]:
    return [value for value, _, _, _ in recorded(directory)]


class _Note(DoFn):
    """Appends pickles of elements to a file of its own."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def setup(self) -> None:
        import tempfile

        self.file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed in teardown
            dir=self.directory, suffix=".noted", delete=False
        )

    def process(self, element: Any) -> None:
        self.file.write(pickle.dumps(element))
        self.file.flush()

    def teardown(self) -> None:
        self.file.close()


def _noted(directory: Path) -> Iterator[Any]:
    for path in directory.glob("*.noted"):
        with path.open("rb") as file:
            while file.peek(1):
                try:
                    yield pickle.load(file)
                except (EOFError, pickle.UnpicklingError):  # the last element is being written
                    break
