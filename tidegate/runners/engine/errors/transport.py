"""Sends errors from one process to another, with their cause, notes, and the author's frames.

Each exception is pickled separately. If it can't be unpickled, the receiver raises a RunError with its message.
"""

from __future__ import annotations

import contextlib
import pickle
import traceback

from tidegate.sdk.errors import RunError, TidegateError
from tidegate.sdk.secrets.redaction import redacted
from tidegate.sdk.user_code.frames import author_frames


def packed(error: BaseException) -> bytes:
    """The error as bytes. Tracebacks can't be pickled, so the author's frames become a note of the cause."""
    cause = error.__cause__
    parts = [_pickled(error), _message(error), _notes(error)]
    if cause is not None:
        parts += [_pickled(cause), _message(cause), [*_notes(cause), *_frames(cause)]]
    return pickle.dumps(tuple(parts), 5)


def unpacked(data: bytes) -> TidegateError:
    """The error that was packed; a RunError with its message, if it isn't a TidegateError or can't be unpickled."""
    pickled, message, notes, *packed_cause = pickle.loads(data)
    unpickled = _unpickled(pickled)
    error = unpickled if isinstance(unpickled, TidegateError) else RunError(message)
    if notes:
        error.__notes__ = notes
    if packed_cause:
        pickled, message, notes = packed_cause
        error.__cause__ = _unpickled(pickled) or RunError(message)
        if notes:
            error.__cause__.__notes__ = notes
    return error


def _pickled(error: BaseException) -> bytes:
    """The pickle of an error; b"" if it can't be pickled and unpickled, or if its text contains a secret."""
    with contextlib.suppress(Exception):
        if redacted(text := str(error)) != text:
            return b""
        data = pickle.dumps(error, 5)
        pickle.loads(data)
        return data
    return b""


def _unpickled(data: bytes) -> BaseException | None:
    with contextlib.suppress(Exception):
        found = pickle.loads(data)
        return found if isinstance(found, BaseException) else None
    return None


def _message(error: BaseException) -> str:
    return redacted(f"{type(error).__name__}: {error}")


def _notes(error: BaseException) -> list[str]:
    return [redacted(note) for note in getattr(error, "__notes__", ())]


def _frames(cause: BaseException) -> list[str]:
    trace = author_frames(cause.__traceback__)
    if trace is None:
        return []
    return ["in a worker, the innermost call last:\n" + "".join(traceback.format_tb(trace)).rstrip()]
