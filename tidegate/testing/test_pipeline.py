"""TestPipeline and assert_that: a run records the elements, and the test's process checks them afterwards.

The checks are not steps of the pipeline. So they need not be picklable, they are made even if a branch emitted nothing,
a failure is an ordinary AssertionError at the line of its `assert_that`, and a failing pipeline raises its own error.
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
from tidegate.testing.tolerance import with_tolerance

if TYPE_CHECKING:
    from tidegate.sdk.options.model import PipelineOptions

_HOME: Final = __file__.rsplit("testing", 1)[0]
_STANDARD: Final = os.path.dirname(os.__file__)

default_runner: str | Runner | None = None
"""The runner of a TestPipeline that names none; None for the runner in its options. The plugin sets it."""

_pipelines: Final[weakref.WeakSet[TestPipeline]] = weakref.WeakSet()


class TestPipeline(Pipeline):
    """A Pipeline whose `run` waits for the end of the run and then checks every `assert_that`.

        with TestPipeline() as pipeline:
            assert_that(pipeline | tg.Create([1, 2]) | tg.Map(str), equal_to(["1", "2"]))

    A pipeline that has not ended after `timeout` (s) is cancelled, and the test fails.
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
        """True if no step has been applied."""
        return not self._steps.nodes

    def runs_on(self, name: str) -> bool:
        """True if the pipeline's runner has that name."""
        runner = self.runner or self.options.runner
        return name == (runner if isinstance(runner, str) else runner.name)

    def run(self) -> PipelineResult:
        """Run to the end, then check. Raises AssertionError, which lists every assertion that fails."""
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
                f"the pipeline had not ended after {self.timeout:g} s and was cancelled: make its sources end, set the "
                "option run_for, or give the TestPipeline a longer timeout"
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
        self.finished = True  # even after an error, which the author sees: the plugin needn't report assertions
        if kind is None and not self._ran_in_block():
            self.run()


@dataclass(frozen=True, slots=True)
class Assertion:
    """One `assert_that`: its collection and matcher, and the author's frames at its line."""

    collection: str
    matcher: Matcher
    recorder: PaneRecorder
    panes: bool
    label: str | None
    where: Where
    frames: tuple[tuple[FrameType, int, int], ...]

    def failure(self) -> str | None:
        """Describe the failure, with the place of the assertion; None if the assertion holds."""
        records = list(self.recorder.read())
        problem = self.matcher.mismatch(
            records if self.panes or self.matcher.per_window else [record.value for record in records]
        )
        if problem is None:
            return None
        title = f"{self.label}: " if self.label else ""
        return f"{title}{self.collection!r} fails the assertion at {self.where}\n" + problem

    def trace(self) -> TracebackType | None:
        """A traceback that ends at the assertion's line."""
        trace: TracebackType | None = None
        for frame, instruction, line in self.frames:
            trace = TracebackType(trace, frame, instruction, line)
        return trace


def assert_that(
    pcoll: PCollection[Any],
    matcher: Any,
    label: str | None = None,
    *,
    panes: bool = False,
    near: float | None = None,
) -> None:
    """Check the elements of a collection of a `TestPipeline` after the run.

    `matcher` is `equal_to(...)`, `contains(...)` or another matcher, or a function of the list of all elements that
    fails by raising AssertionError or returning False. With `panes`, the matcher gets a `Recorded` for each window of
    each element, to compare with `fired(...)`. With `near`, floats that the matcher expects, also inside tuples, lists
    and dicts, are equal to numbers that differ by at most `near`.
    """
    pipeline = getattr(pcoll, "pipeline", None)
    if not isinstance(pcoll, PCollection):
        raise BuildError(f"assert_that takes a PCollection, not {type(pcoll).__name__}")
    if not isinstance(pipeline, TestPipeline):
        raise BuildError(
            "assert_that needs a TestPipeline, which checks the assertions after the run: "
            "write `with tidegate.testing.TestPipeline() as pipeline:`"
        )
    converted = as_matcher(matcher)
    if near is not None:
        converted = with_tolerance(converted, near)
    recorder = _AssertionRecorder(label, per_window=panes or converted.per_window)
    _ = pcoll | recorder
    frames = _author_frames(sys._getframe(1))
    where = Where(frames[0][0].f_code.co_filename, frames[0][2]) if frames else Where("<unknown>", 0)
    pipeline.assertions.append(Assertion(pcoll.id, converted, recorder, panes, label, where, frames))
    pipeline.finished = False


class _AssertionRecorder(PaneRecorder):
    """Records the collection of an assertion; drawings of the pipeline show it as `assert_that`."""

    def default_label(self) -> str:
        return "assert_that"


def unchecked() -> list[TestPipeline]:
    """TestPipelines with assertions that no run has checked."""
    return [pipeline for pipeline in _pipelines if pipeline.assertions and not pipeline.finished]


def _names_runner(options: Any) -> bool:
    """True if the options name a runner."""
    match options:
        case None:
            return False
        case Mapping():
            return "runner" in options
        case Sequence():
            return any(flag.split("=")[0] in ("--runner", "-r") for flag in options)
    return "runner" in options.model_fields_set


def _check(assertions: list[Assertion]) -> None:
    """Raise one AssertionError for all assertions that fail, at the line of the first."""
    __tracebackhide__ = True
    failed = [(assertion, text) for assertion in assertions if (text := assertion.failure()) is not None]
    if not failed:
        return
    first, message = failed[0]
    if len(failed) > 1:
        parts = [f"{number}) {text}" for number, (_, text) in enumerate(failed, 1)]
        message = "\n".join([f"{len(failed)} of {len(assertions)} assertions fail", *parts])
    raise AssertionError(message).with_traceback(first.trace())


def _author_frames(frame: FrameType | None) -> tuple[tuple[FrameType, int, int], ...]:
    """The author's frames, innermost first, up to the first frame of other code that called them."""
    found = []
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_HOME, "<frozen")):
            if file.startswith(_STANDARD) or is_installed(file):
                break
            found.append((frame, frame.f_lasti, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)
