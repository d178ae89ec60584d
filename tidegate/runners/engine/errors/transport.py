"""Errors carried from one process to another, as far as they can be: with cause, notes, and the author's frames.

Each part travels by itself: an exception of a class that is not known where it arrives is told there in words.
"""

from __future__ import annotations

import contextlib
import pickle
import traceback

from tidegate.sdk.errors import RunError, TidegateError
from tidegate.sdk.user_code.frames import author_frames


def packed(error: BaseException) -> bytes:
    """The error as bytes; a traceback does not travel, so the author's frames become a note of the cause."""
    cause = error.__cause__
    parts = [_pickled(error), _told(error), _notes(error)]
    if cause is not None:
        parts += [_pickled(cause), _told(cause), [*_notes(cause), *_frames(cause)]]
    return pickle.dumps(tuple(parts), 5)


def unpacked(data: bytes) -> TidegateError:
    """The error back; what is none of ours is told by a RunError."""
    raised, words, notes, *about_cause = pickle.loads(data)
    found = _unpickled(raised)
    told = found if isinstance(found, TidegateError) else RunError(words)
    if notes:
        told.__notes__ = notes
    if about_cause:
        cause, words, notes = about_cause
        told.__cause__ = _unpickled(cause) or RunError(words)
        if notes:
            told.__cause__.__notes__ = notes
    return told


def _pickled(error: BaseException) -> bytes:
    """b"" if it can't be pickled, or not be brought back."""
    with contextlib.suppress(Exception):
        data = pickle.dumps(error, 5)
        pickle.loads(data)
        return data
    return b""


def _unpickled(data: bytes) -> BaseException | None:
    with contextlib.suppress(Exception):
        found = pickle.loads(data)
        return found if isinstance(found, BaseException) else None
    return None


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


def _frames(cause: BaseException) -> list[str]:
    trace = author_frames(cause.__traceback__)
    if trace is None:
        return []
    return ["in a worker, the innermost call last:\n" + "".join(traceback.format_tb(trace)).rstrip()]
