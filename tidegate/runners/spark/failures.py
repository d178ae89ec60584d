"""Errors across Spark: a worker's exception ends with one marked payload, from which the driver raises the author's."""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidegate.sdk.errors import RunError, TidegateError

_MARK: Final = re.compile(r"tidegate-error:([A-Za-z0-9+/=]+):end")


class WorkerFailure(Exception):
    """What a worker raises: its text carries the error."""


def marked(error: BaseException) -> WorkerFailure:
    """The exception to leave a worker with."""
    cause = error.__cause__
    notes = getattr(error, "__notes__", None)
    plain = RunError(f"{type(error).__name__}: {error}")
    for candidate in ((error, cause, notes), (error, None, notes), (plain, None, None)):
        try:
            payload = pickle.dumps(candidate, 5)
            pickle.loads(payload)
            break
        except Exception:
            continue
    return WorkerFailure(f"{error}\ntidegate-error:{base64.b64encode(payload).decode()}:end")


def unmarked(text: str) -> TidegateError | None:
    """The author's error inside what Spark says, the last one marked; None if there is none."""
    found = _MARK.findall(text)
    if not found:
        return None
    raised, cause, notes = pickle.loads(base64.b64decode(found[-1]))
    if not isinstance(raised, TidegateError):
        raised = RunError(f"{type(raised).__name__}: {raised}")
    told: TidegateError = raised
    told.__cause__ = cause
    for note in notes or ():
        told.add_note(note)
    return told


@contextmanager
def raised_by() -> Iterator[None]:
    """What Spark raises inside, as the author's own error where a worker has marked one, else as a RunError."""
    try:
        yield
    except Exception as error:
        found = unmarked(str(error))
        if found is None:
            raise RunError(f"Spark could not finish the run: {gist(str(error))}") from error
        raise found from found.__cause__


def gist(text: str) -> str:
    """What Spark says, without the JVM's trace."""
    told = text.partition("JVM stacktrace:")[0].partition("Driver stacktrace:")[0]
    lines = [line for line in told.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join(lines if len(lines) <= 24 else [*lines[:4], "…", *lines[-20:]])
