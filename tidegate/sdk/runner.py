"""The interface of runners and of the runs they start, and looking up a runner by name."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from tidegate.sdk.errors import UnsupportedError
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricResults
from tidegate.sdk.notebook import html_table
from tidegate.sdk.options import registry
from tidegate.sdk.portable import model as portable

if TYPE_CHECKING:
    from tidegate.sdk.options.defaults import DefaultOptions
    from tidegate.sdk.options.model import PipelineOptions

RunOptions: TypeAlias = "PipelineOptions | DefaultOptions"
"""The options passed to a runner: the author's, or the defaults. `view_as` returns those of the runner's own model."""


class PipelineState(enum.Enum):
    """The state of a run."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self is not PipelineState.RUNNING


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How the tasks of a stage have spent their time so far, in seconds summed over the tasks.

    `held_back` is time under backpressure. `behind` (s) is how far the stage's input watermark lags behind the clock;
    None if it has no watermark to compare.
    """

    steps: tuple[str, ...]
    busy: float
    idle: float
    held_back: float
    behind: float | None = None


class PipelineResult(ABC):
    """A run of a pipeline, which may still be running."""

    def __repr__(self) -> str:
        return f"<PipelineResult {self.state.value}>"

    def _repr_html_(self) -> str:
        counted = self.metrics().query("elements_out", namespace=ENGINE)
        rows = [(metric.key.step, f"{metric.value:,}") for metric in counted]
        return html_table(("step", "elements out"), rows, f"run: {self.state.value}")

    @property
    @abstractmethod
    def state(self) -> PipelineState:
        """The present state of the run."""

    @abstractmethod
    def wait_until_finish(self, timeout: float | None = None) -> PipelineState:
        """Wait at most `timeout` seconds for the run to end, and return its state. Raises its error if it failed."""

    @abstractmethod
    def cancel(self) -> PipelineState:
        """Cancel the run, wait until it has ended, and return its state."""

    def stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        """Stop the run cleanly. With `drain`, the watermark first advances to the end of time, so that all windows
        fire. `savepoint` is a folder or URL to which the last state is also written. UnsupportedError on runners whose
        runs can't be stopped."""
        raise UnsupportedError(
            "only streams on the streaming and spark runners can be stopped cleanly: use one of these, or cancel()"
        )

    def savepoint(self, directory: str) -> None:
        """Take a savepoint in a folder or URL, wait until it is complete, and keep running. RunError if it could not be
        taken; UnsupportedError on runners without savepoints."""
        raise UnsupportedError("only streams on the streaming and spark runners have savepoints: use one of these")

    @abstractmethod
    def metrics(self) -> MetricResults:
        """The metrics counted so far."""

    def stages(self) -> list[StageProgress]:
        """The progress of the stages of a run that has not ended; [] if the runner doesn't report it."""
        return []

    def dataframe(self, label: str) -> Any:
        """The DataFrame produced by the `ToDataFrame` with this label, on the Spark runner. UnsupportedError on other
        runners; RunError, listing the labels, if there is no such step."""
        raise UnsupportedError("only runs on the spark runner produce DataFrames: use --runner spark")


class Finished(PipelineResult):
    """The result of a runner whose `run` returns only after the run has ended, and raises if it failed."""

    def __init__(self, metrics: MetricCells) -> None:
        self._metrics = metrics

    @property
    def state(self) -> PipelineState:
        return PipelineState.DONE

    def wait_until_finish(self, timeout: float | None = None) -> PipelineState:
        return self.state

    def cancel(self) -> PipelineState:
        return self.state

    def metrics(self) -> MetricResults:
        return MetricResults(self._metrics)


@dataclass(frozen=True, slots=True)
class Enough:
    """When a run may end early: once `asked()`, which is cheap, returns true. `elements` is how many are wanted."""

    asked: Callable[[], bool]
    elements: int


class Runner(ABC):
    """Runs portable pipelines. Runners don't depend on how a pipeline was written."""

    name: ClassVar[str]

    drops_unread: ClassVar[bool] = True
    """Whether a run omits steps that have no effect and whose outputs no step reads. A trace includes them."""

    watch: Callable[[MetricCells], None] | None = None
    """Called with the run's live metrics when it starts, by runners whose `run` returns only at the end, so that a
    progress display can read them."""

    tell: Callable[[str], None] | None = None
    """Called now and then, from any thread, with a description of the run's progress, by runners whose metrics are
    complete only at the end."""

    enough: Enough | None = None
    """Ends a run early, as if it had been stopped, on runners that read bounded data incrementally. Other runners
    ignore it."""

    @classmethod
    def options_model(cls) -> type[PipelineOptions] | None:
        """The PipelineOptions subclass with the runner's own flags; None if it has none."""
        return None

    @classmethod
    def missing(cls) -> list[str]:
        """The missing prerequisites, in words; [] if the runner can run."""
        return []

    def apart(self, options: RunOptions) -> RunOptions:
        """The options for a run that only shows data: without those that make a run store state or resume from it."""
        return options

    @abstractmethod
    def check(self, pipeline: portable.Pipeline, options: RunOptions) -> list[str]:
        """Raise BuildError, naming the feature, if the pipeline needs one this runner lacks; return warnings."""

    @abstractmethod
    def plan(self, pipeline: portable.Pipeline, options: RunOptions) -> Any:
        """The plan this runner would execute (`tidegate.runners.plan.Plan`)."""

    def explain(self, plan: Any, options: RunOptions) -> str:
        """How this runner would execute the plan, as lines of text; "" if it has nothing to add to the plan."""
        return ""

    @abstractmethod
    def run(self, pipeline: portable.Pipeline, options: RunOptions) -> PipelineResult:
        """Run a sealed pipeline."""


def find_runner(name: str) -> Runner:
    """The runner with that name; OptionsError, listing the names, if there is none."""
    runner: Runner = registry.make_runner(name)
    return runner
