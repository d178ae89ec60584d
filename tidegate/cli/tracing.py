"""`tidegate trace`: records a run on the direct runner, also one that fails or is interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.cli.progress import run_with_progress
from tidegate.sdk.errors import counted, visible

if TYPE_CHECKING:
    from tidegate.cli.target import Target
    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.testing.trace.recorded_run import Trace


def run_traced(found: Target, options: PipelineOptions) -> tuple[Trace, BaseException | None]:
    """Run a target, and return its trace with the exception that ended the run, if any."""
    from tidegate.runners.direct import DirectRunner
    from tidegate.testing.trace.tracer import Tracer

    runner = found.runner(options) if options.runner == DirectRunner.name else None
    tracer = Tracer(clock=runner.clock if isinstance(runner, DirectRunner) else None)
    pipeline = found.sealed(options)
    try:
        run_with_progress(tracer, pipeline, options)
    except (Exception, KeyboardInterrupt) as error:
        if not tracer.began:  # the pipeline was refused, and there is nothing to draw
            raise
        return tracer.trace(error), error
    return tracer.trace(), None


def summary(trace: Trace) -> list[str]:
    """One line per step, for the terminal."""
    lines = []
    for step in trace.steps:
        counts = step.counts
        parts = [counted(counts["elements"], "element"), counted(counts["panes"], "pane")]
        parts += [f"{counts['late']:,} late"] if counts["late"] else []
        dropped = counts["dropped_late"] + counts["dropped_closed"]
        parts += [f"{dropped:,} dropped"] if dropped else []
        lines.append(f"{visible(step.label)}: {', '.join(parts)}")
    return lines or ["this pipeline has no grouping, and so no windows to draw"]
