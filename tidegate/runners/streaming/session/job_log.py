"""The log of a session's job: what its processes print, and the lines that a client would have shown of it.

The processes append to the log file themselves. The session appends its own lines, and bounds the size: it cuts a log
that has become too long, and keeps the last part of it in a second file. Both together hold between one and two times
`LONGEST` of the latest output, and what is printed between two looks at the size.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tidegate.runners.streaming.client.console import line_of, printed
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.client_messages import ToClient
from tidegate.runners.streaming.protocol.coordinator_io import Finish
from tidegate.sdk.errors import visible_lines
from tidegate.sdk.private_files import owner_only

LONGEST: Final = 8 << 20
"""Bytes of a log when it is cut."""


class JobLog:
    """Appends what a job reports to the log at `path`, and keeps it bounded.

    What can't be written, on a full disk for instance, is left out: a session and its other jobs go on.
    """

    def __init__(self, job: Job, path: Path, longest: int = LONGEST) -> None:
        self._job = job
        self._path = path
        self._longest = longest

    def take(self, message: ToClient, error: object = None) -> None:
        """A message of the job's; `error` is what a job that has ended failed with."""
        line = line_of(message, self._job)
        text = "" if line is None else printed(*line)
        if isinstance(message, Finish):
            text = printed(message.state, {"job": self._job.id})
            text += f"\n{visible_lines(str(error))}" if error is not None else ""
        append(self._path, text, self._longest)


def append(path: Path, text: str, longest: int = LONGEST) -> None:
    """Add lines, if there is any `text`, and cut the log if it is too long. What can't be written is left out."""
    try:
        if text:
            with open(path, "a", encoding="utf-8", opener=owner_only) as file:
                file.write(f"{text}\n")
        _bound(path, longest)
    except OSError:
        pass


def _bound(path: Path, longest: int) -> None:
    """Cut a log that is too long.

    The job's processes have the file open for appending, so it is emptied in place: they go on at its start.
    """
    size = os.stat(path).st_size
    if size <= longest:
        return
    fresh = path.with_suffix(".new")
    with open(path, "r+b") as log, open(fresh, "wb", opener=owner_only) as kept:
        log.seek(size - longest)
        log.readline()  # the rest of a line
        while data := log.read(1 << 20):
            kept.write(data)
        log.truncate(0)
    fresh.replace(earlier(path))


def earlier(log: Path) -> Path:
    """Where the part before what is in a log is kept, if the log has been cut."""
    return log.with_suffix(".earlier")


def tail(log: Path, lines: int | None = None) -> bytes:
    """What a job's log holds, or its last lines. FileNotFoundError if the job has printed nothing yet."""
    parts = []
    for path in (earlier(log), log):
        try:
            parts.append(path.read_bytes())
        except FileNotFoundError:
            if path == log and not parts:
                raise
    whole = b"".join(parts)
    if lines is None:
        return whole
    return b"".join(whole.splitlines(keepends=True)[-lines:]) if lines else b""
