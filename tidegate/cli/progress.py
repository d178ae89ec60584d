"""Shows the progress of a run on stderr: elements per second, busy time and lag of each step."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidegate.sdk.errors import counted, visible
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricResults, current_step
from tidegate.sdk.portable.integrity import with_bodies
from tidegate.sdk.portable.seal import warn_if_idle
from tidegate.sdk.runner import PipelineResult, Runner, StageProgress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.portable.model import Pipeline

PATIENCE: Final = 1.0
"""Seconds before progress is shown, except with `--progress on`: shorter runs need none."""
PERIOD: Final = 0.5
PLAIN_PERIOD: Final = 10.0


def run_with_progress(runner: Runner, pipeline: Pipeline, options: PipelineOptions) -> PipelineResult:
    """Run a pipeline to its end and return the result. Raises the exception of a run that fails; Ctrl-C cancels the
    run."""
    if runner.drops_unread:
        warn_if_idle(pipeline)
    if options.progress == "off" or (options.progress == "auto" and not sys.stderr.isatty()):
        return _finish(runner.run(pipeline, options))
    started = time.monotonic()
    display = Display(pipeline, patience=0.0 if options.progress == "on" else PATIENCE)
    runner.watch = display.watch
    runner.tell = display.tell
    with display:
        result = runner.run(pipeline, options)
        if not result.state.ended:
            display.follow(result)
        _finish(result)
    if options.progress == "on" or sys.stderr.isatty():
        from tidegate.cli.summary import summary

        lines = summary(pipeline, result.state, result.metrics(), time.monotonic() - started)
        print("\n".join(lines), file=sys.stderr, flush=True)
    return result


def _finish(result: PipelineResult) -> PipelineResult:
    try:
        result.wait_until_finish()
    except KeyboardInterrupt:
        result.cancel()
        raise
    return result


class Display:
    """Shows the progress of a run in a thread, once `watch` or `follow` has connected it to the run's metrics."""

    def __init__(self, pipeline: Pipeline, patience: float = PATIENCE) -> None:
        self._name = pipeline.name
        self._labels = [node.label for node in with_bodies(pipeline.nodes)]
        self._patience = patience
        self._results: Callable[[], MetricResults] | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._show, name="tidegate-progress", daemon=True)
        self._started = time.monotonic()
        self._rates = Rates()
        self._checkpoint = ""
        self._told: list[str] = []
        """Lines about loops, and about steps that wait for calls."""
        self._runner_message = ""
        self._stages: Callable[[], list[StageProgress]] = list
        self._stage_times = StageTimes()
        self._profiler = StepProfiler()

    def watch(self, cells: MetricCells) -> None:
        """Show these metrics, which the run updates."""
        self._results = lambda: MetricResults(cells)

    def tell(self, words: str) -> None:
        """Show a message of a runner that can't count elements while it runs."""
        self._runner_message = f", {words}" if words else ""

    def follow(self, result: PipelineResult) -> None:
        """Show the metrics of a run in the background."""
        self._results = result.metrics
        self._stages = result.stages

    def __enter__(self) -> Display:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._runner_message = ""
        self._stopped.set()
        self._thread.join()

    def _show(self) -> None:
        if self._patience and self._stopped.wait(self._patience):
            return
        if sys.stderr.isatty():
            self._live()
        else:
            while not self._pause(PLAIN_PERIOD):
                self._sample()
                print(self._line(), file=sys.stderr, flush=True)
        self._sample()
        print(self._line(), file=sys.stderr, flush=True)

    def _live(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while not self._pause(PERIOD):
                self._sample()
                live.update(self._table(console.height), refresh=True)

    def _pause(self, seconds: float) -> bool:
        """Profile the run for so many seconds, or until it is over. Returns whether it is over."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._stopped.wait(min(left, StepProfiler.PERIOD)):
                return True
            self._profiler.sample()
        return self._stopped.is_set()

    def _sample(self) -> None:
        if self._results is not None:
            try:
                results = self._results()
                found = results.query("elements_out", namespace=ENGINE)
                checkpoint = {
                    result.key.name: result.value
                    for result in results.query(namespace=ENGINE, step="")
                    if result.key.name.startswith("checkpoint") or result.key.name == "sources_paused"
                }
                self._told = [*_rounds(results), *_calls_in_flight(results)]
            except RuntimeError:  # the run added a metric during the query; the next sample will succeed
                return
            self._rates.sample({result.key.step: result.value for result in found}, time.monotonic())
            self._checkpoint = _of_checkpoint(checkpoint)
        self._stage_times.sample(self._stages())

    def _line(self) -> str:
        busiest = max(self._rates.counts.values(), default=0)
        elements = f", {counted(busiest, 'element')} in the busiest step" if busiest else ""
        slow = f", most time in {visible(slowest)}" if (slowest := self._profiler.slowest()) else ""
        more = "".join(f", {visible(told)}" for told in self._told)
        took = _clock(time.monotonic() - self._started)
        return f"{visible(self._name)}: {took}{elements}{slow}{more}{self._runner_message}"

    def _table(self, height: int) -> RenderableType:
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        if not self._rates.counts:
            return Text(self._line(), style="bold")
        table = Table(box=None, padding=(0, 2, 0, 0), title_justify="left", title_style="bold")
        table.title = f"{escape(visible(self._name))}  {_clock(time.monotonic() - self._started)}"
        table.add_column("step", style="cyan", no_wrap=True, overflow="ellipsis")
        table.add_column("elements", justify="right")
        table.add_column("per second", justify="right")
        stage_times = self._stage_times.by_step
        if stage_times:
            for name in ("busy", "idle", "held back", "behind"):
                table.add_column(name, justify="right")
        slowest = self._profiler.slowest()
        captions = [*map(visible, self._told)]
        captions += [part for part in (slowest and f"most time in {visible(slowest)}", self._checkpoint) if part]
        if captions:
            table.caption = escape("\n".join(captions))
            table.caption_justify = "left"
        order = {label: number for number, label in enumerate(self._labels)}
        steps = sorted(self._rates.counts, key=lambda step: order.get(step, len(order)))
        room = max(3, height - 5 - len(captions))
        if len(steps) > room:  # show the busiest ones, in the order of the pipeline
            busiest = set(sorted(steps, key=lambda step: -self._rates.per_second(step))[:room])
            steps = [step for step in steps if step in busiest]
        for step in steps:
            times = stage_times.get(step, ("", "", "", "")) if stage_times else ()
            table.add_row(
                Text(visible(step)), f"{self._rates.counts[step]:,}", f"{self._rates.per_second(step):,.0f}", *times
            )
        return table


class StepProfiler:
    """A sampling profiler: finds the step that this process spends most time in. Within a fused chain, the current line
    of the generated loop shows the step."""

    PERIOD: Final = 0.05
    """Seconds between two samples."""
    MIN_SAMPLES: Final = 10
    """The samples needed before `slowest` returns a step."""

    def __init__(self) -> None:
        self._samples: dict[str, int] = {}

    def sample(self) -> None:
        """Record the current step of every other thread."""
        this_thread = threading.get_ident()
        for thread, frame in sys._current_frames().items():
            if thread != this_thread and (step := current_step(frame)):
                self._samples[step] = self._samples.get(step, 0) + 1

    def slowest(self) -> str:
        """The step that takes longest, with its percentage of the time in all steps; "" with too few samples."""
        total = sum(self._samples.values())
        if total < self.MIN_SAMPLES:
            return ""
        step = max(self._samples, key=lambda step: self._samples[step])
        return f"{step!r} ({self._samples[step] / total:.0%})"


class Rates:
    """Elements per second of each step over the last few samples."""

    WINDOW: Final = 6

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._samples: list[tuple[float, dict[str, int]]] = []

    def sample(self, counts: dict[str, int], now: float) -> None:
        """Record the counts at `now` (seconds of a monotonic clock)."""
        self.counts = counts
        self._samples = [*self._samples[1 - self.WINDOW :], (now, counts)]

    def per_second(self, step: str) -> float:
        """The rate of a step; 0 before the second sample."""
        if not self._samples:
            return 0.0
        (then, before), (now, after) = self._samples[0], self._samples[-1]
        return (after.get(step, 0) - before.get(step, 0)) / (now - then) if now > then else 0.0


class StageTimes:
    """For each step, the percentages of time that its stage was busy, idle and backpressured since the last sample, and
    how far its watermark is behind the clock, as text."""

    def __init__(self) -> None:
        self.by_step: dict[str, tuple[str, str, str, str]] = {}
        self._before: dict[tuple[str, ...], StageProgress] = {}

    def sample(self, stages: list[StageProgress]) -> None:
        """Compute the texts from the current progress of the stages."""
        for now in stages:
            before = self._before.get(now.steps, StageProgress(now.steps, 0.0, 0.0, 0.0))
            times = [now.busy - before.busy, now.idle - before.idle, now.held_back - before.held_back]
            if not any(times):  # the stage has not reported since the last sample
                continue
            self._before[now.steps] = now
            if min(times) < 0:  # the stage has restarted
                continue
            total = sum(times)
            behind = "" if now.behind is None else _length(now.behind)
            texts = f"{times[0] / total:.0%}", f"{times[1] / total:.0%}", f"{times[2] / total:.0%}", behind
            self.by_step.update(dict.fromkeys(now.steps, texts))


def _rounds(results: MetricResults) -> Iterator[str]:
    """For each loop its last round that is over, as far as metrics are kept by round, and what it has left."""
    for loop in results.query("fed_back", namespace=ENGINE):
        if rounds := results.by_round(loop.key.step):
            number = max(rounds)
            left = rounds[number].counter("fed_back", namespace=ENGINE)
            yield f"round {number:,} of {loop.key.step!r} left {counted(left, 'element')}"


def _calls_in_flight(results: MetricResults) -> Iterator[str]:
    """For each step that waits for calls outside the pipeline: how many, and how long they take."""
    durations = {result.key.step: result.value for result in results.query("call_seconds", namespace=ENGINE)}
    for result in results.query("calls_in_flight", namespace=ENGINE):
        took = durations.get(result.key.step)
        if result.value > 0:
            told = "" if took is None else f", {took.mean:.2g} s each, {took.max:.2g} s at most"
            yield f"{counted(result.value, 'call')} of {result.key.step!r} in flight{told}"


def _of_checkpoint(metrics: Mapping[str, float]) -> str:
    """A line about the last checkpoint; "" before the first."""
    if "checkpoint" not in metrics:
        return ""
    failed = f", {metrics['checkpoints_failed']} failed" if metrics.get("checkpoints_failed") else ""
    paused = ", sources paused until commits are done" if metrics.get("sources_paused") else ""
    return (
        f"checkpoint {metrics['checkpoint']}: {metrics['checkpoint_size']:,} bytes in "
        f"{metrics['checkpoint_duration']:.2f} s, alignment {metrics['checkpoint_alignment']:.2f} s{failed}{paused}"
    )


def _length(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.1f} s"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
