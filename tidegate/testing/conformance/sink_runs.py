"""The checks of sinks that run whole pipelines, on the runners that the author names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.connectors.sinks import Sink
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.pipeline import Pipeline
from tidegate.sdk.primitives import Create, Map, ParDo, Read, Write
from tidegate.testing.conformance.gated_source import FAIL, OPEN, GatedSource
from tidegate.testing.conformance.pipeline_runs import RUNNERS, Run, folder, needs, pipeline_on, streaming_pipeline
from tidegate.testing.conformance.rules import broken
from tidegate.testing.conformance.writing import SinkCase
from tidegate.testing.matchers import difference, pair_up


def pipelines_write_everything(case: SinkCase) -> None:
    """What a pipeline writes is visible after its end, each element once, on each of the chosen runners."""
    for runner in needs(case.runners, *RUNNERS):
        sink = case.sink()
        pipeline = pipeline_on(runner)
        _ = pipeline | "elements" >> Create(case.elements) | "write" >> Write(sink)
        Run(case.calls, f"a pipeline on the {runner} runner", pipeline).finish()
        _expect(case, sink, case.elements, f"after a pipeline on the {runner} runner")


def pipelines_write_once_after_failures(case: SinkCase) -> None:
    """What a stream writes is visible once, although it fails after some of it was written and not committed."""
    needs(case.runners, "streaming")
    sink = case.sink()
    with folder() as at:
        (at / "control").mkdir()
        pipeline = streaming_pipeline(at / "checkpoints", 2)
        gated = GatedSource(_Elements(tuple(case.elements)), str(at / "control"), len(case.elements) // 2)
        _write_and_fail(pipeline, gated, str(at / "control"), len(case.elements), sink)
        run = Run(case.calls, "a stream", pipeline)
        run.wait_until_paused(at / "control", at / "checkpoints")
        (at / "control" / FAIL).touch()
        (at / "control" / OPEN).touch()
        run.wait_until((at / "control" / _PASSED).exists, "the last element")
        run.stop(drain=True)
    found = list(case.calls("read_back(sink)", case.read_back, sink))
    missing, unexpected = pair_up(case.elements, found)
    if missing or (unexpected and sink.delivery == "exactly_once"):
        raise broken(
            f"after a stream that failed once: {difference(case.elements, found)}",
            "make visible what the committables of the commit stand for, and nothing that an attempt wrote after them",
        )


def failed_pipelines_leave_nothing(case: SinkCase) -> None:
    """A bounded pipeline that fails at its last element leaves nothing visible."""
    case.exactly_once()
    for runner in needs(case.runners, "direct", "streaming"):
        sink = case.sink()
        with folder() as at:
            (at / FAIL).touch()
            pipeline = pipeline_on(runner)
            _write_and_fail(pipeline, _Elements(tuple(case.elements)), str(at), len(case.elements), sink)
            _, error = case.calls.outcome("a pipeline that fails", _run, pipeline)
        if not str(error).count(_PLANTED):
            raise broken(
                f"a pipeline on the {runner} runner "
                + ("did not fail" if error is None else f"failed with {type(error).__name__}: {error}"),
                "let `write` and `close` not hide the errors of other steps",
            ) from error
        _expect(case, sink, [], f"after a pipeline on the {runner} runner that failed")


def _run(pipeline: Pipeline) -> None:
    pipeline.run().wait_until_finish()


def _expect(case: SinkCase, sink: Sink[Any], elements: list[Any], when: str) -> None:
    problem = difference(elements, list(case.calls("read_back(sink)", case.read_back, sink)))
    if problem is not None:
        raise broken(f"{when}: {problem}", "make visible in `commit` what the committables stand for, and nothing else")


def _write_and_fail(pipeline: Pipeline, source: Source[Any], control: str, count: int, sink: Sink[Any]) -> None:
    """Write the elements; fail when the last one has been written, in the same event: no checkpoint comes between."""
    numbered = pipeline | "elements" >> Read(source)
    _ = numbered | "values" >> Map(_value) | "write" >> Write(sink)
    _ = numbered | "fail" >> ParDo(_FailAtTheLast(control, count - 1))


def _value(numbered: tuple[int, Any]) -> Any:
    return numbered[1]


_PASSED: Final = "passed"
"""The file that is created when the last element has passed."""
_PLANTED: Final = "the conformance suite makes the run fail at its last element"


class _FailAtTheLast(DoFn):
    """Raises at the last element if the file `FAIL` exists, and removes that; creates `_PASSED` otherwise."""

    def __init__(self, control: str, last: int) -> None:
        self.file = Path(control, FAIL)
        self.last = last

    def process(self, element: tuple[int, Any]) -> None:
        if element[0] < self.last:
            return
        if self.file.exists():
            self.file.unlink()
            raise RuntimeError(_PLANTED)
        self.file.with_name(_PASSED).touch()


@dataclass(frozen=True)
class _Elements(Source[Any]):
    """Numbered elements, one in each batch, so that each of them reaches the sink before the next is read."""

    elements: tuple[Any, ...]

    def splits(self, desired: int) -> list[Split]:
        return [Split("all")]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _ElementsReader(self.elements, position or 0)


class _ElementsReader(Reader[Any]):
    def __init__(self, elements: tuple[Any, ...], at: int) -> None:
        self._elements = elements
        self._at = at

    def read(self, limit: int) -> Batch:
        found = list(enumerate(self._elements))[self._at : self._at + 1]
        self._at += 1
        return Batch(Block.of(found), end=self._at >= len(self._elements))

    def position(self) -> Position:
        return self._at
