"""TestPipeline and assert_that: what is recorded while a pipeline runs is checked when it is over, here.

The checks are no part of the pipeline: they need not be pickled, all of them are made even if a branch gave nothing,
a failing one is an ordinary AssertionError at the line of its `assert_that`, and a pipeline that fails says why itself.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.runner import PipelineResult, Runner
from tidegate.sdk.user_code.by_value import is_installed
from tidegate.sdk.user_code.frames import Where
from tidegate.testing.matchers import Matcher, as_matcher
from tidegate.testing.pane_recorder import PaneRecorder

if TYPE_CHECKING:
    from tidegate.sdk.options.model import PipelineOptions

_HOME: Final = __file__.rsplit("testing", 1)[0]
_STANDARD: Final = os.path.dirname(os.__file__)

default_runner: str | Runner | None = None
"""The runner of a TestPipeline that names none; None: the one of its options. The plugin sets it."""

_pipelines: Final[weakref.WeakSet[TestPipeline]] = weakref.WeakSet()


class TestPipeline(Pipeline):
    """A Pipeline whose `run` waits for its end and then checks every `assert_that`.

        with TestPipeline() as pipeline:
            assert_that(pipeline | tg.Create([1, 2]) | tg.Map(str), equal_to(["1", "2"]))

    `timeout` (s): an unbounded pipeline that has not ended by then is cancelled, and that is a failure.
    """

    __test__ = False  # pytest: not a test class

    def __init__(
        self,
        runner: str | Runner | None = None,
        options: PipelineOptions | Mapping[str, Any] | Sequence[str] | None = None,
        *,
        name: str = "pipeline",
        timeout: float = 300,
    ) -> None:
        if runner is None and not _names_runner(options):
            runner = default_runner
        super().__init__(runner, options, name=name)
        self.timeout = timeout
        self.assertions: list[Assertion] = []
        self.finished = False
        _pipelines.add(self)

    @property
    def is_empty(self) -> bool:
        """Whether no step has been applied."""
        return not self._steps.nodes

    def runs_on(self, name: str) -> bool:
        """Whether its runner has that name."""
        runner = self.runner or self.options.runner
        return name == (runner if isinstance(runner, str) else runner.name)

    def run(self) -> PipelineResult:
        """Run to the end, then check. AssertionError lists every assertion that fails."""
        __tracebackhide__ = True
        self.finished = True
        for assertion in self.assertions:
            assertion.recorder.forget()
        if self.runs_on("streaming"):
            from tidegate.runners.streaming.client.job_client import use_fork_server

            use_fork_server()
        result = super().run()
        if not result.wait_until_finish(self.timeout).ended:
            result.cancel()
            raise AssertionError(
                f"the pipeline had not ended after {self.timeout:g} s, and was cancelled: give its sources an end, the "
                "options run_for, or the TestPipeline a longer timeout"
            )
        _check(self.assertions)
        return result

    def __enter__(self) -> Self:
        self._nodes_run = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        self.finished = True  # the author has seen the error
        if kind is None and not self._ran_in_block():
            self.run()


@dataclass(frozen=True, slots=True)
class Assertion:
    """One `assert_that`: what it looks at, and the author's frames at the line where it stands."""

    collection: str
    matcher: Matcher
    recorder: PaneRecorder
    panes: bool
    label: str | None
    where: Where
    frames: tuple[tuple[FrameType, int, int], ...]

    def failure(self) -> str | None:
        """The failure and the place of the assertion; None if it holds."""
        records = list(self.recorder.read())
        problem = self.matcher.mismatch(
            records if self.panes or self.matcher.per_window else [record.value for record in records]
        )
        if problem is None:
            return None
        title = f"{self.label}: " if self.label else ""
        return f"{title}{self.collection!r} is not as asserted at {self.where}\n" + problem

    def trace(self) -> TracebackType | None:
        """A traceback that ends at the assertion's line."""
        trace: TracebackType | None = None
        for frame, instruction, line in self.frames:
            trace = TracebackType(trace, frame, instruction, line)
        return trace


def assert_that(pcoll: PCollection[Any], matcher: Any, label: str | None = None, *, panes: bool = False) -> None:
    """Check, when the run is over, what a collection of a `TestPipeline` held.

    `matcher` is one of `equal_to`, `contains`, …, or a function of the list of all elements that raises
    AssertionError or returns False. With `panes` it is given each element in each of its windows as a `Recorded`, to
    be compared with `fired(...)`.
    """
    pipeline = getattr(pcoll, "pipeline", None)
    if not isinstance(pcoll, PCollection):
        raise BuildError(f"assert_that looks at a PCollection, not at {type(pcoll).__name__}")
    if not isinstance(pipeline, TestPipeline):
        raise BuildError(
            "assert_that works in a TestPipeline, which checks when the run is over: "
            "write `with tidegate.testing.TestPipeline() as pipeline:`"
        )
    asked = as_matcher(matcher)
    recorder = _Asserted(label, per_window=panes or asked.per_window)
    _ = pcoll | recorder
    frames = _author_frames(sys._getframe(1))
    where = Where(frames[0][0].f_code.co_filename, frames[0][2]) if frames else Where("<unknown>", 0)
    pipeline.assertions.append(Assertion(pcoll.id, asked, recorder, panes, label, where, frames))
    pipeline.finished = False


class _Asserted(PaneRecorder):
    """The recorder of an assertion; its name in drawings of the pipeline."""

    def default_label(self) -> str:
        return "assert_that"


def unchecked() -> list[TestPipeline]:
    """TestPipelines with assertions that no run has checked."""
    return [pipeline for pipeline in _pipelines if pipeline.assertions and not pipeline.finished]


def _names_runner(options: Any) -> bool:
    """Whether options name a runner."""
    match options:
        case None:
            return False
        case Mapping():
            return "runner" in options
        case Sequence():
            return any(flag.split("=")[0] in ("--runner", "-r") for flag in options)
    return "runner" in options.model_fields_set


def _check(assertions: list[Assertion]) -> None:
    """Raise one AssertionError for all that do not hold, at the line of the first of them."""
    __tracebackhide__ = True
    failed = [(assertion, text) for assertion in assertions if (text := assertion.failure()) is not None]
    if not failed:
        return
    first, message = failed[0]
    if len(failed) > 1:
        parts = [f"{number}) {text}" for number, (_, text) in enumerate(failed, 1)]
        message = "\n".join([f"{len(failed)} of {len(assertions)} assertions do not hold", *parts])
    raise AssertionError(message).with_traceback(first.trace())


def _author_frames(frame: FrameType | None) -> tuple[tuple[FrameType, int, int], ...]:
    """The author's frames from the innermost outwards, up to whoever called the author's code."""
    found = []
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_HOME, "<frozen")):
            if file.startswith(_STANDARD) or is_installed(file):
                break
            found.append((frame, frame.f_lasti, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)
