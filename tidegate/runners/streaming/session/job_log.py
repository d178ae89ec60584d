"""The log of a session's job: the output of its processes, and the lines that a client would have printed about it.

The processes append to the log file directly. The session appends its lines, and rotates a log that has become too
long: the last part moves to a second file. Both files together hold one to two times `LONGEST` bytes of the latest
output, plus the output since the size was last checked.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tidegate.runners.streaming.client.console import format_line, line_of
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.client_messages import ToClient
from tidegate.runners.streaming.protocol.coordinator_io import Finish
from tidegate.sdk.errors import visible_lines
from tidegate.sdk.private_files import owner_only

LONGEST: Final = 8 << 20
"""Bytes of a log when it is rotated."""


class JobLog:
    """Appends a job's messages to the log at `path`, and bounds its size.

    Lines that can't be written, on a full disk for instance, are dropped, so that the session and its jobs continue.
    """

    def __init__(self, job: Job, path: Path, longest: int = LONGEST) -> None:
        self._job = job
        self._path = path
        self._longest = longest

    def write(self, message: ToClient, error: object = None) -> None:
        """Append the line for a message; with `Finish`, also the `error` with which the job failed."""
        line = line_of(message, self._job)
        text = "" if line is None else format_line(*line)
        if isinstance(message, Finish):
            text = format_line(message.state, {"job": self._job.id})
            text += f"\n{visible_lines(str(error))}" if error is not None else ""
        append(self._path, text, self._longest)


def append(path: Path, text: str, longest: int = LONGEST) -> None:
    """Append `text`, unless it is empty, and rotate the log if it is too long. Ignores I/O errors."""
    try:
        if text:
            with open(path, "a", encoding="utf-8", opener=owner_only) as file:
                file.write(f"{text}\n")
        _rotate(path, longest)
    except OSError:
        pass


def _rotate(path: Path, longest: int) -> None:
    """Rotate a log that is too long.

    The job's processes have the file open for appending, so it is truncated in place: they continue at its start.
    """
    size = os.stat(path).st_size
    if size <= longest:
        return
    copy = path.with_suffix(".new")
    with open(path, "r+b") as log, open(copy, "wb", opener=owner_only) as file:
        log.seek(size - longest)
        log.readline()  # skip an incomplete line
        while data := log.read(1 << 20):
            file.write(data)
        log.truncate(0)
    copy.replace(earlier(path))


def earlier(log: Path) -> Path:
    """The file with the part of a log before the last rotation, if there was one."""
    return log.with_suffix(".earlier")


def tail(log: Path, lines: int | None = None) -> bytes:
    """The content of a job's log, or its last lines. FileNotFoundError if the job has printed nothing yet."""
    parts = []
    for path in (earlier(log), log):
        try:
            parts.append(path.read_bytes())
        except FileNotFoundError:
            if path == log and not parts:
                raise
    content = b"".join(parts)
    if lines is None:
        return content
    return b"".join(content.splitlines(keepends=True)[-lines:]) if lines else b""
