"""Errors on their way from a worker to the author: with their cause and notes, as far as they can be pickled."""

from __future__ import annotations

import pickle
import traceback

from tidegate.sdk.errors import RunError, TidegateError
from tidegate.sdk.functions import author_frames


def packed(error: BaseException) -> bytes:
    """The error as bytes, its cause and notes too where they travel; the author's frames become a note of the cause."""
    _note_frames(error.__cause__)
    notes = getattr(error, "__notes__", None)
    plain = RunError(f"{type(error).__name__}: {error}")
    for candidate in ((error, error.__cause__, notes), (error, None, notes), (plain, None, None)):
        try:
            data = pickle.dumps(candidate, 5)
            pickle.loads(data)
        except Exception:
            continue
        return data
    raise AssertionError("a plain error can always be pickled")


def in_short(error: BaseException) -> str:
    """An error in one line: what it says, and of which step."""
    lines = str(error).splitlines()[:2]
    told = ", ".join(line.strip() for line in lines if line.strip())
    return told if told and isinstance(error, TidegateError) else f"{type(error).__name__}: {told}"


def unpacked(data: bytes) -> TidegateError:
    """The error back; what is none of ours is told by a RunError."""
    raised, cause, notes = pickle.loads(data)
    if not isinstance(raised, TidegateError):
        raised = RunError(f"{type(raised).__name__}: {raised}")
    told: TidegateError = raised
    told.__cause__ = cause
    if notes:
        told.__notes__ = notes  # in place of those that have travelled with the error itself
    return told


def _note_frames(cause: BaseException | None) -> None:
    """A traceback does not travel: its text does."""
    trace = author_frames(cause.__traceback__) if cause is not None else None
    if cause is not None and trace is not None:
        frames = "".join(traceback.format_tb(trace)).rstrip()
        cause.add_note(f"in a worker, the innermost call last:\n{frames}")
        cause.__traceback__ = None
