"""What a runner is, seen from the author's side, and how one is found by its name."""

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
"""What a runner is told: the author's options, or the defaults if there are none. `view_as` gives the runner's own."""


class PipelineState(enum.Enum):
    """Where a run is."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self is not PipelineState.RUNNING


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How the tasks of steps that run together have spent their time so far: seconds, of all tasks together.

    `behind` (s): how far the watermark that has reached them is behind the clock; None where there is none to compare.
    """

    steps: tuple[str, ...]
    busy: float
    idle: float
    held_back: float
    behind: float | None = None


class PipelineResult(ABC):
    """A run, going on or over."""

    def __repr__(self) -> str:
        return f"<PipelineResult {self.state.value}>"

    def _repr_html_(self) -> str:
        counted = self.metrics().query("elements_out", namespace=ENGINE)
        rows = [(metric.key.step, f"{metric.value:,}") for metric in counted]
        return html_table(("step", "elements out"), rows, f"run: {self.state.value}")

    @property
    @abstractmethod
    def state(self) -> PipelineState:
        """Where the run is now."""

    @abstractmethod
    def wait_until_finish(self, timeout: float | None = None) -> PipelineState:
        """Wait until the run ends, at most `timeout` seconds; return the state. Raises the run's error if it failed."""

    @abstractmethod
    def cancel(self) -> PipelineState:
        """Ask the run to stop, wait until it has, and return the state."""

    def stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        """Ask for a clean end. `drain`: the watermark goes to the end of time, so that all windows fire. `savepoint`: a
        folder or URL; the last state goes there, too. UnsupportedError on runners whose runs can't be stopped."""
        raise UnsupportedError(
            "only runs on the streaming runner can be stopped so: say --runner streaming, or cancel()"
        )

    def savepoint(self, directory: str) -> None:
        """Take a savepoint in a folder or URL, and go on; it is there when this returns. RunError if it could not be
        taken; UnsupportedError on runners without savepoints."""
        raise UnsupportedError("only runs on the streaming runner have savepoints: say --runner streaming")

    @abstractmethod
    def metrics(self) -> MetricResults:
        """What has been counted so far."""

    def stages(self) -> list[StageProgress]:
        """How the stages of a run that goes on are doing; [] if the runner doesn't tell."""
        return []

    def dataframe(self, label: str) -> Any:
        """The DataFrame that the `ToDataFrame` of this label has made, on the Spark runner; UnsupportedError on
        others, RunError, with the labels there are, where none has it."""
        raise UnsupportedError("only runs on the spark runner give DataFrames: say --runner spark")


class Finished(PipelineResult):
    """A run that is over: a runner whose `run` returns at the end, and has raised if it failed, gives this."""

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
    """When a run has given what is wanted of it: `asked` says so, cheaply, at any time, and `elements` are wanted."""

    asked: Callable[[], bool]
    elements: int


class Runner(ABC):
    """Something that runs portable pipelines. Runners know nothing of how a pipeline was written."""

    name: ClassVar[str]

    drops_unread: ClassVar[bool] = True
    """Whether steps without effects, whose outputs no step reads, are left out of a run. A trace runs them too."""

    watch: Callable[[MetricCells], None] | None = None
    """Called with a run's metrics as it starts, by runners whose `run` returns only at the end: whoever shows progress
    reads them while they grow."""

    tell: Callable[[str], None] | None = None
    """Called now and then, from any thread, with how far a run is, in words, by runners whose metrics come only at the
    end."""

    enough: Enough | None = None
    """What ends a run early, as if it had been stopped, on runners that read bounded data a little at a time. Others
    run it to its end."""

    @classmethod
    def options_model(cls) -> type[PipelineOptions] | None:
        """The runner's own flags, a PipelineOptions subclass; None if it has none."""
        return None

    @classmethod
    def missing(cls) -> list[str]:
        """What has to be installed before it can run, in words; [] if nothing."""
        return []

    def apart(self, options: RunOptions) -> RunOptions:
        """The options for a run beside that of the pipeline itself: what they say of state that a run keeps, or goes on
        from, holds for the pipeline alone."""
        return options

    @abstractmethod
    def check(self, pipeline: portable.Pipeline, options: RunOptions) -> list[str]:
        """Refuse, by name, what this runner can't do (raises BuildError); return warnings."""

    @abstractmethod
    def plan(self, pipeline: portable.Pipeline, options: RunOptions) -> Any:
        """The plan this runner would execute (`tidegate.runners.plan.Plan`)."""

    def explain(self, plan: Any, options: RunOptions) -> str:
        """How this runner would execute that plan, in lines; "" if the plan says it all."""
        return ""

    @abstractmethod
    def run(self, pipeline: portable.Pipeline, options: RunOptions) -> PipelineResult:
        """Run a sealed pipeline."""


def find_runner(name: str) -> Runner:
    """The runner of that name; OptionsError, with the names there are, when there is none."""
    runner: Runner = registry.make_runner(name)
    return runner
