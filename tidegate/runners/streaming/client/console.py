"""A job's messages for people, as lines in the author's log or on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.utc import rfc3339
from tidegate.runners.streaming.protocol.client_messages import ToClient
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport, Report
from tidegate.sdk.errors import visible

LOGGER: Final = "tidegate.streaming"
"""A logger that authors may configure. If it has no handler, lines are printed to stderr."""


class ConsoleReporter:
    """Prints the exceptional messages of a job: restores, restarts, savepoints, failed checkpoints."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, message: ToClient) -> None:
        line = line_of(message, self._job)
        if line is None:
            return
        text, fields = line
        logging = sys.modules.get("logging")
        if logging is not None and (logger := logging.getLogger(LOGGER)).hasHandlers():
            logger.info("%s", visible(text), extra={f"tidegate_{name}": value for name, value in fields.items()})
            return
        print(format_line(text, fields), file=sys.stderr, flush=True)


def line_of(message: ToClient, job: Job) -> tuple[str, dict[str, Any]] | None:
    """The text of a message for people, and its structured fields; None if people need not see it."""
    match message:
        case Report(state="finishing") if job.settings.batch:
            return None  # the exception of a bounded job says why it failed
        case Report(state=state, text=text) if text:
            return text, {"job": job.id, "state": state}
        case CheckpointReport(checkpoint=number, error=error) if error:
            return f"checkpoint {number} failed: {error}", {"job": job.id, "checkpoint": number}
        case CheckpointReport(checkpoint=number, savepoint=place) if place:
            return f"savepoint {number} is in {place}", {"job": job.id, "checkpoint": number}
    return None


def format_line(text: str, fields: Mapping[str, Any]) -> str:
    """The line that is written to stderr and to logs."""
    listed = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"{rfc3339(time.time())} tidegate {listed}: {visible(text)}"
