"""What a job tells people: lines in the author's log or on stderr, and a file of JSON lines for machines."""

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
"""The logger that an author may configure. Without a handler, lines go to stderr."""


class Lines:
    """Says what is not everyday: what was restored from where, restarts, checkpoints that failed."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, message: ToClient) -> None:
        line = line_of(message, self._job)
        if line is None:
            return
        text, facts = line
        logging = sys.modules.get("logging")
        if logging is not None and (logger := logging.getLogger(LOGGER)).hasHandlers():
            logger.info("%s", visible(text), extra={f"tidegate_{name}": value for name, value in facts.items()})
            return
        print(printed(text, facts), file=sys.stderr, flush=True)


def line_of(message: ToClient, job: Job) -> tuple[str, dict[str, Any]] | None:
    """What people should read of a message, and what it is about; None if that is nothing."""
    match message:
        case Report(state="finishing") if job.settings.batch:
            return None  # that bounded work failed, and why, is told by what is raised
        case Report(state=state, text=text) if text:
            return text, {"job": job.id, "state": state}
        case CheckpointReport(checkpoint=number, error=error) if error:
            return f"checkpoint {number} failed: {error}", {"job": job.id, "checkpoint": number}
        case CheckpointReport(checkpoint=number, savepoint=place) if place:
            return f"savepoint {number} is in {place}", {"job": job.id, "checkpoint": number}
    return None


def printed(text: str, facts: Mapping[str, Any]) -> str:
    """The line as it stands on stderr and in logs."""
    told = " ".join(f"{name}={value}" for name, value in facts.items())
    return f"{rfc3339(time.time())} tidegate {told}: {visible(text)}"
