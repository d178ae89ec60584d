"""Running with something to look at: elements and elements per second of each step, on a terminal's stderr."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tidegate.sdk.errors import visible
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricResults, current_step
from tidegate.sdk.portable.seal import warn_if_idle
from tidegate.sdk.runner import PipelineResult, Runner, StageProgress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.portable.model import Pipeline

PATIENCE: Final = 1.0
"""Seconds before anything is shown, unless asked for: what is over by then needs no progress."""
PERIOD: Final = 0.5
PLAIN_PERIOD: Final = 10.0


def run_with_progress(runner: Runner, pipeline: Pipeline, options: PipelineOptions) -> PipelineResult:
    """Run to the end and return the result; raises what the run raises. Ctrl-C cancels a run that goes on."""
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
    """Shows a run's progress from a thread of its own, once `watch` or `follow` has named the run."""

    def __init__(self, pipeline: Pipeline, patience: float = PATIENCE) -> None:
        self._name = pipeline.name
        self._labels = [node.label for node in pipeline.nodes]
        self._patience = patience
        self._results: Callable[[], MetricResults] | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._show, name="tidegate-progress", daemon=True)
        self._started = time.monotonic()
        self._rates = Rates()
        self._checkpoint = ""
        self._told = ""
        self._stages: Callable[[], list[StageProgress]] = list
        self._shares = Shares()
        self._spent = Spent()

    def watch(self, cells: MetricCells) -> None:
        """Look at these metrics, which grow as the run goes on."""
        self._results = lambda: MetricResults(cells)

    def tell(self, words: str) -> None:
        """Show the progress of a runner that can't count elements while it runs."""
        self._told = f", {words}" if words else ""

    def follow(self, result: PipelineResult) -> None:
        """Look at a run that goes on in the background."""
        self._results = result.metrics
        self._stages = result.stages

    def __enter__(self) -> Display:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._told = ""
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
        """Look at where the run is, again and again, for so long; whether it is over."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._stopped.wait(min(left, Spent.PERIOD)):
                return True
            self._spent.sample()
        return self._stopped.is_set()

    def _sample(self) -> None:
        if self._results is not None:
            try:
                found = self._results().query("elements_out", namespace=ENGINE)
                checkpoint = {
                    result.key.name: result.value
                    for result in self._results().query(namespace=ENGINE, step="")
                    if result.key.name.startswith("checkpoint")
                }
            except RuntimeError:  # a step was counted for the first time while we looked; the next look will do
                return
            self._rates.sample({result.key.step: result.value for result in found}, time.monotonic())
            self._checkpoint = _of_checkpoint(checkpoint)
        self._shares.sample(self._stages())

    def _line(self) -> str:
        busiest = max(self._rates.counts.values(), default=0)
        counted = f", {busiest:,} elements in the busiest step" if busiest else ""
        slow = f", most time in {visible(slowest)}" if (slowest := self._spent.slowest()) else ""
        return f"{visible(self._name)}: {_clock(time.monotonic() - self._started)}{counted}{slow}{self._told}"

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
        shares = self._shares.by_step
        if shares:
            for name in ("busy", "idle", "held back", "behind"):
                table.add_column(name, justify="right")
        slowest = self._spent.slowest()
        captions = [part for part in (slowest and f"most time in {visible(slowest)}", self._checkpoint) if part]
        if captions:
            table.caption = escape("\n".join(captions))
            table.caption_justify = "left"
        order = {label: number for number, label in enumerate(self._labels)}
        steps = sorted(self._rates.counts, key=lambda step: order.get(step, len(order)))
        room = max(3, height - 5 - len(captions))
        if len(steps) > room:  # the busiest, still in the pipeline's order
            busiest = set(sorted(steps, key=lambda step: -self._rates.per_second(step))[:room])
            steps = [step for step in steps if step in busiest]
        for step in steps:
            told = shares.get(step, ("", "", "", "")) if shares else ()
            table.add_row(
                Text(visible(step)), f"{self._rates.counts[step]:,}", f"{self._rates.per_second(step):,.0f}", *told
            )
        return table


class Spent:
    """In which step this process has been found, of many times that it was looked at: also inside a fused chain, whose
    current line tells the step."""

    PERIOD: Final = 0.05
    """Seconds between two looks."""
    LEAST: Final = 10
    """Looks before anything can be said."""

    def __init__(self) -> None:
        self._found: dict[str, int] = {}

    def sample(self) -> None:
        """Look at what every other thread is doing."""
        own = threading.get_ident()
        for thread, frame in sys._current_frames().items():
            if thread != own and (step := current_step(frame)):
                self._found[step] = self._found.get(step, 0) + 1

    def slowest(self) -> str:
        """The step that takes longest, and its share of the time in steps; "" until that is known."""
        whole = sum(self._found.values())
        if whole < self.LEAST:
            return ""
        step = max(self._found, key=lambda step: self._found[step])
        return f"{step!r} ({self._found[step] / whole:.0%})"


class Rates:
    """Elements per second of each step over the last few samples."""

    WINDOW: Final = 6

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._samples: list[tuple[float, dict[str, int]]] = []

    def sample(self, counts: dict[str, int], now: float) -> None:
        """Take a sample of the counts at `now` (seconds of a monotonic clock)."""
        self.counts = counts
        self._samples = [*self._samples[1 - self.WINDOW :], (now, counts)]

    def per_second(self, step: str) -> float:
        """0 until two samples are there."""
        if not self._samples:
            return 0.0
        (then, before), (now, after) = self._samples[0], self._samples[-1]
        return (after.get(step, 0) - before.get(step, 0)) / (now - then) if now > then else 0.0


class Shares:
    """How each step's stage has spent its time since the sample before, in words: busy, idle, held back by who takes
    what it gives, and how far its watermark is behind the clock."""

    def __init__(self) -> None:
        self.by_step: dict[str, tuple[str, str, str, str]] = {}
        self._before: dict[tuple[str, ...], StageProgress] = {}

    def sample(self, stages: list[StageProgress]) -> None:
        """How they are doing now."""
        for now in stages:
            before = self._before.get(now.steps, StageProgress(now.steps, 0.0, 0.0, 0.0))
            spent = [now.busy - before.busy, now.idle - before.idle, now.held_back - before.held_back]
            if not any(spent):  # no new report
                continue
            self._before[now.steps] = now
            if min(spent) < 0:  # it was started anew
                continue
            whole = sum(spent)
            behind = "" if now.behind is None else _length(now.behind)
            told = f"{spent[0] / whole:.0%}", f"{spent[1] / whole:.0%}", f"{spent[2] / whole:.0%}", behind
            self.by_step.update(dict.fromkeys(now.steps, told))


def _of_checkpoint(told: Mapping[str, float]) -> str:
    """The last checkpoint, in words; "" before the first."""
    if "checkpoint" not in told:
        return ""
    failed = f", {told['checkpoints_failed']} failed" if told.get("checkpoints_failed") else ""
    return (
        f"checkpoint {told['checkpoint']}: {told['checkpoint_size']:,} bytes in {told['checkpoint_duration']:.2f} s, "
        f"alignment {told['checkpoint_alignment']:.2f} s{failed}"
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
