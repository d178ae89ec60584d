"""Runs pipelines for checks: waits with patience, and turns what goes wrong into a broken rule."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Final

from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import Pipeline
from tidegate.sdk.runner import PipelineResult
from tidegate.testing.conformance.gated_source import FAIL, OPEN, PAUSED
from tidegate.testing.conformance.rules import Calls, NotApplicable, broken

RUNNERS: Final = ("direct", "streaming", "spark")

_LOOK: Final = 0.005
"""Seconds between two looks at the state of a run."""
_RESTARTS: Final = ("--restart_strategy=fixed", "--restart_delay=0.01", "--restart_attempts=5")


def check_runners(runners: Sequence[str]) -> tuple[str, ...]:
    """The runners as a tuple. BuildError for one that does not exist."""
    for name in runners:
        if name not in RUNNERS:
            raise BuildError(f"there is no runner {name!r} to check connectors on; there are {', '.join(RUNNERS)}")
    return tuple(runners)


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder, also for processes that still write to it when it is removed."""
    path = Path(tempfile.mkdtemp(prefix="tidegate-conformance-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def pipeline_on(runner: str, *flags: str) -> Pipeline:
    """An empty pipeline for a runner; many of them follow one another quickly."""
    if runner == "streaming":
        from tidegate.runners.streaming.client.job_client import use_fork_server

        use_fork_server()
    return Pipeline(runner, [*flags])


def streaming_pipeline(checkpoints: Path, workers: int, *flags: str) -> Pipeline:
    """An empty pipeline that runs as a stream, with frequent checkpoints, and restarts after failures."""
    return pipeline_on(
        "streaming",
        *("--mode=streaming", f"--workers={workers}", "--buffer_timeout=0"),
        *(f"--checkpoint_dir={checkpoints}", "--checkpoint_interval=0.02", *_RESTARTS, *flags),
    )


class Run:
    """A pipeline that runs."""

    def __init__(self, calls: Calls, what: str, pipeline: Pipeline) -> None:
        self._calls = calls
        self._what = what
        self.result: PipelineResult = calls(what, pipeline.run)

    @property
    def ended(self) -> bool:
        return self.result.state.ended

    def wait_until(self, holds: Callable[[], bool], reason: str) -> None:
        """Wait until something holds, or the run has ended; a failure of the run breaks the rule."""
        deadline, pause = monotonic() + self._calls.patience, threading.Event()
        while not self.ended and not holds():
            if monotonic() > deadline:
                self.result.cancel()
                raise broken(
                    f"{self._what} did not get on within {self._calls.patience:g} s, waiting for {reason}",
                    "look at the run's metrics and log; if the system is only slow, pass a greater patience=",
                )
            pause.wait(_LOOK)
        if self.ended:
            self.finish()

    def finish(self) -> None:
        """Wait for the end of the run."""
        self._calls(self._what, self.result.wait_until_finish)

    def stop(self, *, savepoint: Path | None = None, drain: bool = False) -> None:
        """Stop the run cleanly, unless it has ended by itself."""
        if not self.ended:
            self.result.stop(drain=drain, savepoint=None if savepoint is None else str(savepoint))
        self.finish()

    def cancel(self) -> None:
        self._calls(self._what, self.result.cancel)

    def wait_until_paused(self, control: Path, checkpoints: Path) -> None:
        """Wait until a reader of a gated source pauses, and a checkpoint that was begun after that is complete."""
        (control / PAUSED).unlink(missing_ok=True)
        self.wait_until((control / PAUSED).exists, "a reader to have read the first elements")
        before = newest_checkpoint(checkpoints)
        self.wait_until(lambda: newest_checkpoint(checkpoints) >= before + 2, "a checkpoint")

    def fail_once(self, control: Path) -> None:
        """Let the run read on and fail with the next element; return when it has."""
        (control / FAIL).touch()
        (control / OPEN).touch()
        self.wait_until(lambda: not (control / FAIL).exists(), "an element to fail with")


def newest_checkpoint(checkpoints: Path) -> int:
    """The number of the newest complete checkpoint; 0 if there is none."""
    found = (int(path.parent.name.removeprefix("chk-")) for path in checkpoints.glob("chk-*/manifest.json"))
    return max(found, default=0)


def needs(runners: Sequence[str], *usable: str) -> list[str]:
    """Those of the chosen runners that a check can use. Ends the check if there are none."""
    if not runners:
        raise NotApplicable('pass runners=, such as ["direct", "streaming"], to run whole pipelines')
    found = [name for name in runners if name in usable]
    if not found:
        raise NotApplicable(f"it runs on {' and '.join(usable)}, and runners= has only {', '.join(runners)}")
    return found
