"""`trace`: record a run of a pipeline on the direct runner, and draw it as event time against processing time.

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
    """Run a pipeline to its end on the direct runner, and return a record of the run.

    The pipeline's options apply, but of its runner only the clock. A TestPipeline checks its assertions. `clock`
    provides processing time (a TestStream has its own clock). Raises the errors of the run, and BuildError for anything
    but a pipeline.
    """
    if not isinstance(pipeline, Pipeline):
        raise BuildError(
            f"trace takes a Pipeline, not {type(pipeline).__name__}: build one and trace it before it runs"
        )
    from tidegate.testing.trace.tracer import Tracer

    tracer = Tracer(clock=clock or getattr(pipeline.runner, "clock", None))
    with pipeline.running_on(tracer):
        pipeline.run().wait_until_finish()
    return tracer.trace()
