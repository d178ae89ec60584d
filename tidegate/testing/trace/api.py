"""Seeing windows: a run of a pipeline recorded on the direct runner, drawn as event time against processing time.

    trace(pipeline).save("trace.html")

A trace records, of each grouping and each stateful step, the elements that reach it, its watermark, its windows from
their first element to their expiry, and every pane it fires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import Pipeline

if TYPE_CHECKING:
    from tidegate.runners.engine.time.clock import Clock
    from tidegate.testing.trace.recorded_run import Trace


def trace(pipeline: Pipeline, *, clock: Clock | None = None) -> Trace:
    """Run a pipeline on the direct runner, to its end, and return what was seen of it.

    The pipeline's options apply; of its runner, only the clock is used. A TestPipeline checks its assertions. `clock`
    is processing time (a TestStream has its own clock). Raises what the run raises, and BuildError for anything but a
    pipeline.
    """
    if not isinstance(pipeline, Pipeline):
        raise BuildError(f"trace takes a Pipeline, not {type(pipeline).__name__}: build one, and trace it unrun")
    from tidegate.testing.trace.tracer import Tracer

    tracer = Tracer(clock=clock or getattr(pipeline.runner, "clock", None))
    with pipeline.running_on(tracer):
        pipeline.run().wait_until_finish()
    return tracer.trace()
