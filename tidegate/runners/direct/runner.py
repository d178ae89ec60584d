"""Executes a plan in this process: reads the sources in order, and pushes each block through all later steps."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tidegate.runners.direct.execute import Execution
from tidegate.runners.direct.result import BackgroundRun
from tidegate.runners.engine.checks.contracts import Checks
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.engine.run_warnings import announce_endless_run, announce_lossy_sources, log_warnings
from tidegate.runners.engine.time.clock import Clock, ManualClock, SystemClock
from tidegate.runners.plan import Plan, Step
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import BLOCK_SIZE
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import collecting
from tidegate.sdk.options.defaults import default_memory_budget
from tidegate.sdk.portable import model as portable
from tidegate.sdk.runner import Finished, PipelineResult, Runner, RunOptions

if TYPE_CHECKING:
    from pathlib import Path


class DirectRunner(Runner):
    """Runs a pipeline in memory, and checks that it would also work on the other runners. `block_size` and `clock` are
    for tests.

    `observe`, if set, is called at the start of a run and returns a function that wraps each operator: this is how
    traces are recorded.
    """

    name = "direct"
    observe: Callable[[Context, Clock], Callable[[Step, Operator], Operator]] | None = None

    def __init__(self, *, block_size: int = BLOCK_SIZE, clock: Clock | None = None) -> None:
        self.block_size = block_size
        self.clock = clock

    def check(self, pipeline: portable.Pipeline, options: RunOptions) -> list[str]:
        self.plan(pipeline, options)
        return []

    def plan(self, pipeline: portable.Pipeline, options: RunOptions) -> Plan:
        return plan(
            pipeline, Traits(parallel=False, streaming=options.mode == "streaming", drops_unread=self.drops_unread)
        )

    def run(self, pipeline: portable.Pipeline, options: RunOptions) -> PipelineResult:
        planned = self.plan(pipeline, options)
        scripted = any(isinstance(node, portable.TestStream) for node in pipeline.nodes)
        clock: Clock = self.clock or (ManualClock() if scripted else SystemClock())
        context = Context(
            memory_budget=options.memory_budget or default_memory_budget(),
            temp_dir=_no_directory_yet,
            block_size=self._block_size(),
            checks=None if options.checks == "off" else Checks(options.checks),
            runtime_types=options.type_check == "runtime",
            now=clock.now,
            max_end_timers=options.max_end_timers,
            inline=options.inline,
        )
        if self.observe is not None:
            context.wrap = self.observe(context, clock)
        execution = Execution(
            planned,
            context,
            clock,
            streaming=options.mode == "streaming",
            block_size=self.block_size,
            enough=self.enough,
        )
        context.should_pause = execution.stop.is_set
        run_for = None if options.run_for is None else options.run_for.seconds()

        def work() -> None:
            with (
                _temporary_directory(options.temp_dir) as context.temp_dir,
                collecting(context.metrics),
                _rare_garbage_collection(),
            ):
                try:
                    execution.run(run_for)
                except SystemExit as error:  # would end the process as if the run had succeeded
                    raise RunError(f"the pipeline's own code called sys.exit({error.code!r})") from error
                finally:
                    log_warnings(context.metrics, context.max_end_timers, planned.pipeline)

        announce_lossy_sources(pipeline)
        if self.watch is not None:
            self.watch(context.metrics)
        if scripted or all(collection.bounded for collection in pipeline.collections):
            work()
            return Finished(context.metrics)
        announce_endless_run(pipeline, options, previewing=self.enough is not None)
        return BackgroundRun(work, execution.stop, context.metrics, clock, execution.watermarks)

    def _block_size(self) -> int:
        """The size of the blocks that steps emit: small if only a few elements are wanted."""
        return (
            self.block_size
            if self.enough is None
            else min(self.block_size, max(_MIN_EMITTED_BLOCK, self.enough.elements))
        )


_MIN_EMITTED_BLOCK: Final = 16


@contextlib.contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Run the cycle collector less often: nearly all live objects are grouped elements, which form no cycles."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], 50_000), max(before[1], 20), max(before[2], 1_000))
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _no_directory_yet() -> Path:
    raise AssertionError("the run has not begun")


@contextlib.contextmanager
def _temporary_directory(parent: Path | None) -> Iterator[Callable[[], Path]]:
    """Yield a function that creates a directory when first called; the directory is removed at the end."""
    made: list[Any] = []

    def directory() -> Path:
        import tempfile
        from pathlib import Path

        if not made:
            try:
                made.append(tempfile.TemporaryDirectory(prefix="tidegate-", dir=parent))
            except OSError as error:
                place = f"--temp_dir {parent}" if parent else "the system's temporary directory"
                raise RunError(f"can't spill to {place}: {error.strerror}") from error
        return Path(made[0].name)

    try:
        yield directory
    finally:
        for temporary in made:
            temporary.cleanup()
